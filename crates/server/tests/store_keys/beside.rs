//! Reads stay right beside writers while compaction replaces the segments under them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_testkit::{ask, eventually};

use crate::{make, put, start, tag};

const KEYS: u64 = 16;
const VALUE_BYTES: usize = 300 << 10;
/// With these, 160 MB are written: two segments are sealed, and nearly all of them is dead.
const ROUNDS: u64 = 32;
const COMPACTED_MAX_BYTES: u64 = 100 << 20;

/// A value that tells its key and round.
fn value(key: u64, round: u64) -> Vec<u8> {
    let mut bytes = format!("{key} {round} ").into_bytes();
    bytes.resize(VALUE_BYTES, b'a' + (round % 26) as u8);
    bytes
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Bytes of all segments; one may go while they are counted.
fn segment_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => segment_bytes(&entry.path()),
        Ok(metadata) if entry.path().extension().is_some_and(|extension| extension == "segment") => metadata.len(),
        _ => 0,
    });
    bytes.sum()
}

#[test]
fn every_read_beside_writers_and_compaction_is_whole_and_no_older_than_what_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let to = process.applications;
    make(&process, "busy", r#"{"partitions": 1, "cache_bytes": 0}"#);
    assert_eq!(put(to, "/kv/busy/lonely", &[], b"still here").status, 201);
    let lonely = tag(&process.get("/kv/busy/lonely"));
    let answered: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let (answered, done) = (&answered, &done);
        for reader in 0..2 {
            threads.spawn(move || {
                let mut turn = reader;
                while !done.load(Ordering::Acquire) {
                    turn = (turn + 1) % KEYS;
                    let known = answered[turn as usize].load(Ordering::Acquire);
                    let read = ask(to, "GET", &format!("/kv/busy/{turn}"), &[], b"");
                    if read.status == 404 {
                        assert_eq!(known, 0, "key {turn} is gone");
                        continue;
                    }
                    assert_eq!(read.status, 200, "{}", read.text());
                    let text = String::from_utf8(read.body.clone()).unwrap();
                    let round: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
                    assert!(round >= known, "key {turn} is stale: {round} after {known}");
                    assert!(read.body == value(turn, round), "key {turn} is half");
                }
            });
        }
        // The readers end with the writer, also if that fails.
        let _end = SetOnDrop(done);
        for round in 1..=ROUNDS {
            for key in 0..KEYS {
                let path = format!("/kv/busy/{key}?ack=written");
                eventually("a write is taken", || put(to, &path, &[], &value(key, round)).status < 300);
                answered[key as usize].store(round, Ordering::Release);
            }
        }
    });
    eventually("compaction has taken what is dead", || segment_bytes(&dir.path().join("log")) < COMPACTED_MAX_BYTES);
    let read = process.get("/kv/busy/lonely");
    assert_eq!((read.body.as_slice(), tag(&read)), (&b"still here"[..], lonely));
    for key in 0..KEYS {
        assert!(process.get(&format!("/kv/busy/{key}")).body == value(key, ROUNDS), "key {key}");
    }
    process.stop();
}
