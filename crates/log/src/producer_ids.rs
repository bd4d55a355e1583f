//! The ids of idempotent producers: the epoch of the start, which grows with each, and a count within it. So none is handed
//! out twice. Half of the counts are for writers of the log, which no client is given.

use std::sync::atomic::{AtomicU32, Ordering};

use millstream_types::Epoch;

/// The bit in which the ids of writers differ from those of clients.
const WRITERS: i64 = 1 << 31;

/// The producer ids of one start.
#[derive(Debug)]
pub(crate) struct ProducerIds {
    epoch: Epoch,
    clients: AtomicU32,
    writers: AtomicU32,
}

impl ProducerIds {
    pub(crate) fn of_start(epoch: Epoch) -> Self {
        Self { epoch, clients: AtomicU32::new(0), writers: AtomicU32::new(0) }
    }

    /// An id for a client; `None` once they are used up.
    pub(crate) fn for_client(&self) -> Option<i64> {
        self.next(&self.clients)
    }

    /// An id for a writer; `None` once they are used up.
    pub(crate) fn for_writer(&self) -> Option<i64> {
        self.next(&self.writers).map(|id| id | WRITERS)
    }

    fn next(&self, counter: &AtomicU32) -> Option<i64> {
        let next = |count: u32| count.checked_add(1).filter(|next| i64::from(*next) <= WRITERS);
        let count = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(i64::from(self.epoch.0) << 32 | i64::from(count))
    }
}

/// `true` for the id of a writer.
pub(crate) fn is_writer(producer_id: i64) -> bool {
    producer_id & WRITERS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_clients_writers_and_starts_differ_until_they_are_used_up() {
        let ids = ProducerIds::of_start(Epoch(3));
        assert_eq!((ids.for_client(), ids.for_client()), (Some(3 << 32), Some((3 << 32) + 1)));
        assert_eq!(ids.for_writer(), Some((3 << 32) + (1 << 31)));
        assert!(is_writer(ids.for_writer().unwrap()) && !is_writer(ids.for_client().unwrap()));
        ids.clients.store(i32::MAX as u32, Ordering::Relaxed);
        assert_eq!(ids.for_client(), Some((4 << 32) - (1 << 31) - 1));
        assert_eq!(ids.for_client(), None);
        ids.writers.store(i32::MAX as u32, Ordering::Relaxed);
        assert_eq!(ids.for_writer(), Some((4 << 32) - 1));
        assert_eq!(ids.for_writer(), None);
    }
}
