//! A frame of the journal: one write of the appender, kept whole or not at all.
//!
//! ```text
//!  0 magic u32      8 length u32 (header and parts, without padding)   16 sequence u64    32 written at, ms i64
//!  4 CRC32C u32    12 number of parts u32                              24 durable u64     40 epoch u32   44 zeros
//! 48 parts: kind u8, version u8, zeros u16, length u32, then as much
//! ```
//!
//! - The CRC covers the log's secret salt and everything from byte 8 on, so no record can look like a frame.
//! - Frames begin at multiples of 512 bytes, so the next frame can be found behind a damaged one.
//! - `sequence` ascends by one over all files. `durable` is the highest sequence known to be synced when the frame
//!   was written. `epoch` is the epoch of the writing start; it identifies leftovers of earlier starts.

use bytes::Bytes;
use millstream_types::{Epoch, Offset, PartitionId, Position, TopicId};

use crate::Topic;
use crate::meta::{PositionRecord, UNKNOWN_MS};
use crate::topic_record::{TOPIC_VERSION, put_topic, topic};
use crate::wire::{WireReader, WireWriter};

pub(crate) const FRAME_ALIGN: u64 = 512;
/// Size of a frame's header.
pub(crate) const FRAME_HEADER_BYTES: usize = 48;
/// Size of the header of a batch part.
pub(crate) const BATCH_PART_BYTES: usize = 28;

const MAGIC: u32 = u32::from_le_bytes(*b"MSFR");
const PART_VERSION: u8 = 1;
/// Version 2 of [`FramePart::Committed`] adds the position's metadata and its commit time.
const COMMITTED_VERSION: u8 = 2;
const PART_HEADER_BYTES: usize = 8;

/// One entry of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FramePart {
    Batch {
        topic: TopicId,
        partition: PartitionId,
        batch: Bytes,
    },
    /// A topic was created; its partitions begin at offset 0 under the frame's epoch.
    Created(Topic),
    Altered(Topic),
    Deleted(TopicId),
    Committed(PositionRecord),
    Forgotten {
        group: String,
        topic: TopicId,
        partition: PartitionId,
    },
    /// The records of a partition below `first` were removed.
    Trimmed {
        topic: TopicId,
        partition: PartitionId,
        first: Offset,
    },
}

impl FramePart {
    const BATCH: u8 = 1;
    const CREATED: u8 = 2;
    const ALTERED: u8 = 3;
    const DELETED: u8 = 4;
    const COMMITTED: u8 = 5;
    const FORGOTTEN: u8 = 6;
    const TRIMMED: u8 = 7;

    /// The topic that the part is about.
    pub(crate) fn topic(&self) -> TopicId {
        match self {
            Self::Created(topic) | Self::Altered(topic) => topic.id,
            Self::Committed(record) => record.position.topic,
            Self::Deleted(topic)
            | Self::Batch { topic, .. }
            | Self::Forgotten { topic, .. }
            | Self::Trimmed { topic, .. } => *topic,
        }
    }

