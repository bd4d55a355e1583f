//! Context providers that fail in every way: who asks for their entities gets what is here, and nobody else waits.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use millstream_testkit::{Answer, Process, ask, eventually};
use serde_json::{Value, json};

use crate::work::{Ground, connect};

/// Requests of one tenant that wait for its provider, more than may.
const WAITING: usize = 60;
/// Those that may wait, of all tenants: one takes half.
const WAITING_MAX: usize = 20;
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// The answer of a provider to each request.
#[derive(Clone)]
pub(crate) enum Behaviour {
    Answers(String),
    /// None, for as long as the provider is there.
    Hangs,
    /// A byte of the answer now and then, without an end.
    Slow,
    /// A part of the answer, then the end of the connection.
    Breaks,
    /// An answer without an end.
    Endless,
}

/// A provider on loopback; it ends with this.
pub(crate) struct Provider {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    is_over: Sender<()>,
}

impl Provider {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (is_over, over) = channel();
        let provider =
            Self { address: listener.local_addr().unwrap(), asked: Arc::default(), open: Arc::default(), is_over };
        let (asked, open) = (provider.asked.clone(), provider.open.clone());
        thread::spawn(move || serve(&listener, &behaviour, &asked, &open, &over));
        provider
    }

    /// Registers the provider for an entity of any type.
    pub(crate) fn register(&self, process: &Process, headers: &[(&str, &str)], path: &str, entity: &str) {
        let registration = json!({
            "dataProvided": {"entities": [{"id": entity}]},
            "provider": {"http": {"url": format!("http://{}{path}", self.address)}},
        });
        let headers = [headers, &[JSON]].concat();
        let body = registration.to_string();
        let made = ask(process.applications, "POST", "/v2/registrations", &headers, body.as_bytes());
        assert_eq!(made.status, 201, "{}", made.text());
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.is_over.send(());
        // The listener waits for a connection.
        let _ = TcpStream::connect(self.address);
        self.open.lock().unwrap().drain(..).for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
    }
}

fn serve(
    listener: &TcpListener,
    behaviour: &Behaviour,
    asked: &Arc<AtomicUsize>,
    open: &Mutex<Vec<TcpStream>>,
    over: &Receiver<()>,
) {
    for socket in listener.incoming() {
        let mut open = open.lock().unwrap();
        if over.try_recv().is_ok() {
            return;
        }
        let socket = socket.unwrap();
        open.push(socket.try_clone().unwrap());
        let (behaviour, asked) = (behaviour.clone(), asked.clone());
        thread::spawn(move || while take_request(&socket) && answer(&socket, &behaviour, &asked) {});
    }
}

/// `false` at the end of the connection.
fn take_request(socket: &TcpStream) -> bool {
    let mut reader = BufReader::new(socket);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            return reader.read_exact(&mut vec![0; length]).is_ok();
        }
        line.clear();
    }
    false
}

/// `false` if the connection is over.
fn answer(mut socket: &TcpStream, behaviour: &Behaviour, asked: &AtomicUsize) -> bool {
    asked.fetch_add(1, Relaxed);
    let head = |length: usize| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n")
    };
    match behaviour {
        Behaviour::Answers(body) => socket.write_all((head(body.len()) + body).as_bytes()).is_ok(),
        Behaviour::Hangs => true,
        Behaviour::Slow => {
            let mut is_taken = socket.write_all(head(1 << 20).as_bytes()).is_ok();
            while is_taken {
                thread::sleep(Duration::from_millis(50));
                is_taken = socket.write_all(b" ").is_ok();
            }
            false
        }
        Behaviour::Breaks => {
            let _ = socket.write_all((head(1_000) + "[{\"id\":").as_bytes());
            let _ = socket.shutdown(Shutdown::Both);
            false
        }
        Behaviour::Endless => {
            let mut is_taken = socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_ok();
            let chunk = ["ffff\r\n", &" ".repeat(0xFFFF), "\r\n"].concat();
            while is_taken {
                is_taken = socket.write_all(chunk.as_bytes()).is_ok();
            }
            false
        }
    }
}

/// An entity in the answer of a provider.
fn provided(id: &str, of: &str) -> String {
    json!([{"id": id, "type": "Room", "of": {"type": "Text", "value": of, "metadata": {}}}]).to_string()
}

fn faults() -> Vec<(&'static str, Behaviour)> {
    let large = "x".repeat(5 << 20);
    vec![
        ("hangs", Behaviour::Hangs),
        ("slow", Behaviour::Slow),
        ("killed in its answer", Behaviour::Breaks),
        ("answers 5 MB", Behaviour::Answers(provided("room", &large))),
        ("answers without an end", Behaviour::Endless),
        ("answers another entity", Behaviour::Answers(provided("another", "provider"))),
        ("answers another type", Behaviour::Answers(provided("room", "provider").replace("Room", "House"))),
        ("answers no entities", Behaviour::Answers("[1, {}, {\"id\": 7}, \"room\"]".to_owned())),
        ("answers rubbish", Behaviour::Answers("<html>".to_owned())),
    ]
}

