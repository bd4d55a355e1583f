//! Cache buckets: settings that change while they are in use, listings, and the events of keys that go by themselves.

use millstream_testkit::resp::{Connection, Reply, command};
use millstream_testkit::{Answer, Process, ask, eventually};
use serde_json::{Value, json};

use crate::{make, put, start};

const MIB: u64 = 1 << 20;

fn change(process: &Process, name: &str, settings: &Value) -> Answer {
    ask(process.applications, "PUT", &format!("/buckets/{name}"), &[], settings.to_string().as_bytes())
}

fn connect(process: &Process) -> Connection {
    Connection::open(&process.redis.to_string()).unwrap()
}

fn redis(connection: &mut Connection, words: &[&str]) -> String {
    connection.ask(&command(words)).unwrap().shown()
}

fn bytes(process: &Process, name: &str) -> (u64, u64) {
    let described = process.get_json(&format!("/buckets/{name}"));
    (described["bytes"].as_u64().unwrap(), described["cache"]["max_bytes"].as_u64().unwrap())
}

/// Lines of all pages of a listing, without the last of each.
fn pages(process: &Process, target: &str) -> (Vec<Value>, usize) {
    let (mut lines, mut target, mut count) = (Vec::new(), target.to_owned(), 0);
    loop {
        let answer = process.get(&target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        let mut page: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = page.pop().expect("a page has a last line");
        lines.extend(page);
        count += 1;
        match last["next"].as_str() {
            Some(next) => target = next.to_owned(),
            None => return (lines, count),
        }
    }
}

fn names(lines: &[Value], member: &str) -> Vec<String> {
    lines.iter().filter_map(|line| line[member].as_str()).map(ToOwned::to_owned).collect()
}

#[test]
fn a_cache_changes_its_size_and_policy_while_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let to = process.applications;
    make(&process, "pages", &json!({"kind": "cache", "max_bytes": 4 * MIB}).to_string());
    let value = vec![b'x'; 60_000];
    for number in 0..100 {
        assert!(put(to, &format!("/kv/pages/{number:03}"), &[], &value).status < 300);
    }
    assert!((3 * MIB..=4 * MIB).contains(&bytes(&process, "pages").0), "{:?}", bytes(&process, "pages"));

    let smaller = json!({"kind": "cache", "max_bytes": MIB, "policy": "allkeys-lfu", "ttl_ms": 3_600_000});
    let changed = change(&process, "pages", &smaller);
    assert_eq!(
        (changed.status, &changed.json()["settings"]["policy"]),
        (200, &json!("allkeys-lfu")),
        "{}",
        changed.text()
    );
    let (held, max) = bytes(&process, "pages");
    assert!(held <= MIB && max == MIB && held > 0, "{held} of {max}");
    assert_eq!(put(to, "/kv/pages/later", &[], b"x").status, 201);
    let listed = pages(&process, "/kv/pages?prefix=later").0;
    assert!(listed[0]["expires"].is_string(), "the new time to live is in force: {listed:?}");

    // A larger size than the memory allows is refused, as are other kinds and limits that a cache does not keep.
    for (settings, status, words) in [
        (json!({"kind": "cache", "max_bytes": 1_u64 << 50}), 507, "max_bytes"),
        (json!({"kind": "cache", "max_bytes": 1_000}), 400, "below the least, 65536"),
        (json!({"kind": "cache", "max_keys": 5}), 400, "max_keys"),
        (
            json!({"kind": "cache", "max_bytes": MIB, "policy": "slru", "pages_proportions": []}),
            400,
            "pages_proportions",
        ),
        (json!({"max_bytes": MIB}), 409, "kind"),
    ] {
        let refused = change(&process, "pages", &settings);
        assert!(refused.status == status && refused.text().contains(words), "{settings}: {}", refused.text());
        assert_eq!(process.get_json("/buckets/pages")["settings"], changed.json()["settings"], "{settings}");
    }
    assert_eq!(bytes(&process, "pages").1, MIB);

    // A change of settings lasts.
    process.stop();
    let process = start(dir.path());
    assert_eq!(process.get_json("/buckets/pages")["settings"], changed.json()["settings"]);
    assert_eq!(bytes(&process, "pages").1, MIB);
    process.stop();
}

