//! The work of one life until the power goes: clients that each write keys of their own, a reader of all keys, a
//! listing, and the removal of expired keys.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use millstream_log::AckLevel;
use millstream_store::{Bucket, Error, Interrupted, OwnerTransaction, Transaction, Value};
use millstream_testkit::CheckpointStores;
use millstream_testkit::sim::Rng;
use millstream_types::{PartitionId, WallClock as _};
use parking_lot::Mutex;

use crate::oracle::{Oracle, State};
use crate::world::{PARTITIONS, Wall};

const CLIENTS: u64 = 6;
const KEYS_OF_CLIENT: u64 = 4;
const WRITES: u64 = 60;
const VALUE_MAX_BYTES: u64 = 1_500;
const LEVELS: [AckLevel; 3] = [AckLevel::Memory, AckLevel::Written, AckLevel::Synced];

/// Runs until everything is done or the log ends. Returns `true` if every write was answered.
pub(crate) fn run(
    bucket: &Bucket,
    wall: &Arc<Wall>,
    oracle: &Mutex<Oracle>,
    stores: &mut CheckpointStores,
    rng: &mut Rng,
) -> bool {
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let rng = rng.fork();
                threads.spawn(move || Client { number, bucket, wall, oracle, rng, runtime: runtime() }.work())
            })
            .collect();
        threads.spawn(|| read_all_keys(bucket, &done));
        threads.spawn(|| list_and_remove_expired(bucket, &done));
        stores.keep_copy();
        let ends: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Release);
        let complete: Vec<bool> = ends.into_iter().map(|end| end.unwrap()).collect();
        complete.into_iter().all(|complete| complete)
    })
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn key(client: u64, number: u64) -> Vec<u8> {
    format!("client-{client}/key-{number}").into_bytes()
}

/// A value that tells its key and its length, so that half of one, or another key's, is noticed.
fn value(key: &[u8], length: u64, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = [key, format!(" {length} {} ", rng.bits()).as_bytes()].concat();
    bytes.resize(bytes.len() + length as usize, b'x');
    bytes
}

/// Checks that a value belongs to `key` and is whole; appends add plus signs.
fn check_whole(key: &[u8], bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap().trim_end_matches('+');
    if text.is_empty() {
        return;
    }
    let mut parts = text.splitn(4, ' ');
    let (found, length) = (parts.next().unwrap(), parts.next().unwrap().parse::<usize>().unwrap());
    let rest = parts.nth(1).unwrap();
    assert_eq!((found.as_bytes(), rest.len()), (key, length), "half a value, or another key's");
}

/// A value with its expiry, or nothing.
type Plain = Option<(Vec<u8>, Option<i64>)>;

struct Client<'a> {
    number: u64,
    bucket: &'a Bucket,
    wall: &'a Arc<Wall>,
    oracle: &'a Mutex<Oracle>,
    rng: Rng,
    runtime: tokio::runtime::Runtime,
}

