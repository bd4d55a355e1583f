//! Results that are handed out once they are kept, and stay until they have arrived: in a topic, say.
//!
//! ```text
//!   waiting:   │ handed out, not arrived │ kept │ not kept yet │
//!              ▲ first                   ▲ Place              ▲ whatever comes
//! ```
//!
//! So after a crash the same results come again under the same numbers, and never others under these.

use serde::{Deserialize, Serialize};

/// The number of the record that opens a query's results; the first of its results has the next one.
pub(crate) const OPENING: u64 = 1;

/// How far the results of a query have come.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    pub(crate) gone: Gone,
    /// How many deliveries have gone since this process took the query up.
    first: u64,
    /// Up to which of them they are kept.
    kept: u64,
    is_end_kept: bool,
}

/// What need not be handed out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Gone {
    /// Whether the opening has arrived.
    pub(crate) opening: bool,
    /// How many records have arrived, or were dropped; the opening is none of them.
    pub(crate) records: u64,
}

/// Up to where a reader has been handed out what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    deliveries: u64,
    records: u64,
    /// Whether it has got the end.
    pub(crate) is_end: bool,
}

impl Place {
    /// Moves on behind a delivery of so many records; the number of the first of them.
    pub(crate) fn pass(&mut self, records: u64) -> u64 {
        let number = OPENING + 1 + self.records;
        self.deliveries += 1;
        self.records += records;
        number
    }
}

impl Passage {
    /// Of a query with so many deliveries waiting, all of them kept, after others that have gone in former processes.
    pub(crate) fn resume(gone: Gone, waiting: usize, is_end_kept: bool) -> Self {
        Self { gone, first: 0, kept: waiting as u64, is_end_kept }
    }

    /// Where a reader begins.
    pub(crate) fn start(&self) -> Place {
        Place { deliveries: self.first, records: self.gone.records, is_end: false }
    }

    /// One more has gone, of so many records.
    pub(crate) fn went(&mut self, records: u64) {
        self.first += 1;
        self.gone.records += records;
    }

    /// Which of those that wait is the next for a reader at `place`, if it is kept. What has been dropped is passed over.
    pub(crate) fn next(&self, place: &mut Place) -> Option<usize> {
        if place.deliveries < self.first {
            *place = self.start();
        }
        (place.deliveries < self.kept).then(|| (place.deliveries - self.first) as usize)
    }

    /// Whether a reader at `place` is next to get the end, when so many wait.
    pub(crate) fn is_at_end(&self, place: &Place, waiting: usize) -> bool {
        self.is_end_kept && !place.is_end && place.deliveries == self.through(waiting)
    }

    /// How many there have been, when so many wait.
    pub(crate) fn through(&self, waiting: usize) -> u64 {
        self.first + waiting as u64
    }

    /// Whether one that waits still has arrived with a reader that is at `place`.
    pub(crate) fn has_arrived(&self, place: &Place) -> bool {
        self.first < place.deliveries
    }

    /// The first so many are kept now, and the end if there is one.
    pub(crate) fn keep(&mut self, through: u64, is_end_kept: bool) {
        self.kept = self.kept.max(through);
        self.is_end_kept |= is_end_kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_handed_out_before_it_is_kept_and_numbers_stay() {
        let (mut passage, mut place) = (Passage::default(), Place::default());
        assert_eq!(passage.next(&mut place), None);
        passage.keep(2, false);
        // Two wait, of 3 and 1 records; a third that is not kept yet.
        assert_eq!((passage.next(&mut place), place.pass(3)), (Some(0), 2));
        assert_eq!((passage.next(&mut place), place.pass(1)), (Some(1), 5));
        assert_eq!(passage.next(&mut place), None);
        assert!(passage.has_arrived(&place));
        passage.went(3);
        assert!(passage.has_arrived(&place));
        passage.went(1);
        assert!(!passage.has_arrived(&place));
        assert_eq!(passage.gone.records, 4);
        passage.keep(3, true);
        assert!(!passage.is_at_end(&place, 1));
        assert_eq!((passage.next(&mut place), place.pass(2)), (Some(0), 6));
        assert!(passage.is_at_end(&place, 1));
        // The next process hands out again what has not arrived, under the same number.
        let passage = Passage::resume(passage.gone, 1, true);
        let mut place = passage.start();
        assert_eq!((passage.next(&mut place), place.pass(2)), (Some(0), 6));
    }

    #[test]
    fn what_is_dropped_leaves_a_gap_in_the_numbers() {
        let (mut passage, mut place) = (Passage::default(), Place::default());
        passage.went(5);
        passage.keep(3, false);
        assert_eq!((passage.next(&mut place), place.pass(1)), (Some(0), 7));
    }
}
