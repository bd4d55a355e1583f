//! Compaction that is ahead of the owner: it removes a record before the owner has noted the newer one.

use std::future::Future as _;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream_log::AckLevel;
use millstream_store::{OwnerTransaction, Transaction as _, Value};
use millstream_testkit::small_log::new_disk;

use crate::workload;
use crate::world::{Wall, World};

/// Only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// A read that gives up does so before.
const LONG: Duration = Duration::from_secs(3);
const KEYS: usize = 60;

fn value(word: &str) -> Value {
    Value::of(word.repeat(50))
}

#[test]
fn a_read_waits_for_the_owner_if_compaction_has_removed_the_record_that_it_knows_of() {
    let (files, wall, dir) = (new_disk(), Arc::new(Wall::default()), tempfile::tempdir().unwrap());
    let world = World::open(&files, dir.path(), &wall).unwrap();
    let (bucket, runtime) = (&world.bucket, workload::runtime());
    let partition = bucket.partition_of(b"key-0");
    let keys: Vec<Bytes> = (0..)
        .map(|number| Bytes::from(format!("key-{number}")))
        .filter(|key| bucket.partition_of(key) == partition)
        .take(KEYS)
        .collect();
    let write_all = |word: &'static str, keys: Vec<Bytes>| {
        move |transaction: &mut OwnerTransaction<'_, '_>| {
            keys.iter().try_for_each(|key| transaction.put(key, value(word)))
        }
    };
    for key in &keys {
        runtime.block_on(bucket.put(key, value("first"), Some(AckLevel::Synced))).unwrap();
    }
    let before = bucket.version(&keys[0]).unwrap();

    // The owner decides the second writes, appends them, and is then kept from noting that they have landed.
    let (deciding, is_deciding) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let (release, is_released) = mpsc::channel();
    let (answer, answered) = mpsc::channel();
    let write = write_all("second", keys.clone());
    let second = move |transaction: &mut OwnerTransaction<'_, '_>| {
        write(transaction)?;
        deciding.send(()).unwrap();
        may_go_on.recv().unwrap();
        Ok(())
    };
    let held = move |_: &mut OwnerTransaction<'_, '_>| {
        is_released.recv().unwrap();
        Ok(())
    };
    std::thread::scope(|threads| {
        let write = bucket.transact(partition, Some(AckLevel::Synced), 0, second);
        let writer = threads.spawn(|| workload::runtime().block_on(write));
        is_deciding.recv_timeout(PATIENCE).unwrap();
        let mut holding = Box::pin(bucket.transact(partition, Some(AckLevel::Memory), 0, held));
        assert!(holding.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        go_on.send(()).unwrap();
        let began = Instant::now();
        while world.has_record(partition, before) {
            assert!(began.elapsed() < PATIENCE, "compaction leaves the record");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(bucket.version(&keys[0]), Some(before), "the owner has noted the newer record");

        threads.spawn(|| answer.send(workload::runtime().block_on(bucket.read(&keys[0]))).unwrap());
        let early = answered.recv_timeout(LONG);
        release.send(()).unwrap();
        assert!(early.is_err(), "the read does not wait: {early:?}");
        let found = answered.recv_timeout(PATIENCE).unwrap().unwrap().unwrap();
        assert_eq!(found.stored.value.bytes, value("second").bytes);
        assert!(found.version > before);
        runtime.block_on(holding).unwrap();
        writer.join().unwrap().unwrap();
    });
    world.end();
}
