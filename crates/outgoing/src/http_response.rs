//! Parser of HTTP/1 replies as far as a sender needs them: the status, the length of the body, and whether
//! the connection can be reused.
//!
//! It accepts bytes in pieces of any size. The body is counted, and kept only if the sender wants it.

use std::mem::MaybeUninit;

use httparse::{Response, Status};

const HEAD_MAX_BYTES: usize = 64 << 10;
/// Bytes of a body, with its framing, that are waited for.
const BODY_MAX_BYTES: u64 = 64 << 10;
const HEADERS_MAX: usize = 100;
const ENDLESS: &str = "the answer's head has no end";
const BEGINS_WITH: &[u8] = b"HTTP/1.";
/// Most bytes of framing for each byte of a body that is kept.
const FRAMING_FACTOR: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// Length of the body; 0 if it is not complete.
    pub(crate) body_bytes: u64,
    /// The connection can be reused.
    pub(crate) keeps: bool,
}

/// The effect of the request's method on the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Any,
    /// The reply has no body, whatever its headers say.
    Head,
    /// The reply has no body, and after a success the connection no longer carries HTTP.
    Connect,
}

impl RequestKind {
    pub(crate) fn by(method: &str) -> Self {
        match method {
            "HEAD" => Self::Head,
            "CONNECT" => Self::Connect,
            _ => Self::Any,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ResponseReader {
    asked: RequestKind,
    /// The bytes of an incomplete head.
    head: Vec<u8>,
    said: Option<HttpResponse>,
    body: Body,
    /// Number of bytes after the head.
    after_head_bytes: u64,
    is_whole: bool,
    kept: Option<KeptBody>,
    /// The header that tells how many entities there are in all.
    total: Option<usize>,
}

/// The body of a reply that the sender wants.
#[derive(Debug)]
struct KeptBody {
    bytes: Vec<u8>,
    max_bytes: usize,
    /// The header that tells a total.
    total_header: &'static str,
}

/// The rest of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Bytes(u64),
    Chunks(Chunks),
    /// The connection's end is the body's end.
    Rest,
}

/// State of a chunked body before the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunks {
    Size { size: u64, digits: u32 },
    Extension { size: u64 },
    SizeEnd { size: u64 },
    Data { left: u64 },
    DataEnd { is_after_cr: bool },
    TrailerBegin,
    Trailer,
    TrailerEnd,
    LastEnd,
    Over,
}

impl ResponseReader {
    pub(crate) fn new(asked: RequestKind) -> Self {
        let body = Body::Bytes(0);
        Self {
            asked,
            head: Vec::new(),
            said: None,
            body,
            after_head_bytes: 0,
            is_whole: false,
            kept: None,
            total: None,
        }
    }

    /// Keeps a body of at most `max_bytes`.
    pub(crate) fn keeping(asked: RequestKind, max_bytes: usize, total_header: &'static str) -> Self {
        Self { kept: Some(KeptBody { bytes: Vec::new(), max_bytes, total_header }), ..Self::new(asked) }
    }

    /// The body that was kept and the total that the reply tells; `None` if the body is not whole.
    pub(crate) fn into_kept(self) -> Option<(Vec<u8>, Option<usize>)> {
        self.is_whole.then(|| (self.kept.map(|kept| kept.bytes).unwrap_or_default(), self.total))
    }

    /// Consumes bytes; returns the reply once it is complete or long enough.
    ///
    /// # Errors
    /// The reply is malformed; the text says how.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Option<HttpResponse>, &'static str> {
        let mut rest = bytes;
        while self.said.is_none() {
            let Some(head_bytes) = self.take_head(rest)? else { return Ok(None) };
            rest = &rest[head_bytes..];
        }
        self.take_body(rest)
    }

    /// Handles the end of the connection; returns the reply if its head is complete.
    pub(crate) fn end(&mut self) -> Option<HttpResponse> {
        self.is_whole = self.body == Body::Rest;
        let body_bytes = if self.is_whole { self.after_head_bytes } else { 0 };
        self.said.map(|said| HttpResponse { keeps: false, body_bytes, ..said })
    }

    /// The reply without its complete body.
    pub(crate) fn given_up(&self) -> Option<HttpResponse> {
        self.said.map(|said| HttpResponse { keeps: false, body_bytes: 0, ..said })
    }