impl Client<'_> {
    /// Returns `false` if a write was not answered.
    fn work(&mut self) -> bool {
        for _ in 0..WRITES {
            let key = key(self.number, self.rng.below(KEYS_OF_CLIENT));
            let answered = match self.rng.below(100) {
                0..45 => self.put(&key, false),
                45..60 => self.put(&key, true),
                60..75 => self.append(&key),
                75..92 => self.delete(&key),
                _ => {
                    self.jump();
                    true
                }
            };
            if !answered {
                return false;
            }
        }
        true
    }

    fn jump(&mut self) {
        let by_ms = match self.rng.below(3) {
            0 => self.rng.below(7_200_000) as i64 - 3_600_000,
            _ => self.rng.below(4_000) as i64,
        };
        self.wall.jump(by_ms);
    }

    fn expiry(&mut self) -> Option<i64> {
        let now_ms = self.wall.now_ms();
        match self.rng.below(10) {
            0..6 => None,
            6..9 => Some(now_ms + 1 + self.rng.below(5_000) as i64),
            _ => Some(now_ms + self.rng.below(7_200_000) as i64),
        }
    }

    /// Stores a new value; with `conditional`, if the key has the version that is known, and sometimes another.
    fn put(&mut self, key: &[u8], conditional: bool) -> bool {
        let length = self.rng.below(VALUE_MAX_BYTES);
        let (bytes, expires_ms) = (value(key, length, &mut self.rng), self.expiry());
        let known = self.last(key).version;
        let expected = conditional.then(|| if self.rng.chance(80) { known } else { Some(u64::MAX) });
        let new = Value { bytes: bytes.clone().into(), expires_ms, attributes: None };
        self.transact(key, vec![Some((bytes, expires_ms))], move |transaction, key| {
            if let Some(expected) = expected
                && transaction.entry(key).is_some_and(|entry| entry.version != expected)
            {
                return Ok(false);
            }
            transaction.put(key, new.clone())?;
            Ok(true)
        })
    }

    fn append(&mut self, key: &[u8]) -> bool {
        let value = self.last(key).value.unwrap_or_default();
        // To a value that has expired when the owner decides, it begins anew.
        let maybe = vec![Some(([&value.0[..], b"+"].concat(), value.1)), Some((b"+".to_vec(), None))];
        self.transact(key, maybe, |transaction, key| {
            let before = transaction.get(key)?.unwrap_or_default();
            let bytes = Bytes::from([&before.bytes[..], b"+"].concat());
            transaction.put(key, Value { bytes, ..before })?;
            Ok(true)
        })
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.transact(key, vec![None], |transaction, key| {
            transaction.delete(key);
            Ok(true)
        })
    }

    fn last(&self, key: &[u8]) -> State {
        self.oracle.lock().history(key).last().unwrap().clone()
    }

    /// Runs a transaction that leaves one of `maybe`, and notes what is known of it. Returns `false`
    /// if there was no answer.
    fn transact(
        &mut self,
        key: &[u8],
        maybe: Vec<Plain>,
        work: impl Fn(&mut OwnerTransaction<'_, '_>, &[u8]) -> Result<bool, Interrupted> + Send + 'static,
    ) -> bool {
        let level = *self.rng.pick(&LEVELS).unwrap();
        let before = self.last(key);
        let known = {
            let mut oracle = self.oracle.lock();
            let history = oracle.history(key);
            let known = history.len();
            history.extend(maybe.into_iter().map(|value| State { value, version: None, level: None }));
            known
        };
        let of_key = key.to_vec();
        let decide = move |transaction: &mut OwnerTransaction<'_, '_>| {
            let now_ms = transaction.now_ms();
            let before = transaction.get(&of_key)?;
            let has_written = work(transaction, &of_key)?;
            Ok((now_ms, before, has_written, transaction.get(&of_key)?))
        };
        let partition = self.bucket.partition_of(key);
        let done = match self.runtime.block_on(self.bucket.transact(partition, Some(level), 0, decide)) {
            Ok(done) => done,
            Err(failure) => {
                assert!(!matches!(failure, Error::Damaged { .. } | Error::Refused(_)), "{failure}");
                return false;
            }
        };
        let (now_ms, found, has_written, left) = done.output;
        let plain = |value: Value| (value.bytes.to_vec(), value.expires_ms);
        let live = before.value.clone().filter(|(_, expires_ms)| expires_ms.is_none_or(|at| at > now_ms));
        assert_eq!(found.map(plain), live, "what a transaction reads at {now_ms}: {before:?}");
        let mut oracle = self.oracle.lock();
        oracle.history(key).truncate(known);
        let left = left.map(plain);
        // A delete of nothing writes nothing.
        if !has_written || (left.is_none() && before.value.is_none()) {
            return true;
        }
        let version = left.is_some().then_some(done.first);
        let expected = left.clone();
        oracle.history(key).push(State { value: left, version, level: Some(level) });
        let Some((value, version)) = expected.zip(version) else { return true };
        oracle.answered(partition.0, version, key);
        drop(oracle);
        self.check_read(key, version, value);
        true
    }

    /// Checks that a read returns the write that was just answered.
    fn check_read(&self, key: &[u8], version: u64, expected: (Vec<u8>, Option<i64>)) {
        match self.runtime.block_on(self.bucket.read(key)) {
            Ok(Some(found)) => {
                let value = found.stored.value;
                assert_eq!((found.version, value.bytes.to_vec(), value.expires_ms), (version, expected.0, expected.1));
            }
            Ok(None) => assert!(expected.1.is_some_and(|at| at <= self.wall.latest_ms()), "{key:?} is gone"),
            // The log has ended.
            Err(Error::Damaged { .. }) => panic!("{key:?} is damaged"),
            Err(_) => {}
        }
    }
}

/// Reads every key again and again; each value is whole.
fn read_all_keys(bucket: &Bucket, done: &AtomicBool) {
    let runtime = runtime();
    while !done.load(Ordering::Acquire) {
        for key in (0..CLIENTS).flat_map(|client| (0..KEYS_OF_CLIENT).map(move |number| key(client, number))) {
            match runtime.block_on(bucket.read(&key)) {
                Ok(Some(found)) => check_whole(&key, &found.stored.value.bytes),
                Ok(None) => {}
                Err(Error::Damaged { .. }) => panic!("{key:?} is damaged"),
                Err(_) => return,
            }
        }
    }
}

/// Lists, which writes the checkpoint, and removes expired keys.
fn list_and_remove_expired(bucket: &Bucket, done: &AtomicBool) {
    let runtime = runtime();
    let mut turn = 0;
    while !done.load(Ordering::Acquire) {
        let mut last: Option<Vec<u8>> = None;
        let in_order = |key: &[u8], _| {
            assert!(last.as_deref().is_none_or(|last| last < key), "a listing is in order");
            last = Some(key.to_vec());
            ControlFlow::Continue(())
        };
        if bucket.list(PartitionId(turn as u32 % PARTITIONS), b"", in_order).is_err() {
            return;
        }
        for _ in 0..bucket.expiry_turns() {
            turn += 1;
            if runtime.block_on(bucket.remove_expired(turn, 10)).is_err() {
                return;
            }
        }
        turn += 1;
    }
}
