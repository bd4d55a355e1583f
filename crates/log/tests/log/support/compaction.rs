//! A compacted partition and helpers to fill it, to wait for passes, and to read its state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millstream_log::{
    AckLevel, Appended, Cleanup, Embedded, Error, KafkaPartition, LogFigures, TopicConfig, UpTo, reply,
};
use millstream_testkit::PATIENCE;
use millstream_testkit::conformance::{ReadRecord, read_all};
use millstream_testkit::sim::SimFiles;
use millstream_types::{BatchLimits, ManualClock, Offset, Record};

use super::{clock, create, new_disk, open};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Turns of the writeback thread after which compaction must have come to rest.
const TURNS_MAX: usize = 100_000;

/// A log on a simulated disk with one partition of topic `t`.
pub(crate) struct Bench {
    pub(crate) files: SimFiles,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) log: Arc<Embedded>,
    pub(crate) partition: Arc<dyn KafkaPartition>,
}

pub(crate) fn compacted() -> TopicConfig {
    TopicConfig {
        partitions: 1,
        cleanup: Cleanup::Compact,
        retention: None,
        segment_bytes: 2 << 10,
        delete_retention: HOUR,
        ..TopicConfig::default()
    }
}

impl Bench {
    pub(crate) fn new(config: TopicConfig) -> Self {
        let (files, clock) = (new_disk(), clock());
        let log = open(&files, &clock).unwrap();
        let partition = create(&log, "t", &config).swap_remove(0);
        Self { files, clock, log, partition }
    }

    pub(crate) fn put(&self, key: &str, value: Option<&str>) -> Appended {
        let (done, answer) = reply();
        let record =
            Record { key: Some(key.as_bytes()), value: value.map(str::as_bytes), timestamp_ms: 1, ..Record::default() };
        self.partition.append(&[record], AckLevel::Synced, done).unwrap();
        answer.wait().unwrap()
    }

    /// Many versions of few keys.
    pub(crate) fn churn(&self, rounds: u32) {
        for round in 0..rounds {
            for key in 0..5 {
                self.put(&format!("churn-{key}"), Some(&format!("{round} {}", "x".repeat(100))));
            }
            self.log.flush().unwrap();
        }
    }

    pub(crate) fn read(&self) -> Vec<ReadRecord> {
        let stored = read_all(&*self.partition, self.partition.offsets().first, UpTo::Stable).unwrap();
        assert!(stored.is_sorted_by(|a, b| a.offset < b.offset), "offsets ascend");
        stored
    }

    /// Checks for every offset that a single read finds the record that an ordinary read from there begins with, unless
    /// compaction takes it meanwhile.
    pub(crate) fn check_single_reads(&self) {
        for offset in (0..=self.partition.offsets().tail.0 + 1).map(Offset) {
            loop {
                let expected = self.read_at(offset);
                let found = self.partition.read_one(offset, UpTo::Stable).unwrap();
                if self.read_at(offset) == expected {
                    assert_eq!(found.map(|found| ReadRecord::from(found.view())), expected);
                    break;
                }
            }
        }
    }

    /// The record at `offset` in what an ordinary read from there returns.
    fn read_at(&self, offset: Offset) -> Option<ReadRecord> {
        let batches = match self.partition.read(offset, 0, UpTo::Stable) {
            Err(Error::Trimmed { .. } | Error::BeyondTail { .. }) => return None,
            found => found.unwrap(),
        };
        let batch = batches.first()?.inflated(&BatchLimits::default()).unwrap();
        batch.records().map(Result::unwrap).find(|record| record.offset == offset).map(ReadRecord::from)
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.log.stats().partitions[0].segment_bytes
    }

    /// Turns of the writeback thread until `reached`.
    pub(crate) fn until(&self, what: &str, reached: impl Fn() -> bool) {
        let begun = Instant::now();
        for turn in 0_usize.. {
            if reached() {
                return;
            }
            // On a busy machine the threads in the background get few turns.
            assert!(turn < TURNS_MAX || begun.elapsed() < PATIENCE, "not reached: {what}");
            self.log.flush().unwrap();
            thread::yield_now();
        }
    }
}

/// Returns the last value of each key for a reader from the start.
pub(crate) fn state(records: &[ReadRecord]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut state = BTreeMap::new();
    for record in records {
        match &record.value {
            Some(value) => drop(state.insert(record.key.clone().unwrap(), value.clone())),
            None => drop(state.remove(record.key.as_ref().unwrap())),
        }
    }
    state
}
