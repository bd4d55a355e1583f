//! Acknowledgements inside the process: a source's position moves once everything read before it is finished.
//!
//! ```text
//!  source ── batch + Ack ──► operators ──► sinks      every clone of a batch shares one Ack;
//!    ▲                                                 the last clone that is dropped finishes the batch
//!    └──── position up to which all batches are finished ◄──── Tracker
//! ```
//!
//! Always true
//! - A batch is finished when no clone of it, and no batch made from it, is left: all were written or dropped on purpose.
//! - A tracker that is closed moves no position any more. It is closed before the batches of a failed or killed job
//!   are thrown away.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::{Grant, MonotonicClock, TopicId};
use parking_lot::Mutex;

/// The place of a source up to which it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    /// The topic, for sources that read one: another topic of the same name has another id.
    pub topic: TopicId,
    /// The partition of a log, or 0.
    pub partition: u32,
    /// The next offset to read.
    pub offset: u64,
    /// The epoch of the record before `offset`, for sources that have epochs.
    pub epoch: u32,
}

impl SourcePosition {
    /// The place after `records` records of a source without a log.
    pub(crate) fn after(records: u64) -> Self {
        Self { topic: TopicId(0), partition: 0, offset: records, epoch: 0 }
    }
}

/// The unfinished batches of one source, in the order in which they were read.
pub(crate) struct Tracker {
    state: Mutex<TrackerState>,
    /// Wakes the source's task when a position can move.
    wake: Box<dyn Fn() + Send + Sync>,
    clock: Arc<dyn MonotonicClock>,
}

/// The oldest unfinished batch of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OldestBatch {
    pub(crate) partition: u32,
    /// The offset of its first record.
    pub(crate) first: u64,
    /// The time since a record of the source was last written, or since the batch was read if that was later.
    pub(crate) age: Duration,
}

#[derive(Default)]
struct TrackerState {
    in_flight: VecDeque<InFlightBatch>,
    /// Number of the first entry.
    first: u64,
    /// When a record was last written, or the first entry was read if that was later.
    moved_at: Duration,
    records: u64,
    finished: Vec<SourcePosition>,
    is_closed: bool,
}

impl TrackerState {
    /// Finishes a batch; `true` if a position has moved.
    fn finish(&mut self, number: u64, clock: &dyn MonotonicClock) -> bool {
        let Some(entry) = number.checked_sub(self.first).and_then(|at| self.in_flight.get_mut(at as usize)) else {
            return false;
        };
        entry.memory = None;
        if self.is_closed {
            return false;
        }
        entry.is_finished = true;
        self.moved_at = clock.now();
        let first = self.first;
        while let Some(entry) = self.in_flight.pop_front_if(|entry| entry.is_finished) {
            self.first += 1;
            self.records -= u64::from(entry.records);
            match self.finished.iter_mut().find(|known| known.partition == entry.position.partition) {
                Some(known) => *known = entry.position,
                None => self.finished.push(entry.position),
            }
        }
        self.first > first
    }
}

struct InFlightBatch {
    position: SourcePosition,
    /// The offset of the first record.
    from: u64,
    records: u32,
    /// Given back once the batch is finished.
    memory: Option<Grant>,
    is_finished: bool,
}

