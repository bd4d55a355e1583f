//! Copies of batches whose records are read one by one, on the disk of this machine: Kafka is the replica, the disk serves reads.
//!
//! ```text
//!   a tail that is followed ─┐                    ┌─► extents of a partition's batches ─► the newest segment
//!   what readers fetch ──────┴─► a bounded queue ─┘   (one thread)                        the oldest one goes beyond the limit
//! ```
//!
//! Always true
//! - An extent has all readable records of its range of offsets, so an offset in it that is not found has no record.
//! - Nothing depends on a copy: what is not here is fetched, and kept again. So nothing is synced, a start begins without any,
//!   and a segment is dropped with what it has, whatever is still in use of it.

mod range;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream_log::{File, Files as _, SystemFiles, run_in_background};
use millstream_types::{BatchLimits, Offset, RecordBatch};
use parking_lot::{Condvar, Mutex, RwLock};
use tracing::warn;
use uuid::Uuid;

use self::range::{EXTENT_BYTES, Range, batch_at};

/// Bytes of batches in all partitions that wait for others to fill an extent.
const PENDING_MAX_BYTES: usize = 4 << 20;
/// Bytes of batches that wait for the thread. More are not kept.
const QUEUE_MAX_BYTES: usize = 32 << 20;
/// Share of the limit that a segment takes, and the largest one.
const SEGMENTS: u64 = 32;
const SEGMENT_MAX_BYTES: u64 = 64 << 20;
/// The pause after a disk has refused a write.
const PAUSE: Duration = Duration::from_secs(10);
/// Least time between two lines of the log that tell of it.
const TELL_INTERVAL: Duration = Duration::from_secs(600);

/// A partition: the topic's id and the number.
pub(crate) type Place = (Uuid, i32);

/// The room for copies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyLimits {
    /// Bytes of all copies; with 0 none are kept.
    pub(crate) max_bytes: u64,
    /// Free bytes on the disk below which copies take no more room.
    pub(crate) disk_free_min_bytes: u64,
}

/// The copies of a process.
pub(crate) struct LocalCopies {
    shared: Arc<Shared>,
}

struct Shared {
    dir: PathBuf,
    limits: CopyLimits,
    known: RwLock<Known>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// Batches for the thread, and whether it is to end.
#[derive(Default)]
struct Queue {
    ranges: Vec<(Place, Range)>,
    bytes: usize,
    has_thread: bool,
    is_closed: bool,
}

#[derive(Default)]
struct Known {
    /// Ranges that are too short for an extent.
    pending: HashMap<Place, Range>,
    pending_bytes: usize,
    /// Extents by the first offset of their range.
    extents: HashMap<Place, BTreeMap<Offset, Extent>>,
    segments: VecDeque<Segment>,
    /// The number of the oldest segment.
    oldest: u64,
}

/// The place of a range's batches.
#[derive(Clone, Copy)]
struct Extent {
    to: Offset,
    segment: u64,
    at: u64,
    bytes: usize,
}

struct Segment {
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
    extents: Vec<(Place, Offset)>,
}

/// The outcome of a look for a record.
pub(crate) enum Copy {
    /// No copy is known.
    Unknown,
    /// A copy is on the disk, and not in the page cache.
    OnDisk,
    /// The batch of the record; `None` if there is no record at this offset.
    Read(Option<RecordBatch>),
}

impl LocalCopies {
    /// Copies in files below `dir`, which is emptied.
    pub(crate) fn new(dir: PathBuf, limits: CopyLimits) -> Self {
        // Nobody reads copies of a former process. There are none as a rule.
        let _ = SystemFiles.remove_dir_all(&dir);
        let (known, queue, wake) = Default::default();
        Self { shared: Arc::new(Shared { dir, limits, known, queue, wake }) }
    }

