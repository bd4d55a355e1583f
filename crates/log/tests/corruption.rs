//! A flipped bit in a file at rest is reported with its place, and never served.
//!
//! `MILLSTREAM_BIT_FLIPS=10000` makes ten times as many trials as an ordinary run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};

use millstream_log::conformance::{Stored, append_and_wait, read_all};
use millstream_log::sim::{Rng, SimFiles};
use millstream_log::{
    AckLevel, AtomicAppend, Embedded, Error, Log, Partition, PositionCommit, TopicConfig, UpTo, reply,
};
use millstream_types::{Compression, ManualClock, Offset, Position, Record, TopicPartition};

use crate::support::{clock, create, new_disk, open, partitions};

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
    records: Vec<(TopicPartition, Vec<Stored>)>,
    position: (TopicPartition, Position),
}

/// How the process ended that wrote the image.
#[derive(PartialEq)]
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

/// `segment`, `index`, `journal`, `meta` or `LOCK`.
fn kind(path: &Path) -> &str {
    path.extension().or(path.file_name()).unwrap().to_str().unwrap()
}

/// Thirty appends to each partition, one after the other, so that each is synced before the next is written.
fn write(partitions: &[Arc<dyn Partition>]) {
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
    log.append_atomic(&append, AckLevel::Synced, done).unwrap();
    answer.wait().unwrap();
    (partition.id().clone(), position)
}

/// What reading everything came to.
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
        match log.partition(id).and_then(|partition| read_until_damage(&*partition)) {
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

/// The records before the damage, and the error that reports it.
fn read_until_damage(partition: &dyn Partition) -> Result<(Vec<Stored>, Option<Error>), Error> {
    let mut read: Vec<Stored> = Vec::new();
    loop {
        let next = read.last().map_or(Offset::ZERO, |last| last.offset.next());
        match partition.read(next, 1, UpTo::Stable) {
            Ok(batches) if batches.is_empty() => return Ok((read, None)),
            Ok(batches) => {
                for batch in batches {
                    let batch = batch.inflated(&millstream_types::BatchLimits::default()).unwrap();
                    read.extend(batch.records().map(|record| Stored::from(record.unwrap())));
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
            ("segment" | "meta", Outcome::Refused(error)) => check_report(&image, &path, &error),
            ("index", Outcome::AllRight) => {
                assert!(reports.take().contains(&path.display().to_string()), "nobody was told of the damaged index")
            }
            // Once the log is closed the journal holds nothing that is not elsewhere.
            ("journal", Outcome::AllRight) => {}
            ("journal", Outcome::Refused(error)) => check_report(&image, &path, &error),
            (kind, outcome) => panic!("a flip in a {kind} file ends as {outcome:?}"),
        }
    }
}

#[test]
fn a_flipped_bit_before_the_last_append_is_told_from_a_torn_write() {
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

    /// What this thread has logged since it last asked.
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
