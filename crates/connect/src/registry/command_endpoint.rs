//! The address at which a network server takes commands for the devices behind it.
//!
//! Texts of it have placeholders for parts of a command. A `payload-properties` that names the payload is the whole body; others
//! are added to the body that the kind of network server asks for.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_http::Problem;
use millstream_outgoing::{HttpUrl, is_header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object::Object;

const URI_MAX_BYTES: usize = 2_048;
const HEADERS_MAX: usize = 32;
const HEADERS_MAX_BYTES: usize = 8 << 10;
const PROPERTIES_MAX_BYTES: usize = 8 << 10;
/// Places where the payload may stand, so that a request is not much larger than its command.
const PAYLOADS_MAX: usize = 4;
const OPENS: &str = "{{";
const CLOSES: &str = "}}";
const PORT: &str = "{{port}}";
const PAYLOADS: [&str; 2] = ["{{payload}}", "{{payloadHex}}"];
/// Characters that a URI has encoded (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address that commands are posted to for devices that do not connect themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct CommandEndpoint {
    uri: String,
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    headers: Object,
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    payload_properties: Object,
}

/// The parts of a command that placeholders stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DownlinkValues<'a> {
    pub(crate) device: &'a str,
    pub(crate) payload: &'a [u8],
    /// The function port.
    pub(crate) port: u8,
}

