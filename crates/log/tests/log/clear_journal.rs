//! The journal of a log that was closed in order can be removed: it holds no record that the segments lack.

use std::path::Path;

use millstream_log::{AckLevel, Cleanup, Error, TopicConfig, UpTo, clear_journal};
use millstream_testkit::conformance::read_all;
use millstream_testkit::sim::{PowerLoss, SimFiles};
use millstream_types::Offset;

use crate::support::{append, clock, create, new_disk, open, partitions, small_config};

fn clear(files: &SimFiles) -> Result<u64, Error> {
    clear_journal(files, &small_config().dir)
}

fn is_in(files: &SimFiles, part: &Path) -> usize {
    files.files().into_iter().filter(|(path, _)| path.components().any(|it| it.as_os_str() == part)).count()
}

#[test]
fn a_log_that_was_closed_in_order_keeps_every_record_without_its_journal() {
    let (files, clock) = (new_disk(), clock());
    let mut log = open(&files, &clock).unwrap();
    let config = TopicConfig { partitions: 2, cleanup: Cleanup::Delete, ..TopicConfig::default() };
    create(&log, "t", &config);
    let mut count = 0;
    // The lives after the first begin on a journal that starts over.
    for _ in 0..3 {
        for partition in partitions(&log, "t") {
            append(&*partition, &[b'x'; 500], AckLevel::Synced).unwrap();
            count += 1;
        }
        log.close().unwrap();
        assert!(clear(&files).unwrap() > 0);
        assert_eq!(is_in(&files, Path::new("journal")), 0);
        assert_eq!(clear(&files).unwrap(), 0, "nothing is left");
        log = open(&files, &clock).unwrap();
        let found: usize =
            partitions(&log, "t").iter().map(|it| read_all(&**it, Offset(0), UpTo::Stable).unwrap().len()).sum();
        assert_eq!(found, count);
    }
    append(&*partitions(&log, "t")[0], b"last", AckLevel::Synced).unwrap();
    let after = files.crash(1, PowerLoss::DropAll);
    drop(log.close());
    let log = open(&after, &clock).unwrap();
    let found: usize =
        partitions(&log, "t").iter().map(|it| read_all(&**it, Offset(0), UpTo::Stable).unwrap().len()).sum();
    assert_eq!(found, count + 1, "a crash behind a cleared journal");
    log.close().unwrap();
}

#[test]
fn the_journal_of_a_log_that_crashed_or_runs_is_left_alone() {
    let (files, clock) = (new_disk(), clock());
    let log = open(&files, &clock).unwrap();
    let partition = create(&log, "t", &TopicConfig { partitions: 1, ..TopicConfig::default() }).swap_remove(0);
    append(&*partition, b"only in the journal", AckLevel::Synced).unwrap();
    assert!(matches!(clear(&files), Err(Error::InUse { .. })));
    let after = files.crash(1, PowerLoss::DropAll);
    drop(log.close());
    assert!(matches!(clear(&after), Err(Error::NotClosed { .. })));
    let log = open(&after, &clock).unwrap();
    assert_eq!(read_all(&*partitions(&log, "t")[0], Offset(0), UpTo::Stable).unwrap().len(), 1);
    log.close().unwrap();
}