#[test]
fn config_set_changes_the_cache_that_is_database_0_until_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    make(&process, "db0", &json!({"kind": "cache", "partitions": 1}).to_string());
    let mut client = connect(&process);
    let ask = |client: &mut Connection, words: &[&str], part: &str| {
        let reply = redis(client, words);
        assert!(reply.contains(part), "{words:?}: {reply}");
    };
    ask(&mut client, &["CONFIG", "GET", "maxmemory"], "67108864");
    let value = "x".repeat(50_000);
    for number in 0..400 {
        ask(&mut client, &["SET", &format!("key-{number}"), &value], "OK");
    }
    ask(&mut client, &["CONFIG", "SET", "maxmemory", "4mb", "maxmemory-policy", "volatile-ttl"], "OK");
    ask(&mut client, &["CONFIG", "GET", "maxmemory*"], "4194304");
    ask(&mut client, &["CONFIG", "GET", "maxmemory-policy"], "volatile-ttl");
    // No key expires, so nothing may go: what is there can be read, and more is refused.
    ask(&mut client, &["DBSIZE"], "400");
    ask(&mut client, &["SET", "more", &value], "OOM");
    ask(&mut client, &["GET", "key-0"], "xxx");
    ask(&mut client, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"], "OK");
    ask(&mut client, &["SET", "more", &value], "OK");
    let (held, max) = bytes(&process, "db0");
    assert!(held <= max && max == 4 * MIB, "{held} of {max}");
    for (name, value, part) in [
        ("maxmemory", "0", "name a number of bytes"),
        ("maxmemory", "lots", "memory value"),
        ("maxmemory", "100tb", "memory value"),
        ("maxmemory", "60000gb", "memory.budget_bytes"),
        ("maxmemory", "1kb", "below the least"),
        ("maxmemory-policy", "lru", "allkeys-lru"),
        ("appendonly", "yes", "no setting of a cache"),
    ] {
        ask(&mut client, &["CONFIG", "SET", name, value], part);
    }
    // A pair that is refused takes the other one back.
    ask(&mut client, &["CONFIG", "SET", "maxmemory-policy", "slru", "maxmemory", "1kb"], "ERR");
    ask(&mut client, &["CONFIG", "GET", "maxmemory*"], "allkeys-lru");
    ask(&mut client, &["INFO", "memory"], "maxmemory:4194304");
    process.stop();
    let process = start(dir.path());
    assert_eq!(bytes(&process, "db0").1, 64 * MIB);
    process.stop();
}

#[test]
fn a_cache_is_listed_in_order_with_prefix_delimiter_and_pages() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let to = process.applications;
    make(&process, "pages", &json!({"kind": "cache", "max_bytes": 16 * MIB}).to_string());
    for folder in ["a", "b"] {
        for number in 0..150 {
            let headers = [("Content-Type", "text/plain"), ("X-Tags", "one,two")];
            let answer = put(to, &format!("/kv/pages/{folder}/{number:03}"), &headers, folder.as_bytes());
            assert_eq!(answer.status, 201);
        }
    }
    assert_eq!(put(to, "/kv/pages/c?ttl=1h", &[], b"\xff").status, 201);
    assert_eq!(put(to, "/kv/pages/gone?ttl=1", &[], b"x").status, 201);
    eventually("the key expires", || process.get("/kv/pages/gone").status == 404);

    let all: Vec<String> = ["a", "b"]
        .iter()
        .flat_map(|folder| (0..150).map(move |n| format!("{folder}/{n:03}")))
        .chain(["c".to_owned()])
        .collect();
    for limit in [1_000, 100, 7] {
        let (lines, count) = pages(&process, &format!("/kv/pages?limit={limit}"));
        assert_eq!(names(&lines, "key"), all, "pages of {limit}");
        assert_eq!(count, all.len().div_ceil(limit), "pages of {limit}");
    }
    let (lines, _) = pages(&process, "/kv/pages?delimiter=/&limit=1");
    assert_eq!(
        (names(&lines, "prefix"), names(&lines, "key")),
        (vec!["a/".to_owned(), "b/".to_owned()], vec!["c".to_owned()])
    );
    let (lines, _) = pages(&process, "/kv/pages?prefix=b/&start=b/140&values=true");
    assert_eq!(names(&lines, "key"), all[290..300]);
    let got = process.get("/kv/pages/b/140");
    let version = got.header("etag").unwrap().trim_matches('"').parse::<u64>().unwrap();
    let expected = json!({
        "key": "b/140", "version": version, "length": 1, "content_type": "text/plain", "tags": ["one", "two"], "value": "b",
    });
    assert_eq!(lines[0], expected);
    let (lines, _) = pages(&process, "/kv/pages?start=c&values=true");
    assert!(lines.len() == 1 && lines[0]["value_base64"] == "/w==" && lines[0]["expires"].is_string(), "{lines:?}");
    for (target, status) in [("/kv/pages?limit=0", 400), ("/kv/pages/_iterate", 409), ("/kv/pages/_watch", 409)] {
        assert_eq!(process.get(target).status, status, "{target}");
    }
    process.stop();
}

