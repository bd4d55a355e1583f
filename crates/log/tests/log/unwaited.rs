//! Records at level `written` reach the disk once, in their segment, when the writeback thread comes by.

use std::sync::Arc;

use millstream_log::{AckLevel, Embedded, LogConfig, LogFigures, Partition, TopicConfig, UpTo};
use millstream_testkit::conformance::read_all;
use millstream_testkit::eventually;
use millstream_testkit::sim::{PowerLoss, SimFiles};
use millstream_types::Offset;

use crate::support::{append, clock, create, new_disk, partitions, small_config};

/// Nothing is synced because of its age, and no batch stays in memory that is in a segment.
fn open(files: &SimFiles) -> Arc<Embedded> {
    let config = LogConfig { sync_interval_ms: 3_600_000, flush_interval_ms: 2, cache_bytes: 0, ..small_config() };
    Embedded::open(config, Arc::new(files.clone()), clock(), clock()).unwrap()
}

/// `meta` vouches for what has left the memory.
fn until_in_segments(log: &Embedded) {
    eventually("segments get what was appended", || {
        log.stats().partitions.iter().all(|partition| partition.memory_bytes == 0)
    });
}

fn values(partition: &dyn Partition) -> Vec<Vec<u8>> {
    let stored = read_all(partition, Offset::ZERO, UpTo::Tail).unwrap();
    stored.into_iter().map(|record| record.value.unwrap()).collect()
}

#[test]
fn unawaited_records_survive_power_loss_without_a_sync_of_the_journal() {
    let files = new_disk();
    let log = open(&files);
    let written = TopicConfig { level: AckLevel::Written, partitions: 2, ..TopicConfig::default() };
    let topic = create(&log, "t", &written);
    let syncs = log.stats().syncs;
    let mut sent = Vec::new();
    // Through all files of the journal, several times.
    for number in 0..2_000_u32 {
        let value = [&number.to_be_bytes()[..], &[7; 500]].concat();
        append(&*topic[number as usize % 2], &value, AckLevel::Written).unwrap();
        sent.push(value);
    }
    until_in_segments(&log);
    assert_eq!(log.stats().syncs, syncs, "the journal was synced");

    let files = files.crash(1, PowerLoss::DropAll);
    drop(log.close());
    let log = open(&files);
    let topic = partitions(&log, "t");
    let mut found: Vec<_> = topic.iter().flat_map(|partition| values(&**partition)).collect();
    found.sort();
    assert_eq!(found, sent);
    log.close().unwrap();
}
