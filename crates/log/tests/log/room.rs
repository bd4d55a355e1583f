//! Compaction that makes room: on request in a quiet partition, and by itself on a disk that is nearly full.

use std::cell::Cell;
use std::sync::Arc;

use millstream_log::{
    AckLevel, AtomicAppend, Embedded, Error, KafkaPartition, Log, LogConfig, TopicConfig, Writers, reply,
};
use millstream_testkit::sim::SimFiles;
use millstream_types::{Offset, Record};

use crate::support::compaction::{Bench, compacted, state};
use crate::support::{append_atomic, clock, create, new_disk, small_config};

const SEGMENT_BYTES: u64 = 256 << 10;

fn by_live_bytes() -> TopicConfig {
    TopicConfig { compaction_live_percent: Some(50), segment_bytes: SEGMENT_BYTES, ..compacted() }
}

#[test]
fn a_quiet_partition_is_compacted_on_request_with_its_newest_records() {
    for config in [by_live_bytes(), TopicConfig { segment_bytes: SEGMENT_BYTES, ..compacted() }] {
        let bench = Bench::new(config);
        let value = "v".repeat(1_000);
        let keys: Vec<String> = (0..50).map(|number| format!("key-{number}")).collect();
        keys.iter().for_each(|key| {
            bench.put(key, Some(&value));
        });
        bench.put("kept", Some(&value));
        keys.iter().for_each(|key| {
            bench.put(key, None);
        });
        bench.log.flush().unwrap();
        let before = bench.segment_bytes();
        bench.partition.compact();
        bench.until("nine tenths to be given back", || bench.segment_bytes() * 10 < before);
        assert_eq!(state(&bench.read()), [(b"kept".to_vec(), value.into_bytes())].into());
        bench.check_single_reads();
    }
}

/// The limit of the small disk; half of it is the reserve, of which the log keeps some MiB for its own files.
const FLOOR_BYTES: u64 = 16 << 20;

/// A disk on which the segments of the bench take room.
struct SmallDisk {
    bench: Bench,
    capacity_bytes: Cell<u64>,
}

impl SmallDisk {
    fn new(above_floor_bytes: u64, topic: &TopicConfig) -> Self {
        let (files, clock) = (new_disk(), clock());
        let config = LogConfig { disk_free_min_bytes: FLOOR_BYTES, compaction_dirty_percent: 100, ..small_config() };
        let log = Embedded::open(config, Arc::new(SimFiles::clone(&files)), clock.clone(), clock.clone()).unwrap();
        let partition = create(&log, "t", topic).swap_remove(0);
        Self {
            bench: Bench { files, clock, log, partition },
            capacity_bytes: Cell::new(FLOOR_BYTES + FLOOR_BYTES / 16 + above_floor_bytes),
        }
    }

    /// Looks at the disk.
    fn look(&self) -> Result<(), Error> {
        self.bench.files.tell_free(self.capacity_bytes.get().saturating_sub(self.bench.segment_bytes()));
        self.bench.log.check_disk()
    }

    fn put(&self, key: &str, value: &str) -> Result<(), Error> {
        self.look()?;
        let (done, answer) = reply();
        let record = Record { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Record::default() };
        self.bench.partition.append(&[record], AckLevel::Synced, done)?;
        answer.wait().map(drop)
    }
}

#[test]
fn keys_that_are_overwritten_for_ever_never_fill_a_small_disk_for_good() {
    const ROOM_BYTES: u64 = 128 << 10;
    const KEYS: usize = 20;
    const ROUNDS: usize = 200;
    // Also where all that fits on the disk is less than a segment, so that none is ever full.
    for segment_bytes in [16 << 10, 64 << 20] {
        let disk = SmallDisk::new(ROOM_BYTES, &TopicConfig { segment_bytes, ..by_live_bytes() });
        let mut refusals = 0;
        for round in 0..ROUNDS {
            let value = format!("{round} {}", "x".repeat(1_000));
            for key in 0..KEYS {
                while let Err(full) = disk.put(&format!("key-{key}"), &value) {
                    assert!(matches!(full, Error::DiskFull { .. }), "{full}");
                    refusals += 1;
                    disk.bench.until("writing to go on", || disk.look().is_ok());
                }
            }
            disk.bench.log.flush().unwrap();
        }
        assert!(refusals > 1, "the disk was never full");
        let found = state(&disk.bench.read());
        assert_eq!(found.len(), KEYS);
        assert!(found.values().all(|value| value.starts_with(format!("{} ", ROUNDS - 1).as_bytes())));
        disk.bench.log.close().unwrap();
    }
}

