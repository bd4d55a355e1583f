//! A hierarchical timing wheel with a resolution of one millisecond.
//!
//! Adding, cancelling and expiring a timer take constant time, and timers need no clock. There are six levels of 64 slots: a
//! slot of level `n` spans 64ⁿ milliseconds, and its timers move to finer levels when their time approaches. Owner: one
//! thread, which advances the time.
//!
//! ```text
//!   level 2  │ 4,096 ms each │ ──┐
//!   level 1  │    64 ms each │ ◄─┘ ──┐
//!   level 0  │     1 ms each │ ◄─────┘ ──► due
//! ```

use std::time::Duration;

const LEVELS: usize = 6;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// The list of timers that were due when they were added.
const OVERDUE: usize = LEVELS * SLOTS;
/// The longest delay (2,144 years); timers further away expire then.
const FARTHEST_MS: u64 = (SLOTS as u64 - 1) << (SLOT_BITS * (LEVELS as u32 - 1));
const NONE: u32 = u32::MAX;

/// A wheel of pending timers.
#[derive(Debug)]
pub(crate) struct TimerWheel<T> {
    /// All that is due up to this moment has been handed out.
    now_ms: u64,
    /// The first of each list; one list for each slot of each level, and [`OVERDUE`].
    heads: Vec<u32>,
    /// The slots of each level with timers, as bits.
    occupied: [u64; LEVELS],
    nodes: Vec<WheelEntry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct WheelEntry<T> {
    due_ms: u64,
    /// `None` while the node is free.
    value: Option<T>,
    /// Grows with each use, so that an old id does not cancel a later timer.
    uses: u32,
    list: usize,
    before: u32,
    after: u32,
}

/// The id of a pending timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerId {
    node: u32,
    uses: u32,
}

