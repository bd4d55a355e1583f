//! Compacted topics with transactions: what is aborted goes as a whole, what is committed counts as any other record, and
//! nothing behind an open transaction is touched.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millstream_log::{
    AckLevel, Cleanup, Embedded, EndTransaction, KafkaLog, KafkaPartition, LogFigures, StoredBatches, TopicConfig,
    UpTo, reply,
};
use millstream_testkit::PATIENCE;
use millstream_testkit::sim::{PowerLoss, SimFiles};
use millstream_types::{
    BatchBuilder, BatchLimits, Compression, Epoch, ManualClock, Offset, Producer, Record, RecordBatch,
};
use proptest::prelude::*;

use crate::support::{clock, create, new_disk, open, partitions};

const HOUR: Duration = Duration::from_secs(3600);
/// Turns of the writeback thread after which compaction must have come to rest.
const TURNS_MAX: usize = 100_000;
/// Versions that make compaction due, and fill the cache.
const CHURN: usize = 100;
/// The producer without transactions.
const PLAIN: u8 = 0;

type State = BTreeMap<Vec<u8>, Vec<u8>>;
type Found = Vec<(Offset, Vec<u8>, Option<Vec<u8>>)>;

struct Bench {
    files: SimFiles,
    clock: Arc<ManualClock>,
    log: Arc<Embedded>,
    partition: Arc<dyn KafkaPartition>,
    /// By producer, what comes next.
    sequences: BTreeMap<u8, i32>,
}

impl Bench {
    fn new(delete_retention: Duration) -> Self {
        let (files, clock) = (new_disk(), clock());
        let log = open(&files, &clock).unwrap();
        let (retention, segment_bytes) = (None, 1 << 10);
        let config = TopicConfig {
            partitions: 1,
            cleanup: Cleanup::Compact,
            retention,
            segment_bytes,
            delete_retention,
            ..TopicConfig::default()
        };
        let partition = create(&log, "t", &config).swap_remove(0);
        Self { files, clock, log, partition, sequences: BTreeMap::new() }
    }

    fn put(&mut self, producer: u8, key: &str, value: Option<&str>) {
        let mut builder = BatchBuilder::default();
        builder.push(&Record { key: Some(key.as_bytes()), value: value.map(str::as_bytes), ..Record::default() });
        if producer != PLAIN {
            let base_sequence = self.sequences.entry(producer).or_default();
            builder.set_producer(Producer { id: i64::from(producer), epoch: 0, base_sequence: *base_sequence });
            builder.set_transactional();
            *base_sequence += 1;
        }
        let (done, answer) = reply();
        let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
        self.partition.append_batch(batch, AckLevel::Synced, done).unwrap();
        answer.wait().unwrap();
    }

    fn end(&self, producer: u8, commit: bool) {
        let (done, answer) = reply();
        let end = EndTransaction {
            producer_id: i64::from(producer),
            partitions: vec![self.partition.id().clone()],
            commit,
            ..EndTransaction::default()
        };
        self.log.end_transaction(&end, AckLevel::Synced, done).unwrap();
        answer.wait().unwrap();
    }

    /// Enough versions of one key to make compaction due.
    fn churn(&mut self) {
        for round in 0..CHURN {
            self.put(PLAIN, "churn", Some(&format!("{round} {}", "x".repeat(200))));
            self.log.flush().unwrap();
        }
    }

    fn aborted(&self) -> u64 {
        self.log.stats().partitions[0].aborted_transactions
    }

    fn until(&self, what: &str, reached: impl Fn() -> bool) {
        let begun = Instant::now();
        for turn in 0_usize.. {
            if reached() {
                return;
            }
            assert!(turn < TURNS_MAX || begun.elapsed() < PATIENCE, "not reached: {what}");
            self.log.flush().unwrap();
            thread::yield_now();
        }
    }
}

fn records(batches: &[RecordBatch]) -> Found {
    let mut found = Vec::new();
    for batch in batches {
        let batch = batch.inflated(&BatchLimits::default()).unwrap();
        for record in batch.records() {
            let record = record.unwrap();
            found.push((record.offset, record.key.unwrap().to_vec(), record.value.map(<[u8]>::to_vec)));
        }
    }
    found
}

/// Reads the partition as our own readers do.
fn read(partition: &dyn KafkaPartition) -> Found {
    let (mut found, mut next) = (Vec::new(), Offset(0));
    loop {
        let batches = partition.read(next, 4 << 10, UpTo::Stable).unwrap();
        let Some(last) = batches.last() else { return found };
        next = last.next_offset();
        found.append(&mut records(&batches));
    }
}

/// Everything up to the limit as it lies, in the pieces in which it is read.
fn stored(partition: &dyn KafkaPartition, up_to: UpTo) -> Vec<StoredBatches> {
    let (mut pieces, mut next) = (Vec::new(), Offset(0));
    loop {
        let stored = partition.read_stored(next, 4 << 10, up_to).unwrap();
        let Some(last) = stored.batches.last() else { return pieces };
        next = last.next_offset();
        pieces.push(stored);
    }
}

fn batches(partition: &dyn KafkaPartition, up_to: UpTo) -> Vec<RecordBatch> {
    stored(partition, up_to).into_iter().flat_map(|stored| stored.batches).collect()
}

/// Reads the partition as a Kafka client with `read_committed` does.
fn seen_by_a_client(partition: &dyn KafkaPartition) -> Found {
    stored(partition, UpTo::Stable).iter().flat_map(as_a_client).collect()
}

