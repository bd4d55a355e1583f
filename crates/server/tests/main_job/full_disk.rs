//! A server on a file system that is really full, without a floor (`log.disk_free_min_bytes = 0`) and with one.
//!
//! The file system is a tmpfs in a mount namespace of the server's own, which a user namespace allows without root.
//! A system that forbids user namespaces lets nothing be mounted: the test then says so and checks nothing. The log's
//! own tests (`log/tests/log/failures.rs`) run the same cases everywhere, on a simulated disk.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use millstream_testkit::{Answer, Process, ask, eventually, millstream};

const DISK: &str = "size=256m";
/// Less than a turn of the log's segments needs, and enough to end one that has begun.
const NEARLY_FULL_BYTES: u64 = 3 << 20;
const JSON: (&str, &str) = ("Content-Type", "application/json");

fn in_own_namespace() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount"]);
    command
}

/// Starts a server on a file system of its own; `None` if this system lets nothing be mounted.
fn start(dir: &Path, free_min_bytes: u64) -> Option<Process> {
    if !in_own_namespace().arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("nothing is checked: this system forbids user namespaces ('unshare --map-root-user --mount true')");
        return None;
    }
    let mut program = in_own_namespace();
    let script = format!("mount -t tmpfs -o {DISK} none \"$0\" && exec \"$@\"");
    program.args(["sh", "-c", &script]).arg(dir).arg(env!("CARGO_BIN_EXE_millstream"));
    let floor = format!("log.disk_free_min_bytes={free_min_bytes}");
    let settings = ["--set", &floor, "--set", "connect.http.authentication_required=false"];
    Some(Process::start_by(program, dir, &settings))
}

/// A file on the server's disk that takes its room.
struct Ballast {
    path: PathBuf,
    file: File,
}

impl Ballast {
    fn create(process: &Process, dir: &Path) -> Self {
        let path = PathBuf::from(format!("/proc/{}/root{}/ballast", process.id(), dir.display()));
        Self { file: File::create(&path).unwrap(), path }
    }

    fn free_bytes(&self) -> u64 {
        let told = Command::new("stat").args(["--file-system", "--format=%a %S"]).arg(&self.path).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let (blocks, block_bytes) = told.trim().split_once(' ').unwrap();
        blocks.parse::<u64>().unwrap() * block_bytes.parse::<u64>().unwrap()
    }

    /// Takes all room but this much.
    fn leave(&mut self, bytes: u64) {
        const PIECE: [u8; 4096] = [7; 4096];
        while self.free_bytes() > bytes {
            for _ in 0..(self.free_bytes() - bytes).div_ceil(PIECE.len() as u64) {
                match self.file.write_all(&PIECE) {
                    Err(full) if full.kind() == ErrorKind::StorageFull => return,
                    written => written.unwrap(),
                }
            }
        }
    }

    fn make_room(self) {
        std::fs::remove_file(&self.path).unwrap();
    }
}

