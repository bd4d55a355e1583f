//! The bounded queue in front of a chain's instance: a lane for each instance that sends to it.
//!
//! A barrier stands in each lane between the batches of two epochs. A lane whose barrier has come waits until all lanes have
//! theirs, so that the reader sees all batches of one epoch before any of the next.
//!
//! Always true
//! - Batches of one sender keep their order, and senders take turns.
//! - A lane that has ended counts as one whose barrier is there.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::event_time::TimeMark;
use crate::batch::Batch;
use crate::connector::Waker;
use crate::document::NodeId;

/// Batches that may wait in one lane.
pub(super) const LANE_BATCHES_MAX: usize = 8;

pub(super) struct Inbox {
    state: Mutex<State>,
    /// Wakes the instance that reads.
    reader: Waker,
}

/// The next thing that a reader has to do.
#[derive(Debug)]
pub(super) enum Taken {
    /// A batch for a node.
    Batch(NodeId, Batch),
    /// Event time has come so far.
    Time(TimeMark),
    /// All lanes have the barrier of this epoch.
    Barrier(u64),
    /// All lanes have ended. Told once.
    End,
    /// Nothing yet; the reader is woken.
    Nothing,
}

struct State {
    lanes: Vec<Lane>,
    /// The lane that is asked first.
    turn: usize,
    /// Batches that go back to their source.
    returned: VecDeque<(NodeId, Batch)>,
    end_is_told: bool,
}

struct Lane {
    items: VecDeque<LaneItem>,
    /// Batches among the items.
    batches: usize,
    /// The epoch whose barrier has come; later items wait.
    barrier: Option<u64>,
    has_ended: bool,
    /// The event time in front of the items; `None` once its sender has no more records for good.
    time: Option<TimeMark>,
    sender: Waker,
    /// The sender waits for room.
    is_waited_for: bool,
}

enum LaneItem {
    Batch(NodeId, Batch),
    Time(TimeMark),
    Barrier(u64),
    /// With `true`, the sender has no more records for good; else it was stopped.
    End(bool),
}

impl Lane {
    /// `true` if the reader can take something now.
    fn is_readable(&self) -> bool {
        self.barrier.is_none() && !self.items.is_empty()
    }
}

impl State {
    fn is_readable(&self) -> bool {
        !self.returned.is_empty() || self.lanes.iter().any(Lane::is_readable)
    }

    /// The event times of the lanes that may have further records, in this run or a later one.
    fn times(&self) -> impl Iterator<Item = TimeMark> + Clone {
        self.lanes.iter().filter_map(|lane| lane.time)
    }

    /// The watermark of all lanes but one.
    fn beside(&self, number: usize) -> i64 {
        let others = self.lanes.iter().enumerate().filter(|(other, _)| *other != number);
        TimeMark::beside(others.filter_map(|(_, lane)| lane.time))
    }

    /// The epoch whose barrier all lanes have, which then go on.
    fn pass_barrier(&mut self) -> Option<u64> {
        let epoch = self.lanes.iter().find_map(|lane| lane.barrier)?;
        if !self.lanes.iter().all(|lane| lane.has_ended || lane.barrier.is_some()) {
            return None;
        }
        self.lanes.iter_mut().for_each(|lane| lane.barrier = None);
        Some(epoch)
    }
}

impl Inbox {
    /// An inbox with a lane for each sender.
    pub(super) fn new(reader: Waker, senders: impl IntoIterator<Item = Waker>) -> Self {
        let lane = |sender| Lane {
            items: VecDeque::new(),
            batches: 0,
            barrier: None,
            has_ended: false,
            time: Some(TimeMark::START),
            sender,
            is_waited_for: false,
        };
        let lanes = senders.into_iter().map(lane).collect();
        Self { state: Mutex::new(State { lanes, turn: 0, returned: VecDeque::new(), end_is_told: false }), reader }
    }

    /// Queues a batch in a lane, or returns it if the lane is full; its sender is woken once there is room.
    pub(super) fn offer(&self, lane: usize, node: NodeId, batch: Batch) -> Result<(), Batch> {
        let mut state = self.state.lock();
        if state.lanes[lane].batches >= LANE_BATCHES_MAX {
            state.lanes[lane].is_waited_for = true;
            return Err(batch);
        }
        state.lanes[lane].batches += 1;
        self.push(&mut state, lane, LaneItem::Batch(node, batch));
        Ok(())
    }

    /// Queues the event time behind the batches of a lane; it takes the place of one that waits there.
    pub(super) fn put_time(&self, lane: usize, time: TimeMark) {
        let mut state = self.state.lock();
        if let Some(LaneItem::Time(last)) = state.lanes[lane].items.back_mut() {
            *last = time;
        } else {
            self.push(&mut state, lane, LaneItem::Time(time));
        }
    }

    /// Queues the barrier of an epoch behind the batches of a lane.
    pub(super) fn put_barrier(&self, lane: usize, epoch: u64) {
        self.push(&mut self.state.lock(), lane, LaneItem::Barrier(epoch));
    }

