//! The transactions of uploads and large values.

use std::sync::Arc;

use bytes::Bytes;

use super::{CHUNK_BYTES, Manifest, Piece, Source, Upload, UploadId, UploadState, chunk_key};
use crate::bucket::Bucket;
use crate::keys::OwnerTransaction;
use crate::record::StoredValue;
use crate::table::LENGTH_MAX;
use crate::{Attributes, Error, Interrupted, Transaction, Value, WriteRefusal};

/// Version of the record of an upload: its only byte, except where a commit has made the value.
const UPLOAD_VERSION: &[u8] = &[1];
/// Such a record once its commit has made the value, and the same where that was a new key.
const COMMITTED: [&[u8]; 2] = [&[1, 0], &[1, 1]];

/// Bytes that are written into a value.
#[derive(Debug, Clone)]
pub enum Splice {
    /// Bytes that the transaction writes itself, together with the manifest: at most 1 MiB.
    Bytes(Bytes),
    /// A part that has been written to the open upload.
    Part(Piece),
}

impl Splice {
    fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Part(piece) => piece.size,
        }
    }
}

/// The large value after a transaction has changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spliced {
    /// Bytes of the value after the transaction.
    pub length: u64,
    /// When the key expires: milliseconds since 1970-01-01T00:00:00Z.
    pub expires_ms: Option<i64>,
    /// Records of the transaction before that of the key, whose offset is the version.
    pub before: u64,
}

/// The value that a commit has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The key was not there before.
    pub is_new: bool,
    /// Its version.
    pub version: u64,
    /// Its length in bytes.
    pub length: u64,
    /// When the key expires: milliseconds since 1970-01-01T00:00:00Z.
    pub expires_ms: Option<i64>,
}

impl Bucket {
    /// The value that the commit of an upload has made, as long as the key has it.
    ///
    /// # Errors
    /// Those of [`Bucket::read`].
    pub async fn committed(&self, upload: &Upload) -> Result<Option<Committed>, Error> {
        let record = upload.record(UploadState::InUse);
        let known = self.read_own(upload.partition, &record).await?;
        let found = self.read(&upload.key).await?;
        let Some((known, found)) = known.zip(found) else { return Ok(None) };
        // The record of an upload lies behind the value that has its parts.
        let is_current = self.own_place(upload.partition, &record).is_some_and(|place| place.offset > found.version);
        let is_new = COMMITTED.iter().position(|bytes| known.value.bytes == *bytes).filter(|_| is_current);
        Ok(is_new.zip(found.stored.large).map(|(is_new, length)| Committed {
            is_new: is_new == 1,
            version: found.version,
            length,
            expires_ms: found.stored.value.expires_ms,
        }))
    }
}

/// Opens an upload. Its value gets `attributes`, unless the commit brings others.
///
/// # Errors
/// [`Interrupted::Refused`] if a quota of the bucket is used up.
pub fn begin(
    transaction: &mut OwnerTransaction<'_, '_>,
    upload: &Upload,
    attributes: Option<Arc<Attributes>>,
) -> Result<(), Interrupted> {
    let bytes = Bytes::from_static(UPLOAD_VERSION);
    let stored = StoredValue {
        value: Value { bytes, expires_ms: None, attributes },
        large: None,
        written_ms: transaction.now_ms(),
    };
    transaction.store(&upload.record(UploadState::Open), stored)
}

/// Checks that an upload is open, which it is until it is committed or given up.
pub(super) fn require_open(transaction: &mut OwnerTransaction<'_, '_>, upload: &Upload) -> Result<(), Interrupted> {
    match transaction.entry(&upload.record(UploadState::Open)) {
        Some(_) => Ok(()),
        None => Err(WriteRefusal::NoUpload { upload: upload.id.to_string() }.into()),
    }
}

/// Stores a record of the store's own.
pub(super) fn store_own(
    transaction: &mut OwnerTransaction<'_, '_>,
    key: &[u8],
    bytes: Bytes,
) -> Result<(), Interrupted> {
    let written_ms = transaction.now_ms();
    transaction.store(key, StoredValue { value: Value::of(bytes), large: None, written_ms })
}

