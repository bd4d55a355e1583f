//! The knowledge about the keys of all lives on one disk, and the rules for a recovered bucket.
//!
//! One client at a time writes a key. So a recovered key has the state after its last write that was acknowledged at
//! the level which the crash leaves, or after a later one: whole, with the version that was answered, and never an
//! earlier one. A key that expired stays gone unless its clock was set back before the crash and nobody has removed it.
//! No version is answered twice in a partition.

use std::collections::{BTreeMap, HashMap};

use millstream_log::AckLevel;
use millstream_store::Bucket;

use crate::world::Kept;

/// A state of a key: bytes and expiry, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) value: Option<(Vec<u8>, Option<i64>)>,
    /// The version that was answered.
    pub(crate) version: Option<u64>,
    /// The level at which it was answered; `None` if it was not.
    pub(crate) level: Option<AckLevel>,
}

impl State {
    const NOTHING: Self = Self { value: None, version: None, level: Some(AckLevel::Synced) };
}

/// The states of a key since the last recovery, oldest first.
pub(crate) type History = Vec<State>;

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) keys: BTreeMap<Vec<u8>, History>,
    /// The key that has each version, by partition.
    versions: HashMap<(u32, u64), Vec<u8>>,
    pub(crate) acknowledged: usize,
}

impl Oracle {
    pub(crate) fn history(&mut self, key: &[u8]) -> &mut History {
        self.keys.entry(key.to_vec()).or_insert_with(|| vec![State::NOTHING])
    }

    /// Notes that a version was answered.
    pub(crate) fn answered(&mut self, partition: u32, version: u64, key: &[u8]) {
        let other = self.versions.insert((partition, version), key.to_vec());
        assert_eq!(other, None, "version {version} of partition {partition} was answered before, now for {key:?}");
        self.acknowledged += 1;
    }

    /// Checks a bucket that has just been opened after a crash that leaves what has `level`.
    pub(crate) fn check_recovered(
        &mut self,
        bucket: &Bucket,
        all: &BTreeMap<Vec<u8>, Kept>,
        level: AckLevel,
        latest_ms: i64,
    ) {
        assert!(all.keys().all(|key| self.keys.contains_key(key)), "keys that nobody wrote: {all:?}");
        for (key, history) in &mut self.keys {
            let floor = history.iter().rposition(|state| state.level >= Some(level)).unwrap();
            let (found, partition) = (all.get(key), bucket.partition_of(key).0);
            let was_answered = found.is_some_and(|found| self.versions.contains_key(&(partition, found.version)));
            let is_it = |state: &&State| {
                fits(state, found, bucket.now_ms(), latest_ms) && (state.version.is_some() || !was_answered)
            };
            let Some(state) = history[floor..].iter().rfind(is_it) else {
                panic!("{}: found {found:?}, known since {floor}: {history:#?}", String::from_utf8_lossy(key));
            };
            let (value, version) = match found {
                Some(_) => (state.value.clone(), found.map(|found| found.version)),
                None => (None, None),
            };
            if let (Some(version), None) = (version, state.version) {
                self.versions.insert((partition, version), key.clone());
            }
            *history = vec![State { value, version, level: Some(AckLevel::Synced) }];
        }
    }

    /// Checks that each key has the state after its last write, all of which were answered.
    pub(crate) fn check_now(&self, bucket: &Bucket, all: &BTreeMap<Vec<u8>, Kept>) {
        for (key, history) in &self.keys {
            let (last, now_ms, found) = (history.last().unwrap(), bucket.now_ms(), all.get(key));
            assert!(fits(last, found, now_ms, now_ms), "{key:?}: found {found:?}, known {last:?}");
        }
    }
}

/// `true` if a key in this state may be found so at `now_ms`, when no clock has ever told more than `latest_ms`.
fn fits(state: &State, found: Option<&Kept>, now_ms: i64, latest_ms: i64) -> bool {
    match (&state.value, found) {
        (None, found) => found.is_none(),
        (Some((_, expires_ms)), None) => expires_ms.is_some_and(|at| at <= latest_ms),
        (Some((bytes, expires_ms)), Some(found)) => {
            let is_gone = expires_ms.is_some_and(|at| at <= now_ms);
            let is_it = if is_gone { found.bytes.is_none() } else { found.bytes.as_ref() == Some(bytes) };
            is_it
                && found.length == bytes.len() as u64
                && *expires_ms == found.expires_ms
                && state.version.is_none_or(|version| version == found.version)
        }
    }
}