    /// Adds bytes to the head; returns how many of them belong to it once it is complete.
    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        let before = self.head.len();
        if before == 0 {
            let read = self.read_head(bytes)?;
            if read.is_none() {
                self.head.extend_from_slice(bytes);
            }
            return Ok(read);
        }
        self.head.extend_from_slice(bytes);
        // A head is parsed only when it is complete: otherwise one that arrives byte by byte has quadratic cost.
        if !has_end(&self.head, before) {
            return if self.head.len() > HEAD_MAX_BYTES { Err(ENDLESS) } else { Ok(None) };
        }
        let head = std::mem::take(&mut self.head);
        let read = self.read_head(&head)?;
        if read.is_none() {
            self.head = head;
        }
        Ok(read.map(|head_bytes| head_bytes.saturating_sub(before)))
    }

    /// Parses a head. An interim reply is skipped.
    fn read_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        let begin = &bytes[..bytes.len().min(BEGINS_WITH.len())];
        if !BEGINS_WITH.starts_with(begin) {
            return Err("the answer is not HTTP/1");
        }
        let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut head = Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut head, bytes, &mut room);
        let head_bytes = match parsed {
            Ok(Status::Complete(head_bytes)) if head_bytes <= HEAD_MAX_BYTES => head_bytes,
            Ok(Status::Complete(_)) => return Err(ENDLESS),
            Ok(Status::Partial) => return Ok(None),
            Err(_) => return Err("the answer's head is not HTTP/1"),
        };
        let status = head.code.unwrap_or_default();
        // Interim replies come before the final one; 101 is final.
        if !(100..=199).contains(&status) || status == 101 {
            let (body, keeps) = self.framing(status, head.version == Some(1), head.headers)?;
            self.body = body;
            let name = self.kept.as_ref().map(|kept| kept.total_header);
            let is_total =
                |header: &&httparse::Header<'_>| name.is_some_and(|name| header.name.eq_ignore_ascii_case(name));
            let total = head.headers.iter().find(is_total);
            self.total = total.and_then(|header| number(header.value.trim_ascii())?.try_into().ok());
            self.said = Some(HttpResponse { status, body_bytes: 0, keeps });
        }
        Ok(Some(head_bytes))
    }

    /// The framing of the body, and whether the connection can be reused.
    fn framing(
        &self,
        status: u16,
        is_1_1: bool,
        headers: &[httparse::Header<'_>],
    ) -> Result<(Body, bool), &'static str> {
        let named = |name: &'static str| headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        let options = |option: &str| {
            let mut options = named("connection").flat_map(|header| header.value.split(|byte| *byte == b','));
            options.any(|given| given.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
        };
        let keeps = if is_1_1 { !options("close") } else { options("keep-alive") };
        let is_tunnel = status == 101 || self.asked == RequestKind::Connect && (200..=299).contains(&status);
        if is_tunnel {
            return Ok((Body::Bytes(0), false));
        }
        if matches!(status, 204 | 304) || self.asked == RequestKind::Head {
            return Ok((Body::Bytes(0), keeps));
        }
        if let Some(coding) = named("transfer-encoding").next_back() {
            if !is_1_1 {
                return Err("the answer of HTTP/1.0 has Transfer-Encoding");
            }
            let last = coding.value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            // Both headers together are ambiguous: the connection is not reused.
            let is_clear = named("content-length").next().is_none();
            let begin = Chunks::Size { size: 0, digits: 0 };
            return Ok(if is_chunked { (Body::Chunks(begin), keeps && is_clear) } else { (Body::Rest, false) });
        }
        let mut length = None;
        for given in named("content-length").flat_map(|header| header.value.split(|byte| *byte == b',')) {
            let given = number(given.trim_ascii()).ok_or("the answer's Content-Length is no number")?;
            if length.replace(given).is_some_and(|before| before != given) {
                return Err("the answer has two Content-Lengths");
            }
        }
        Ok(length.map_or((Body::Rest, false), |length| (Body::Bytes(length), keeps)))
    }

    fn take_body(&mut self, bytes: &[u8]) -> Result<Option<HttpResponse>, &'static str> {
        self.after_head_bytes += bytes.len() as u64;
        let Some(said) = &mut self.said else { return Ok(None) };
        let kept = &mut self.kept;
        let mut keep = |data: &[u8]| {
            if let Some(kept) = kept {
                let room = kept.max_bytes.saturating_add(1) - kept.bytes.len();
                kept.bytes.extend_from_slice(&data[..data.len().min(room)]);
            }
        };
        let rest = match &mut self.body {
            Body::Rest => {
                keep(bytes);
                None
            }
            Body::Bytes(left) => {
                let taken = (bytes.len() as u64).min(*left);
                keep(&bytes[..taken as usize]);
                said.body_bytes += taken;
                *left -= taken;
                (*left == 0).then(|| bytes.len() as u64 - taken)
            }
            Body::Chunks(at) => {
                let taken = match at.take(bytes, &mut said.body_bytes, keep) {
                    Ok(taken) => taken,
                    // The status is known, and so is whether the receiver has taken the request.
                    Err(Garbled) => return Ok(self.given_up()),
                };
                (*at == Chunks::Over).then(|| (bytes.len() - taken) as u64)
            }
        };
        let said = *said;
        match rest {
            _ if self.is_too_long() => Ok(self.given_up()),
            // Unrequested bytes make the connection useless.
            Some(unasked) => {
                self.is_whole = true;
                Ok(Some(HttpResponse { keeps: said.keeps && unasked == 0, ..said }))
            }
            None => Ok(None),
        }
    }

    fn is_too_long(&self) -> bool {
        let to_come = if let Body::Bytes(left) = self.body { left } else { 0 };
        let Some(kept) = &self.kept else { return self.after_head_bytes.saturating_add(to_come) > BODY_MAX_BYTES };
        let max_bytes = kept.max_bytes as u64;
        (kept.bytes.len() as u64).saturating_add(to_come) > max_bytes
            || self.after_head_bytes > max_bytes.saturating_mul(FRAMING_FACTOR).saturating_add(BODY_MAX_BYTES)
    }
}