/// The first millisecond that is not before `time`.
pub(crate) fn due_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl<T> TimerWheel<T> {
    /// An empty wheel at the time `now_ms`.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { now_ms, heads: vec![NONE; OVERDUE + 1], occupied: [0; LEVELS], nodes: Vec::new(), free: Vec::new() }
    }

    /// True if no timer is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.nodes.len()
    }

    /// Has `value` handed out by the first [`Self::advance`] to `due_ms` or later; by the next one if that is past.
    pub(crate) fn schedule(&mut self, due_ms: u64, value: T) -> TimerId {
        let due_ms = due_ms.min(self.now_ms.saturating_add(FARTHEST_MS));
        let fresh = WheelEntry { due_ms, value: Some(value), uses: 0, list: OVERDUE, before: NONE, after: NONE };
        let node = match self.free.pop() {
            Some(node) => {
                let uses = self.nodes[node as usize].uses.wrapping_add(1);
                self.nodes[node as usize] = WheelEntry { uses, ..fresh };
                node
            }
            None => {
                self.nodes.push(fresh);
                (self.nodes.len() - 1) as u32
            }
        };
        self.link(node);
        TimerId { node, uses: self.nodes[node as usize].uses }
    }

    /// Cancels a timer; `None` if it has expired.
    pub(crate) fn cancel(&mut self, ticket: TimerId) -> Option<T> {
        let node = self.nodes.get(ticket.node as usize).filter(|node| node.uses == ticket.uses)?;
        node.value.as_ref()?;
        self.unlink(ticket.node);
        self.release(ticket.node)
    }

    /// Appends to `due` all that is due up to `now_ms`, by due time. Time that goes backwards is ignored.
    pub(crate) fn advance(&mut self, now_ms: u64, due: &mut Vec<T>) {
        self.take_list(OVERDUE, due);
        while let Some((level, slot, start_ms)) = self.next_slot().filter(|(_, _, start_ms)| *start_ms <= now_ms) {
            self.now_ms = self.now_ms.max(start_ms);
            let list = level * SLOTS + slot;
            if level == 0 {
                self.take_list(list, due);
            } else {
                self.spread(list);
                // The timers that are due at the first millisecond of the slot.
                self.take_list(OVERDUE, due);
            }
        }
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// When to call [`Self::advance`] next: not after the first thing is due. `None` if nothing waits.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        if self.heads[OVERDUE] != NONE {
            return Some(self.now_ms);
        }
        self.next_slot().map(|(_, _, start_ms)| start_ms)
    }

    /// The first slot that holds something, and the first millisecond that it spans.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // A finer level ends before the next slot of a coarser one begins, so the first level with anything has it.
        (0..LEVELS).find_map(|level| {
            let occupied = self.occupied[level];
            if occupied == 0 {
                return None;
            }
            let shift = SLOT_BITS * level as u32;
            let at = self.now_ms >> shift;
            let here = (at % SLOTS as u64) as u32;
            let ahead = occupied.rotate_right(here).trailing_zeros();
            let slot = (here + ahead) as usize % SLOTS;
            Some((level, slot, (at + u64::from(ahead)) << shift))
        })
    }

    /// The list in which something waits that is due then: the coarsest level on which it differs from now.
    fn list_of(&self, due_ms: u64) -> usize {
        if due_ms <= self.now_ms {
            return OVERDUE;
        }
        let highest = 63 - (due_ms ^ self.now_ms).leading_zeros();
        // Across the border of the last level's turn the slots of that level are used round about.
        let level = ((highest / SLOT_BITS) as usize).min(LEVELS - 1);
        level * SLOTS + (due_ms >> (SLOT_BITS * level as u32)) as usize % SLOTS
    }

    fn link(&mut self, node: u32) {
        let list = self.list_of(self.nodes[node as usize].due_ms);
        let after = std::mem::replace(&mut self.heads[list], node);
        if after != NONE {
            self.nodes[after as usize].before = node;
        }
        let linked = &mut self.nodes[node as usize];
        (linked.list, linked.before, linked.after) = (list, NONE, after);
        if list != OVERDUE {
            self.occupied[list / SLOTS] |= 1 << (list % SLOTS);
        }
    }

    fn unlink(&mut self, node: u32) {
        let WheelEntry { list, before, after, .. } = self.nodes[node as usize];
        if after != NONE {
            self.nodes[after as usize].before = before;
        }
        if before != NONE {
            self.nodes[before as usize].after = after;
            return;
        }
        self.heads[list] = after;
        if after == NONE && list != OVERDUE {
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        }
    }

    fn release(&mut self, node: u32) -> Option<T> {
        self.free.push(node);
        self.nodes[node as usize].value.take()
    }

    fn take_list(&mut self, list: usize, due: &mut Vec<T>) {
        while self.heads[list] != NONE {
            let node = self.heads[list];
            self.unlink(node);
            due.extend(self.release(node));
        }
    }

    /// Moves the timers of a slot whose time has begun to finer levels.
    fn spread(&mut self, list: usize) {
        let mut node = std::mem::replace(&mut self.heads[list], NONE);
        self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        while node != NONE {
            let after = self.nodes[node as usize].after;
            self.link(node);
            node = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn advanced(wheel: &mut TimerWheel<u64>, now_ms: u64) -> Vec<u64> {
        let mut due = Vec::new();
        wheel.advance(now_ms, &mut due);
        due
    }

    #[test]
    fn each_thing_is_handed_out_once_at_its_millisecond_as_a_sorted_map_would() {
        let mut random = fastrand::Rng::with_seed(7);
        for start in [0, 63, 4_095, 1 << 36, (1 << 36) - 5] {
            let mut wheel = TimerWheel::new(start);
            let mut model: BTreeMap<(u64, u64), TimerId> = BTreeMap::new();
            let (mut now, mut id) = (start, 0);
            for _ in 0..20_000 {
                match random.u8(..4) {
                    0 | 1 => {
                        let due = now + (random.u64(..) >> random.u32(30..64));
                        model.insert((due, id), wheel.schedule(due, id));
                        id += 1;
                    }
                    2 => {
                        if let Some((&key, &ticket)) = model.iter().nth(random.usize(..4)) {
                            model.remove(&key);
                            assert_eq!(wheel.cancel(ticket), Some(key.1));
                            assert_eq!(wheel.cancel(ticket), None);
                        }
                    }
                    _ => {
                        let first = model.first_key_value().map(|((due, _), _)| *due);
                        assert!(wheel.next_ms().is_none() == first.is_none());
                        assert!(wheel.next_ms().unwrap_or(0) <= first.unwrap_or(u64::MAX).max(now));
                        now += random.u64(..) >> random.u32(30..64);
                        let later = model.split_off(&(now + 1, 0));
                        let mut expected: Vec<u64> = model.keys().map(|(_, id)| *id).collect();
                        model = later;
                        let mut handed = advanced(&mut wheel, now);
                        handed.sort_unstable();
                        expected.sort_unstable();
                        assert_eq!(handed, expected, "at {now}");
                    }
                }
                assert_eq!(wheel.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn things_come_in_the_order_of_their_time() {
        let mut wheel = TimerWheel::new(10);
        for due in [5_000, 11, 70, 64, 300_000, 12, 4_096] {
            wheel.schedule(due, due);
        }
        assert_eq!(wheel.next_ms(), Some(11));
        assert_eq!(advanced(&mut wheel, 400_000), [11, 12, 64, 70, 4_096, 5_000, 300_000]);
        assert_eq!(wheel.next_ms(), None);
    }

    #[test]
    fn past_timers_come_next_and_time_does_not_go_back() {
        let mut wheel = TimerWheel::new(100);
        wheel.schedule(50, 1);
        assert_eq!(wheel.next_ms(), Some(100));
        assert_eq!(advanced(&mut wheel, 90), [1]);
        wheel.schedule(101, 2);
        assert_eq!(advanced(&mut wheel, 100), Vec::<u64>::new());
        assert_eq!(advanced(&mut wheel, 101), [2]);
        wheel.schedule(u64::MAX, 3);
        assert_eq!(advanced(&mut wheel, u64::MAX), [3]);
    }

    #[test]
    fn moments_round_up_to_whole_milliseconds() {
        assert_eq!(due_ms(Duration::from_micros(1_001)), 2);
        assert_eq!(due_ms(Duration::from_millis(1)), 1);
    }
}
