//! A segment: consecutive batches of one partition, in blocks that each carry their own checksums.
//!
//! ```text
//! file header (64) | block | block | …            block = header (64) + whole batches as they lie
//!
//!  0 magic u32              8 first offset u64     24 largest event time, ms i64   40 CRC32C of the payload u32
//!  4 payload bytes u32     16 end offset u64       32 append time, ms i64          44 batches u32   48 zeros
//! 60 CRC32C of the 60 bytes before u32
//! ```
//!
//! In a compacted segment, the append time is the time of the first compaction, and the end offset of the last block
//! is the end of the segments that it replaced.
//!
//! Owner: only the writeback thread appends to, closes and removes a segment; every thread may read. The compaction
//! thread owns the segments that it writes until it closes them. Invariants
//! - `end` and `size_bytes` only grow, and only after the bytes that they cover are in the file.
//! - No block is served unless its checksums match; the CRC of a batch does not cover its offsets. Bytes that are
//!   sent straight from the file were written or verified within the last minute.
//! - A closed segment never changes.

mod locate;
mod read;
mod single_batch;

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use millstream_types::{BatchLimits, Offset, RecordBatch, TopicId, TopicPartition};
use parking_lot::Mutex;

pub(crate) use self::single_batch::{BatchRead, ReadFrom};
use crate::block::{BLOCK_BYTES, BlockHeader, split_batches};
use crate::buffers::Buffers;
use crate::checksum_cache::ChecksumCache;
use crate::dead_records::DeadRecords;
use crate::files;
use crate::index::{self, BlockEntry};
use crate::layout::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FileKind, Layout, index_name, segment_name};
use crate::segment_cache::SegmentCache;
use crate::tail_cache::CachedBatch;
use crate::wire::WireWriter;
use crate::{Error, File, Files};

/// Position of the generation in the header's kind-specific part; an index has its count and checksum before it.
const GENERATION: std::ops::Range<usize> = 36..44;
/// Most places of one segment whose damage is logged; each is logged once.
const REPORTED_MAX: usize = 64;
const CUT_SHORT: &str = "it ends within a block";

/// The facts about a segment that `meta` keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentRecord {
    pub(crate) base: u64,
    /// Number of replacements by compaction; never used twice for a base offset.
    pub(crate) generation: u64,
    pub(crate) end: u64,
    pub(crate) size_bytes: u64,
    pub(crate) first_append_ms: i64,
    pub(crate) last_append_ms: i64,
    pub(crate) max_timestamp_ms: i64,
    pub(crate) closed: bool,
    /// Its tombstones count as appended at this time, if that is later than their block says.
    pub(crate) dated_ms: i64,
}

pub(crate) struct Segment {
    files: Arc<dyn Files>,
    buffers: Arc<Buffers>,
    cache: Arc<SegmentCache>,
    /// Its number in the cache.
    number: u64,
    partition: TopicPartition,
    own: Vec<u8>,
    path: PathBuf,
    index_path: PathBuf,
    base: u64,
    generation: u64,
    end: AtomicU64,
    size_bytes: AtomicU64,
    first_append_ms: AtomicI64,
    last_append_ms: AtomicI64,
    max_timestamp_ms: AtomicI64,
    closed: AtomicBool,
    blocks: Mutex<Option<Vec<BlockEntry>>>,
    checksum_cache: ChecksumCache,
    /// Positions of the damage that the log has told of.
    reported: Mutex<BTreeSet<u64>>,
    /// The segment has been replaced or expired, and its files are removed.
    retired: AtomicBool,
    dated_ms: AtomicI64,
    /// Superseded records that compaction has found and left, in this run of the program.
    dead: Mutex<Arc<DeadRecords>>,
}

