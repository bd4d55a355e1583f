//! A flipped bit in a file at rest is reported with its place, and never served.
//!
//! `MILLSTREAM_BIT_FLIPS=10000` makes ten times as many trials as an ordinary run.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};

use millstream_log::Files as _;
use millstream_log::{
    AckLevel, AtomicAppend, DerivedTopic, Embedded, Error, KafkaPartition, Log, LogConfig, Partition, PositionCommit,
    TopicConfig, UpTo, reply,
};
use millstream_testkit::conformance::{ReadRecord, append_and_wait, read_all};
use millstream_testkit::sim::{Rng, SimFiles};
use millstream_types::{Compression, ManualClock, Offset, Position, Record, TopicPartition};

use crate::support::{self, append_atomic, clock, create, name, new_disk, open, partitions};

const TRIALS: u64 = 1000;
const TOPICS: [(&str, Compression); 2] = [("plain", Compression::None), ("packed", Compression::Zstd)];

fn trials() -> u64 {
    std::env::var("MILLSTREAM_BIT_FLIPS").map_or(TRIALS, |trials| trials.parse().unwrap())
}

/// A data directory at rest, and what it must return.
struct Image {
    files: SimFiles,
    clock: Arc<ManualClock>,
    /// By topic and partition.
    records: Vec<(TopicPartition, Vec<ReadRecord>)>,
    position: (TopicPartition, Position),
}

/// The way in which the process ended that wrote the image.
#[derive(Debug, PartialEq)]
enum End {
    Close,
    Kill,
}

impl Image {
    fn new(end: &End) -> Self {
        let (files, clock) = (new_disk(), clock());
        let log = open(&files, &clock).unwrap();
        for (topic, compression) in TOPICS {
            let config = TopicConfig { compression, segment_bytes: 8 << 10, retention: None, ..TopicConfig::default() };
            write(&create(&log, topic, &config));
            log.flush().unwrap();
        }
        let position = commit(&log);
        if *end == End::Kill {
            TOPICS.iter().for_each(|(topic, _)| write(&partitions(&log, topic)));
        }
        let records = TOPICS
            .iter()
            .flat_map(|(topic, _)| partitions(&log, topic))
            .map(|partition| (partition.id().clone(), read_all(&*partition, Offset::ZERO, UpTo::Stable).unwrap()))
            .collect();
        if *end == End::Close {
            log.close().unwrap();
        }
        let image = Self { files: files.kill(), clock, records, position };
        drop(log.close());
        image
    }

