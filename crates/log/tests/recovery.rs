//! A start costs what the tail costs, however much lies in closed segments.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use millstream_log::sim::{PowerLoss, SimFiles};
use millstream_log::{AckLevel, TopicConfig};

use crate::support::{append, clock, create, new_disk, open, partitions};

/// A log with `appends` records of 3,000 bytes in segments, and as many in the journal whatever `appends` is.
fn filled(appends: usize) -> SimFiles {
    let (files, clock) = (new_disk(), clock());
    let log = open(&files, &clock).unwrap();
    let config = TopicConfig { segment_bytes: 64 << 10, retention: None, ..TopicConfig::default() };
    let topic = create(&log, "t", &config);
    for number in 0..appends {
        append(&*topic[number % topic.len()], &[b'x'; 3000], AckLevel::Written).unwrap();
    }
    log.flush().unwrap();
    for _ in 0..10 {
        append(&*topic[0], &[b'y'; 1000], AckLevel::Synced).unwrap();
    }
    let after = files.crash(1, PowerLoss::DropAll);
    drop(log.close());
    after
}

/// Bytes that a start reads, and bytes that lie in segments.
fn start(appends: usize) -> (u64, u64) {
    let files = filled(appends);
    let clock = clock();
    let log = open(&files, &clock).unwrap();
    let read = files.bytes_read();
    let records: u64 = partitions(&log, "t").iter().map(|partition| partition.offsets().first.0).sum();
    assert_eq!(records, 0);
    log.close().unwrap();
    let segments = files.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "segment"));
    (read, segments.map(|(_, size)| size).sum())
}

#[test]
fn a_start_after_a_crash_reads_only_the_tail() {
    let (read_small, size_small) = start(100);
    let (read_large, size_large) = start(4000);
    let (more_read, more_stored) = (read_large.saturating_sub(read_small), size_large - size_small);
    println!("{more_stored} bytes more in segments, {more_read} bytes more read by a start ({read_small} at first)");
    assert!(more_stored > 20 * support::small_config().journal_max_bytes);
    // Every frame of the journal is looked at twice at most; how many of its files exist depends on the load.
    assert!(more_read <= 2 * support::small_config().journal_max_bytes);
}
