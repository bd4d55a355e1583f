//! A log that was closed in order, read without a change to it: for copies into another engine.
//!
//! All of its records are in segments, so what is read is the same each time, until the next start. Markers, and the records of
//! transactions that were aborted or left open, are left out: the next start would void the latter.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use millstream_types::{BatchLimits, Epoch, Offset, RecordBatch, TopicPartition};

use crate::block::BlockHeader;
use crate::layout::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FileKind, Layout, segment_name};
use crate::meta::{Meta, PartitionRecord};
use crate::repair::lock;
use crate::segment::SegmentRecord;
use crate::transactions::{Aborted, AbortedIndex};
use crate::wire::WireWriter;
use crate::{CommittedPosition, Error, File, Files, Lock, Topic};

/// A log on which no server runs. Its directory is this process's own for as long as this lives.
pub struct ClosedLog {
    meta: Meta,
    layout: Layout,
    files: Arc<dyn Files>,
    _lock: Lock,
}

/// One start of a log, up to its end: the records of a log with the same numbers are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogState {
    /// The secret number that a log has from its beginning on.
    pub salt: u64,
    /// The epoch of its last start.
    pub epoch: Epoch,
}

/// The offsets that a partition has handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedPartition {
    /// Oldest readable offset; a gap may follow it.
    pub first: Offset,
    /// First offset that has not been handed out.
    pub tail: Offset,
    /// Each epoch with the end of its records, the last one included.
    pub epochs: Vec<(Epoch, Offset)>,
    /// Deletions below it may have been compacted away.
    pub horizon: Offset,
    /// Bytes of its records.
    pub size_bytes: u64,
}

impl fmt::Debug for ClosedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClosedLog({})", self.layout.dir().display())
    }
}

impl LogState {
    /// Reads the numbers of the log in `dir`, whether or not it was closed in order.
    ///
    /// # Errors
    /// [`Error::CorruptFile`] if `meta` and its copy are damaged or missing; [`Error::UnknownVersion`]; [`Error::Io`].
    pub fn of(files: &dyn Files, dir: &Path) -> Result<Self, Error> {
        let layout = Layout::new(dir);
        let meta = Meta::read(files, &layout)?.ok_or_else(|| missing(&layout))?;
        Ok(Self { salt: meta.salt, epoch: meta.epoch })
    }
}

fn missing(layout: &Layout) -> Error {
    Error::CorruptFile { path: layout.meta(), at: 0, what: "it is missing" }
}

impl ClosedLog {
    /// Opens the log in `dir`.
    ///
    /// # Errors
    /// [`Error::InUse`] if a server runs on it; [`Error::NotClosed`] if its last end was a crash; [`Error::CorruptFile`] if
    /// `meta` and its copy are damaged or missing; [`Error::UnknownVersion`]; [`Error::Io`].
    pub fn open(files: Arc<dyn Files>, dir: &Path) -> Result<Self, Error> {
        let layout = Layout::new(dir);
        let locked = lock(&*files, &layout)?;
        let meta = Meta::read(&*files, &layout)?.ok_or_else(|| missing(&layout))?;
        if !meta.clean {
            return Err(Error::NotClosed { path: dir.to_owned() });
        }
        Ok(Self { meta, layout, files, _lock: locked })
    }

    /// The numbers of the log.
    pub fn state(&self) -> LogState {
        LogState { salt: self.meta.salt, epoch: self.meta.epoch }
    }

    /// The topics.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.meta.topics.iter().map(|(topic, _)| topic)
    }

    /// The positions of all groups in topics that exist, each as it was committed, with the time of that in milliseconds since
    /// 1970-01-01T00:00:00Z.
    pub fn positions(&self) -> Vec<(String, CommittedPosition)> {
        let known = |record: &crate::meta::PositionRecord| {
            let topic = self.topics().find(|topic| topic.id == record.position.topic)?;
            let partition = TopicPartition { topic: topic.name.clone(), partition: record.partition };
            let (position, metadata, committed_ms) = (record.position, record.metadata.clone(), record.committed_ms);
            let committed_ms = committed_ms.max(0);
            Some((record.group.clone(), CommittedPosition { partition, position, metadata, committed_ms }))
        };
        self.meta.positions.iter().filter_map(known).collect()
    }

    fn record(&self, partition: &TopicPartition) -> Result<(&Topic, &PartitionRecord), Error> {
        let topic = self.meta.topics.iter().find(|(topic, _)| topic.name == partition.topic);
        let (topic, all) = topic.ok_or_else(|| Error::UnknownTopic { topic: partition.topic.clone() })?;
        let record = all.get(partition.partition.0 as usize);
        let partitions = all.len() as u32;
        let record = record.ok_or_else(|| Error::UnknownPartition { partition: partition.clone(), partitions })?;
        Ok((topic, record))
    }

    /// The offsets of a partition.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`].
    pub fn partition(&self, partition: &TopicPartition) -> Result<ClosedPartition, Error> {
        let (_, record) = self.record(partition)?;
        let entries = record.epochs.entries();
        let last = entries.last().map(|last| (last.epoch, Offset(record.tail)));
        let former = entries.iter().rev().skip(1).rev().map(|entry| (entry.epoch, Offset(entry.end)));
        let epochs = former.chain(last).collect();
        Ok(ClosedPartition {
            first: Offset(record.first),
            tail: Offset(record.tail),
            epochs,
            horizon: Offset(record.horizon),
            size_bytes: record.segments.iter().map(|segment| segment.size_bytes).sum(),
        })
    }

    /// The batches of a partition with records that readers see, in order. The first one may begin below the first offset.
    /// Ends with the first error.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`].
    pub fn batches(&self, partition: &TopicPartition) -> Result<ClosedBatches, Error> {
        let (topic, record) = self.record(partition)?;
        let dir = self.layout.partition_dir(topic.id, partition.partition.0);
        let segments = record.segments.iter().map(|segment| {
            let mut own = Vec::new();
            own.put_u128(topic.id.0);
            own.put_u32(partition.partition.0);
            own.put_u64(segment.base);
            own.put_u64(0);
            own.put_u64(segment.generation);
            (dir.join(segment_name(segment.base, segment.generation)), *segment, own)
        });
        let transactions = &record.producers.transactions;
        let open =
            transactions.open().map(|(producer, open)| Aborted { producer, first: open.first, marker: u64::MAX });
        let void = transactions.aborted().entries().iter().copied().chain(open).collect();
        let mut segments: Vec<_> = segments.collect();
        segments.reverse();
        Ok(ClosedBatches {
            partition: partition.clone(),
            first: record.first,
            files: Arc::clone(&self.files),
            void: AbortedIndex::of(void),
            segments,
            current: None,
            block: Bytes::new(),
        })
    }
}

