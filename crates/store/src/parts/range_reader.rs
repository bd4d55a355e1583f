//! Reads a range of a large value as a stream of its chunks.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use millstream_types::PartitionId;

use super::manifest::Stretch;
use super::{CHUNK_BYTES, Manifest, chunk_key};
use crate::Error;
use crate::bucket::Bucket;

/// Chunks that are read or wait to be taken.
const AHEAD: usize = 2;

/// A stretch of a value that was never written.
static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

impl Bucket {
    /// Reads `range` of the value of `key` with that manifest, chunk by chunk and at most two ahead. It ends with an
    /// error if the value is replaced or deleted meanwhile and its parts have been removed.
    pub fn read_range(
        self: &Arc<Self>,
        key: &[u8],
        manifest: &Manifest,
        range: Range<u64>,
    ) -> impl Stream<Item = Result<Bytes, Error>> + Send + use<> {
        let (bucket, partition) = (Arc::clone(self), self.partition_of(key));
        let read = move |stretch| read(Arc::clone(&bucket), partition, stretch);
        stream::iter(manifest.stretches(range)).map(read).buffered(AHEAD)
    }
}

async fn read(bucket: Arc<Bucket>, partition: PartitionId, stretch: Stretch) -> Result<Bytes, Error> {
    let (upload, slot, chunk, within) = match stretch {
        Stretch::Zeros(length) => return Ok(Bytes::from_static(&ZEROS[..length])),
        Stretch::Chunk { upload, slot, chunk, bytes } => (upload, slot, chunk, bytes),
    };
    let stored = bucket.read_own(partition, &chunk_key(upload, slot, chunk)).await?;
    let bytes = stored.map(|stored| stored.value.bytes).filter(|bytes| bytes.len() >= within.end);
    let missing = || bucket.damaged(partition, 0, "a part has gone: the value has been replaced or deleted meanwhile");
    bytes.map(|bytes| bytes.slice(within)).ok_or_else(missing)
}
