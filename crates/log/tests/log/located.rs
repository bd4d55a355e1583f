//! Batches that are left where they lie are those that reading finds, checked like them. On the operating system's files, as no
//! others have a descriptor.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_log::{
    AckLevel, Embedded, Error, Extent, KafkaPartition, Located, Log, LogConfig, LogFigures as _, SystemFiles,
    TopicConfig, UpTo,
};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Producer, Record};
use tempfile::TempDir;

use crate::support::{append, clock, create, partitions};

const RECORDS: u64 = 100;
const VALUE_BYTES: usize = 20_000;

struct Fixture {
    dir: TempDir,
    log: Arc<Embedded>,
    partition: Arc<dyn KafkaPartition>,
}

fn open(dir: &TempDir) -> Arc<Embedded> {
    let clock = clock();
    // Readers see what segments hold.
    let config = LogConfig { dir: dir.path().join("log"), cache_bytes: 1 << 10, ..LogConfig::default() };
    Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap()
}

/// A hundred records in segments, a batch each, in blocks of some twelve; the file is named by what lies in `dir`.
fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir);
    let topic = TopicConfig { partitions: 1, segment_bytes: 1 << 20, ..TopicConfig::default() };
    let partition = create(&log, "located", &topic).remove(0);
    for number in 0..RECORDS {
        let value = vec![number as u8; VALUE_BYTES];
        append(&*partition, &value, AckLevel::Synced).unwrap();
    }
    log.flush().unwrap();
    // The newest stay in memory otherwise.
    append(&*partition, b"the tail", AckLevel::Synced).unwrap();
    Fixture { dir, log, partition }
}

impl Fixture {
    fn locate(&self, from: u64, max_bytes: usize) -> Option<Located> {
        self.partition.locate(Offset(from), max_bytes, UpTo::High).unwrap()
    }

    /// The bytes that reading finds from `from` on, and where they end.
    fn read(&self, from: u64, max_bytes: usize) -> (Vec<u8>, u64) {
        let stored = self.partition.read_stored(Offset(from), max_bytes, UpTo::High).unwrap().batches;
        let bytes = stored.iter().flat_map(|batch| batch.bytes().to_vec()).collect();
        (bytes, stored.last().unwrap().next_offset().0)
    }

    fn segments(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(self.dir.path(), &mut found);
        found.sort();
        found
    }
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "segment") && path.to_string_lossy().contains("/0/") {
            found.push(path);
        }
    }
}

fn bytes_of(extents: &[Extent]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for extent in extents {
        let file = fs::File::from(extent.descriptor().unwrap().try_clone_to_owned().unwrap());
        let mut part = vec![0; extent.size_bytes()];
        file.read_exact_at(&mut part, extent.at()).unwrap();
        bytes.extend(part);
    }
    bytes
}

#[test]
fn located_bytes_are_those_of_a_read_up_to_records_in_memory() {
    let fixture = fixture();
    for max_bytes in [300_000, 600_000, 1 << 30] {
        let (mut from, mut answers) = (0, 0);
        while let Some(located) = fixture.locate(from, max_bytes) {
            let bytes = bytes_of(&located.extents);
            assert!(!bytes.is_empty() && bytes.len() <= max_bytes, "{} of {max_bytes}", bytes.len());
            let (read, end) = fixture.read(from, bytes.len());
            assert!(bytes == read, "from {from}");
            (from, answers) = (end, answers + 1);
        }
        assert!(answers > 1 && from > RECORDS / 2, "{answers} answers up to {from}");
        assert!(from >= RECORDS || fixture.partition.reads_from_memory(Offset(from)), "{from} is on the disk");
    }
}

#[test]
fn a_range_that_splits_a_checksummed_block_is_not_located() {
    let fixture = fixture();
    assert!(fixture.locate(1, 1 << 30).is_none(), "the first block begins before it");
    assert!(fixture.locate(0, 50_000).is_none(), "no block is that small");
    assert!(fixture.locate(RECORDS, 1 << 30).is_none(), "it is in memory");
    let error = fixture.partition.locate(Offset(RECORDS + 2), 1, UpTo::High).unwrap_err();
    assert!(matches!(error, Error::BeyondTail { .. }), "{error}");
}

