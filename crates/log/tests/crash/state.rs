//! Compacted topics: a reader from the start ends up with the last written value of each key.

use std::collections::HashMap;

use millstream_log::{Offsets, Partition, UpTo};
use millstream_testkit::conformance::ReadRecord;
use millstream_testkit::sim::Rng;
use millstream_types::{Epoch, Offset};

use crate::oracle::{Ledger, Place, is_compacted};
use crate::verdict;
use crate::workload::{Aim, Life};

/// The last offset of each key, as a reader from the start found it.
pub(crate) type LastOfKeys = HashMap<u64, Offset>;

/// The records that were read from a compacted partition, to be compared with those that were written.
pub(crate) struct Reading<'a> {
    pub(crate) place: Place,
    pub(crate) found: &'a LastOfKeys,
    /// Everything below was there to be read.
    pub(crate) below: Offset,
    /// Deletions that were sent before may be gone.
    pub(crate) deletions_until_ms: i64,
}

impl Reading<'_> {
    /// Of each key the last record is there, or a newer one; a deleted key may be there no more, but not as it was before.
    pub(crate) fn check(&self, ledger: &mut Ledger) {
        let mut owed: HashMap<u64, (Offset, u64)> = HashMap::new();
        let Some(history) = ledger.partitions.get(&self.place) else { return };
        for (offset, serial) in history.placed.range(..self.below) {
            let known = &ledger.records[*serial as usize];
            let stands_there = known.offset.is_some_and(|(at, _)| at == *offset) && !known.gone;
            if let Some(change) = known.change.filter(|_| stands_there) {
                owed.insert(change.key, (*offset, *serial));
            }
        }
        for (key, (offset, serial)) in owed {
            let known = &ledger.records[serial as usize];
            let deletes = known.change.is_some_and(|change| change.deletes);
            let may_be_gone = deletes && ledger.appends[known.append].at_ms < self.deletions_until_ms;
            let what = if deletes { "deleted" } else { "written" };
            let violation = match self.found.get(&key) {
                Some(found) if *found >= offset => continue,
                Some(found) => format!("it stands at {found}"),
                None if may_be_gone => continue,
                None => "it is not there".to_owned(),
            };
            let violation =
                format!("{:?}: key {key} was {what} at {offset} (record {serial}); {violation}", self.place);
            ledger.violations.push(violation);
        }
    }
}

impl Life {
    /// Reads a compacted partition from the start, holding it: twice, and nothing that was there may go between.
    pub(crate) fn read_through(&self, aim: Aim<'_>, rng: &mut Rng) -> Option<()> {
        let partition = &aim.target.partitions[aim.partition];
        let place = (aim.target.topic.id, aim.partition as u32);
        let hold = partition.hold("whole", Offset::ZERO);
        let Offsets { first, stable, .. } = partition.offsets();
        let on_disk = memory_begins(&**partition, first, stable);
        let before = self.accept(verdict::read(&**partition, first, UpTo::Stable))?;
        let mut found = LastOfKeys::new();
        for (epoch, record) in &before {
            self.oracle.seen_change(place, *epoch, record, &mut found);
        }
        let config = &aim.target.topic.config;
        let deletions_until_ms = self.now_ms() - config.delete_retention.as_millis() as i64;
        Reading { place, found: &found, below: stable, deletions_until_ms }.check(&mut self.oracle.ledger());
        for _ in 0..rng.below(20) {
            self.drive.pause();
        }
        let after = self.accept(verdict::read(&**partition, first, UpTo::Stable))?;
        let stays =
            |record: &(Epoch, ReadRecord)| after.binary_search_by_key(&record.1.offset, |(_, at)| at.offset).is_ok();
        // What memory serves may have been compacted before.
        let mut held = before.iter().take_while(|(_, record)| record.offset < on_disk);
        if let Some((_, gone)) = held.find(|record| !stays(record)) {
            self.oracle.violated(format!("{place:?} {}: gone, though a reader holds it", gone.offset));
        }
        drop(hold);
        Some(())
    }
}

/// An offset below which everything is read from segments, from now on.
fn memory_begins(partition: &dyn Partition, first: Offset, end: Offset) -> Offset {
    let (mut low, mut high) = (first.0, end.0);
    while low < high {
        let middle = low + (high - low) / 2;
        if partition.read_from_memory(Offset(middle), 0, UpTo::Tail).is_ok_and(|known| known.is_some()) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Offset(low)
}

/// Returns `true` if [`Life::read_through`] reads the partition.
pub(crate) fn is_state(aim: Aim<'_>) -> bool {
    is_compacted(&aim.target.topic.config)
}
