//! The record of a key in its bucket's topic, and its entry in the checkpoint.
//!
//! | part of the record | holds |
//! | --- | --- |
//! | key | the key as it is; one that begins with a zero byte is the store's own |
//! | value | the bytes of the value, or a manifest if there is `ms-size` |
//! | `content-type` | the media type |
//! | `content-encoding`, `content-language`, `content-disposition`, `cache-control` | as the client gave them |
//! | `ms-expires` | when the key expires: milliseconds since 1970-01-01T00:00:00Z, decimal |
//! | `ms-time` | the client's time stamp, in the same form |
//! | `ms-tags` | tags, separated by commas |
//! | `ms-size` | bytes of a value that lies in parts, decimal |
//! | `ms-meta-NAME` | the client's metadata NAME |
//!
//! The time of the record is that of the write. A tombstone has no headers. Formats are fixed: the tests have fixtures.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use millstream_types::{RecordView, header};
use millstream_view::{DecodeError, Headers};

use crate::table::Place;
use crate::{Attributes, Value};

const EXPIRES: &str = header::KEY_EXPIRES;
const TIME: &str = "ms-time";
const TAGS: &str = "ms-tags";
const SIZE: &str = header::VALUE_SIZE;
const METADATA: &str = "ms-meta-";

/// Headers of HTTP, beside the media type, that are stored with a value and sent with it.
pub(crate) const STORED_HEADERS: [&str; 4] =
    ["cache-control", "content-disposition", "content-encoding", "content-language"];

/// Version of an entry in the checkpoint.
const ENTRY_VERSION: u8 = 1;

/// First byte of the store's own keys.
pub(crate) const OWN: u8 = 0;

/// A value as its record holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// The value; its bytes are a manifest if the value is large.
    pub value: Value,
    /// Bytes of a value that lies in parts.
    pub large: Option<u64>,
    /// When it was written: milliseconds since 1970-01-01T00:00:00Z.
    pub written_ms: i64,
}

impl StoredValue {
    /// Length of the value in bytes, whether it lies in the record or in parts.
    pub fn length(&self) -> u64 {
        self.large.unwrap_or(self.value.bytes.len() as u64)
    }

    /// The place of a record of `key` with this value.
    pub(crate) fn place(&self, key: &[u8], offset: u64) -> Place {
        Place {
            offset,
            length: self.length(),
            expires_ms: self.value.expires_ms,
            is_large: self.large.is_some(),
            is_hidden: is_own(key),
        }
    }

