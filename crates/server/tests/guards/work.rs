//! The kinds of work that a user can start: for each, how it is started and the role that this takes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use millstream_testkit::{Process, ask};
use serde_json::{Value, json};

use crate::amqp;
use crate::downlinks::{NetworkServer, dev_eui};

/// Beyond what any check waits for.
const PATIENCE: Duration = Duration::from_secs(60);
const ROLES: [&str; 3] = ["reader", "writer", "admin"];
const TENANT: &str = "acme";
/// The number of things that a tenant may have, of kinds where that is limited. Kept queries count among the live ones.
pub(crate) const SHARE: usize = 3;
pub(crate) const PASSWORD: &str = "open sesame";

/// A kind of work.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The group of routes by which it is started; of other protocols the listener.
    pub(crate) door: &'static str,
    /// The role that starts it; `None` where any login does.
    pub(crate) role: Option<&'static str>,
    pub(crate) share: Share,
    /// Starts it with the token of this name; what stands open while it runs, or the refusal.
    pub(crate) start: fn(&Ground, &str) -> Result<TcpStream, String>,
}

/// How many things of a kind a tenant may have.
#[derive(Clone, Copy)]
pub(crate) enum Share {
    /// As many as its share of the memory holds.
    Memory,
    /// As many as this setting says, and its value here, by which the tenant can start [`SHARE`].
    Set(&'static str, usize),
    /// A number that is not to be set, less those that are there already.
    Fixed(usize),
}

impl Share {
    /// How many the tenant can start.
    pub(crate) fn most(self) -> Option<usize> {
        match self {
            Self::Memory => None,
            Self::Set(..) => Some(SHARE),
            Self::Fixed(most) => Some(most),
        }
    }
}

/// All kinds of work.
pub(crate) const KINDS: [Kind; 16] = [
    Kind { name: "request", door: "streams", role: Some("writer"), share: Share::Memory, start: request },
    Kind {
        name: "query",
        door: "queries",
        role: Some("reader"),
        share: Share::Set("query.live_per_tenant_max", 2 * SHARE),
        start: query,
    },
    Kind {
        name: "kept query",
        door: "queries",
        role: Some("reader"),
        share: Share::Set("query.kept_per_tenant_max", SHARE),
        start: kept_query,
    },
    Kind {
        name: "job",
        door: "jobs",
        role: Some("writer"),
        share: Share::Set("flow.jobs_per_tenant_max", SHARE),
        start: job,
    },
    Kind {
        name: "subscription",
        door: "entities",
        role: Some("writer"),
        share: Share::Set("context.notifications.subscriptions_max", SHARE),
        start: subscription,
    },
    Kind {
        name: "registration",
        door: "entities",
        role: Some("writer"),
        share: Share::Set("context.registrations.max", SHARE),
        start: registration,
    },
    Kind {
        name: "bucket",
        door: "store",
        role: Some("admin"),
        // One is there already.
        share: Share::Set("store.buckets_per_tenant_max", SHARE + 1),
        start: bucket,
    },
    Kind {
        name: "upload",
        door: "store",
        role: Some("writer"),
        share: Share::Set("store.uploads_per_tenant_max", SHARE),
        start: upload,
    },
    Kind {
        name: "topic",
        door: "streams",
        role: Some("admin"),
        // Two are there already, and each has one partition.
        share: Share::Set("log.partitions_per_tenant_max", SHARE + 2),
        start: topic,
    },
    Kind {
        name: "session",
        door: "devices-mqtt",
        role: None,
        share: Share::Set("connect.mqtt.broker.sessions_max", SHARE),
        start: session,
    },
    Kind {
        name: "token",
        door: "tokens",
        role: Some("admin"),
        // Four of the tenant are there already.
        share: Share::Fixed(1_000 - 4),
        start: token,
    },
    Kind { name: "pub/sub subscriber", door: "redis", role: None, share: Share::Memory, start: subscriber },
    Kind { name: "receiver", door: "amqp", role: Some("reader"), share: Share::Memory, start: receiver },
    // One more is that of receivers without a name.
    Kind { name: "event queue", door: "amqp", role: Some("reader"), share: Share::Fixed(16 - 1), start: event_queue },
    Kind { name: "sender", door: "amqp", role: Some("writer"), share: Share::Memory, start: sender },
    Kind {
        name: "downlink",
        door: "commands",
        role: Some("writer"),
        // One network server takes half.
        share: Share::Set("connect.lora.downlinks_max_per_tenant", 2 * SHARE),
        start: downlink,
    },
];

/// Groups of routes, and listeners of other protocols, by which nothing goes on that is not a request or of a kind that has
/// a row by another door.
pub(crate) const DOORS_WITHOUT_KIND: [&str; 21] = [
    "backups",
    // Asks queries, as `queries` does.
    "bullet",
    "command-responses",
    "connections",
    "console",
    "documentation",
    "events",
    "health",
    "history",
    "history-comet-v1",
    "history-comet-v2",
    "history-quantumleap",
    // Its fetches and appends are requests.
    "kafka",
    "login",
    // Its uplinks are requests.
    "lora",
    "mapping_errors",
    // MQTT over WebSocket: sessions.
    "mqtt",
    "registry",
    "schema",
    "stats",
    "telemetry",
];

/// A token of a tenant.
struct Token {
    name: String,
    tenant: String,
    secret: String,
}

/// Two tenants, each with a device. The first has tokens for all roles, and for all but one; the second for all.
pub(crate) struct Accounts {
    applications: SocketAddr,
    tokens: Vec<Token>,
}

/// A server with these accounts, and with topics and a bucket of each tenant.
pub(crate) struct Ground {
    pub(crate) process: Process,
    accounts: Accounts,
    named: AtomicU32,
}

impl Ground {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    /// With arguments that add settings, or replace those of the shares.
    pub(crate) fn start_with(dir: &Path, arguments: &[String]) -> Self {
        let of_work = [
            "shutdown_timeout_ms=1000",
            "context.notifications.allowed_targets=[\"private\"]",
            "connect.lora.allowed_targets=[\"private\"]",
            "connect.lora.downlink_timeout_ms=60000",
        ];
        let mut settings = of_work.map(|setting| format!("--set={setting}")).to_vec();
        settings.extend(KINDS.iter().filter_map(|kind| match kind.share {
            Share::Set(setting, most) => Some(format!("--set={setting}={most}")),
            Share::Memory | Share::Fixed(_) => None,
        }));
        settings.extend_from_slice(arguments);
        let process = Process::start_on(dir, &settings.iter().map(String::as_str).collect::<Vec<_>>());
        let ground = Self { accounts: Accounts::make(process.applications), process, named: AtomicU32::new(0) };
        for tenant in ["all", "other"] {
            for (path, body) in [
                ("/api/streams/in", json!({"partitions": 1})),
                ("/api/streams/out", json!({"partitions": 1})),
                ("/buckets/things", json!({})),
            ] {
                ground.accounts.must(tenant, "PUT", path, &body);
            }
        }
        ground
    }

