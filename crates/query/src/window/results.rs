//! Results of states, and the memory of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_columns::{AggregateState, SketchMeta};
use millstream_types::{Grant, MemoryBudget};

use super::{AggregatePlan, ResultOf};
use crate::rows::RowBatch;

/// Makes the results of one query.
#[derive(Debug)]
pub(super) struct ResultMaker {
    pub(super) aggregates: Arc<AggregatePlan>,
    memory: MemoryBudget,
    /// True if a state exceeds its memory.
    too_large: AtomicBool,
    /// The number of result rows with a value that could not be computed, since the last report.
    failed: AtomicU64,
}

/// The precision of a result.
#[derive(Debug, Clone, Default)]
pub(crate) struct Precision {
    /// The meta of the sketches behind the rows.
    pub(crate) sketches: Vec<SketchMeta>,
    /// In words, whatever the rows leave out or estimate.
    pub(crate) notes: Vec<String>,
}

/// The memory that states take, as far as has been seen.
#[derive(Debug, Default)]
pub(super) struct MemoryUse(Option<Grant>);

impl ResultMaker {
    pub(super) fn new(aggregates: Arc<AggregatePlan>, memory: MemoryBudget) -> Self {
        Self { aggregates, memory, too_large: AtomicBool::new(false), failed: AtomicU64::new(0) }
    }

    /// True if the states of the query have exceeded their memory.
    pub(super) fn is_too_large(&self) -> bool {
        self.too_large.load(Ordering::Relaxed)
    }

    /// Takes memory for states of this size, in place of what they took before.
    pub(super) fn cover(&self, held: &mut MemoryUse, size_bytes: usize) {
        let size_bytes = size_bytes as u64;
        let has_room = match &mut held.0 {
            Some(grant) => grant.resize(size_bytes),
            None => {
                held.0 = self.memory.take(size_bytes);
                held.0.is_some()
            }
        };
        if !has_room {
            self.too_large.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn merge(&self, whole: &mut AggregateState, other: &AggregateState) {
        let _working = self.working(whole.working_bytes() + other.working_bytes());
        whole.merge(other);
    }

    /// Makes something of a state, with the memory that this takes for so long.
    pub(super) fn at_work<T>(&self, state: &AggregateState, make: impl FnOnce(&AggregateState) -> T) -> T {
        let _working = self.working(state.working_bytes());
        make(state)
    }

    /// Takes memory for work that comes to an end at once. Where there is too little, the query ends after it.
    fn working(&self, bytes: usize) -> Option<Grant> {
        let working = self.memory.take(bytes as u64);
        if working.is_none() {
            self.too_large.store(true, Ordering::Relaxed);
        }
        working
    }

    /// The rows of a state.
    pub(super) fn rows_of(&self, of: ResultOf<'_>, state: &AggregateState) -> RowBatch {
        let (rows, failed) = self.at_work(state, |state| self.aggregates.rows(of, state));
        self.failed.fetch_add(failed, Ordering::Relaxed);
        rows
    }

    pub(super) fn precision(&self, state: &AggregateState) -> Precision {
        let sketches = self.at_work(state, AggregateState::sketches);
        Precision { notes: self.aggregates.notes(state, &sketches), sketches }
    }

    /// The number of result rows, since the last call, with a value that could not be computed.
    pub(super) fn take_failed(&self) -> u64 {
        self.failed.swap(0, Ordering::Relaxed)
    }
}
