//! Messages that wait for one client, in order: where they lie in the stream, not copies of them.

use std::collections::VecDeque;
use std::sync::Arc;

use millstream_mqtt::Qos;
use millstream_types::{Grant, MemoryBudget};

use super::ids::GroupId;
use super::message::Message;

/// A message that somebody gets.
#[derive(Debug, Clone)]
pub(crate) struct QueueEntry {
    /// The offset in the stream; `None` if it is handed over by value.
    pub(crate) offset: Option<u64>,
    /// The QoS of this delivery.
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

/// Approximate memory of an entry beside its message.
const ENTRY_BYTES: usize = 96;
/// Entries that room is taken for at a time.
const ROOM_ENTRIES: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct QueueLimits {
    pub(crate) messages: usize,
    pub(crate) bytes: u64,
    /// Messages at most once that may wait for a connected client, and messages of any kind kept in memory for it.
    pub(crate) live: usize,
    /// Room for entries, of all queues.
    pub(crate) room: MemoryBudget,
}

#[derive(Debug, Default)]
pub(crate) struct MessageQueue {
    entries: VecDeque<QueueEntry>,
    bytes: u64,
    /// Entries that are promised at most once.
    fleeting: usize,
    /// Entries whose message is in memory.
    live: usize,
    /// Room in the memory budget, and for how many entries.
    room: Option<Grant>,
    room_entries: usize,
}

impl MessageQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn front(&self) -> Option<&QueueEntry> {
        self.entries.front()
    }

    /// Takes an entry; returns how many messages are lost by it: this one, or older ones that make room.
    pub(crate) fn push(&mut self, mut entry: QueueEntry, limits: &QueueLimits) -> u64 {
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

    pub(crate) fn pop(&mut self) -> Option<QueueEntry> {
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
    pub(crate) fn put_back(&mut self, entry: QueueEntry) {
        self.count(&entry, true);
        let at = self.entries.partition_point(|known| known.offset < entry.offset);
        self.entries.insert(at, entry);
    }

    /// Takes out what is shared in a group.
    pub(crate) fn take_shared(&mut self) -> Vec<QueueEntry> {
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

    /// Offsets of those among the first `most` entries whose messages have to be read.
    pub(crate) fn missing(&self, most: usize) -> Vec<u64> {
        let first = self.entries.iter().take(most);
        first.filter(|entry| entry.message.is_none()).filter_map(|entry| entry.offset).collect()
    }

    /// Takes a message that was read, or drops one that is no more; true if an entry waited for it.
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

    fn count(&mut self, entry: &QueueEntry, is_more: bool) {
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
pub(super) mod tests;