#[test]
fn a_pass_rewrites_what_the_disk_has_room_for_and_goes_on_with_the_room_that_this_makes() {
    const SEGMENTS: usize = 8;
    let topic = TopicConfig { segment_bytes: 16 << 10, ..by_live_bytes() };
    let disk = SmallDisk::new(1 << 20, &topic);
    let value = "x".repeat(1_000);
    let held = disk.bench.partition.hold("a reader", Offset(0));
    // Each segment has four keys that live, and others that are superseded.
    for segment in 0..SEGMENTS {
        (0..4).for_each(|key| disk.put(&format!("kept-{segment}-{key}"), &value).unwrap());
        (0..12).for_each(|key| disk.put(&format!("churn-{key}"), &value).unwrap());
        disk.bench.log.flush().unwrap();
    }
    let live_bytes = 1_100 * (4 * SEGMENTS as u64 + 12);
    let before = disk.bench.segment_bytes();
    assert!(before > 2 * live_bytes);
    // Somebody else takes the disk: there is room for what lives of one or two segments.
    disk.capacity_bytes.set(FLOOR_BYTES / 2 + before + 10_000);
    disk.look().unwrap_err();
    drop(held);
    disk.bench.until("what is dead to be given back", || {
        let _ = disk.look();
        disk.bench.segment_bytes() < 2 * live_bytes
    });
    assert_eq!(state(&disk.bench.read()).len(), 4 * SEGMENTS + 12);
    disk.bench.log.close().unwrap();
}

#[test]
fn tombstones_and_what_owners_have_promised_are_taken_while_other_appends_are_refused() {
    let disk = SmallDisk::new(1 << 20, &by_live_bytes());
    let log = &disk.bench.log;
    let state = create(log, "state", &TopicConfig { writers: Writers::OwnersOnly, ..by_live_bytes() }).swap_remove(0);
    let events = create(log, "events", &TopicConfig::default()).swap_remove(0);
    let (put, tombstone) = (Some(&b"value"[..]), None);
    let append = |partition: &Arc<dyn KafkaPartition>, value| {
        let (done, answer) = reply();
        let record = Record { key: Some(b"key"), value, ..Record::default() };
        partition.append(&[record], AckLevel::Synced, done)?;
        answer.wait().map(drop)
    };
    let commit = |value: &[Option<&[u8]>]| {
        let (done, answer) = reply();
        let records = value.iter().map(|value| Record { key: Some(b"key"), value: *value, ..Record::default() });
        let records = vec![(disk.bench.partition.id().clone(), records.collect())];
        append_atomic(&**log, &AtomicAppend { records, ..AtomicAppend::default() }, AckLevel::Synced, done)?;
        answer.wait().map(drop)
    };
    let keys = &disk.bench.partition;
    append(keys, put).unwrap();
    // Eighths of the limit that are free: who may append, and whether an owner may accept a command that makes room.
    for (eighths, promised, makes_room, accepts) in [
        (8, true, true, true),
        (7, true, true, true),
        (5, true, true, false),
        (4, false, true, false),
        (3, false, false, false),
    ] {
        // A little more than the limit, for what is accepted meanwhile.
        let beside_bytes: i64 = if eighths < 8 { 64 << 10 } else { -1 };
        disk.bench.files.tell_free((FLOOR_BYTES / 8 * eighths).saturating_add_signed(beside_bytes));
        log.check_disk().unwrap_err();
        let refused = |outcome: Result<(), Error>| match outcome {
            Ok(()) => false,
            Err(Error::DiskFull { .. }) => true,
            Err(other) => panic!("{other}"),
        };
        assert!(refused(append(keys, put)) && refused(commit(&[tombstone, put])), "{eighths}");
        assert!(refused(append(&events, tombstone)), "{eighths}: nothing is compacted there");
        assert_eq!(!refused(append(keys, tombstone)), makes_room, "{eighths}");
        assert_eq!(!refused(commit(&[tombstone])), makes_room, "{eighths}");
        assert_eq!(!refused(append(&state, put)), promised, "{eighths}");
        assert_eq!(!refused(log.check_making_room()), accepts, "{eighths}");
    }
    disk.bench.files.tell_free(u64::MAX);
    log.check_disk().unwrap();
    append(keys, put).unwrap();
    log.close().unwrap();
}
