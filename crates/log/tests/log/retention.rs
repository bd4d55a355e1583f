//! Old segments go when their time has come, whole, from the oldest on, and not while somebody holds them.

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Appended, Embedded, Error, LogFigures, Partition, TopicConfig, UpTo, reply};
use millstream_testkit::conformance::{ReadRecord, read_all};
use millstream_testkit::sim::{PowerLoss, SimFiles};
use millstream_types::{BatchBuilder, Compression, Epoch, ManualClock, Offset, Producer, Record};

use crate::support::{self, append, clock, create, new_disk, open, partitions};

const HOUR: Duration = Duration::from_secs(3600);

struct Bench {
    files: SimFiles,
    clock: Arc<ManualClock>,
    log: Arc<Embedded>,
    partition: Arc<dyn Partition>,
}

impl Bench {
    /// Twenty hours; in each, two records of 1,000 bytes, in segments of about four records.
    fn new(config: TopicConfig) -> Self {
        let (files, clock) = (new_disk(), clock());
        let log = open(&files, &clock).unwrap();
        let config = TopicConfig { segment_bytes: 4 << 10, ..config };
        let partition = create(&log, "t", &config).swap_remove(0);
        let bench = Self { files, clock, log, partition };
        bench.write();
        bench
    }

    fn write(&self) {
        for _ in 0..20 {
            append(&*self.partition, &[b'x'; 1000], AckLevel::Synced).unwrap();
            append(&*self.partition, &[b'y'; 1000], AckLevel::Synced).unwrap();
            self.log.flush().unwrap();
            self.clock.advance(HOUR);
        }
        self.log.flush().unwrap();
    }

    fn first(&self) -> u64 {
        self.partition.offsets().first.0
    }

    fn read(&self) -> Vec<ReadRecord> {
        read_all(&*self.partition, self.partition.offsets().first, UpTo::Stable).unwrap()
    }
}

#[test]
fn records_younger_than_the_retention_stay_and_segments_of_older_ones_go() {
    let bench = Bench::new(TopicConfig { retention: Some(8 * HOUR), ..TopicConfig::default() });
    // The records of the last eight hours are 24 to 39; a segment goes whole, once its last record is older.
    assert!((16..=24).contains(&bench.first()), "first is {}", bench.first());
    assert_eq!(bench.read().len() as u64, 40 - bench.first());
    match bench.partition.read(Offset(0), 1, UpTo::Stable) {
        Err(Error::Trimmed { wanted: Offset(0), oldest, .. }) => assert_eq!(oldest.0, bench.first()),
        other => panic!("not refused as trimmed: {other:?}"),
    }
    bench.log.close().unwrap();
}

#[test]
fn a_partition_is_trimmed_to_its_size() {
    let config = TopicConfig { retention: None, retention_bytes: Some(12 << 10), ..TopicConfig::default() };
    let bench = Bench::new(config);
    let kept = bench.read().len();
    assert!((8..=16).contains(&kept), "{kept} records of 1,000 bytes in 12 KiB");
    assert_eq!(bench.first() + kept as u64, 40);
    bench.log.close().unwrap();
}

#[test]
fn without_retention_everything_stays() {
    let bench = Bench::new(TopicConfig { retention: None, ..TopicConfig::default() });
    assert_eq!((bench.first(), bench.read().len()), (0, 40));
    bench.log.close().unwrap();
}

#[test]
fn trimmed_records_do_not_come_back() {
    let bench = Bench::new(TopicConfig { retention: Some(8 * HOUR), ..TopicConfig::default() });
    let (first, read) = (bench.first(), bench.read());
    let files = bench.files.crash(1, PowerLoss::DropAll);
    drop(bench.log.close());
    let log = open(&files, &bench.clock).unwrap();
    let partition = &partitions(&log, "t")[0];
    assert_eq!(partition.offsets().first.0, first);
    assert_eq!(read_all(&**partition, Offset(first), UpTo::Stable).unwrap(), read);
    log.close().unwrap();
}

#[test]
fn a_registered_reader_holds_records_back_until_it_has_read_them() {
    let bench = Bench::new(TopicConfig { retention: None, ..TopicConfig::default() });
    let hold = bench.partition.hold("reader", Offset(10));
    let config = TopicConfig { retention: Some(HOUR), segment_bytes: 4 << 10, ..TopicConfig::default() };
    millstream_log::Log::alter_topic(&*bench.log, &support::name("t"), &config).unwrap();
    bench.log.flush().unwrap();
    assert!((5..=10).contains(&bench.first()), "first is {}", bench.first());
    assert_eq!(bench.read().len() as u64, 40 - bench.first());

    hold.advance(Offset(20));
    bench.log.flush().unwrap();
    assert!((15..=20).contains(&bench.first()), "first is {}", bench.first());
    drop(hold);
    bench.log.flush().unwrap();
    assert!(bench.first() >= 32, "first is {}", bench.first());
    bench.log.close().unwrap();
}

