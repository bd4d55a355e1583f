//! Parameters of the routes over many keys. Prefixes and keys in them are bytes, percent-encoded.

use std::borrow::Cow;

use millstream_http::Problem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::problems::bad_parameter;

/// Characters that stay as they are in a query.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'/').remove(b':').remove(b',');

/// A parameter of a query, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) bytes: Vec<u8>,
}

/// The parameters of a query, in order. A plus sign is a space, as in forms.
pub(super) fn parameters(query: Option<&str>) -> impl Iterator<Item = Parameter<'_>> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let bytes = percent_decode_str(&value.replace('+', " ")).collect();
        Parameter { name: percent_decode_str(name).decode_utf8_lossy(), bytes }
    })
}

impl Parameter<'_> {
    pub(super) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// The value of a switch: `true`, `1` or nothing, or `false` or `0`.
    pub(super) fn switch(&self) -> Result<bool, Problem> {
        match &*self.text() {
            "true" | "1" | "" => Ok(true),
            "false" | "0" => Ok(false),
            other => Err(bad_parameter(&self.name, other, "it is true or false")),
        }
    }

    /// A number from 1 on.
    pub(super) fn limit(&self) -> Result<u64, Problem> {
        let text = self.text();
        text.parse().ok().filter(|limit| *limit > 0).ok_or_else(|| {
            bad_parameter(&self.name, &text, "it is a number from 1 on").remedy("leave it out for the default")
        })
    }

    /// Refuses a parameter that the route does not have.
    pub(super) fn unknown(&self, rule: &'static str) -> Problem {
        bad_parameter(&self.name, &self.text(), rule).remedy("see this route in /openapi.json")
    }
}

/// Bytes as a value in a query.
pub(super) fn encoded(bytes: &[u8]) -> String {
    percent_encode(bytes, PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_bytes() {
        let of = |query| -> Vec<(String, Vec<u8>)> {
            parameters(query).map(|parameter| (parameter.name.into_owned(), parameter.bytes)).collect()
        };
        let pair = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        assert_eq!(of(None), []);
        assert_eq!(of(Some("a=1&&b=x+y%2B%ff&c")), [pair("a", b"1"), pair("b", b"x y+\xff"), pair("c", b"")]);
        let hard = b"a b+c&d=\xff/\0%";
        assert_eq!(of(Some(&format!("k={}", encoded(hard)))), [pair("k", hard)]);
    }

    #[test]
    fn switches_and_limits_are_checked() {
        let parameter = |value: &str| Parameter { name: "p".into(), bytes: value.as_bytes().to_vec() };
        for (value, expected) in [("true", Some(true)), ("", Some(true)), ("0", Some(false)), ("yes", None)] {
            assert_eq!(parameter(value).switch().ok(), expected, "{value}");
        }
        for (value, expected) in [("1", Some(1)), ("0", None), ("-1", None), ("x", None), ("", None)] {
            assert_eq!(parameter(value).limit().ok(), expected, "{value}");
        }
    }
}
