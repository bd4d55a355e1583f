//! A start costs what the tail costs, however much lies in closed segments, and leaves readers nothing to wait for.

use millstream_log::{AckLevel, TopicConfig, UpTo};
use millstream_testkit::conformance::read_all;
use millstream_testkit::sim::{PowerLoss, SimFiles};
use millstream_types::Offset;

use crate::support::{self, append, clock, create, new_disk, open, partitions};

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

#[test]
fn a_reader_reaches_the_stable_offset_over_gaps_left_by_crashes() {
    for level in [AckLevel::Memory, AckLevel::Written, AckLevel::Synced] {
        let (mut files, clock) = (new_disk(), clock());
        let mut log = open(&files, &clock).unwrap();
        let config = TopicConfig { partitions: 1, level, ..TopicConfig::default() };
        let partition = create(&log, "t", &config).swap_remove(0);
        let mut end = Offset(0);
        for _ in 0..3 {
            end = append(&*partition, b"x", AckLevel::Synced).unwrap().last.next();
        }
        drop(partition);
        // Nothing is appended between the two.
        for _ in 0..2 {
            files = files.crash(1, PowerLoss::DropAll);
            drop(log.close());
            log = open(&files, &clock).unwrap();
            let ends = partitions(&log, "t")[0].offsets();
            assert_eq!((ends.stable, ends.high), (end, end), "{level:?}");
            assert!(ends.tail > end, "offsets that a crash may have taken are not handed out again");
        }
        let partition = partitions(&log, "t").swap_remove(0);
        assert_eq!(read_all(&*partition, Offset(0), UpTo::Stable).unwrap().len(), 3);
        let appended = append(&*partition, b"y", AckLevel::Synced).unwrap();
        assert!(appended.first > end);
        assert_eq!(partition.offsets().stable, appended.last.next());
        assert_eq!(read_all(&*partition, end, UpTo::Stable).unwrap().len(), 1, "over the gap");
        log.close().unwrap();
    }
}

#[test]
fn a_reader_reaches_the_stable_offset_of_an_empty_partition_after_any_kind_of_stop() {
    for (had_records, level) in [(false, AckLevel::Written), (true, AckLevel::Written), (true, AckLevel::Synced)] {
        let (mut files, clock) = (new_disk(), clock());
        let mut log = open(&files, &clock).unwrap();
        let config = TopicConfig { partitions: 1, level, ..TopicConfig::default() };
        let partition = create(&log, "t", &config).swap_remove(0);
        let mut end = Offset(0);
        if had_records {
            end = append(&*partition, b"x", AckLevel::Synced).unwrap().last.next();
            assert_eq!(partition.trim(end).unwrap(), end);
        }
        drop(partition);
        for (nth, is_crash) in [true, false, false, true, true, false].into_iter().enumerate() {
            if is_crash {
                files = files.crash(1, PowerLoss::DropAll);
                drop(log.close());
            } else {
                log.close().unwrap();
            }
            drop(log);
            log = open(&files, &clock).unwrap();
            let ends = partitions(&log, "t")[0].offsets();
            assert_eq!((ends.first, ends.stable, ends.high), (end, end, end), "start {nth}, {had_records}, {level:?}");
            assert!(ends.tail > end, "offsets that a crash may have taken are not handed out again");
        }
        log.close().unwrap();
    }
}
