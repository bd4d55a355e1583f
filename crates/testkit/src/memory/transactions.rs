//! The transactions of writers: who has a name, what it has left open, and commits that fail.

use std::collections::{BTreeSet, HashMap, VecDeque};

use millstream_log::{Appended, AtomicAppend, Error, Storage};
use millstream_types::{Record, TopicPartition};

use super::contents::{Contents, Place};
use super::partition::TransactionId;

/// The names of all writers since the log was opened.
#[derive(Default)]
pub(super) struct Transactions {
    writers: HashMap<String, WriterState>,
    /// The next commits that end a writer, by name.
    planned_failures: HashMap<String, VecDeque<PlannedFailure>>,
    last_id: TransactionId,
}

/// The end of a commit, and of its writer.
struct PlannedFailure {
    error: Error,
    is_stored: bool,
}

/// The writer that has a name now.
#[derive(Default)]
struct WriterState {
    /// Its number, counted from 1. Those with lower numbers are fenced.
    number: u64,
    open: Option<OpenTransaction>,
    /// A commit of this writer has failed.
    is_over: bool,
}

struct OpenTransaction {
    id: TransactionId,
    places: BTreeSet<Place>,
}

/// The outcome of a commit: stored and answered, or unknown to the writer.
pub(super) type CommitOutcome = Result<Vec<Appended>, Error>;

impl Transactions {
    pub(super) fn fail_next_commit(&mut self, writer: &str, error: Error, is_stored: bool) {
        let of_writer = self.planned_failures.entry(writer.to_owned()).or_default();
        of_writer.push_back(PlannedFailure { error, is_stored });
    }

    /// The state of a writer that may go on.
    fn of(&mut self, name: &str, number: u64) -> Result<&mut WriterState, Error> {
        match self.writers.get_mut(name) {
            Some(writer) if writer.number == number && writer.is_over => {
                Err(Error::OutcomeUnknown { writer: name.to_owned() })
            }
            Some(writer) if writer.number == number => Ok(writer),
            _ => Err(Error::Fenced { writer: name.to_owned() }),
        }
    }
}

impl Contents {
    /// Begins the next writer of a name: the one before is fenced, and what it left open is void. Returns its number.
    pub(super) fn begin_writer(&mut self, name: &str) -> u64 {
        let before = self.transactions.writers.remove(name).unwrap_or_default();
        self.end(before.open, false);
        let number = before.number + 1;
        self.transactions.writers.insert(name.to_owned(), WriterState { number, ..WriterState::default() });
        number
    }

    /// Appends records to a writer's open transaction, which begins with the first.
    pub(super) fn append_in_transaction(
        &mut self,
        name: &str,
        number: u64,
        partition: &TopicPartition,
        records: &[Record<'_>],
        now_ms: i64,
    ) -> Result<(), Error> {
        self.transactions.of(name, number)?;
        let place = self.place(partition)?;
        self.check_records(partition, place, records)?;
        if matches!(self.topic_at(place).topic.config.storage, Storage::Memory { .. }) {
            let what = "belongs to a transaction, and the topic is in memory only";
            return Err(Error::UnsupportedBatch { partition: partition.clone(), what });
        }
        let next_id = self.transactions.last_id + 1;
        let writer = self.transactions.of(name, number)?;
        let open = writer.open.get_or_insert_with(|| OpenTransaction { id: next_id, places: BTreeSet::new() });
        open.places.insert(place);
        let id = open.id;
        self.transactions.last_id = self.transactions.last_id.max(id);
        self.append(place, records, Some(id), now_ms);
        Ok(())
    }

    /// Commits a writer's open transaction, and `append` with it.
    pub(super) fn commit(
        &mut self,
        name: &str,
        number: u64,
        append: &AtomicAppend<'_>,
        now_ms: i64,
    ) -> Result<CommitOutcome, Error> {
        self.transactions.of(name, number)?;
        let places = self.check_atomic(append)?;
        let failure = self.transactions.planned_failures.get_mut(name).and_then(VecDeque::pop_front);
        let writer = self.transactions.of(name, number)?;
        writer.is_over = failure.is_some();
        if let Some(PlannedFailure { error, is_stored: false }) = failure {
            // The transaction stays open until the next writer of the name decides it.
            return Ok(Err(error));
        }
        let open = writer.open.take();
        self.end(open, true);
        let appended = self.take_atomic(append, &places, now_ms);
        Ok(failure.map_or(Ok(appended), |failure| Err(failure.error)))
    }

    /// Voids a writer's open transaction.
    pub(super) fn abort(&mut self, name: &str, number: u64) -> Result<(), Error> {
        let open = self.transactions.of(name, number)?.open.take();
        self.end(open, false);
        Ok(())
    }

    fn end(&mut self, open: Option<OpenTransaction>, commits: bool) {
        let Some(OpenTransaction { id, places }) = open else { return };
        for place in places {
            let partition = self.at_mut(place);
            if commits {
                partition.commit(id);
            } else {
                partition.abort(id);
            }
            let watchers = std::sync::Arc::clone(&partition.watchers);
            self.rung.push(watchers);
        }
    }
}