impl Tracker {
    pub(crate) fn new(clock: Arc<dyn MonotonicClock>, wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), wake: Box::new(wake), clock })
    }

    /// Registers a batch of `records` records, the first of which has the offset `from`, and after which the source
    /// stands at `position`. It holds `memory` until it is finished.
    pub(crate) fn begin(
        self: &Arc<Self>,
        position: SourcePosition,
        from: u64,
        records: u32,
        memory: Option<Grant>,
    ) -> BatchAck {
        let mut state = self.state.lock();
        let number = state.first + state.in_flight.len() as u64;
        state.records += u64::from(records);
        if state.in_flight.is_empty() {
            state.moved_at = self.clock.now();
        }
        state.in_flight.push_back(InFlightBatch { position, from, records, memory, is_finished: false });
        BatchAck(Arc::new(BatchClaim { tracker: Arc::clone(self), number }))
    }

    /// Records that were read and are not finished.
    pub(crate) fn in_flight_records(&self) -> u64 {
        self.state.lock().records
    }

    /// The batch that holds back the position; `None` if everything is finished.
    pub(crate) fn oldest(&self) -> Option<OldestBatch> {
        let state = self.state.lock();
        let oldest = state.in_flight.front()?;
        let age = self.clock.now().saturating_sub(state.moved_at);
        Some(OldestBatch { partition: oldest.position.partition, first: oldest.from, age })
    }

    /// `true` if the position has ever moved.
    pub(crate) fn has_moved(&self) -> bool {
        self.state.lock().first > 0
    }

    /// The positions that have moved since the last call.
    pub(crate) fn take_finished(&self) -> Vec<SourcePosition> {
        std::mem::take(&mut self.state.lock().finished)
    }

    /// Ends the movement of positions.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    fn finish(&self, number: u64) {
        if self.state.lock().finish(number, &*self.clock) {
            (self.wake)();
        }
    }
}

/// A claim on a source's position, shared by all descendants of one batch.
#[derive(Clone)]
pub(crate) struct BatchAck(Arc<BatchClaim>);

struct BatchClaim {
    tracker: Arc<Tracker>,
    number: u64,
}

impl BatchAck {
    /// A part of the batch is written: the queue in front of its sink moves.
    pub(crate) fn part_is_written(&self) {
        let tracker = &self.0.tracker;
        tracker.state.lock().moved_at = tracker.clock.now();
    }

    /// Marks the batch as never finished: its source's position stays where it is.
    pub(crate) fn fail(&self) {
        self.0.tracker.close();
    }
}

impl Drop for BatchClaim {
    fn drop(&mut self) {
        // Batches that a panic throws away were not written.
        if std::thread::panicking() {
            self.tracker.close();
        }
        self.tracker.finish(self.number);
    }
}

impl fmt::Debug for BatchAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ack({})", self.0.number)
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::ManualClock;

    use super::*;

    fn tracker(clock: &Arc<ManualClock>) -> Arc<Tracker> {
        Tracker::new(Arc::clone(clock) as _, || ())
    }

    fn position(offset: u64) -> SourcePosition {
        SourcePosition::after(offset)
    }

    #[test]
    fn a_position_moves_when_all_batches_before_it_are_finished() {
        let tracker = tracker(&Arc::default());
        let (first, second) = (tracker.begin(position(10), 0, 10, None), tracker.begin(position(15), 10, 5, None));
        let copy = first.clone();
        drop(second);
        drop(first);
        assert_eq!((tracker.take_finished(), tracker.in_flight_records()), (vec![], 15));
        drop(copy);
        assert_eq!((tracker.take_finished(), tracker.in_flight_records()), (vec![position(15)], 0));
    }

    #[test]
    fn what_failed_holds_its_position_for_good() {
        let tracker = tracker(&Arc::default());
        let ack = tracker.begin(position(10), 0, 10, None);
        ack.fail();
        drop(ack);
        assert_eq!((tracker.take_finished(), tracker.in_flight_records()), (vec![], 10));
    }

    #[test]
    fn the_oldest_batch_ages_while_nothing_is_written() {
        let clock = Arc::new(ManualClock::default());
        let tracker = tracker(&clock);
        assert_eq!(tracker.oldest(), None);
        let (first, second) = (tracker.begin(position(10), 3, 7, None), tracker.begin(position(15), 10, 5, None));
        clock.advance(Duration::from_secs(9));
        let oldest = |first, seconds| Some(OldestBatch { partition: 0, first, age: Duration::from_secs(seconds) });
        assert_eq!(tracker.oldest(), oldest(3, 9));
        drop(first);
        assert_eq!(tracker.oldest(), oldest(10, 0));
        clock.advance(Duration::from_secs(2));
        assert_eq!(tracker.oldest(), oldest(10, 2));
        second.part_is_written();
        assert_eq!(tracker.oldest(), oldest(10, 0));
        clock.advance(Duration::from_secs(1));
        assert_eq!(tracker.oldest(), oldest(10, 1));
        drop(second);
        assert_eq!(tracker.oldest(), None);
    }
}