    /// Encodes the part at the end of `out`.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Batch { topic, partition, batch } => put_batch(out, *topic, *partition, batch),
            Self::Created(topic) => put_part_of(out, Self::CREATED, TOPIC_VERSION, |out| put_topic(out, topic)),
            Self::Altered(topic) => put_part_of(out, Self::ALTERED, TOPIC_VERSION, |out| put_topic(out, topic)),
            Self::Deleted(topic) => put_part(out, Self::DELETED, |out| out.put_u128(topic.0)),
            Self::Committed(record) => put_part_of(out, Self::COMMITTED, COMMITTED_VERSION, |out| {
                out.put_text(&record.group);
                out.put_u128(record.position.topic.0);
                out.put_u32(record.partition.0);
                out.put_u32(record.position.epoch.0);
                out.put_u64(record.position.offset.0);
                out.put_text(&record.metadata);
                out.put_i64(record.committed_ms);
            }),
            Self::Forgotten { group, topic, partition } => put_part(out, Self::FORGOTTEN, |out| {
                out.put_text(group);
                out.put_u128(topic.0);
                out.put_u32(partition.0);
            }),
            Self::Trimmed { topic, partition, first } => put_part(out, Self::TRIMMED, |out| {
                out.put_u128(topic.0);
                out.put_u32(partition.0);
                out.put_u64(first.0);
            }),
        }
    }

    fn read(from: &mut WireReader<'_>, frame: &Bytes) -> Option<Self> {
        let (kind, version, _zeros, length) = (from.u8()?, from.u8()?, from.u16()?, from.u32()?);
        let newest = match kind {
            Self::COMMITTED => COMMITTED_VERSION,
            Self::CREATED | Self::ALTERED => TOPIC_VERSION,
            _ => PART_VERSION,
        };
        if version == 0 || version > newest {
            return None;
        }
        let body = from.bytes(length as usize)?;
        let mut reader = WireReader::new(body);
        let part = match kind {
            Self::BATCH => {
                let (topic, partition) = (TopicId(reader.u128()?), PartitionId(reader.u32()?));
                return Some(Self::Batch { topic, partition, batch: frame.slice_ref(body.get(20..)?) });
            }
            Self::CREATED => Self::Created(topic(&mut reader, version)?),
            Self::ALTERED => Self::Altered(topic(&mut reader, version)?),
            Self::DELETED => Self::Deleted(TopicId(reader.u128()?)),
            Self::COMMITTED => {
                let group = reader.text()?.to_owned();
                let (topic, partition) = (TopicId(reader.u128()?), PartitionId(reader.u32()?));
                let position = Position { topic, epoch: Epoch(reader.u32()?), offset: Offset(reader.u64()?) };
                let (metadata, committed_ms) = match version {
                    1 => (String::new(), UNKNOWN_MS),
                    _ => (reader.text()?.to_owned(), reader.i64()?),
                };
                Self::Committed(PositionRecord { group, partition, position, metadata, committed_ms })
            }
            Self::FORGOTTEN => {
                let group = reader.text()?.to_owned();
                Self::Forgotten { group, topic: TopicId(reader.u128()?), partition: PartitionId(reader.u32()?) }
            }
            Self::TRIMMED => {
                let (topic, partition) = (TopicId(reader.u128()?), PartitionId(reader.u32()?));
                Self::Trimmed { topic, partition, first: Offset(reader.u64()?) }
            }
            _ => return None,
        };
        reader.is_empty().then_some(part)
    }
}

fn put_part(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    put_part_of(out, kind, PART_VERSION, body);
}

fn put_part_of(out: &mut Vec<u8>, kind: u8, version: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.put(&[kind, version, 0, 0, 0, 0, 0, 0]);
    let start = out.len();
    body(out);
    let length = u32::try_from(out.len() - start).expect("a part fits a frame, which fits a journal file");
    out[start - 4..start].copy_from_slice(&length.to_le_bytes());
}

fn put_batch(out: &mut Vec<u8>, topic: TopicId, partition: PartitionId, batch: &[u8]) {
    put_part(out, FramePart::BATCH, |out| {
        out.put_u128(topic.0);
        out.put_u32(partition.0);
        out.put(batch);
    });
}

/// The header fields of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameStamp {
    /// One more than the previous frame's.
    pub(crate) sequence: u64,
    /// Highest sequence known to be synced.
    pub(crate) durable: u64,
    /// Wall-clock time of the write: the append time of the batches.
    pub(crate) written_ms: i64,
    pub(crate) epoch: Epoch,
}

/// Builds frames in one reused buffer.
#[derive(Debug)]
pub(crate) struct FrameBuilder {
    bytes: Vec<u8>,
    parts: u32,
    salt: u64,
}

impl FrameBuilder {
    pub(crate) fn new(salt: u64) -> Self {
        Self { bytes: vec![0; FRAME_HEADER_BYTES], parts: 0, salt }
    }

    pub(crate) fn push_batch(&mut self, topic: TopicId, partition: PartitionId, batch: &[u8]) {
        put_batch(&mut self.bytes, topic, partition, batch);
        self.parts += 1;
    }

    /// Adds parts that [`FramePart::put`] has encoded.
    pub(crate) fn push_encoded(&mut self, parts: &[u8], count: u32) {
        self.bytes.extend_from_slice(parts);
        self.parts += count;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Size of the frame in its file, padding included.
    pub(crate) fn padded_bytes(&self) -> u64 {
        (self.bytes.len() as u64).next_multiple_of(FRAME_ALIGN)
    }

    /// Completes the header and the padding; returns the frame.
    pub(crate) fn finish(&mut self, stamp: &FrameStamp) -> &[u8] {
        let length = self.bytes.len();
        let declared = u32::try_from(length).expect("a frame fits a journal file");
        let header = &mut self.bytes[..FRAME_HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..12].copy_from_slice(&declared.to_le_bytes());
        header[12..16].copy_from_slice(&self.parts.to_le_bytes());
        header[16..24].copy_from_slice(&stamp.sequence.to_le_bytes());
        header[24..32].copy_from_slice(&stamp.durable.to_le_bytes());
        header[32..40].copy_from_slice(&stamp.written_ms.to_le_bytes());
        header[40..44].copy_from_slice(&stamp.epoch.0.to_le_bytes());
        header[44..48].fill(0);
        let crc = checksum(&self.bytes, self.salt);
        self.bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        self.bytes.resize(length.next_multiple_of(FRAME_ALIGN as usize), 0);
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER_BYTES);
        self.parts = 0;
    }
}

