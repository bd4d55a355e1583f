//! Values that are read one by one, from copies on the disk of this machine.

use std::path::Path;
use std::sync::Arc;

use millstream_log::{
    AckLevel, CachedRead, Cleanup, Done, Error, Log as _, LogConfig, Partition, TopicConfig, UpTo, Writers,
};
use millstream_log_kafka::OnKafka;
use millstream_testkit::conformance::read_all;
use millstream_testkit::{RealKafka, eventually};
use millstream_types::{Offset, Record, TopicPartition};

use crate::{config, topic};

const RECORDS: u64 = 3_000;

/// Settings with copies, and without memory for the newest batches.
fn with_copies(kafka: &RealKafka, dir: &Path) -> LogConfig {
    let mut config = config(kafka);
    (config.dir, config.cache_bytes) = (dir.join("log"), 0);
    config.kafka.copies_max_bytes = 64 << 20;
    config
}

fn value(offset: u64) -> Vec<u8> {
    format!("{offset} {}", "x".repeat(200)).into_bytes()
}

/// The number of values that are read at once, without a broker; each is the right one.
fn known(partition: &dyn Partition, first: Offset) -> u64 {
    let is_known = |number: &u64| match partition.read_one_cached(first.advance(*number), UpTo::Stable).unwrap() {
        CachedRead::OnDisk => false,
        CachedRead::Read(record) => {
            assert_eq!(record.unwrap().view().value, Some(&*value(*number)));
            true
        }
    };
    (0..RECORDS).filter(is_known).count() as u64
}

#[test]
fn values_are_read_from_copies_that_following_and_reading_have_made() {
    let kafka = crate::conformance::brokers();
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let name = topic("copies");
    let open = |dir: &Path| -> (Arc<OnKafka>, Arc<dyn Partition>) {
        let log = OnKafka::open(with_copies(kafka, dir)).unwrap();
        let of_bucket = TopicConfig {
            partitions: 1,
            cleanup: Cleanup::Compact,
            writers: Writers::OwnersOnly,
            compaction_live_percent: Some(50),
            ..TopicConfig::default()
        };
        log.create_topic(&name, &of_bucket).unwrap();
        let partition = log.partition(&TopicPartition::new(name.clone(), 0)).unwrap();
        (log, partition)
    };
    let (one, partition) = open(dirs[0].path());
    let first = partition.offsets().stable;
    for number in 0..RECORDS {
        let (key, value) = (number.to_string(), value(number));
        let record = Record { key: Some(key.as_bytes()), value: Some(&value), ..Record::default() };
        loop {
            match partition.append(&[record], AckLevel::Synced, Done::ignore()) {
                Err(Error::Overloaded { .. }) => std::thread::yield_now(),
                appended => break appended.unwrap(),
            }
        }
    }
    eventually("all is stored", || partition.offsets().stable == first.advance(RECORDS));
    // The last ones may wait for others, and are known all the same.
    eventually("what is followed is kept", || known(&*partition, first) == RECORDS);
    assert!(dirs[0].path().join("log-copies").exists());

    let (two, partition) = open(dirs[1].path());
    assert_eq!(known(&*partition, first), 0);
    let middle = first.advance(RECORDS / 2);
    assert!(partition.read_one(middle, UpTo::Stable).unwrap().is_some());
    eventually("what is read is kept", || {
        matches!(partition.read_one_cached(middle, UpTo::Stable).unwrap(), CachedRead::Read(Some(_)))
    });
    assert_eq!(read_all(&*partition, first, UpTo::Stable).unwrap().len() as u64, RECORDS);
    eventually("what a start reads is kept", || known(&*partition, first) == RECORDS);
    drop((one, two));
}