    /// A file for a flip, each kind as likely as any other, and the flipped bit.
    fn flip(&self, files: &SimFiles, rng: &mut Rng) -> (PathBuf, u64) {
        let all: Vec<_> = files.files().into_iter().filter(|(path, size)| *size > 0 && kind(path) != "LOCK").collect();
        let mut kinds: Vec<_> = all.iter().map(|(path, _)| kind(path)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let chosen = rng.pick(&kinds).unwrap();
        let of_kind: Vec<_> = all.iter().filter(|(path, _)| kind(path) == *chosen).collect();
        let (path, size) = rng.pick(&of_kind).unwrap();
        let bit = rng.below(size * 8);
        files.flip_bit(path, bit).unwrap();
        (path.clone(), bit)
    }
}

/// `segment`, `index`, `journal`, `meta`, `copy` (of it) or `LOCK`.
fn kind(path: &Path) -> &str {
    path.extension().or(path.file_name()).unwrap().to_str().unwrap()
}

/// Thirty appends to each partition, one after the other, so that each is synced before the next is written.
fn write(partitions: &[Arc<dyn KafkaPartition>]) {
    for append in 0..30 {
        for partition in partitions {
            let values: Vec<_> = (0..5).map(|record| format!("{append} {record} {}", "x".repeat(append * 7))).collect();
            let records: Vec<_> = (0..)
                .zip(&values)
                .map(|(time, value)| Record { timestamp_ms: time, value: Some(value.as_bytes()), ..Record::default() })
                .collect();
            append_and_wait(&**partition, &records, AckLevel::Synced).unwrap();
        }
    }
}

fn commit(log: &Embedded) -> (TopicPartition, Position) {
    let partition = &partitions(log, "plain")[0];
    let position =
        Position { topic: partition.topic().id, epoch: partition.offsets().epoch, offset: partition.offsets().stable };
    let commit =
        PositionCommit { group: "group".into(), partition: partition.id().clone(), position, metadata: String::new() };
    let (done, answer) = reply();
    let append = AtomicAppend { records: Vec::new(), positions: vec![commit] };
    append_atomic(log, &append, AckLevel::Synced, done).unwrap();
    answer.wait().unwrap();
    (partition.id().clone(), position)
}

/// The result of reading everything.
#[derive(Debug)]
enum Outcome {
    /// Nothing was wrong that a reader could notice.
    AllRight,
    /// Refused, with this error, and everything else was right.
    Refused(Error),
}

/// Opens the log and reads all of it. Panics if anything wrong is served. `may_lose` records may be missing at the
/// end of the log as a whole.
fn read_everything(image: &Image, files: &SimFiles, may_lose: usize) -> Outcome {
    let log = match open(files, &image.clock) {
        Ok(log) => log,
        Err(e) => return Outcome::Refused(e),
    };
    let mut refusal = None;
    let mut lost = 0;
    for (id, expected) in &image.records {
        match log.partition(id).and_then(|partition| read_all_before_damage(&*partition)) {
            Ok((read, damage)) => {
                assert!(expected.starts_with(&read), "{id}: wrong records were served");
                match damage {
                    Some(damage) => refusal = Some(damage),
                    None => lost += expected.len() - read.len(),
                }
            }
            Err(e) => refusal = Some(e),
        }
    }
    assert!(lost <= may_lose, "{lost} records are missing, and nobody said so");
    assert_eq!(log.committed("group", &image.position.0).unwrap(), Some(image.position.1));
    log.close().unwrap();
    refusal.map_or(Outcome::AllRight, Outcome::Refused)
}

/// As [`read_until_damage`], by small reads. Large ones return the same: the damage hides nothing that lies before it.
fn read_all_before_damage(partition: &dyn Partition) -> Result<(Vec<ReadRecord>, Option<Error>), Error> {
    let small = read_until_damage(partition, 1)?;
    let large = read_until_damage(partition, 1 << 20)?;
    assert_eq!(small.0.len(), large.0.len(), "{}: {:?}, {:?}", partition.id(), small.1, large.1);
    if let Some(Error::Corrupt { offset, .. }) = &small.1 {
        let next = small.0.last().map_or(Offset::ZERO, |last| last.offset.next());
        assert_eq!(*offset, next, "{}: the read that fails is the one that begins at the damage", partition.id());
    }
    Ok(small)
}

/// The records before the damage, and the error that reports it.
fn read_until_damage(partition: &dyn Partition, max_bytes: usize) -> Result<(Vec<ReadRecord>, Option<Error>), Error> {
    let mut read: Vec<ReadRecord> = Vec::new();
    loop {
        let next = read.last().map_or(Offset::ZERO, |last| last.offset.next());
        match partition.read(next, max_bytes, UpTo::Stable) {
            Ok(batches) if batches.is_empty() => return Ok((read, None)),
            Ok(batches) => {
                for batch in batches {
                    let batch = batch.inflated(&millstream_types::BatchLimits::default()).unwrap();
                    read.extend(batch.records().map(|record| ReadRecord::from(record.unwrap())));
                }
            }
            Err(e @ Error::Corrupt { .. }) => return Ok((read, Some(e))),
            Err(e) => return Err(e),
        }
    }
}

/// The error names the file, and of a partition's file the partition and an offset of it.
fn check_report(image: &Image, flipped: &Path, error: &Error) {
    match error {
        Error::Corrupt { partition, offset, path, .. } => {
            assert_eq!(path, flipped);
            let (_, records) = image.records.iter().find(|(id, _)| id == partition).expect("it names a partition");
            assert!(*offset <= records.last().unwrap().offset);
        }
        Error::CorruptFile { path, .. } => {
            assert_eq!(path, flipped);
            assert!(kind(path) != "segment", "it names no partition: {error}");
        }
        Error::UnknownVersion { path, .. } => assert_eq!(path, flipped),
        other => panic!("damage is reported as {other:?}"),
    }
}

#[test]
fn every_flipped_bit_of_a_closed_log_is_reported_and_never_served() {
    let image = Image::new(&End::Close);
    let reports = Reports::shared();
    for trial in 0..trials() {
        let files = image.files.kill();
        let (path, bit) = image.flip(&files, &mut Rng::new(trial));
        println!("trial {trial}: bit {bit} of {}", path.display());
        let _ = reports.take();
        let outcome = read_everything(&image, &files, 0);
        match (kind(&path), outcome) {
            ("segment", Outcome::Refused(error)) => check_report(&image, &path, &error),
            (kind @ ("index" | "meta" | "copy"), Outcome::AllRight) => {
                assert!(reports.take().contains(&path.display().to_string()), "nobody was told of the damaged {kind}")
            }
            // Once the log is closed the journal holds nothing that is not elsewhere.
            ("journal", Outcome::AllRight) => {}
            ("journal", Outcome::Refused(error)) => check_report(&image, &path, &error),
            (kind, outcome) => panic!("a flip in a {kind} file ends as {outcome:?}"),
        }
    }
}

#[test]
fn a_flipped_bit_before_the_last_append_is_distinguished_from_a_torn_write() {
    let image = Image::new(&End::Kill);
    for trial in 0..trials() {
        let files = image.files.kill();
        let (path, bit) = image.flip(&files, &mut Rng::new(trial));
        println!("trial {trial}: bit {bit} of {}", path.display());
        // Each append was synced before the next one was written: only the last may look like a torn write.
        match read_everything(&image, &files, 5) {
            Outcome::Refused(error) => check_report(&image, &path, &error),
            Outcome::AllRight => {}
        }
    }
}

#[test]
fn a_repair_removes_only_the_unreadable_parts_of_a_damaged_log() {
    let dir = support::small_config().dir;
    for end in [End::Close, End::Kill] {
        let image = Image::new(&end);
        assert_eq!(millstream_log::check(&image.files.kill(), &dir).unwrap(), [], "nothing is damaged");
        for trial in 0..trials() {
            let files = image.files.kill();
            let (path, bit) = image.flip(&files, &mut Rng::new(trial));
            println!("{end:?}, trial {trial}: bit {bit} of {}", path.display());
            let told = millstream_log::check(&files, &dir).unwrap();
            assert_eq!(millstream_log::check(&files, &dir).unwrap(), told, "looking changes nothing");
            assert!(told.iter().all(|damage| damage.path == path), "{told:?}");
            // After a kill the journal may still hold what the end of a segment says: then nothing is lost, which is checked below.
            let is_told = kind(&path) == "meta" || (kind(&path) == "segment" && matches!(end, End::Close));
            assert!(!is_told || !told.is_empty());
            assert_eq!(millstream_log::repair(&files, &dir).unwrap(), told);
            assert_eq!(millstream_log::check(&files, &dir).unwrap(), [], "{told:?}");
            check_repaired(&image, &files, &path, &told);
        }
    }
}

/// All that reads is there, and no more is missing than was told.
fn check_repaired(image: &Image, files: &SimFiles, damaged: &Path, told: &[millstream_log::Damage]) {
    let log = open(files, &image.clock).unwrap();
    for (id, expected) in &image.records {
        let read = read_all(&*log.partition(id).unwrap(), Offset::ZERO, UpTo::Stable).unwrap();
        let mut rest = expected.iter();
        assert!(read.iter().all(|record| rest.any(|other| other == record)), "{id}: wrong records");
        let is_of_partition = told.iter().any(|damage| damage.loses.contains(&format!("topic '{}'", id.topic)));
        let may_lose = is_of_partition || kind(damaged) == "journal";
        assert!(read.len() == expected.len() || may_lose, "{id}: {} of {}, {told:?}", read.len(), expected.len());
        if kind(damaged) == "segment" {
            let lost = expected.iter().filter(|record| !read.contains(record));
            let in_file = lost.map(|record| record.offset.0).collect::<Vec<_>>();
            let whole = in_file.windows(2).all(|pair| pair[1] == pair[0] + 1);
            assert!(whole, "{id}: more than one block is gone: {in_file:?}");
        }
    }
    let appended = append_and_wait(
        &*log.partition(&image.records[0].0).unwrap(),
        &[Record { value: Some(b"after"), ..Record::default() }],
        AckLevel::Synced,
    );
    assert!(appended.unwrap().first > image.records[0].1.last().unwrap().offset, "no offset is given twice");
    log.close().unwrap();
}

#[test]
fn a_log_whose_meta_is_damaged_or_gone_opens_by_its_copy_and_one_without_either_says_so() {
    for end in [End::Close, End::Kill] {
        let image = Image::new(&end);
        let meta = image.files.files().into_iter().find(|(path, _)| kind(path) == "meta").unwrap();
        let files = image.files.kill();
        for bit in (0..meta.1 * 8).step_by(7) {
            files.flip_bit(&meta.0, bit).unwrap();
            assert!(matches!(read_everything(&image, &files.kill(), 0), Outcome::AllRight), "bit {bit} of {end:?}");
            files.flip_bit(&meta.0, bit).unwrap();
        }
        let files = image.files.kill();
        files.remove(&meta.0).unwrap();
        assert!(matches!(read_everything(&image, &files, 0), Outcome::AllRight), "{end:?}: no meta");
        let files = image.files.kill();
        files.remove(&meta.0).unwrap();
        files.remove(&meta.0.with_extension("copy")).unwrap();
        match read_everything(&image, &files, 0) {
            Outcome::Refused(Error::CorruptFile { path, .. }) => assert_eq!(path, meta.0),
            other => panic!("a log without meta opens: {other:?}"),
        }
    }
}

/// Keeps the warnings and errors that are logged, by thread. (One for the whole process: a scoped one can miss an event
/// whose call site another thread has used before.)
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<(ThreadId, String)>>>);

