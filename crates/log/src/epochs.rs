//! The epochs of a partition: under which start of the log which offsets were handed out.
//!
//! After a crash the offsets handed out but not recovered stay unused: the next epoch starts above them. So a stored
//! position is judged by where its epoch *ended*, which is below where the next one starts.

use millstream_types::Epoch;

/// One epoch. `end` of the last entry is not known yet and stands at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochEntry {
    pub(crate) epoch: Epoch,
    /// First offset that was handed out under it.
    pub(crate) start: u64,
    /// The offset behind its last record that survived.
    pub(crate) end: u64,
}

/// The epochs, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Epochs(Vec<EpochEntry>);

impl Epochs {
    pub(crate) fn from_entries(entries: Vec<EpochEntry>) -> Self {
        Self(entries)
    }

    pub(crate) fn entries(&self) -> &[EpochEntry] {
        &self.0
    }

    /// Begins `epoch` at `start`; the one before ended at `end`. Entries that no longer tell anything are dropped:
    /// those wholly below `first`, and those under which nothing was handed out.
    pub(crate) fn begin(&mut self, epoch: Epoch, start: u64, end: u64, first: u64) {
        if let Some(last) = self.0.last_mut() {
            assert!(last.epoch < epoch && last.start <= end && end <= start, "epochs and their offsets ascend");
            last.end = end;
        }
        let mut before = None;
        self.0.retain(|entry| {
            let tells = entry.end > first && (entry.end > entry.start || before != Some(entry.start));
            before = Some(entry.end);
            tells
        });
        self.0.push(EpochEntry { epoch, start, end: start });
    }

    /// Where the present epoch starts.
    pub(crate) fn start(&self) -> u64 {
        self.0.last().map_or(0, |last| last.start)
    }

    /// The end of what a reader that knew `epoch` can have read; `None` if there has not been such an epoch yet.
    /// `tail` is the end of the present epoch.
    pub(crate) fn end_of(&self, epoch: Epoch, tail: u64) -> Option<u64> {
        let present = self.0.last()?;
        if epoch >= present.epoch {
            return (epoch == present.epoch).then_some(tail);
        }
        let known = self.0.iter().rev().find(|entry| entry.epoch <= epoch);
        // Everything older was trimmed; the caller has already refused what lies below the first offset.
        Some(known.map_or_else(|| self.0.first().map_or(0, |oldest| oldest.start), |entry| entry.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_judged_by_where_its_epoch_ended() {
        let mut epochs = Epochs::default();
        epochs.begin(Epoch(1), 0, 0, 0);
        epochs.begin(Epoch(2), 100, 10, 0); // a crash: 10 survived
        epochs.begin(Epoch(3), 120, 120, 0); // a clean end
        epochs.begin(Epoch(4), 120, 120, 0); // nothing was handed out under 3
        for (epoch, end) in [(1, Some(10)), (2, Some(120)), (3, Some(120)), (4, Some(130)), (5, None)] {
            assert_eq!(epochs.end_of(Epoch(epoch), 130), end, "epoch {epoch}");
        }
        assert_eq!(epochs.entries().len(), 3);
        epochs.begin(Epoch(5), 130, 130, 120);
        assert_eq!(epochs.entries().iter().map(|entry| entry.epoch.0).collect::<Vec<_>>(), [4, 5]);
    }
}