    /// The headers of its record.
    pub(crate) fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        let mut add = |name: &'static str, value: String| headers.push((Cow::Borrowed(name), value.into_bytes()));
        if let Some(expires_ms) = self.value.expires_ms {
            add(EXPIRES, expires_ms.to_string());
        }
        if let Some(size) = self.large {
            add(SIZE, size.to_string());
        }
        let Some(attributes) = &self.value.attributes else { return headers };
        if let Some(content_type) = &attributes.content_type {
            add(header::CONTENT_TYPE, content_type.clone());
        }
        for (name, value) in &attributes.headers {
            let known = STORED_HEADERS.iter().find(|known| *known == name);
            headers.extend(known.map(|known| (Cow::Borrowed(*known), value.clone().into_bytes())));
        }
        let mut add = |name: &'static str, value: String| headers.push((Cow::Borrowed(name), value.into_bytes()));
        if let Some(time_ms) = attributes.time_ms {
            add(TIME, time_ms.to_string());
        }
        if !attributes.tags.is_empty() {
            add(TAGS, attributes.tags.join(","));
        }
        for (name, value) in &attributes.metadata {
            headers.push((Cow::Owned(format!("{METADATA}{name}")), value.clone().into_bytes()));
        }
        headers
    }

    /// Reads a record. Unknown headers, of a later version or of no meaning here, are passed over.
    ///
    /// # Errors
    /// [`DecodeError`] for a number that is none.
    pub(crate) fn read(record: &RecordView<'_>, bytes: Bytes) -> Result<Self, DecodeError> {
        let mut stored = Self { value: Value::of(bytes), large: None, written_ms: record.timestamp_ms };
        let mut attributes = Attributes::default();
        for header in record.headers() {
            let text = || String::from_utf8_lossy(header.value.unwrap_or_default()).into_owned();
            match header.key {
                EXPIRES => stored.value.expires_ms = Some(number(EXPIRES, &text())?),
                SIZE => stored.large = Some(number(SIZE, &text())?),
                TIME => attributes.time_ms = Some(number(TIME, &text())?),
                TAGS => attributes.tags = text().split(',').map(ToOwned::to_owned).collect(),
                header::CONTENT_TYPE => attributes.content_type = Some(text()),
                name if STORED_HEADERS.contains(&name) => attributes.headers.push((name.to_owned(), text())),
                name => {
                    if let Some(name) = name.strip_prefix(METADATA) {
                        attributes.metadata.push((name.to_owned(), text()));
                    }
                }
            }
        }
        if attributes != Attributes::default() {
            stored.value.attributes = Some(Arc::new(attributes));
        }
        Ok(stored)
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, DecodeError> {
    text.parse().map_err(|_| DecodeError::new(format!("header {name} is no number: '{text}'")))
}

/// `true` for a key that is the store's own.
pub(crate) fn is_own(key: &[u8]) -> bool {
    key.first() == Some(&OWN)
}

/// A key's entry in the checkpoint, as listings read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The offset of the record, which is the version.
    pub version: u64,
    /// Length of the value in bytes.
    pub length: u64,
    /// When the key expires: milliseconds since 1970-01-01T00:00:00Z.
    pub expires_ms: Option<i64>,
    /// When it was written: milliseconds since 1970-01-01T00:00:00Z.
    pub written_ms: i64,
    /// `true` if the value lies in parts.
    pub is_large: bool,
    /// The media type that the client gave, if any.
    pub content_type: Option<String>,
    /// The tags, in the client's order.
    pub tags: Vec<String>,
}

impl Listed {
    pub(crate) fn of(stored: &StoredValue, version: u64) -> Self {
        let attributes = stored.value.attributes.as_deref();
        Self {
            version,
            length: stored.length(),
            expires_ms: stored.value.expires_ms,
            written_ms: stored.written_ms,
            is_large: stored.large.is_some(),
            content_type: attributes.and_then(|attributes| attributes.content_type.clone()),
            tags: attributes.map(|attributes| attributes.tags.clone()).unwrap_or_default(),
        }
    }

