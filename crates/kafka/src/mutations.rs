//! Fuzzed requests: each is begun or refused, takes no more memory than it brings, and ends no connection but its own.
//! Requests that begin are mutated further, so that every part of each kind of request is reached.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use fastrand::Rng;
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::{Encodable, StrBytes};
use millstream_log::{Embedded, LogConfig, SystemFiles};
use millstream_net::{PendingLogin, Shutdown};
use millstream_types::SystemClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::broker::{Broker, SharedResources};
use crate::dispatch::ApiTable;
use crate::request_context::{ClientConnection, ReachedAddress};
use crate::{KafkaConfig, Listener};

/// Number of requests that have begun and are kept for mutation.
const KEPT_MAX: usize = 4_000;
const BODY_MAX_BYTES: usize = 2 << 10;
/// An allocation that trusts a request's numbers exceeds this at once; other tests of the process use some of it.
const GROWTH_MAX_BYTES: u64 = 2 << 30;
/// Time to wait for a response that may never come: a member that joins a group waits for others.
const ANSWER_PATIENCE: Duration = Duration::from_millis(100);

fn mutations() -> usize {
    std::env::var("MILLSTREAM_MUTATIONS").map_or(200_000, |mutations| mutations.parse().unwrap())
}

fn log(dir: &std::path::Path) -> Arc<Embedded> {
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: dir.to_owned(), ..LogConfig::default() };
    Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap()
}

/// The most memory that this process has ever asked for, used or not.
fn asked_for_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// A request without its header.
#[derive(Clone)]
struct Request {
    key: i16,
    version: i16,
    body: Vec<u8>,
}

/// Makes requests of the kinds and versions that a broker serves.
struct Maker {
    dice: Rng,
    served: Vec<(i16, i16, i16)>,
    /// Requests that began.
    kept: Vec<Request>,
    /// The keys of all requests that began.
    begun: BTreeSet<i16>,
}

impl Maker {
    fn new(seed: u64, apis: &ApiTable) -> Self {
        let served = apis.supported().iter().map(|api| (api.key, api.min, api.max)).collect();
        Self { dice: Rng::with_seed(seed), served, kept: Vec::new(), begun: BTreeSet::new() }
    }

    fn next(&mut self) -> Request {
        if !self.kept.is_empty() && self.dice.bool() {
            let at = self.dice.usize(..self.kept.len());
            let mut request = self.kept[at].clone();
            (0..=self.dice.usize(..4)).for_each(|_| self.mutate(&mut request.body));
            if self.dice.u8(..8) == 0 {
                request.version = self.dice.i16(-1..14);
            }
            return request;
        }
        let (key, min, max) = self.served[self.dice.usize(..self.served.len())];
        Request { key, version: self.dice.i16(min..=max), body: self.body() }
    }

    /// Keeps a request that began, so that it can be mutated.
    fn keep(&mut self, request: Request) {
        self.begun.insert(request.key);
        if self.kept.len() < KEPT_MAX {
            self.kept.push(request);
        } else {
            let at = self.dice.usize(..KEPT_MAX);
            self.kept[at] = request;
        }
    }

    /// Numbers, lengths, strings and lists as requests contain them.
    fn body(&mut self) -> Vec<u8> {
        // Nothing but empty lists and texts, of either encoding, is a request of nearly every kind.
        if self.dice.u8(..8) == 0 {
            return vec![self.dice.u8(..2); self.dice.usize(..64)];
        }
        let mut body = Vec::new();
        for _ in 0..self.dice.usize(..24) {
            let small = self.dice.u8(..4);
            match self.dice.u8(..8) {
                0 => body.extend(std::iter::repeat_n(0, usize::from(small) * 2)),
                1 => body.extend([0, 0, 0, small]),
                2 => {
                    body.extend([0, small]);
                    body.extend(std::iter::repeat_n(b'a', usize::from(small)));
                }
                3 => {
                    body.push(small + 1);
                    body.extend(std::iter::repeat_n(b'a', usize::from(small)));
                }
                4 => body.extend([0xff; 4]),
                5 => body.extend([0xff, 0xff, 0xff, 0xff, small]),
                6 => body.extend([0x7f, 0xff, 0xff, 0xff]),
                _ => body.push(self.dice.u8(..)),
            }
        }
        body
    }

    fn mutate(&mut self, body: &mut Vec<u8>) {
        const EDGES: [u8; 8] = [0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff];
        let at = self.dice.usize(..=body.len());
        match self.dice.u8(..5) {
            0 if at < body.len() => body[at] ^= 1 << self.dice.u8(..8),
            1 if at < body.len() => body[at] = EDGES[self.dice.usize(..EDGES.len())],
            2 => body.truncate(at),
            3 => body.insert(at, EDGES[self.dice.usize(..EDGES.len())]),
            _ => drop(body.splice(at..at, self.body())),
        }
        body.truncate(BODY_MAX_BYTES);
    }

