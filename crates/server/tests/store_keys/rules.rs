//! Given, when, then: the rules of section 13 of the store's reference, and rows of its section 3.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use millstream_testkit::{Process, ask, eventually};

use crate::{make, put, start, tag};

#[test]
fn given_an_empty_bucket_when_put_with_if_none_match_twice_then_201_and_412_and_the_first_value_stays() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    make(&process, "things", "{}");
    let create =
        |value: &str| put(process.applications, "/kv/things/once", &[("If-None-Match", "*")], value.as_bytes()).status;
    assert_eq!((create("first"), create("second")), (201, 412));
    assert_eq!(process.get("/kv/things/once").body, b"first");
    process.stop();
}

#[test]
fn given_a_value_when_two_clients_put_with_its_version_at_once_then_exactly_one_succeeds() {
    const CLIENTS: usize = 2;
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let to = process.applications;
    make(&process, "things", "{}");
    let mut version = tag(&put(to, "/kv/things/fought-for", &[], b"0"));
    for round in 0..50 {
        let start = Barrier::new(CLIENTS);
        let answers: Vec<_> = std::thread::scope(|threads| {
            let race = |client: usize| {
                let value = format!("{round} {client}");
                start.wait();
                let answer = put(to, "/kv/things/fought-for", &[("If-Match", &version)], value.as_bytes());
                (value, answer)
            };
            let clients: Vec<_> = (0..CLIENTS).map(|client| threads.spawn(move || race(client))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|(_, answer)| answer.status == 200);
        assert_eq!((won.len(), lost[0].1.status), (1, 412), "round {round}");
        let next = tag(&won[0].1);
        // The refusal has both versions, and both clients see the same value.
        let refusal = lost[0].1.json();
        assert_eq!(
            (refusal["expected"].as_str(), refusal["version"].to_string()),
            (Some(&*version), next.replace('"', ""))
        );
        let read = process.get("/kv/things/fought-for");
        assert_eq!((tag(&read), read.text()), (next.clone(), won[0].0.clone()));
        version = next;
    }
    assert_eq!(put(to, "/kv/things/missing", &[("If-Match", &version)], b"x").status, 412);
    assert_eq!(process.get("/kv/things/missing").status, 404);
    process.stop();
}

/// `true` if the key is gone in every way of asking that there is.
fn is_gone(process: &Process, path: &str) -> bool {
    let to = process.applications;
    let head = ask(to, "HEAD", path, &[], b"").status;
    let get = process.get(path).status;
    head == 404 && get == 404
}

#[test]
fn given_a_time_to_live_when_it_has_passed_then_the_key_is_gone_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    make(&process, "things", "{}");
    let sent = Instant::now();
    assert_eq!(put(process.applications, "/kv/things/short?ttl=200", &[], b"x").status, 201);
    assert_eq!(put(process.applications, "/kv/things/long?ttl=1h", &[], b"x").status, 201);
    eventually("the key to be gone", || {
        let gone = is_gone(&process, "/kv/things/short");
        assert!(!gone || sent.elapsed() >= Duration::from_millis(200), "gone after {:?}", sent.elapsed());
        gone
    });
    // It expires while nothing runs, too.
    assert_eq!(put(process.applications, "/kv/things/asleep?ttl=200", &[], b"x").status, 201);
    process.kill();
    let process = start(dir.path());
    eventually("the key to be gone", || is_gone(&process, "/kv/things/asleep"));
    assert!(is_gone(&process, "/kv/things/short"));
    let long = process.get("/kv/things/long");
    assert!(long.header("cache-control").is_some_and(|control| control == "max-age=3600"), "{long:?}");
    assert_eq!(ask(process.applications, "HEAD", "/kv/things/long", &[], b"").status, 200);
    eventually("expired keys to be removed", || process.get_json("/buckets/things")["keys"] == 1);
    assert_eq!(put(process.applications, "/kv/things/short", &[("If-None-Match", "*")], b"again").status, 201);
    process.stop();
}

#[test]
fn given_a_write_answered_at_synced_when_the_process_is_killed_at_once_then_it_is_there_and_a_deleted_key_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = start(dir.path());
    make(&process, "things", "{}");
    for round in 0..3 {
        let to = process.applications;
        let value = format!("value {round}");
        let versions: Vec<String> =
            (0..8).map(|key| tag(&put(to, &format!("/kv/things/{key}"), &[], value.as_bytes()))).collect();
        assert_eq!(ask(to, "DELETE", "/kv/things/7", &[], b"").status, 204);
        process.kill();
        process = start(dir.path());
        for (key, version) in versions.iter().enumerate().take(7) {
            let read = process.get(&format!("/kv/things/{key}"));
            assert_eq!((read.status, read.text(), tag(&read)), (200, value.clone(), version.clone()));
        }
        assert_eq!(process.get("/kv/things/7").status, 404);
    }
    process.stop();
}

