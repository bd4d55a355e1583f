//! `millstream backup` and `millstream restore` as processes, against real servers that go on meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_testkit::{Process, Raw, ask, eventually, millstream, status};
use serde_json::{Value, json};

use crate::tokens::{call, every_role, make};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

pub(crate) fn command(process: &Process, token: &str, to: &Path) -> Command {
    let mut command = millstream();
    command.arg("backup").arg("--to").arg(to).env("MILLSTREAM_SERVER", process.applications_url());
    if !token.is_empty() {
        command.env("MILLSTREAM_TOKEN", token);
    }
    command
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap()
}

/// The output of a command, which must succeed.
pub(crate) fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

/// The output of a command, which must fail.
pub(crate) fn refused(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {}", said(&output));
    said(&output)
}

pub(crate) fn of_directory(action: &str, directory: &Path, more: &[&str]) -> Command {
    let mut command = millstream();
    command.args(["backup", action]).arg(directory).args(more);
    command
}

pub(crate) fn restore(from: &Path, data_dir: &Path, more: &[&str]) -> Command {
    let mut command = millstream();
    command.arg("restore").arg("--from").arg(from).arg("--data-dir").arg(data_dir).args(more);
    command
}

pub(crate) fn create_topic(process: &Process, topic: &str, settings: &Value) {
    let path = format!("/api/streams/{topic}");
    let created = ask(process.applications, "PUT", &path, &JSON, settings.to_string().as_bytes());
    assert_eq!(created.status, 201, "{}", created.text());
}

/// Appends a record; its partition and offset.
pub(crate) fn append(process: &Process, topic: &str, key: &str, value: &str) -> (u64, u64) {
    let body = json!([{"key": key, "value": value}]).to_string();
    let path = format!("/api/streams/{topic}/records");
    let stored = ask(process.applications, "POST", &path, &JSON, body.as_bytes());
    assert_eq!(stored.status, 200, "{}", stored.text());
    let place = &stored.json()["partitions"][0];
    (place["partition"].as_u64().unwrap(), place["first"].as_u64().unwrap())
}

/// All records of a topic by partition and offset.
pub(crate) fn records(process: &Process, token: &str, topic: &str) -> BTreeMap<(u64, u64), Value> {
    let (mut from, mut found) = ("earliest".to_owned(), BTreeMap::new());
    loop {
        let path = format!("/api/streams/{topic}?from={from}&limit=1000");
        let page = call(process.applications, token, "GET", &path, &Value::Null);
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        let records = page["records"].as_array().unwrap();
        if records.is_empty() {
            return found;
        }
        for record in records {
            let place = (record["partition"].as_u64().unwrap(), record["offset"].as_u64().unwrap());
            found.insert(place, record.clone());
        }
        page["next"].as_str().unwrap().clone_into(&mut from);
    }
}

/// Bytes and files that a backup says it has received.
pub(crate) fn received(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains(" is complete: ")).unwrap_or_else(|| panic!("{said}"));
    let bytes = line.split("; ").nth(1).unwrap();
    let (number, unit) = bytes.split_once(" in ").unwrap().0.split_once(' ').unwrap();
    let factor =
        [("B", 1.0), ("KiB", 1024.0), ("MiB", 1024.0 * 1024.0)].iter().find(|(name, _)| *name == unit).unwrap().1;
    (number.replace(',', "").parse::<f64>().unwrap() * factor) as u64
}

/// All files below a directory.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Flips a byte of a file.
pub(crate) fn damage(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

/// Directories for a server, its backups and a restored server.
pub(crate) struct Places {
    _dir: tempfile::TempDir,
    pub(crate) data: PathBuf,
    pub(crate) backups: PathBuf,
    pub(crate) restored: PathBuf,
}

impl Places {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [data, backups, restored] = ["data", "backups", "restored"].map(|name| dir.path().join(name));
        std::fs::create_dir(&data).unwrap();
        Self { _dir: dir, data, backups, restored }
    }
}

