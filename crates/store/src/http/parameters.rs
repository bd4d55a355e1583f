//! The parameters of a write: query and headers.

use std::sync::Arc;

use millstream_http::{Headers, Problem, Request};
use millstream_log::AckLevel;
use percent_encoding::percent_decode_str;

use super::problems::bad_parameter;
use crate::record::STORED_HEADERS;
use crate::{Ack, Attributes};

const METADATA: &str = "x-meta-";
/// Most bytes of content type, other headers that are stored, metadata and tags together.
const ATTRIBUTES_MAX_BYTES: usize = 16 << 10;

pub(super) const PART_RULE: &str = "it is a number from 1 to 10,000";
pub(super) const PART_REMEDY: &str = "number the parts in the order that their bytes have in the value";

/// The parameters of a write.
#[derive(Debug, Default)]
pub(super) struct WriteParameters {
    pub(super) level: Option<AckLevel>,
    pub(super) ttl_ms: Option<u64>,
    pub(super) offset: Option<u64>,
    pub(super) is_append: bool,
    /// `uploads`: begins a multipart upload.
    pub(super) begins_upload: bool,
    /// The id of the upload that the request is about.
    pub(super) upload: Option<String>,
    /// The number of the part that is sent.
    pub(super) part: Option<u32>,
    /// The id of the upload to commit.
    pub(super) commit: Option<String>,
    pub(super) is_minimal: bool,
    pub(super) attributes: Option<Arc<Attributes>>,
}

impl WriteParameters {
    /// Reads the parameters of a request.
    pub(super) fn of(request: &Request<'_>) -> Result<Self, Problem> {
        let mut parameters = Self::default();
        for pair in request.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy();
            match name {
                "ack" => {
                    let level = Ack::parse(&value).ok_or_else(|| {
                        bad_parameter("ack", &value, "it is memory, written, synced or all")
                            .remedy("leave it out for the bucket's own level")
                    })?;
                    parameters.level = Some(level.into());
                }
                "ttl" => parameters.ttl_ms = Some(duration_ms(&value)?),
                "offset" => {
                    let rule = "it is a number of bytes from the beginning of the value";
                    parameters.offset = Some(value.parse().map_err(|_| bad_parameter("offset", &value, rule))?);
                }
                "append" => parameters.is_append = true,
                "uploads" => parameters.begins_upload = true,
                "upload" => parameters.upload = Some(value.into_owned()),
                "commit" => parameters.commit = Some(value.into_owned()),
                "part" => {
                    let refusal = |_| bad_parameter("part", &value, PART_RULE).remedy(PART_REMEDY);
                    parameters.part = Some(value.parse().map_err(refusal)?);
                }
                other => {
                    let rule = "this route takes ack, ttl, offset, append, uploads, upload, part and commit";
                    return Err(bad_parameter(other, &value, rule).remedy("see this route in /openapi.json"));
                }
            }
        }
        parameters.is_minimal =
            text(request.headers(), "prefer").is_some_and(|prefer| prefer.contains("return=minimal"));
        parameters.attributes = attributes(request.headers())?;
        Ok(parameters)
    }
}

/// Adds a line of a header; further lines of the same name go on with its list.
fn add_line(headers: &mut Vec<(String, String)>, name: &str, value: &str) {
    match headers.iter_mut().find(|(known, _)| known == name) {
        Some((_, list)) => {
            list.push_str(", ");
            list.push_str(value);
        }
        None => headers.push((name.to_owned(), value.to_owned())),
    }
}

/// Refuses a header that would change what a PUT means.
pub(super) fn refuse_content_range(headers: Headers<'_>) -> Result<(), Problem> {
    match headers.get("content-range") {
        None => Ok(()),
        Some(range) => {
            let rule = "a PUT stores a whole value (RFC 9110, section 14.5)";
            let problem = bad_parameter("Content-Range", &String::from_utf8_lossy(range), rule);
            Err(problem.remedy("write at a place by 'PUT …?offset=N', or send parts: 'POST …?uploads'"))
        }
    }
}