fn checksum(frame: &[u8], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &frame[8..])
}

/// The frame length that a header declares. `None` if the bytes are no frame header, or
/// if the length exceeds `limit`.
pub(crate) fn declared_length(start: &[u8], limit: u64) -> Option<usize> {
    let mut reader = WireReader::new(start);
    let (magic, _crc, length) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let length = length as usize;
    (magic == MAGIC && length >= FRAME_HEADER_BYTES && length as u64 <= limit).then_some(length)
}

/// A frame that was read back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) stamp: FrameStamp,
    pub(crate) parts: Vec<FramePart>,
}

impl Frame {
    /// Decodes a whole frame without its padding; `None` if any byte is damaged.
    pub(crate) fn parse(frame: &Bytes, salt: u64) -> Option<Self> {
        let mut reader = WireReader::new(frame);
        let (magic, crc, length, count) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        if magic != MAGIC || length as usize != frame.len() || crc != checksum(frame, salt) {
            return None;
        }
        let (sequence, durable, written_ms) = (reader.u64()?, reader.u64()?, reader.i64()?);
        let (epoch, _zeros) = (Epoch(reader.u32()?), reader.u32()?);
        let mut parts = Vec::with_capacity((count as usize).min(frame.len() / PART_HEADER_BYTES));
        for _ in 0..count {
            parts.push(FramePart::read(&mut reader, frame)?);
        }
        reader.is_empty().then_some(Self { stamp: FrameStamp { sequence, durable, written_ms, epoch }, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicConfig;
    use millstream_types::{TenantId, TopicName};

    fn example() -> (FrameStamp, Vec<FramePart>) {
        let name = TopicName::user("orders", &TenantId::default()).unwrap();
        let topic = Topic { id: TopicId(5), name, config: TopicConfig::default() };
        let position = Position { topic: TopicId(5), epoch: Epoch(3), offset: Offset(9) };
        let parts = vec![
            FramePart::Created(topic.clone()),
            FramePart::Batch { topic: TopicId(5), partition: PartitionId(2), batch: Bytes::from_static(b"a batch") },
            FramePart::Altered(topic),
            FramePart::Committed(PositionRecord {
                group: "readers".to_owned(),
                partition: PartitionId(2),
                position,
                metadata: "by hand".to_owned(),
                committed_ms: 12,
            }),
            FramePart::Forgotten { group: "readers".to_owned(), topic: TopicId(5), partition: PartitionId(2) },
            FramePart::Trimmed { topic: TopicId(5), partition: PartitionId(2), first: Offset(8) },
            FramePart::Deleted(TopicId(5)),
        ];
        (FrameStamp { sequence: 7, durable: 6, written_ms: -1, epoch: Epoch(3) }, parts)
    }

    fn encode(stamp: &FrameStamp, parts: &[FramePart], salt: u64) -> Bytes {
        let mut builder = FrameBuilder::new(salt);
        for part in parts {
            let mut encoded = Vec::new();
            part.put(&mut encoded);
            builder.push_encoded(&encoded, 1);
        }
        let padded = Bytes::copy_from_slice(builder.finish(stamp));
        assert_eq!(padded.len() % FRAME_ALIGN as usize, 0);
        let length = declared_length(&padded, u64::MAX).unwrap();
        padded.slice(..length)
    }

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        let (stamp, parts) = example();
        assert_eq!(Frame::parse(&encode(&stamp, &parts, 11), 11), Some(Frame { stamp, parts }));
    }

    #[test]
    fn a_frame_with_any_bit_changed_or_of_another_log_is_refused() {
        let (stamp, parts) = example();
        let frame = encode(&stamp, &parts, 11);
        assert_eq!(Frame::parse(&frame, 12), None);
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::parse(&Bytes::from(damaged), 11), None, "bit {bit}");
        }
    }
}
