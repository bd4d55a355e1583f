//! Malformed requests to every route of devices and of the registry. The server answers each or closes its connection,
//! does not panic, does not grow, and goes on to serve another client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::{World, basic};

const CONNECTIONS: usize = 4;
/// Requests on one connection; the first that cannot be read ends it.
const PIECE: usize = 32;
const PATIENCE: Duration = Duration::from_secs(30);
/// Highest growth of the process's memory after the first tenth of the requests.
const GROWTH_MAX_BYTES: u64 = 128 << 20;

const METHODS: [&str; 8] = ["POST", "PUT", "GET", "DELETE", "OPTIONS", "PATCH", "HEAD", "NONSENSE"];
/// Segments of paths: those of routes, existing ids, invalid ids, and misleading text.
const SEGMENTS: [&str; 25] = [
    "telemetry",
    "event",
    "command",
    "res",
    "mqtt",
    "v1",
    "tenants",
    "devices",
    "credentials",
    "d",
    "g",
    "",
    "U",
    "%2e%2e",
    "..",
    "%00",
    "%zz",
    "a b",
    "é",
    "*",
    "2AAAAAGE",
    "%25",
    "?",
    "#",
    "x;y=1",
];
const ROUTES: [&str; 12] = [
    "/telemetry",
    "/event",
    "/telemetry/acme/d",
    "/telemetry//d",
    "/event/acme/d",
    "/event//d",
    "/command/res/2AAAAAGE",
    "/command/res/acme/d/2AAAAAGE",
    "/v1/tenants/U",
    "/v1/devices/U/d",
    "/v1/credentials/U/d",
    "/v1/devices/U",
];
const QUERIES: [&str; 10] = [
    "hono-ttl=5",
    "hono-ttd=0",
    "hono-ttd=-9",
    "hono-cmd-status=200",
    "pageSize=5",
    "pageSize=-1",
    "filterJson={",
    "filterJson=%7B%22field%22%3A%22%2Fid%22%2C%22value%22%3A%22*%22%7D",
    "sortJson=%00",
    "a=b&a=c&&=&%",
];
const VALUES: [&str; 20] = [
    "0",
    "1",
    "-1",
    "5",
    "99999999999999999999",
    "text/plain",
    "application/json",
    "application/vnd.eclipse-hono-empty-notification",
    "chunked",
    "100-continue",
    "close",
    "websocket",
    "*",
    "\"1\"",
    "a,b",
    "",
    "é",
    "Basic Og==",
    "Basic %",
    "00-0-0-0",
];
const HEADERS: [&str; 16] = [
    "content-type",
    "qos-level",
    "hono-ttl",
    "hono-cmd-status",
    "authorization",
    "if-match",
    "expect",
    "connection",
    "upgrade",
    "origin",
    "access-control-request-method",
    "traceparent",
    "accept",
    "fiware-service",
    "x-request-timeout-ms",
    "content-encoding",
];
const BODIES: [&str; 12] = [
    "",
    "21.5",
    "{}",
    "[]",
    "null",
    "{\"enabled\":false}",
    "{\"id\":\"x\",\"via\":[\"g\"]}",
    "{\"defaults\":{\"ttl\":1}}",
    "{\"resource-limits\":{\"data-volume\":{\"max-bytes\":-9}}}",
    "[{\"type\":\"hashed-password\",\"auth-id\":\"d\",\"secrets\":[{}]}]",
    "{\"ext\":{\"\\u0000\":[[[[[[1]]]]]]}}",
    "{\"viaGroups\":\"g\"",
];

