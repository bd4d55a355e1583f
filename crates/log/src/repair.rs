//! Checks a log's directory while no server runs on it, and removes damaged parts.
//!
//! Everything readable stays: whole blocks of segments, journal frames up to the first damaged one, `meta` or its
//! copy. Damaged files are not deleted: they move to `set-aside` in the log's directory. A start uses the same parts
//! for topics that can be rebuilt (`derived.rs`).
//!
//! A repair may be interrupted and repeated at any point: it writes new segments durably, then the journal, then
//! `meta`, which names the segments, and then sets the old files aside.

mod blocks;
mod frames;

use std::fmt;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use crate::layout::{FILE_HEADER_BYTES, FileKind, Layout, index_name, segment_name};
use crate::meta::{Meta, PartitionRecord};
use crate::segment::SegmentRecord;
use crate::wire::WireWriter;
use crate::{Error, Files, Lock, Topic};

/// A damaged part of a log's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Path of the damaged file.
    pub path: PathBuf,
    /// Position of the damage in the file.
    pub at: u64,
    /// A description of the damage.
    pub what: &'static str,
    /// A description of the loss in a repair.
    pub loses: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is damaged at byte {}: {}; a repair loses {}",
            self.path.display(),
            self.at,
            self.what,
            self.loses
        )
    }
}

/// Checks the log in `dir` and changes nothing.
///
/// # Errors
/// [`Error::InUse`] if a server runs on it; [`Error::CorruptFile`] if `meta` and its
/// copy are damaged; [`Error::UnknownVersion`]; [`Error::Io`].
pub fn check(files: &dyn Files, dir: &Path) -> Result<Vec<Damage>, Error> {
    let layout = Layout::new(dir);
    let _lock = lock(files, &layout)?;
    Ok(RepairPlan::make(files, &layout)?.damages)
}

/// Removes the damaged parts of the log in `dir` and returns them. A later start reads the rest.
///
/// # Errors
/// The errors of [`check`], for the same reasons.
pub fn repair(files: &dyn Files, dir: &Path) -> Result<Vec<Damage>, Error> {
    let layout = Layout::new(dir);
    let _lock = lock(files, &layout)?;
    let plan = RepairPlan::make(files, &layout)?;
    if plan.damages.is_empty() {
        return Ok(Vec::new());
    }
    plan.apply(files, &layout)
}

/// Checks the segments of a topic; returns the damages with their partitions.
pub(crate) fn damages_of(
    files: &dyn Files,
    layout: &Layout,
    topic: &Topic,
    partitions: &[PartitionRecord],
) -> Result<Vec<(u32, Damage)>, Error> {
    let mut found = Vec::new();
    for (number, record) in partitions.iter().enumerate() {
        let mut damages = Vec::new();
        look(files, layout, topic, number, record, &mut damages)?;
        found.extend(damages.into_iter().map(|damage| (number as u32, damage)));
    }
    Ok(found)
}

/// Sets the segments of a topic aside.
pub(crate) fn set_topic_aside(
    files: &dyn Files,
    layout: &Layout,
    topic: &Topic,
    partitions: &[PartitionRecord],
) -> Result<(), Error> {
    for (number, record) in (0..).zip(partitions) {
        let dir = layout.partition_dir(topic.id, number);
        for segment in &record.segments {
            set_aside(files, layout, &dir.join(segment_name(segment.base, segment.generation)))?;
            set_aside(files, layout, &dir.join(index_name(segment.base, segment.generation)))?;
        }
    }
    Ok(())
}

/// The place where [`set_aside`] keeps a file.
pub(crate) fn place_aside(layout: &Layout, path: &Path) -> PathBuf {
    let name = path.strip_prefix(layout.dir()).unwrap_or(path).to_string_lossy().replace('/', "-");
    layout.dir().join("set-aside").join(name)
}

/// Takes the directory, as a start does.
pub(crate) fn lock(files: &dyn Files, layout: &Layout) -> Result<Lock, Error> {
    let path = layout.lock();
    match files.lock(&path).map_err(|e| Error::io("lock", &path, e))? {
        Lock::Taken { by } => Err(Error::InUse { path: layout.dir().to_owned(), pid: by }),
        held => Ok(held),
    }
}

struct Rewrite {
    topic: usize,
    partition: usize,
    segment: usize,
    good: Vec<std::ops::Range<usize>>,
    end: Option<u64>,
}

/// The damage, and the steps to repair it.
struct RepairPlan {
    /// `None` for a directory that was never used.
    meta: Option<Meta>,
    rewrites: Vec<Rewrite>,
    cut: frames::Cut,
    damages: Vec<Damage>,
}

