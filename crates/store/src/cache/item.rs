//! A key with its value, as a shard keeps it.

use std::mem::size_of;
use std::sync::Arc;

use bytes::Bytes;

use super::block;
use crate::{Attributes, KeyEntry, Value};

/// No place in the list of expiries.
pub(super) const NEVER: u32 = u32::MAX;

/// A key with its value.
#[derive(Debug)]
pub(super) struct CachedItem {
    /// Key and value, one behind the other.
    block: Bytes,
    attributes: Option<Arc<Attributes>>,
    key_bytes: u32,
    pub(super) version: u64,
    pub(super) expires_ms: Option<i64>,
}

impl CachedItem {
    #[inline]
    pub(super) fn new(key: &[u8], value: Value, version: u64) -> Self {
        let Value { bytes, expires_ms, attributes } = value;
        let block = block::new(key, &bytes);
        Self { block, attributes, key_bytes: key.len() as u32, version, expires_ms }
    }

    /// The bytes that an item of this key and value allocates.
    #[inline]
    pub(super) fn allocated_bytes(key: &[u8], value: &Value) -> u64 {
        let attributes = value.attributes.as_ref().map_or(0, |attributes| attributes_bytes(attributes));
        block::allocated_bytes(key.len() + value.bytes.len()) + attributes
    }
}

/// An item in its place in a shard. A read touches the one cache line of its slot, and the item's block.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct CacheSlot {
    block: Bytes,
    attributes: Option<Arc<Attributes>>,
    pub(super) version: u64,
    /// The part of the key's hash by which the index knows the slot.
    pub(super) tag: u32,
    key_bytes: u32,
    /// When or how often the key was used; see `eviction`.
    pub(super) access: u32,
    /// The place in the list of expiries, or [`NEVER`].
    pub(super) expiry: u32,
}

impl CacheSlot {
    /// The slot of `item`, without its expiry.
    #[inline]
    pub(super) fn new(tag: u32, item: CachedItem) -> Self {
        let CachedItem { block, attributes, key_bytes, version, expires_ms: _ } = item;
        Self { block, attributes, version, tag, key_bytes, access: 0, expiry: NEVER }
    }

    /// The item of the slot.
    #[inline]
    pub(super) fn into_item(self, expires_ms: Option<i64>) -> CachedItem {
        let Self { block, attributes, version, key_bytes, .. } = self;
        CachedItem { block, attributes, key_bytes, version, expires_ms }
    }

    /// A byte of the item's block.
    #[inline]
    pub(super) fn first_byte(&self) -> u8 {
        self.block.first().copied().unwrap_or_default()
    }

    #[inline]
    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        self.key_slice() == key
    }

    pub(super) fn key(&self) -> Bytes {
        self.block.slice(..self.key_bytes as usize)
    }

    #[inline]
    pub(super) fn key_slice(&self) -> &[u8] {
        &self.block[..self.key_bytes as usize]
    }

    pub(super) fn attributes(&self) -> Option<Arc<Attributes>> {
        self.attributes.clone()
    }

    #[inline]
    pub(super) fn value(&self, expires_ms: Option<i64>) -> Value {
        let bytes = self.block.slice(self.key_bytes as usize..);
        Value { bytes, expires_ms, attributes: self.attributes.clone() }
    }

    pub(super) fn entry(&self, expires_ms: Option<i64>) -> KeyEntry {
        let length = self.block.len() as u64 - u64::from(self.key_bytes);
        KeyEntry { version: Some(self.version), length, expires_ms }
    }

    /// The bytes that the item has allocated; the slot itself is not among them.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> u64 {
        let attributes = self.attributes.as_ref().map_or(0, |attributes| attributes_bytes(attributes));
        block::allocated_bytes(self.block.len()) + attributes
    }
}

/// The bytes behind the pointer to attributes. Values that share them count them once each.
fn attributes_bytes(attributes: &Attributes) -> u64 {
    const COUNTERS: usize = 16;
    let Attributes { content_type, headers, time_ms: _, metadata, tags } = attributes;
    let content_type = content_type.as_ref().map_or(0, String::capacity);
    let both = || metadata.iter().chain(headers);
    let names: usize = both().map(|(name, value)| name.capacity() + value.capacity()).sum();
    let pairs = (metadata.capacity() + headers.capacity()) * size_of::<(String, String)>();
    let tags = tags.capacity() * size_of::<String>() + tags.iter().map(String::capacity).sum::<usize>();
    (COUNTERS + size_of::<Attributes>() + content_type + names + pairs + tags) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!((size_of::<CacheSlot>(), align_of::<CacheSlot>()), (64, 64));
    }

    #[test]
    fn attributes_count_with_all_that_they_point_to() {
        let name = |text: &str| String::from(text);
        let attributes = Attributes {
            content_type: Some(name("text/plain")),
            headers: vec![(name("x"), name("yz"))],
            time_ms: None,
            metadata: vec![(name("a"), name("bc"))],
            tags: vec![name("tag"), name("other")],
        };
        let plain = Value::of("value");
        let with = Value { attributes: Some(Arc::new(attributes)), ..plain.clone() };
        let extra = CachedItem::allocated_bytes(b"key", &with) - CachedItem::allocated_bytes(b"key", &plain);
        assert_eq!(extra, (16 + size_of::<Attributes>() + 10 + 2 * (3 + 2 * 24) + 8 + 2 * 24) as u64);
        let slot = CacheSlot::new(0, CachedItem::new(b"key", with.clone(), 1));
        assert_eq!(slot.allocated_bytes(), CachedItem::allocated_bytes(b"key", &with));
    }
}
