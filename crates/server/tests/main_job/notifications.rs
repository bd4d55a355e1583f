//! `kill -9` among updates and subscription changes: with a durable queue no notification of an acknowledged change is
//! lost, and those of an entity come in order.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{Process, ask, status, until};

/// How often the server is killed in the middle; `MILLSTREAM_KILLS` sets another number.
const KILLS: u64 = 20;
const WRITERS: u64 = 4;
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Entity and number of each notification, in the order in which they came.
type Heard = Arc<Mutex<Vec<(String, u64)>>>;

/// A receiver that answers 200, whatever comes.
fn receive() -> (SocketAddr, Heard, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, is_over) = (Heard::default(), Arc::new(AtomicBool::new(false)));
    let (into, over) = (heard.clone(), is_over.clone());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            if over.load(Ordering::Acquire) {
                return;
            }
            let into = into.clone();
            std::thread::spawn(move || serve(BufReader::new(socket.unwrap()), &into));
        }
    });
    (address, heard, is_over)
}

fn serve(mut reader: BufReader<TcpStream>, heard: &Heard) {
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let body: Value = serde_json::from_slice(&body).unwrap();
        heard.lock().unwrap().push((body["id"].as_str().unwrap().to_owned(), body["n"].as_u64().unwrap()));
        if reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

fn subscription(receiver: SocketAddr, pattern: &str) -> Value {
    json!({"subject": {"entities": [{"idPattern": pattern}]}, "notification": {"http": {"url": format!("http://{receiver}/")},
        "attrsFormat": "simplifiedKeyValues", "delivery": {"queue": "durable"}}})
}

/// Updates an entity, one after the other, until the server is gone; the numbers that were acknowledged.
fn write(to: SocketAddr, entity: &str, next: &mut u64, acknowledged: &Mutex<BTreeMap<String, Vec<u64>>>) {
    loop {
        let body = json!({"id": entity, "n": *next}).to_string();
        let path = "/v2/entities?options=upsert,keyValues";
        let Some(code) = status(to, "POST", path, &[JSON], body.as_bytes()) else { return };
        assert!(code == 201 || code == 204, "{code}");
        acknowledged.lock().unwrap().entry(entity.to_owned()).or_default().push(*next);
        *next += 1;
    }
}

/// Makes, changes and deletes subscriptions until the server is gone.
fn disturb(to: SocketAddr, receiver: SocketAddr) -> Option<()> {
    loop {
        let body = subscription(receiver, "^nobody").to_string();
        (status(to, "POST", "/v2/subscriptions", &[JSON], body.as_bytes())? == 201).then_some(())?;
        let mut list = String::new();
        let mut socket = TcpStream::connect(to).ok()?;
        socket.write_all(b"GET /v2/subscriptions?limit=1000 HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").ok()?;
        socket.read_to_string(&mut list).ok()?;
        let list: Value = serde_json::from_str(list.split_once("\r\n\r\n")?.1).ok()?;
        for one in list.as_array()?.iter().filter(|one| one["subject"]["entities"][0]["idPattern"] == "^nobody") {
            let path = format!("/v2/subscriptions/{}", one["id"].as_str()?);
            assert_eq!(status(to, "PATCH", &path, &[JSON], br#"{"throttling":1}"#)?, 204);
            assert_eq!(status(to, "DELETE", &path, &[], b"")?, 204);
        }
    }
}

#[test]
fn no_notification_of_an_acknowledged_change_is_lost_by_kills() {
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (receiver, heard, is_over) = receive();
    let acknowledged = Mutex::new(BTreeMap::new());
    let mut next = [0_u64; WRITERS as usize];
    let mut process = Process::start(dir.path());
    let body = subscription(receiver, "^e").to_string();
    assert_eq!(ask(process.applications, "POST", "/v2/subscriptions", &[JSON], body.as_bytes()).status, 201);
    for round in 0..kills {
        std::thread::scope(|threads| {
            let to = process.applications;
            for (writer, next) in next.iter_mut().enumerate() {
                let acknowledged = &acknowledged;
                threads.spawn(move || write(to, &format!("e{writer}"), next, acknowledged));
            }
            threads.spawn(move || disturb(to, receiver));
            // So long that something was acknowledged, and then a moment that differs.
            let before: usize = acknowledged.lock().unwrap().values().map(Vec::len).sum();
            until("updates", || acknowledged.lock().unwrap().values().map(Vec::len).sum::<usize>() > before + 20);
            std::thread::sleep(Duration::from_millis(round * 7 % 50));
            process.kill();
        });
        // One that was under way when the server was killed may have been taken.
        next.iter_mut().for_each(|next| *next += 1);
        process = Process::start(dir.path());
    }
    let acknowledged = acknowledged.into_inner().unwrap();
    let first_times = |entity: &str| {
        let mut seen = Vec::new();
        for (id, n) in heard.lock().unwrap().iter() {
            if id == entity && !seen.contains(n) {
                seen.push(*n);
            }
        }
        seen
    };
    let mut heard_once = 0;
    for (entity, numbers) in &acknowledged {
        until("every acknowledged change's notification", || {
            let seen = first_times(entity);
            numbers.iter().all(|n| seen.contains(n))
        });
        let seen = first_times(entity);
        assert!(seen.is_sorted(), "{entity}: {seen:?}");
        heard_once += seen.len();
    }
    let (told, all) = (acknowledged.values().map(Vec::len).sum::<usize>(), heard.lock().unwrap().len());
    println!("{kills} kills: {told} changes acknowledged, {all} notifications, {} of them again", all - heard_once);
    process.stop();
    is_over.store(true, Ordering::Release);
    let _ = TcpStream::connect(receiver);
}
