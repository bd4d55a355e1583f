//! The answers that devices gave lately, so that one that is given again does not become another record.
//!
//! A device that hears no acknowledgement answers again. The repeat shares the outcome of the first: while that is on its
//! way to the log it waits for it, and if it fails the next one is appended. Answers that differ are different answers.
//!
//! Not here: memory across restarts. The first repeat after one is a record.

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{Appended, Done, Error};
use millstream_types::TenantId;
use parking_lot::Mutex;

use crate::recent_appends::{RecentAppends, hash_of};

/// Answers that are remembered; beyond them the oldest is forgotten.
const ANSWERS_MAX: usize = 10_000;

/// An answer that a device gives to a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenAnswer<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) device: &'a str,
    pub(crate) correlation_id: &'a str,
    pub(crate) status: &'a str,
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) payload: &'a [u8],
}

/// The answers that were given lately.
#[derive(Debug, Default)]
pub(crate) struct Answered(Mutex<RecentAppends<AnswerKey>>);

/// Hashes of a command and of an answer to it.
type AnswerKey = (u128, u128);

impl Answered {
    /// Has `append` append an answer unless it was given before. `done` gets the outcome either way.
    pub(crate) fn once(
        self: &Arc<Self>,
        given: GivenAnswer<'_>,
        done: Done<Appended>,
        append: impl FnOnce(Done<Appended>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let key = (command_hash(given.tenant, given.device, given.correlation_id), given.hash());
        let Some(done) = self.begin(key, done) else { return Ok(()) };
        let answered = Arc::clone(self);
        let settled = Done::call(move |result: Result<Appended, Error>| {
            answered.settle(key, &result);
            done.finish(result);
        });
        append(settled.failing_on_full_disk()).inspect_err(|error| self.settle(key, &Err(error.clone())))
    }

    /// Another command with this correlation id is there, so its answer is a new one.
    pub(super) fn forget(&self, tenant: &TenantId, device: &str, correlation_id: &str) {
        let command = command_hash(tenant, device, correlation_id);
        self.0.lock().forget((command, 0)..=(command, u128::MAX));
    }

    /// Gives `done` back if the answer is a new one.
    fn begin(&self, key: AnswerKey, done: Done<Appended>) -> Option<Done<Appended>> {
        let joined = self.0.lock().begin(key, done);
        joined.or_new()
    }

    fn settle(&self, key: AnswerKey, result: &Result<Appended, Error>) {
        // Answers are forgotten by their number, whatever their age.
        let waiting = self.0.lock().settle(key, result, Duration::ZERO, ANSWERS_MAX);
        waiting.into_iter().for_each(|done| done.finish(result.clone()));
    }
}

impl GivenAnswer<'_> {
    fn hash(&self) -> u128 {
        let content_type = self.content_type.unwrap_or_default();
        hash_of(&[self.status.as_bytes(), content_type, self.payload])
    }
}

fn command_hash(tenant: &TenantId, device: &str, correlation_id: &str) -> u128 {
    hash_of(&[tenant.as_str().as_bytes(), device.as_bytes(), correlation_id.as_bytes()])
}
