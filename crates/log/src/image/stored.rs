//! Reads and checks an image that was copied elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_types::{BatchLimits, RecordBatch, TopicName};

use super::{check, segment_path, segments};
use crate::frame::FramePart;
use crate::journal::{IMAGE_SLOT, journal_file};
use crate::layout::{Layout, index_name};
use crate::meta::Meta;
use crate::repair::lost;
use crate::segment::SegmentRecord;
use crate::wire::WireWriter;
use crate::{Damage, Error, Files, index, recovery};

/// An image by its `meta`.
pub struct StoredImage {
    meta: Meta,
}

/// A segment that an image has.
#[derive(Debug, Clone)]
pub struct StoredSegment {
    /// Its path below the log's directory.
    pub path: PathBuf,
    /// The bytes that belong to the image; the file may have more.
    pub size_bytes: u64,
    /// The index of its topic in `meta`.
    topic: usize,
    partition: u32,
    record: SegmentRecord,
}

impl std::fmt::Debug for StoredImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoredImage({} topics)", self.meta.topics.len())
    }
}

impl StoredImage {
    /// Reads the copy of `meta` at `path`.
    ///
    /// # Errors
    /// [`Error::CorruptFile`] if it is damaged or missing; [`Error::UnknownVersion`]; [`Error::Io`].
    pub fn read(files: &dyn Files, path: &Path) -> Result<Self, Error> {
        let missing = || Error::CorruptFile { path: path.to_owned(), at: 0, what: "it is missing" };
        Meta::read_file(files, path)?.map(|meta| Self { meta }).ok_or_else(missing)
    }

    /// The path of the copy of `meta` below the log's directory.
    pub fn meta_path() -> PathBuf {
        Layout::new(Path::new("")).meta()
    }

    /// The path of the journal file below the log's directory.
    pub fn journal_path() -> PathBuf {
        Layout::new(Path::new("")).journal(IMAGE_SLOT)
    }

    /// The secret number of the log, see [`crate::LogImage::salt`].
    pub fn salt(&self) -> u64 {
        self.meta.salt
    }

    /// The topics with their partitions and the sum of their offsets from the first to the last in segments.
    pub fn topics(&self) -> impl Iterator<Item = (&TopicName, usize, u64)> {
        self.meta.topics.iter().map(|(topic, partitions)| {
            let offsets = partitions.iter().map(|partition| partition.tail.saturating_sub(partition.first)).sum();
            (&topic.name, partitions.len(), offsets)
        })
    }

    /// The segments of all topics.
    pub fn segments(&self) -> impl Iterator<Item = StoredSegment> {
        let layout = Layout::new(Path::new(""));
        segments(&self.meta).map(move |(topic, partition, record)| StoredSegment {
            path: segment_path(&layout, self.meta.topics[topic].0.id, partition, record),
            size_bytes: record.size_bytes,
            topic,
            partition,
            record: *record,
        })
    }

    /// Reads the copy of a segment at `path` and checks it: its blocks, and the batches in them. Returns the first
    /// damage; what lies before it is intact.
    ///
    /// # Errors
    /// [`Error::UnknownVersion`]; [`Error::Io`].
    pub fn check_segment(
        &self,
        files: &dyn Files,
        segment: &StoredSegment,
        path: &Path,
    ) -> Result<Option<Damage>, Error> {
        match self.blocks(files, segment, path)? {
            Ok(_) => Ok(None),
            Err(check::SegmentDamage { at, what, first, end }) => {
                let topic = &self.meta.topics[segment.topic].0;
                let loses = lost(topic, segment.partition as usize, &(first..end));
                Ok(Some(Damage { path: path.to_owned(), at, what, loses }))
            }
        }
    }

    /// Writes the index of a segment at `path` beside it, if it has one; `false` if the segment is damaged.
    ///
    /// # Errors
    /// Those of [`StoredImage::check_segment`].
    pub fn write_index(&self, files: &dyn Files, segment: &StoredSegment, path: &Path) -> Result<bool, Error> {
        let Ok(blocks) = self.blocks(files, segment, path)? else { return Ok(false) };
        if segment.record.closed {
            let name = index_name(segment.record.base, segment.record.generation);
            index::write(files, &path.with_file_name(name), &self.place(segment), &blocks)?;
        }
        Ok(true)
    }

    /// Reads the journal file at `path` and checks the batches in it. Returns the number of frames.
    ///
    /// # Errors
    /// [`Error::CorruptFile`] if it is damaged; [`Error::UnknownVersion`]; [`Error::Io`].
    pub fn check_journal(&self, files: &dyn Files, path: &Path) -> Result<usize, Error> {
        let journal = [Arc::new(journal_file(files, path.to_owned(), IMAGE_SLOT)?)];
        let frames = recovery::read_journal(&journal, &self.meta)?;
        let limits = BatchLimits { batch_max_bytes: 1 << 30, ..BatchLimits::default() };
        for part in frames.iter().flat_map(|frame| &frame.parts) {
            if let FramePart::Batch { batch, .. } = part
                && RecordBatch::parse(batch.clone(), &limits).is_err()
            {
                return Err(Error::CorruptFile {
                    path: path.to_owned(),
                    at: 0,
                    what: "it holds a batch that cannot be read",
                });
            }
        }
        Ok(frames.len())
    }

    fn blocks(
        &self,
        files: &dyn Files,
        segment: &StoredSegment,
        path: &Path,
    ) -> Result<Result<Vec<index::BlockEntry>, check::SegmentDamage>, Error> {
        let StoredSegment { record, .. } = segment;
        let file = match files.open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let (first, end) = (record.base, record.end);
                return Ok(Err(check::SegmentDamage { at: 0, what: "it is missing", first, end }));
            }
            Err(e) => return Err(Error::io("open", path, e)),
        };
        let mut own = self.place(segment);
        own.put_u64(0);
        own.put_u64(record.generation);
        check::blocks(&*file, path, &own, record)
    }

    /// The part of the file headers that names topic, partition and base offset.
    fn place(&self, segment: &StoredSegment) -> Vec<u8> {
        let mut own = Vec::new();
        own.put_u128(self.meta.topics[segment.topic].0.id.0);
        own.put_u32(segment.partition);
        own.put_u64(segment.record.base);
        own
    }
}
