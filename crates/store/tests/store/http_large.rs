//! Large values over a real socket: streamed and cut bodies, checksums, multipart uploads, ranges and their refusals.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use millstream_http::{Api, Listener, ListenerLimits, LoopbackApplications, Metrics, Serving};
use millstream_log::{LogConfig, SystemFiles};
use millstream_store::{CHUNK_BYTES, Store, StoreConfig, routes};
use millstream_testkit::TestLog;
use millstream_types::{MemoryBudget, SystemClock, TenantId};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Memory of the listener, half of which one tenant may take: less than the values of these tests.
const BUDGET_BYTES: u64 = 12 << 20;

/// A process with a store and a listener.
struct World {
    log: TestLog,
    store: Arc<Store>,
    serving: Serving,
    /// The store's work in the background.
    background: JoinHandle<()>,
    address: SocketAddr,
}

/// An answer as its client sees it.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        self
    }

    /// A refusal whose text has these words, beside a value, a rule and a remedy.
    fn expect_refusal(self, status: u16, words: &[&str]) {
        let answer = self.expect(status);
        let json = answer.json();
        assert!(["value", "rule", "remedy"].iter().all(|member| json.get(*member).is_some()), "{json}");
        let text = json["error"].as_str().unwrap();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
    }
}

impl World {
    async fn open(dir: &Path) -> Self {
        Self::with(dir, StoreConfig::default()).await
    }

    async fn with(dir: &Path, config: StoreConfig) -> Self {
        let clock = Arc::new(SystemClock::default());
        let of_log = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = TestLog::open(of_log, Arc::new(SystemFiles)).unwrap();
        let ground = ViewRuntime {
            log: log.log(),
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(1).unwrap(),
            wall: clock.clone(),
        };
        let of_store = MemoryBudget::new("memory.budget_bytes", 1 << 30);
        let open = move || Store::open(ground, config, clock, &of_store).unwrap();
        let store = tokio::task::spawn_blocking(open).await.unwrap();
        let metrics = Metrics::default();
        let api = Api::builder("store", "Store", "1").with(routes(&store)).build(&metrics).unwrap();
        let (any_port, anybody) = ("127.0.0.1:0".parse().unwrap(), Arc::new(LoopbackApplications::default()));
        let listener = Listener::bind("store", any_port, anybody, ListenerLimits::default()).await.unwrap();
        let address = listener.address();
        let listener = listener.drawing_on(&MemoryBudget::new("memory.budget_bytes", BUDGET_BYTES));
        let background = tokio::spawn(store.clone().remove_expired());
        let serving = listener.serve(Arc::new(api), &metrics);
        let world = Self { log, store, serving, background, address };
        let made = world.ask("PUT /buckets/things", "", b"").await;
        assert!(matches!(made.status, 200 | 201), "{made:?}");
        world
    }

    async fn close(self) {
        let Self { log, store, serving, background, .. } = self;
        background.abort();
        assert!(background.await.unwrap_err().is_cancelled());
        serving.shut_down(Duration::from_secs(20)).await;
        let stop = move || {
            store.stop();
            drop(store);
            log.close().unwrap();
        };
        tokio::task::spawn_blocking(stop).await.unwrap();
    }

    /// One request on a connection of its own. `headers` are whole lines.
    async fn ask(&self, line: &str, headers: &str, body: &[u8]) -> Answer {
        let length = format!("content-length: {}\r\n", body.len());
        self.send(line, &format!("{headers}{length}"), body).await
    }

    async fn send(&self, line: &str, headers: &str, body: &[u8]) -> Answer {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        // A request that is refused by its head may be closed before its body is sent.
        let _ = socket.write_all(body).await;
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer") + 4;
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: answer[end..].to_vec() }
    }

    async fn get(&self, key: &str, headers: &str) -> Answer {
        self.send(&format!("GET /kv/things/{key}"), headers, b"").await
    }
}

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n / 251) as u8 ^ (n as u8).wrapping_mul(seed | 1)).collect()
}

