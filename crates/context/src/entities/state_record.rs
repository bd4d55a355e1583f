//! The format of an entity in the state topic: a key and a versioned value. Every version stays readable.
//!
//! | | bytes |
//! | --- | --- |
//! | key | tenant, id, type, service path, separated by zero bytes (none of them can contain one) |
//! | value | version 3; created (8, us), modified (8, ms), version (8); count (4) of attributes: created, modified (8 each, ms), name, type, value, count (4) of metadata: name, type, value |
//!
//! A key of three parts with an empty middle part is that of an index: tenant, nothing, attribute. Its value is version
//! 2 and the progress: 0 not started, 1 complete, 2 up to a position, which follows: created (8, us), id, type, path.
//!
//! Before version 3 of entities and version 2 of indexes, creation is in milliseconds. Version 1 of entities has no
//! times of attributes (the entity's times apply) and no version (0 applies). Integers are big endian; a text is its
//! length in bytes (4) and UTF-8.

use std::sync::Arc;

use millstream_types::{StateTopic, TenantId};
use millstream_view::DecodeError;

use crate::index::Built;
use crate::model::entity::{Attribute, Entity, Key, ListPosition, Metadata, US_PER_MS};
use crate::model::names::shared;

const VERSION: u8 = StateTopic::Context.version();
const CREATED_IN_MS: u8 = 2;
const WITHOUT_ATTRIBUTE_TIMES: u8 = 1;
const INDEX_VERSION: u8 = 2;
const INDEX_CREATED_IN_MS: u8 = 1;
const SEPARATOR: u8 = 0;
/// Minimum size of an attribute or a metadata item: the lengths of its texts.
const ITEM_MIN_BYTES: usize = 12;

pub(crate) fn encode_key(tenant: &TenantId, key: &Key, out: &mut Vec<u8>) {
    out.extend_from_slice(tenant.as_str().as_bytes());
    for part in [&key.id, &key.kind, &key.path] {
        out.push(SEPARATOR);
        out.extend_from_slice(part.as_bytes());
    }
}

pub(crate) fn encode_index_key(tenant: &TenantId, attribute: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(tenant.as_str().as_bytes());
    out.extend_from_slice(&[SEPARATOR, SEPARATOR]);
    out.extend_from_slice(attribute.as_bytes());
}

/// Decodes the key of an index; `None` if it is an entity's.
pub(crate) fn decode_index_key(bytes: &[u8]) -> Result<Option<(TenantId, Arc<str>)>, DecodeError> {
    let parts: Vec<&[u8]> = bytes.split(|c| *c == SEPARATOR).collect();
    let [tenant, [], attribute] = parts[..] else { return Ok(None) };
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| DecodeError::new("the key of an index is not UTF-8"));
    let tenant = TenantId::new(text(tenant)?).map_err(|error| DecodeError::new(error.to_string()))?;
    Ok(Some((tenant, text(attribute)?.into())))
}

pub(crate) fn encode_built(built: &Built, out: &mut Vec<u8>) {
    out.push(INDEX_VERSION);
    match built {
        Built::Not => out.push(0),
        Built::Whole => out.push(1),
        Built::UpTo(place) => {
            out.push(2);
            out.extend_from_slice(&place.created_us.to_be_bytes());
            push_item(&place.key.id, &place.key.kind, &place.key.path, out);
        }
    }
}

pub(crate) fn decode_built(bytes: &[u8]) -> Result<Built, DecodeError> {
    let mut rest = ByteReader(bytes);
    match rest.take::<2>()? {
        [INDEX_VERSION | INDEX_CREATED_IN_MS, 0] => Ok(Built::Not),
        [INDEX_VERSION | INDEX_CREATED_IN_MS, 1] => Ok(Built::Whole),
        [version @ (INDEX_VERSION | INDEX_CREATED_IN_MS), 2] => {
            let created_us = rest.created_us(version == INDEX_CREATED_IN_MS)?;
            let key = Key { id: rest.text()?.into(), kind: rest.name()?, path: rest.name()? };
            Ok(Built::UpTo(ListPosition { created_us, key: key.into() }))
        }
        [version, how] => Err(DecodeError::new(format!("index record of version {version}, {how}"))),
    }
}

