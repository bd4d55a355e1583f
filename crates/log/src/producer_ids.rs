//! The ids of idempotent producers: the epoch of the start, which grows with each, and a count within it. So none is handed
//! out twice. Half of the counts are for writers of the log, which no client is given, and a quarter for producers with a
//! transactional id.

use std::sync::atomic::{AtomicU32, Ordering};

use millstream_types::Epoch;

/// The bit in which the ids of writers differ from those of clients.
const WRITERS: i64 = 1 << 31;
/// The bit in which the ids of clients with transactions differ from those of other clients.
const TRANSACTIONAL: i64 = 1 << 30;

/// The producer ids of one start.
#[derive(Debug)]
pub(crate) struct ProducerIds {
    epoch: Epoch,
    clients: AtomicU32,
    transactional: AtomicU32,
    writers: AtomicU32,
}

impl ProducerIds {
    pub(crate) fn of_start(epoch: Epoch) -> Self {
        let zero = || AtomicU32::new(0);
        Self { epoch, clients: zero(), transactional: zero(), writers: zero() }
    }

    /// An id for a client; `None` once they are used up.
    pub(crate) fn for_client(&self) -> Option<i64> {
        self.next(&self.clients, TRANSACTIONAL)
    }

    /// An id for a client with a transactional id; `None` once they are used up.
    pub(crate) fn for_transactions(&self) -> Option<i64> {
        self.next(&self.transactional, TRANSACTIONAL).map(|id| id | TRANSACTIONAL)
    }

    /// An id for a writer; `None` once they are used up.
    pub(crate) fn for_writer(&self) -> Option<i64> {
        self.next(&self.writers, WRITERS).map(|id| id | WRITERS)
    }

    fn next(&self, counter: &AtomicU32, end: i64) -> Option<i64> {
        let next = |count: u32| count.checked_add(1).filter(|next| i64::from(*next) <= end);
        let count = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(i64::from(self.epoch.0) << 32 | i64::from(count))
    }
}

/// `true` for the id of a writer.
pub(crate) fn is_writer(producer_id: i64) -> bool {
    producer_id & WRITERS != 0
}

/// `true` for a producer id that [`crate::KafkaLog::next_transactional_producer_id`] has handed out, whether or not its transactional id is still
/// known. Ids that earlier versions have handed out are not told.
pub fn is_transactional_producer(producer_id: i64) -> bool {
    !is_writer(producer_id) && producer_id & TRANSACTIONAL != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_clients_transactions_writers_and_starts_differ_until_they_are_used_up() {
        let ids = ProducerIds::of_start(Epoch(3));
        assert_eq!((ids.for_client(), ids.for_client()), (Some(3 << 32), Some((3 << 32) + 1)));
        assert_eq!(ids.for_transactions(), Some((3 << 32) + (1 << 30)));
        assert_eq!(ids.for_writer(), Some((3 << 32) + (1 << 31)));
        assert!(is_writer(ids.for_writer().unwrap()) && !is_writer(ids.for_client().unwrap()));
        let is_transactional = |id: Option<i64>| is_transactional_producer(id.unwrap());
        assert!(is_transactional(ids.for_transactions()));
        assert!(!is_transactional(ids.for_client()) && !is_transactional(ids.for_writer()));
        ids.clients.store((1 << 30) - 1, Ordering::Relaxed);
        assert_eq!(ids.for_client(), Some((3 << 32) + (1 << 30) - 1));
        assert_eq!(ids.for_client(), None);
        ids.transactional.store((1 << 30) - 1, Ordering::Relaxed);
        assert_eq!(ids.for_transactions(), Some((3 << 32) + (1 << 31) - 1));
        assert_eq!(ids.for_transactions(), None);
        ids.writers.store(i32::MAX as u32, Ordering::Relaxed);
        assert_eq!(ids.for_writer(), Some((4 << 32) - 1));
        assert_eq!(ids.for_writer(), None);
        assert!(!is_transactional_producer((4 << 32) - 1), "all bits of a writer's count may be set");
    }
}
