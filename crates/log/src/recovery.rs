//! Recovers a directory from `meta` and the journal.
//!
//! The journal is read up to the first missing or damaged frame. The last crash cut it there, unless a later frame
//! says that the missing one had been synced: then stored bytes have changed and the log refuses to open.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use millstream_types::{Epoch, Offset, RecordBatch, TopicId};

use crate::catalog::{CatalogChange, TopicCatalog, TopicEntry, new_topic};
use crate::frame::{FRAME_ALIGN, FRAME_HEADER_BYTES, Frame, FramePart, declared_length};
use crate::journal::{FIRST_FRAME_AT, JournalFile};
use crate::meta::{Meta, UNKNOWN_MS};
use crate::partition::PartitionContext;
use crate::shared::EngineShared;
use crate::topic::offset_of_time;
use crate::{Error, Files, Topic};

const LOOK_AHEAD_BYTES: usize = 256 << 10;

/// Reads the journal frames after `meta`.
///
/// # Errors
/// [`Error::CorruptFile`] if a synced frame is damaged; [`Error::Io`].
pub(crate) fn read_journal(files: &[Arc<JournalFile>], meta: &Meta) -> Result<Vec<Frame>, Error> {
    match read_up_to_damage(files, meta)? {
        (frames, None) => Ok(frames),
        (_, Some(damage)) => Err(damage),
    }
}

/// Like [`read_journal`], but returns the damage beside the frames before it.
pub(crate) fn read_up_to_damage(files: &[Arc<JournalFile>], meta: &Meta) -> Result<(Vec<Frame>, Option<Error>), Error> {
    let scan = JournalScan { files, salt: meta.salt, epoch: meta.epoch };
    let mut frames = Vec::new();
    let (expected, cursor) = scan.follow(meta, |_, _, frame| {
        frames.push(frame);
        Ok(())
    })?;
    match scan.check_nothing_durable_is_missing(expected, cursor) {
        Err(damage @ Error::CorruptFile { .. }) => Ok((frames, Some(damage))),
        checked => checked.map(|()| (frames, None)),
    }
}

/// Copies the frames after `meta` as they lie, padding included, while the appender goes on: up to the first frame that
/// is not complete. Returns the sequence of the last one, too.
pub(crate) fn copy_frames(files: &[Arc<JournalFile>], meta: &Meta) -> Result<(Vec<u8>, u64), Error> {
    let scan = JournalScan { files, salt: meta.salt, epoch: meta.epoch };
    let mut copied = Vec::new();
    let (next, _) = scan.follow(meta, |file, place, _| {
        let start = copied.len();
        copied.resize(start + (place.end - place.start) as usize, 0);
        read(file, &mut copied[start..], place.start).map(drop)
    })?;
    Ok((copied, next - 1))
}

/// Finds the frames of the last start after `sequence`, in any file, with their positions.
pub(crate) fn frames_behind(
    files: &[Arc<JournalFile>],
    meta: &Meta,
    sequence: u64,
) -> Result<Vec<(Arc<JournalFile>, u64, Frame)>, Error> {
    let scan = JournalScan { files, salt: meta.salt, epoch: meta.epoch };
    let mut behind = Vec::new();
    for file in files {
        for at in frame_starts(file)? {
            match scan.frame(file, at)? {
                Some((frame, _)) if frame.stamp.sequence > sequence => behind.push((Arc::clone(file), at, frame)),
                _ => {}
            }
        }
    }
    Ok(behind)
}

struct JournalScan<'a> {
    files: &'a [Arc<JournalFile>],
    salt: u64,
    epoch: Epoch,
}

/// A file of the journal and the position of the next frame in it.
type JournalCursor<'a> = Option<(&'a Arc<JournalFile>, u64)>;

impl<'a> JournalScan<'a> {
    /// Passes on each frame after `meta` with its file and place, up to the first that is missing or damaged. Returns
    /// that one's sequence, and the position after the last frame.
    fn follow(
        &self,
        meta: &Meta,
        mut take: impl FnMut(&JournalFile, Range<u64>, Frame) -> Result<(), Error>,
    ) -> Result<(u64, JournalCursor<'a>), Error> {
        let begins = self.first_frames()?;
        let mut expected = meta.journal.sequence + 1;
        let mut cursor =
            self.files.iter().find(|file| file.slot == meta.journal.slot).map(|file| (file, meta.journal.at));
        loop {
            if let Some((file, at)) = cursor
                && let Some((frame, end)) = self.frame(file, at)?
                && frame.stamp.sequence == expected
            {
                take(file, at..end, frame)?;
                expected += 1;
                cursor = Some((file, end));
                continue;
            }
            // The appender continues in another file when a frame does not fit.
            match begins.iter().find(|(sequence, _)| *sequence == expected) {
                Some(&(_, file)) if cursor.is_none_or(|(last, at)| last.slot != file.slot || at != FIRST_FRAME_AT) => {
                    cursor = Some((file, FIRST_FRAME_AT));
                }
                _ => return Ok((expected, cursor)),
            }
        }
    }