/// All lines of a header as one list; `None` if there is none. What is no text stands as it is nowhere else.
pub(super) fn lines(headers: Headers<'_>, name: &str) -> Option<String> {
    let of_name = headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
    let texts: Vec<String> = of_name.map(|(_, value)| String::from_utf8_lossy(value).trim().to_owned()).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// The text of a header; `None` if there is none.
pub(super) fn text<'a>(headers: Headers<'a>, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| std::str::from_utf8(value).ok()).map(str::trim)
}

/// A time in ISO 8601 or milliseconds.
pub(super) fn time_ms(name: &str, value: &str) -> Result<i64, Problem> {
    let by_number = value.parse().ok();
    by_number.or_else(|| value.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)).ok_or_else(|| {
        bad_parameter(name, value, "it is a time in ISO 8601 or milliseconds since 1970-01-01T00:00:00Z")
    })
}

/// Milliseconds of a time span, which has a unit or is in milliseconds.
pub(super) fn duration_ms(value: &str) -> Result<u64, Problem> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms = match &value[digits.len()..] {
        "" | "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let parsed = digits.parse::<u64>().ok().zip(unit_ms).and_then(|(count, unit)| count.checked_mul(unit));
    parsed.filter(|ms| *ms > 0).ok_or_else(|| {
        bad_parameter("ttl", value, "it is at least 1 millisecond: a number, alone or with ms, s, m, h or d")
            .remedy("leave it out for a key that stays, or delete the key")
    })
}

fn attributes(headers: Headers<'_>) -> Result<Option<Arc<Attributes>>, Problem> {
    let mut attributes = Attributes::default();
    let mut bytes = 0;
    for (name, value) in headers.iter() {
        let is_metadata = name.len() > METADATA.len() && name[..METADATA.len()].eq_ignore_ascii_case(METADATA);
        let kinds = ["content-type", "x-timestamp", "x-tags"];
        let kind = kinds.iter().chain(&STORED_HEADERS).find(|kind| name.eq_ignore_ascii_case(kind));
        if kind.is_none() && !is_metadata {
            continue;
        }
        let Ok(value) = std::str::from_utf8(value) else {
            return Err(bad_parameter(name, &String::from_utf8_lossy(value), "it is text in UTF-8"));
        };
        let value = value.trim();
        bytes += name.len() + value.len();
        match kind.copied() {
            Some("content-type") => attributes.content_type = Some(value.to_owned()),
            Some("x-timestamp") => attributes.time_ms = Some(time_ms("X-Timestamp", value)?),
            Some(name) if STORED_HEADERS.contains(&name) => add_line(&mut attributes.headers, name, value),
            Some(_) => {
                let tags = value.split(',').map(str::trim).filter(|tag| !tag.is_empty());
                attributes.tags.extend(tags.map(ToOwned::to_owned));
            }
            None => attributes.metadata.push((name[METADATA.len()..].to_ascii_lowercase(), value.to_owned())),
        }
    }
    if bytes > ATTRIBUTES_MAX_BYTES {
        let rule = "content type and other headers that are stored, tags and metadata have at most 16 KiB together";
        return Err(bad_parameter("X-Meta", &bytes.to_string(), rule));
    }
    attributes.metadata.sort();
    attributes.headers.sort();
    Ok((attributes != Attributes::default()).then(|| Arc::new(attributes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_has_a_unit_or_is_in_milliseconds() {
        for (text, expected) in [
            ("1", Some(1)),
            ("500ms", Some(500)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("7d", Some(604_800_000)),
            ("0", None),
            ("0s", None),
            ("", None),
            ("s", None),
            ("-1", None),
            ("1.5s", None),
            ("1w", None),
            ("99999999999999999999", None),
            ("9999999999999999d", None),
        ] {
            assert_eq!(duration_ms(text).ok(), expected, "{text}");
        }
    }
}