    /// Version 1, offset, length, expiry or 0, time of the write (8 bytes each, big endian), 1 if large, length of the
    /// content type (2 bytes), content type, tags separated by commas.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let content_type = self.content_type.as_deref().unwrap_or_default();
        let tags = self.tags.join(",");
        let mut entry = Vec::with_capacity(36 + content_type.len() + tags.len());
        entry.push(ENTRY_VERSION);
        entry.extend_from_slice(&self.version.to_be_bytes());
        entry.extend_from_slice(&self.length.to_be_bytes());
        entry.extend_from_slice(&self.expires_ms.unwrap_or_default().to_be_bytes());
        entry.extend_from_slice(&self.written_ms.to_be_bytes());
        entry.push(u8::from(self.is_large));
        entry.extend_from_slice(&(content_type.len() as u16).to_be_bytes());
        entry.extend_from_slice(content_type.as_bytes());
        entry.extend_from_slice(tags.as_bytes());
        entry
    }

    /// # Errors
    /// [`DecodeError`] for an entry of another version, or a short one.
    pub(crate) fn decode(entry: &[u8]) -> Result<Self, DecodeError> {
        let mut rest = entry;
        let short = || DecodeError::new(format!("an entry of {} bytes is too short", entry.len()));
        let [version] = *take::<1>(&mut rest).ok_or_else(short)?;
        if version != ENTRY_VERSION {
            return Err(DecodeError::new(format!("an entry of version {version}")));
        }
        let mut number = || take::<8>(&mut rest).map(|bytes| u64::from_be_bytes(*bytes)).ok_or_else(short);
        let (version, length, expires_ms, written_ms) = (number()?, number()?, number()? as i64, number()? as i64);
        let [is_large] = *take::<1>(&mut rest).ok_or_else(short)?;
        let type_bytes = usize::from(u16::from_be_bytes(*take::<2>(&mut rest).ok_or_else(short)?));
        let (content_type, tags) = rest.split_at_checked(type_bytes).ok_or_else(short)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self {
            version,
            length,
            expires_ms: (expires_ms != 0).then_some(expires_ms),
            written_ms,
            is_large: is_large != 0,
            content_type: (!content_type.is_empty()).then(|| text(content_type)),
            tags: if tags.is_empty() { Vec::new() } else { text(tags).split(',').map(ToOwned::to_owned).collect() },
        })
    }

    /// The place of `key` with this entry.
    pub(crate) fn place(&self, key: &[u8]) -> Place {
        let Self { version, length, expires_ms, is_large, .. } = *self;
        Place { offset: version, length, expires_ms, is_large, is_hidden: is_own(key) }
    }
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Header, Offset, Record};

    use super::*;

    fn stored() -> StoredValue {
        let attributes = Attributes {
            content_type: Some("image/png".to_owned()),
            headers: vec![("content-encoding".to_owned(), "gzip".to_owned())],
            time_ms: Some(7),
            metadata: vec![("owner".to_owned(), "ann".to_owned())],
            tags: vec!["a".to_owned(), "b".to_owned()],
        };
        let value = Value {
            bytes: Bytes::from_static(b"data"),
            expires_ms: Some(1_700_000_000_000),
            attributes: Some(Arc::new(attributes)),
        };
        StoredValue { value, large: Some(9), written_ms: 5 }
    }

    #[test]
    fn a_record_of_version_1_has_these_headers() {
        let headers: Vec<(String, String)> = stored()
            .headers()
            .into_iter()
            .map(|(name, value)| (name.into_owned(), String::from_utf8(value).unwrap()))
            .collect();
        let expected = [
            ("ms-expires", "1700000000000"),
            ("ms-size", "9"),
            ("content-type", "image/png"),
            ("content-encoding", "gzip"),
            ("ms-time", "7"),
            ("ms-tags", "a,b"),
            ("ms-meta-owner", "ann"),
        ];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let written = stored();
        let headers = written.headers();
        let headers: Vec<Header<'_>> = headers.iter().map(|(key, value)| Header { key, value: Some(value) }).collect();
        let mut builder = BatchBuilder::default();
        builder.push(&Record { timestamp_ms: 5, key: Some(b"k"), value: Some(b"data"), headers: &headers });
        let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
        let record = batch.records().next().unwrap().unwrap();
        assert_eq!(StoredValue::read(&record, Bytes::from_static(b"data")).unwrap(), written);
    }

    #[test]
    fn an_entry_of_version_1_is_written_byte_for_byte() {
        let listed = Listed::of(&stored(), 258);
        let expected = b"\x01\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x09\0\0\x01\x8b\xcf\xe5\x68\x00\0\0\0\0\0\0\0\x05\x01\0\x09image/pnga,b";
        assert_eq!(listed.encode(), expected);
        assert_eq!(Listed::decode(expected).unwrap(), listed);
        let bare = Listed { content_type: None, tags: Vec::new(), expires_ms: None, is_large: false, ..listed };
        assert_eq!(Listed::decode(&bare.encode()).unwrap(), bare);
    }

    #[test]
    fn entries_that_are_none_are_refused() {
        let mut other = Listed::of(&stored(), 1).encode();
        for short in 0..36 {
            assert!(Listed::decode(&other[..short]).is_err(), "{short}");
        }
        other[0] = 2;
        assert_eq!(Listed::decode(&other).unwrap_err().what, "an entry of version 2");
    }
}