    /// Keeps the readable batches between two offsets.
    pub(crate) fn keep(&self, place: Place, from: Offset, to: Offset, batches: &[RecordBatch]) {
        if self.shared.limits.max_bytes == 0 || from >= to {
            return;
        }
        let range = Range { from, to, batches: batches.to_vec() };
        let mut queue = self.shared.queue.lock();
        if queue.bytes > QUEUE_MAX_BYTES {
            return;
        }
        queue.bytes += range.bytes();
        queue.ranges.push((place, range));
        if !std::mem::replace(&mut queue.has_thread, true) {
            let shared = Arc::clone(&self.shared);
            let begun = std::thread::Builder::new().name("log-copies".to_owned()).spawn(move || shared.run());
            if let Err(error) = begun {
                warn!(%error, "no copies are kept on this machine");
            }
        }
        drop(queue);
        self.shared.wake.notify_one();
    }

    /// Looks for the record at an offset. Without `may_wait` only where no disk is waited for.
    pub(crate) fn read(&self, place: Place, offset: Offset, may_wait: bool) -> Copy {
        let (file, extent) = {
            let known = self.shared.known.read();
            if let Some(pending) = known.pending.get(&place).filter(|pending| pending.has(offset)) {
                return Copy::Read(batch_at(pending.batches.iter().cloned(), offset));
            }
            let Some(extent) = known.extent(place, offset) else { return Copy::Unknown };
            let Some(segment) = known.segment(extent.segment) else { return Copy::Unknown };
            (Arc::clone(&segment.file), extent)
        };
        let mut bytes = vec![0; extent.bytes];
        let read = match may_wait {
            true => file.read_at(&mut bytes, extent.at).map(|read| read == extent.bytes),
            false => match file.read_cached_at(&mut bytes, extent.at) {
                Ok(false) => return Copy::OnDisk,
                read => read,
            },
        };
        if !matches!(read, Ok(true)) {
            return Copy::Unknown;
        }
        let mut batches = Vec::new();
        for batch in RecordBatch::split(Bytes::from(bytes), &BatchLimits::default()) {
            match batch {
                Ok(batch) => batches.push(batch),
                // The disk has damaged it. The brokers have not.
                Err(_) => return Copy::Unknown,
            }
        }
        Copy::Read(batch_at(batches, offset))
    }
}

impl Drop for LocalCopies {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.wake.notify_one();
    }
}

impl std::fmt::Debug for LocalCopies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalCopies({})", self.shared.dir.display())
    }
}

impl Known {
    fn extent(&self, place: Place, offset: Offset) -> Option<Extent> {
        let (_, extent) = self.extents.get(&place)?.range(..=offset).next_back()?;
        (offset < extent.to).then_some(*extent)
    }

