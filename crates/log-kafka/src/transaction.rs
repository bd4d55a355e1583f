//! The records of one transaction, and the commits that end it.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_log::{Appended, AtomicAppend, Done, Error};
use millstream_types::{Offset, Record, TopicPartition};
use parking_lot::Mutex;

use crate::core::Core;
use crate::partition_state::PartitionState;
use crate::queue::AppendQueue;

/// The partitions of a commit, in the order of its entries, and the bytes that each entry counts for.
pub(crate) type Targets = Vec<(Arc<PartitionState>, usize)>;

/// The size of batches, and the bytes that an append counts for until it has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendSize {
    pub(crate) batch_max_bytes: usize,
    pub(crate) accepted_bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Transaction {
    parts: HashMap<TopicPartition, Part>,
    commits: Vec<Commit>,
    end: End,
    /// A request with records of it has left.
    pub(crate) was_sent: bool,
}

/// The end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum End {
    /// It takes more records.
    #[default]
    Open,
    Commit,
    Abort,
}

#[derive(Debug)]
struct Part {
    partition: Arc<PartitionState>,
    queue: AppendQueue,
    /// The offsets of the first and the last record that are stored.
    stored: Option<(Offset, Offset)>,
}

/// The stored records of a transaction in one partition.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) partition: Arc<PartitionState>,
    pub(crate) first: Offset,
    pub(crate) last: Offset,
}

#[derive(Debug)]
struct Commit {
    done: Done<Vec<Appended>>,
    /// The offsets of its entries, once they are stored.
    appended: Arc<Mutex<Vec<Option<Appended>>>>,
}

impl Transaction {
    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// Adds records.
    pub(crate) fn append(
        &mut self,
        partition: &Arc<PartitionState>,
        records: &[Record<'_>],
        size: AppendSize,
        done: Done<Appended>,
    ) {
        let new = || Part { partition: Arc::clone(partition), queue: AppendQueue::of_transaction(), stored: None };
        let part = self.parts.entry(partition.id.clone()).or_insert_with(new);
        part.queue.push(records, size.batch_max_bytes, size.accepted_bytes, done);
    }

    /// Adds the records of a commit, with those that keep its positions, and closes the transaction.
    pub(crate) fn commit(
        &mut self,
        append: &AtomicAppend<'_>,
        targets: &Targets,
        batch_max_bytes: usize,
        done: Done<Vec<Appended>>,
    ) {
        let appended = Arc::new(Mutex::new(vec![None; append.records.len()]));
        for (index, ((_, records), (partition, accepted_bytes))) in append.records.iter().zip(targets).enumerate() {
            let size = AppendSize { batch_max_bytes, accepted_bytes: *accepted_bytes };
            let slots = Arc::clone(&appended);
            let stored = Done::call(move |result: Result<Appended, Error>| slots.lock()[index] = result.ok());
            self.append(partition, records, size, stored);
        }
        self.commits.push(Commit { done, appended });
        self.end = End::Commit;
    }

    /// Voids the transaction.
    pub(crate) fn abort(&mut self) {
        self.end = End::Abort;
    }

    /// The partitions that have a batch to send, each with its queue.
    pub(crate) fn ready(&mut self) -> impl Iterator<Item = (&Arc<PartitionState>, &mut AppendQueue)> {
        self.parts.values_mut().filter(|part| !part.queue.is_empty()).map(|part| (&part.partition, &mut part.queue))
    }

    pub(crate) fn queue(&mut self, partition: &TopicPartition) -> Option<&mut AppendQueue> {
        self.parts.get_mut(partition).map(|part| &mut part.queue)
    }

    /// Notes the offsets of records that are stored in a partition.
    pub(crate) fn stored(&mut self, partition: &TopicPartition, first: Offset, last: Offset) {
        if let Some(part) = self.parts.get_mut(partition) {
            part.stored = Some((part.stored.map_or(first, |(first, _)| first), last));
        }
    }

    /// Leaves a partition out whose topic is gone.
    pub(crate) fn leave_out(&mut self, core: &Core, partition: &TopicPartition) {
        if let Some(mut part) = self.parts.remove(partition) {
            core.pending.end(part.queue.fail(&Error::UnknownTopic { topic: partition.topic.clone() }));
        }
    }

    /// The records that are stored.
    pub(crate) fn stored_in(&self) -> Vec<Stored> {
        let stored = |part: &Part| {
            part.stored.map(|(first, last)| Stored { partition: Arc::clone(&part.partition), first, last })
        };
        self.parts.values().filter_map(stored).collect()
    }

    /// Ends what has not been stored, and answers the commits.
    pub(crate) fn finish(self, core: &Core, outcome: &Result<(), Error>) {
        for mut part in self.parts.into_values() {
            core.pending.end(part.queue.fail(&Error::Stopped));
        }
        for Commit { done, appended } in self.commits {
            let appended: Option<Vec<Appended>> = appended.lock().iter().copied().collect();
            done.finish(match (outcome, appended) {
                (Ok(()), Some(appended)) => Ok(appended),
                // A topic that was deleted meanwhile has taken its records along.
                (Ok(()), None) => Err(Error::Stopped),
                (Err(error), _) => Err(error.clone()),
            });
        }
    }
}