impl Segment {
    /// Creates a segment file with only its header. Neither the file nor its name is synced.
    pub(crate) fn create(place: &SegmentPlace<'_>, base: u64, generation: u64) -> Result<Self, Error> {
        let record = SegmentRecord {
            base,
            generation,
            end: base,
            size_bytes: FILE_HEADER_BYTES as u64,
            first_append_ms: i64::MAX,
            last_append_ms: i64::MIN,
            max_timestamp_ms: i64::MIN,
            closed: false,
            dated_ms: i64::MIN,
        };
        let segment = Self::known(place, &record);
        let file = segment.files.create(&segment.path).map_err(|e| Error::io("create", &segment.path, e))?;
        let mut own = segment.own.clone();
        own.put_u64(0);
        own.put_u64(generation);
        let header = FileKind::Segment.header(&own);
        file.write_at(&[IoSlice::new(&header)], 0).map_err(|e| Error::io("write", &segment.path, e))?;
        *segment.blocks.lock() = Some(Vec::new());
        Ok(segment)
    }

    /// A segment that `meta` names. Its file is not touched before a read.
    pub(crate) fn known(place: &SegmentPlace<'_>, record: &SegmentRecord) -> Self {
        let dir = place.layout.partition_dir(place.topic, place.partition.partition.0);
        let mut own = Vec::with_capacity(28);
        own.put_u128(place.topic.0);
        own.put_u32(place.partition.partition.0);
        own.put_u64(record.base);
        Self {
            files: place.files.clone(),
            buffers: place.buffers.clone(),
            cache: place.cache.clone(),
            number: place.cache.next_number(),
            partition: place.partition.clone(),
            own,
            path: dir.join(segment_name(record.base, record.generation)),
            index_path: dir.join(index_name(record.base, record.generation)),
            base: record.base,
            generation: record.generation,
            end: AtomicU64::new(record.end),
            size_bytes: AtomicU64::new(record.size_bytes),
            first_append_ms: AtomicI64::new(record.first_append_ms),
            last_append_ms: AtomicI64::new(record.last_append_ms),
            max_timestamp_ms: AtomicI64::new(record.max_timestamp_ms),
            closed: AtomicBool::new(record.closed),
            blocks: Mutex::new(None),
            checksum_cache: ChecksumCache::new(),
            reported: Mutex::default(),
            retired: AtomicBool::new(false),
            dated_ms: AtomicI64::new(record.dated_ms),
            dead: Mutex::default(),
        }
    }

