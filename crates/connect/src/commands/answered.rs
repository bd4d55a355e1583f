//! The answers that devices gave lately, so that one that is given again does not become another record.
//!
//! A device that hears no acknowledgement answers again. The repeat shares the outcome of the first: while that is on its
//! way to the log it waits for it, and if it fails the next one is appended. Answers that differ are different answers.
//!
//! Not here: memory across restarts. The first repeat after one is a record.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millstream_log::{Appended, Done, Error};
use millstream_types::TenantId;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

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
pub(crate) struct Answered(Mutex<KnownAnswers>);

/// Hashes of a command and of an answer to it.
type AnswerKey = (u128, u128);

#[derive(Debug, Default)]
struct KnownAnswers {
    answers: BTreeMap<AnswerKey, AnswerState>,
    /// The answers that the log has, oldest first; some may be forgotten.
    kept: VecDeque<AnswerKey>,
}

#[derive(Debug)]
enum AnswerState {
    /// The log has not answered yet; the repeats wait.
    OnItsWay(Vec<Done<Appended>>),
    Kept(Appended),
}

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
        let mut known = self.0.lock();
        let of_command = known.answers.range((command, 0)..=(command, u128::MAX));
        let kept: Vec<AnswerKey> = of_command.filter(|(_, state)| state.is_kept()).map(|(key, _)| *key).collect();
        for key in kept {
            known.answers.remove(&key);
        }
    }

    /// Gives `done` back if the answer is a new one.
    fn begin(&self, key: AnswerKey, done: Done<Appended>) -> Option<Done<Appended>> {
        let mut known = self.0.lock();
        let appended = match known.answers.get_mut(&key) {
            Some(AnswerState::OnItsWay(waiting)) => {
                waiting.push(done);
                return None;
            }
            Some(AnswerState::Kept(appended)) => *appended,
            None => {
                known.answers.insert(key, AnswerState::OnItsWay(Vec::new()));
                return Some(done);
            }
        };
        drop(known);
        done.finish(Ok(appended));
        None
    }

    fn settle(&self, key: AnswerKey, result: &Result<Appended, Error>) {
        let waiting = self.0.lock().settle(key, result);
        waiting.into_iter().for_each(|done| done.finish(result.clone()));
    }
}

impl KnownAnswers {
    /// Keeps an answer that the log has, and forgets one that it has not. Returns the repeats that wait for the outcome.
    fn settle(&mut self, key: AnswerKey, result: &Result<Appended, Error>) -> Vec<Done<Appended>> {
        let before = match result {
            Ok(appended) => {
                self.kept.push_back(key);
                self.answers.insert(key, AnswerState::Kept(*appended))
            }
            Err(_) => self.answers.remove(&key),
        };
        if self.kept.len() > ANSWERS_MAX
            && let Some(oldest) = self.kept.pop_front()
            && self.answers.get(&oldest).is_some_and(AnswerState::is_kept)
        {
            self.answers.remove(&oldest);
        }
        match before {
            Some(AnswerState::OnItsWay(waiting)) => waiting,
            Some(AnswerState::Kept(_)) | None => Vec::new(),
        }
    }
}

impl AnswerState {
    fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
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

fn hash_of(parts: &[&[u8]]) -> u128 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    u128::from_be_bytes(std::array::from_fn(|at| hash[at]))
}
