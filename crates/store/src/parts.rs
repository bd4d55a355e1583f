//! Large values: their bytes lie in parts, and a manifest under the key makes them visible at once.
//!
//! All these keys are the store's own. They lie in the partition of the value's key, and numbers
//! in them are big endian:
//!
//! | key | record |
//! | --- | --- |
//! | `00 'u'` key, upload id | an open upload: it may be committed |
//! | `00 'v'` key, upload id | an upload of which the key's manifest has parts |
//! | `00 'd'` key, upload id | an upload whose records are being removed |
//! | `00 'n'` upload id, number (4 bytes) | a finished part of a multipart upload |
//! | `00 'p'` upload id, slot (4 bytes), chunk (4 bytes) | 512 KiB of a part, or what is left at its end |
//!
//! Invariants
//! - Chunks are written while their upload is open only, and never changed. Each attempt to write a part has a random slot
//!   of its own, so that two attempts never mix.
//! - A commit writes the manifest and, behind it in the same transaction, the `'v'` records of all its uploads. So such a
//!   record is in use as long as the key's record is older than it.
//! - An upload becomes `'d'` in a transaction before any of its records goes. From then on nothing can be added or committed.
//! - The records of an upload stay while a reader holds it, for a bounded time (`part_holds.rs`).

mod chunk_writer;
mod commit;
mod manifest;
mod part_records;
mod range_reader;
mod removal;

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use millstream_types::PartitionId;

pub use self::chunk_writer::{ChunkWriter, WrittenPart};
pub use self::commit::{Committed, Splice, Spliced, begin, commit, splice};
pub use self::manifest::{Manifest, Piece, Source};
pub use self::part_records::{PartRecord, add_part};
pub use self::range_reader::{OpenedValue, RangeReader};
use crate::record::{OWN, is_own};

/// Most bytes of a chunk, the record that holds a stretch of a part.
pub const CHUNK_BYTES: usize = 512 << 10;
/// Largest number of a part of a multipart upload; the smallest is 1.
pub const PART_NUMBER_MAX: u32 = 10_000;
/// Bytes of an upload id.
const ID_BYTES: usize = 16;

/// The id of an upload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UploadId(pub(crate) [u8; ID_BYTES]);

impl UploadId {
    /// Makes an id out of 128 random bits.
    pub fn random() -> Self {
        Self(fastrand::u128(..).to_be_bytes())
    }

    /// Reads the 32 hexadecimal digits that an id is shown as.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 2 * ID_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| is_hex).map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The state of an upload, which is a byte of its record's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum UploadState {
    Open = b'u',
    InUse = b'v',
    Doomed = b'd',
}

/// An upload for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The partition of the key.
    pub(crate) partition: PartitionId,
    /// The key of the value.
    pub key: Bytes,
    /// The id of the upload.
    pub id: UploadId,
}

impl Upload {
    /// The key of its record in `state`.
    pub(crate) fn record(&self, state: UploadState) -> Bytes {
        let mut record = BytesMut::with_capacity(2 + self.key.len() + ID_BYTES);
        record.put_slice(&[OWN, state as u8]);
        record.put_slice(&self.key);
        record.put_slice(&self.id.0);
        record.freeze()
    }

    /// Reads the upload from the key of its record.
    pub(crate) fn of_record(partition: PartitionId, record: &[u8]) -> Option<Self> {
        let (key, id) = record.get(2..)?.split_last_chunk::<ID_BYTES>()?;
        is_own(record).then(|| Self { partition, key: Bytes::copy_from_slice(key), id: UploadId(*id) })
    }
}

/// The key of a chunk.
pub(crate) fn chunk_key(id: UploadId, slot: u32, chunk: u32) -> Bytes {
    let mut key = own_key(b'p', id);
    key.put_u32(slot);
    key.put_u32(chunk);
    key.freeze()
}

/// The beginning of the keys of all chunks of an upload, or of one of its slots.
pub(crate) fn chunks_prefix(id: UploadId, slot: Option<u32>) -> Bytes {
    let mut key = own_key(b'p', id);
    if let Some(slot) = slot {
        key.put_u32(slot);
    }
    key.freeze()
}

/// The key of the record of a finished part.
pub(crate) fn part_key(id: UploadId, number: u32) -> Bytes {
    let mut key = own_key(b'n', id);
    key.put_u32(number);
    key.freeze()
}

/// The beginning of the keys of all finished parts of an upload.
pub(crate) fn parts_prefix(id: UploadId) -> Bytes {
    own_key(b'n', id).freeze()
}

fn own_key(kind: u8, id: UploadId) -> BytesMut {
    let mut key = BytesMut::with_capacity(2 + ID_BYTES + 8);
    key.put_slice(&[OWN, kind]);
    key.put_slice(&id.0);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_version_1_are_made_byte_for_byte() {
        let id = UploadId(*b"0123456789abcdef");
        assert_eq!(chunk_key(id, 1, 258), &b"\0p0123456789abcdef\0\0\0\x01\0\0\x01\x02"[..]);
        assert_eq!(part_key(id, 7), &b"\0n0123456789abcdef\0\0\0\x07"[..]);
        let upload = Upload { partition: PartitionId(3), key: Bytes::from_static(b"a/b"), id };
        assert_eq!(upload.record(UploadState::Open), &b"\0ua/b0123456789abcdef"[..]);
        assert!(upload.record(UploadState::Open).starts_with(crate::table::OPEN_UPLOAD));
        assert_eq!(Upload::of_record(PartitionId(3), &upload.record(UploadState::InUse)), Some(upload));
        assert_eq!(Upload::of_record(PartitionId(3), b"\0u123456789abcdef"), None);
    }

    #[test]
    fn an_id_is_32_hexadecimal_digits() {
        let id = UploadId::random();
        assert_eq!(UploadId::parse(&id.to_string()), Some(id));
        for text in ["", "0", "+0000000000000000000000000000001", &"0".repeat(33), &"g".repeat(32)] {
            assert_eq!(UploadId::parse(text), None, "{text}");
        }
    }
}
