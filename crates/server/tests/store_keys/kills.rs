//! Clients write while the server is killed and started again, over and over: what they were told holds.
//!
//! `MILLSTREAM_KILLS` sets another number of kills.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_testkit::{Process, eventually, try_ask};

use crate::{make, start};

const KILLS: u64 = 3;
const CLIENTS: u64 = 4;
const KEYS_OF_CLIENT: u64 = 5;
/// Answers of a round before the server is killed.
const ANSWERS: u64 = 60;

/// A key: the values that it may have, oldest first, the first of which was acknowledged. `None` is a key that is gone.
type Known = BTreeMap<String, Vec<Option<String>>>;

#[derive(Default)]
struct Notes {
    known: Known,
    /// The value of each version that was answered, by key's partition, which has one version once: a bucket of one.
    versions: HashMap<u64, String>,
}

fn client(number: u64, to: SocketAddr, notes: &Mutex<Notes>, answers: &AtomicU64, ended: &AtomicBool) {
    for turn in 0.. {
        if ended.load(Ordering::Acquire) {
            return;
        }
        let key = format!("client-{number}/{}", turn % KEYS_OF_CLIENT);
        // What survives `kill -9` is the same at both levels.
        let path = format!("/kv/things/{key}?ack={}", if turn % 2 == 0 { "synced" } else { "written" });
        let is_delete = turn % 7 == 6;
        let value =
            (!is_delete).then(|| format!("{key} {} {}", own_number(number, turn), "v".repeat(turn as usize % 900)));
        notes.lock().unwrap().known.entry(key.clone()).or_insert_with(|| vec![None]).push(value.clone());
        let (method, body) = if is_delete { ("DELETE", "") } else { ("PUT", value.as_deref().unwrap_or_default()) };
        let Some(answer) = try_ask(to, method, &path, &[], body.as_bytes()) else { return };
        let mut notes = notes.lock().unwrap();
        let values = notes.known.get_mut(&key).unwrap();
        match (answer.status, is_delete) {
            (200 | 201, false) | (204 | 404, true) => *values = vec![value.clone()],
            // Nothing was decided; it is as before.
            (503, _) => drop(values.pop()),
            _ => panic!("{}: {}", answer.status, answer.text()),
        }
        if let (200 | 201, Some(value)) = (answer.status, value) {
            let version = answer.header("etag").unwrap().trim_matches('"').parse().unwrap();
            let other = notes.versions.insert(version, value);
            assert_eq!(other, None, "version {version} is given twice");
        }
        answers.fetch_add(1, Ordering::AcqRel);
    }
}

/// A number of this write alone.
fn own_number(client: u64, turn: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) * 1_000_000 + client * 10_000 + turn
}

fn check(process: &Process, notes: &mut Notes) {
    let mut there = 0;
    for (key, values) in &mut notes.known {
        let read = process.get(&format!("/kv/things/{key}"));
        let found = (read.status == 200).then(|| read.text());
        assert!(read.status == 200 || read.status == 404, "{}", read.text());
        assert!(values.contains(&found), "{key} is {found:?}, and may be {values:?}");
        if let Some(found) = &found {
            there += 1;
            let version: u64 = read.header("etag").unwrap().trim_matches('"').parse().unwrap();
            let told = notes.versions.entry(version).or_insert_with(|| found.clone());
            assert_eq!(told, found, "version {version} of {key}");
        }
        *values = vec![found];
    }
    assert_eq!(process.get_json("/buckets/things")["keys"], there);
}

#[test]
fn what_clients_were_told_holds_although_the_server_is_killed_again_and_again() {
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut process = start(dir.path());
    make(&process, "things", r#"{"partitions": 1}"#);
    let notes = Mutex::new(Notes::default());
    for _ in 0..kills {
        let (to, answers, ended) = (process.applications, AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|threads| {
            for number in 0..CLIENTS {
                let (notes, answers, ended) = (&notes, &answers, &ended);
                threads.spawn(move || client(number, to, notes, answers, ended));
            }
            eventually("the clients have answers", || answers.load(Ordering::Acquire) >= ANSWERS);
            process.kill();
            ended.store(true, Ordering::Release);
        });
        process = start(dir.path());
        check(&process, &mut notes.lock().unwrap());
    }
    assert!(notes.lock().unwrap().versions.len() as u64 >= kills * ANSWERS / 2);
    process.stop();
}
