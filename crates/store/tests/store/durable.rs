//! A durable bucket against a plain map: writes, conditions, expiry, restarts and lost checkpoints,
//! under a clock that jumps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use millstream_store::{BucketConfig, OwnerTransaction, StoreConfig, Transaction, Value};
use millstream_types::{PartitionId, WallClock};
use proptest::prelude::*;

use crate::bucket_process::{BucketProcess, SetByHand};

const PARTITIONS: u32 = 2;
/// 2026-01-01T00:00:00Z
const START_MS: i64 = 1_767_225_600_000;

/// A process with a bucket, and what runs its work.
struct World {
    process: BucketProcess,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn open(dir: &Path, wall: &Arc<SetByHand>) -> Self {
        // A cache that holds a few values only, so that most are read from the log.
        let settings = BucketConfig { partitions: PARTITIONS, cache_bytes: 2_000, ..BucketConfig::default() };
        let process = BucketProcess::open(dir, wall, settings, &StoreConfig::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { process, runtime }
    }

    fn close(self) {
        self.process.close();
    }

    fn put(&self, key: &[u8], value: Value) -> u64 {
        self.runtime.block_on(self.process.bucket.put(key, value, None)).unwrap()
    }

    fn delete(&self, key: &[u8]) -> bool {
        let (partition, of_key) = (self.process.bucket.partition_of(key), key.to_vec());
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| Ok(transaction.delete(&of_key));
        self.runtime.block_on(self.process.bucket.transact(partition, None, 0, work)).unwrap().output
    }

    /// Adds a byte to a value, which must be read for that; `count` of them together.
    fn append(&self, key: &[u8], count: usize) {
        let (partition, of_key) = (self.process.bucket.partition_of(key), key.to_vec());
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
            for _ in 0..count {
                let before = transaction.get(&of_key)?.unwrap_or_default();
                let bytes = [&before.bytes[..], b"+"].concat();
                transaction.put(&of_key, Value { bytes: bytes.into(), ..before })?;
            }
            Ok(())
        };
        self.runtime.block_on(self.process.bucket.transact(partition, None, 0, work)).unwrap();
    }

    /// Every key with its value and expiry, as the listing and the reads tell them.
    fn all(&self) -> BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)> {
        let mut all = BTreeMap::new();
        for number in 0..PARTITIONS {
            let mut keys = Vec::new();
            let take = |key: &[u8], listed| {
                keys.push((key.to_vec(), listed));
                ControlFlow::Continue(())
            };
            self.process.bucket.list(PartitionId(number), b"", take).unwrap();
            for (key, listed) in keys {
                let found = self.runtime.block_on(self.process.bucket.read(&key)).unwrap();
                let has_expired =
                    listed.expires_ms.is_some_and(|expires_ms| expires_ms <= self.process.bucket.now_ms());
                assert_eq!(found.is_none(), has_expired, "{key:?}");
                let Some(found) = found else { continue };
                assert_eq!((found.version, found.stored.length()), (listed.version, listed.length));
                assert_eq!(found.stored.value.expires_ms, listed.expires_ms);
                all.insert(key, (found.stored.value.bytes.to_vec(), listed.expires_ms));
            }
        }
        all
    }
}