impl RepairPlan {
    fn make(files: &dyn Files, layout: &Layout) -> Result<Self, Error> {
        let mut damages = Vec::new();
        let meta = Meta::read(files, layout)?;
        let mut plan = Self { meta, rewrites: Vec::new(), cut: frames::Cut::default(), damages: Vec::new() };
        let Some(meta) = &plan.meta else { return Ok(plan) };
        for path in [layout.meta(), layout.meta_copy()] {
            if let Err(Error::CorruptFile { path, at, what }) = Meta::read_file(files, &path) {
                damages.push(Damage { path, at, what, loses: "nothing: the other copy is intact".to_owned() });
            }
        }
        plan.cut = frames::look(files, layout, meta, &mut damages)?;
        for (number, (topic, partitions)) in meta.topics.iter().enumerate() {
            for (partition, record) in partitions.iter().enumerate() {
                let found = look(files, layout, topic, partition, record, &mut damages)?;
                plan.rewrites.extend(found.into_iter().map(|found| Rewrite { topic: number, partition, ..found }));
            }
        }
        plan.damages = damages;
        Ok(plan)
    }

    fn apply(self, files: &dyn Files, layout: &Layout) -> Result<Vec<Damage>, Error> {
        let Some(mut meta) = self.meta else { return Ok(self.damages) };
        let aside = |path: &Path| set_aside(files, layout, path);
        let mut replaced = Vec::new();
        // From the back: removing a segment moves those behind it.
        for rewrite in self.rewrites.iter().rev() {
            let (topic, partitions) = &mut meta.topics[rewrite.topic];
            let (record, dir) =
                (&mut partitions[rewrite.partition], layout.partition_dir(topic.id, rewrite.partition as u32));
            let old = record.segments[rewrite.segment];
            // Do not hand out offsets again.
            record.tail = record.tail.max(old.end);
            match write_anew(files, &dir, topic, rewrite, &old)? {
                Some(new) => record.segments[rewrite.segment] = new,
                None => drop(record.segments.remove(rewrite.segment)),
            }
            replaced.push(dir.join(segment_name(old.base, old.generation)));
            replaced.push(dir.join(index_name(old.base, old.generation)));
        }
        frames::apply(files, &self.cut, aside)?;
        meta.write(files, layout)?;
        replaced.iter().try_for_each(|path| aside(path))?;
        Ok(self.damages)
    }
}

/// Checks the segments of a partition.
fn look(
    files: &dyn Files,
    layout: &Layout,
    topic: &Topic,
    partition: usize,
    record: &PartitionRecord,
    damages: &mut Vec<Damage>,
) -> Result<Vec<Rewrite>, Error> {
    let mut rewrites = Vec::new();
    for (segment, of) in record.segments.iter().enumerate() {
        let path = layout.partition_dir(topic.id, partition as u32).join(segment_name(of.base, of.generation));
        let bytes = read(files, &path)?;
        let mut blocks = blocks::look(bytes.as_deref().unwrap_or_default(), of);
        let header = match &bytes {
            Some(_) => check_header(files, &path, &own(topic, partition, of))?,
            None => Some("it is missing"),
        };
        if let Some(what) = header {
            blocks.holes.insert(0, blocks::DamagedRange { at: 0, what, offsets: 0..0 });
        }
        if blocks.holes.is_empty() {
            continue;
        }
        damages.extend(blocks.holes.iter().map(|hole| Damage {
            path: path.clone(),
            at: hole.at,
            what: hole.what,
            loses: lost(topic, partition, &hole.offsets),
        }));
        rewrites.push(Rewrite { topic: 0, partition, segment, good: blocks.good, end: blocks.end });
    }
    Ok(rewrites)
}

pub(crate) fn lost(topic: &Topic, partition: usize, offsets: &std::ops::Range<u64>) -> String {
    match offsets.end.saturating_sub(offsets.start) {
        0 => "nothing by itself".to_owned(),
        count => format!(
            "the records at offsets {} to {} of topic '{}', partition {partition} (at most {count})",
            offsets.start,
            offsets.end - 1,
            topic.name,
        ),
    }
}

/// Reads the whole file; `None` if it does not exist.
fn read(files: &dyn Files, path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let file = match files.open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("open", path, e)),
    };
    let size = file.size().map_err(|e| Error::io("read the size of", path, e))?;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    let read = file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// The kind-specific part of a segment's header.
fn own(topic: &Topic, partition: usize, segment: &SegmentRecord) -> Vec<u8> {
    let mut own = Vec::new();
    own.put_u128(topic.id.0);
    own.put_u32(partition as u32);
    own.put_u64(segment.base);
    own
}

/// Checks a segment's header; returns a description of the damage.
fn check_header(files: &dyn Files, path: &Path, own: &[u8]) -> Result<Option<&'static str>, Error> {
    let file = files.open(path).map_err(|e| Error::io("open", path, e))?;
    match FileKind::Segment.read_header(&*file, path) {
        Ok(found) if found.starts_with(own) => Ok(None),
        Ok(_) => Ok(Some("it belongs to another partition")),
        Err(Error::CorruptFile { what, .. }) => Ok(Some(what)),
        Err(other) => Err(other),
    }
}