fn chunked(body: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    for piece in body.chunks(70_000) {
        coded.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        coded.extend_from_slice(piece);
        coded.extend_from_slice(b"\r\n");
    }
    coded.extend_from_slice(b"0\r\n\r\n");
    coded
}

const CHUNKED: &str = "transfer-encoding: chunked\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_larger_than_the_memory_streams_in_and_out() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let value = bytes(16 << 20, 3);
    let put = world.ask("PUT /kv/things/image", "content-type: image/png\r\n", &value).await.expect(201);
    assert_eq!(put.json()["length"], value.len());
    let got = world.get("image", "").await.expect(200);
    assert!(got.body == value);
    assert_eq!(got.header("content-length"), Some(value.len().to_string().as_str()));
    assert_eq!((got.header("content-type"), got.header("etag")), (Some("image/png"), put.header("etag")));
    let head = world.send("HEAD /kv/things/image", "range: bytes=0-1\r\n", b"").await.expect(200);
    assert_eq!(head.header("content-length"), got.header("content-length"));
    assert_eq!((head.header("accept-ranges"), head.body.len()), (Some("bytes"), 0));
    // Chunked bodies, a large and a small one.
    let other = bytes(3 << 20, 5);
    world.send("PUT /kv/things/image", CHUNKED, &chunked(&other)).await.expect(200);
    assert!(world.get("image", "").await.expect(200).body == other);
    world.send("PUT /kv/things/small", CHUNKED, &chunked(b"few")).await.expect(201);
    assert_eq!(world.get("small", "").await.expect(200).body, b"few");
    world.ask("DELETE /kv/things/image", "", b"").await.expect(204);
    world.get("image", "").await.expect(404);
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_cut_or_not_what_its_checksum_says_stores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for (length, key) in [(20, "small"), (40_000, "middle"), (3 * CHUNK_BYTES, "large")] {
        let value = bytes(length, 3);
        let md5 = |bytes: &[u8]| format!("content-md5: {}\r\n", STANDARD.encode(Md5::digest(bytes)));
        let line = format!("PUT /kv/things/{key}");
        world.ask(&line, &md5(b"another"), &value).await.expect_refusal(400, &["Content-MD5"]);
        world.ask(&line, "content-md5: abc\r\n", &value).await.expect_refusal(400, &["Content-MD5", "abc"]);
        world.get(key, "").await.expect(404);
        world.ask(&line, &md5(&value), &value).await.expect(201);
        let mut socket = TcpStream::connect(world.address).await.unwrap();
        let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", length + 1);
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(&bytes(length, 9)).await.unwrap();
        drop(socket);
        assert!(world.get(key, "").await.expect(200).body == value, "{key}");
    }
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_and_limits_are_told_before_a_large_body_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let value = bytes(2 * CHUNK_BYTES, 3);
    world.ask("PUT /kv/things/k", "if-match: \"1\"\r\n", &value).await.expect_refusal(412, &["not there"]);
    let put = world.ask("PUT /kv/things/k", "if-none-match: *\r\n", &value).await.expect(201);
    world.ask("PUT /kv/things/k", "if-none-match: *\r\n", &value).await.expect_refusal(412, &["If-None-Match"]);
    // The client waits for `100 Continue`, and gets the refusal instead.
    let headers = "if-match: \"999\"\r\nexpect: 100-continue\r\ncontent-length: 9000000\r\n";
    world.send("PUT /kv/things/k", headers, b"").await.expect_refusal(412, &["If-Match"]);
    let same = format!("if-match: {}\r\n", put.header("etag").unwrap());
    world.ask("PUT /kv/things/k", &same, &bytes(CHUNK_BYTES + 1, 1)).await.expect(200);
    world
        .ask("PUT /buckets/things", "content-type: application/json\r\n", br#"{"value_max_bytes": 1000000}"#)
        .await
        .expect(200);
    world.ask("PUT /kv/things/l", "", &bytes(1_000_001, 1)).await.expect_refusal(413, &["1000001", "value_max_bytes"]);
    world
        .send("PUT /kv/things/l", CHUNKED, &chunked(&bytes(1_100_000, 1)))
        .await
        .expect_refusal(413, &["value_max_bytes"]);
    world.get("l", "").await.expect(404);
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_and_patches_change_a_large_value_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let mut value = bytes(900_000, 1);
    world.ask("PUT /kv/things/k", "content-type: text/plain\r\n", &value).await.expect(201);
    for (length, seed) in [(10, 3), (700_000, 5), (1, 7), (2_000_000, 9)] {
        let more = bytes(length, seed);
        world.ask("POST /kv/things/k?append", "", &more).await.expect(200);
        value.extend_from_slice(&more);
    }
    for (at, length) in [(0_usize, 5), (600_000, 700_000), (value.len() + 1_000_000, 3)] {
        let patch = bytes(length, 11);
        world.ask(&format!("PUT /kv/things/k?offset={at}"), "", &patch).await.expect(200);
        value.resize(value.len().max(at + length), 0);
        value[at..at + length].copy_from_slice(&patch);
    }
    let got = world.get("k", "").await.expect(200);
    assert!(got.body == value);
    assert_eq!(got.header("content-type"), Some("text/plain"));
    world.ask("PUT /kv/things/k?offset=99999999999999999", "", b"x").await.expect_refusal(413, &[]);
    // Small values grow into large ones, and stay what they are meanwhile.
    for count in 1..=4 {
        world.ask("POST /kv/things/grown?append", "", &bytes(400_000, 1)).await;
        assert!(world.get("grown", "").await.expect(200).body == bytes(400_000, 1).repeat(count));
    }
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multipart_upload_shows_nothing_until_it_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    let begun = world.ask("POST /kv/things/a/b?uploads", "content-type: video/mp4\r\n", b"").await.expect(201);
    let id = begun.json()["upload"].as_str().unwrap().to_owned();
    let parts = [bytes(3, 1), bytes(3 * CHUNK_BYTES, 3), bytes(100_000, 5)];
    let commit = format!("POST /kv/things/a/b?commit={id}");
    world.ask(&commit, "", b"").await.expect_refusal(400, &["no parts"]);
    let put = |number: usize| format!("PUT /kv/things/a/b?upload={id}&part={number}");
    let lines = [put(1), put(2), put(3)];
    let (third, second, first) = tokio::join!(
        world.ask(&lines[2], "", &parts[2]),
        world.ask(&lines[1], "", &parts[1]),
        world.ask(&lines[0], "", &parts[0]),
    );
    for (answer, part) in [(first, &parts[0]), (second, &parts[1]), (third, &parts[2])] {
        let answer = answer.expect(200).json();
        assert_eq!(answer["crc32c"], format!("{:08x}", crc32c::crc32c(part)));
    }
    world.ask(&put(1), "", &parts[0]).await.expect(200);
    let (stored, sent) = (crc32c::crc32c(&parts[0]), crc32c::crc32c(b"other"));
    let checksums = [format!("{stored:08x}"), format!("{sent:08x}")];
    world.ask(&put(1), "", b"other").await.expect_refusal(409, &[&checksums[0], &checksums[1]]);
    world.ask(&put(0), "", b"x").await.expect_refusal(400, &["1 to 10,000"]);
    world.ask(&put(10_001), "", b"x").await.expect_refusal(400, &["10001"]);
    world.ask("PUT /kv/things/a/b?upload=abc&part=1", "", b"x").await.expect_refusal(404, &["abc"]);
    world.ask(&format!("PUT /kv/things/other?upload={id}&part=1"), "", b"x").await.expect_refusal(404, &[&id]);
    world.get("a/b", "").await.expect(404);
    world.close().await;

    let world = World::open(dir.path()).await;
    world.get("a/b", "").await.expect(404);
    let listed = world.get(&format!("a/b?upload={id}"), "").await.expect(200).json();
    let of_part = |(number, part): (usize, &Vec<u8>)| json!({"part": number + 1, "size": part.len(), "crc32c": format!("{:08x}", crc32c::crc32c(part))});
    assert_eq!(listed, parts.iter().enumerate().map(of_part).collect::<Value>());
    world.get("a/b?upload=abc", "").await.expect_refusal(404, &["abc"]);
    let open = world.get("a/b?uploads", "").await.expect(200).json();
    assert_eq!((open.as_array().unwrap().len(), &open[0]["upload"]), (1, &json!(id)));
    world.ask(&commit, "", br#"[{"part": 4}]"#).await.expect_refusal(400, &["part 4"]);
    world.ask(&commit, "if-match: *\r\n", b"").await.expect_refusal(412, &["not there"]);
    let list = json!([{"part": 1, "size": 3}, {"part": 2}, {"part": 3}]).to_string();
    let done = world.ask(&commit, "", list.as_bytes()).await.expect(201);
    let got = world.get("a/b", "").await.expect(200);
    assert!(got.body == parts.concat());
    assert_eq!((got.header("etag"), got.header("content-type")), (done.header("etag"), Some("video/mp4")));
    // A client that has missed the answer asks again, also after a restart, and whatever its conditions are.
    world.close().await;
    let world = World::open(dir.path()).await;
    for headers in ["", "if-none-match: *\r\n"] {
        let again = world.ask(&commit, headers, list.as_bytes()).await.expect(201);
        assert_eq!((again.header("etag"), again.json()), (done.header("etag"), done.json()));
    }
    world.ask("POST /kv/things/a/b?append", "", b"").await.expect(200);
    world.ask(&commit, "", b"").await.expect_refusal(404, &[&id]);
    let begun = world.ask("POST /kv/things/a/b?uploads", "", b"").await.expect(201);
    let id = begun.json()["upload"].as_str().unwrap().to_owned();
    world.ask(&format!("DELETE /kv/things/a/b?upload={id}"), "", b"").await.expect(204);
    world.ask(&format!("DELETE /kv/things/a/b?upload={id}"), "", b"").await.expect_refusal(404, &[&id]);
    assert_eq!(world.get("a/b?uploads", "").await.expect(200).json(), json!([]));
    assert!(world.get("a/b", "").await.expect(200).body == parts.concat());
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_of_small_and_large_values_are_answered_alike() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for (key, length) in [("small", 100), ("middle", 300_000), ("large", 3 * CHUNK_BYTES)] {
        let value = bytes(length, 3);
        let put = world.ask(&format!("PUT /kv/things/{key}"), "", &value).await.expect(201);
        let etag = put.header("etag").unwrap();
        for (range, from, to) in [
            ("0-0".to_owned(), 0, 1),
            ("10-".to_owned(), 10, length),
            ("-7".to_owned(), length - 7, length),
            (format!("5-{}", length - 6), 5, length - 5),
        ] {
            let got = world.get(key, &format!("range: bytes={range}\r\nif-range: {etag}\r\n")).await.expect(206);
            assert!(got.body == value[from..to], "{key} {range}");
            assert_eq!(got.header("content-range"), Some(format!("bytes {from}-{}/{length}", to - 1).as_str()));
            assert_eq!(got.header("content-length"), Some((to - from).to_string().as_str()));
        }
        assert!(world.get(key, "range: bytes=1-2\r\nif-range: \"99\"\r\n").await.expect(200).body == value);
        let none = world.get(key, &format!("range: bytes={length}-\r\n")).await.expect(416);
        assert_eq!(none.header("content-range"), Some(format!("bytes */{length}").as_str()));
        world.get(key, "range: bytes=0-1\r\nif-match: \"99\"\r\n").await.expect_refusal(412, &["If-Match"]);
        let date = "if-unmodified-since: Mon, 01 Jan 2001 00:00:00 GMT\r\n";
        world.get(key, date).await.expect_refusal(412, &["If-Unmodified-Since"]);
        let several = world.get(key, "range: bytes=0-1,50-59\r\n").await.expect(206);
        let boundary = several.header("content-type").unwrap().split_once("boundary=").unwrap().1.to_owned();
        let head = |range: &str| {
            format!(
                "\r\n--{boundary}\r\ncontent-type: application/octet-stream\r\ncontent-range: bytes {range}/{length}\r\n\r\n"
            )
        };
        let end = format!("\r\n--{boundary}--\r\n");
        let heads = [head("0-1"), head("50-59")];
        let expected = [heads[0].as_bytes(), &value[..2], heads[1].as_bytes(), &value[50..60], end.as_bytes()];
        assert!(several.body == expected.concat(), "{key}: {}", String::from_utf8_lossy(&several.body));
    }
    world.close().await;
}

/// A client that has read the head of an answer and no more of its body than came with it.
struct SlowReader {
    socket: TcpStream,
    head: String,
    body: Vec<u8>,
}

impl SlowReader {
    async fn begin(world: &World, line: &str, headers: &str) -> Self {
        let mut socket = TcpStream::connect(world.address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        let end = loop {
            assert!(socket.read_buf(&mut read).await.unwrap() > 0);
            if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = String::from_utf8(read[..end].to_vec()).unwrap();
        Self { socket, head, body: read[end..].to_vec() }
    }

    /// Reads until the connection ends.
    async fn body(mut self) -> Vec<u8> {
        // A body that is cut may end with a reset.
        let _ = self.socket.read_to_end(&mut self.body).await;
        self.body
    }
}

/// Removes parts that nobody needs, and returns their number.
async fn removed_parts(world: &World) -> usize {
    let bucket = world.store.bucket(&TenantId::default(), "things").unwrap();
    bucket.remove_parts(86_400_000).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_the_whole_value_that_it_began_to_read() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    // More than the buffers of a connection hold.
    let value = bytes(24 << 20, 3);
    let chunks = value.len() / CHUNK_BYTES;
    for (line, answer) in [("PUT /kv/things/film", 200), ("DELETE /kv/things/film", 204)] {
        world.ask("PUT /kv/things/film", "", &value).await;
        let whole = SlowReader::begin(&world, "GET /kv/things/film", "").await;
        let ranges = "range: bytes=0-9,1000000-20999999\r\n";
        let some = SlowReader::begin(&world, "GET /kv/things/film", ranges).await;
        assert!(whole.head.starts_with("HTTP/1.1 200") && some.head.starts_with("HTTP/1.1 206"), "{}", some.head);
        world.ask(line, "", b"").await.expect(answer);
        assert_eq!(removed_parts(&world).await, 0, "{line}: the readers hold the parts");
        assert!(whole.body().await == value, "{line}");
        // Behind the last range comes the end of the multipart body: two dashes, 32 digits, two dashes.
        let some = some.body().await;
        let last = &some[..some.len() - "\r\n----\r\n".len() - 32];
        assert!(last.ends_with(&value[1_000_000..21_000_000]), "{line}");
        // Once they have gone, the parts go.
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let mut removed = 0;
        while removed < chunks {
            assert!(std::time::Instant::now() < deadline, "{removed} of {chunks} parts are removed");
            removed += removed_parts(&world).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(removed, chunks, "{line}");
    }
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_takes_longer_than_parts_wait_gets_a_cut_body_and_never_other_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with(dir.path(), StoreConfig { part_hold_max_ms: 0, ..StoreConfig::default() }).await;
    let value = bytes(24 << 20, 3);
    world.ask("PUT /kv/things/film", "", &value).await.expect(201);
    let reader = SlowReader::begin(&world, "GET /kv/things/film", "").await;
    world.ask("DELETE /kv/things/film", "", b"").await.expect(204);
    assert_eq!(removed_parts(&world).await, value.len() / CHUNK_BYTES);
    let body = reader.body().await;
    assert!(body.len() < value.len() && body == value[..body.len()], "{} bytes", body.len());
    world.close().await;
}
