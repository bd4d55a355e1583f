//! Messages that wait for one client, in order: where they lie in the stream, not copies of them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::group::GroupId;
use millstream_types::{Grant, MemoryBudget};

use super::message::Message;
use crate::mqtt::packet::Qos;

/// A message that somebody gets.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Where it lies in the stream; `None` if it is handed over by value.
    pub(crate) offset: Option<u64>,
    /// What is promised of it.
    pub(crate) qos: Qos,
    /// The group that it is shared in.
    pub(crate) group: Option<GroupId>,
    /// It may have been sent before a restart.
    pub(crate) dup: bool,
    /// The flag as this client sees it.
    pub(crate) retain: bool,
    /// Identifiers of the subscriptions that brought it.
    pub(crate) ids: Box<[u32]>,
    /// Bytes of the message, about.
    pub(crate) size_bytes: u32,
    /// The message, if it need not be read first.
    pub(crate) message: Option<Arc<Message>>,
}

/// What an entry takes in memory beside its message, about.
const ENTRY_BYTES: usize = 96;
/// Entries that room is taken for at a time.
const ROOM_ENTRIES: usize = 64;

/// How much may wait.
#[derive(Debug, Clone)]
pub(crate) struct QueueLimits {
    pub(crate) messages: usize,
    pub(crate) bytes: u64,
    /// Messages at most once that may wait for a client that is connected, and messages of any kind that are kept in
    /// memory for it.
    pub(crate) live: usize,
    /// Room for entries, of all queues.
    pub(crate) room: MemoryBudget,
}

