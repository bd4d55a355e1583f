//! A log with damage is looked through and repaired offline; topics that can be rebuilt are at a start.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use millstream_testkit::{Process, ask, millstream};

use crate::tokens::{call, every_role, make};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

fn run(data_dir: &Path, arguments: &[&str]) -> (bool, String) {
    let output = millstream().arg("log").args(arguments).arg("--data-dir").arg(data_dir).output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(told).unwrap())
}

/// Flips a byte of a file.
fn damage(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

/// All segments, the largest last.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut folders = vec![dir.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "segment" => found.push((path.metadata().unwrap().len(), path)),
                _ => {}
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

#[test]
fn log_check_and_repair_say_that_a_revoked_token_may_be_good_again() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let root = make(&server, "", &every_role("root", "*"));
    make(&server, &root, &every_role("gone", "default"));
    assert_eq!(call(server.applications, &root, "DELETE", "/api/tokens/gone", &serde_json::Value::Null).status, 204);
    server.stop();
    let mut seen = 0;
    for segment in segments(&dir.path().join("log/topics")) {
        let at = segment.metadata().unwrap().len() - 1;
        damage(&segment, at);
        let (_, told) = run(dir.path(), &["check"]);
        let is_of_tokens = told.contains("topic '_tokens'");
        assert_eq!(told.contains("revoked in lost records are good again"), is_of_tokens, "{told}");
        seen += u32::from(is_of_tokens);
        damage(&segment, at);
    }
    assert!(seen > 0, "no segment of the tokens");
}

#[test]
fn log_check_reports_a_damaged_log_and_log_repair_mends_it_after_a_confirmation() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    assert_eq!(ask(server.applications, "PUT", "/api/streams/orders", &JSON, b"{\"partitions\": 1}").status, 201);
    let records = format!("{{\"value\": \"{}\"}}\n", "x".repeat(100_000)).repeat(3);
    let lines = [("Content-Type", "application/x-ndjson")];
    let appended = ask(server.applications, "POST", "/api/streams/orders/records", &lines, records.as_bytes());
    assert_eq!(appended.status, 200, "{}", appended.text());
    let (ok, told) = run(dir.path(), &["check"]);
    assert!(!ok && told.contains("is in use by another millstream process"), "{told}");
    server.stop();
    let (ok, told) = run(dir.path(), &["check"]);
    assert!(ok && told.contains("all of it reads"), "{told}");

    let meta = dir.path().join("log/meta");
    let segment = segments(&dir.path().join("log/topics")).pop().unwrap();
    damage(&meta, 70);
    damage(&segment, 5_000);
    let lost = "a repair loses the records at offsets 0 to 2 of topic 'orders', partition 0 (at most 3)";
    for arguments in [&["check"][..], &["repair"]] {
        let (ok, told) = run(dir.path(), arguments);
        assert!(!ok && told.contains("2 places are damaged; 'millstream log repair --yes' takes them out"), "{told}");
        for part in
            [&*meta.display().to_string(), &*segment.display().to_string(), lost, "nothing: the other copy is intact"]
        {
            assert!(told.contains(part), "{part} in {told}");
        }
    }
    let (ok, told) = run(dir.path(), &["repair", "--yes"]);
    assert!(ok && told.contains("set-aside"), "{told}");
    assert!(run(dir.path(), &["check"]).0);
    let server = Process::start(dir.path());
    ask(server.applications, "POST", "/api/streams/orders/records", &lines, b"{\"value\": \"after\"}\n");
    let info = server.get_json("/api/streams/orders/info");
    assert_eq!(info["partitions"][0]["stable"], 4, "no offset is given twice");
    server.stop();
    let (ok, told) = run(&dir.path().join("nowhere"), &["check"]);
    assert!(!ok && told.contains("there is no log in"), "{told}");
}

/// Flips a byte in a segment of `topic`; the path of the segment.
fn damage_topic(dir: &Path, topic: &str) -> PathBuf {
    let is_of_topic = |path: &PathBuf| {
        damage(path, 140);
        let found = run(dir, &["check"]).1.contains(&format!("of topic '{topic}', partition"));
        // A second flip undoes the first.
        if !found {
            damage(path, 140);
        }
        found
    };
    segments(&dir.join("log/topics")).into_iter().find(is_of_topic).expect("the topic has a segment")
}

/// Starts again and returns what it said on standard error.
fn start_again(dir: &Path) -> (Process, String) {
    let said = dir.join("said.txt");
    let mut program = millstream();
    program.stderr(File::create(&said).unwrap());
    let process = Process::start_by(program, dir, &[]);
    (process, std::fs::read_to_string(said).unwrap())
}

/// Checks that a warning names topic, partition and file, and that the file lies where the warning says.
fn assert_set_aside(dir: &Path, topic: &str, file: &Path, said: &str) {
    let relative = file.strip_prefix(dir.join("log")).unwrap();
    let kept = dir.join("log/set-aside").join(relative.to_str().unwrap().replace('/', "-"));
    let line = said.lines().find(|line| line.contains("WARN") && line.contains(&format!("topic={topic} ")));
    let line = line.unwrap_or_else(|| panic!("no warning about {topic}: {said}"));
    let partition = relative.parent().unwrap().file_name().unwrap().to_str().unwrap();
    for part in [&format!("partition={partition}"), file.to_str().unwrap(), kept.to_str().unwrap()] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(kept.is_file() && !file.exists(), "{}", kept.display());
}

