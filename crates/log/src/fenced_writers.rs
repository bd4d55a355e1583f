//! The writers of the embedded engine.
//!
//! A writer's transaction is one of a producer that the log has made up for it, so everything that holds for transactions
//! of Kafka's clients holds for it: what readers see, aborted records, compaction, recovery. It has no time limit: it ends
//! with its writer.
//!
//! Invariants
//! - A name has one writer that is not fenced. Its number is changed under the gate of atomic appends and under the lock
//!   of its open transaction, and both check it: so nothing of a fenced writer is accepted.
//! - Producers of writers have ids that no client is given. So a start knows the transactions whose writers are gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use millstream_types::{Record, TopicPartition};
use parking_lot::Mutex;

use crate::acceptor::Acceptor;
use crate::producer_ids::{ProducerIds, is_writer};
use crate::{AckLevel, Appended, AtomicAppend, Done, Error, Writer};

/// Names whose writers are gone are forgotten beyond this many.
const NAMES_MAX: usize = 10_000;

/// The names of all writers since the log was opened.
pub(crate) struct FencedWriters {
    acceptor: Acceptor,
    names: Mutex<WriterNames>,
    ids: Arc<ProducerIds>,
}

#[derive(Default)]
struct WriterNames {
    slots: HashMap<Arc<str>, Arc<NameSlot>>,
    /// A name without a slot may have had a writer.
    has_forgotten: bool,
}

/// The state that the writers of one name share.
#[derive(Default)]
struct NameSlot {
    /// The number of the writer that is not fenced; they are counted from 1.
    current: AtomicU64,
    open: Mutex<WriterTransaction>,
}

/// The open transaction of the writer that is not fenced; none if it has no partitions.
#[derive(Default)]
struct WriterTransaction {
    producer_id: i64,
    partitions: BTreeSet<TopicPartition>,
}

/// The claim of a writer to its name.
pub(crate) struct Fence {
    name: Arc<str>,
    slot: Arc<NameSlot>,
    number: u64,
}

struct FencedWriter {
    acceptor: Acceptor,
    fence: Fence,
}

impl FencedWriters {
    pub(crate) fn new(acceptor: Acceptor, ids: Arc<ProducerIds>) -> Self {
        Self { acceptor, names: Mutex::default(), ids }
    }

    /// The next writer of a name. Once it is there, all that the one before has appended is decided.
    pub(crate) fn begin(&self, name: &str) -> Result<Arc<dyn Writer>, Error> {
        self.acceptor.shared.check_open()?;
        let producer_id = self.ids.for_writer().ok_or(Error::Stopped)?;
        let mut names = self.names.lock();
        if names.slots.len() >= NAMES_MAX {
            names.slots.retain(|_, slot| Arc::strong_count(slot) > 1);
            names.has_forgotten = true;
        }
        let name: Arc<str> = name.into();
        let is_first = !names.has_forgotten && !names.slots.contains_key(&name);
        let slot = Arc::clone(names.slots.entry(Arc::clone(&name)).or_default());
        let mut open = slot.open.lock();
        let number = {
            let _gate = self.acceptor.shared.gate();
            slot.current.fetch_add(1, Ordering::AcqRel) + 1
        };
        drop(names);
        if !is_first {
            // If it cannot be aborted now, the next writer of the name tries it again.
            self.acceptor.abort(&open)?;
        }
        *open = WriterTransaction { producer_id, partitions: BTreeSet::new() };
        drop(open);
        let fence = Fence { name, slot, number };
        Ok(Arc::new(FencedWriter { acceptor: self.acceptor.clone(), fence }))
    }

    /// Aborts the transactions that writers of an earlier start left open.
    pub(crate) fn abort_left_open(&self) {
        let mut left: BTreeMap<i64, BTreeSet<TopicPartition>> = BTreeMap::new();
        for topic in self.acceptor.catalog.topics() {
            for partition in &topic.partitions {
                let open = partition.lock();
                let of_writers = open.producers.transactions.open().filter(|(id, _)| is_writer(*id));
                for (id, _) in of_writers {
                    left.entry(id).or_default().insert(partition.id.clone());
                }
            }
        }
        for (producer_id, partitions) in left {
            if let Err(error) = self.acceptor.abort(&WriterTransaction { producer_id, partitions }) {
                tracing::warn!(%error, "what a writer left open at the last end cannot be aborted before the next start");
            }
        }
    }
}

impl Acceptor {
    /// Aborts a transaction; returns once it and everything that was accepted before is durable.
    fn abort(&self, transaction: &WriterTransaction) -> Result<(), Error> {
        if transaction.partitions.is_empty() {
            return self.control(None, Vec::new());
        }
        let (sender, ended) = sync_channel(1);
        let done = Done::call(move |ended: Result<_, Error>| drop(sender.try_send(ended.map(drop))));
        self.end_writers(transaction, false, &AtomicAppend::default(), None, done.failing_on_full_disk())?;
        self.shared.answer(&ended)
    }

    fn end_writers(
        &self,
        transaction: &WriterTransaction,
        commit: bool,
        append: &AtomicAppend<'_>,
        fence: Option<&Fence>,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error> {
        let markers = self.markers(transaction.producer_id, 0, commit, &transaction.partitions);
        self.accept_atomic(append, Some(&markers), fence, AckLevel::Synced, done)
    }
}

impl Fence {
    /// Checks that no later writer of the name has begun.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.slot.current.load(Ordering::Acquire) == self.number {
            return Ok(());
        }
        Err(Error::Fenced { writer: self.name.to_string() })
    }
}

impl Writer for FencedWriter {
    fn name(&self) -> &str {
        &self.fence.name
    }

    fn append(&self, partition: &TopicPartition, records: &[Record<'_>]) -> Result<(), Error> {
        let log = self.acceptor.catalog.partition(partition)?;
        let mut open = self.fence.slot.open.lock();
        self.fence.check()?;
        log.accept_in_transaction(records, open.producer_id)?;
        open.partitions.insert(partition.clone());
        Ok(())
    }

    fn commit(&self, append: &AtomicAppend<'_>, level: AckLevel, done: Done<Vec<Appended>>) -> Result<(), Error> {
        let mut open = self.fence.slot.open.lock();
        if open.partitions.is_empty() {
            drop(open);
            return self.acceptor.accept_atomic(append, None, Some(&self.fence), level, done);
        }
        self.acceptor.end_writers(&open, true, append, Some(&self.fence), done)?;
        open.partitions.clear();
        Ok(())
    }

    fn abort(&self) -> Result<(), Error> {
        let mut open = self.fence.slot.open.lock();
        self.fence.check()?;
        if !open.partitions.is_empty() {
            let nothing = AtomicAppend::default();
            self.acceptor.end_writers(&open, false, &nothing, Some(&self.fence), Done::ignore())?;
            open.partitions.clear();
        }
        Ok(())
    }
}

impl Drop for FencedWriter {
    fn drop(&mut self) {
        // A log that has ended aborts it at its next start.
        let _ = self.abort();
    }
}