#[test]
fn a_topic_is_backed_up_and_restored_with_its_offsets() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = Process::start(&places.data);
    create_topic(&process, "orders", &json!({"partitions": 2}));
    for number in 0..50 {
        append(&process, "orders", &format!("k{number}"), &format!("value {number}"));
    }
    let before = records(&process, "", "orders");
    let told = done(command(&process, "", &places.backups));
    assert!(told.contains(" is complete: "), "{told}");
    append(&process, "orders", "late", "after the backup");
    process.kill();

    let told = done(of_directory("verify", &places.backups, &[]));
    assert!(told.ends_with(": all of it reads\n"), "{told}");
    let told = done(restore(&places.backups, &places.restored, &[]));
    assert!(told.contains(" is restored; start the server with 'millstream serve --data-dir "), "{told}");
    let process = Process::start(&places.restored);
    assert_eq!(records(&process, "", "orders"), before);
    let (partition, offset) = append(&process, "orders", "k1", "new");
    let last = before.keys().filter(|(of, _)| *of == partition).map(|(_, offset)| *offset).max().unwrap();
    assert!(offset > last + 1_000, "offsets that the original may have given since are not given again: {offset}");
    process.stop();

    for path in files(&places.backups) {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    for dir in [&places.backups, &places.restored] {
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{}", dir.display());
    }
}

/// A secret that is stored as a hash, and must be shown nowhere.
const PASSWORD: &str = "a-password-of-a-device";

/// Everything that a server keeps, one of each; the secret of its administrator.
fn fill(process: &Process) -> (String, String) {
    let credentials = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [{"pwd-plain": PASSWORD}]}]);
    let simulated = json!([{"type": "hashed-password", "auth-id": "sim-0", "secrets": [{"pwd-plain": "secret"}]}]);
    let room = json!({"id": "room1", "type": "Room", "temperature": {"value": 20, "type": "Number"}});
    let subscription = json!({
        "description": "kept", "subject": {"entities": [{"idPattern": ".*"}]},
        "notification": {"http": {"url": "http://127.0.0.1:9/none"}},
    });
    let job = json!({
        "version": 1, "kind": "Job", "name": "doubling",
        "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}}},
        "transforms": {"twice": {"type": "map", "inputs": ["in"], "select": "n, n * 2 AS twice"}},
        "sinks": {"out": {"type": "stream", "inputs": ["twice"], "config": {"topic": "doubled"}}},
    });
    let query = json!({"query": "SELECT n FROM \"numbers\"", "deliver": {"topic": "answers"}, "keep": true});
    for (method, path, body) in [
        ("PUT", "/v1/tenants/default", json!({})),
        ("POST", "/v1/devices/default/d", json!({})),
        ("PUT", "/v1/credentials/default/d", credentials),
        ("POST", "/v1/devices/default/sim-0", json!({})),
        ("PUT", "/v1/credentials/default/sim-0", simulated),
        ("POST", "/v2/entities", room),
        ("POST", "/v2/subscriptions", subscription),
        ("PUT", "/buckets/things", json!({})),
        ("PUT", "/api/streams/orders", json!({"partitions": 2, "segment_bytes": 65536})),
        ("PUT", "/api/streams/lines", json!({"partitions": 1})),
        ("PUT", "/api/streams/numbers", json!({"partitions": 1})),
        ("PUT", "/api/streams/doubled", json!({"partitions": 1})),
        ("PUT", "/api/streams/answers", json!({"partitions": 1})),
        ("POST", "/api/jobs", job),
        ("POST", "/api/queries", query),
    ] {
        let answer = call(process.applications, "", method, path, &body);
        assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.text());
    }
    let root = make(process, "", &every_role("root", "*"));
    let reader = make(process, &root, &json!({"name": "reader", "tenant": "default", "roles": ["reader"]}));
    (root, reader)
}

/// Answers of writers, which go on until they are told to stop.
#[derive(Default)]
struct Written {
    /// Partition and offset of each record of `orders` with its number.
    orders: Mutex<Vec<((u64, u64), u64)>>,
    /// Telemetry messages that were accepted.
    telemetry: AtomicU64,
    /// The last value of the key `counter`, and of the temperature.
    counter: AtomicU64,
    temperature: AtomicU64,
    redis: AtomicU64,
    /// Records that Kafka's clients were told of, numbered from 0 on.
    lines: AtomicU64,
    is_over: AtomicBool,
}

