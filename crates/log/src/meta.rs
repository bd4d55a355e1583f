//! The `meta` file: the contents of the directory when the journal was last brought to the segments.
//!
//! For the header see `layout.rs`. The body holds: record version u8, log salt u64, epoch u32, clean u8, last
//! sequence u64, journal slot u64 and position u64 after it; the topics, each with its partitions and their epochs,
//! segments, idempotent producers (from record version 2 on) and transactions (from 4 on); the positions.
//!
//! There are two files, `meta` and `meta.copy`, written one after the other. No file that either names is removed
//! before both are durable. A start uses the copy if `meta` is damaged.
//!
//! Every list begins with its count (u32). The journal frames after `sequence` are applied on top.

use std::io::IoSlice;
use std::path::Path;

use millstream_types::{Epoch, Offset, PartitionId, Position, TopicId};

use crate::epochs::{EpochEntry, Epochs};
use crate::layout::{FILE_HEADER_BYTES, FileKind, Layout};
use crate::producers::{BATCHES_KEPT, ProducerState, Producers, TakenBatch};
use crate::segment::SegmentRecord;
use crate::topic_record::{TOPIC_VERSION, put_topic, topic};
use crate::transactions::{Aborted, OpenedTransaction, Transactions};
use crate::wire::{WireReader, WireWriter};
use crate::{Appended, Error, Files, Topic};

/// Version 2 adds the metadata and commit time of positions, and the producers of partitions. Version 3 adds the
/// state of compaction and the retention of tombstones, version 4 transactions, version 5 the compaction lags and
/// the append time of topics, version 6 their compaction by live bytes and the dates of segments.
const RECORD_VERSION: u8 = 6;
const OLDEST_VERSION: u8 = 1;
/// Commit time of a position from version 1, which has none.
pub(crate) const UNKNOWN_MS: i64 = i64::MIN;

/// A position in the journal, after the frame `sequence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalPlace {
    pub(crate) sequence: u64,
    /// The file; 0 if the next frame begins a new file.
    pub(crate) slot: u64,
    /// Position of the next frame in the file.
    pub(crate) at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PositionRecord {
    pub(crate) group: String,
    pub(crate) partition: PartitionId,
    pub(crate) position: Position,
    pub(crate) metadata: String,
    pub(crate) committed_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionRecord {
    pub(crate) first: u64,
    /// First offset without a segment, or the next offset if the log was closed cleanly.
    pub(crate) tail: u64,
    pub(crate) epochs: Epochs,
    pub(crate) segments: Vec<SegmentRecord>,
    /// The producers as of the last record in the segments.
    pub(crate) producers: Producers,
    /// Each key has one record below it.
    pub(crate) clean_to: u64,
    /// Tombstones below it may be gone.
    pub(crate) horizon: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) salt: u64,
    pub(crate) epoch: Epoch,
    pub(crate) clean: bool,
    pub(crate) journal: JournalPlace,
    pub(crate) topics: Vec<(Topic, Vec<PartitionRecord>)>,
    pub(crate) positions: Vec<PositionRecord>,
}

impl Meta {
    /// Replaces `meta` and its copy durably.
    pub(crate) fn write(&self, files: &dyn Files, layout: &Layout) -> Result<(), Error> {
        let bytes = self.file_bytes();
        let path = layout.new_meta();
        for place in [layout.meta(), layout.meta_copy()] {
            let file = files.create(&path).map_err(|e| Error::io("create", &path, e))?;
            file.write_at(&[IoSlice::new(&bytes)], 0).map_err(|e| Error::io("write", &path, e))?;
            file.sync().map_err(|e| Error::io("sync", &path, e))?;
            files.rename(&path, &place).map_err(|e| Error::io("rename", &path, e))?;
            files.sync_dir(layout.dir()).map_err(|e| Error::io("sync", layout.dir(), e))?;
        }
        Ok(())
    }