/// Makes the parts of an open upload the value of its key.
///
/// # Errors
/// [`WriteRefusal::NoUpload`]; [`Interrupted::Refused`] by a quota.
pub fn commit(
    transaction: &mut OwnerTransaction<'_, '_>,
    upload: &Upload,
    pieces: Vec<Piece>,
    expires_ms: Option<i64>,
    attributes: Option<Arc<Attributes>>,
) -> Result<Spliced, Interrupted> {
    require_open(transaction, upload)?;
    let record = upload.record(UploadState::Open);
    let attributes = match attributes {
        Some(attributes) => Some(attributes),
        None => transaction.stored(&record)?.and_then(|stored| stored.value.attributes),
    };
    transaction.delete(&record);
    let is_new = transaction.entry(&upload.key).is_none();
    let value = Value { bytes: Bytes::new(), expires_ms, attributes };
    show(transaction, upload, &Manifest { pieces }, value, COMMITTED[usize::from(is_new)])
}

/// Writes `new` into the value of the upload's key at `at`, or behind its end. The upload is open if `new` is one of
/// its parts; otherwise its id is used if the value has no upload yet. What is `None` stays as it was.
///
/// # Errors
/// [`WriteRefusal::NoUpload`], [`WriteRefusal::TooManyPieces`]; [`Interrupted::Refused`] by a quota.
pub fn splice(
    transaction: &mut OwnerTransaction<'_, '_>,
    upload: &Upload,
    at: Option<u64>,
    new: &Splice,
    expires_ms: Option<i64>,
    attributes: Option<Arc<Attributes>>,
) -> Result<Spliced, Interrupted> {
    let before = transaction.stored(&upload.key)?;
    let mut manifest = match &before {
        Some(StoredValue { value, large: Some(_), .. }) => {
            Manifest::decode(&value.bytes).map_err(|what| WriteRefusal::Manifest { what })?
        }
        Some(StoredValue { value, large: None, .. }) if !value.bytes.is_empty() => {
            Manifest { pieces: vec![write_part(transaction, upload.id, &value.bytes)?] }
        }
        _ => Manifest::default(),
    };
    let at = at.unwrap_or_else(|| manifest.size());
    let length = at.saturating_add(new.length());
    if length > LENGTH_MAX {
        return Err(WriteRefusal::ValueTooLarge { length, max_bytes: LENGTH_MAX }.into());
    }
    let piece = match new {
        Splice::Bytes(bytes) => {
            let id = manifest.uploads().last().copied().unwrap_or(upload.id);
            write_part(transaction, id, bytes)?
        }
        Splice::Part(piece) => {
            require_open(transaction, upload)?;
            transaction.delete(&upload.record(UploadState::Open));
            *piece
        }
    };
    manifest.splice(at, &[piece]);
    let value = before.map(|before| before.value).unwrap_or_default();
    let (expires_ms, attributes) = (expires_ms.or(value.expires_ms), attributes.or(value.attributes));
    show(transaction, upload, &manifest, Value { bytes: Bytes::new(), expires_ms, attributes }, UPLOAD_VERSION)
}

/// Stores the manifest and, behind it, the records of the uploads that it has parts of, with these bytes.
fn show(
    transaction: &mut OwnerTransaction<'_, '_>,
    upload: &Upload,
    manifest: &Manifest,
    value: Value,
    used_by: &'static [u8],
) -> Result<Spliced, Interrupted> {
    if !manifest.fits() {
        let (pieces, uploads) = (manifest.pieces.len(), manifest.uploads().len());
        return Err(WriteRefusal::TooManyPieces { pieces, uploads }.into());
    }
    let (length, expires_ms, before) = (manifest.size(), value.expires_ms, transaction.written() as u64);
    let value = Value { bytes: manifest.encode(), ..value };
    let written_ms = transaction.now_ms();
    transaction.store(&upload.key, StoredValue { value, large: Some(length), written_ms })?;
    for id in manifest.uploads() {
        let used = Upload { id, ..upload.clone() };
        store_own(transaction, &used.record(UploadState::InUse), Bytes::from_static(used_by))?;
    }
    Ok(Spliced { length, expires_ms, before })
}

/// Writes a part inside the transaction that shows it.
fn write_part(
    transaction: &mut OwnerTransaction<'_, '_>,
    upload: UploadId,
    bytes: &Bytes,
) -> Result<Piece, Interrupted> {
    let slot = fastrand::u32(..);
    for (chunk, begin) in (0..bytes.len()).step_by(CHUNK_BYTES).enumerate() {
        let end = bytes.len().min(begin + CHUNK_BYTES);
        store_own(transaction, &chunk_key(upload, slot, chunk as u32), bytes.slice(begin..end))?;
    }
    let source = Source::Part { upload, slot, skip: 0 };
    Ok(Piece { source, size: bytes.len() as u64, crc: Some(crc32c::crc32c(bytes)) })
}