impl Reports {
    fn shared() -> Self {
        static SHARED: OnceLock<Reports> = OnceLock::new();
        let shared = SHARED.get_or_init(|| {
            let reports = Self::default();
            tracing::subscriber::set_global_default(reports.clone()).unwrap();
            reports
        });
        shared.clone()
    }

    /// Takes the lines that this thread has logged since the last call.
    fn take(&self) -> String {
        let me = thread::current().id();
        let mut reports = self.0.lock().unwrap();
        let mine = reports.extract_if(.., |(thread, _)| *thread == me).map(|(_, report)| report);
        mine.collect::<Vec<_>>().join("\n")
    }
}

impl tracing::Subscriber for Reports {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push((thread::current().id(), text.0));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Opens the log with `packed` as a derived topic.
fn open_derived(image: &Image, files: &SimFiles, source: Option<&str>) -> Result<Arc<Embedded>, Error> {
    let derived = DerivedTopic { name: name("packed"), source: source.map(name), loses: "nothing" };
    let config = LogConfig { derived: vec![derived], ..support::small_config() };
    Embedded::open(config, Arc::new(files.clone()), image.clock.clone(), image.clock.clone())
}

/// Flips a bit in the last segment of a topic's first partition; the path of the file.
fn damage(image: &Image, files: &SimFiles, topic: &str) -> PathBuf {
    let log = open(&image.files.kill(), &image.clock).unwrap();
    let id = log.topic(&name(topic)).unwrap().id;
    log.close().unwrap();
    let dir = support::small_config().dir.join(format!("topics/{id}/0"));
    let is_segment = |path: &PathBuf| path.starts_with(&dir) && kind(path) == "segment";
    let path = files.files().into_iter().map(|(path, _)| path).filter(is_segment).max().unwrap();
    files.flip_bit(&path, 8 * 200).unwrap();
    path
}

fn set_aside(files: &SimFiles) -> Vec<PathBuf> {
    let dir = support::small_config().dir.join("set-aside");
    files.files().into_iter().map(|(path, _)| path).filter(|path| path.starts_with(&dir)).collect()
}

fn is_whole(image: &Image, log: &Embedded, topic: &str) -> bool {
    image.records.iter().filter(|(id, _)| id.topic == name(topic)).all(|(id, expected)| {
        log.partition(id).is_ok_and(|partition| read_until_damage(&*partition, 1).unwrap().0 == *expected)
    })
}

#[test]
fn a_damaged_derived_topic_is_set_aside_at_a_start_and_no_other_topic_is() {
    for end in [End::Close, End::Kill] {
        let image = Image::new(&end);
        for (source, damaged, goes) in [
            (None, &["packed"][..], true),
            (Some("plain"), &["packed"], true),
            (Some("plain"), &["packed", "plain"], false),
            (Some("none"), &["packed"], false),
            (None, &["plain"], false),
            (None, &[], false),
        ] {
            let files = image.files.kill();
            let paths: Vec<_> = damaged.iter().map(|topic| damage(&image, &files, topic)).collect();
            let log = open_derived(&image, &files, source).unwrap();
            assert_eq!(log.topic(&name("packed")).is_none(), goes, "{end:?}, {source:?}, {damaged:?}");
            for topic in ["plain", "packed"] {
                let is_damaged = damaged.contains(&topic);
                assert_eq!(is_whole(&image, &log, topic), !is_damaged, "{topic}: {end:?}, {source:?}, {damaged:?}");
            }
            let kept = set_aside(&files);
            assert_eq!(kept.is_empty(), !goes, "{kept:?}");
            if goes {
                let relative = paths[0].strip_prefix(support::small_config().dir).unwrap();
                let expected = relative.to_str().unwrap().replace('/', "-");
                assert!(kept.iter().any(|path| path.ends_with(&expected)), "{expected} in {kept:?}");
                let anew = create(&log, "packed", &TopicConfig::default());
                assert_eq!(anew[0].offsets().tail, Offset::ZERO);
                write(&anew);
            }
            log.close().unwrap();
            let log = open_derived(&image, &files, source).unwrap();
            assert!(log.topic(&name("packed")).is_some(), "nothing is set aside twice");
            log.close().unwrap();
        }
    }
}

#[test]
fn a_crash_while_a_derived_topic_is_set_aside_leaves_a_log_that_opens_without_it() {
    let image = Image::new(&End::Kill);
    for operations in 0.. {
        let files = image.files.kill();
        damage(&image, &files, "packed");
        files.crash_after(operations);
        let opened = open_derived(&image, &files, None);
        let is_over = opened.as_ref().is_ok_and(|_| !files.is_off());
        drop(opened.map(|log| log.close()));
        let files = files.kill();
        let log = open_derived(&image, &files, None).unwrap();
        assert!(log.topic(&name("packed")).is_none() && is_whole(&image, &log, "plain"), "after {operations} steps");
        assert!(!set_aside(&files).is_empty(), "after {operations} steps");
        log.close().unwrap();
        if is_over {
            return;
        }
    }
}