impl DownlinkValues<'_> {
    pub(crate) fn payload_base64(&self) -> String {
        STANDARD.encode(self.payload)
    }

    pub(crate) fn payload_hex(&self) -> String {
        self.payload.iter().map(|byte| format!("{byte:02X}")).collect()
    }

    /// The value of a placeholder; `None` if there is none of that name.
    fn of(&self, name: &str) -> Option<String> {
        match name {
            "deviceId" => Some(self.device.to_owned()),
            "deviceIdLowerCase" => Some(self.device.to_ascii_lowercase()),
            "payload" => Some(self.payload_base64()),
            "payloadHex" => Some(self.payload_hex()),
            "port" => Some(self.port.to_string()),
            _ => None,
        }
    }

    /// Replaces the placeholders of `text`. The name of an unknown one is the error.
    fn fill<'t>(&self, text: &'t str, encode: fn(String) -> String) -> Result<String, &'t str> {
        let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((before, after)) = rest.split_once(OPENS) {
            filled.push_str(before);
            let Some((name, after)) = after.split_once(CLOSES) else { return Err(after) };
            filled.push_str(&encode(self.of(name).ok_or(name)?));
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Replaces the placeholders in the texts of `value`; what is no placeholder stays.
    fn fill_json(&self, value: &mut Value) {
        match value {
            Value::String(text) if text == PORT => *value = self.port.into(),
            Value::String(text) => {
                if let Ok(filled) = self.fill(text, |plain| plain) {
                    *text = filled;
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.fill_json(value)),
            Value::Object(members) => members.values_mut().for_each(|value| self.fill_json(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl CommandEndpoint {
    /// The URL of a command.
    pub(crate) fn url(&self, values: &DownlinkValues<'_>) -> Option<HttpUrl> {
        HttpUrl::read(&values.fill(&self.uri, percent_encoded).ok()?)
    }

    /// The headers by their name in lower case.
    pub(crate) fn headers(&self) -> BTreeMap<String, &str> {
        let texts = self.headers.iter().filter_map(|(name, value)| Some((name.to_ascii_lowercase(), value.as_str()?)));
        texts.collect()
    }

    /// The body, if the endpoint has a template of it.
    pub(crate) fn body(&self, values: &DownlinkValues<'_>) -> Option<Value> {
        (payloads_in(&self.payload_properties) > 0).then(|| self.filled(values))
    }

    /// Members to add to the body that the kind of network server asks for.
    pub(crate) fn properties(&self, values: &DownlinkValues<'_>) -> Object {
        match self.filled(values) {
            Value::Object(members) => members,
            _ => Object::new(),
        }
    }

    fn filled(&self, values: &DownlinkValues<'_>) -> Value {
        let mut body = Value::Object(self.payload_properties.clone());
        values.fill_json(&mut body);
        body
    }

    /// Refuses an endpoint to which no command could be posted.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let refuse = |detail: &'static str, value: &str, rule: &'static str| {
            Err(Problem::invalid(detail).value(value).rule(rule).remedy("correct command-endpoint"))
        };
        let sample = DownlinkValues { device: "0", payload: &[0], port: 1 };
        if let Err(name) = sample.fill(&self.uri, percent_encoded) {
            let rule = "a URI has {{deviceId}}, {{deviceIdLowerCase}}, {{port}}, {{payload}} and {{payloadHex}}";
            return refuse("there is no such placeholder", name, rule);
        }
        let authority = self.uri.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or(""));
        let is_fixed = !authority.contains(OPENS) && !authority.contains('@');
        if self.uri.len() > URI_MAX_BYTES || !is_fixed || self.url(&sample).is_none() {
            let rule = "uri is a URL as https://host:port/path of at most 2048 bytes, without user and with placeholders behind the host only";
            return refuse("commands cannot be posted to this URI", &self.uri, rule);
        }
        let mut bytes = 0;
        for (name, value) in &self.headers {
            let text = value.as_str().unwrap_or("\n");
            bytes += name.len() + text.len();
            if !is_header(&name.to_ascii_lowercase(), text) {
                let rule = "headers are names and texts of HTTP, without those of framing";
                return refuse("this header cannot be sent", name, rule);
            }
        }
        let is_ambiguous = self.headers().len() < self.headers.len();
        if self.headers.len() > HEADERS_MAX || bytes > HEADERS_MAX_BYTES || is_ambiguous {
            let rule = "there are at most 32 headers of 8192 bytes together, each once whatever the case of its name";
            return refuse("these headers cannot be sent", &self.headers.len().to_string(), rule);
        }
        let bytes = serde_json::to_vec(&self.payload_properties).map_or(usize::MAX, |json| json.len());
        if bytes > PROPERTIES_MAX_BYTES {
            let rule = "payload-properties have at most 8192 bytes";
            return refuse("the body would be too large", &bytes.to_string(), rule);
        }
        let payloads = payloads_in(&self.payload_properties) + payloads_in_text(&self.uri);
        if payloads > PAYLOADS_MAX {
            let rule = "the payload stands in at most 4 places";
            return refuse("the request would be too large", &payloads.to_string(), rule);
        }
        Ok(())
    }
}

fn percent_encoded(plain: String) -> String {
    utf8_percent_encode(&plain, RESERVED).to_string()
}

/// The number of placeholders of the payload.
fn payloads_in(members: &Object) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::String(text) => payloads_in_text(text),
            Value::Array(values) => values.iter().map(of).sum(),
            Value::Object(members) => payloads_in(members),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }
    members.values().map(of).sum()
}

fn payloads_in_text(text: &str) -> usize {
    PAYLOADS.iter().map(|placeholder| text.matches(placeholder).count()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoint(document: Value) -> CommandEndpoint {
        serde_json::from_value(document).unwrap()
    }

    const VALUES: DownlinkValues<'static> = DownlinkValues { device: "A/B", payload: &[0xfb, 0xff], port: 7 };

    #[test]
    fn placeholders_are_encoded_in_a_uri_and_plain_in_a_body() {
        let uri = "https://ns/{{deviceId}}/{{deviceIdLowerCase}}?p={{port}}&x={{payloadHex}}&y={{payload}}";
        let properties =
            json!({"list": [{"port": "{{port}}", "is": "{{deviceId}}:{{payload}} {{other}}"}, "{{payload}}", 1]});
        let endpoint = endpoint(json!({"uri": uri, "payload-properties": properties}));
        endpoint.check().unwrap();
        let expected = HttpUrl::read("https://ns/A%2FB/a%2Fb?p=7&x=FBFF&y=%2B%2F8%3D");
        assert_eq!(endpoint.url(&VALUES), expected);
        let body = json!({"list": [{"port": 7, "is": "{{deviceId}}:{{payload}} {{other}}"}, "+/8=", 1]});
        assert_eq!(endpoint.body(&VALUES), Some(body), "a text with an unknown placeholder stays as it is");
    }

    #[test]
    fn properties_without_the_payload_are_no_template() {
        let endpoint = endpoint(json!({"uri": "http://ns", "payload-properties": {"id": "{{deviceId}}", "n": true}}));
        assert_eq!(endpoint.body(&VALUES), None);
        assert_eq!(Value::Object(endpoint.properties(&VALUES)), json!({"id": "A/B", "n": true}));
    }

    #[test]
    fn an_endpoint_that_cannot_be_used_is_refused_with_its_rule() {
        let long = "x".repeat(2_048);
        for (document, rule) in [
            (json!({"uri": ""}), "uri is a URL"),
            (json!({"uri": "ftp://a/"}), "uri is a URL"),
            (json!({"uri": "http://{{deviceId}}/"}), "behind the host only"),
            (json!({"uri": "http://a:{{port}}/"}), "behind the host only"),
            (json!({"uri": "http://user:word@a/"}), "without user"),
            (json!({"uri": format!("http://a/{long}")}), "2048 bytes"),
            (json!({"uri": "http://a/{{tenant}}"}), "{{deviceIdLowerCase}}"),
            (json!({"uri": "http://a/{{deviceId"}), "{{deviceIdLowerCase}}"),
            (json!({"uri": "http://a/", "headers": {"x": 1}}), "names and texts"),
            (json!({"uri": "http://a/", "headers": {"x": "a\r\nb"}}), "names and texts"),
            (json!({"uri": "http://a/", "headers": {"Content-Length": "1"}}), "without those of framing"),
            (json!({"uri": "http://a/", "headers": {"x": "1", "X": "2"}}), "each once"),
            (json!({"uri": "http://a/", "headers": {"x": "x".repeat(8_192)}}), "8192 bytes"),
            (json!({"uri": "http://a/", "payload-properties": {"x": "x".repeat(8_192)}}), "8192 bytes"),
            (json!({"uri": "http://a/", "payload-properties": {"x": "{{payload}}".repeat(5)}}), "4 places"),
        ] {
            let refusal = endpoint(document.clone()).check().unwrap_err();
            let told = format!("{refusal:?}");
            assert!(told.contains(rule), "{document}: {told}");
        }
        endpoint(json!({"uri": "http://a/", "headers": {"Authorization": "Bearer x"}})).check().unwrap();
    }
}
