//! `/readyz` and the counters tell of a view that cannot go on, of a disk that is full, and of too many files of history.

use std::path::{Path, PathBuf};

use millstream_testkit::{Process, ask, eventually, millstream};

const TENANT: &str = "mill";
const PAYLOAD: &[u8] = br#"{"temp": 21.5, "marker": "here-to-be-damaged"}"#;
const MESSAGES: usize = 5;
const NO_LOGIN: [&str; 2] = ["--set", "connect.http.authentication_required=false"];

fn start(dir: &Path, more: &[&str]) -> Process {
    Process::start_on(dir, &[&NO_LOGIN[..], more].concat())
}

fn post(process: &Process, path: &str, body: &[u8]) {
    let answer = ask(process.applications, "POST", path, &[("Content-Type", "application/json")], body);
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
}

/// Messages of a tenant whose telemetry nobody follows, because there is no room for the topic of its changes.
fn store_unfollowed(dir: &Path) {
    let process = start(dir, &["--set", "context.tenants_max=1"]);
    post(&process, "/v2/entities", br#"{"id": "first", "type": "Room"}"#);
    post(&process, &format!("/v1/tenants/{TENANT}"), b"");
    post(&process, &format!("/v1/devices/{TENANT}/wheel"), b"");
    let headers = [("Content-Type", "application/json"), ("QoS-Level", "1")];
    for _ in 0..MESSAGES {
        let sent = ask(process.devices, "PUT", &format!("/telemetry/{TENANT}/wheel"), &headers, PAYLOAD);
        assert_eq!(sent.status, 202, "{}", sent.text());
    }
    assert_eq!(process.get("/readyz").status, 200);
    process.stop();
}

/// The segments below a folder.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { segments(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.extension().is_some_and(|kind| kind == "segment")).collect()
}

/// Flips a bit in the first payload; the partition that it lies in.
fn damage(data_dir: &Path) -> String {
    for path in segments(&data_dir.join("log")) {
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(PAYLOAD.len()).position(|window| window == PAYLOAD) {
            bytes[at + PAYLOAD.len() - 5] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            return path.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        }
    }
    panic!("the payload lies in no segment");
}

#[test]
fn a_damaged_source_is_named_by_readyz_and_counted_and_all_else_goes_on() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    store_unfollowed(dir.path());
    let partition = damage(dir.path());

    let process = start(dir.path(), &[]);
    eventually("the damage to be met", || process.get("/readyz").status == 503);
    let told = process.get("/readyz").text();
    let place = format!("topic 'telemetry.{TENANT}', partition {partition}, offset 0: ");
    for part in ["view 'context' does not follow this partition any further", &place, "damaged"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(process.get("/metrics").text().lines().any(|line| line == "millstream_view_failures 1"));
    assert_eq!(process.get("/healthz").status, 200);
    let health = millstream().args(["health", "--server", &process.applications_url()]).output().unwrap();
    assert_eq!(health.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&health.stderr).contains(&place), "{health:?}");
    post(&process, "/v2/entities", br#"{"id": "second", "type": "Room"}"#);
    process.stop();
}

#[test]
fn a_full_disk_refuses_writes_and_all_else_goes_on() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path(), &[]);
    post(&process, "/v2/entities", br#"{"id": "before", "type": "Room"}"#);
    post(&process, &format!("/v1/tenants/{TENANT}"), b"");
    post(&process, &format!("/v1/devices/{TENANT}/wheel"), b"");
    let telemetry = format!("/telemetry/{TENANT}/wheel");
    let send = |process: &Process| {
        let headers = [("Content-Type", "application/json"), ("QoS-Level", "1")];
        ask(process.devices, "PUT", &telemetry, &headers, PAYLOAD)
    };
    assert_eq!(send(&process).status, 202);
    process.stop();

    // No disk has so much room.
    let full = ["--set", "log.disk_free_min_bytes=1000000000000000000"];
    let process = start(dir.path(), &full);
    let is_told = |text: &str| text.contains("is full: ") && text.contains("log.disk_free_min_bytes");
    let ready = process.get("/readyz");
    assert!(ready.status == 503 && is_told(&ready.text()), "{}", ready.text());
    let sent = send(&process);
    assert!(sent.status == 503 && is_told(&sent.text()), "{}", sent.text());
    assert!(sent.header("retry-after").is_some());
    let create = || {
        let json = [("Content-Type", "application/json")];
        ask(process.applications, "POST", "/v2/entities", &json, br#"{"id": "after", "type": "Room"}"#)
    };
    // The first one, too, hears of the disk and not that its time is over.
    let refused = create();
    assert!(refused.status == 503 && is_told(&refused.text()), "{}", refused.text());
    assert_eq!(process.get_json("/v2/entities?type=Room&attrs=id")[0]["id"], "before");
    process.stop();

    let process = start(dir.path(), &[]);
    assert_eq!((process.get("/readyz").status, send(&process).status), (200, 202));
    post(&process, "/v2/entities", br#"{"id": "after", "type": "Room"}"#);
    process.stop();
}

#[test]
fn readyz_and_metrics_tell_of_a_history_with_too_many_files_and_no_point_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let limit = ["--set", "history.files_max=2"];
    let process = start(dir.path(), &limit);
    assert!(!process.get("/readyz").text().contains("degraded"));
    // Each type has a file of its own.
    for kind in ["Room", "Street"] {
        let entity = format!(r#"{{"id": "one", "type": "{kind}", "level": {{"value": 5}}}}"#);
        post(&process, "/v2/entities", entity.as_bytes());
        let path = format!("/ngsi-ld/v1/temporal/entities/one?type={kind}&lastN=1");
        assert_eq!(process.get(&path).status, 200);
    }
    // An orderly end writes all points into files.
    process.stop();

    let process = start(dir.path(), &limit);
    eventually("the warning", || process.get("/readyz").text().contains("degraded"));
    let ready = process.get("/readyz");
    let is_told = ready.text().contains("\ndegraded: history: number of files: 2 files, history.files_max = 2; ");
    assert!(ready.status == 200 && is_told, "{}", ready.text());
    let metrics = process.get("/metrics").text();
    for series in ["millstream_history_files_max 2", "millstream_history_files 2"] {
        assert!(metrics.lines().any(|line| line == series), "{series} in\n{metrics}");
    }
    post(&process, "/v2/entities", br#"{"id": "one", "type": "Field", "level": {"value": 7}}"#);
    let newest = process.get_json("/ngsi-ld/v1/temporal/entities/one?type=Field&lastN=1&options=temporalValues");
    assert_eq!(newest["level"]["values"][0][0], 7);
    process.stop();
}
