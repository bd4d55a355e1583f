//! Writes a part of any size, chunk by chunk, in constant memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use millstream_log::AckLevel;
use millstream_types::PartitionId;
use tokio::task::JoinHandle;

use super::commit::{begin, require_open, store_own};
use super::{CHUNK_BYTES, Piece, Source, Upload, UploadState, chunk_key, chunks_prefix};
use crate::bucket::Bucket;
use crate::keys::OwnerTransaction;
use crate::{Error, WriteRefusal};

/// Chunks of one part that are on their way to the owner.
const IN_FLIGHT_MAX: usize = 2;

/// Records that are removed soon unless they are kept.
struct Unfinished {
    bucket: Arc<Bucket>,
    key: Option<(PartitionId, Bytes)>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.bucket.abandoned.lock().extend(self.key.take());
    }
}

/// A part that has been written, and is removed again unless it is kept.
pub struct WrittenPart {
    /// The part as a piece of a value.
    pub piece: Piece,
    unfinished: Unfinished,
}

impl std::fmt::Debug for WrittenPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WrittenPart({:?})", self.piece)
    }
}

impl WrittenPart {
    /// Notes that a record refers to the part.
    pub fn keep(mut self) {
        self.unfinished.key = None;
    }
}

/// A part that is being written.
pub struct ChunkWriter {
    upload: Upload,
    /// `true` until the upload is open, for a writer that opens it.
    is_to_open: bool,
    slot: u32,
    chunks: u32,
    buffer: BytesMut,
    size: u64,
    crc: u32,
    in_flight: VecDeque<JoinHandle<Result<(), Error>>>,
    unfinished: Unfinished,
}

impl std::fmt::Debug for ChunkWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChunkWriter({}, {} bytes)", self.upload.id, self.size)
    }
}

impl ChunkWriter {
    /// Begins a part of an upload that is open.
    pub fn part_of(bucket: &Arc<Bucket>, upload: Upload) -> Self {
        Self::new(bucket, upload, false)
    }

    /// Begins a part that is an upload by itself.
    pub fn alone(bucket: &Arc<Bucket>, upload: Upload) -> Self {
        Self::new(bucket, upload, true)
    }

    fn new(bucket: &Arc<Bucket>, upload: Upload, is_to_open: bool) -> Self {
        let slot = fastrand::u32(..);
        let record = if is_to_open { upload.record(UploadState::Open) } else { chunks_prefix(upload.id, Some(slot)) };
        let unfinished = Unfinished { bucket: Arc::clone(bucket), key: Some((upload.partition, record)) };
        let (buffer, in_flight) = (BytesMut::new(), VecDeque::new());
        Self { upload, is_to_open, slot, chunks: 0, buffer, size: 0, crc: 0, in_flight, unfinished }
    }

    /// Adds bytes. Waits while too many chunks are on their way.
    ///
    /// # Errors
    /// [`Error::Refused`] by a quota, or if the upload has been given up; those of [`Bucket::transact`].
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        self.size += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, &bytes);
        let value_max_bytes = self.unfinished.bucket.config().quotas.value_max_bytes;
        if let Some(max_bytes) = value_max_bytes.filter(|max_bytes| self.size > *max_bytes) {
            return Err(WriteRefusal::ValueTooLarge { length: self.size, max_bytes }.into());
        }
        while !bytes.is_empty() {
            self.buffer.reserve(CHUNK_BYTES - self.buffer.len());
            let taken = bytes.split_to(bytes.len().min(CHUNK_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(&taken);
            if self.buffer.len() == CHUNK_BYTES {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Sends the chunk in the buffer to the owner.
    async fn send(&mut self) -> Result<(), Error> {
        while self.in_flight.len() >= IN_FLIGHT_MAX {
            self.wait_for_first().await?;
        }
        let bucket = Arc::clone(&self.unfinished.bucket);
        let permit = Arc::clone(&bucket.chunks).acquire_owned().await.map_err(|_| Error::Stopped)?;
        let bytes = std::mem::take(&mut self.buffer).freeze();
        let (upload, key) = (self.upload.clone(), chunk_key(self.upload.id, self.slot, self.chunks));
        let is_to_open = std::mem::take(&mut self.is_to_open);
        self.chunks += 1;
        self.in_flight.push_back(tokio::spawn(async move {
            let (partition, size_bytes) = (upload.partition, bytes.len());
            let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
                if is_to_open {
                    begin(transaction, &upload, None)?;
                }
                require_open(transaction, &upload)?;
                store_own(transaction, &key, bytes.clone())
            };
            // What shows the chunk is written behind it and has the level that was asked for.
            let done = bucket.transact(partition, Some(AckLevel::Written), size_bytes, work).await;
            drop(permit);
            done.map(|_| ())
        }));
        // The chunks behind the first one must find the upload open.
        if is_to_open { self.wait_for_first().await } else { Ok(()) }
    }

    async fn wait_for_first(&mut self) -> Result<(), Error> {
        let Some(first) = self.in_flight.pop_front() else { return Ok(()) };
        first.await.map_err(|_| Error::Stopped)?
    }

    /// Writes what is left, and waits for all of it.
    ///
    /// # Errors
    /// The same errors as [`ChunkWriter::write`].
    pub async fn finish(mut self) -> Result<WrittenPart, Error> {
        if !self.buffer.is_empty() || self.is_to_open {
            self.send().await?;
        }
        while !self.in_flight.is_empty() {
            self.wait_for_first().await?;
        }
        let source = Source::Part { upload: self.upload.id, slot: self.slot, skip: 0 };
        let piece = Piece { source, size: self.size, crc: Some(self.crc) };
        Ok(WrittenPart { piece, unfinished: self.unfinished })
    }
}
