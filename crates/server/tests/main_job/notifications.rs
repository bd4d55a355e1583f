//! `kill -9` among updates, batches and subscription changes: every acknowledged change is there, with a durable queue no
//! notification of an acknowledged change is lost, and those of an entity come in order.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_testkit::{Answer, Process, ask, eventually, status, try_ask};
use serde_json::{Value, json};

/// Number of times that the server is killed meanwhile; `MILLSTREAM_CONTEXT_KILLS` sets another number.
const KILLS: u64 = 5;
const WRITERS: usize = 4;
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

/// Numbers that were acknowledged, by entity.
type Acknowledged = Mutex<BTreeMap<String, Vec<u64>>>;

/// A client that changes entities: one at a time, or several by one batch.
struct Writer {
    entities: Vec<String>,
    next: u64,
}

impl Writer {
    /// Of even writers one entity, of odd ones three.
    fn new(number: usize) -> Self {
        let names =
            if number.is_multiple_of(2) { vec![String::new()] } else { ["a", "b", "c"].map(String::from).into() };
        Self { entities: names.into_iter().map(|name| format!("e{number}{name}")).collect(), next: 0 }
    }

    /// Updates its entities, again and again, until the server is gone.
    fn write(&mut self, to: SocketAddr, acknowledged: &Acknowledged) {
        loop {
            let n = self.next;
            let entities: Vec<Value> = self.entities.iter().map(|id| json!({"id": id, "n": n})).collect();
            let (path, body) = match entities.as_slice() {
                [only] => ("/v2/entities?options=upsert,keyValues", only.clone()),
                several => ("/v2/op/update?options=keyValues", json!({"actionType": "append", "entities": several})),
            };
            let Some(code) = status(to, "POST", path, &[JSON], body.to_string().as_bytes()) else { return };
            assert!(code == 201 || code == 204, "{code}");
            let mut acknowledged = acknowledged.lock().unwrap();
            self.entities.iter().for_each(|id| acknowledged.entry(id.clone()).or_default().push(n));
            self.next += 1;
        }
    }
}

/// The content of an acknowledged subscription; `None` if it was deleted.
type Shape = Option<u64>;

/// A client that makes, changes and deletes subscriptions: the known state of each, by its description.
#[derive(Default)]
struct Disturber {
    known: BTreeMap<String, Shape>,
    /// The change that was requested and not answered.
    under_way: Option<(String, Shape)>,
    next: u64,
}

impl Disturber {
    /// Number of subscriptions that it leaves alive.
    const KEPT: usize = 20;

    /// Does so until the server is gone.
    fn disturb(&mut self, to: SocketAddr, receiver: SocketAddr) -> Option<()> {
        loop {
            let (name, throttling) = (format!("s{}", self.next), self.next % 50 + 1);
            self.next += 1;
            let mut body = subscription(receiver, "^nobody");
            (body["description"], body["throttling"]) = (json!(name), json!(0));
            let body = body.to_string();
            let made =
                self.change(&name, Some(0), || try_ask(to, "POST", "/v2/subscriptions", &[JSON], body.as_bytes()))?;
            assert_eq!(made.status, 201);
            let path = made.header("location")?.to_owned();
            let body = json!({"throttling": throttling}).to_string();
            let patched =
                self.change(&name, Some(throttling), || try_ask(to, "PATCH", &path, &[JSON], body.as_bytes()))?;
            assert_eq!(patched.status, 204);
            if self.known.values().flatten().count() > Self::KEPT {
                let deleted = self.change(&name, None, || try_ask(to, "DELETE", &path, &[], b""))?;
                assert_eq!(deleted.status, 204);
            }
        }
    }

    fn change(&mut self, name: &str, to: Shape, ask: impl FnOnce() -> Option<Answer>) -> Option<Answer> {
        self.under_way = Some((name.to_owned(), to));
        let answer = ask()?;
        self.under_way = None;
        self.known.insert(name.to_owned(), to);
        Some(answer)
    }