#[test]
fn a_damaged_catalog_of_history_is_rebuilt_at_a_start_from_its_copy() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    for (room, temperature) in [("room1", 21), ("room1", 22), ("room2", 5), ("room1", 23)] {
        let entity = format!(r#"{{"id": "{room}", "type": "Room", "temperature": {{"value": {temperature}}}}}"#);
        let created = ask(server.applications, "POST", "/v2/entities?options=upsert", &JSON, entity.as_bytes());
        assert!(created.status < 300, "{}", created.text());
    }
    let path = "/ngsi-ld/v1/temporal/entities";
    // The changes still have what is deleted here; it must not come back.
    let deleted = ask(server.applications, "DELETE", &format!("{path}/room2"), &[], b"");
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    let shown = |server: &Process| {
        ["room1", "room2"].map(|room| {
            let answer = server.get(&format!("{path}/{room}?attrs=temperature"));
            (answer.status, answer.text())
        })
    };
    let before = shown(&server);
    assert_eq!((before[0].0, before[1].0), (200, 404), "{before:?}");
    server.stop();
    for topic in ["_history", "_history_copy"] {
        let file = damage_topic(dir.path(), topic);
        let (server, said) = start_again(dir.path());
        assert_set_aside(dir.path(), topic, &file, &said);
        assert_eq!(shown(&server), before, "{topic}");
        assert_eq!(server.get("/readyz").status, 200);
        server.stop();
    }
    // With both of them damaged there is nothing to rebuild them from.
    for topic in ["_history", "_history_copy"] {
        damage_topic(dir.path(), topic);
    }
    let mut serve = millstream();
    serve.arg("serve").arg("--data-dir").arg(dir.path());
    for listener in ["applications", "devices-http", "devices-mqtt", "kafka"] {
        serve.args([&format!("--listen-{listener}"), "127.0.0.1:0"]);
    }
    let refused = serve.output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("checksum"), "{told}");
}

#[test]
fn damaged_notes_of_usage_are_counted_again_at_a_start_from_the_messages() {
    if crate::log_has_no_files() {
        return;
    }
    const MESSAGE: &[u8] = b"0123456789";
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let tenant = r#"{"adapters": [{"type": "hono-http", "enabled": true, "device-authentication-required": false}],
        "resource-limits": {"data-volume": {"max-bytes": 100}}}"#;
    for (method, path, body) in [("PUT", "/v1/tenants/default", tenant), ("POST", "/v1/devices/default/d", "{}")] {
        assert!(ask(server.applications, method, path, &JSON, body.as_bytes()).status < 300, "{path}");
    }
    let send =
        |server: &Process| ask(server.devices, "PUT", "/telemetry/default/d", &[("qos-level", "1")], MESSAGE).status;
    assert_eq!([(); 6].map(|()| send(&server)), [202; 6]);
    server.stop();
    let file = damage_topic(dir.path(), "_usage");
    let (server, said) = start_again(dir.path());
    assert_set_aside(dir.path(), "_usage", &file, &said);
    assert!(said.contains("time that the tenants' devices have been connected"), "the loss is named: {said}");
    assert_eq!([(); 5].map(|()| send(&server)), [202, 202, 202, 202, 429], "ten in all, as without the damage");
    server.stop();
}

#[test]
fn log_clear_journal_removes_the_last_copies_of_a_server_that_was_stopped_in_order() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let lines = [("Content-Type", "application/x-ndjson")];
    let append = |server: &Process, value: &str| {
        let line = format!("{{\"value\": \"{value}\"}}\n");
        let answer = ask(server.applications, "POST", "/api/streams/orders/records", &lines, line.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    assert_eq!(ask(server.applications, "PUT", "/api/streams/orders", &JSON, b"{\"partitions\": 1}").status, 201);
    append(&server, "to be forgotten");
    assert_eq!(ask(server.applications, "DELETE", "/api/streams/orders", &[], b"").status, 204);
    assert!(run(dir.path(), &["clear-journal"]).1.contains("is in use by another millstream process"));
    server.stop();
    assert!(holds(dir.path(), b"to be forgotten"), "the journal has a copy");
    let (ok, told) = run(dir.path(), &["clear-journal"]);
    assert!(ok && told.contains("bytes removed"), "{told}");
    assert!(!holds(dir.path(), b"to be forgotten"));
    let server = Process::start(dir.path());
    assert_eq!(ask(server.applications, "PUT", "/api/streams/orders", &JSON, b"{\"partitions\": 1}").status, 201);
    append(&server, "kept");
    drop(server);
    let (ok, told) = run(dir.path(), &["clear-journal"]);
    assert!(!ok && told.contains("was not closed in order") && told.contains("start the server, stop it"), "{told}");
}

/// `true` if the bytes stand in a file of the log.
fn holds(dir: &Path, bytes: &[u8]) -> bool {
    let mut folders = vec![dir.join("log")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if memchr::memmem::find(&std::fs::read(&path).unwrap(), bytes).is_some() => return true,
                false => {}
            }
        }
    }
    false
}