impl Written {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }

    fn order(&self, process: &Process, root: &str) {
        let _ending = Ending(&self.is_over);
        for number in 0.. {
            if !self.goes_on() {
                return;
            }
            let body = json!([{"key": format!("k{number}"), "value": {"number": number, "text": "x".repeat(200)}}]);
            let stored = call(process.applications, root, "POST", "/api/streams/orders/records", &body);
            assert_eq!(stored.status, 200, "{}", stored.text());
            let place = &stored.json()["partitions"][0];
            let place = (place["partition"].as_u64().unwrap(), place["first"].as_u64().unwrap());
            self.orders.lock().unwrap().push((place, number));
            let number = json!([{"key": "n", "value": {"n": number}}]);
            assert_eq!(call(process.applications, root, "POST", "/api/streams/numbers/records", &number).status, 200);
        }
    }

    fn measure(&self, process: &Process) {
        let _ending = Ending(&self.is_over);
        let login = format!("Basic {}", BASE64.encode(format!("d@default:{PASSWORD}")));
        let headers = [("Authorization", &*login), ("Content-Type", "text/plain"), ("qos-level", "1")];
        while self.goes_on() {
            assert_eq!(status(process.devices, "POST", "/telemetry", &headers, b"20"), Some(202));
            self.telemetry.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn change(&self, process: &Process, root: &str) {
        let _ending = Ending(&self.is_over);
        for number in 1_u64.. {
            if !self.goes_on() {
                return;
            }
            let changed = json!({"temperature": {"value": number, "type": "Number"}});
            let answer = call(process.applications, root, "PATCH", "/v2/entities/room1/attrs", &changed);
            assert_eq!(answer.status, 204, "{}", answer.text());
            self.temperature.store(number, Ordering::Release);
            let bearer = format!("Bearer {root}");
            let headers = [("Authorization", &*bearer), ("Content-Type", "text/plain")];
            let put = ask(process.applications, "PUT", "/kv/things/counter", &headers, number.to_string().as_bytes());
            assert!(put.status < 300, "{}", put.text());
            self.counter.store(number, Ordering::Release);
        }
    }

    fn set(&self, process: &Process, root: &str) {
        let _ending = Ending(&self.is_over);
        let mut redis = Raw(TcpStream::connect(process.redis).unwrap());
        assert_eq!(redis.redis(&["AUTH", "root", root]), "+OK");
        for number in 1_u64.. {
            if !self.goes_on() {
                return;
            }
            assert_eq!(redis.redis(&["SET", "count", &number.to_string()]), "+OK");
            self.redis.store(number, Ordering::Release);
        }
    }

    fn produce(&self, process: &Process, root: &str) {
        let _ending = Ending(&self.is_over);
        for number in 0_u64.. {
            if !self.goes_on() {
                return;
            }
            let mut kcat = kcat(process, root);
            let mut kcat = kcat.args(["-P", "-t", "lines", "-p", "0"]).stdin(Stdio::piped()).spawn().unwrap();
            writeln!(kcat.stdin.take().unwrap(), "{number}").unwrap();
            assert!(kcat.wait().unwrap().success());
            self.lines.store(number + 1, Ordering::Release);
        }
    }

    /// Waits until each writer has been answered some times more.
    fn wait(&self) {
        let counts = || {
            [&self.telemetry, &self.counter, &self.redis, &self.lines]
                .map(|count| count.load(Ordering::Acquire))
                .into_iter()
                .chain([self.orders.lock().unwrap().len() as u64])
                .collect::<Vec<_>>()
        };
        let before = counts();
        eventually("further answers", || counts().iter().zip(&before).all(|(now, before)| *now >= before + 20));
    }
}

/// `kcat`, logged in.
fn kcat(process: &Process, root: &str) -> Command {
    let mut kcat = Command::new("kcat");
    kcat.args(["-q", "-b", &process.kafka.to_string(), "-X", "security.protocol=sasl_plaintext"]);
    kcat.args(["-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=root", "-X", &format!("sasl.password={root}")]);
    kcat
}

/// A device that sends over MQTT until it is killed.
struct Simulated(Child);

impl Simulated {
    fn start(process: &Process) -> Self {
        let mut sim = millstream();
        sim.args(["sim", "--protocol", "mqtt", "--devices-url", &format!("mqtt://{}", process.mqtt)]);
        sim.args(["--devices", "1", "--qos", "1", "--period", "5ms", "--duration", "600s"]);
        Self(sim.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Ends the writers, also when an assertion fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn text(to: SocketAddr, root: &str, path: &str) -> String {
    let answer = call(to, root, "GET", path, &Value::Null);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.text()
}

#[test]
fn a_backup_under_load_restores_everything_that_was_acknowledged_before_it() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = Process::start(&places.data);
    let (root, reader) = fill(&process);
    let written = Written::default();
    let before = std::thread::scope(|threads| {
        let _ending = Ending(&written.is_over);
        threads.spawn(|| written.order(&process, &root));
        threads.spawn(|| written.measure(&process));
        threads.spawn(|| written.change(&process, &root));
        threads.spawn(|| written.set(&process, &root));
        threads.spawn(|| written.produce(&process, &root));
        let _simulated = Simulated::start(&process);
        written.wait();
        let group = kcat(&process, &root)
            .args(["-c", "20", "-X", "auto.offset.reset=earliest", "-G", "billing", "orders"])
            .output()
            .unwrap();
        assert!(group.status.success(), "{}", said(&group));
        let orders = written.orders.lock().unwrap().clone();
        let counts = [&written.telemetry, &written.counter, &written.temperature, &written.redis, &written.lines]
            .map(|count| count.load(Ordering::Acquire));
        let told = done(command(&process, &root, &places.backups));
        assert!(told.contains(" is complete: ") && !told.contains(&root), "{told}");
        written.wait();
        (orders, counts)
    });
    let (orders, [telemetry, counter, temperature, redis, lines]) = before;
    process.kill();

    done(of_directory("verify", &places.backups, &[]));
    done(restore(&places.backups, &places.restored, &[]));
    let process = Process::start(&places.restored);
    eventually("it is ready", || process.get("/readyz").status == 200);
    let stored = records(&process, &root, "orders");
    assert!(orders.len() >= 20);
    for (place, number) in &orders {
        assert_eq!(stored.get(place).map(|record| &record["value"]["number"]), Some(&json!(number)), "{place:?}");
    }
    assert!(records(&process, &root, "telemetry.default").len() as u64 >= telemetry);
    let found: Vec<Value> =
        records(&process, &root, "lines").into_values().map(|record| record["value"].clone()).collect();
    assert!(lines >= 20 && (0..lines).all(|number| found.contains(&json!(number))), "{lines} of {found:?}");
    let number = |path: &str| text(process.applications, &root, path).parse::<u64>().unwrap();
    assert!(number("/kv/things/counter") >= counter);
    assert!(number("/v2/entities/room1/attrs/temperature/value") >= temperature);
    let points = text(process.applications, &root, "/ngsi-ld/v1/temporal/entities/room1?attrs=temperature&lastN=1");
    assert!(points.contains("temperature"), "{points}");
    let subscriptions = text(process.applications, &root, "/v2/subscriptions");
    assert!(subscriptions.contains("\"kept\""), "{subscriptions}");
    let queries = text(process.applications, &root, "/api/queries");
    assert!(queries.contains("FROM \\\"numbers\\\""), "{queries}");

    // What a group has committed lies within the topic, and every record of a job's source becomes one of its sink.
    let info: Value = serde_json::from_str(&text(process.applications, &root, "/api/streams/orders/info")).unwrap();
    let group = info["groups"].as_array().unwrap().iter().find(|group| group["group"] == "billing").unwrap();
    let read: u64 = group["partitions"].as_array().unwrap().iter().map(|read| read["position"].as_u64().unwrap()).sum();
    assert!(read >= 20, "{info}");
    for (read, partition) in group["partitions"].as_array().unwrap().iter().zip(info["partitions"].as_array().unwrap())
    {
        assert!(read["position"].as_u64() <= partition["stable"].as_u64(), "{info}");
    }
    let numbers = |topic: &str| -> BTreeSet<u64> {
        records(&process, &root, topic).values().map(|record| record["value"]["n"].as_u64().unwrap()).collect()
    };
    // The job delivers at least once.
    eventually("the job has caught up", || numbers("doubled") == numbers("numbers"));

    // Logins of devices, of applications and over Redis' protocol.
    let login = format!("Basic {}", BASE64.encode(format!("d@default:{PASSWORD}")));
    let message = [("Authorization", &*login), ("Content-Type", "text/plain"), ("qos-level", "1")];
    assert_eq!(status(process.devices, "POST", "/telemetry", &message, b"20"), Some(202));
    assert_eq!(call(process.applications, &reader, "GET", "/api/streams", &Value::Null).status, 200);
    assert_eq!(call(process.applications, "", "GET", "/api/streams", &Value::Null).status, 401);
    let mut client = Raw(TcpStream::connect(process.redis).unwrap());
    assert_eq!(client.redis(&["AUTH", "root", &root]), "+OK");
    let bulk = client.redis(&["GET", "count"]);
    let digits = client.redis_line();
    assert!(bulk.starts_with('$') && digits.parse::<u64>().unwrap() >= redis, "{bulk} {digits}, {redis} acknowledged");
    process.stop();
}

#[test]
fn a_second_backup_receives_only_what_is_new_though_segments_were_compacted_and_trimmed() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = Process::start_on(&places.data, &["--set", "log.flush_interval_ms=50"]);
    create_topic(&process, "large", &json!({"partitions": 1, "segment_bytes": 1 << 20}));
    create_topic(&process, "trimmed", &json!({"partitions": 1, "segment_bytes": 65536, "retention_bytes": 200_000}));
    create_topic(&process, "state", &json!({"partitions": 1, "segment_bytes": 65536, "cleanup": "compact"}));
    let value = |number: u64| {
        format!(
            "{number} {}",
            (0..1_000).map(|at| char::from(b'a' + ((at * 7 + number) % 26) as u8)).collect::<String>()
        )
    };
    let many = |topic: &str, keys: u64, numbers: std::ops::Range<u64>| {
        let all: Vec<u64> = numbers.collect();
        for numbers in all.chunks(200) {
            let records: Vec<Value> = numbers
                .iter()
                .map(|number| json!({"key": format!("k{}", number % keys), "value": value(*number)}))
                .collect();
            let path = format!("/api/streams/{topic}/records");
            let stored = ask(process.applications, "POST", &path, &JSON, Value::from(records).to_string().as_bytes());
            assert_eq!(stored.status, 200, "{}", stored.text());
        }
    };
    many("large", 10, 0..4_000);
    many("trimmed", 10, 0..500);
    many("state", 10, 0..500);
    let first = received(&done(command(&process, "", &places.backups)));
    assert!(first > 4_000_000, "{first}");
    let oldest = records(&process, "", "trimmed").keys().next().copied().unwrap();

    let unchanged = received(&done(command(&process, "", &places.backups)));
    assert!(unchanged < 400_000, "{unchanged} bytes for a server in which nothing has changed");
    many("large", 10, 4_000..4_100);
    many("trimmed", 10, 500..1_000);
    many("state", 10, 500..1_000);
    eventually("the topic is trimmed", || {
        records(&process, "", "trimmed").keys().next().is_none_or(|first| *first > oldest)
    });
    // Not by reading it: a reader holds back compaction.
    let state_bytes = || process.get_json("/api/streams/state/info")["bytes"].as_u64().unwrap();
    eventually("the topic is compacted", || state_bytes() < 300_000);
    let second = received(&done(command(&process, "", &places.backups)));
    assert!(
        (100_000..1_000_000).contains(&second),
        "{second} bytes for 100 records of 1,000 bytes and what is left of 1,000 others, of {first}"
    );

    let topics = ["large", "trimmed", "state"];
    let last_of_keys = |process: &Process| -> Vec<BTreeMap<String, Value>> {
        let last = |topic: &&str| {
            records(process, "", topic)
                .into_values()
                .map(|record| (record["key"].to_string(), record["value"].clone()))
                .collect()
        };
        topics.iter().map(last).collect()
    };
    let (all, last) = (records(&process, "", "large"), last_of_keys(&process));
    process.kill();
    done(of_directory("verify", &places.backups, &[]));
    let moments: Vec<String> = done(of_directory("list", &places.backups, &[]))
        .lines()
        .skip(1)
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(moments.len(), 3);
    done(restore(&places.backups, &places.restored, &[]));
    let process = Process::start(&places.restored);
    assert_eq!(records(&process, "", "large"), all);
    assert_eq!(last_of_keys(&process), last);
    process.stop();

    // An earlier moment is as it was, although its segments have been replaced since.
    let earlier = places.restored.with_file_name("earlier");
    done(restore(&places.backups, &earlier, &["--at", &moments[0]]));
    let process = Process::start(&earlier);
    assert_eq!(records(&process, "", "large").len(), 4_000);
    let state = &last_of_keys(&process)[2];
    assert_eq!(state["\"k9\""], json!(value(499)));
    process.stop();
}