    /// A name that begins in this way and was not taken before.
    fn new_name(&self, begin: &str) -> String {
        format!("{begin}-{}", self.named.fetch_add(1, Relaxed))
    }

    /// The tenant of a token.
    pub(crate) fn tenant(&self, name: &str) -> &str {
        self.accounts.tenant(name)
    }

    /// The secret of a token.
    pub(crate) fn secret(&self, name: &str) -> &str {
        self.accounts.secret(name)
    }

    /// The status of the answer, and the connection, which stays open.
    fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, TcpStream) {
        self.accounts.ask(token, method, path, body)
    }

    /// The connection, if the answer has this status.
    fn started(&self, wanted: u16, (status, socket): (u16, TcpStream)) -> Result<TcpStream, String> {
        if status == wanted { Ok(socket) } else { Err(status.to_string()) }
    }
}

impl Accounts {
    /// Makes them by requests to this address.
    pub(crate) fn make(applications: SocketAddr) -> Self {
        let mut accounts = Self { applications, tokens: Vec::new() };
        for (name, tenant) in [("root", "*"), ("all", TENANT), ("other", "other")] {
            accounts.add(name, tenant, &ROLES);
        }
        for role in ROLES {
            let others: Vec<&str> = ROLES.into_iter().filter(|other| *other != role).collect();
            accounts.add(&without(role), TENANT, &others);
        }
        let secrets = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [{"pwd-plain": PASSWORD}]}]);
        for token in ["all", "other"] {
            let tenant = accounts.tenant(token);
            accounts.must("root", "POST", &format!("/v1/tenants/{tenant}"), &json!({}));
            accounts.must(token, "POST", &format!("/v1/devices/{tenant}/d"), &json!({}));
            accounts.must(token, "PUT", &format!("/v1/credentials/{tenant}/d"), &secrets);
        }
        accounts
    }

    fn add(&mut self, name: &str, tenant: &str, roles: &[&str]) {
        let bearer = self.tokens.first().map(|root| format!("Bearer {}", root.secret));
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        let new = json!({"name": name, "tenant": tenant, "roles": roles}).to_string();
        let made = ask(self.applications, "POST", "/api/tokens", &headers, new.as_bytes());
        assert_eq!(made.status, 201, "{}", made.text());
        let secret = made.json()["token"].as_str().unwrap().to_owned();
        let tenant = if tenant == "*" { TENANT } else { tenant };
        self.tokens.push(Token { name: name.to_owned(), tenant: tenant.to_owned(), secret });
    }

    /// The tenant of a token.
    pub(crate) fn tenant(&self, name: &str) -> &str {
        &self.token(name).tenant
    }

    /// The secret of a token.
    pub(crate) fn secret(&self, name: &str) -> &str {
        &self.token(name).secret
    }

    fn token(&self, name: &str) -> &Token {
        self.find(name).unwrap()
    }

    fn find(&self, name: &str) -> Option<&Token> {
        self.tokens.iter().find(|token| token.name == name)
    }

    fn must(&self, token: &str, method: &str, path: &str, body: &Value) {
        let (status, _) = self.ask(token, method, path, body);
        assert!(matches!(status, 201 | 204), "{path}: {status}");
    }

    fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, TcpStream) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = format!("content-length: {}\r\n", body.len());
        self.send(token, &format!("{method} {path}"), &length, &body)
    }

    fn send(&self, token: &str, line: &str, headers: &str, body: &str) -> (u16, TcpStream) {
        let mut socket = connect(self.applications);
        let Token { secret, tenant, .. } = self.token(token);
        let head = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {secret}\r\nfiware-service: {tenant}\r\n\
             content-type: application/json\r\n{headers}\r\n"
        );
        socket.write_all((head + body).as_bytes()).unwrap();
        let status = read(&mut socket, "HTTP/1.1 200".len());
        (status[status.len() - 3..].parse().unwrap(), socket)
    }
}