#[test]
fn unstable_records_are_not_located_and_aborted_transactions_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir);
    let partition = create(&log, "located", &TopicConfig { partitions: 1, ..TopicConfig::default() }).remove(0);
    append(&*partition, &vec![1; VALUE_BYTES], AckLevel::Synced).unwrap();
    log.flush().unwrap();
    let mut builder = BatchBuilder::default();
    builder.push(&Record { value: Some(&vec![2; VALUE_BYTES]), ..Record::default() });
    builder.set_producer(Producer { id: 7, epoch: 0, base_sequence: 0 });
    builder.set_transactional();
    let (done, answer) = millstream_log::reply();
    partition.append_batch(builder.seal(Offset(0), Epoch(0), Compression::None), AckLevel::Synced, done).unwrap();
    answer.wait().unwrap();
    log.flush().unwrap();
    append(&*partition, &vec![3; VALUE_BYTES], AckLevel::Synced).unwrap();
    log.flush().unwrap();
    append(&*partition, b"the tail", AckLevel::Synced).unwrap();
    let sizes = |up_to| {
        let located = partition.locate(Offset(0), 1 << 30, up_to).unwrap().unwrap();
        located.extents.iter().map(Extent::size_bytes).sum::<usize>()
    };
    let stable = sizes(UpTo::Stable);
    assert!((VALUE_BYTES..2 * VALUE_BYTES).contains(&stable), "{stable} bytes are stable");
    assert!(sizes(UpTo::High) > 3 * VALUE_BYTES);
}

#[test]
fn damaged_records_are_not_located_and_a_read_reports_them() {
    let fixture = fixture();
    let first = &fixture.segments()[0];
    let file = fs::File::options().read(true).write(true).open(first).unwrap();
    // In the first block, behind the headers of file and block.
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5_000).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 5_000).unwrap();
    // What another process has written is checked.
    fixture.log.close().unwrap();
    let log = open(&fixture.dir);
    let partition = partitions(&log, "located").remove(0);
    let fixture = Fixture { log, partition, ..fixture };
    assert!(fixture.locate(0, 1 << 30).is_none());
    let error = fixture.partition.read_stored(Offset(0), 1 << 30, UpTo::High).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test]
fn records_before_a_damaged_block_are_located_and_read_and_each_refusal_is_counted() {
    let fixture = fixture();
    let first = &fixture.segments()[0];
    let file = fs::File::options().read(true).write(true).open(first).unwrap();
    // In the second block: a block holds at most 256 KiB.
    let mut byte = [0];
    file.read_exact_at(&mut byte, 300_000).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 300_000).unwrap();
    fixture.log.close().unwrap();
    let log = open(&fixture.dir);
    let partition = partitions(&log, "located").remove(0);
    let fixture = Fixture { log, partition, ..fixture };
    let (read, end) = fixture.read(0, 1 << 30);
    assert!(end > 1 && read.len() < 256 << 10, "{end}");
    assert!(bytes_of(&fixture.locate(0, 1 << 30).unwrap().extents) == read);
    // It is verified once a minute at least; what was not is not sent.
    assert!(bytes_of(&fixture.locate(0, 1 << 30).unwrap().extents) == read);
    let topic = fixture.partition.topic().name.clone();
    let counted = || fixture.log.topic_stats(&topic)[0].damaged_reads;
    assert_eq!(counted(), 0);
    assert!(fixture.locate(end, 1 << 30).is_none());
    for refused in 1..=2 {
        let error = fixture.partition.read_stored(Offset(end), 1 << 30, UpTo::High).unwrap_err();
        assert!(matches!(error, Error::Corrupt { offset, .. } if offset == Offset(end)), "{error}");
        assert_eq!(counted(), refused);
    }
    assert!(fixture.read(40, 1 << 30).1 > 41, "what lies behind is served");
}

#[test]
fn located_bytes_stay_readable_after_their_topic_is_deleted() {
    let fixture = fixture();
    let located = fixture.locate(0, 300_000).unwrap();
    let before = bytes_of(&located.extents);
    let topic = fixture.partition.topic().name.clone();
    fixture.log.delete_topic(&topic).unwrap();
    assert!(matches!(fixture.partition.locate(Offset(0), 1, UpTo::High), Err(Error::UnknownTopic { .. })));
    assert!(bytes_of(&located.extents) == before);
}
