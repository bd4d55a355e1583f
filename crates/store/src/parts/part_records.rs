//! The finished parts of a multipart upload.
//!
//! Version 1 of their record: `01`, slot (4 bytes), size (8), CRC32C (4), big endian.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::commit::{require_open, store_own};
use super::removal::LISTED_MAX;
use super::{ID_BYTES, Piece, Source, Upload, UploadId, UploadState, part_key, parts_prefix};
use crate::bucket::Bucket;
use crate::keys::OwnerTransaction;
use crate::{Error, Interrupted, WriteRefusal};

const VERSION: u8 = 1;
/// Records that are read at a time.
const READS: usize = 8;

/// A part of an upload whose bytes are all in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRecord {
    pub(super) slot: u32,
    /// Length of the part in bytes.
    pub size: u64,
    /// CRC32C of the part's bytes.
    pub crc: u32,
}

impl PartRecord {
    fn encode(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(17);
        bytes.put_u8(VERSION);
        bytes.put_u32(self.slot);
        bytes.put_u64(self.size);
        bytes.put_u32(self.crc);
        bytes.freeze()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[VERSION], rest) = bytes.split_first_chunk()? else { return None };
        let (slot, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let crc = rest.first_chunk()?;
        let (slot, size, crc) = (u32::from_be_bytes(*slot), u64::from_be_bytes(*size), u32::from_be_bytes(*crc));
        Some(Self { slot, size, crc })
    }

    /// The record of a part that was written; `None` for zeros.
    pub fn of(piece: &Piece) -> Option<Self> {
        match (piece.source, piece.crc) {
            (Source::Part { slot, .. }, Some(crc)) => Some(Self { slot, size: piece.size, crc }),
            _ => None,
        }
    }

    /// The part as a piece of a value.
    pub fn piece(&self, upload: UploadId) -> Piece {
        let source = Source::Part { upload, slot: self.slot, skip: 0 };
        Piece { source, size: self.size, crc: Some(self.crc) }
    }
}

/// Adds a finished part to an open upload. Returns `false` if that part is there already, with the same bytes.
///
/// # Errors
/// [`WriteRefusal::NoUpload`], [`WriteRefusal::OtherPart`] for a part that is there with other bytes.
pub fn add_part(
    transaction: &mut OwnerTransaction<'_, '_>,
    upload: &Upload,
    number: u32,
    part: PartRecord,
) -> Result<bool, Interrupted> {
    require_open(transaction, upload)?;
    let key = part_key(upload.id, number);
    let known = transaction.stored(&key)?.and_then(|known| PartRecord::decode(&known.value.bytes));
    match known {
        Some(known) if (known.size, known.crc) == (part.size, part.crc) => Ok(false),
        Some(known) => Err(WriteRefusal::OtherPart { number, stored: known.crc, sent: part.crc }.into()),
        None => {
            store_own(transaction, &key, part.encode())?;
            Ok(true)
        }
    }
}

impl Bucket {
    /// The upload of `key` with that id.
    pub fn upload(&self, key: &Bytes, id: UploadId) -> Upload {
        Upload { partition: self.partition_of(key), key: key.clone(), id }
    }

    /// `true` if the upload is open.
    pub fn is_open(&self, upload: &Upload) -> bool {
        self.own_place(upload.partition, &upload.record(UploadState::Open)).is_some()
    }

    /// The finished parts of an upload, by number.
    ///
    /// # Errors
    /// Those of [`Bucket::list`] and [`Bucket::read`].
    pub async fn parts_of(self: &Arc<Self>, upload: &Upload) -> Result<Vec<(u32, PartRecord)>, Error> {
        let prefix = parts_prefix(upload.id);
        let mut keys: Vec<Bytes> = Vec::new();
        loop {
            let last = keys.last().cloned();
            let more = self.list_own(upload.partition, &prefix, last.as_ref()).await?;
            let is_end = more.len() < LISTED_MAX;
            keys.extend(more.into_iter().map(|(key, _)| key));
            if is_end {
                break;
            }
        }
        let partition = upload.partition;
        let read = |key: Bytes| async move {
            let stored = self.read_own(partition, &key).await?;
            let number = key.last_chunk().map(|number| u32::from_be_bytes(*number)).unwrap_or_default();
            Ok::<_, Error>(stored.and_then(|stored| PartRecord::decode(&stored.value.bytes)).map(|part| (number, part)))
        };
        let parts: Vec<_> = stream::iter(keys).map(read).buffered(READS).try_collect().await?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// The open uploads of `key` and when each began, milliseconds since 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// The same errors as [`Bucket::list`].
    pub async fn uploads_of(self: &Arc<Self>, key: &Bytes) -> Result<Vec<(UploadId, i64)>, Error> {
        let record = self.upload(key, UploadId([0; ID_BYTES])).record(UploadState::Open);
        let (prefix, partition) = (record.slice(..record.len() - ID_BYTES), self.partition_of(key));
        let (mut uploads, mut last) = (Vec::new(), None);
        loop {
            let listed = self.list_own(partition, &prefix, last.as_ref()).await?;
            for (found, entry) in &listed {
                // Other keys begin with this one, too.
                let upload = Upload::of_record(partition, found).filter(|upload| upload.key == key);
                uploads.extend(upload.map(|upload| (upload.id, entry.written_ms)));
            }
            if listed.len() < LISTED_MAX {
                return Ok(uploads);
            }
            last = listed.last().map(|(key, _)| key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_version_1_is_written_byte_for_byte() {
        let part = PartRecord { slot: 258, size: 7, crc: 9 };
        let expected = b"\x01\0\0\x01\x02\0\0\0\0\0\0\0\x07\0\0\0\x09";
        assert_eq!(part.encode(), &expected[..]);
        assert_eq!(PartRecord::decode(expected), Some(part));
        assert_eq!(PartRecord::decode(&expected[..16]), None);
        assert_eq!(PartRecord::decode(b"\x02"), None);
    }
}
