//! The progress of results into a topic: they are handed out once they are stored, and stay until they have arrived.
//!
//! ```text
//!   waiting:   │ handed out, not arrived │ stored │ not stored yet │
//!              ▲ first                   ▲ SinkPosition
//! ```
//!
//! So after a crash the same results come again under the same numbers, and no number is used for two results.

use serde::{Deserialize, Serialize};

/// The number of the record that opens a query's results; the first of its results has the next one.
pub(crate) const OPENING: u64 = 1;

/// The progress of a query's results.
#[derive(Debug, Default)]
pub(crate) struct SinkProgress {
    pub(crate) gone: SinkOffset,
    /// The number of deliveries that have arrived since this process resumed the query.
    first: u64,
    /// The number of deliveries that are stored.
    kept: u64,
    is_end_kept: bool,
}

/// The results that have arrived and are not handed out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct SinkOffset {
    /// True if the opening has arrived.
    pub(crate) opening: bool,
    /// The number of records that have arrived or were dropped, without the opening.
    pub(crate) records: u64,
}

/// The position up to which results were handed out to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SinkPosition {
    deliveries: u64,
    records: u64,
    /// True if the reader has got the end.
    pub(crate) is_end: bool,
}

impl SinkPosition {
    /// Moves on behind a delivery of `records` records, and returns the number of the first one.
    pub(crate) fn pass(&mut self, records: u64) -> u64 {
        let number = OPENING + 1 + self.records;
        self.deliveries += 1;
        self.records += records;
        number
    }
}

impl SinkProgress {
    /// The progress of a resumed query: all waiting deliveries are stored, and `gone` has arrived earlier.
    pub(crate) fn resume(gone: SinkOffset, waiting: usize, is_end_kept: bool) -> Self {
        Self { gone, first: 0, kept: waiting as u64, is_end_kept }
    }

    /// The position of a new reader.
    pub(crate) fn start(&self) -> SinkPosition {
        SinkPosition { deliveries: self.first, records: self.gone.records, is_end: false }
    }

    /// Counts a delivery that has left the queue, with this number of records.
    pub(crate) fn went(&mut self, records: u64) {
        self.first += 1;
        self.gone.records += records;
    }

    /// The index of the next waiting delivery for a reader at `place`, if it is stored. Dropped deliveries are skipped.
    pub(crate) fn next(&self, place: &mut SinkPosition) -> Option<usize> {
        if place.deliveries < self.first {
            *place = self.start();
        }
        (place.deliveries < self.kept).then(|| (place.deliveries - self.first) as usize)
    }

    /// True if the end is next for a reader at `place`, with this number of waiting deliveries.
    pub(crate) fn is_at_end(&self, place: &SinkPosition, waiting: usize) -> bool {
        self.is_end_kept && !place.is_end && place.deliveries == self.through(waiting)
    }

    /// The number of all deliveries, with this number of waiting ones.
    pub(crate) fn through(&self, waiting: usize) -> u64 {
        self.first + waiting as u64
    }

    /// True if the oldest waiting delivery has arrived with a reader at `place`.
    pub(crate) fn has_arrived(&self, place: &SinkPosition) -> bool {
        self.first < place.deliveries
    }

    /// Marks the first `through` deliveries as stored, and the end if there is one.
    pub(crate) fn keep(&mut self, through: u64, is_end_kept: bool) {
        self.kept = self.kept.max(through);
        self.is_end_kept |= is_end_kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_result_is_handed_out_before_it_is_kept_and_its_number_stays() {
        let (mut sink_progress, mut place) = (SinkProgress::default(), SinkPosition::default());
        assert_eq!(sink_progress.next(&mut place), None);
        sink_progress.keep(2, false);
        // Two deliveries wait, of 3 and 1 records, and a third that is not stored yet.
        assert_eq!((sink_progress.next(&mut place), place.pass(3)), (Some(0), 2));
        assert_eq!((sink_progress.next(&mut place), place.pass(1)), (Some(1), 5));
        assert_eq!(sink_progress.next(&mut place), None);
        assert!(sink_progress.has_arrived(&place));
        sink_progress.went(3);
        assert!(sink_progress.has_arrived(&place));
        sink_progress.went(1);
        assert!(!sink_progress.has_arrived(&place));
        assert_eq!(sink_progress.gone.records, 4);
        sink_progress.keep(3, true);
        assert!(!sink_progress.is_at_end(&place, 1));
        assert_eq!((sink_progress.next(&mut place), place.pass(2)), (Some(0), 6));
        assert!(sink_progress.is_at_end(&place, 1));
        // The next process hands out the missing deliveries again, under the same numbers.
        let sink_progress = SinkProgress::resume(sink_progress.gone, 1, true);
        let mut place = sink_progress.start();
        assert_eq!((sink_progress.next(&mut place), place.pass(2)), (Some(0), 6));
    }

    #[test]
    fn dropped_results_leave_a_gap_in_the_numbers() {
        let (mut sink_progress, mut place) = (SinkProgress::default(), SinkPosition::default());
        sink_progress.went(5);
        sink_progress.keep(3, false);
        assert_eq!((sink_progress.next(&mut place), place.pass(1)), (Some(0), 7));
    }
}
