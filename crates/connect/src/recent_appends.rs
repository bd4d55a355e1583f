//! Appends of late by a key of their sender's choice, so that a repeat does not become another record.
//!
//! A repeat shares the outcome of the first: while that is on its way to the log it waits for it, and if it fails the next
//! one is appended.
//!
//! Not here: memory across restarts; the lock.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use millstream_log::{Appended, Done, Error};
use sha2::{Digest, Sha256};

/// The appends that are known. Those that the log has are forgotten by number and age, the oldest first.
#[derive(Debug)]
pub(crate) struct RecentAppends<K> {
    appends: BTreeMap<K, AppendState>,
    /// The appends that the log has, oldest first, with their time; some may be forgotten.
    kept: VecDeque<(K, Duration)>,
}

#[derive(Debug)]
enum AppendState {
    /// The log has not answered yet; the repeats wait.
    OnItsWay(Vec<Done<Appended>>),
    Kept(Appended),
}

/// The outcome of a look for an append. [`Joined::or_new`] is called without a lock.
pub(crate) enum Joined {
    /// None is known.
    New(Done<Appended>),
    /// It is on its way, and `done` gets its outcome.
    Waits,
    /// The log has it.
    Kept(Done<Appended>, Appended),
}

impl Joined {
    /// Gives `done` back if the append is a new one, else tells it the outcome if there is one.
    pub(crate) fn or_new(self) -> Option<Done<Appended>> {
        match self {
            Self::New(done) => Some(done),
            Self::Waits => None,
            Self::Kept(done, appended) => {
                done.finish(Ok(appended));
                None
            }
        }
    }
}

impl<K> Default for RecentAppends<K> {
    fn default() -> Self {
        Self { appends: BTreeMap::new(), kept: VecDeque::new() }
    }
}

impl<K: Ord + Copy> RecentAppends<K> {
    /// Has `done` share the outcome of the append with this key, if one is known.
    pub(crate) fn join(&mut self, key: K, done: Done<Appended>) -> Joined {
        match self.appends.get_mut(&key) {
            Some(AppendState::OnItsWay(waiting)) => {
                waiting.push(done);
                Joined::Waits
            }
            Some(AppendState::Kept(appended)) => Joined::Kept(done, *appended),
            None => Joined::New(done),
        }
    }

    /// As [`RecentAppends::join`], and notes that a new one is on its way.
    pub(crate) fn begin(&mut self, key: K, done: Done<Appended>) -> Joined {
        let joined = self.join(key, done);
        if let Joined::New(_) = joined {
            self.appends.insert(key, AppendState::OnItsWay(Vec::new()));
        }
        joined
    }

    /// Keeps an append that the log has at `now`, the oldest of more than `kept_max` aside, and forgets one that it has
    /// not. Returns the repeats that wait for the outcome.
    pub(crate) fn settle(
        &mut self,
        key: K,
        result: &Result<Appended, Error>,
        now: Duration,
        kept_max: usize,
    ) -> Vec<Done<Appended>> {
        let before = match result {
            Ok(appended) => {
                self.kept.push_back((key, now));
                self.appends.insert(key, AppendState::Kept(*appended))
            }
            Err(_) => self.appends.remove(&key),
        };
        while self.kept.len() > kept_max {
            self.forget_oldest();
        }
        match before {
            Some(AppendState::OnItsWay(waiting)) => waiting,
            Some(AppendState::Kept(_)) | None => Vec::new(),
        }
    }

    /// Forgets the appends that the log had before `since`.
    pub(crate) fn forget_before(&mut self, since: Duration) {
        while self.kept.front().is_some_and(|(_, kept)| *kept < since) {
            self.forget_oldest();
        }
    }

    /// Forgets the appends of these keys that the log has.
    pub(crate) fn forget(&mut self, keys: RangeInclusive<K>) {
        let found = self.appends.range(keys).filter(|(_, state)| state.is_kept());
        let kept: Vec<K> = found.map(|(key, _)| *key).collect();
        for key in kept {
            self.appends.remove(&key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.appends.is_empty() && self.kept.is_empty()
    }

    fn forget_oldest(&mut self) {
        if let Some((oldest, _)) = self.kept.pop_front()
            && self.appends.get(&oldest).is_some_and(AppendState::is_kept)
        {
            self.appends.remove(&oldest);
        }
    }
}

impl AppendState {
    fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }
}

/// A hash of these parts, as a key.
pub(crate) fn hash_of(parts: &[&[u8]]) -> u128 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    u128::from_be_bytes(std::array::from_fn(|at| hash[at]))
}