/// A client of the tenant of a token.
struct Client<'a> {
    process: &'a Process,
    headers: [(&'static str, String); 2],
}

impl<'a> Client<'a> {
    fn of(ground: &'a Ground, token: &str) -> Self {
        let bearer = format!("Bearer {}", ground.secret(token));
        let tenant = ground.tenant(token).to_owned();
        Self { process: &ground.process, headers: [("Authorization", bearer), ("Fiware-Service", tenant)] }
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let headers = [self.headers(), vec![JSON]].concat();
        let (headers, body) =
            if body.is_null() { (self.headers(), String::new()) } else { (headers, body.to_string()) };
        ask(self.process.applications, method, path, &headers, body.as_bytes())
    }

    /// Creates an entity with the attribute `own`.
    fn create(&self, id: &str) {
        let made = self.ask("POST", "/v2/entities", &json!({"id": id, "type": "Room", "own": {"value": 1}}));
        assert_eq!(made.status, 201, "{}", made.text());
    }

    /// The attributes of an entity.
    fn read(&self, id: &str) -> Value {
        self.ask("GET", &format!("/v2/entities/{id}?options=keyValues"), &Value::Null).json()
    }

    /// Asks for the entity `room`; the connection, on which the answer comes.
    fn begin_read(&self) -> TcpStream {
        let mut socket = connect(self.process.applications);
        let headers: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let line = "GET /v2/entities/room?options=keyValues HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        write!(socket, "{line}{headers}\r\n").unwrap();
        socket
    }

    fn remove_registrations(&self) {
        for one in self.ask("GET", "/v2/registrations", &Value::Null).json().as_array().unwrap() {
            let path = format!("/v2/registrations/{}", one["id"].as_str().unwrap());
            assert_eq!(self.ask("DELETE", &path, &Value::Null).status, 204);
        }
    }
}

fn start(dir: &std::path::Path, timeout_ms: u64) -> Ground {
    let settings = [("timeout_ms", timeout_ms), ("waiting_max", WAITING_MAX as u64)];
    Ground::start_with(dir, &settings.map(|(name, value)| format!("--set=context.registrations.{name}={value}")))
}

#[test]
fn a_request_whose_provider_fails_is_answered_with_what_is_here() {
    let dir = tempfile::tempdir().unwrap();
    let ground = start(dir.path(), 1_000);
    let client = Client::of(&ground, "all");
    client.create("room");
    let update = json!({"on": {"value": true}});
    for (fault, behaviour) in faults() {
        let provider = Provider::start(behaviour);
        provider.register(client.process, &client.headers(), "", "room");
        assert_eq!(client.read("room"), json!({"id": "room", "type": "Room", "own": 1}), "{fault}");
        let list = client.ask("GET", "/v2/entities?id=room&type=Room&options=keyValues", &Value::Null);
        assert_eq!(list.json(), json!([{"id": "room", "type": "Room", "own": 1}]), "{fault}");
        let updated = client.ask("PATCH", "/v2/entities/room/attrs", &update);
        // Only 204 tells that an update is done.
        assert_eq!(updated.status, 404, "{fault}: {}", updated.text());
        assert_eq!(provider.asked.load(Relaxed), 3, "{fault}");
        // A provider that is gone.
        drop(provider);
        assert_eq!(client.read("room"), json!({"id": "room", "type": "Room", "own": 1}), "{fault}, then gone");
        client.remove_registrations();
    }
    ground.process.stop();
}

#[test]
fn nobody_else_waits_for_a_provider_that_does_not_end_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    // No wait ends by itself.
    let ground = start(dir.path(), 3_600_000);
    let (client, other) = (Client::of(&ground, "all"), Client::of(&ground, "other"));
    for (client, id) in [(&client, "room"), (&client, "near"), (&other, "room")] {
        client.create(id);
    }
    let healthy = Provider::start(Behaviour::Answers(provided("room", "provider")));
    for behaviour in [Behaviour::Hangs, Behaviour::Slow] {
        let provider = Provider::start(behaviour);
        provider.register(client.process, &client.headers(), "", "room");
        healthy.register(other.process, &other.headers(), "", "room");
        let waiting: Vec<TcpStream> = (0..WAITING).map(|_| client.begin_read()).collect();
        eventually("requests at the provider", || provider.asked.load(Relaxed) > 0);
        // The tenant's other entities, and another tenant with its provider.
        assert_eq!(client.read("near")["own"], 1);
        assert_eq!(client.ask("PATCH", "/v2/entities/room/attrs", &json!({"own": {"value": 1}})).status, 204);
        assert_eq!(client.ask("PATCH", "/v2/entities/near/attrs", &json!({"own": {"value": 1}})).status, 204);
        assert_eq!(other.read("room"), json!({"id": "room", "type": "Room", "own": 1, "of": "provider"}));
        drop(provider);
        for mut socket in waiting {
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#""own":1}"#), "{answer}");
        }
        client.remove_registrations();
        other.remove_registrations();
    }
    ground.process.stop();
}