/// What waits.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    bytes: u64,
    /// Entries that are promised at most once.
    fleeting: usize,
    /// Entries whose message is in memory.
    live: usize,
    /// Room in the memory budget, and for how many entries.
    room: Option<Grant>,
    room_entries: usize,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// Takes an entry; how many messages are lost by it: this one, or older ones that make room.
    pub(crate) fn push(&mut self, mut entry: Entry, limits: &QueueLimits) -> u64 {
        let is_fleeting = entry.qos == Qos::AtMostOnce;
        if is_fleeting && (self.fleeting >= limits.live || entry.message.is_none()) {
            return 1;
        }
        if !is_fleeting && self.live >= limits.live {
            entry.message = None;
        }
        let mut lost = 0;
        if self.entries.len() >= self.room_entries && !self.take_room(limits) {
            if is_fleeting || self.pop().is_none() {
                return 1;
            }
            lost += 1;
        }
        self.count(&entry, true);
        self.entries.push_back(entry);
        while self.entries.len() > limits.messages || (self.bytes > limits.bytes && self.entries.len() > 1) {
            self.pop();
            lost += 1;
        }
        lost
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.count(&entry, false);
        self.give_room();
        Some(entry)
    }

    fn take_room(&mut self, limits: &QueueLimits) -> bool {
        let bytes = (ROOM_ENTRIES * ENTRY_BYTES) as u64;
        let is_taken = match &mut self.room {
            Some(room) => room.grow(bytes),
            None => {
                self.room = limits.room.take(bytes);
                self.room.is_some()
            }
        };
        self.room_entries += if is_taken { ROOM_ENTRIES } else { 0 };
        is_taken
    }

    /// An empty queue takes no room.
    fn give_room(&mut self) {
        if self.entries.is_empty() {
            (self.room, self.room_entries) = (None, 0);
        }
    }

    /// Puts back what was taken, in order.
    pub(crate) fn put_back(&mut self, entry: Entry) {
        self.count(&entry, true);
        let at = self.entries.partition_point(|known| known.offset < entry.offset);
        self.entries.insert(at, entry);
    }

    /// Takes out what is shared in a group.
    pub(crate) fn take_shared(&mut self) -> Vec<Entry> {
        let (shared, own): (VecDeque<_>, _) =
            std::mem::take(&mut self.entries).into_iter().partition(|entry| entry.group.is_some());
        self.entries = own;
        let shared = Vec::from(shared);
        shared.iter().for_each(|entry| self.count(entry, false));
        self.give_room();
        shared
    }

    /// The client is gone: what was promised at most once goes with it, and nothing is kept in memory.
    pub(crate) fn rest(&mut self) {
        self.entries.retain_mut(|entry| {
            entry.message = None;
            entry.qos > Qos::AtMostOnce && entry.offset.is_some()
        });
        (self.fleeting, self.live) = (0, 0);
        self.bytes = self.entries.iter().map(|entry| u64::from(entry.size_bytes)).sum();
        self.entries.shrink_to_fit();
        self.give_room();
    }

    /// Where the first few lie whose messages have to be read.
    pub(crate) fn missing(&self, most: usize) -> Vec<u64> {
        let first = self.entries.iter().take(most);
        first.filter(|entry| entry.message.is_none()).filter_map(|entry| entry.offset).collect()
    }

    /// Hands over a message that was read, or lets go of one that is no more. Whether it was waited for.
    pub(crate) fn fill(&mut self, offset: u64, message: Option<&Arc<Message>>) -> bool {
        let at = self.entries.partition_point(|known| known.offset.is_some_and(|known| known < offset));
        let Some(entry) = self.entries.get_mut(at).filter(|entry| entry.offset == Some(offset)) else { return false };
        match message {
            Some(_) if entry.message.is_some() => {}
            Some(message) => {
                entry.message = Some(Arc::clone(message));
                self.live += 1;
            }
            None => {
                if let Some(gone) = self.entries.remove(at) {
                    self.count(&gone, false);
                    self.give_room();
                }
            }
        }
        true
    }

    fn count(&mut self, entry: &Entry, is_more: bool) {
        let step = |count: &mut usize, by: bool| match (by, is_more) {
            (true, true) => *count += 1,
            (true, false) => *count -= 1,
            (false, _) => {}
        };
        step(&mut self.fleeting, entry.qos == Qos::AtMostOnce);
        step(&mut self.live, entry.message.is_some());
        let size = u64::from(entry.size_bytes);
        self.bytes = if is_more { self.bytes + size } else { self.bytes - size };
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    const MESSAGES: usize = 6;

    pub(in crate::mqtt::space) fn limits() -> QueueLimits {
        QueueLimits { messages: MESSAGES, bytes: 100, live: 3, room: MemoryBudget::new("room", 1 << 20) }
    }

    fn message() -> Arc<Message> {
        Arc::new(Message {
            topic: "a".into(),
            payload: Box::default(),
            qos: Qos::AtLeastOnce,
            properties: Box::default(),
            expires_ms: None,
            _room: None,
        })
    }

    pub(in crate::mqtt::space) fn entry(offset: u64, qos: Qos, size_bytes: u32) -> Entry {
        Entry {
            offset: Some(offset),
            qos,
            group: None,
            dup: false,
            retain: false,
            ids: Box::default(),
            size_bytes,
            message: Some(message()),
        }
    }

    #[test]
    fn what_is_promised_at_most_once_is_lost_to_a_full_queue_and_the_rest_is_read_again_when_its_turn_comes() {
        let mut queue = Queue::default();
        let lost: u64 = (0..5).map(|at| queue.push(entry(at, Qos::AtMostOnce, 1), &limits())).sum();
        assert_eq!((lost, queue.len()), (2, 3));
        assert_eq!(queue.push(entry(5, Qos::AtLeastOnce, 1), &limits()), 0);
        assert_eq!(queue.missing(9), [5]);
        queue.rest();
        assert_eq!((queue.len(), queue.missing(9)), (1, vec![5]));
        let read = message();
        assert!(queue.fill(5, Some(&read)) && !queue.fill(4, Some(&read)));
        assert_eq!(queue.missing(9), [] as [u64; 0]);
        assert!(queue.fill(5, None));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn the_oldest_make_room_and_one_that_is_larger_than_all_of_it_stays_alone() {
        let mut queue = Queue::default();
        let lost: Vec<u64> = (0..8).map(|at| queue.push(entry(at, Qos::AtLeastOnce, 1), &limits())).collect();
        assert_eq!(lost, [0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(queue.front().unwrap().offset, Some(2));
        assert_eq!(queue.push(entry(8, Qos::AtLeastOnce, 101), &limits()), 6);
        assert_eq!((queue.len(), queue.front().unwrap().offset), (1, Some(8)));
    }

    #[test]
    fn a_queue_takes_room_from_the_budget_and_without_room_the_oldest_goes() {
        let room = MemoryBudget::new("room", (2 * ROOM_ENTRIES * ENTRY_BYTES) as u64);
        let limits = QueueLimits { messages: 1_000, bytes: 1 << 20, live: 3, room: room.clone() };
        let (mut queue, mut other) = (Queue::default(), Queue::default());
        let lost: u64 = (0..200).map(|at| queue.push(entry(at, Qos::AtLeastOnce, 1), &limits)).sum();
        assert_eq!((lost, queue.len()), (72, 2 * ROOM_ENTRIES));
        assert_eq!(other.push(entry(1, Qos::AtLeastOnce, 1), &limits), 1, "no room at all");
        while queue.pop().is_some() {}
        assert_eq!(room.used_bytes(), 0);
    }

    proptest! {
        #[test]
        fn whatever_happens_the_counts_are_those_of_what_is_there(steps in prop::collection::vec((0..6_u8, 0..60_u32), 1..60)) {
            let mut queue = Queue::default();
            for (at, (step, size)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => drop(queue.push(entry(at as u64, Qos::AtLeastOnce, size), &limits())),
                    2 => drop(queue.push(entry(at as u64, Qos::AtMostOnce, size), &limits())),
                    3 => {
                        if let Some(taken) = queue.pop() {
                            queue.put_back(taken);
                        }
                    }
                    4 => queue.rest(),
                    _ => {
                        for offset in queue.missing(2) {
                            queue.fill(offset, (size % 2 == 0).then(message).as_ref());
                        }
                    }
                }
                let entries = &queue.entries;
                prop_assert_eq!(queue.bytes, entries.iter().map(|entry| u64::from(entry.size_bytes)).sum::<u64>());
                prop_assert_eq!(queue.fleeting, entries.iter().filter(|entry| entry.qos == Qos::AtMostOnce).count());
                prop_assert_eq!(queue.live, entries.iter().filter(|entry| entry.message.is_some()).count());
                prop_assert!(entries.len() <= MESSAGES);
                prop_assert!(entries.iter().is_sorted_by_key(|entry| entry.offset));
            }
        }
    }
}
