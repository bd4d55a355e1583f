//! An HTTP/1.1 request, rendered once: every attempt sends the same bytes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use hyper::Uri;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::address::Address;
use crate::http_response::RequestKind;

const HOST: &str = "host";
const CONTENT_LENGTH: &str = "content-length";
/// Headers that the sender sets itself.
const FRAMING: [&str; 2] = [CONTENT_LENGTH, "transfer-encoding"];
const LINE_END: &str = "\r\n";
/// Room for the constant parts of a head.
const CONSTANT_BYTES: usize = 64;

/// A parsed URL of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    text: Arc<str>,
    address: Arc<Address>,
    /// Host and port as written.
    authority: Box<str>,
    /// Path and query as written.
    target: Box<str>,
}

impl HttpUrl {
    /// The host, a name or an IP address.
    pub fn host(&self) -> &str {
        &self.address.host
    }

    /// The same path and query at the host of `base`.
    fn at(&self, base: &Self) -> Self {
        let scheme = if base.address.is_tls { "https" } else { "http" };
        let text = [scheme, "://", &base.authority, &self.target].concat().into();
        Self { text, address: base.address.clone(), authority: base.authority.clone(), target: self.target.clone() }
    }

    /// Parses a URL; `None` if it cannot be a target.
    pub fn read(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let (is_tls, usual_port) = match uri.scheme_str()? {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?;
        let authority = uri.authority()?.as_str().rsplit('@').next().unwrap_or_default();
        let port = match authority.strip_prefix(host)? {
            "" | ":" => usual_port,
            port => read_port(port.strip_prefix(':')?)?,
        };
        let address = Arc::new(Address { host: host.trim_matches(['[', ']']).to_owned(), port, is_tls });
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        let slash = if target.starts_with('/') { "" } else { "/" };
        Some(Self { text: text.into(), address, authority: authority.into(), target: [slash, target].concat().into() })
    }
}

/// Parses a port; `None` if nobody can listen on it.
fn read_port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

/// A rendered request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// The host that it goes to.
    pub address: Arc<Address>,
    pub(crate) asked: RequestKind,
    /// The request has `Connection: close`.
    pub(crate) closes: bool,
    url: Arc<str>,
    text: String,
    head_bytes: usize,
}

impl HttpRequest {
    /// Renders a request. The names in `headers` are unique; invalid headers are left out.
    pub fn write<T: AsRef<str>>(url: &HttpUrl, method: &str, headers: &[(T, T)], body: &str) -> Self {
        let headers = headers.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
        let size = headers.clone().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
        let size = size + url.target.len() + url.authority.len() + CONSTANT_BYTES + body.len();
        let mut text = String::with_capacity(size);
        for part in [method, " ", &url.target, " HTTP/1.1", LINE_END] {
            text.push_str(part);
        }
        let mut push = |name: &str, value: &str| {
            for part in [name, ": ", value, LINE_END] {
                text.push_str(part);
            }
        };
        if !headers.clone().any(|(name, value)| name == HOST && is_header(name, value)) {
            push(HOST, &url.authority);
        }
        let mut closes = false;
        for (name, value) in headers.filter(|(name, value)| is_header(name, value)) {
            push(name, value);
            closes |= name == "connection" && value.to_ascii_lowercase().contains("close");
        }
        // Writing to memory does not fail.
        let _ = write!(text, "{CONTENT_LENGTH}: {}{LINE_END}{LINE_END}", body.len());
        let head_bytes = text.len();
        text.push_str(body);
        let asked = RequestKind::by(method);
        let (address, url) = (url.address.clone(), url.text.clone());
        Self { address, asked, closes, url, text, head_bytes }
    }

    /// The same request to the host of `base`; path and query stay.
    pub fn at(&self, base: &HttpUrl) -> Cow<'_, Self> {
        match HttpUrl::read(&self.url) {
            Some(url) if url.address != base.address => Cow::Owned(self.to(&url.at(base)).into_owned()),
            _ => Cow::Borrowed(self),
        }
    }

    /// The same request to `url`.
    pub fn to(&self, url: &HttpUrl) -> Cow<'_, Self> {
        if self.url == url.text {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self::write(url, self.head().0, &self.headers(), self.body()))
    }

    /// The request as it is sent.
    pub fn bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// The body.
    pub fn body(&self) -> &str {
        &self.text[self.head_bytes..]
    }

    fn head(&self) -> (&str, impl Iterator<Item = (&str, &str)>) {
        let mut lines = self.text[..self.head_bytes].split(LINE_END);
        let method = lines.next().and_then(|line| line.split(' ').next()).unwrap_or_default();
        (method, lines.filter_map(|line| line.split_once(": ")))
    }

    /// The headers without those that the sender sets itself.
    fn headers(&self) -> Vec<(&str, &str)> {
        let url = HttpUrl::read(&self.url);
        let host = url.as_ref().map_or("", |url| &url.authority);
        self.head().1.filter(|given| given.0 != CONTENT_LENGTH && *given != (HOST, host)).collect()
    }
}

/// Serialized in parts, from which it can be rendered again.
impl Serialize for HttpRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut parts = serializer.serialize_struct("Http", 4)?;
        parts.serialize_field("method", self.head().0)?;
        parts.serialize_field("url", &*self.url)?;
        parts.serialize_field("headers", &self.headers())?;
        parts.serialize_field("body", self.body())?;
        parts.end()
    }
}

