//! Replies, written in the version of the protocol that the client speaks.

use std::fmt::Display;
use std::io::Write as _;

use crate::resp::number::Double;

/// The version of the protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RespVersion {
    /// RESP2, which every connection begins with.
    #[default]
    V2,
    /// RESP3, which a client asks for by `HELLO 3`.
    V3,
}

impl RespVersion {
    /// Its number, as HELLO has it.
    pub fn number(self) -> u8 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// Writes replies to a buffer, without a buffer of its own.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
    protocol: RespVersion,
}

impl<'a> ReplyWriter<'a> {
    /// Writes behind what `out` holds.
    pub fn new(out: &'a mut Vec<u8>, protocol: RespVersion) -> Self {
        Self { out, protocol }
    }

    /// The protocol version in which replies are written.
    pub fn protocol(&self) -> RespVersion {
        self.protocol
    }

    /// Bytes written so far; [`ReplyWriter::truncate`] goes back to it.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// `true` if nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Takes back what was written after the buffer had `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
    }

    /// Appends a reply that is encoded already.
    pub fn raw(&mut self, encoded: &[u8]) {
        self.out.extend_from_slice(encoded);
    }

    /// A word without line ends, such as `OK`.
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// The reply of most commands that change something.
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// An error; `text` begins with its code, such as `ERR`. Line ends become spaces.
    pub fn error(&mut self, text: &[u8]) {
        self.out.push(b'-');
        let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
        let text = &text[..end];
        self.out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
        self.end();
    }

    /// Writes a number of 64 bits.
    pub fn integer(&mut self, number: i64) {
        self.head(b':', number);
    }

    /// A count of something, which never passes the largest number.
    pub fn count(&mut self, count: usize) {
        self.head(b':', count);
    }

    /// Writes a bulk string, which may hold any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// The text of `value` as bytes.
    pub fn bulk_of(&mut self, value: impl Display) {
        self.measured(b'$', |out| {
            let _ = write!(out, "{value}");
        });
    }

    /// Writes a bulk string, or null for `None`.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Text with its format, for people to read.
    pub fn verbatim(&mut self, text: &str) {
        if self.protocol == RespVersion::V2 {
            return self.bulk(text.as_bytes());
        }
        self.head(b'=', text.len() + 4);
        self.out.extend_from_slice(b"txt:");
        self.out.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// Writes null: a null bulk string in RESP2.
    pub fn null(&mut self) {
        self.raw(match self.protocol {
            RespVersion::V2 => b"$-1\r\n",
            RespVersion::V3 => b"_\r\n",
        });
    }

    /// No array, as EXEC answers after a watched key has changed.
    pub fn null_array(&mut self) {
        self.raw(match self.protocol {
            RespVersion::V2 => b"*-1\r\n",
            RespVersion::V3 => b"_\r\n",
        });
    }

    /// True or false; 1 or 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        match self.protocol {
            RespVersion::V2 => self.integer(i64::from(value)),
            RespVersion::V3 => self.raw(if value { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// Writes a floating-point number; a bulk string in RESP2.
    pub fn double(&mut self, value: f64) {
        match self.protocol {
            RespVersion::V2 => self.bulk_of(Double(value)),
            RespVersion::V3 => {
                let _ = write!(self.out, ",{}\r\n", Double(value));
            }
        }
    }

    /// A number of any size, in decimal digits.
    pub fn big_number(&mut self, digits: &str) {
        if self.protocol == RespVersion::V2 {
            return self.bulk(digits.as_bytes());
        }
        self.out.push(b'(');
        self.out.extend_from_slice(digits.as_bytes());
        self.end();
    }

    /// `len` replies follow as the items of an array.
    pub fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// `len` pairs of replies follow: a map, or an array of twice the length in RESP2.
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            RespVersion::V2 => self.array(2 * len),
            RespVersion::V3 => self.head(b'%', len),
        }
    }

    /// `len` replies follow as the items of a set; an array in RESP2.
    pub fn set(&mut self, len: usize) {
        match self.protocol {
            RespVersion::V2 => self.array(len),
            RespVersion::V3 => self.head(b'~', len),
        }
    }

    /// `len` replies follow as a message that answers no request; an array in RESP2.
    pub fn push(&mut self, len: usize) {
        match self.protocol {
            RespVersion::V2 => self.array(len),
            RespVersion::V3 => self.head(b'>', len),
        }
    }

    fn head(&mut self, kind: u8, number: impl itoa::Integer) {
        self.out.push(kind);
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.end();
    }

    /// Writes a string whose length is known only once it is written: the head is put before it.
    fn measured(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        write(self.out);
        let length = self.out.len() - start;
        self.head(kind, length);
        self.out[start..].rotate_left(length);
        self.end();
    }

    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_reply_in_both_versions() {
        type Write = fn(&mut ReplyWriter<'_>);
        let cases: &[(Write, &str, &str)] = &[
            (|reply| reply.simple("PONG"), "+PONG\r\n", "+PONG\r\n"),
            (|reply| reply.error(b"ERR a\r\nb\r\n"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|reply| reply.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (|reply| reply.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (|reply| reply.bulk_of(1234), "$4\r\n1234\r\n", "$4\r\n1234\r\n"),
            (|reply| reply.bulk_of("a".repeat(12)), "$12\r\naaaaaaaaaaaa\r\n", "$12\r\naaaaaaaaaaaa\r\n"),
            (|reply| reply.null(), "$-1\r\n", "_\r\n"),
            (|reply| reply.null_array(), "*-1\r\n", "_\r\n"),
            (|reply| reply.boolean(true), ":1\r\n", "#t\r\n"),
            (|reply| reply.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|reply| reply.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
            (
                |reply| reply.big_number("12345678901234567890"),
                "$20\r\n12345678901234567890\r\n",
                "(12345678901234567890\r\n",
            ),
            (|reply| reply.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|reply| reply.array(3), "*3\r\n", "*3\r\n"),
            (|reply| reply.map(2), "*4\r\n", "%2\r\n"),
            (|reply| reply.set(2), "*2\r\n", "~2\r\n"),
            (|reply| reply.push(3), "*3\r\n", ">3\r\n"),
        ];
        for (write, two, three) in cases {
            for (protocol, expected) in [(RespVersion::V2, two), (RespVersion::V3, three)] {
                let mut out = Vec::new();
                write(&mut ReplyWriter::new(&mut out, protocol));
                assert_eq!(String::from_utf8(out).unwrap(), **expected, "{protocol:?}");
            }
        }
    }
}