/// The number of requests that the server has to answer.
fn requests() -> usize {
    std::env::var("MILLSTREAM_MUTATIONS").map_or(20_000, |mutations| mutations.parse::<usize>().unwrap() / 5)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

struct Maker {
    dice: Rng,
    login: String,
}

impl Maker {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.dice.usize(..from.len())]
    }

    fn path(&mut self) -> String {
        let mut path = if self.dice.u8(..4) > 0 {
            self.pick(&ROUTES).to_owned()
        } else {
            (0..=self.dice.usize(..5)).map(|_| format!("/{}", self.pick(&SEGMENTS))).collect()
        };
        if self.dice.u8(..3) == 0 {
            path.push('?');
            path.push_str(self.pick(&QUERIES));
        }
        path
    }

    fn body(&mut self) -> Vec<u8> {
        match self.dice.u8(..10) {
            0 => (0..self.dice.usize(..3_000)).map(|_| self.dice.u8(..)).collect(),
            1 => "[".repeat(self.dice.usize(..3_000)).into_bytes(),
            _ => self.pick(&BODIES).as_bytes().to_vec(),
        }
    }

    /// A request, whole or with some of its bytes changed.
    fn request(&mut self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: localhost\r\n", self.pick(&METHODS), self.path());
        if self.dice.u8(..4) > 0 {
            head.push_str(&format!("authorization: {}\r\n", self.login));
        }
        for _ in 0..self.dice.usize(..4) {
            head.push_str(&format!("{}: {}\r\n", self.pick(&HEADERS), self.pick(&VALUES)));
        }
        let body = self.body();
        let mut bytes = match self.dice.u8(..8) {
            0 => {
                let begin = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len());
                [begin.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat()
            }
            _ => [format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat(),
        };
        // What cannot be read ends its connection, and what follows is not looked at.
        if self.dice.u8(..16) == 0 {
            for _ in 0..=self.dice.usize(..3) {
                let at = self.dice.usize(..bytes.len());
                bytes[at] = self.dice.u8(..);
            }
        }
        bytes
    }
}

/// Sends a piece and reads all answers until the server closes the connection.
async fn send(address: SocketAddr, piece: Vec<u8>) -> Vec<u8> {
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut from, mut into) = socket.into_split();
    let sending = tokio::spawn(async move {
        // The server may close before it has read all of it.
        let _ = into.write_all(&piece).await;
        let _ = into.shutdown().await;
    });
    let mut answers = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    // A server that closes while bytes are on their way resets the connection.
    while let Ok(length @ 1..) = timeout(PATIENCE, from.read(&mut buffer)).await.expect("the server closes in the end")
    {
        answers.extend_from_slice(&buffer[..length]);
    }
    sending.await.unwrap();
    answers
}

/// Sends requests until enough are answered; returns the number sent.
async fn storm(seed: u64, addresses: [SocketAddr; 2], login: String, wanted: usize) -> usize {
    let mut maker = Maker { dice: Rng::with_seed(seed), login };
    let (mut answered, mut sent) = (0, 0);
    while answered < wanted {
        sent += PIECE;
        let piece: Vec<u8> = (0..PIECE).flat_map(|_| maker.request()).collect();
        let address = addresses[maker.dice.usize(..2)];
        let answers = send(address, piece.clone()).await;
        for at in places(&answers, b"HTTP/1.1 ") {
            let status = String::from_utf8_lossy(&answers[at + 9..at + 12]).into_owned();
            assert!(status != "500", "{}", String::from_utf8_lossy(&piece));
            answered += 1;
        }
    }
    sent
}

/// The positions of `what` in `text`.
fn places(text: &[u8], what: &[u8]) -> Vec<usize> {
    text.windows(what.len()).enumerate().filter(|(_, window)| *window == what).map(|(at, _)| at).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_requests_are_answered_or_refused_without_panic_or_growth() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_of_server = info.location().is_some_and(|place| !place.file().contains("tests/"));
        PANICS.fetch_add(usize::from(is_of_server), Ordering::Relaxed);
        before(info);
    }));
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("acme", "d").await;
    world.register("acme", "bystander").await;
    let (login, addresses) = (basic("d@acme", "pw"), [world.devices(), world.applications()]);
    let each = requests() / CONNECTIONS;
    let (mut resident, mut sent) = (0, 0);
    for (round, wanted) in [each / 10, each - each / 10].into_iter().enumerate() {
        let storms: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let seed = (round * CONNECTIONS + number) as u64;
                tokio::spawn(storm(seed, addresses, login.clone(), wanted))
            })
            .collect();
        for storm in storms {
            sent += storm.await.unwrap();
        }
        let bystander = basic("bystander@acme", "pw");
        let answer = world.device("POST /telemetry", &[("authorization", &bystander)], b"x").await;
        assert_eq!(answer.status, 202, "a bystander is served");
        if round == 0 {
            resident = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(resident);
    println!("{sent} requests, {} of them answered, {} MiB more resident", requests(), grown >> 20);
    assert!(grown < GROWTH_MAX_BYTES, "{grown} bytes more");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    world.stop().await;
}