#[test]
fn a_reader_that_holds_back_more_than_the_limit_is_left_behind() {
    let bench = Bench::new(TopicConfig { retention: None, ..TopicConfig::default() });
    let _hold = bench.partition.hold("sleeper", Offset(0));
    let config = TopicConfig {
        retention: Some(HOUR),
        segment_bytes: 4 << 10,
        hold_max_bytes: 16 << 10,
        ..TopicConfig::default()
    };
    millstream_log::Log::alter_topic(&*bench.log, &support::name("t"), &config).unwrap();
    bench.log.flush().unwrap();
    let kept = bench.read().len();
    assert!((8..=24).contains(&kept), "{kept} records of 1,000 bytes are held, the limit is 16 KiB");
    bench.log.close().unwrap();
}

/// Sends a record as an idempotent producer does.
fn send(log: &Embedded, base_sequence: i32) -> Result<Appended, Error> {
    let mut builder = BatchBuilder::default();
    builder.push(&Record::default());
    builder.set_producer(Producer { id: 1, epoch: 0, base_sequence });
    let (done, answer) = reply();
    let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
    partitions(log, "t")[0].append_batch(batch, AckLevel::Synced, done)?;
    answer.wait()
}

#[test]
fn a_producer_whose_records_are_gone_is_known_until_it_has_been_silent_for_a_day() {
    let (files, clock) = (new_disk(), clock());
    let mut log = open(&files, &clock).unwrap();
    let config = TopicConfig { retention: Some(HOUR), segment_bytes: 4 << 10, ..TopicConfig::default() };
    let partition = create(&log, "t", &config).swap_remove(0);
    let first = send(&log, 0).unwrap();
    append(&*partition, &[b'x'; 5000], AckLevel::Synced).unwrap();
    log.flush().unwrap();
    clock.advance(23 * HOUR);
    log.flush().unwrap();
    assert!(partition.offsets().first > first.last, "retention has taken it");
    for silent in [Duration::ZERO, HOUR] {
        clock.advance(silent);
        assert_eq!(send(&log, 0).unwrap(), first);
        assert!(matches!(send(&log, 7), Err(Error::OutOfOrderSequence { expected: 1, given: 7, .. })));
        log.close().unwrap();
        log = open(&files, &clock).unwrap();
    }
    clock.advance(Duration::from_millis(1));
    assert!(send(&log, 7).unwrap().first > first.last, "forgotten, so it may begin anywhere");
    log.close().unwrap();
}

#[test]
fn files_of_trimmed_records_are_removed() {
    let bench = Bench::new(TopicConfig { retention: None, ..TopicConfig::default() });
    let segments = || bench.log.stats().partitions[0].segments;
    let before = segments();
    assert_eq!(bench.partition.trim(Offset(22)).unwrap(), Offset(22));
    bench.log.flush().unwrap();
    assert!(segments() < before / 2 + 2, "{} of {before} segments are left", segments());
    assert_eq!(bench.read().len(), 18);
    assert_eq!(bench.partition.trim(Offset(40)).unwrap(), Offset(40));
    bench.log.flush().unwrap();
    assert_eq!(segments(), 0, "the one that was written to goes, too");
    bench.log.close().unwrap();
}

#[test]
fn records_trimmed_before_they_reach_a_segment_do_not_come_back_after_a_crash() {
    for flushed in [false, true] {
        let bench = Bench::new(TopicConfig { retention: None, ..TopicConfig::default() });
        bench.partition.trim(Offset(40)).unwrap();
        bench.log.flush().unwrap();
        for _ in 0..5 {
            append(&*bench.partition, &[b'z'; 1000], AckLevel::Synced).unwrap();
        }
        assert_eq!(bench.partition.trim(Offset(43)).unwrap(), Offset(43));
        if flushed {
            bench.log.flush().unwrap();
        }
        let mut files = bench.files.crash(1, PowerLoss::DropAll);
        drop(bench.log.close());
        for restart in 0..2 {
            let log = open(&files, &bench.clock).unwrap();
            let partition = &partitions(&log, "t")[0];
            assert_eq!(partition.offsets().first, Offset(43));
            let found = read_all(&**partition, Offset(43), UpTo::Stable).unwrap();
            assert_eq!(found.iter().map(|record| record.offset.0).take(2).collect::<Vec<_>>(), [43, 44]);
            assert_eq!(found.len(), 2 + restart);
            append(&**partition, b"after", AckLevel::Synced).unwrap();
            files = files.crash(1, PowerLoss::DropAll);
            drop(log.close());
        }
    }
}

#[test]
fn a_reader_that_holds_back_more_than_the_limit_does_not_stop_a_trim() {
    let bench = Bench::new(TopicConfig { retention: None, hold_max_bytes: 9 << 10, ..TopicConfig::default() });
    let _hold = bench.partition.hold("sleeper", Offset(2));
    let first = bench.partition.trim(Offset(36)).unwrap().0;
    assert!((20..36).contains(&first), "{first}: as much as may be held back stays");
    bench.log.close().unwrap();
}