/// The batches of a partition: see [`ClosedLog::batches`].
pub struct ClosedBatches {
    partition: TopicPartition,
    first: u64,
    files: Arc<dyn Files>,
    void: AbortedIndex,
    /// The segments to come, the next one last, each with its path and the specific part of its header.
    segments: Vec<(PathBuf, SegmentRecord, Vec<u8>)>,
    current: Option<OpenSegment>,
    /// The batches to come of the current block.
    block: Bytes,
}

struct OpenSegment {
    file: Arc<dyn File>,
    path: PathBuf,
    record: SegmentRecord,
    at: u64,
}

impl fmt::Debug for ClosedBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClosedBatches({})", self.partition)
    }
}

impl Iterator for ClosedBatches {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_visible().transpose();
        if matches!(next, Some(Err(_))) {
            (self.current, self.block) = (None, Bytes::new());
            self.segments.clear();
        }
        next
    }
}

impl ClosedBatches {
    fn next_visible(&mut self) -> Result<Option<RecordBatch>, Error> {
        while let Some(batch) = self.next_stored()? {
            let (base, end) = (batch.base_offset().0, batch.next_offset().0);
            let is_void = batch.is_transactional() && self.void.within(base, end).holds(&batch);
            if end > self.first && !batch.is_control() && batch.record_count() > 0 && !is_void {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn next_stored(&mut self) -> Result<Option<RecordBatch>, Error> {
        while self.block.is_empty() {
            match &self.current {
                Some(current) if current.at < current.record.size_bytes => self.read_block()?,
                _ => match self.segments.pop() {
                    Some((path, record, own)) => self.open(path, record, &own)?,
                    None => return Ok(None),
                },
            }
        }
        let limits = BatchLimits { batch_max_bytes: 1 << 30, ..BatchLimits::default() };
        let parsed = RecordBatch::parse(self.block.clone(), &limits);
        let batch = parsed.map_err(|_| self.damaged("a record batch cannot be read"))?;
        self.block = self.block.slice(batch.size_bytes()..);
        Ok(Some(batch))
    }

    fn open(&mut self, path: PathBuf, record: SegmentRecord, own: &[u8]) -> Result<(), Error> {
        let file = self.files.open(&path).map_err(|e| Error::io("open", &path, e))?;
        let found = FileKind::Segment.read_header(&*file, &path)?;
        if !found.starts_with(own) {
            return Err(Error::CorruptFile { path, at: 0, what: "it belongs to another partition" });
        }
        self.current = Some(OpenSegment { file, path, record, at: FILE_HEADER_BYTES as u64 });
        Ok(())
    }

    fn read_block(&mut self) -> Result<(), Error> {
        let Some(current) = &self.current else { return Ok(()) };
        let read = |length: usize, at| -> Result<Bytes, Error> {
            let mut bytes = vec![0; length];
            let read = current.file.read_at(&mut bytes, at).map_err(|e| Error::io("read", &current.path, e))?;
            bytes.truncate(read);
            Ok(bytes.into())
        };
        let header = BlockHeader::parse(&read(BLOCK_HEADER_BYTES, current.at)?, current.at);
        let header = header.filter(|header| header.entry.ends_at() <= current.record.size_bytes);
        let header = header.ok_or_else(|| self.damaged("a block header cannot be read"))?;
        let payload = read(header.entry.payload_bytes as usize, current.at + BLOCK_HEADER_BYTES as u64)?;
        if payload.len() < header.entry.payload_bytes as usize {
            return Err(self.damaged("it is shorter than was synced"));
        }
        header.check(crc32c::crc32c(&payload)).map_err(|what| self.damaged(what))?;
        self.block = payload;
        if let Some(current) = &mut self.current {
            current.at = header.entry.ends_at();
        }
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> Error {
        let (path, at, offset) = match &self.current {
            Some(current) => (current.path.clone(), current.at, current.record.base),
            None => (PathBuf::new(), 0, self.first),
        };
        Error::Corrupt { partition: self.partition.clone(), offset: Offset(offset), path, at, what }
    }
}