/// The name of the token that has every role but this one.
pub(crate) fn without(role: &str) -> String {
    format!("without-{role}")
}

pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn read(socket: &mut TcpStream, bytes: usize) -> String {
    let mut text = vec![0; bytes];
    socket.read_exact(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// An append whose body does not come.
fn request(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let headers = "content-length: 100\r\nexpect: 100-continue\r\n";
    ground.started(100, ground.accounts.send(token, "POST /api/streams/in/records", headers, ""))
}

fn query(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let body = json!({"query": "SELECT * FROM \"in\"", "deliver": "sse"});
    ground.started(200, ground.ask(token, "POST", "/api/queries", &body))
}

fn kept_query(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let body = json!({"query": "SELECT * FROM \"in\"", "deliver": "sse", "keep": true});
    ground.started(200, ground.ask(token, "POST", "/api/queries", &body))
}

fn job(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let body = json!({
        "version": 1, "kind": "Job", "name": ground.new_name("copy"),
        "sources": {"in": {"type": "stream", "config": {"topic": "in"}}},
        "sinks": {"out": {"type": "stream", "inputs": ["in"], "config": {"topic": "out"}}},
    });
    ground.started(201, ground.ask(token, "POST", "/api/jobs", &body))
}

fn subscription(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let body = json!({
        "subject": {"entities": [{"idPattern": ".*"}]}, "notification": {"http": {"url": "http://127.0.0.1:9/"}},
    });
    ground.started(201, ground.ask(token, "POST", "/v2/subscriptions", &body))
}

fn registration(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let body = json!({
        "dataProvided": {"entities": [{"id": "far"}]}, "provider": {"http": {"url": "http://127.0.0.1:9/"}},
    });
    ground.started(201, ground.ask(token, "POST", "/v2/registrations", &body))
}

fn bucket(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    ground.started(201, ground.ask(token, "PUT", &format!("/buckets/{}", ground.new_name("made")), &json!({})))
}

fn upload(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    ground.started(201, ground.ask(token, "POST", "/kv/things/k?uploads", &Value::Null))
}

fn topic(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let path = format!("/api/streams/{}", ground.new_name("made"));
    ground.started(201, ground.ask(token, "PUT", &path, &json!({"partitions": 1})))
}

fn token(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let body = json!({"name": ground.new_name("made"), "roles": ["reader"]});
    ground.started(201, ground.ask(token, "POST", "/api/tokens", &body))
}

/// A session of MQTT 3.1.1 that outlives its connection.
fn session(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let (tenant, password) = match ground.accounts.find(token) {
        Some(token) => (&*token.tenant, PASSWORD),
        None => (TENANT, "wrong"),
    };
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let flags = [4, 0b1100_0000, 0, 0];
    let (client, device) = (ground.new_name("client"), format!("d@{tenant}"));
    let body = [&text("MQTT")[..], &flags, &text(&client), &text(&device), &text(password)].concat();
    let mut socket = connect(ground.process.mqtt);
    socket.write_all(&[&[0x10, body.len() as u8][..], &body].concat()).unwrap();
    let mut connack = [0; 4];
    socket.read_exact(&mut connack).unwrap();
    if connack[3] == 0 { Ok(socket) } else { Err(format!("return code {}", connack[3])) }
}

/// A receiver of the tenant's telemetry over AMQP.
fn receiver(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let (tenant, mut wanted, mut socket) = amqp_login(ground, token);
    amqp::receive(&mut wanted, &format!("telemetry/{tenant}"), 1);
    amqp::enter(&mut socket, &wanted, 1).map(|()| socket)
}

/// A queue of the tenant's events of its own over AMQP.
fn event_queue(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let (tenant, mut wanted, mut socket) = amqp_login(ground, token);
    amqp::receive_as(&mut wanted, &format!("event/{tenant}"), 1, &ground.new_name("own"));
    amqp::enter(&mut socket, &wanted, 1).map(|()| socket)
}

/// A sender of commands over AMQP.
fn sender(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let (tenant, mut wanted, mut socket) = amqp_login(ground, token);
    amqp::send_parts(&mut wanted, &format!("command/{tenant}"), 1, b"");
    amqp::enter(&mut socket, &wanted, 1).map(|()| socket)
}

/// The tenant of a token, with a login over AMQP by it that is to be sent.
fn amqp_login(ground: &Ground, token: &str) -> (String, Vec<u8>, TcpStream) {
    let known = ground.accounts.find(token);
    let (tenant, secret) = known.map_or((TENANT, "wrong"), |token| (&*token.tenant, &*token.secret));
    let mut wanted = Vec::new();
    amqp::log_in(&mut wanted, token, secret);
    (tenant.to_owned(), wanted, connect(ground.process.amqp))
}

/// A command that a network server does not answer.
fn downlink(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let (tenant, sender) = (ground.tenant(token), format!("Bearer {}", ground.secret(token)));
    let administrator = format!("Bearer {}", ground.secret(if tenant == TENANT { "all" } else { "other" }));
    let login = [("Authorization", &*administrator)];
    let server = NetworkServer { process: &ground.process, tenant, login: &login };
    server.hang(&dev_eui(ground.named.fetch_add(1, Relaxed) as usize), &[("Authorization", &sender)])
}

fn subscriber(ground: &Ground, token: &str) -> Result<TcpStream, String> {
    let mut socket = connect(ground.process.redis);
    if let Some(Token { secret, .. }) = ground.accounts.find(token) {
        write!(socket, "AUTH {token} {secret}\r\n").unwrap();
        assert_eq!(read(&mut socket, 5), "+OK\r\n");
    }
    socket.write_all(b"SUBSCRIBE news\r\n").unwrap();
    let answer = read(&mut socket, 4);
    if answer == "*3\r\n" { Ok(socket) } else { Err(answer) }
}