    /// A complete request; now and then its header is damaged too.
    fn framed(&mut self, request: &Request) -> Vec<u8> {
        let Request { key, version, body } = request;
        let header = RequestHeader::default()
            .with_request_api_key(*key)
            .with_request_api_version(*version)
            .with_client_id(Some(StrBytes::from_static_str("test")));
        let mut frame = BytesMut::new();
        let header_version = ApiKey::try_from(*key).map_or(1, |api| api.request_header_version(*version));
        header.encode(&mut frame, header_version).unwrap();
        frame.put_slice(body);
        let mut frame = frame.to_vec();
        if self.dice.u8(..16) == 0 {
            self.mutate(&mut frame);
        }
        frame
    }
}

#[test]
fn any_request_is_begun_or_refused_without_a_panic_and_without_much_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path());
    let apis = ApiTable::new();
    let (config, resources) = (KafkaConfig::default(), SharedResources::default());
    let broker = Broker::new(log.clone(), config, resources, apis.supported(), Shutdown::never());
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let connection = Arc::new(ClientConnection::new(
        nowhere,
        ReachedAddress { address: nowhere, is_tls: false, server_name: None },
        PendingLogin::unlisted(),
        &broker,
    ));
    let mut maker = Maker::new(1, &apis);
    let before_bytes = asked_for_bytes();
    for round in 0..mutations() {
        let request = maker.next();
        let frame = maker.framed(&request);
        let begun =
            catch_unwind(AssertUnwindSafe(|| apis.begin(&connection, Bytes::from(frame.clone()), None).is_ok()));
        match begun {
            Ok(true) => maker.keep(request),
            Ok(false) => {}
            Err(_) => panic!("round {round}: {frame:02x?}"),
        }
    }
    let grown_bytes = asked_for_bytes() - before_bytes;
    assert!(grown_bytes < GROWTH_MAX_BYTES, "{grown_bytes} bytes more were asked for at once");
    for (key, ..) in &maker.served {
        assert!(maker.begun.contains(key), "no request of key {key} was ever begun");
    }
    log.close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_over_a_socket_end_their_own_connection_at_most() {
    static PANICKED: AtomicBool = AtomicBool::new(false);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // The other test catches its own.
        if std::thread::current().name().is_some_and(|name| name.starts_with("tokio")) {
            PANICKED.store(true, Ordering::Relaxed);
        }
        usual(panic);
    }));
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path());
    let config = KafkaConfig { request_max_bytes: 4096, ..KafkaConfig::default() };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), config).await.unwrap();
    let serving = listener.serve(log.clone(), &millstream_net::Metrics::default()).await;
    let mut maker = Maker::new(2, &ApiTable::new());
    let mut bystander = TcpStream::connect(serving.address()).await.unwrap();
    for round in 0..(mutations() / 400).clamp(500, 20_000) {
        let request = maker.next();
        let frame = maker.framed(&request);
        // Longer or shorter than it says, sometimes.
        let size = match maker.dice.u8(..16) {
            0 => maker.dice.i32(..),
            1 => frame.len() as i32 + maker.dice.i32(-3..=3),
            _ => frame.len() as i32,
        };
        let mut socket = TcpStream::connect(serving.address()).await.unwrap();
        // A connection that is closed already takes nothing more.
        let _ = socket.write_all(&size.to_be_bytes()).await;
        let _ = socket.write_all(&frame).await;
        let mut answer = [0; 4];
        let answered = timeout(ANSWER_PATIENCE, socket.read_exact(&mut answer)).await;
        if matches!(answered, Ok(Ok(_))) {
            maker.keep(request);
        }
        if round % 50 == 0 {
            assert!(!PANICKED.load(Ordering::Relaxed), "round {round}: {frame:02x?}");
            serves(&mut bystander).await;
        }
    }
    assert!(!PANICKED.load(Ordering::Relaxed));
    assert!(!maker.kept.is_empty(), "nothing was ever answered");
    serving.shut_down(Duration::ZERO).await;
    log.close().unwrap();
}

/// Sends ApiVersions, version 0, over a connection that has sent nothing bad, and checks the response.
async fn serves(socket: &mut TcpStream) {
    socket.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0, 0]).await.unwrap();
    let size = socket.read_i32().await.unwrap();
    let mut answer = vec![0; size as usize];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[..6], [0, 0, 0, 1, 0, 0]);
}