    /// Queues the end of a lane behind its batches. A sender that was stopped has records for a later run: its event time
    /// still counts.
    pub(super) fn put_end(&self, lane: usize, for_good: bool) {
        self.push(&mut self.state.lock(), lane, LaneItem::End(for_good));
    }

    fn push(&self, state: &mut State, lane: usize, item: LaneItem) {
        let was_readable = state.is_readable();
        state.lanes[lane].items.push_back(item);
        if !was_readable && state.is_readable() {
            (self.reader)();
        }
    }

    /// Queues a batch that goes back to its source, whatever the room: waiting for it could wait for its own sender. Their
    /// number is bounded by the source's `max_in_flight`.
    pub(super) fn put_back(&self, node: NodeId, batch: Batch) {
        self.state.lock().returned.push_back((node, batch));
        (self.reader)();
    }

    /// The next thing to do: a batch that goes back to its source, or what is next in the next lane that does not wait.
    pub(super) fn take(&self) -> Taken {
        let mut state = self.state.lock();
        if let Some((node, batch)) = state.returned.pop_front() {
            return Taken::Batch(node, batch);
        }
        let count = state.lanes.len();
        loop {
            let mut next = (0..count).map(|step| (state.turn + step) % count);
            let Some(number) = next.find(|number| state.lanes[*number].is_readable()) else { return Taken::Nothing };
            state.turn = number + 1;
            let lane = &mut state.lanes[number];
            match lane.items.pop_front() {
                Some(LaneItem::Batch(node, batch)) => {
                    lane.batches -= 1;
                    let waiting = std::mem::take(&mut lane.is_waited_for).then(|| Waker::clone(&lane.sender));
                    let batch = batch.beside(state.beside(number));
                    drop(state);
                    if let Some(sender) = waiting {
                        sender();
                    }
                    return Taken::Batch(node, batch);
                }
                Some(LaneItem::Time(time)) => {
                    lane.time = Some(time);
                    return Taken::Time(TimeMark::behind(state.times()));
                }
                Some(LaneItem::Barrier(epoch)) => lane.barrier = Some(epoch),
                Some(LaneItem::End(for_good)) => {
                    lane.has_ended = true;
                    if for_good {
                        lane.time = None;
                    }
                }
                None => {}
            }
            if let Some(epoch) = state.pass_barrier() {
                return Taken::Barrier(epoch);
            }
            if !state.end_is_told && state.lanes.iter().all(|lane| lane.has_ended) {
                state.end_is_told = true;
                return Taken::End;
            }
        }
    }

    /// `true` for an inbox that nobody sends to.
    pub(super) fn is_without_senders(&self) -> bool {
        self.state.lock().lanes.is_empty()
    }

    /// The number of waiting batches.
    pub(super) fn len(&self) -> usize {
        let state = self.state.lock();
        state.returned.len() + state.lanes.iter().map(|lane| lane.batches).sum::<usize>()
    }