    /// The sequence of the first frame of each file.
    fn first_frames(&self) -> Result<Vec<(u64, &'a Arc<JournalFile>)>, Error> {
        let mut begins = Vec::new();
        for file in self.files {
            if let Some((frame, _)) = self.frame(file, FIRST_FRAME_AT)? {
                begins.push((frame.stamp.sequence, file));
            }
        }
        Ok(begins)
    }

    /// The frame of the last start at `at`, and the position of the next one.
    fn frame(&self, file: &JournalFile, at: u64) -> Result<Option<(Frame, u64)>, Error> {
        let mut start = [0; FRAME_HEADER_BYTES];
        let left = file.size_bytes.saturating_sub(at);
        if left < FRAME_HEADER_BYTES as u64 || read(file, &mut start, at)? < start.len() {
            return Ok(None);
        }
        let Some(length) = declared_length(&start, left) else { return Ok(None) };
        let mut bytes = BytesMut::zeroed(length);
        if read(file, &mut bytes, at)? < length {
            return Ok(None);
        }
        let frame = Frame::parse(&bytes.freeze(), self.salt).filter(|frame| frame.stamp.epoch == self.epoch);
        Ok(frame.map(|frame| (frame, at + (length as u64).next_multiple_of(FRAME_ALIGN))))
    }

    fn check_nothing_durable_is_missing(&self, expected: u64, cursor: JournalCursor<'_>) -> Result<(), Error> {
        let mut damaged = None;
        for file in self.files {
            let begins_well = self.frame(file, FIRST_FRAME_AT)?.is_some();
            for at in frame_starts(file)? {
                let Some((frame, _)) = self.frame(file, at)? else { continue };
                if frame.stamp.sequence > expected && frame.stamp.durable >= expected {
                    let here = match cursor {
                        // Frames are contiguous: the damaged frame is the first one of this file.
                        Some((cut, _)) if cut.slot != file.slot && !begins_well => (&file.path, FIRST_FRAME_AT),
                        Some((cut, at)) => (&cut.path, at),
                        None => (&file.path, at),
                    };
                    if damaged.is_none() || !begins_well {
                        damaged = Some(here);
                    }
                    break;
                }
            }
        }
        let Some((path, at)) = damaged else { return Ok(()) };
        let what = "a synced frame cannot be read";
        tracing::error!(file = %path.display(), at, sequence = expected, "{what}");
        Err(Error::CorruptFile { path: path.clone(), at, what })
    }
}

/// Positions in the file that look like the beginning of a frame.
fn frame_starts(file: &JournalFile) -> Result<Vec<u64>, Error> {
    let mut found = Vec::new();
    let mut chunk = vec![0; LOOK_AHEAD_BYTES];
    let mut at = FIRST_FRAME_AT;
    while at < file.size_bytes {
        let filled = read(file, &mut chunk, at)?;
        for (place, start) in (at..).step_by(FRAME_ALIGN as usize).zip(chunk[..filled].chunks(FRAME_ALIGN as usize)) {
            if declared_length(start, file.size_bytes - place).is_some() {
                found.push(place);
            }
        }
        at += LOOK_AHEAD_BYTES as u64;
    }
    Ok(found)
}

fn read(file: &JournalFile, buf: &mut [u8], at: u64) -> Result<usize, Error> {
    file.file.read_at(buf, at).map_err(|e| Error::io("read", &file.path, e))
}

/// Builds the catalog from `meta` and the frames, and begins this start's epoch in every partition.
pub(crate) fn restore(
    context: &PartitionContext,
    catalog: &TopicCatalog,
    meta: Meta,
    frames: Vec<Frame>,
) -> Result<(), Error> {
    let shared = &context.shared;
    let skip = |is_memory| match (meta.clean, is_memory) {
        (true, _) => 0,
        (false, true) => crate::partition::MEMORY_MAX_RECORDS,
        (false, false) => crate::partition::UNSYNCED_MAX_RECORDS,
    };
    for (topic, partitions) in meta.topics {
        let topic = TopicEntry::new(context, topic, partitions);
        catalog.apply(shared, CatalogChange::Created(topic));
    }
    for mut record in meta.positions {
        if record.committed_ms == UNKNOWN_MS {
            record.committed_ms = shared.wall.now_ms();
        }
        catalog.commit(&record);
        catalog.apply(shared, CatalogChange::Committed(record));
    }
    let mut replay = JournalReplay { context, shared, catalog, orphans: BTreeSet::new() };
    for frame in frames {
        replay.frame(frame)?;
    }
    if !replay.orphans.is_empty() {
        let path = shared.layout.journal_dir();
        return Err(Error::CorruptFile { path, at: 0, what: "it holds batches of an unknown topic" });
    }
    for topic in catalog.topics() {
        let skip = skip(topic.state.is_memory);
        let has_versions = skip > 0 && topic.state.current().config.has_versions();
        let least_start = if has_versions { offset_of_time(shared.wall.now_ms()) } else { 0 };
        for partition in &topic.partitions {
            // After the replay: if the journal deletes the topic, its files may be gone already.
            let active = partition.lock().segments.last().filter(|last| !last.is_closed()).cloned();
            active.map_or(Ok(()), |active| active.cut_to_size())?;
            let end = partition.lock().next;
            partition.begin(skip.max(least_start.saturating_sub(end)));
        }
    }
    Ok(())
}

