//! A real process that appends is killed at random moments; whatever it said was written is there.
//!
//! This test runs itself as the process that is killed, so it has a `main` of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use millstream_log::{AckLevel, Appended, Done, Embedded, Log, LogConfig, SystemFiles, TopicConfig, UpTo};
use millstream_testkit::conformance::read_all;
use millstream_testkit::sim::Rng;
use millstream_types::{Offset, Record, SystemClock, TenantId, TopicName, TopicPartition};

/// Number of times that the process is killed; `MILLSTREAM_KILLS` sets another number.
const KILLS: u64 = 5;
const PARTITIONS: u32 = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [role, dir] if role == "append-until-killed" => append_until_killed(Path::new(dir)),
        // Like any other test it can be listed, and left out by a name.
        [list, ..] if list == "--list" => println!("{NAME}: test"),
        _ if arguments.iter().any(|filter| !filter.starts_with('-') && !NAME.contains(filter.as_str())) => report(0),
        _ => {
            records_answered_as_written_survive_kill();
            println!("test {NAME} ... ok");
            report(1);
        }
    }
}

const NAME: &str = "what_was_answered_as_written_survives_kill_9";

fn report(passed: u32) {
    println!("\ntest result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; {} filtered out\n", 1 - passed);
}

fn open(dir: &Path) -> Arc<Embedded> {
    let config = LogConfig {
        dir: dir.to_owned(),
        journal_file_bytes: 1 << 20,
        journal_max_bytes: 4 << 20,
        append_max_bytes: 512 << 10,
        pending_max_bytes: 1 << 20,
        batch_max_bytes: 64 << 10,
        flush_interval_ms: 20,
        ..LogConfig::default()
    };
    let clock = Arc::new(SystemClock::default());
    Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap()
}

fn topic() -> TopicName {
    TopicName::user("killed", &TenantId::default()).unwrap()
}

/// Appends for ever, and prints a line for each append that was answered as written.
fn append_until_killed(dir: &Path) {
    let log = open(dir);
    let config = TopicConfig { segment_bytes: 256 << 10, partitions: PARTITIONS, ..TopicConfig::default() };
    log.create_topic(&topic(), &config).unwrap();
    let partitions: Vec<_> =
        (0..PARTITIONS).map(|partition| log.partition(&TopicPartition::new(topic(), partition)).unwrap()).collect();
    let (told, answers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for number in 0_u64.. {
            let partition = number % u64::from(PARTITIONS);
            let value = format!("{} {number} {}", std::process::id(), "x".repeat(number as usize % 700));
            let record = Record { value: Some(value.as_bytes()), ..Record::default() };
            let (told, text) = (told.clone(), value.clone());
            let done = Done::<Appended>::call(move |appended| {
                told.send((partition, appended.map(|appended| (appended.first, text)))).ok();
            });
            // When it is told to slow down it tries again with the next number.
            drop(partitions[partition as usize].append(&[record], AckLevel::Written, done));
        }
    });
    let mut out = std::io::stdout().lock();
    for (partition, answer) in answers {
        let (offset, value) = answer.unwrap();
        writeln!(out, "{partition} {offset} {value}").unwrap();
    }
}

/// A process that is killed at the latest when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

type Answered = BTreeMap<(u32, u64), String>;

/// Runs the process until it has had `lines` appends answered, kills it, and returns all that were.
fn run_and_kill(dir: &Path, lines: u64) -> Answered {
    let program: PathBuf = std::env::current_exe().unwrap();
    let child = Command::new(program).arg("append-until-killed").arg(dir).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = Killed(child);
    let mut answered = Answered::new();
    let mut out = BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    while out.read_line(&mut line).unwrap() > 0 {
        // The last line may be cut by the kill.
        if let Some(whole) = line.strip_suffix('\n') {
            let mut words = whole.splitn(3, ' ');
            let mut next = || words.next().unwrap();
            let (partition, offset) = (next().parse().unwrap(), next().parse().unwrap());
            answered.insert((partition, offset), next().to_owned());
        }
        if answered.len() as u64 == lines {
            child.0.kill().unwrap();
        }
        line.clear();
    }
    assert!(answered.len() as u64 >= lines, "the process ended by itself after {} answers", answered.len());
    answered
}

fn records_answered_as_written_survive_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(9);
    let mut answered = Answered::new();
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    for kill in 0..kills {
        let lines = 1 + rng.below(3000);
        for (place, value) in run_and_kill(dir.path(), lines) {
            let before = answered.insert(place, value);
            assert_eq!(before, None, "kill {kill}: {place:?} was given twice");
        }
        check(dir.path(), &answered);
    }
}

/// Every record that was answered is there, at its offset.
fn check(dir: &Path, answered: &Answered) {
    let log = open(dir);
    for partition in 0..PARTITIONS {
        let handle = log.partition(&TopicPartition::new(topic(), partition)).unwrap();
        let stored = read_all(&*handle, Offset::ZERO, UpTo::Stable).unwrap();
        let there: BTreeMap<u64, Vec<u8>> =
            stored.into_iter().map(|record| (record.offset.0, record.value.unwrap())).collect();
        for ((_, offset), value) in answered.range((partition, 0)..(partition + 1, 0)) {
            assert_eq!(there.get(offset).map(Vec::as_slice), Some(value.as_bytes()), "{partition}/{offset}");
        }
    }
    log.close().unwrap();
}