fn as_a_client(stored: &StoredBatches) -> Found {
    let (mut found, mut aborting) = (Vec::new(), HashSet::new());
    let mut ahead = stored.aborted.iter().peekable();
    for batch in &stored.batches {
        while let Some(one) = ahead.next_if(|one| one.first <= batch.last_offset()) {
            aborting.insert(one.producer_id);
        }
        if let Some(marker) = batch.marker() {
            if !marker.committed {
                aborting.remove(&marker.producer_id);
            }
        } else if !(batch.is_transactional() && aborting.contains(&batch.producer().unwrap().id)) {
            found.append(&mut records(std::slice::from_ref(batch)));
        }
    }
    found
}

fn state(found: &Found) -> State {
    let mut state = State::new();
    for (_, key, value) in found {
        match value {
            Some(value) => drop(state.insert(key.clone(), value.clone())),
            None => drop(state.remove(key)),
        }
    }
    state
}

#[test]
fn an_aborted_transaction_is_compacted_away_and_then_forgotten() {
    let mut bench = Bench::new(HOUR);
    bench.put(PLAIN, "key", Some("old"));
    for _ in 0..10 {
        bench.put(1, "key", Some("never"));
        bench.put(1, "other", None);
        bench.end(1, false);
    }
    bench.put(2, "key", Some("new"));
    bench.end(2, true);
    assert_eq!(bench.aborted(), 10);
    bench.churn();
    bench.until("nothing is remembered", || bench.aborted() == 0);
    let batches = self::batches(&*bench.partition, UpTo::Stable);
    assert!(batches.iter().all(|batch| batch.is_control() || batch.producer().is_none_or(|one| one.id != 1)));
    assert!(batches.iter().any(RecordBatch::is_control), "markers stay as long as deletions do");
    assert_eq!(state(&read(&*bench.partition))[&b"key"[..]], b"new");

    bench.clock.advance(HOUR * 2);
    bench.churn();
    bench.until("markers go", || !self::batches(&*bench.partition, UpTo::Stable).iter().any(RecordBatch::is_control));
    let crashed = bench.files.crash(1, PowerLoss::DropAll);
    drop(bench.log.close());
    let log = open(&crashed, &bench.clock).unwrap();
    let partition = partitions(&log, "t").swap_remove(0);
    assert_eq!(state(&read(&*partition))[&b"key"[..]], b"new");
    assert_eq!(state(&seen_by_a_client(&*partition)), state(&read(&*partition)));
    log.close().unwrap();
}

#[test]
fn an_open_transaction_holds_compaction_back() {
    let mut bench = Bench::new(HOUR);
    bench.put(1, "key", Some("perhaps"));
    bench.churn();
    bench.put(PLAIN, "key", Some("later"));
    bench.churn();
    for _ in 0..50 {
        bench.log.flush().unwrap();
    }
    let all = batches(&*bench.partition, UpTo::High);
    assert_eq!(all.len(), 2 + 2 * CHURN, "nothing is gone");
    bench.end(1, true);
    bench.until("the earlier value goes", || read(&*bench.partition)[0].0 != Offset(0));
    assert_eq!(state(&read(&*bench.partition))[&b"key"[..]], b"later");
    bench.log.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_gets_the_last_committed_value_of_each_key(
        steps in prop::collection::vec((0_u8..8, prop::option::weighted(0.8, 0_u16..1000), 0_u8..4, 0_u8..24), 1..200)
    ) {
        let mut bench = Bench::new(Duration::from_secs(5));
        // All that was sent, in order, with what has become of it: `None` is open.
        let mut sent: Vec<(u8, String, Option<String>, Option<bool>)> = Vec::new();
        for (key, value, producer, chance) in steps {
            let (key, value) = (key.to_string(), value.map(|value| value.to_string()));
            bench.put(producer, &key, value.as_deref());
            sent.push((producer, key, value, (producer == PLAIN).then_some(true)));
            let is_ending = chance < 8 && producer != PLAIN;
            if is_ending {
                let commit = chance % 2 == 0;
                bench.end(producer, commit);
                let open = sent.iter_mut().filter(|(by, .., fate)| *by == producer && fate.is_none());
                open.for_each(|(.., fate)| *fate = Some(commit));
            }
            match chance {
                8..12 => bench.log.flush().unwrap(),
                12 => bench.clock.advance(Duration::from_secs(4)),
                _ => {}
            }
            if chance > 20 {
                check(&*bench.partition, &sent);
            }
        }
        bench.log.flush().unwrap();
        check(&*bench.partition, &sent);
        bench.log.close().unwrap();
        let log = open(&bench.files, &bench.clock).unwrap();
        check(&*partitions(&log, "t")[0], &sent);
        log.close().unwrap();
    }
}

/// Checks that a reader gets what was committed before the first record that is open.
fn check(partition: &dyn KafkaPartition, sent: &[(u8, String, Option<String>, Option<bool>)]) {
    let decided = sent.iter().take_while(|(.., fate)| fate.is_some()).filter(|(.., fate)| *fate == Some(true));
    let mut expected = State::new();
    for (_, key, value, _) in decided {
        match value {
            Some(value) => drop(expected.insert(key.as_bytes().to_vec(), value.as_bytes().to_vec())),
            None => drop(expected.remove(key.as_bytes())),
        }
    }
    assert_eq!(state(&read(partition)), expected);
    assert_eq!(state(&seen_by_a_client(partition)), expected);
}