/// Writes the intact blocks as the next generation of the segment; `None` if there are none.
fn write_anew(
    files: &dyn Files,
    dir: &Path,
    topic: &Topic,
    rewrite: &Rewrite,
    old: &SegmentRecord,
) -> Result<Option<SegmentRecord>, Error> {
    let Some(end) = rewrite.end else { return Ok(None) };
    let generation = old.generation + 1;
    let bytes = read(files, &dir.join(segment_name(old.base, old.generation)))?.unwrap_or_default();
    let mut own = own(topic, rewrite.partition, old);
    own.put_u64(0);
    own.put_u64(generation);
    let header = FileKind::Segment.header(&own);
    let mut parts = vec![IoSlice::new(&header)];
    parts.extend(rewrite.good.iter().map(|block| IoSlice::new(&bytes[block.clone()])));
    let path = dir.join(segment_name(old.base, generation));
    let file = files.create(&path).map_err(|e| Error::io("create", &path, e))?;
    crate::files::write_in_pieces(&*file, &parts, 0).map_err(|e| Error::io("write", &path, e))?;
    file.sync().map_err(|e| Error::io("sync", &path, e))?;
    files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    let size_bytes = FILE_HEADER_BYTES + rewrite.good.iter().map(std::ops::Range::len).sum::<usize>();
    Ok(Some(SegmentRecord { generation, end, size_bytes: size_bytes as u64, ..*old }))
}

/// Copies an existing file to `set-aside` and removes it.
fn set_aside(files: &dyn Files, layout: &Layout, path: &Path) -> Result<(), Error> {
    let Some(bytes) = read(files, path)? else { return Ok(()) };
    let copy = place_aside(layout, path);
    let dir = copy.parent().unwrap_or(layout.dir());
    files.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    let file = files.create(&copy).map_err(|e| Error::io("create", &copy, e))?;
    file.write_at(&[IoSlice::new(&bytes)], 0).map_err(|e| Error::io("write", &copy, e))?;
    file.sync().map_err(|e| Error::io("sync", &copy, e))?;
    files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    files.remove(path).map_err(|e| Error::io("remove", path, e))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millstream_types::{ManualClock, Offset, Record, TenantId, TopicName, TopicPartition};

    use super::*;
    use crate::{AckLevel, Embedded, Log as _, LogConfig, Partition, SystemFiles, TopicConfig, UpTo, reply};

    fn open(dir: &Path) -> Arc<Embedded> {
        let (config, clock) =
            (LogConfig { dir: dir.to_owned(), ..LogConfig::default() }, Arc::new(ManualClock::default()));
        Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap()
    }

    /// The offsets of all records.
    fn offsets(partition: &dyn Partition) -> Vec<u64> {
        let batches = partition.read(Offset::ZERO, usize::MAX, UpTo::Stable).unwrap();
        batches.iter().flat_map(|batch| batch.base_offset().0..=batch.last_offset().0).collect()
    }

    /// A flush that runs beside appends leaves batches in a segment that the journal repeats.
    #[test]
    fn records_that_a_repair_cuts_from_the_last_segment_come_back_from_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let (log_dir, layout) = (dir.path().to_owned(), Layout::new(dir.path()));
        let meta = || Meta::read(&SystemFiles, &layout).unwrap().unwrap();
        let log = open(&log_dir);
        let id = TopicPartition::new(TopicName::user("orders", &TenantId::default()).unwrap(), 0);
        log.create_topic(&id.topic, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
        let partition = log.partition(&id).unwrap();
        let append = |value: &str| {
            let (done, answer) = reply();
            let record = Record { value: Some(value.as_bytes()), ..Record::default() };
            partition.append(&[record], AckLevel::Synced, done).unwrap();
            answer.wait().unwrap().first.0
        };
        let first = append("flushed before");
        log.flush().unwrap();
        let before = meta().journal;
        let appended: Vec<u64> = (0..3).map(|number| append(&number.to_string())).collect();
        log.flush().unwrap();
        let mut crashed = meta();
        log.close().unwrap();
        assert!(before != crashed.journal && !crashed.clean);
        crashed.journal = before;
        crashed.write(&SystemFiles, &layout).unwrap();
        assert_eq!(check(&SystemFiles, &log_dir).unwrap(), []);

        let (topic, partitions) = &crashed.topics[0];
        let segment = partitions[0].segments[0];
        let path = layout.partition_dir(topic.id, 0).join(segment_name(segment.base, segment.generation));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[segment.size_bytes as usize - 1] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let told = repair(&SystemFiles, &log_dir).unwrap();
        assert_eq!(told.iter().map(|damage| &damage.path).collect::<Vec<_>>(), [&path]);
        let log = open(&log_dir);
        assert_eq!(offsets(&*log.partition(&id).unwrap()), [&[first], &appended[..]].concat());
        log.close().unwrap();
    }
}
