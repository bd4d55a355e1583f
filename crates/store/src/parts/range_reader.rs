//! Reads ranges of a large value as streams of its chunks. The parts stay until the reader has gone.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use millstream_types::PartitionId;

use super::manifest::Stretch;
use super::{CHUNK_BYTES, Manifest, chunk_key};
use crate::bucket::{Bucket, LOOKUPS_MAX};
use crate::part_holds::PartHold;
use crate::{Error, FoundValue, WriteRefusal};

/// Chunks that are read or wait to be taken.
const AHEAD: usize = 2;

/// A stretch of a value that was never written.
static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// A value that is read: whole, or with the reader of its parts.
#[derive(Debug)]
pub enum OpenedValue {
    /// The record has the whole value.
    Small(FoundValue),
    /// The record has the manifest; the reader has the value.
    Large(FoundValue, RangeReader),
}

/// Reads ranges of one version of a large value, although it is replaced or deleted meanwhile. Its parts are not removed
/// before all clones and streams of it are gone, or `store.part_hold_max_ms` has passed.
#[derive(Debug, Clone)]
pub struct RangeReader {
    bucket: Arc<Bucket>,
    partition: PartitionId,
    manifest: Arc<Manifest>,
    _hold: Arc<PartHold>,
}

impl Bucket {
    /// Opens the value of `key` for reading; `None` if there is none, or if it has expired.
    ///
    /// # Errors
    /// Those of [`Bucket::read`]; [`Error::Refused`] for a manifest that cannot be read.
    pub async fn open_value(self: &Arc<Self>, key: &[u8]) -> Result<Option<OpenedValue>, Error> {
        for _ in 0..LOOKUPS_MAX {
            let Some(found) = self.read(key).await? else { return Ok(None) };
            if found.stored.large.is_none() {
                return Ok(Some(OpenedValue::Small(found)));
            }
            let manifest = Manifest::decode(&found.stored.value.bytes);
            let manifest = Arc::new(manifest.map_err(|what| WriteRefusal::Manifest { what })?);
            let hold = Arc::new(self.part_holds.take(manifest.uploads().into_iter().map(|upload| upload.0).collect()));
            // A hold that came too late protects nothing.
            if self.version(key) == Some(found.version) {
                let (bucket, partition) = (Arc::clone(self), self.partition_of(key));
                return Ok(Some(OpenedValue::Large(found, RangeReader { bucket, partition, manifest, _hold: hold })));
            }
        }
        Err(Error::ReadsWaiting { waiting: LOOKUPS_MAX })
    }
}

impl RangeReader {
    /// Length of the value in bytes.
    pub fn size(&self) -> u64 {
        self.manifest.size()
    }

    /// Reads a range of the value, chunk by chunk and at most two ahead.
    pub fn range(&self, range: Range<u64>) -> impl Stream<Item = Result<Bytes, Error>> + Send + use<> {
        let reader = self.clone();
        stream::iter(self.manifest.stretches(range)).map(move |stretch| reader.clone().read(stretch)).buffered(AHEAD)
    }

    async fn read(self, stretch: Stretch) -> Result<Bytes, Error> {
        let (upload, slot, chunk, within) = match stretch {
            Stretch::Zeros(length) => return Ok(Bytes::from_static(&ZEROS[..length])),
            Stretch::Chunk { upload, slot, chunk, bytes } => (upload, slot, chunk, bytes),
        };
        let stored = self.bucket.read_own(self.partition, &chunk_key(upload, slot, chunk)).await?;
        let bytes = stored.map(|stored| stored.value.bytes).filter(|bytes| bytes.len() >= within.end);
        bytes.map(|bytes| bytes.slice(within)).ok_or_else(|| {
            let what = "a part has gone: the value was replaced or deleted, and read for longer than \
                        store.part_hold_max_ms";
            self.bucket.damaged(self.partition, 0, what)
        })
    }
}
