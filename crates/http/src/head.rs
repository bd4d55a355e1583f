//! The head of a request, as httparse or hyper has parsed it.

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Version};
use httparse::Header;

/// The headers of a request.
#[derive(Clone, Copy)]
pub struct Headers<'a>(Parsed<'a>);

#[derive(Clone, Copy)]
enum Parsed<'a> {
    Httparse(&'a [Header<'a>]),
    Hyper(&'a HeaderMap),
}

impl<'a> Headers<'a> {
    /// The first value of the header `name`, which is in lower case.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        match self.0 {
            Parsed::Httparse(headers) => {
                headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
            }
            Parsed::Hyper(headers) => headers.get(name).map(|value| value.as_bytes()),
        }
    }

    /// All headers with their values; a repeated header comes once for each value.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let (list, map) = match self.0 {
            Parsed::Httparse(headers) => (headers, None),
            Parsed::Hyper(headers) => (&[][..], Some(headers)),
        };
        let map = map.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_bytes()));
        list.iter().map(|header| (header.name, header.value)).chain(map)
    }
}

impl<'a> From<&'a [Header<'a>]> for Headers<'a> {
    fn from(headers: &'a [Header<'a>]) -> Self {
        Self(Parsed::Httparse(headers))
    }
}

impl<'a> From<&'a HeaderMap> for Headers<'a> {
    fn from(headers: &'a HeaderMap) -> Self {
        Self(Parsed::Hyper(headers))
    }
}

/// The request line and the headers of a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) version: Version,
    /// The path and the query, as sent.
    pub(crate) target: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: Headers<'a>,
}

impl<'a> RequestHead<'a> {
    /// The head that hyper has parsed.
    pub(crate) fn of(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            version: parts.version,
            target: parts.uri.path_and_query().map_or("", |target| target.as_str()),
            path: parts.uri.path(),
            headers: Headers::from(&parts.headers),
        }
    }
}