pub(crate) fn encode_value(entity: &Entity, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&entity.created_us.to_be_bytes());
    out.extend_from_slice(&entity.modified_ms.to_be_bytes());
    out.extend_from_slice(&entity.version.to_be_bytes());
    push_count(entity.attributes.len(), out);
    for attribute in &entity.attributes {
        out.extend_from_slice(&attribute.created_ms.to_be_bytes());
        out.extend_from_slice(&attribute.modified_ms.to_be_bytes());
        push_item(&attribute.name, &attribute.kind, &attribute.value, out);
        push_count(attribute.metadata.len(), out);
        for item in attribute.metadata.iter() {
            push_item(&item.name, &item.kind, &item.value, out);
        }
    }
}

pub(crate) fn decode_key(bytes: &[u8]) -> Result<(TenantId, Arc<Key>), DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::new("an entity's key is not UTF-8"))?;
    let parts: Vec<&str> = text.split(char::from(SEPARATOR)).collect();
    let [tenant, id, kind, path] = parts[..] else {
        return Err(DecodeError::new(format!("an entity's key has 4 parts and not {}", parts.len())));
    };
    let tenant = TenantId::new(tenant).map_err(|error| DecodeError::new(error.to_string()))?;
    Ok((tenant, Arc::new(Key { id: id.into(), kind: shared(kind), path: shared(path) })))
}

pub(crate) fn decode_value(key: Arc<Key>, bytes: &[u8]) -> Result<Entity, DecodeError> {
    let mut rest = ByteReader(bytes);
    let [format] = rest.take()?;
    if !(WITHOUT_ATTRIBUTE_TIMES..=VERSION).contains(&format) {
        return Err(DecodeError::new(format!("entity record of version {format}")));
    }
    let has_times = format > WITHOUT_ATTRIBUTE_TIMES;
    let (created_us, modified_ms) = (rest.created_us(format <= CREATED_IN_MS)?, rest.time()?);
    let version = if has_times { u64::from_be_bytes(rest.take()?) } else { 0 };
    let attributes = rest.many(|rest| {
        let times =
            if has_times { (rest.time()?, rest.time()?) } else { (created_us.div_euclid(US_PER_MS), modified_ms) };
        let (name, kind, value) = (rest.name()?, rest.name()?, rest.text()?.into());
        let metadata =
            rest.many(|rest| Ok(Metadata { name: rest.name()?, kind: rest.name()?, value: rest.text()?.into() }))?;
        let attribute = Attribute::new(name, kind, value, metadata.into());
        Ok(Attribute { created_ms: times.0, modified_ms: times.1, ..attribute })
    })?;
    if !rest.0.is_empty() {
        return Err(DecodeError::new(format!("{} bytes behind an entity", rest.0.len())));
    }
    Ok(Entity { key, created_us, modified_ms, version, attributes })
}

fn push_item(name: &str, kind: &str, value: &str, out: &mut Vec<u8>) {
    for text in [name, kind, value] {
        push_count(text.len(), out);
        out.extend_from_slice(text.as_bytes());
    }
}

fn push_count(count: usize, out: &mut Vec<u8>) {
    let count = u32::try_from(count).expect("an entity is smaller than 4 GiB");
    out.extend_from_slice(&count.to_be_bytes());
}

struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn time(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.take()?))
    }

    fn created_us(&mut self, is_in_ms: bool) -> Result<i64, DecodeError> {
        let created = self.time()?;
        Ok(if is_in_ms { created.saturating_mul(US_PER_MS) } else { created })
    }

    fn name(&mut self) -> Result<Arc<str>, DecodeError> {
        self.text().map(shared)
    }

    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let length = u32::from_be_bytes(self.take()?) as usize;
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(cut_short)?;
        self.0 = rest;
        std::str::from_utf8(taken).map_err(|_| DecodeError::new("an entity's text is not UTF-8"))
    }

    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
        let count = u32::from_be_bytes(self.take()?);
        // The exact capacity, for an entity is kept long; the count is limited by the remaining bytes.
        let mut items = Vec::with_capacity((count as usize).min(self.0.len() / ITEM_MIN_BYTES));
        for _ in 0..count {
            items.push(one(self)?);
        }
        Ok(items)
    }
}