fn send(process: &Process) -> Answer {
    ask(process.devices, "PUT", "/telemetry/mill/wheel", &[JSON, ("QoS-Level", "1")], br#"{"temp": 21.5}"#)
}

fn create(process: &Process, entity: &str) -> Answer {
    let entity = format!(r#"{{"id": "{entity}", "type": "Room"}}"#);
    ask(process.applications, "POST", "/v2/entities", &[JSON], entity.as_bytes())
}

fn warm(process: &Process, entity: &str) -> Answer {
    let path = format!("/v2/entities/{entity}/attrs?options=keyValues");
    ask(process.applications, "POST", &path, &[JSON], br#"{"temp": 21.5}"#)
}

fn put_key(process: &Process, key: &str) -> Answer {
    ask(process.applications, "PUT", &format!("/kv/things/{key}"), &[], b"value")
}

/// A command of a Redis client, as a line; answers the first line of the reply.
fn redis(process: &Process, line: &str) -> String {
    let mut socket = TcpStream::connect(process.redis).unwrap();
    socket.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    BufReader::new(socket).read_line(&mut reply).unwrap();
    reply
}

fn with_input(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn append(process: &Process, value: &str) -> Output {
    let mut command = millstream();
    command.args(["topic", "append", "orders", "--format", "values"]);
    command.env("MILLSTREAM_SERVER", process.applications_url());
    with_input(command, value)
}

/// Produces a record, and does not try again.
fn produce(process: &Process, value: &str) -> Output {
    let mut kcat = Command::new("kcat");
    kcat.args(["-P", "-b", &process.kafka.to_string(), "-t", "orders", "-p", "0", "-X", "retries=0"]);
    with_input(kcat, value)
}

fn stored(process: &Process) -> String {
    let headers = [("Accept", "text/event-stream")];
    ask(process.applications, "GET", "/api/streams/orders?from=earliest&until=latest", &headers, b"").text()
}

#[test]
fn on_a_full_file_system_without_a_floor_every_write_is_refused_at_once_and_goes_on_once_there_is_room() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(process) = start(dir.path(), 0) else { return };
    for path in ["/v1/tenants/mill", "/v1/devices/mill/wheel"] {
        assert_eq!(ask(process.applications, "POST", path, &[JSON], b"").status, 201, "{path}");
    }
    assert_eq!(ask(process.applications, "PUT", "/api/streams/orders", &[JSON], br#"{"partitions": 1}"#).status, 201);
    assert_eq!(ask(process.applications, "PUT", "/buckets/things", &[], b"{}").status, 201);
    assert_eq!((create(&process, "before").status, send(&process).status), (201, 202));
    assert_eq!((put_key(&process, "before").status, put_key(&process, "gone").status), (201, 201));
    assert_eq!([redis(&process, "SET before 1"), redis(&process, "SET gone 1")], ["+OK\r\n"; 2]);
    for written in [append(&process, "\"appended before\""), produce(&process, "produced before")] {
        assert!(written.status.success(), "{written:?}");
    }

    let mut ballast = Ballast::create(&process, dir.path());
    ballast.leave(NEARLY_FULL_BYTES);
    eventually("the shortage is known", || process.get("/readyz").status == 503);
    ballast.leave(0);
    let disk = format!("the disk of {}", dir.path().join("log").display());
    let is_told = |text: &str| text.contains(&disk) && text.contains(" is full: ") && text.contains("make room");
    let ready = process.get("/readyz");
    assert!(ready.status == 503 && is_told(&ready.text()), "{}", ready.text());
    let delete_key = || ask(process.applications, "DELETE", "/kv/things/gone", &[], b"");
    let of_entities = [send(&process), create(&process, "after"), warm(&process, "before")];
    let of_keys = [put_key(&process, "after"), put_key(&process, "before"), delete_key()];
    for refused in of_entities.into_iter().chain(of_keys) {
        assert!(refused.status == 503 && is_told(&refused.text()), "{} {}", refused.status, refused.text());
    }
    for line in ["SET after 1", "INCR before", "DEL gone"] {
        let refused = redis(&process, line);
        assert!(refused.starts_with("-MISCONF nothing is stored now: ") && is_told(&refused), "{line}: {refused}");
    }
    assert_eq!(redis(&process, "STRLEN before"), ":1\r\n", "reads go on");
    assert_eq!(redis(&process, "EXISTS gone after"), ":1\r\n");
    let refused = append(&process, "\"refused\"");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && is_told(&told), "{told}");
    let refused = produce(&process, "refused");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("Not enough in-sync replicas"), "{told}");
    assert_eq!(process.get_json("/v2/entities?type=Room&attrs=id")[0]["id"], "before", "reads go on");
    assert_eq!(process.get("/kv/things/before").body, b"value", "reads go on");
    assert_eq!((process.get("/kv/things/gone").status, process.get("/kv/things/after").status), (200, 404));

    ballast.make_room();
    eventually("there is room again", || process.get("/readyz").status == 200);
    assert_eq!((send(&process).status, create(&process, "after").status), (202, 201));
    assert_eq!(warm(&process, "before").status, 204);
    assert_eq!((put_key(&process, "after").status, delete_key().status), (201, 204));
    assert_eq!((process.get("/kv/things/after").status, process.get("/kv/things/gone").status), (200, 404));
    assert_eq!([redis(&process, "SET after 1"), redis(&process, "INCR before")], ["+OK\r\n", ":2\r\n"]);
    assert_eq!([redis(&process, "DEL gone"), redis(&process, "EXISTS before gone after")], [":1\r\n", ":2\r\n"]);
    for written in [append(&process, "\"appended after\""), produce(&process, "produced after")] {
        assert!(written.status.success(), "{written:?}");
    }
    let stored = stored(&process);
    for value in ["appended before", "produced before", "appended after", "produced after"] {
        assert!(stored.contains(value), "{value} in {stored}");
    }
    assert!(!stored.contains("refused"), "{stored}");
    process.stop();
}

#[test]
fn a_job_on_a_full_disk_waits_with_its_reason_and_goes_on_without_a_gap() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(process) = start(dir.path(), 0) else { return };
    for topic in ["/api/streams/counts", "/api/streams/orders"] {
        assert_eq!(ask(process.applications, "PUT", topic, &[JSON], br#"{"partitions": 1}"#).status, 201);
    }
    let job = br#"{"version": 1, "kind": "Job", "name": "counts", "id": "c1", "delivery": "exactly_once", "checkpoint": {"interval": "50ms"},
        "sources": {"ticks": {"type": "generator", "config": {"record": {"k": "all"}, "rate": 50}}},
        "transforms": {"counted": {"type": "map", "inputs": ["ticks"], "key_by": ["k"], "select": "RUNNING_COUNT(k) AS n"}},
        "sinks": {"counts": {"type": "stream", "inputs": ["counted"], "config": {"topic": "counts"}}}}"#;
    let submitted = ask(process.applications, "POST", "/api/jobs", &[JSON], job);
    assert_eq!(submitted.status, 201, "{}", submitted.text());
    let status = || process.get_json("/api/jobs/c1/status");
    let numbers = || -> Vec<u64> {
        let page = process.get_json("/api/streams/counts?from=earliest&until=latest&limit=1000");
        page["records"].as_array().unwrap().iter().map(|record| record["value"]["n"].as_u64().unwrap()).collect()
    };
    eventually("the job has results", || numbers().len() > 20);

    let mut ballast = Ballast::create(&process, dir.path());
    ballast.leave(NEARLY_FULL_BYTES);
    eventually("the shortage is known", || process.get("/readyz").status == 503);
    ballast.leave(0);
    eventually("the job says that it waits, and for what", || status().to_string().contains(" is full: "));
    let waiting = status();
    assert_eq!(waiting["state"], "running", "{waiting}");
    assert_eq!(append(&process, "\"refused\"").status.code(), Some(1));

    ballast.make_room();
    let before = numbers().len();
    eventually("the job goes on", || numbers().len() > before + 20);
    let going = status();
    assert!(!going.to_string().contains(" is full: "), "{going}");
    let numbers = numbers();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "each count is there once");
    process.stop();
}

#[test]
fn large_values_that_fill_the_disk_are_deleted_there_and_writing_resumes() {
    if crate::log_has_no_files() {
        return;
    }
    const VALUE_BYTES: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let Some(process) = start(dir.path(), 32 << 20) else { return };
    assert_eq!(ask(process.applications, "PUT", "/buckets/things", &[], b"{}").status, 201);
    let value = vec![b'v'; VALUE_BYTES];
    let key = |number: usize| format!("/kv/things/{number}");
    let put = |number: usize| ask(process.applications, "PUT", &key(number), &[], &value);
    let mut stored = 0;
    // After a first refusal the server may find room once more, such as that of a compaction.
    eventually("the disk is full and stays so", || {
        while stored < 1_000 {
            let answer = put(stored);
            match answer.status {
                201 => stored += 1,
                refused => {
                    assert_eq!(refused, 503, "{}", answer.text());
                    break;
                }
            }
        }
        process.get("/readyz").status == 503
    });
    assert!((50..1_000).contains(&stored), "{stored} values fill the disk");
    let listed = || process.get("/kv/things").text();
    assert!(listed().contains("\"key\""), "{}", listed());
    for number in 0..stored {
        // A compaction that is making room may have all that is left for a moment.
        eventually("the value is deleted", || {
            let answer = ask(process.applications, "DELETE", &key(number), &[], b"");
            assert!([204, 503].contains(&answer.status), "{number}: {}", answer.text());
            answer.status == 204
        });
    }
    assert!(!listed().contains("\"key\""), "{}", listed());
    eventually("there is room again", || process.get("/readyz").status == 200);
    assert_eq!(put(0).status, 201);
    assert_eq!(process.get(&key(0)).body, value);
    process.stop();
}
