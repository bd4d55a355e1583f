//! A cache for reads of single records: open segment files, and the places of batches within blocks.
//!
//! All segments of an engine share it. A segment has a number of its own in this process, and the blocks of a segment
//! never change, so nothing in here becomes stale. A dropped segment closes its file; places of its blocks are not
//! asked for any more and make room for others.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_types::RecordBatch;
use parking_lot::Mutex;

use crate::File;
use crate::clock_cache::ClockCache;

const FILES_MAX: usize = 128;
/// Most memory of the places of batches.
const PLACES_MAX_BYTES: usize = 32 << 20;
/// Memory of an entry beside its places: keys, map and list.
const ENTRY_BYTES: usize = 96;

/// The place of one batch within its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchPlace {
    pub(crate) first: u64,
    /// Position after the block's header.
    pub(crate) at: u32,
}

/// The places of all batches of a block, by offset.
pub(crate) type BatchPlaces = Arc<[BatchPlace]>;

/// The places of `batches`, which are all that a block has.
pub(crate) fn places_of(batches: &[RecordBatch]) -> BatchPlaces {
    let mut at = 0;
    let place = |batch: &RecordBatch| {
        let place = BatchPlace { first: batch.base_offset().0, at };
        at += batch.size_bytes() as u32;
        place
    };
    batches.iter().map(place).collect()
}

#[derive(Clone)]
struct OpenFile {
    file: Arc<dyn File>,
    path: Arc<Path>,
}

pub(crate) struct SegmentCache {
    next_number: AtomicU64,
    /// By the number of the segment.
    files: Mutex<ClockCache<u64, OpenFile>>,
    /// By the number of the segment and the position of the block.
    places: Mutex<ClockCache<(u64, u64), BatchPlaces>>,
}

impl SegmentCache {
    pub(crate) fn new() -> Arc<Self> {
        let (files, places) = (ClockCache::new(FILES_MAX), ClockCache::new(PLACES_MAX_BYTES));
        Arc::new(Self { next_number: AtomicU64::new(0), files: Mutex::new(files), places: Mutex::new(places) })
    }

    /// The number of a new segment.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn file(&self, segment: u64) -> Option<Arc<dyn File>> {
        self.files.lock().get(&segment).map(|open| open.file)
    }

    /// Keeps `file` open for the next reads.
    pub(crate) fn keep_file(&self, segment: u64, file: &Arc<dyn File>, path: &Path) {
        let open = OpenFile { file: file.clone(), path: path.into() };
        // Closing a removed file may take the disk a while: not under the lock.
        let closed = self.files.lock().insert(segment, open, 1);
        drop(closed);
    }

    /// Closes the file of a segment.
    pub(crate) fn close(&self, segment: u64) {
        let closed = self.files.lock().remove_if(|number, _| *number == segment);
        drop(closed);
    }

    /// Closes the files in `dir` and below.
    pub(crate) fn close_in(&self, dir: &Path) {
        let closed = self.files.lock().remove_if(|_, open| open.path.starts_with(dir));
        drop(closed);
    }

    pub(crate) fn places(&self, segment: u64, block_at: u64) -> Option<BatchPlaces> {
        self.places.lock().get(&(segment, block_at))
    }

    pub(crate) fn keep_places(&self, segment: u64, block_at: u64, places: &BatchPlaces) {
        let weight = ENTRY_BYTES + size_of_val(&**places);
        let dropped = self.places.lock().insert((segment, block_at), places.clone(), weight);
        drop(dropped);
    }
}