/// The header may be given to [`HttpRequest::write`]: it is valid, and no framing. Its name is in lower case.
pub fn is_header(name: &str, value: &str) -> bool {
    let is_token = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9') || b"!#$%&'*+-.^_`|~".contains(&byte);
    !FRAMING.contains(&name) && !name.is_empty() && name.bytes().all(is_token) && is_header_text(value)
}

/// The text may stand in a header's value: it has no line breaks and no other control characters.
pub fn is_header_text(text: &str) -> bool {
    text.bytes().all(|byte| byte >= b' ' && byte != 0x7f || byte == b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, host, port, authority, target) in [
            ("http://a", "a", 80, "a", "/"),
            ("https://a/n", "a", 443, "a", "/n"),
            ("https://a:8443", "a", 8443, "a:8443", "/"),
            ("http://a:5050/n?x=1", "a", 5050, "a:5050", "/n?x=1"),
            ("http://a?x=1", "a", 80, "a", "/?x=1"),
            ("http://user:secret@a:1/", "a", 1, "a:1", "/"),
            ("http://[::1]:7/x", "::1", 7, "[::1]:7", "/x"),
            ("http://[::1]/x", "::1", 80, "[::1]", "/x"),
            ("http://a:65535", "a", 65_535, "a:65535", "/"),
            ("http://a:/n", "a", 80, "a:", "/n"),
        ] {
            let url = HttpUrl::read(text).unwrap();
            assert_eq!((url.address.host.as_str(), url.address.port), (host, port), "{text}");
            assert_eq!((&*url.authority, &*url.target), (authority, target), "{text}");
            assert_eq!(url.address.is_tls, text.starts_with("https"), "{text}");
        }
        for text in ["", "a", "/n", "ftp://a", "https://", "http://", "http:///n", "http://a b", "http://a/\r\nx: y"] {
            assert_eq!(HttpUrl::read(text), None, "{text:?}");
        }
        for host in ["http://127.0.0.1", "https://a", "http://user:1@a", "http://[::1]", "https://[::1]"] {
            for port in ["99999", "65536", "x", "0", "-1", "8o", "+80", "80:80"] {
                let text = format!("{host}:{port}/n");
                assert_eq!(HttpUrl::read(&text), None, "{text:?}");
            }
        }
    }

    #[test]
    fn no_header_and_no_text_in_one_can_end_the_head() {
        let url = HttpUrl::read("http://a:1/n").unwrap();
        let headers = [
            ("good", "\u{e4}\tb"),
            ("bad", "x\r\ninjected: y"),
            ("also bad", "x"),
            ("", "x"),
            ("Bad", "x"),
            ("bad\r\n", "x"),
            ("nul", "\0"),
            ("content-length", "99"),
            ("transfer-encoding", "chunked"),
        ];
        let request = HttpRequest::write(&url, "PUT", &headers, "b\u{e4}");
        let expected = "PUT /n HTTP/1.1\r\nhost: a:1\r\ngood: \u{e4}\tb\r\ncontent-length: 3\r\n\r\nb\u{e4}";
        assert_eq!(std::str::from_utf8(request.bytes()).unwrap(), expected);
        assert_eq!(request.body(), "b\u{e4}");
        assert!(!request.closes);
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            "{\"method\":\"PUT\",\"url\":\"http://a:1/n\",\"headers\":[[\"good\",\"\u{e4}\\tb\"]],\"body\":\"b\u{e4}\"}"
        );
    }

    #[test]
    fn a_request_goes_to_another_url_as_it_is() {
        let [one, other] = ["http://a:1/n?x=1", "https://b/m"].map(|url| HttpUrl::read(url).unwrap());
        let request = HttpRequest::write(&one, "PUT", &[("x", "y")], "body");
        assert_eq!(*request.to(&one), request);
        assert_eq!(*request.to(&other), HttpRequest::write(&other, "PUT", &[("x", "y")], "body"));
        let moved = HttpRequest::write(&HttpUrl::read("https://b/n?x=1").unwrap(), "PUT", &[("x", "y")], "body");
        assert_eq!((&*request.at(&other), &*request.at(&one)), (&moved, &request));
        let named = HttpRequest::write(&one, "PUT", &[("host", "c")], "");
        assert_eq!(*named.to(&other), HttpRequest::write(&other, "PUT", &[("host", "c")], ""));
    }

    #[test]
    fn a_host_that_is_given_stands_in_place_of_the_address() {
        let url = HttpUrl::read("http://a:1").unwrap();
        let request = HttpRequest::write(&url, "HEAD", &[("host", "b"), ("connection", "x, Close"), ("e", "")], "");
        let expected = "HEAD / HTTP/1.1\r\nhost: b\r\nconnection: x, Close\r\ne: \r\ncontent-length: 0\r\n\r\n";
        assert_eq!(std::str::from_utf8(request.bytes()).unwrap(), expected);
        assert!(request.closes && request.asked == RequestKind::Head);
        assert_eq!(request.headers(), [("host", "b"), ("connection", "x, Close"), ("e", "")]);
    }
}