#[test]
fn keys_that_expire_or_are_evicted_are_keyspace_events_of_caches_too() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    make(&process, "db0", &json!({"kind": "cache", "partitions": 1, "max_bytes": 8 * MIB}).to_string());
    make(&process, "db1", &json!({"partitions": 1}).to_string());
    let (mut client, mut listener) = (connect(&process), connect(&process));
    assert_eq!(redis(&mut client, &["CONFIG", "SET", "notify-keyspace-events", "Exe"]), "+OK");
    let channels = ["__keyevent@0__:expired", "__keyevent@0__:evicted", "__keyevent@1__:expired"];
    let first = listener.ask(&command(&["SUBSCRIBE", channels[0], channels[1], channels[2]])).unwrap();
    assert!(first.shown().contains(channels[0]), "{}", first.shown());
    for _ in 1..channels.len() {
        listener.read().unwrap();
    }
    let mut event = || -> (String, String) {
        let reply: Reply = listener.read().unwrap();
        let shown = reply.shown();
        let channel = channels.iter().find(|channel| shown.contains(*channel)).unwrap_or_else(|| panic!("{shown}"));
        let kind = channel.trim_start_matches("__key").to_owned();
        (kind, shown)
    };
    assert_eq!(redis(&mut client, &["SET", "short", "x", "PX", "5"]), "+OK");
    let (kind, shown) = event();
    assert!(kind == "event@0__:expired" && shown.contains("short"), "{shown}");
    assert_eq!(redis(&mut client, &["GET", "short"]), "$-1");
    assert_eq!(redis(&mut client, &["SELECT", "1"]), "+OK");
    assert_eq!(redis(&mut client, &["SET", "durable", "x", "PX", "5"]), "+OK");
    let (kind, shown) = event();
    assert!(kind == "event@1__:expired" && shown.contains("durable"), "{shown}");

    assert_eq!(redis(&mut client, &["SELECT", "0"]), "+OK");
    let value = "x".repeat(100_000);
    for number in 0..60 {
        assert_eq!(redis(&mut client, &["SET", &format!("key-{number}"), &value]), "+OK");
    }
    assert_eq!(redis(&mut client, &["CONFIG", "SET", "maxmemory", "2mb"]), "+OK");
    let left: u64 = redis(&mut client, &["DBSIZE"]).trim_start_matches(':').parse().unwrap();
    assert!(left < 60, "{left} keys are left");
    for _ in left..60 {
        let (kind, shown) = event();
        assert!(kind == "event@0__:evicted" && shown.contains("key-"), "{shown}");
    }
    let evicted = redis(&mut client, &["INFO", "stats"]);
    assert!(evicted.contains(&format!("evicted_keys:{}", 60 - left)), "{evicted}");
    process.stop();
}
