//! The errors of a run.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Errors that a run remembers.
const ERRORS_MAX: usize = 100;

/// An error that ended a run, or a record's error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunFailure {
    pub(crate) node: String,
    pub(crate) instance: u32,
    /// `start`, `read`, `apply`, `write`, `ack` or `checkpoint`.
    pub(crate) stage: String,
    pub(crate) code: String,
    pub(crate) message: String,
    /// Topic, partition and offset of the record, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<String>,
    pub(crate) at: String,
}

/// The latest errors of a run.
#[derive(Default)]
pub(super) struct RecentFailures(Mutex<VecDeque<RunFailure>>);

impl RecentFailures {
    /// Keeps an error; the oldest goes if there are too many.
    pub(super) fn add(&self, failure: RunFailure) {
        let mut errors = self.0.lock();
        if errors.len() >= ERRORS_MAX {
            errors.pop_front();
        }
        errors.push_back(failure);
    }

    /// All errors that are kept, oldest first.
    pub(super) fn all(&self) -> Vec<RunFailure> {
        self.0.lock().iter().cloned().collect()
    }
}