    fn segment(&self, number: u64) -> Option<&Segment> {
        self.segments.get(usize::try_from(number.checked_sub(self.oldest)?).ok()?)
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The parts of a range that are not known.
    fn unknown(&self, place: Place, range: &Range) -> Vec<Range> {
        let (mut unknown, mut from) = (Vec::new(), range.from);
        let extents = self.extents.get(&place);
        let pending = self.pending.get(&place);
        while from < range.to {
            let pending = pending.map(|pending| (pending.from, pending.to));
            let before = extents.and_then(|extents| extents.range(..=from).next_back()).map(|(_, extent)| extent.to);
            let here = pending.filter(|(first, _)| *first <= from).map(|(_, to)| to);
            if let Some(to) = before.max(here).filter(|to| *to > from) {
                from = to;
                continue;
            }
            let next = extents.and_then(|extents| extents.range(from..).next()).map(|(first, _)| *first);
            let next_pending = pending.map(|(first, _)| first).filter(|first| *first > from);
            let to = [next, next_pending].into_iter().flatten().fold(range.to, Offset::min);
            let is_in = |batch: &&RecordBatch| batch.next_offset() > from && batch.base_offset() < to;
            unknown.push(Range { from, to, batches: range.batches.iter().filter(is_in).cloned().collect() });
            from = to;
        }
        unknown
    }

    /// Adds a range to what waits for others; returns the ranges that need not wait any more.
    fn wait_for_more(&mut self, place: Place, mut range: Range) -> Vec<Range> {
        let mut full = Vec::new();
        if let Some(mut before) = self.pending.remove(&place) {
            self.pending_bytes -= before.bytes();
            if before.to == range.from {
                before.batches.append(&mut range.batches);
                range = Range { to: range.to, ..before };
            } else if before.to < range.from {
                full.push(before);
            } else {
                // What comes at the tail joins the later one.
                full.push(std::mem::replace(&mut range, before));
            }
        }
        if range.bytes() >= EXTENT_BYTES {
            full.push(range);
        } else {
            self.pending_bytes += range.bytes();
            self.pending.insert(place, range);
        }
        full
    }

    fn take_pending(&mut self) -> HashMap<Place, Range> {
        self.pending_bytes = 0;
        std::mem::take(&mut self.pending)
    }

    fn drop_oldest(&mut self) -> Option<PathBuf> {
        let gone = self.segments.pop_front()?;
        for (place, from) in gone.extents {
            let Some(extents) = self.extents.get_mut(&place) else { continue };
            // A later copy of the range may have come.
            if extents.get(&from).is_some_and(|extent| extent.segment == self.oldest) {
                extents.remove(&from);
            }
            if extents.is_empty() {
                self.extents.remove(&place);
            }
        }
        self.oldest += 1;
        Some(gone.path)
    }
}

impl Shared {
    /// Writes what is kept until the log is closed. What it writes counts for the queue until it is written.
    fn run(&self) {
        run_in_background();
        let (mut pause_until, mut told_at) = (None, None::<Instant>);
        loop {
            let (ranges, bytes) = {
                let mut queue = self.queue.lock();
                while queue.ranges.is_empty() && !queue.is_closed {
                    self.wake.wait(&mut queue);
                }
                if queue.is_closed {
                    break;
                }
                (std::mem::take(&mut queue.ranges), queue.bytes)
            };
            if pause_until.is_none_or(|until| Instant::now() >= until) {
                pause_until = None;
                if let Err(error) = ranges.into_iter().try_for_each(|(place, range)| self.add(place, range)) {
                    if told_at.is_none_or(|told_at| told_at.elapsed() >= TELL_INTERVAL) {
                        told_at = Some(Instant::now());
                        let dir = self.dir.display();
                        warn!(%error, %dir, "copies cannot be written, so values are read from Kafka; make room, or set log.kafka.copies_max_bytes = 0");
                    }
                    self.known.write().take_pending();
                    pause_until = Some(Instant::now() + PAUSE);
                }
            }
            self.queue.lock().bytes -= bytes;
        }
        let _ = SystemFiles.remove_dir_all(&self.dir);
    }

    fn add(&self, place: Place, range: Range) -> std::io::Result<()> {
        let mut known = self.known.write();
        let unknown = known.unknown(place, &range);
        let full: Vec<_> = unknown.into_iter().flat_map(|range| known.wait_for_more(place, range)).collect();
        let crowded = if known.pending_bytes > PENDING_MAX_BYTES { known.take_pending() } else { HashMap::new() };
        drop(known);
        full.into_iter()
            .map(|range| (place, range))
            .chain(crowded)
            .try_for_each(|(place, range)| self.write(place, range))
    }

