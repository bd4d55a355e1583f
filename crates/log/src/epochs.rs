//! The epochs of a partition: the offsets that each start of the log handed out.
//!
//! After a crash the offsets that were handed out and not recovered stay unused: the next epoch starts above them. A
//! stored position is valid up to the *end* of its epoch, which is below the start of the next one.

use std::ops::Range;

use millstream_types::Epoch;

/// One epoch. The `end` of the last entry is unknown and equals its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochEntry {
    pub(crate) epoch: Epoch,
    /// The first offset of the epoch.
    pub(crate) start: u64,
    /// The offset after its last surviving record.
    pub(crate) end: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Epochs(Vec<EpochEntry>);

impl Epochs {
    pub(crate) fn from_entries(entries: Vec<EpochEntry>) -> Self {
        Self(entries)
    }

    pub(crate) fn entries(&self) -> &[EpochEntry] {
        &self.0
    }

    /// Begins `epoch` at `start`; the previous one ended at `end`. Drops entries that tell nothing: those whose next
    /// epoch began at `first` or below, as a position there is refused anyhow, and those without offsets that begin
    /// at the end of another.
    pub(crate) fn begin(&mut self, epoch: Epoch, start: u64, end: u64, first: u64) {
        if let Some(last) = self.0.last_mut() {
            assert!(last.epoch < epoch && last.start <= end && end <= start, "epochs and their offsets ascend");
            last.end = end;
        }
        let next_starts = self.0.iter().skip(1).map(|next| next.start).chain([start]).collect::<Vec<_>>();
        let mut kept: Vec<EpochEntry> = Vec::with_capacity(self.0.len() + 1);
        for (entry, next_start) in self.0.drain(..).zip(next_starts) {
            let is_told_before = entry.end == entry.start && kept.last().is_some_and(|last| last.end == entry.start);
            if next_start > first && !is_told_before {
                kept.push(entry);
            }
        }
        kept.push(EpochEntry { epoch, start, end: start });
        self.0 = kept;
    }

    pub(crate) fn start(&self) -> u64 {
        self.0.last().map_or(0, |last| last.start)
    }

    /// Ranges of offsets that were skipped and have no record.
    fn gaps(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.windows(2).map(|pair| pair[0].end..pair[1].start)
    }

    /// Number of skipped offsets between `from` and `to`.
    pub(crate) fn skipped(&self, from: u64, to: u64) -> u64 {
        self.gaps().map(|gap| gap.end.min(to).saturating_sub(gap.start.max(from))).sum()
    }

    /// `offset`, or the start of the next epoch if `offset` was skipped.
    pub(crate) fn behind_gap(&self, offset: u64) -> u64 {
        self.gaps().fold(offset, |offset, gap| if gap.contains(&offset) { gap.end } else { offset })
    }

    /// The end of the records that a reader under `epoch` can have read; `None` for a future epoch. `tail` is the
    /// end of the current epoch.
    pub(crate) fn end_of(&self, epoch: Epoch, tail: u64) -> Option<u64> {
        let present = self.0.last()?;
        if epoch >= present.epoch {
            return (epoch == present.epoch).then_some(tail);
        }
        let known = self.0.iter().rev().find(|entry| entry.epoch <= epoch);
        // Everything older was trimmed; the caller has refused offsets below the first one.
        Some(known.map_or_else(|| self.0.first().map_or(0, |oldest| oldest.start), |entry| entry.end))
    }

    /// The latest epoch up to `epoch` that is known; `epoch` itself if all older ones were trimmed.
    pub(crate) fn known_up_to(&self, epoch: Epoch) -> Epoch {
        self.0.iter().rev().map(|entry| entry.epoch).find(|known| *known <= epoch).unwrap_or(epoch)
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
            // Nothing was handed out under 3, so it is not kept.
            assert_eq!(epochs.known_up_to(Epoch(epoch)), Epoch([1, 2, 2, 4, 4][epoch as usize - 1]));
        }
        assert_eq!(epochs.entries().len(), 3);
        for (from, to, skipped) in [(0, 130, 90), (5, 8, 0), (5, 60, 50), (60, 120, 40), (100, 130, 0), (130, 5, 0)] {
            assert_eq!(epochs.skipped(from, to), skipped, "{from} to {to}");
        }
        for (offset, behind) in [(9, 9), (10, 100), (60, 100), (100, 100), (120, 120)] {
            assert_eq!(epochs.behind_gap(offset), behind, "{offset}");
        }
        epochs.begin(Epoch(5), 130, 130, 120);
        assert_eq!(epochs.entries().iter().map(|entry| entry.epoch.0).collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn an_epoch_that_lost_all_or_is_trimmed_up_to_its_loss_is_known() {
        for kept in [0, 10] {
            let mut epochs = Epochs::default();
            epochs.begin(Epoch(1), 0, 0, 0);
            epochs.begin(Epoch(2), 100, kept, kept);
            epochs.begin(Epoch(3), 120, 120, kept);
            for (epoch, end) in [(1, kept), (2, 120), (3, 130)] {
                assert_eq!(epochs.end_of(Epoch(epoch), 130), Some(end), "epoch {epoch}, {kept} left of the first");
            }
            assert_eq!(epochs.behind_gap(kept), 100);
            epochs.begin(Epoch(4), 130, 130, 100);
            assert_eq!(epochs.end_of(Epoch(1), 140), Some(100), "what is below the first offset is refused before");
            assert_eq!(epochs.entries()[0].epoch, Epoch(2));
        }
    }
}