#[test]
fn a_transaction_reads_one_value_after_the_other_from_the_disk() {
    const KEYS: usize = 5;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &Arc::new(SetByHand(AtomicI64::new(START_MS))));
    let partition = PartitionId(0);
    let all = (0..).map(|number| format!("key/{number}").into_bytes());
    let keys: Vec<_> = all.filter(|key| world.process.bucket.partition_of(key) == partition).take(KEYS).collect();
    for key in &keys {
        // Larger than what the cache takes.
        world.put(key, Value::of(vec![b'x'; 1_000]));
    }
    let mut runs = 0;
    let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
        runs += 1;
        assert!(runs <= KEYS + 1, "it runs in circles");
        keys.iter().try_fold(0, |sum, key| Ok(sum + transaction.get(key)?.unwrap().bytes.len()))
    };
    let done = world.runtime.block_on(world.process.bucket.transact(partition, None, 0, work)).unwrap();
    assert_eq!(done.output, KEYS * 1_000);
    world.close();
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u16, Option<u16>),
    Append(u8, u8),
    Delete(u8),
    Clock(i32),
    RemoveExpired,
    Restart,
    LoseCheckpoint,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..8_u8, 0..3_000_u16, proptest::option::weighted(0.3, 1..5_000_u16)).prop_map(|(key, length, ttl)| Step::Put(key, length, ttl)),
        6 => (0..8_u8, 1..40_u8).prop_map(|(key, count)| Step::Append(key, count)),
        4 => (0..8_u8).prop_map(Step::Delete),
        // An hour back and forth.
        3 => prop_oneof![-3_600_000..3_600_000_i32, 1..3_000].prop_map(Step::Clock),
        2 => Just(Step::RemoveExpired),
        1 => Just(Step::Restart),
        1 => Just(Step::LoseCheckpoint),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn a_bucket_equals_a_map(steps in proptest::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let wall = Arc::new(SetByHand(AtomicI64::new(START_MS)));
        let mut world = World::open(dir.path(), &wall);
        let mut model: BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)> = BTreeMap::new();
        // The time of this life, which does not go back.
        let mut now_ms = START_MS;
        for step in steps {
            let name = |number: u8| format!("key/{number}").into_bytes();
            match step {
                Step::Put(number, length, ttl) => {
                    let bytes = vec![number; usize::from(length)];
                    let expires_ms = ttl.map(|ttl| now_ms + i64::from(ttl));
                    world.put(&name(number), Value { bytes: bytes.clone().into(), expires_ms, attributes: None });
                    model.insert(name(number), (bytes, expires_ms));
                }
                Step::Append(number, count) => {
                    world.append(&name(number), usize::from(count));
                    let gone = model.get(&name(number)).is_some_and(|(_, expires_ms)| expires_ms.is_some_and(|at| at <= now_ms));
                    if gone {
                        model.remove(&name(number));
                    }
                    let (bytes, _) = model.entry(name(number)).or_default();
                    bytes.extend(std::iter::repeat_n(b'+', usize::from(count)));
                }
                Step::Delete(number) => {
                    let there = model.remove(&name(number)).is_some_and(|(_, expires_ms)| expires_ms.is_none_or(|at| at > now_ms));
                    prop_assert_eq!(world.delete(&name(number)), there);
                }
                Step::Clock(step_ms) => {
                    let wall_ms = wall.now_ms() + i64::from(step_ms);
                    wall.0.store(wall_ms, Ordering::SeqCst);
                    now_ms = now_ms.max(wall_ms);
                }
                Step::RemoveExpired => {
                    for turn in 0..world.process.bucket.expiry_turns() {
                        world.runtime.block_on(world.process.bucket.remove_expired(turn, 100)).unwrap();
                    }
                    model.retain(|_, (_, expires_ms)| expires_ms.is_none_or(|at| at > now_ms));
                }
                Step::Restart | Step::LoseCheckpoint => {
                    world.close();
                    if matches!(step, Step::LoseCheckpoint) {
                        std::fs::remove_dir_all(dir.path().join("views")).unwrap();
                    }
                    world = World::open(dir.path(), &wall);
                    now_ms = wall.now_ms();
                }
            }
            let live = model.iter().filter(|(_, (_, expires_ms))| expires_ms.is_none_or(|at| at > now_ms));
            prop_assert_eq!(world.all(), live.map(|(key, kept)| (key.clone(), kept.clone())).collect());
            let bytes: usize = model.iter().map(|(key, (value, _))| key.len() + value.len()).sum();
            let totals = world.process.bucket.totals();
            prop_assert_eq!((totals.keys, totals.bytes), (model.len() as u64, bytes as u64));
        }
        world.close();
    }
}
