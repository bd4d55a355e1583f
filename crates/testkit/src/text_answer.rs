//! An answer over HTTP whose body is text.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;

/// An answer over HTTP whose body is text.
#[derive(Debug)]
pub struct TextAnswer {
    /// The status code.
    pub status: u16,
    /// Names and values of the headers, in order.
    pub headers: Vec<(String, String)>,
    /// The body, whole.
    pub body: String,
}

impl TextAnswer {
    /// Reads head and body of an answer that is not chunked.
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap()).map(|(n, v)| (n.to_owned(), v.to_owned()));
        Self { status, headers: headers.collect(), body: body.to_owned() }
    }

    /// The first header of this name, as it is written.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// The `ETag` header.
    pub fn etag(&self) -> &str {
        self.header("etag").unwrap_or_else(|| panic!("no etag: {self:?}"))
    }

    /// As [`TextAnswer::expect_problem`], and says which request it was.
    pub fn expect_refusal(&self, line: &str, body: &str, status: u16, value: &str, rule: &str) {
        assert_eq!(self.status, status, "{line} {body}: {self:?}");
        self.expect_problem(status, value, rule);
    }

    /// Checks a refusal: its status, and that its body names `value`, `rule` and a remedy.
    pub fn expect_problem(&self, status: u16, value: &str, rule: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        let told = body["error"].as_str().unwrap();
        assert!(told.contains(value), "{value:?} in {told:?}");
        assert!(told.contains(rule), "{rule:?} in {told:?}");
        assert!(body["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty() && told.contains(remedy)), "{body}");
        assert_eq!(self.header("retry-after").is_some(), [429, 503].contains(&status), "{self:?}");
        assert_eq!(self.header("www-authenticate").is_some(), status == 401, "{self:?}");
    }

    /// Checks a refusal: its status and kind, and that its body names value, rule and remedy.
    pub fn expect_problem_of(&self, status: u16, kind: &str, value: Option<&str>, rule: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["type"], format!("urn:millstream:problem:{kind}"));
        assert_eq!(body["status"], status);
        if let Some(value) = value {
            assert_eq!(body["value"], value, "{body}");
        }
        let told = body["error"].as_str().unwrap();
        assert!(told.contains(value.unwrap_or_default()), "{value:?} in {told:?}");
        assert!(told.contains(rule), "{rule:?} in {told:?}");
        assert!(told.contains(body["detail"].as_str().unwrap()));
        assert!(body["remedy"].as_str().is_some_and(|remedy| told.contains(remedy)), "{body}");
    }
}