    /// The bytes of the file, header included.
    pub(crate) fn file_bytes(&self) -> Vec<u8> {
        let body = self.encode();
        let mut own = Vec::new();
        own.put_u64(body.len() as u64);
        own.put_u32(crc32c::crc32c(&body));
        let mut bytes = FileKind::Meta.header(&own).to_vec();
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Reads `meta`, or its copy if `meta` is damaged; `None` if neither exists.
    pub(crate) fn read(files: &dyn Files, layout: &Layout) -> Result<Option<Self>, Error> {
        let meta = Self::read_file(files, &layout.meta());
        if !matches!(meta, Ok(_) | Err(Error::CorruptFile { .. })) {
            return meta;
        }
        match (meta, Self::read_file(files, &layout.meta_copy())) {
            (Ok(Some(meta)), copy) => {
                if let Err(error) = copy {
                    tracing::warn!(%error, "the copy of the log's meta is damaged; it will be rewritten");
                }
                Ok(Some(meta))
            }
            (meta, Ok(Some(copy))) => {
                let path = layout.meta();
                let missing = Error::CorruptFile { path, at: 0, what: "it is missing" };
                let error = meta.err().unwrap_or(missing);
                tracing::warn!(%error, "the log's meta cannot be read; its copy is used, and nothing is lost");
                Ok(Some(copy))
            }
            (Ok(None), Err(error)) => Err(error),
            (meta, _) => meta,
        }
    }

    pub(crate) fn read_file(files: &dyn Files, path: &Path) -> Result<Option<Self>, Error> {
        let file = match files.open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", path, e)),
        };
        let corrupt = |what| Err(Error::CorruptFile { path: path.to_owned(), at: FILE_HEADER_BYTES as u64, what });
        let own = FileKind::Meta.read_header(&*file, path)?;
        let mut reader = WireReader::new(&own);
        let (Some(size), Some(crc)) = (reader.u64(), reader.u32()) else { return corrupt("its header is cut short") };
        let stored = file.size().map_err(|e| Error::io("read the size of", path, e))?;
        if Some(stored) != size.checked_add(FILE_HEADER_BYTES as u64) {
            return corrupt("its size is not what its header says");
        }
        let mut body = vec![0; usize::try_from(size).unwrap_or(0)];
        file.read_at(&mut body, FILE_HEADER_BYTES as u64).map_err(|e| Error::io("read", path, e))?;
        if crc32c::crc32c(&body) != crc {
            return corrupt("its checksum does not match");
        }
        let version = body.first().copied().filter(|version| (OLDEST_VERSION..=RECORD_VERSION).contains(version));
        let Some(version) = version else { return corrupt("its record has a version that is not known") };
        let mut reader = WireReader::new(&body[1..]);
        match Self::decode(&mut reader, version) {
            Some(meta) if reader.is_empty() => Ok(Some(meta)),
            _ => corrupt("its record cannot be decoded"),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(RECORD_VERSION);
        out.put_u64(self.salt);
        out.put_u32(self.epoch.0);
        out.put_u8(u8::from(self.clean));
        out.put_u64(self.journal.sequence);
        out.put_u64(self.journal.slot);
        out.put_u64(self.journal.at);
        put_count(&mut out, self.topics.len());
        for (topic, partitions) in &self.topics {
            put_topic(&mut out, topic);
            put_count(&mut out, partitions.len());
            partitions.iter().for_each(|partition| put_partition(&mut out, partition));
        }
        put_count(&mut out, self.positions.len());
        for record in &self.positions {
            out.put_text(&record.group);
            out.put_u128(record.position.topic.0);
            out.put_u32(record.partition.0);
            out.put_u32(record.position.epoch.0);
            out.put_u64(record.position.offset.0);
            out.put_text(&record.metadata);
            out.put_i64(record.committed_ms);
        }
        out
    }

    fn decode(from: &mut WireReader<'_>, version: u8) -> Option<Self> {
        let (salt, epoch, clean) = (from.u64()?, Epoch(from.u32()?), from.u8()? == 1);
        let journal = JournalPlace { sequence: from.u64()?, slot: from.u64()?, at: from.u64()? };
        let topics = list(from, |from| {
            Some((topic(from, topic_version(version))?, list(from, |from| partition(from, version))?))
        })?;
        let positions = list(from, |from| {
            let group = from.text()?.to_owned();
            let (topic, partition) = (TopicId(from.u128()?), PartitionId(from.u32()?));
            let position = Position { topic, epoch: Epoch(from.u32()?), offset: Offset(from.u64()?) };
            let (metadata, committed_ms) = match version {
                1 => (String::new(), UNKNOWN_MS),
                _ => (from.text()?.to_owned(), from.i64()?),
            };
            Some(PositionRecord { group, partition, position, metadata, committed_ms })
        })?;
        Some(Self { salt, epoch, clean, journal, topics, positions })
    }
}

/// The topic version in a record of that version.
fn topic_version(version: u8) -> u8 {
    match version {
        ..=2 => 1,
        3 | 4 => 2,
        5 => 3,
        _ => TOPIC_VERSION,
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.put_u32(u32::try_from(count).expect("lists in meta are shorter than 2^32"));
}

fn list<T>(from: &mut WireReader<'_>, mut item: impl FnMut(&mut WireReader<'_>) -> Option<T>) -> Option<Vec<T>> {
    let count = from.u32()?;
    (0..count).map(|_| item(from)).collect()
}

fn put_partition(out: &mut Vec<u8>, partition: &PartitionRecord) {
    out.put_u64(partition.first);
    out.put_u64(partition.tail);
    put_count(out, partition.epochs.entries().len());
    for entry in partition.epochs.entries() {
        out.put_u32(entry.epoch.0);
        out.put_u64(entry.start);
        out.put_u64(entry.end);
    }
    put_count(out, partition.segments.len());
    for segment in &partition.segments {
        out.put_u64(segment.base);
        out.put_u64(segment.end);
        out.put_u64(segment.size_bytes);
        out.put_i64(segment.first_append_ms);
        out.put_i64(segment.last_append_ms);
        out.put_i64(segment.max_timestamp_ms);
        out.put_u8(u8::from(segment.closed));
        out.put_u64(segment.generation);
        out.put_i64(segment.dated_ms);
    }
    put_producers(out, &partition.producers);
    put_transactions(out, &partition.producers.transactions);
    out.put_u64(partition.clean_to);
    out.put_u64(partition.horizon);
}

fn partition(from: &mut WireReader<'_>, version: u8) -> Option<PartitionRecord> {
    let (first, tail) = (from.u64()?, from.u64()?);
    let epochs =
        list(from, |from| Some(EpochEntry { epoch: Epoch(from.u32()?), start: from.u64()?, end: from.u64()? }))?;
    let segments = list(from, |from| {
        Some(SegmentRecord {
            base: from.u64()?,
            end: from.u64()?,
            size_bytes: from.u64()?,
            first_append_ms: from.i64()?,
            last_append_ms: from.i64()?,
            max_timestamp_ms: from.i64()?,
            closed: from.u8()? == 1,
            generation: if version >= 3 { from.u64()? } else { 0 },
            dated_ms: if version >= 6 { from.i64()? } else { i64::MIN },
        })
    })?;
    let producers = if version < 2 { Vec::new() } else { list(from, producer)? };
    let transactions = if version < 4 { Transactions::default() } else { transactions(from)? };
    let (epochs, producers) = (Epochs::from_entries(epochs), Producers::from_entries(producers, transactions));
    let (clean_to, horizon) = if version >= 3 { (from.u64()?, from.u64()?) } else { (0, 0) };
    Some(PartitionRecord { first, tail, epochs, segments, producers, clean_to, horizon })
}

fn put_producers(out: &mut Vec<u8>, producers: &Producers) {
    put_count(out, producers.entries().len());
    for (id, state) in producers.entries() {
        out.put_i64(id);
        out.put_u16(state.epoch.cast_unsigned());
        out.put_u32(state.taken);
        out.put_i64(state.last_ms);
        put_count(out, state.batches.len());
        for batch in &state.batches {
            out.put_u32(batch.first_sequence);
            out.put_u64(batch.appended.first.0);
            out.put_u64(batch.appended.last.0);
            out.put_u32(batch.appended.epoch.0);
        }
    }
}

fn put_transactions(out: &mut Vec<u8>, transactions: &Transactions) {
    put_count(out, transactions.open().len());
    for (producer, open) in transactions.open() {
        out.put_i64(producer);
        out.put_u16(open.epoch.cast_unsigned());
        out.put_u64(open.first);
        out.put_i64(open.since_ms);
    }
    put_count(out, transactions.aborted().entries().len());
    for aborted in transactions.aborted().entries() {
        out.put_i64(aborted.producer);
        out.put_u64(aborted.first);
        out.put_u64(aborted.marker);
    }
}

fn transactions(from: &mut WireReader<'_>) -> Option<Transactions> {
    let open = list(from, |from| {
        let (producer, epoch) = (from.i64()?, from.u16()?.cast_signed());
        Some((producer, OpenedTransaction { epoch, first: from.u64()?, since_ms: from.i64()? }))
    })?;
    let aborted = list(from, |from| {
        let aborted = Aborted { producer: from.i64()?, first: from.u64()?, marker: from.u64()? };
        (aborted.first < aborted.marker).then_some(aborted)
    })?;
    let ascend = aborted.is_sorted_by(|one: &Aborted, next| one.marker < next.marker);
    ascend.then(|| Transactions::new(open, aborted))
}

fn producer(from: &mut WireReader<'_>) -> Option<(i64, ProducerState)> {
    let (id, epoch) = (from.i64()?, from.u16()?.cast_signed());
    let (taken, last_ms) = (from.u32()?, from.i64()?);
    let batches = list(from, |from| {
        let first_sequence = from.u32()?;
        let (first, last, epoch) = (Offset(from.u64()?), Offset(from.u64()?), Epoch(from.u32()?));
        let appended = Appended { first, last, epoch };
        (first <= last).then_some(TakenBatch { first_sequence, appended })
    })?;
    (batches.len() <= BATCHES_KEPT).then_some((id, ProducerState { epoch, taken, last_ms, batches }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> PartitionRecord {
        let appended = Appended { first: Offset(7), last: Offset(9), epoch: Epoch(2) };
        let batches = vec![TakenBatch { first_sequence: 0, appended }];
        let known = [
            (4, ProducerState { epoch: 1, taken: 3, last_ms: 50, batches }),
            (5, ProducerState { epoch: 8, taken: 0, last_ms: 51, batches: Vec::new() }),
        ];
        let open = [(4, OpenedTransaction { epoch: 1, first: 7, since_ms: 50 })];
        let aborted = vec![Aborted { producer: 5, first: 2, marker: 4 }, Aborted { producer: 4, first: 1, marker: 6 }];
        let mut epochs = Epochs::default();
        epochs.begin(Epoch(2), 0, 0, 0);
        PartitionRecord {
            first: 1,
            tail: 10,
            epochs,
            segments: Vec::new(),
            producers: Producers::from_entries(known, Transactions::new(open, aborted)),
            clean_to: 3,
            horizon: 2,
        }
    }

    #[test]
    fn a_partition_reads_back_and_one_cut_short_anywhere_does_not() {
        let record = example();
        let mut out = Vec::new();
        put_partition(&mut out, &record);
        let mut reader = WireReader::new(&out);
        assert_eq!(partition(&mut reader, RECORD_VERSION), Some(record));
        assert!(reader.is_empty());
        for length in 0..out.len() {
            assert_eq!(partition(&mut WireReader::new(&out[..length]), RECORD_VERSION), None, "cut at {length}");
        }
    }

    #[test]
    fn invalid_transactions_are_refused() {
        let aborted = |first, marker| Aborted { producer: 4, first, marker };
        for wrong in [vec![aborted(4, 4)], vec![aborted(1, 6), aborted(2, 3)], vec![aborted(1, 6), aborted(2, 6)]] {
            let mut out = Vec::new();
            put_transactions(&mut out, &Transactions::new([], wrong.clone()));
            assert_eq!(transactions(&mut WireReader::new(&out)), None, "{wrong:?}");
        }
    }
}