#[test]
fn rows_of_put_get_head_post_and_delete() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let to = process.applications;
    make(&process, "things", "{}");
    let path = "/kv/things/photos/%C3%A9t%C3%A9/1";
    let headers = [
        ("Content-Type", "image/png"),
        ("X-Meta-Owner", "ann"),
        ("X-Tags", "a, b"),
        ("X-Timestamp", "2026-01-01T00:00:00Z"),
    ];
    for ack in ["memory", "written", "synced", "all"] {
        assert!(put(to, &format!("{path}?ack={ack}"), &headers, b"picture").status < 300, "{ack}");
    }
    let read = process.get(path);
    let version = tag(&read);
    for (name, value) in [
        ("content-type", "image/png"),
        ("x-meta-owner", "ann"),
        ("x-tags", "a,b"),
        ("x-timestamp", "2026-01-01T00:00:00Z"),
        ("content-length", "7"),
    ] {
        let found = read.header(name).unwrap_or_default();
        assert!(found.starts_with(value.trim_end_matches('Z')), "{name}: {found}");
    }
    assert_eq!((read.status, read.body.as_slice()), (200, &b"picture"[..]));
    let head = ask(to, "HEAD", path, &[], b"");
    assert_eq!((head.status, head.body.len(), tag(&head)), (200, 0, version.clone()));
    assert_eq!(head.header("content-length"), Some("7"));

    let modified = read.header("last-modified").unwrap().to_owned();
    for (condition, status) in [
        (("If-None-Match", &*version), 304),
        (("If-None-Match", "\"0\""), 200),
        (("If-None-Match", "*"), 304),
        (("If-Modified-Since", &*modified), 304),
        (("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT"), 200),
    ] {
        let read = ask(to, "GET", path, &[condition], b"");
        assert_eq!((read.status, tag(&read)), (status, version.clone()), "{condition:?}");
        assert_eq!(read.body.is_empty(), status == 304, "{condition:?}");
    }

    let appended = ask(to, "POST", &format!("{path}?append"), &[], b"+more");
    assert_eq!((appended.status, appended.json()["length"].as_u64()), (200, Some(12)));
    assert_ne!(tag(&appended), version, "each write is a version");
    let patched = put(to, &format!("{path}?offset=14"), &[("Prefer", "return=minimal")], b"end");
    assert_eq!((patched.status, patched.body.len()), (204, 0));
    let read = process.get(path);
    assert_eq!(read.body, b"picture+more\0\0end");
    assert_eq!(read.header("content-type"), Some("image/png"), "a patch keeps what it does not name");

    let later = put(
        to,
        path,
        &[("X-Timestamp", "2027-01-01T00:00:00Z"), ("X-If-Timestamp-Before", "2027-01-01T00:00:00Z")],
        b"x",
    );
    assert_eq!(later.status, 200, "{}", later.text());
    let earlier = put(to, path, &[("X-If-Timestamp-Before", "2026-06-01T00:00:00Z")], b"y");
    assert_eq!(earlier.status, 412, "{}", earlier.text());
    let deleted = ask(to, "DELETE", path, &[("If-Match", &tag(&later))], b"");
    assert_eq!((deleted.status, process.get(path).status), (204, 404));

    assert_eq!(put(to, "/kv/things/%5Fhidden", &[], b"x").status, 201);
    assert_eq!(process.get("/kv/things/%5Fhidden").body, b"x");
    assert_eq!(put(to, "/kv/things/%FF%00%2F", &[], b"bytes").status, 201);
    assert_eq!(process.get("/kv/things/%ff%00/").body, b"bytes");
    assert_eq!(put(to, "/kv/things/empty", &[], b"").status, 201);
    assert_eq!((process.get("/kv/things/empty").status, process.get("/kv/things/empty").body.len()), (200, 0));
    process.stop();
}

#[test]
fn rows_of_buckets() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let to = process.applications;
    let settings = br#"{"partitions": 2, "ttl_ms": 3600000, "ack": "written"}"#;
    let made = ask(to, "PUT", "/buckets/photos", &[], settings);
    assert_eq!((made.status, made.json()["topic"].as_str()), (201, Some("kv.photos.default")), "{}", made.text());
    assert_eq!(put(to, "/kv/photos/a", &[], b"x").status, 201);
    assert_eq!(process.get("/kv/photos/a").header("cache-control"), Some("max-age=3600"), "the bucket's time to live");
    let changed = ask(to, "PUT", "/buckets/photos", &[], br#"{"partitions": 2}"#);
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(put(to, "/kv/photos/b", &[], b"x").status, 201);
    assert_eq!(process.get("/kv/photos/b").header("cache-control"), None);
    process.kill();
    let process = start(dir.path());
    let to = process.applications;
    let described = process.get_json("/buckets/photos");
    assert_eq!((&described["settings"]["partitions"], &described["keys"]), (&2.into(), &2.into()), "{described}");
    let names: Vec<_> =
        process.get_json("/buckets").as_array().unwrap().iter().map(|all| all["name"].clone()).collect();
    assert_eq!(names, ["photos"]);
    assert_eq!(ask(to, "DELETE", "/buckets/photos", &[], b"").status, 204);
    assert_eq!((process.get("/buckets/photos").status, process.get("/kv/photos/a").status), (404, 404));
    make(&process, "photos", "{}");
    assert_eq!(process.get("/kv/photos/a").status, 404, "nothing of a deleted bucket comes back");
    process.stop();
}
