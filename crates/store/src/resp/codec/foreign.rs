//! Tells requests of other protocols from those that are typed as lines.
//!
//! A web page can have a browser send `POST / HTTP/1.1` to any port, with lines of the page's choice behind it. Redis ends
//! a connection at the words `POST` and `Host:`; here any request line of HTTP ends it, whatever its method, and so does
//! a TLS handshake, in which a page's server can place lines, too.

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// A protocol that is not Redis's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignProtocol {
    /// A line of an HTTP request.
    Http,
    /// A TLS handshake.
    Tls,
}

impl std::fmt::Display for ForeignProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Tls => "TLS",
        })
    }
}

impl ForeignProtocol {
    /// The protocol that begins a request with `first`, which no line of Redis's protocol has there.
    pub(super) fn of_first_byte(first: u8) -> Option<Self> {
        (first == TLS_HANDSHAKE).then_some(Self::Tls)
    }

    /// The protocol of a line. A value in quotes is none of it: `SET key "HTTP/1.1"` is a command.
    pub(super) fn of_line(line: &[u8]) -> Option<Self> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let first = words.next()?;
        let is_word_of_http = first.eq_ignore_ascii_case(b"POST") || first.eq_ignore_ascii_case(b"Host:");
        let is_request_line = words
            .next_back()
            .and_then(|last| last.strip_prefix(b"HTTP/"))
            .is_some_and(|version| version.first().is_some_and(u8::is_ascii_digit));
        (is_word_of_http || is_request_line).then_some(Self::Http)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_http_are_told_from_commands() {
        let methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "QUERY"];
        let request_lines = methods.map(|method| format!("{method} /a?b=c HTTP/1.1"));
        let others = ["PRI * HTTP/2.0", "  GET / HTTP/1.0  ", "post", "Host: localhost", "hOST: a", "GET  /\tHTTP/1.1"];
        for line in request_lines.iter().map(String::as_str).chain(others) {
            assert_eq!(ForeignProtocol::of_line(line.as_bytes()), Some(ForeignProtocol::Http), "{line}");
        }
        for line in [
            "",
            "GET HTTP/",
            "HTTP/1.1",
            "GET key",
            "GET Host:",
            "SET key POST",
            "SET key \"HTTP/1.1\"",
            "SET key 'HTTP/1.1'",
            "SET HTTP/1.1 value",
            "SET key xHTTP/1.1",
            "postpone",
        ] {
            assert_eq!(ForeignProtocol::of_line(line.as_bytes()), None, "{line}");
        }
    }
}