struct Garbled;

impl Chunks {
    /// Consumes bytes of the body, passes its data to `keep` and counts it; returns the number of consumed bytes, all unless
    /// the body ends.
    fn take(&mut self, bytes: &[u8], data_bytes: &mut u64, mut keep: impl FnMut(&[u8])) -> Result<usize, Garbled> {
        let mut at = 0;
        while at < bytes.len() && *self != Self::Over {
            if let Self::Data { left } = self {
                let taken = (*left).min((bytes.len() - at) as u64);
                keep(&bytes[at..at + taken as usize]);
                (*left, *data_bytes, at) = (*left - taken, *data_bytes + taken, at + taken as usize);
                if *left == 0 {
                    *self = Self::DataEnd { is_after_cr: false };
                }
            } else {
                *self = self.after(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    /// The state after a byte that is not data.
    fn after(self, byte: u8) -> Result<Self, Garbled> {
        Ok(match (self, byte) {
            (Self::Size { size, digits }, digit) if digit.is_ascii_hexdigit() && digits < 15 => {
                let digit = char::from(digit).to_digit(16).unwrap_or_default();
                Self::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Self::Size { digits: 0, .. }, _) => return Err(Garbled),
            (Self::Size { size, .. } | Self::Extension { size }, b'\r') => Self::SizeEnd { size },
            (Self::Size { size, .. }, b' ' | b'\t' | b';') => Self::Extension { size },
            (Self::Extension { size }, byte) if byte != b'\n' => Self::Extension { size },
            (Self::SizeEnd { size: 0 }, b'\n') => Self::TrailerBegin,
            (Self::SizeEnd { size }, b'\n') => Self::Data { left: size },
            (Self::DataEnd { is_after_cr: false }, b'\r') => Self::DataEnd { is_after_cr: true },
            (Self::DataEnd { is_after_cr: true }, b'\n') => Self::Size { size: 0, digits: 0 },
            (Self::TrailerBegin, b'\r') => Self::LastEnd,
            (Self::TrailerBegin | Self::Trailer, byte) if byte != b'\r' && byte != b'\n' => Self::Trailer,
            (Self::Trailer, b'\r') => Self::TrailerEnd,
            (Self::TrailerEnd, b'\n') => Self::TrailerBegin,
            (Self::LastEnd, b'\n') => Self::Over,
            _ => return Err(Garbled),
        })
    }
}

/// An empty line ends at or after `from`.
fn has_end(head: &[u8], from: usize) -> bool {
    let ends_at = |at: usize| head[at] == b'\n' && (head[..at].ends_with(b"\n") || head[..at].ends_with(b"\n\r"));
    (from..head.len()).any(ends_at)
}

fn number(digits: &[u8]) -> Option<u64> {
    // HTTP allows no sign.
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses these pieces, after which the connection ends.
    fn read(asked: RequestKind, cuts: &[&[u8]]) -> Result<HttpResponse, &'static str> {
        let mut reader = ResponseReader::new(asked);
        for bytes in cuts {
            if let Some(answer) = reader.take(bytes)? {
                return Ok(answer);
            }
        }
        reader.end().ok_or("ended")
    }

    /// Checks all ways to cut the text.
    fn check(asked: RequestKind, text: &str, expected: Result<(u16, u64, bool), &str>) {
        let expected = expected.map(|(status, body_bytes, keeps)| HttpResponse { status, body_bytes, keeps });
        let bytes = text.as_bytes();
        let told = &text[..text.len().min(200)];
        for at in 0..bytes.len().min(300) {
            let (before, after) = bytes.split_at(at);
            let read = read(asked, &[before, after]);
            match expected {
                Ok(answer) => {
                    // Bytes after the end may not be seen.
                    let may_keep = read.map(|read| HttpResponse { keeps: answer.keeps, ..read });
                    assert_eq!(may_keep, Ok(answer), "{told:?} cut at {at}");
                }
                Err(why) => assert!(read.is_err_and(|error| error.contains(why)), "{told:?} cut at {at}: {read:?}"),
            }
        }
        assert_eq!(read(asked, &[bytes]).map_err(|_| ()), expected.map_err(|_| ()), "{told:?}");
    }

    #[test]
    fn answers_are_read_in_every_framing_and_fragmentation() {
        use RequestKind::{Any, Connect, Head};
        let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n{}", "x".repeat(70_000));
        let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(70_000));
        let long_head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(70_000));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(101));
        for (asked, text, expected) in [
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Ok((200, 5, true))),
            (Any, "HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", Ok((200, 0, true))),
            (Any, "HTTP/1.1 200 OK\ncontent-length: 2\n\nok", Ok((200, 2, true))),
            (Any, "HTTP/1.1 404 Not Found\r\nContent-Length: 2, 2\r\n\r\nno", Ok((404, 2, true))),
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nno", Ok((200, 2, true))),
            (Any, "HTTP/1.1 204 No Content\r\n\r\n", Ok((204, 0, true))),
            (Any, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", Ok((304, 0, true))),
            (Any, "HTTP/1.1 200 OK\r\nConnection: foo, Close\r\nContent-Length: 2\r\n\r\nok", Ok((200, 2, false))),
            (Any, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Ok((200, 2, false))),
            (Any, "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok", Ok((200, 2, true))),
            // The body ends with the connection.
            (Any, "HTTP/1.1 200 OK\r\n\r\nhello", Ok((200, 5, false))),
            (Any, "HTTP/1.0 200 OK\r\n\r\n", Ok((200, 0, false))),
            (Any, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", Ok((200, 5, false))),
            // Interim replies are skipped.
            (
                Any,
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx",
                Ok((201, 1, true)),
            ),
            (Any, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", Ok((101, 0, false))),
            // Chunks.
            (Any, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", Ok((200, 5, true))),
            (
                Any,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n00A;a=\"b\"\r\n0123456789\r\n1 \r\nx\r\n0\r\nTrailer: y\r\nOther:\r\n\r\n",
                Ok((200, 11, true)),
            ),
            (
                Any,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
                Ok((200, 0, false)),
            ),
            // The status is known, only the length of the body is not.
            (Any, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello", Ok((200, 0, false))),
            (Any, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n", Ok((200, 0, false))),
            (Any, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", Ok((200, 0, false))),
            (Any, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", Ok((200, 0, false))),
            (Any, "HTTP/1.1 500 X\r\nContent-Length: 5\r\n\r\nhel", Ok((500, 0, false))),
            (Any, &long, Ok((200, 0, false))),
            (Any, &endless, Ok((200, 0, false))),
            // Unrequested bytes follow.
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!", Ok((200, 2, false))),
            (Head, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", Ok((200, 0, true))),
            (Head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Ok((200, 0, true))),
            (Connect, "HTTP/1.1 200 OK\r\n\r\n", Ok((200, 0, false))),
            (Connect, "HTTP/1.1 405 X\r\nContent-Length: 2\r\n\r\nno", Ok((405, 2, true))),
            // Invalid replies.
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", Err("ended")),
            (Any, "HTTP/1.1 100 Continue\r\n\r\n", Err("ended")),
            (Any, "SSH-2.0-x\r\n", Err("is not HTTP/1")),
            (Any, "HTTP/2.0 200 OK\r\n\r\n", Err("is not HTTP/1")),
            (Any, "\r\nHTTP/1.1 200 OK\r\n\r\n", Err("is not HTTP/1")),
            (Any, "HTTP/1.1 abc OK\r\n\r\n", Err("is not HTTP/1")),
            (Any, "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Err("is not HTTP/1")),
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", Err("no number")),
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", Err("no number")),
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", Err("two")),
            (Any, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Err("HTTP/1.0")),
            (Any, &long_head, Err("no end")),
            (Any, &many, Err("is not HTTP/1")),
        ] {
            check(asked, text, expected);
        }
    }

    #[test]
    fn an_answer_may_come_byte_by_byte() {
        for text in [
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        ] {
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(read(RequestKind::Any, &bytes), Ok(HttpResponse { status: 200, body_bytes: 5, keeps: true }));
            for end in 0..bytes.len() {
                let begun = read(RequestKind::Any, &bytes[..end]);
                assert!(begun.is_err() || begun.is_ok_and(|answer| answer.body_bytes == 0), "{end}: {begun:?}");
            }
        }
    }
}
