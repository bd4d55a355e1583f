//! The keys of a cache bucket in order, for a listing.
//!
//! A cache has no order, so each look takes the first keys out of all of them. A listing reads many at a look, and a page
//! that asks for more takes fewer looks. There is no snapshot: a key that is there from the first page to the last is
//! listed once, one that comes or goes meanwhile perhaps.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_types::PartitionId;
use parking_lot::Mutex;

use crate::cache::CachedKey;
use crate::key_merge::KeySource;
use crate::record::Listed;
use crate::{CacheBucket, Error};

/// Keys that one look takes, at least and at most.
const KEYS_MIN: u64 = 64;
const KEYS_MAX: u64 = 16_384;
/// Bytes of the keys that one look takes.
const KEYS_BYTES: usize = 2 << 20;

/// The keys of a cache bucket that begin with a prefix.
pub(crate) struct CachedKeys {
    bucket: Arc<CacheBucket>,
    prefix: Vec<u8>,
    keys_max: usize,
    ahead: Mutex<KeysAhead>,
}

/// Keys that a look has found and nobody has read.
#[derive(Default)]
struct KeysAhead {
    keys: VecDeque<(Vec<u8>, CachedKey)>,
    /// The key from which on the next look begins; `None` behind the last key.
    next: Option<Vec<u8>>,
}

impl CachedKeys {
    /// The keys for a page of `limit` lines; `None` if it cannot be told how many keys the page reads.
    pub(crate) fn new(bucket: Arc<CacheBucket>, prefix: &[u8], limit: Option<u64>) -> Self {
        let keys_max = limit.map_or(KEYS_MAX, |limit| limit.saturating_add(1).clamp(KEYS_MIN, KEYS_MAX)) as usize;
        let ahead = KeysAhead { keys: VecDeque::new(), next: Some(Vec::new()) };
        Self { bucket, prefix: prefix.to_vec(), keys_max, ahead: Mutex::new(ahead) }
    }

    /// The bucket of the keys.
    pub(crate) fn bucket(&self) -> &Arc<CacheBucket> {
        &self.bucket
    }
}

impl KeySource for CachedKeys {
    /// Reads on: `start` never goes back.
    fn list_keys(
        &self,
        _: PartitionId,
        start: &[u8],
        visit: &mut dyn FnMut(&[u8], Listed) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut ahead = self.ahead.lock();
        loop {
            while let Some((key, found)) = ahead.keys.pop_front() {
                if key.as_slice() >= start && visit(&key, listed(found)).is_break() {
                    return Ok(());
                }
            }
            let Some(next) = ahead.next.take() else { return Ok(()) };
            let from = next.as_slice().max(start);
            let first = self.bucket.cache().first_keys(from, &self.prefix, self.keys_max, KEYS_BYTES);
            // The next key in order.
            let last = first.keys.last_key_value().filter(|_| first.is_cut);
            ahead.next = last.map(|(last, _)| [&last[..], &[0]].concat());
            ahead.keys = first.keys.into_iter().collect();
        }
    }
}

fn listed(found: CachedKey) -> Listed {
    let CachedKey { entry, attributes } = found;
    let (content_type, tags) =
        attributes.map(|attributes| (attributes.content_type.clone(), attributes.tags.clone())).unwrap_or_default();
    Listed {
        version: entry.version.unwrap_or_default(),
        length: entry.length,
        expires_ms: entry.expires_ms,
        // A cache does not note it.
        written_ms: 0,
        is_large: false,
        content_type,
        tags,
    }
}
