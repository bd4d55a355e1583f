//! Topics that were moved to Kafka: the ids, offsets and epochs that they have kept.

use std::collections::BTreeMap;

use millstream_types::{BatchError, Epoch, Offset, PartitionId, RecordBatch, TopicId};

use crate::offset_map::{OffsetMap, put, take};

/// A topic as it was before it was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MigratedTopic {
    pub(crate) id: TopicId,
    pub(crate) partitions: BTreeMap<PartitionId, PartitionOrigin>,
}

/// The past of a partition before Kafka had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionOrigin {
    pub(crate) map: OffsetMap,
    /// The epochs of that time, each with the end of its records.
    pub(crate) epochs: Vec<(Epoch, Offset)>,
    /// Deletions below it may have been compacted away.
    pub(crate) horizon: Offset,
}

impl PartitionOrigin {
    /// A partition that has always been in Kafka, and begins at this offset.
    pub(crate) fn none(first: Offset) -> Self {
        Self { map: OffsetMap::beginning_at(first), epochs: Vec::new(), horizon: Offset::ZERO }
    }

    /// The epoch of a leader: later than all before Kafka had the partition.
    pub(crate) fn epoch(&self, of_leader: i32) -> Epoch {
        let first = self.epochs.last().map_or(0, |(last, _)| last.0 + 1);
        Epoch(first.saturating_add(of_leader.max(0).unsigned_abs()))
    }

    /// The end of the records that a reader can have read under an epoch before Kafka had the partition. `None` for a later one,
    /// and for one whose records were all trimmed.
    pub(crate) fn end_of(&self, epoch: Epoch) -> Option<Offset> {
        self.epochs.last().filter(|(last, _)| epoch <= *last)?;
        self.epochs.iter().rev().find(|(known, _)| *known <= epoch).map(|(_, end)| *end)
    }

    /// A batch as Kafka numbers it, at its offsets: several, if one cannot hold its gaps.
    ///
    /// # Errors
    /// A [`BatchError`] if it does not inflate.
    pub(crate) fn at_its_offsets(&self, batch: RecordBatch) -> Result<Vec<RecordBatch>, BatchError> {
        if self.epochs.is_empty() {
            return self.map.at_its_offsets(batch);
        }
        let (base, epoch) = (batch.base_offset(), self.epoch(batch.epoch().0.cast_signed()));
        self.map.at_its_offsets(batch.into_restamped(base, epoch))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.epochs.len() as u64);
        for (epoch, end) in &self.epochs {
            put(out, u64::from(epoch.0));
            put(out, end.0);
        }
        put(out, self.horizon.0);
        self.map.encode(out);
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut epochs = Vec::new();
        for _ in 0..take(&mut bytes)? {
            let epoch = u32::try_from(take(&mut bytes)?).ok()?;
            epochs.push((Epoch(epoch), Offset(take(&mut bytes)?)));
        }
        let horizon = Offset(take(&mut bytes)?);
        let map = OffsetMap::decode(&mut bytes)?;
        bytes.is_empty().then_some(Self { map, epochs, horizon })
    }
}