    /// Writes the pieces of a range as extents, one behind the other.
    fn write(&self, place: Place, range: Range) -> std::io::Result<()> {
        // What would not fit beside nothing else is fetched each time.
        if range.bytes() as u64 > self.limits.max_bytes {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(range.bytes());
        let (segment, file, at) = self.room(range.bytes() as u64)?;
        let mut extents = Vec::new();
        for Range { from, to, batches } in range.into_pieces() {
            let begin = bytes.len();
            batches.iter().for_each(|batch| bytes.extend_from_slice(batch.bytes()));
            extents.push((from, Extent { to, segment, at: at + begin as u64, bytes: bytes.len() - begin }));
        }
        file.write_at(&[std::io::IoSlice::new(&bytes)], at)?;
        let mut known = self.known.write();
        if let Some(newest) = known.segments.back_mut() {
            newest.bytes += bytes.len() as u64;
            newest.extents.extend(extents.iter().map(|(from, _)| (place, *from)));
        }
        known.extents.entry(place).or_default().extend(extents);
        Ok(())
    }

    /// The newest segment and its end, where so many bytes have room; a new one if it is full, or if all there is has to go.
    fn room(&self, bytes: u64) -> std::io::Result<(u64, Arc<dyn File>, u64)> {
        let CopyLimits { max_bytes, disk_free_min_bytes } = self.limits;
        let segment_bytes = (max_bytes / SEGMENTS).clamp(1, SEGMENT_MAX_BYTES);
        let mut known = self.known.write();
        while known.bytes() + bytes > max_bytes {
            let Some(gone) = known.drop_oldest() else { break };
            SystemFiles.remove(&gone)?;
        }
        if let Some(newest) = known.segments.back().filter(|newest| newest.bytes < segment_bytes) {
            return Ok((known.oldest + known.segments.len() as u64 - 1, Arc::clone(&newest.file), newest.bytes));
        }
        SystemFiles.create_dir_all(&self.dir)?;
        let is_disk_full = SystemFiles.free_bytes(&self.dir)? < disk_free_min_bytes.saturating_add(segment_bytes);
        if is_disk_full && known.segments.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        if is_disk_full && let Some(gone) = known.drop_oldest() {
            SystemFiles.remove(&gone)?;
        }
        let number = known.oldest + known.segments.len() as u64;
        let path = self.dir.join(format!("{number:012}.copies"));
        let file = SystemFiles.create(&path)?;
        known.segments.push_back(Segment { path, file: Arc::clone(&file), bytes: 0, extents: Vec::new() });
        Ok((number, file, 0))
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Record};
    use proptest::prelude::*;

    use super::*;

    const ROOM: CopyLimits = CopyLimits { max_bytes: 1 << 20, disk_free_min_bytes: 0 };

    fn place(number: i32) -> Place {
        (Uuid::from_u128(7), number)
    }

    /// A batch with one record, whose value tells partition and offset, and `padding`.
    fn batch(number: i32, offset: u64, padding: usize) -> RecordBatch {
        let value = format!("{number}/{offset}/{}", "x".repeat(padding));
        let mut builder = BatchBuilder::default();
        builder.push(&Record { value: Some(value.as_bytes()), ..Record::default() });
        builder.seal(Offset(offset), Epoch(0), Compression::None)
    }

    /// The offset and the partition in a batch that was read.
    fn told(batch: &RecordBatch) -> String {
        let record = batch.records().next().unwrap().unwrap();
        let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
        value.rsplit_once('/').unwrap().0.to_owned()
    }

    #[derive(Debug, Clone)]
    struct Kept {
        partition: i32,
        /// Bytes of padding of each offset's batch; none where no record is.
        batches: Vec<Option<usize>>,
    }

    fn kept() -> impl Strategy<Value = Kept> {
        let padding =
            prop_oneof![3 => (0_usize..300).prop_map(Some), 1 => Just(None), 1 => (0_usize..20_000).prop_map(Some)];
        (0..3_i32, prop::collection::vec(padding, 0..8)).prop_map(|(partition, batches)| Kept { partition, batches })
    }

    fn open(dir: &tempfile::TempDir, limits: CopyLimits) -> LocalCopies {
        LocalCopies::new(dir.path().join("copies"), limits)
    }

    fn add(copies: &LocalCopies, partition: i32, from: u64, batches: &[Option<usize>]) -> u64 {
        let to = from + batches.len() as u64;
        let there = batches.iter().enumerate();
        let batches = there.filter_map(|(at, padding)| Some(batch(partition, from + at as u64, (*padding)?))).collect();
        copies.shared.add(place(partition), Range { from: Offset(from), to: Offset(to), batches }).unwrap();
        to
    }

    fn bytes_on_disk(dir: &tempfile::TempDir) -> u64 {
        let files = std::fs::read_dir(dir.path().join("copies")).into_iter().flatten();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }

    proptest! {
        /// Each partition is kept from its beginning on, as tails are, and pieces of it again, as fetches do.
        #[test]
        fn a_copy_is_right_or_unknown_and_the_newest_are_known(
            steps in prop::collection::vec((kept(), any::<prop::sample::Index>()), 1..80),
            max_bytes in prop_oneof![Just(256_u64 << 10), Just(8 << 20)],
        ) {
            let dir = tempfile::tempdir().unwrap();
            let limits = CopyLimits { max_bytes, disk_free_min_bytes: 0 };
            let copies = open(&dir, limits);
            let mut all: HashMap<i32, Vec<Option<usize>>> = HashMap::new();
            for (Kept { partition, batches }, again) in steps {
                let known = all.entry(partition).or_default();
                add(&copies, partition, known.len() as u64, &batches);
                known.extend(&batches);
                if !known.is_empty() {
                    let from = again.index(known.len());
                    let to = known.len().min(from + 5);
                    add(&copies, partition, from as u64, &known[from..to]);
                }
                prop_assert!(bytes_on_disk(&dir) <= max_bytes);
            }
            for (partition, batches) in all {
                for (offset, padding) in batches.iter().enumerate() {
                    let expected = padding.map(|_| format!("{partition}/{offset}"));
                    match copies.read(place(partition), Offset(offset as u64), true) {
                        Copy::Read(found) => prop_assert_eq!(found.as_ref().map(told), expected),
                        Copy::OnDisk => prop_assert!(false, "a read that may wait has not"),
                        Copy::Unknown => prop_assert!(max_bytes < 8 << 20, "offset {} is unknown", offset),
                    }
                }
            }
        }
    }

    #[test]
    fn damaged_copies_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let copies = open(&dir, ROOM);
        add(&copies, 0, 0, &[Some(5_000), Some(5_000)]);
        assert!(matches!(copies.read(place(0), Offset(1), true), Copy::Read(Some(_))));
        let file = std::fs::read_dir(dir.path().join("copies")).unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[7_000] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        assert!(matches!(copies.read(place(0), Offset(1), true), Copy::Unknown));
        std::fs::write(&file, &bytes[..9_000]).unwrap();
        assert!(matches!(copies.read(place(0), Offset(1), true), Copy::Unknown));
    }

    #[test]
    fn a_full_disk_gets_no_copies() {
        let dir = tempfile::tempdir().unwrap();
        let copies = open(&dir, CopyLimits { disk_free_min_bytes: u64::MAX, ..ROOM });
        let range = Range { from: Offset(0), to: Offset(1), batches: vec![batch(0, 0, 20_000)] };
        let refused = copies.shared.add(place(0), range).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        assert!(matches!(copies.read(place(0), Offset(0), true), Copy::Unknown));
        assert_eq!(bytes_on_disk(&dir), 0);
    }

    #[test]
    fn copies_of_a_process_begin_and_end_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = dir.path().join("copies");
        std::fs::create_dir_all(&files).unwrap();
        std::fs::write(files.join("000000000007.copies"), "of a former one").unwrap();
        let copies = open(&dir, ROOM);
        copies.keep(place(0), Offset(0), Offset(1), &[batch(0, 0, 20_000)]);
        millstream_testkit::eventually("it is kept", || {
            matches!(copies.read(place(0), Offset(0), true), Copy::Read(Some(_)))
        });
        assert_eq!(std::fs::read_dir(&files).unwrap().count(), 1);
        drop(copies);
        millstream_testkit::eventually("nothing is left", || !files.exists());
    }
}
