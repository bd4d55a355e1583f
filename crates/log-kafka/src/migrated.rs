//! Topics that were moved to Kafka: the ids, offsets and epochs that they have kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millstream_types::{BatchError, Epoch, Offset, PartitionId, RecordBatch, TopicId};
use uuid::Uuid;

use crate::offset_map::{OffsetMap, put, take};

/// Topics that were moved, by their id in Kafka.
pub(crate) type MigratedTopics = HashMap<Uuid, Arc<MigratedTopic>>;

/// A topic as it was before it was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MigratedTopic {
    pub(crate) id: TopicId,
    pub(crate) partitions: BTreeMap<PartitionId, PartitionOrigin>,
}

/// The first epoch in Kafka lies this far above the last one before, as that of a restored backup does.
const LATER_EPOCHS: u32 = 1 << 16;

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

    /// The epoch of a leader: later than all before Kafka had the partition, and than all that the log there may still begin.
    pub(crate) fn epoch(&self, of_leader: i32) -> Epoch {
        let first = self.epochs.last().map_or(0, |(last, _)| last.0.saturating_add(LATER_EPOCHS));
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::offset_map::OffsetMapBuilder;

    fn origin() -> PartitionOrigin {
        let mut map = OffsetMapBuilder::new(Offset(300));
        [301, 302, 1_000].into_iter().for_each(|offset| map.push(Offset(offset)));
        let epochs = [(1, 310), (2, 500), (5, 1_002)].map(|(epoch, end)| (Epoch(epoch), Offset(end)));
        PartitionOrigin { map: map.finish(Offset(1_002)), epochs: epochs.to_vec(), horizon: Offset(200) }
    }

    /// The form of version 1.
    const FORM: [u8; 23] = [3, 1, 0xb6, 2, 2, 0xf4, 3, 5, 0xea, 7, 0xc8, 1, 0xac, 2, 3, 0, 0xad, 2, 2, 0xbb, 5, 1, 2];

    #[test]
    fn the_past_of_a_partition_reads_back_as_it_was() {
        let mut form = Vec::new();
        origin().encode(&mut form);
        assert_eq!(PartitionOrigin::decode(&form), Some(origin()));
        assert_eq!(form, FORM, "a form that was written stays readable");
        for cut in 0..form.len() {
            assert_eq!(PartitionOrigin::decode(&form[..cut]), None);
        }
        form.push(0);
        assert_eq!(PartitionOrigin::decode(&form), None);
    }

    #[test]
    fn epochs_of_leaders_follow_those_of_before() {
        let (origin, none) = (origin(), PartitionOrigin::none(Offset::ZERO));
        assert_eq!((origin.epoch(-1), origin.epoch(0), origin.epoch(3)), (Epoch(65_541), Epoch(65_541), Epoch(65_544)));
        assert_eq!((none.epoch(-1), none.epoch(3), none.end_of(Epoch(0))), (Epoch(0), Epoch(3), None));
        let ends = [0, 1, 2, 3, 4, 5, 65_541].map(|epoch| origin.end_of(Epoch(epoch)).map(|end| end.0));
        assert_eq!(ends, [None, Some(310), Some(500), Some(500), Some(500), Some(1_002), None]);
    }
}