struct JournalReplay<'a> {
    context: &'a PartitionContext,
    shared: &'a EngineShared,
    catalog: &'a TopicCatalog,
    /// Unknown topics that have batches: their deletion must follow.
    orphans: BTreeSet<TopicId>,
}

impl JournalReplay<'_> {
    fn frame(&mut self, frame: Frame) -> Result<(), Error> {
        let stamp = frame.stamp;
        for part in frame.parts {
            match part {
                FramePart::Batch { topic, partition, batch } => {
                    self.batch(topic, partition.0, batch, stamp.written_ms)?;
                }
                FramePart::Created(topic) if self.catalog.topic_by_id(topic.id).is_some() => {}
                FramePart::Created(topic) => {
                    let topic = new_topic(self.context, topic, stamp.epoch, 0);
                    self.catalog.apply(self.shared, CatalogChange::Created(topic));
                }
                FramePart::Altered(topic) => self.alter(topic, stamp.epoch),
                FramePart::Deleted(topic) => {
                    self.orphans.remove(&topic);
                    self.catalog.apply(self.shared, CatalogChange::Deleted(topic));
                }
                FramePart::Committed(mut record) => {
                    if record.committed_ms == UNKNOWN_MS {
                        record.committed_ms = stamp.written_ms;
                    }
                    self.catalog.commit(&record);
                    self.catalog.apply(self.shared, CatalogChange::Committed(record));
                }
                FramePart::Forgotten { group, topic, partition } => {
                    self.catalog.forget(&group, topic, partition);
                    self.catalog.apply(self.shared, CatalogChange::Forgotten { group, topic, partition });
                }
                FramePart::Trimmed { topic, partition, first } => {
                    self.catalog.apply(self.shared, CatalogChange::Trimmed { topic, partition, first });
                }
            }
        }
        Ok(())
    }

    /// Applies a changed configuration; added partitions begin under the frame's epoch.
    fn alter(&self, topic: Topic, epoch: Epoch) {
        let (known, total) = (self.catalog.topic_by_id(topic.id), topic.config.partitions);
        let effect = match known.filter(|known| (known.partitions.len() as u32) < total) {
            Some(known) => CatalogChange::Grown(known.grown(self.context, total, epoch), topic),
            None => CatalogChange::Altered(topic),
        };
        self.catalog.apply(self.shared, effect);
    }

    fn batch(&mut self, topic: TopicId, partition: u32, bytes: Bytes, appended_ms: i64) -> Result<(), Error> {
        let known = self.catalog.topic_by_id(topic);
        let Some(known) = known.and_then(|topic| topic.partitions.get(partition as usize).cloned()) else {
            self.orphans.insert(topic);
            return Ok(());
        };
        let path = self.shared.layout.journal_dir();
        let corrupt = |offset, what| {
            Err(Error::Corrupt { partition: known.id.clone(), offset: Offset(offset), path: path.clone(), at: 0, what })
        };
        match RecordBatch::parse(bytes, &self.shared.limits) {
            Ok(batch) if known.replay(batch.clone(), appended_ms) => Ok(()),
            Ok(batch) => corrupt(batch.base_offset().0, "the journal holds a batch that lies below the one before it"),
            Err(_) => corrupt(known.lock().next, "the journal holds a batch that cannot be read"),
        }
    }
}

/// Removes files that `meta` does not name: segments and topics that a crash left half created or half removed.
pub(crate) fn remove_strays(shared: &EngineShared, catalog: &TopicCatalog) -> Result<(), Error> {
    let files = &*shared.files;
    let topics_dir = shared.layout.topics_dir();
    let known = catalog.topics();
    for name in list(files, &topics_dir)? {
        let Some(topic) = known.iter().find(|topic| topic.state.id.to_string() == name) else {
            let dir = topics_dir.join(&name);
            files.remove_dir_all(&dir).map_err(|e| Error::io("remove", &dir, e))?;
            continue;
        };
        for number in list(files, &topics_dir.join(&name))? {
            let partition = number.parse().ok().and_then(|number: usize| topic.partitions.get(number));
            let Some(partition) = partition else { continue };
            let segments = partition.lock().segments.clone();
            let dir = shared.layout.partition_dir(topic.state.id, partition.id.partition.0);
            for name in list(files, &dir)? {
                let path: PathBuf = dir.join(&name);
                let is_known = segments.iter().any(|segment| segment.path() == path || segment.index_path() == path);
                if !is_known {
                    files.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
                }
            }
        }
    }
    Ok(())
}

fn list(files: &dyn Files, dir: &Path) -> Result<Vec<String>, Error> {
    files.list(dir).map_err(|e| Error::io("list", dir, e))
}