    /// Checks that every change that was answered is there; what was not answered is there or not.
    fn check(&mut self, process: &Process) {
        let mut shown = BTreeMap::new();
        for offset in (0..).step_by(100) {
            let page = process.get_json(&format!("/v2/subscriptions?limit=100&offset={offset}"));
            let page = page.as_array().unwrap().clone();
            let named =
                page.iter().filter_map(|one| Some((one["description"].as_str()?.to_owned(), &one["throttling"])));
            shown.extend(named.map(|(name, throttling)| (name, Some(throttling.as_u64().unwrap_or(0)))));
            if page.len() < 100 {
                break;
            }
        }
        if let Some((name, to)) = self.under_way.take() {
            let is = shown.get(&name).copied().flatten();
            let was = self.known.get(&name).copied().flatten();
            assert!(is == to || is == was, "{name}: {is:?}, asked for was {to:?} after {was:?}");
            self.known.insert(name, is);
        }
        let alive: BTreeMap<String, Shape> = self
            .known
            .iter()
            .filter(|(_, shape)| shape.is_some())
            .map(|(name, shape)| (name.clone(), *shape))
            .collect();
        assert_eq!(shown, alive);
    }
}

/// Every acknowledged change of an entity is there, and nothing that nobody asked for.
fn check_entities(process: &Process, acknowledged: &Acknowledged, writers: &[Writer]) {
    let shown = process.get_json("/v2/entities?idPattern=%5Ee&options=keyValues&limit=1000");
    for writer in writers {
        for id in &writer.entities {
            let entity = shown.as_array().unwrap().iter().find(|entity| entity["id"] == json!(id));
            let n = entity.and_then(|entity| entity["n"].as_u64());
            let last = acknowledged.lock().unwrap().get(id).and_then(|numbers| numbers.last().copied());
            assert!(n >= last && n <= Some(writer.next), "{id}: {n:?} after {last:?}");
        }
    }
}

#[test]
#[ignore = "takes long"]
fn no_acknowledged_change_and_no_notification_of_one_is_lost_by_kills() {
    let kills = std::env::var("MILLSTREAM_CONTEXT_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (receiver, heard, is_over) = receive();
    let acknowledged = Acknowledged::default();
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    let mut disturber = Disturber::default();
    let count = || acknowledged.lock().unwrap().values().map(Vec::len).sum::<usize>();
    let mut process = Process::start(dir.path());
    let body = subscription(receiver, "^e").to_string();
    assert_eq!(ask(process.applications, "POST", "/v2/subscriptions", &[JSON], body.as_bytes()).status, 201);
    for round in 0..kills {
        let to = process.applications;
        std::thread::scope(|threads| {
            for writer in &mut writers {
                threads.spawn(|| writer.write(to, &acknowledged));
            }
            threads.spawn(|| disturber.disturb(to, receiver));
            // So long that something was acknowledged, and then a moment that differs.
            let before = count();
            eventually("updates", || count() > before + 20);
            std::thread::sleep(Duration::from_millis(round * 7 % 50));
            process.kill();
        });
        process = Process::start(dir.path());
        check_entities(&process, &acknowledged, &writers);
        disturber.check(&process);
        // What was under way when the server was killed may have been taken.
        writers.iter_mut().for_each(|writer| writer.next += 1);
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
        eventually("every acknowledged change's notification", || {
            let seen = first_times(entity);
            numbers.iter().all(|n| seen.contains(n))
        });
        let seen = first_times(entity);
        assert!(seen.is_sorted(), "{entity}: {seen:?}");
        heard_once += seen.len();
    }
    let (told, all) = (acknowledged.values().map(Vec::len).sum::<usize>(), heard.lock().unwrap().len());
    let again = all - heard_once;
    let subscriptions = disturber.next;
    println!(
        "{kills} kills: {told} changes and {subscriptions} subscriptions acknowledged, {all} notifications, {again} again"
    );
    process.stop();
    is_over.store(true, Ordering::Release);
    let _ = TcpStream::connect(receiver);
}