    /// The number of batches that may wait.
    pub(super) fn bound(&self) -> usize {
        self.state.lock().lanes.len() * LANE_BATCHES_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::batch::SourceBatch;

    fn batch(number: u64) -> Batch {
        let mut source = SourceBatch::default();
        source.push(number, None, 0, |out| out.extend_from_slice(b"{}"));
        source.finish()
    }

    fn counting() -> (Waker, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let calls = Arc::clone(&count);
        let wake = move || {
            calls.fetch_add(1, Ordering::Relaxed);
        };
        (Arc::new(wake), count)
    }

    fn inbox(senders: usize) -> Inbox {
        Inbox::new(counting().0, (0..senders).map(|_| counting().0))
    }

    fn offer(inbox: &Inbox, lane: usize, number: u64) {
        inbox.offer(lane, NodeId(0), batch(number)).unwrap();
    }

    /// Everything that can be taken now: numbers of batches, `|` and the number of an epoch, `.` for the end.
    fn taken(inbox: &Inbox) -> String {
        let word = |taken| match taken {
            Taken::Batch(_, batch) => Some(batch.offset(0).0.to_string()),
            Taken::Time(time) => {
                let quiet = if time.quiet_since_ms.is_some() { "q" } else { "" };
                Some(format!("@{}{quiet}", time.watermark_ms))
            }
            Taken::Barrier(epoch) => Some(format!("|{epoch}")),
            Taken::End => Some(".".to_owned()),
            Taken::Nothing => None,
        };
        std::iter::from_fn(|| word(inbox.take())).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn senders_take_turns_and_keep_their_order() {
        let inbox = inbox(3);
        [0, 1, 2].iter().for_each(|number| offer(&inbox, 0, *number));
        [20, 21].iter().for_each(|number| offer(&inbox, 2, *number));
        assert_eq!((inbox.len(), inbox.bound()), (5, 3 * LANE_BATCHES_MAX));
        inbox.put_back(NodeId(0), batch(99));
        assert_eq!(taken(&inbox), "99 0 20 1 21 2");
        assert_eq!(inbox.len(), 0);
    }

    #[test]
    fn a_full_lane_stops_its_own_sender_and_wakes_it_once_there_is_room() {
        let (reader, reads) = counting();
        let ((first, first_wakes), (second, second_wakes)) = (counting(), counting());
        let inbox = Inbox::new(reader, [first, second]);
        (0..LANE_BATCHES_MAX as u64).for_each(|number| offer(&inbox, 0, number));
        assert!(inbox.offer(0, NodeId(0), batch(100)).is_err());
        offer(&inbox, 1, 50);
        assert_eq!(reads.load(Ordering::Relaxed), 1, "the reader is woken once");
        assert!(matches!(inbox.take(), Taken::Batch(..)) && matches!(inbox.take(), Taken::Batch(..)));
        let wakes = (first_wakes.load(Ordering::Relaxed), second_wakes.load(Ordering::Relaxed));
        assert_eq!(wakes, (1, 0));
        offer(&inbox, 0, 100);
    }

    #[test]
    fn batches_of_the_next_epoch_wait_for_the_barriers_of_all_lanes() {
        let (reader, reads) = counting();
        let inbox = Inbox::new(reader, [counting().0, counting().0]);
        offer(&inbox, 0, 1);
        inbox.put_barrier(0, 7);
        offer(&inbox, 0, 2);
        assert_eq!(taken(&inbox), "1");
        let before = reads.load(Ordering::Relaxed);
        offer(&inbox, 0, 3);
        assert_eq!(reads.load(Ordering::Relaxed), before, "nobody is woken for what waits");
        offer(&inbox, 1, 10);
        assert_eq!(reads.load(Ordering::Relaxed), before + 1);
        assert_eq!(taken(&inbox), "10");
        inbox.put_barrier(1, 7);
        offer(&inbox, 1, 11);
        assert_eq!(taken(&inbox), "|7 2 11 3");
    }

    #[test]
    fn a_lane_that_has_ended_holds_up_no_barrier_and_the_end_of_all_is_told_once() {
        let inbox = inbox(2);
        offer(&inbox, 0, 1);
        inbox.put_end(0, true);
        assert_eq!(taken(&inbox), "1");
        inbox.put_barrier(1, 3);
        offer(&inbox, 1, 2);
        assert_eq!(taken(&inbox), "|3 2");
        inbox.put_end(1, true);
        assert_eq!(taken(&inbox), ".");
        assert_eq!(taken(&inbox), "");
    }

    #[test]
    fn the_end_of_a_lane_completes_the_barrier_that_waits_for_it() {
        let inbox = inbox(2);
        inbox.put_barrier(0, 3);
        inbox.put_end(0, true);
        assert_eq!(taken(&inbox), "");
        inbox.put_end(1, true);
        assert_eq!(taken(&inbox), "|3 .");
    }

    #[test]
    fn event_time_is_the_least_of_the_lanes_that_are_not_quiet() {
        let inbox = inbox(2);
        let at = |watermark_ms| TimeMark { watermark_ms, quiet_since_ms: None };
        offer(&inbox, 0, 1);
        inbox.put_time(0, at(10));
        inbox.put_time(0, at(20));
        assert_eq!(taken(&inbox), format!("1 @{}", i64::MIN));
        inbox.put_time(1, at(15));
        offer(&inbox, 1, 2);
        assert_eq!(taken(&inbox), "@15 2");
        inbox.put_barrier(0, 1);
        inbox.put_time(0, at(30));
        inbox.put_time(1, TimeMark { watermark_ms: 16, quiet_since_ms: Some(5) });
        assert_eq!(taken(&inbox), "@20", "the time of the next epoch waits for its barrier");
        inbox.put_barrier(1, 1);
        assert_eq!(taken(&inbox), "|1 @30");
        inbox.put_time(0, TimeMark { watermark_ms: 31, quiet_since_ms: Some(9) });
        assert_eq!(taken(&inbox), "@31q");
    }

    #[test]
    fn a_sender_that_was_stopped_still_holds_event_time_back_and_one_that_has_ended_does_not() {
        let at = |watermark_ms| TimeMark { watermark_ms, quiet_since_ms: None };
        for (for_good, expected) in [(true, "@10 @30"), (false, "@10 @10")] {
            let inbox = inbox(2);
            inbox.put_time(0, at(10));
            inbox.put_time(1, at(20));
            assert_eq!(taken(&inbox), format!("@{} @10", i64::MIN));
            inbox.put_end(0, for_good);
            assert_eq!(taken(&inbox), "");
            inbox.put_time(1, at(20));
            inbox.put_barrier(1, 1);
            inbox.put_time(1, at(30));
            let seen = taken(&inbox).replace("|1 ", "");
            assert_eq!(seen, expected.replace("@10 @30", "@20 @30"));
        }
    }
}