fn cut_short() -> DecodeError {
    DecodeError::new("an entity record ends too early")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Entity {
        let key = Key { id: "r1".into(), kind: "Room".into(), path: "/".into() };
        let metadata = vec![Metadata { name: "m".into(), kind: "N".into(), value: "1".into() }];
        let attribute = Attribute::new("t".into(), "Text".into(), "\"ä\"".into(), metadata.into());
        let attribute = Attribute { created_ms: 1, modified_ms: -2, ..attribute };
        Entity { key: key.into(), created_us: 1_000, modified_ms: -2, version: 0, attributes: vec![attribute] }
    }

    const VERSION_3: &[u8] = b"\x03\0\0\0\0\0\0\x03\xe8\xff\xff\xff\xff\xff\xff\xff\xfe\
        \0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xfe\
        \0\0\0\x01t\0\0\0\x04Text\0\0\0\x04\"\xc3\xa4\"\0\0\0\x01\0\0\0\x01m\0\0\0\x01N\0\0\0\x011";
    /// Creation in milliseconds. Must stay readable.
    const VERSION_2: &[u8] = b"\x02\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xfe\
        \0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xfe\
        \0\0\0\x01t\0\0\0\x04Text\0\0\0\x04\"\xc3\xa4\"\0\0\0\x01\0\0\0\x01m\0\0\0\x01N\0\0\0\x011";
    /// The first format. Must stay readable.
    const VERSION_1: &[u8] = b"\x01\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xfe\0\0\0\x01\
        \0\0\0\x01t\0\0\0\x04Text\0\0\0\x04\"\xc3\xa4\"\0\0\0\x01\0\0\0\x01m\0\0\0\x01N\0\0\0\x011";

    #[test]
    fn all_versions_read_and_the_last_writes_as_ever() {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        encode_key(&TenantId::default(), &sample().key, &mut key);
        encode_value(&sample(), &mut value);
        assert_eq!(key, b"default\0r1\0Room\0/");
        assert_eq!(value, VERSION_3);
        let (tenant, key) = decode_key(&key).unwrap();
        assert_eq!(tenant, TenantId::default());
        for version in [VERSION_1, VERSION_2, VERSION_3] {
            assert_eq!(decode_value(key.clone(), version).unwrap(), sample());
        }
    }

    #[test]
    fn an_index_is_written_and_read() {
        for built in [Built::Not, Built::Whole, Built::UpTo(sample().place())] {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            encode_index_key(&TenantId::default(), "t", &mut key);
            encode_built(&built, &mut value);
            assert_eq!(key, b"default\0\0t");
            assert_eq!(decode_index_key(&key).unwrap(), Some((TenantId::default(), "t".into())));
            assert_eq!(decode_built(&value).unwrap(), built);
            for length in 0..value.len() {
                assert!(decode_built(&value[..length]).is_err());
            }
        }
        assert_eq!(decode_index_key(b"default\0r1\0Room\0/").unwrap(), None);
        let version_1 = b"\x01\x02\0\0\0\0\0\0\0\x01\0\0\0\x02r1\0\0\0\x04Room\0\0\0\x01/";
        assert_eq!(decode_built(version_1).unwrap(), Built::UpTo(sample().place()));
    }

    #[test]
    fn damaged_records_are_errors() {
        for length in 0..VERSION_1.len() {
            assert!(decode_value(sample().key, &VERSION_1[..length]).is_err(), "{length}");
        }
        let mut longer = VERSION_1.to_vec();
        longer.push(0);
        assert!(decode_value(sample().key, &longer).unwrap_err().what.contains("behind"));
        longer[0] = 4;
        assert!(decode_value(sample().key, &longer).unwrap_err().what.contains("version 4"));
        let hostile = [&[1][..], &[0; 16], &[0xff; 4]].concat();
        assert!(decode_value(sample().key, &hostile).is_err());
        for key in [&b""[..], b"t\0i\0k", b"t\0i\0k\0/\0x", b"\xff\0i\0k\0/", b"no tenant\0i\0k\0/"] {
            assert!(decode_key(key).is_err());
        }
    }
}