    pub(crate) fn record(&self) -> SegmentRecord {
        SegmentRecord {
            base: self.base,
            generation: self.generation,
            end: self.end(),
            size_bytes: self.size_bytes(),
            first_append_ms: self.first_append_ms.load(Ordering::Acquire),
            last_append_ms: self.last_append_ms.load(Ordering::Acquire),
            max_timestamp_ms: self.max_timestamp_ms.load(Ordering::Acquire),
            closed: self.is_closed(),
            dated_ms: self.dated_ms.load(Ordering::Acquire),
        }
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Marks the segment as removed: a reader that misses its files looks for the replacement.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Lets the age of its tombstones begin at `now_ms`.
    pub(crate) fn date(&self, now_ms: i64) {
        self.dated_ms.fetch_max(now_ms, Ordering::AcqRel);
    }

    pub(crate) fn dead(&self) -> Arc<DeadRecords> {
        self.dead.lock().clone()
    }

    pub(crate) fn set_dead(&self, dead: DeadRecords) {
        *self.dead.lock() = Arc::new(dead);
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn max_timestamp_ms(&self) -> i64 {
        self.max_timestamp_ms.load(Ordering::Acquire)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn index_path(&self) -> &Path {
        &self.index_path
    }

    /// Cuts off bytes that an earlier process wrote beyond the size in `meta`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file is shorter than `meta` says; [`Error::Io`].
    pub(crate) fn cut_to_size(&self) -> Result<(), Error> {
        let file = self.files.open(&self.path).map_err(|e| self.unopened(self.base, e))?;
        let size = file.size().map_err(|e| Error::io("read the size of", &self.path, e))?;
        if size < self.size_bytes() {
            return Err(self.corrupt(self.base, size, "it is shorter than was synced"));
        }
        if size > self.size_bytes() {
            file.set_size(self.size_bytes()).map_err(|e| Error::io("cut", &self.path, e))?;
        }
        Ok(())
    }

    /// Writes `batches` in blocks, without a sync.
    pub(crate) fn append(&self, batches: &[CachedBatch]) -> Result<(), Error> {
        let file = self.files.open(&self.path).map_err(|e| self.unopened(self.end(), e))?;
        let mut rest = batches;
        while !rest.is_empty() {
            let mut payload_bytes = 0;
            let fitting = rest.iter().take_while(|stored| {
                payload_bytes += stored.batch.bytes().len();
                payload_bytes <= BLOCK_BYTES
            });
            let (block, later) = rest.split_at(fitting.count().max(1));
            let end = block.last().map_or(self.end(), |last| last.end);
            self.append_block(&*file, block, end)?;
            rest = later;
        }
        Ok(())
    }

    /// Writes compacted batches as one block that covers the offsets up to `end`.
    pub(crate) fn append_cleaned(&self, batches: &[CachedBatch], end: u64) -> Result<(), Error> {
        let file = self.files.open(&self.path).map_err(|e| self.unopened(self.end(), e))?;
        self.append_block(&*file, batches, end)
    }

    fn append_block(&self, file: &dyn File, batches: &[CachedBatch], end: u64) -> Result<(), Error> {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else { return Ok(()) };
        assert!(first.first >= self.end(), "offsets ascend within a segment");
        debug_assert!(!self.is_closed(), "a closed segment never changes");
        debug_assert!(batches.windows(2).all(|pair| pair[0].end <= pair[1].first), "batches ascend within a block");
        debug_assert!(last.end <= end, "a block covers its batches");
        let mut payload_crc = 0;
        let mut payload_bytes = 0;
        for stored in batches {
            payload_crc = crc32c::crc32c_append(payload_crc, stored.batch.bytes());
            payload_bytes += stored.batch.bytes().len();
        }
        let entry = BlockEntry {
            first: first.first,
            end,
            max_timestamp_ms: batches.iter().map(|stored| stored.batch.max_timestamp_ms()).max().unwrap_or(i64::MIN),
            at: self.size_bytes(),
            payload_bytes: u32::try_from(payload_bytes).expect("a batch fits a journal file"),
        };
        let header = BlockHeader { entry, appended_ms: last.appended_ms, payload_crc }.encode(batches.len());
        let mut parts = Vec::with_capacity(batches.len() + 1);
        parts.push(IoSlice::new(&header));
        parts.extend(batches.iter().map(|stored| IoSlice::new(stored.batch.bytes())));
        files::write_in_pieces(file, &parts, entry.at).map_err(|e| Error::io("write", &self.path, e))?;
        // Update the ends under the same lock: a thread that installs an index now includes this block, or sees it
        // here.
        let mut blocks = self.blocks.lock();
        if let Some(blocks) = blocks.as_mut() {
            self.checksum_cache.note(blocks.len(), Instant::now());
            blocks.push(entry);
        }
        self.first_append_ms.fetch_min(first.appended_ms, Ordering::AcqRel);
        self.last_append_ms.fetch_max(last.appended_ms, Ordering::AcqRel);
        self.max_timestamp_ms.fetch_max(entry.max_timestamp_ms, Ordering::AcqRel);
        self.size_bytes.fetch_add((BLOCK_HEADER_BYTES + payload_bytes) as u64, Ordering::AcqRel);
        self.end.store(entry.end, Ordering::Release);
        Ok(())
    }

    /// Makes the appended blocks durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let file = self.files.open(&self.path).map_err(|e| self.unopened(self.base, e))?;
        file.sync().map_err(|e| Error::io("sync", &self.path, e))
    }

    /// Writes the index; no block is appended afterwards.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let blocks = self.with_blocks(<[BlockEntry]>::to_vec)?;
        debug_assert!(!self.is_closed(), "a segment is closed once");
        debug_assert!(
            blocks.windows(2).all(|pair| pair[0].end <= pair[1].first && pair[0].at < pair[1].at),
            "blocks ascend in their segment"
        );
        index::write(&*self.files, &self.index_path, &self.own, &blocks)?;
        if let Some(dir) = self.index_path.parent() {
            self.files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        }
        self.closed.store(true, Ordering::Release);
        Ok(())
    }

    /// The first batch with a record at or after `timestamp_ms` that does not end below `from`.
    pub(crate) fn batch_at_time(
        &self,
        from: u64,
        timestamp_ms: i64,
        limits: &BatchLimits,
    ) -> Result<Option<RecordBatch>, Error> {
        if self.max_timestamp_ms() < timestamp_ms {
            return Ok(None);
        }
        let block = self.with_blocks(|blocks| {
            blocks.iter().find(|block| block.end > from && block.max_timestamp_ms >= timestamp_ms).copied()
        })?;
        let Some(block) = block else { return Ok(None) };
        let file = self.open_checked()?;
        let batches = self.read_block(&*file, &block, from, limits)?;
        Ok(batches.into_iter().find(|batch| batch.last_offset().0 >= from && batch.max_timestamp_ms() >= timestamp_ms))
    }

    fn open_checked(&self) -> Result<Arc<dyn File>, Error> {
        let file = self.files.open(&self.path).map_err(|e| self.unopened(self.base, e))?;
        self.check_header(&*file)?;
        Ok(file)
    }

    fn check_header(&self, file: &dyn File) -> Result<(), Error> {
        match FileKind::Segment.read_header(file, &self.path) {
            Ok(own) if own[..self.own.len()] == self.own && own[GENERATION] == self.generation.to_le_bytes() => Ok(()),
            Ok(_) => Err(self.corrupt(self.base, 0, "it belongs to another partition")),
            Err(Error::CorruptFile { what, .. }) => Err(self.corrupt(self.base, 0, what)),
            Err(e) => Err(e),
        }
    }

    /// The index entries of the segment.
    pub(crate) fn blocks(&self) -> Result<Vec<BlockEntry>, Error> {
        self.with_blocks(<[BlockEntry]>::to_vec)
    }

    /// The batches of one block, with the time from which the age of its tombstones counts.
    pub(crate) fn dated_block(
        &self,
        block: &BlockEntry,
        limits: &BatchLimits,
    ) -> Result<(i64, Vec<RecordBatch>), Error> {
        let file = self.open_checked()?;
        let (appended_ms, batches) = self.read_dated(&*file, block, block.first, limits)?;
        Ok((appended_ms.max(self.dated_ms.load(Ordering::Acquire)), batches))
    }

    fn read_block(
        &self,
        file: &dyn File,
        block: &BlockEntry,
        from: u64,
        limits: &BatchLimits,
    ) -> Result<Vec<RecordBatch>, Error> {
        self.read_dated(file, block, from, limits).map(|(_, batches)| batches)
    }

    fn read_dated(
        &self,
        file: &dyn File,
        block: &BlockEntry,
        from: u64,
        limits: &BatchLimits,
    ) -> Result<(i64, Vec<RecordBatch>), Error> {
        let refuse = |what| self.corrupt(from.max(block.first), block.at, what);
        let length = block.size_bytes();
        let bytes = self.buffers.filled(length, |buffer| file.read_at(buffer, block.at));
        let bytes = bytes.map_err(|e| Error::io("read", &self.path, e))?;
        if bytes.len() < length {
            return Err(refuse(CUT_SHORT));
        }
        let header = BlockHeader::of(block, &bytes).map_err(refuse)?;
        header.check(crc32c::crc32c(&bytes[BLOCK_HEADER_BYTES..])).map_err(refuse)?;
        let batches = split_batches(bytes.slice(BLOCK_HEADER_BYTES..), limits);
        let batches = batches.ok_or_else(|| refuse("a block does not consist of batches"))?;
        Ok((header.appended_ms, batches))
    }

    /// `true` if the index is in memory.
    fn has_blocks(&self) -> bool {
        self.blocks.lock().is_some()
    }

    /// Passes the index entries to `look`; reads or rebuilds the index first if it is not in memory.
    fn with_blocks<T>(&self, look: impl FnOnce(&[BlockEntry]) -> T) -> Result<T, Error> {
        if let Some(blocks) = self.blocks.lock().as_ref() {
            return Ok(look(blocks));
        }
        let mut loaded = self.load_index()?;
        let mut blocks = self.blocks.lock();
        // The writeback thread may have appended while the index was read without the lock.
        if blocks.is_none() && loaded.last().map_or(self.base, |block| block.end) < self.end() {
            let file = self.files.open(&self.path).map_err(|e| self.unopened(self.base, e))?;
            self.scan(&*file, &mut loaded)?;
        }
        Ok(look(blocks.get_or_insert(loaded)))
    }

    fn load_index(&self) -> Result<Vec<BlockEntry>, Error> {
        if self.is_closed() {
            match index::read(&*self.files, &self.index_path, &self.own) {
                Ok(entries) if self.covers_all(&entries) => return Ok(entries),
                Ok(_) => self.report_index("it does not cover its segment"),
                Err(why) => self.report_index(&why),
            }
        }
        let file = self.open_checked()?;
        let mut entries = Vec::new();
        self.scan(&*file, &mut entries)?;
        if self.is_closed() {
            index::write(&*self.files, &self.index_path, &self.own, &entries)?;
        }
        Ok(entries)
    }

    /// `true` if the entries are contiguous from the header to the end.
    fn covers_all(&self, entries: &[BlockEntry]) -> bool {
        let start = (FILE_HEADER_BYTES as u64, self.base);
        let end = entries.iter().try_fold(start, |(at, end), entry| {
            (entry.at == at && entry.first >= end).then(|| (entry.ends_at(), entry.end))
        });
        end == Some((self.size_bytes(), self.end()))
    }

    fn report_index(&self, why: &str) {
        tracing::warn!(
            topic = %self.partition.topic,
            partition = %self.partition.partition,
            offset = self.base,
            file = %self.index_path.display(),
            why,
            "rebuilding the index of a segment"
        );
    }

    /// Extends `entries` from the block headers, up to the segment's size.
    fn scan(&self, file: &dyn File, entries: &mut Vec<BlockEntry>) -> Result<(), Error> {
        let size = self.size_bytes();
        let (mut at, mut end) =
            entries.last().map_or((FILE_HEADER_BYTES as u64, self.base), |last| (last.ends_at(), last.end));
        while at < size {
            let mut header = [0; BLOCK_HEADER_BYTES];
            let read = file.read_at(&mut header, at).map_err(|e| Error::io("read", &self.path, e))?;
            let entry = BlockHeader::parse(&header[..read], at).map(|header| header.entry);
            match entry.filter(|entry| entry.first >= end && entry.ends_at() <= size) {
                Some(entry) => {
                    (at, end) = (entry.ends_at(), entry.end);
                    entries.push(entry);
                }
                None => return Err(self.corrupt(end, at, "a block header cannot be read")),
            }
        }
        Ok(())
    }

    fn unopened(&self, offset: u64, e: std::io::Error) -> Error {
        match e.kind() {
            std::io::ErrorKind::NotFound => self.corrupt(offset, 0, "it is missing"),
            _ => Error::io("open", &self.path, e),
        }
    }

    fn corrupt(&self, offset: u64, at: u64, what: &'static str) -> Error {
        let error = Error::Corrupt {
            partition: self.partition.clone(),
            offset: Offset(offset),
            path: self.path.clone(),
            at,
            what,
        };
        if !self.is_retired() && self.is_unreported(at) {
            tracing::error!(
                topic = %self.partition.topic,
                partition = %self.partition.partition,
                offset,
                file = %self.path.display(),
                at,
                "{error}"
            );
        }
        error
    }

    /// `true` once for each position.
    fn is_unreported(&self, at: u64) -> bool {
        let mut reported = self.reported.lock();
        reported.len() < REPORTED_MAX && reported.insert(at)
    }
}

/// The location of a partition's segments.
#[derive(Clone, Copy)]
pub(crate) struct SegmentPlace<'a> {
    pub(crate) files: &'a Arc<dyn Files>,
    pub(crate) buffers: &'a Arc<Buffers>,
    pub(crate) cache: &'a Arc<SegmentCache>,
    pub(crate) layout: &'a Layout,
    pub(crate) topic: TopicId,
    pub(crate) partition: &'a TopicPartition,
}
