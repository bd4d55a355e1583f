//! Many keys of a bucket over HTTP: listings, bulk requests, watches and iterations, against a plain map, beside a writer and
//! across a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_testkit::{Answer, Events, Process, Server, ask, eventually, open};
use serde_json::{Value, json};

const NDJSON: [(&str, &str); 1] = [("Content-Type", "application/x-ndjson")];
const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

fn make(server: &impl Server, bucket: &str, settings: &Value) {
    let body = settings.to_string();
    let answer = ask(server.applications(), "PUT", &format!("/buckets/{bucket}"), &JSON, body.as_bytes());
    assert_eq!(answer.status, 201, "{}", answer.text());
}

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn bulk(server: &impl Server, bucket: &str, items: &[Value]) -> Vec<Value> {
    let body: String = items.iter().map(|item| format!("{item}\n")).collect();
    lines(&ask(server.applications(), "POST", &format!("/kv/{bucket}/_bulk"), &NDJSON, body.as_bytes()))
}

fn statuses(answers: &[Value]) -> Vec<u64> {
    answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect()
}

/// All lines of a listing or iteration, page after page, and the number of pages.
fn pages(server: &impl Server, path: &str) -> (Vec<Value>, usize) {
    let (mut all, mut target, mut count) = (Vec::new(), path.to_owned(), 0);
    loop {
        let mut page = lines(&server.get(&target));
        count += 1;
        let last = page.pop().unwrap();
        assert!(last.as_object().unwrap().contains_key("next"), "{last}");
        all.extend(page);
        match last["next"].as_str() {
            Some(next) => target = next.to_owned(),
            None => return (all, count),
        }
    }
}

/// The bytes of a member that is text or base64.
fn bytes(line: &Value, name: &str) -> Option<Vec<u8>> {
    let text = line[name].as_str().map(|text| text.as_bytes().to_vec());
    text.or_else(|| Some(STANDARD.decode(line[format!("{name}_base64")].as_str()?).unwrap()))
}

fn percent(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn listings_hold_what_a_plain_map_holds() {
    let server = crate::tenant();
    make(&server, "things", &json!({"partitions": 3}));
    let mut numbers = Numbers(7);
    let mut keys: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut items = Vec::new();
    for number in 0..3_000 {
        let length = 1 + numbers.below(5);
        let key: Vec<u8> = (0..length).map(|_| [b'a', b'b', b'/', b' ', 0xff, 1][numbers.below(6)]).collect();
        let (key_base64, value) = (STANDARD.encode(&key), format!("value {number}"));
        match numbers.below(4) {
            0 => {
                items.push(json!({"op": "delete", "key_base64": key_base64}));
                keys.remove(&key);
            }
            1 => {
                items.push(json!({"op": "put", "key_base64": key_base64, "value": value, "expires": 1}));
                keys.remove(&key);
            }
            _ => {
                items.push(json!({"op": "put", "key_base64": key_base64, "value": value}));
                keys.insert(key, value.into_bytes());
            }
        }
    }
    for items in items.chunks(1_000) {
        let answered = bulk(&server, "things", items);
        assert_eq!(answered.len(), items.len());
        assert!(statuses(&answered).iter().all(|status| matches!(status, 200 | 201 | 204 | 404)));
    }
    assert!(keys.len() > 500);
    for (prefix, start, delimiter, limit) in [
        (&b""[..], &b""[..], &b""[..], 100_000),
        (b"", b"", b"", 37),
        (b"a", b"", b"", 10),
        (b"a/", b"a/b", b"", 7),
        (b"", b"", b"/", 5),
        (b"a", b"", b"/", 1),
        (b"\xff", b"", b"/", 3),
        (b"a ", b"", b"b", 4),
        (b"nothing", b"", b"", 10),
        (b"", b"\xff\xff\xff\xff\xff\xff", b"", 10),
    ] {
        let mut expected: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for (key, value) in keys.range(start.to_vec()..).filter(|(key, _)| key.starts_with(prefix)) {
            let rest = &key[prefix.len()..];
            let at = rest.windows(delimiter.len().max(1)).position(|window| window == delimiter);
            match at.map(|at| key[..prefix.len() + at + delimiter.len()].to_vec()) {
                Some(common) if expected.last().is_some_and(|(last, _)| *last == common) => {}
                Some(common) => expected.push((common, None)),
                None => expected.push((key.clone(), Some(value.clone()))),
            }
        }
        let query = [("prefix", prefix), ("start", start), ("delimiter", delimiter)];
        let query: String = query.iter().map(|(name, value)| format!("{name}={}&", percent(value))).collect();
        let (found, count) = pages(&server, &format!("/kv/things?{query}limit={limit}&values=true"));
        let found: Vec<_> = found
            .iter()
            .map(|line| (bytes(line, "key").or_else(|| bytes(line, "prefix")).unwrap(), bytes(line, "value")))
            .collect();
        assert_eq!(count, expected.len().div_ceil(limit).max(1), "{query}");
        assert!(found == expected, "{query}: {found:?}, {expected:?}");
    }
}

#[test]
fn a_line_tells_what_is_stored_beside_the_value() {
    let server = crate::tenant();
    make(&server, "things", &json!({}));
    let headers = [("Content-Type", "text/plain"), ("X-Tags", "one, two"), ("X-Meta-Owner", "ann")];
    let put = ask(server.applications(), "PUT", "/kv/things/a/b?ttl=1h", &headers, b"x");
    assert_eq!(put.status, 201, "{}", put.text());
    let large = vec![b'x'; 65 << 10];
    assert_eq!(ask(server.applications(), "PUT", "/kv/things/large", &[], &large).status, 201);
    let (listed, _) = pages(&server, "/kv/things");
    let [line, of_large] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&line["key"], &line["length"], &line["version"]), (&json!("a/b"), &json!(1), &put.json()["version"]));
    assert_eq!((&line["content_type"], &line["tags"]), (&json!("text/plain"), &json!(["one", "two"])));
    assert!(line["written"].as_str().unwrap() < line["expires"].as_str().unwrap(), "{line}");
    assert_eq!(line.get("value"), None);
    assert_eq!((&of_large["length"], of_large.get("expires")), (&json!(65 << 10), None));
    let (listed, _) = pages(&server, "/kv/things?values=true");
    assert_eq!((&listed[0]["value"], &listed[0]["metadata"]), (&json!("x"), &json!({"owner": "ann"})));
    assert_eq!((listed[1].get("value"), &listed[1]["value_omitted"]), (None, &json!(true)));
    let (iterated, _) = pages(&server, "/kv/things/_iterate?values=true");
    let iterated = iterated.iter().find(|line| line["key"] == "a/b").unwrap();
    assert_eq!((&iterated["value"], &iterated["version"]), (&json!("x"), &line["version"]));
}

#[test]
fn own_writes_and_deletes_are_seen_beside_a_writer() {
    let server = crate::tenant();
    make(&server, "busy", &json!({"ack": "written"}));
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                let item = |number| json!({"op": "put", "key": format!("other/{number}"), "value": "x"});
                let answered = bulk(&server, "busy", &(written..written + 50).map(item).collect::<Vec<_>>());
                assert!(statuses(&answered).iter().all(|status| *status == 201));
                written += 50;
            }
            written
        });
        let listed = || -> BTreeSet<String> {
            let (listed, _) = pages(&server, "/kv/busy?prefix=own/&limit=7");
            listed.iter().map(|line| line["key"].as_str().unwrap().to_owned()).collect()
        };
        let mut own = BTreeSet::new();
        for number in 0..60 {
            let key = format!("own/{number:02}");
            let status = ask(server.applications(), "PUT", &format!("/kv/busy/{key}"), &[], b"v").status;
            assert_eq!(status, 201);
            own.insert(key);
            assert_eq!(listed(), own);
            if number % 3 == 2 {
                let gone = format!("own/{:02}", number - 1);
                assert_eq!(ask(server.applications(), "DELETE", &format!("/kv/busy/{gone}"), &[], b"").status, 204);
                own.remove(&gone);
                assert_eq!(listed(), own);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert_eq!(pages(&server, "/kv/busy?prefix=other/").0.len(), written, "everything written is listed");
}

#[test]
fn each_line_of_a_bulk_request_has_an_outcome_of_its_own() {
    let server = crate::tenant();
    make(&server, "things", &json!({"partitions": 2, "max_keys": 3}));
    let put = |key: &str, value: &str| json!({"op": "put", "key": key, "value": value});
    let answered = bulk(&server, "things", &[put("a", "1"), put("b", "1"), json!({"op": "get", "key": "b"})]);
    assert_eq!(statuses(&answered), [201, 201, 200]);
    assert_eq!((&answered[2]["value"], &answered[2]["version"]), (&json!("1"), &answered[1]["version"]));
    let version = answered[0]["version"].as_u64().unwrap();
    let body = format!(
        "{}\nnonsense\n\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}",
        json!({"op": "put", "key": "a", "value": "2", "version": version}),
        json!({"op": "put", "key": "a", "value": "3", "version": version}),
        json!({"op": "put", "key": "b", "value": "3", "create": true}),
        json!({"op": "get", "key": "a"}),
        json!({"op": "delete", "key": "never"}),
        json!({"op": "put", "key_base64": "AGE=", "value": "the store's own"}),
        json!({"op": "put", "key": "k".repeat(1_025), "value": ""}),
        json!({"op": "put", "key": "b", "value": "gone at once", "expires": 1}),
        json!({"op": "get", "key": "b"}),
        json!({"op": "delete", "key": "a"}),
    );
    let answered = lines(&ask(server.applications(), "POST", "/kv/things/_bulk", &NDJSON, body.as_bytes()));
    let told: Vec<u64> = answered.iter().map(|answer| answer["line"].as_u64().unwrap()).collect();
    assert_eq!(told, [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(statuses(&answered), [200, 400, 412, 412, 200, 404, 400, 400, 200, 404, 204], "{answered:?}");
    assert!(answered[1]["error"].as_str().unwrap().contains("'op' (get, put or delete)"), "{}", answered[1]);
    assert_eq!(answered[4]["value"], "2");
    // The bucket holds no key now and may hold three.
    let many: Vec<Value> = (0..6).map(|number| put(&format!("n{number}"), "x")).collect();
    let answered = bulk(&server, "things", &many);
    let stored = statuses(&answered).iter().filter(|status| **status == 201).count();
    assert!(stored >= 1 && statuses(&answered).contains(&507), "{answered:?}");
    let refused = answered.iter().find(|answer| answer["status"] == 507).unwrap();
    assert!(refused["error"].as_str().unwrap().contains("max_keys"), "{refused}");
    assert_eq!(pages(&server, "/kv/things").0.len(), stored);
    // The reads and writes of one key take effect in the order of their lines.
    make(&server, "counted", &json!({}));
    let rounds: Vec<Value> =
        (0..1_500).flat_map(|number| [put("k", &number.to_string()), json!({"op": "get", "key": "k"})]).collect();
    let answered = bulk(&server, "counted", &rounds);
    for (number, two) in answered.chunks(2).enumerate() {
        assert_eq!(two[1]["value"], json!(number.to_string()), "{two:?}");
    }
}

#[test]
fn the_values_of_one_bulk_request_are_bounded() {
    let server = crate::tenant();
    make(&server, "things", &json!({"partitions": 1}));
    let value = vec![b'x'; 500 << 10];
    for number in 0..20 {
        assert_eq!(ask(server.applications(), "PUT", &format!("/kv/things/{number}"), &[], &value).status, 201);
    }
    let items: Vec<Value> = (0..20).map(|number| json!({"op": "get", "key": number.to_string()})).collect();
    let answered = bulk(&server, "things", &items);
    let expected: Vec<u64> = [[200; 16].as_slice(), &[413; 4]].concat();
    assert_eq!(statuses(&answered), expected);
    assert!(answered[..16].iter().all(|answer| answer["value"].as_str().unwrap().len() == 500 << 10));
}

/// An event as a test compares it: kind, key, version, value.
type Told = (String, String, u64, Option<String>);

fn told(event: &millstream_testkit::Event) -> Told {
    let data = &event.data;
    let text = |name: &str| data[name].as_str().map(str::to_owned);
    (event.name.clone(), text("key").unwrap(), data["version"].as_u64().unwrap(), text("value"))
}

#[test]
fn a_watch_goes_on_after_a_restart_without_loss_or_repetition() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    make(&process, "things", &json!({"partitions": 3}));
    // What each key should be told to have become, in order.
    let mut expected: BTreeMap<String, Vec<Told>> = BTreeMap::new();
    let mut change = |process: &Process, round: usize| {
        let items: Vec<Value> = (0..40)
            .flat_map(|number| {
                let key = format!("a/{number}");
                let other = json!({"op": "put", "key": format!("other/{number}"), "value": "x"});
                let item = match (round + number) % 4 {
                    3 => json!({"op": "delete", "key": key}),
                    _ => json!({"op": "put", "key": key, "value": format!("{round}")}),
                };
                [item, other]
            })
            .collect();
        for (item, answer) in items.iter().zip(bulk(process, "things", &items)) {
            let (key, value) = (item["key"].as_str().unwrap(), item["value"].as_str());
            if key.starts_with("a/") && answer["status"] != 404 {
                let kind = if item["op"] == "put" { "put" } else { "delete" };
                let version = answer["version"].as_u64().unwrap();
                let told = (kind.to_owned(), key.to_owned(), version, value.map(str::to_owned));
                expected.entry(key.to_owned()).or_default().push(told);
            }
        }
    };
    change(&process, 0);
    let path = "/kv/things/_watch?prefix=a/&from=earliest&values=true";
    let mut watch = Events::get(&process, path, &[]);
    change(&process, 1);
    let mut found: BTreeMap<String, Vec<Told>> = BTreeMap::new();
    let mut id = String::new();
    let mut take = |event: millstream_testkit::Event| {
        let told = told(&event);
        found.entry(told.1.clone()).or_default().push(told);
        event.id
    };
    for _ in 0..30 {
        id = take(watch.next().unwrap());
    }
    drop(watch);
    change(&process, 2);
    process.kill();
    let process = Process::start(dir.path());
    let mut watch = Events::get(&process, path, &[("Last-Event-ID", &id)]);
    change(&process, 3);
    let total: usize = expected.values().map(Vec::len).sum();
    for _ in 30..total {
        take(watch.next().unwrap());
    }
    assert_eq!(found, expected);
    // Nothing more was told: the next event is the next write.
    bulk(&process, "things", &[json!({"op": "put", "key": "a/last", "value": "v"})]);
    assert_eq!(watch.next().unwrap().data["key"], "a/last");
    process.stop();
}

#[test]
fn a_watch_tells_what_comes_and_none_of_it_before() {
    let server = crate::tenant();
    make(&server, "things", &json!({}));
    bulk(&server, "things", &[json!({"op": "put", "key": "before", "value": "x"})]);
    let mut watch = Events::get(&server, "/kv/things/_watch", &[]);
    let put = ask(server.applications(), "PUT", "/kv/things/k?ttl=1h", &[("X-Tags", "t")], b"value");
    let event = watch.next().unwrap();
    assert_eq!(told(&event), ("put".to_owned(), "k".to_owned(), put.json()["version"].as_u64().unwrap(), None));
    assert_eq!((&event.data["tags"], &event.data["length"]), (&json!(["t"]), &json!(5)));
    assert!(event.data["expires"].is_string());
    assert_eq!(ask(server.applications(), "DELETE", "/kv/things/k", &[], b"").status, 204);
    let event = watch.next().unwrap();
    assert_eq!((event.name.as_str(), &event.data["key"]), ("delete", &json!("k")));
}

#[test]
fn watches_are_bounded_and_end_with_their_bucket() {
    let server = crate::tenant();
    make(&server, "things", &json!({"partitions": 1}));
    let mut watches: Vec<Events> = (0..512).map(|_| Events::get(&server, "/kv/things/_watch", &[])).collect();
    let refused = server.get("/kv/things/_watch");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("at most 512"), "{}", refused.text());
    watches.pop();
    eventually("a watch to be free", || {
        let (status, _, _) = open(server.applications(), "GET", "/kv/things/_watch", &[], b"");
        status == 200
    });
    assert_eq!(ask(server.applications(), "DELETE", "/buckets/things", &[], b"").status, 204);
    for watch in &mut watches {
        let last = watch.next().unwrap();
        assert_eq!(last.name, "failed", "{}", last.data);
        assert!(last.data["cause"].as_str().unwrap().contains("does not exist"), "{}", last.data);
        assert!(watch.next().is_none());
    }
}

#[test]
fn an_iteration_gives_the_live_keys_by_the_time_of_their_write() {
    let server = crate::tenant();
    make(&server, "things", &json!({"partitions": 2}));
    let put = |key: String| json!({"op": "put", "key": key, "value": "x"});
    bulk(&server, "things", &(0..50).map(|number| put(format!("k{number:02}"))).collect::<Vec<_>>());
    bulk(
        &server,
        "things",
        &(0..10).map(|number| json!({"op": "delete", "key": format!("k{number:02}")})).collect::<Vec<_>>(),
    );
    let (first, _) = pages(&server, "/kv/things/_iterate");
    let times: BTreeSet<&str> = first.iter().map(|line| line["written"].as_str().unwrap()).collect();
    let last_before = (*times.last().unwrap()).to_owned();
    // The clock must move on, or both rounds have the same time.
    eventually("a later millisecond", || {
        bulk(&server, "things", &[put("k10".to_owned())]);
        let (now, _) = pages(&server, "/kv/things?prefix=k10");
        now[0]["written"].as_str().unwrap() > last_before.as_str()
    });
    bulk(&server, "things", &(11..30).map(|number| put(format!("k{number:02}"))).collect::<Vec<_>>());
    let (all, count) = pages(&server, "/kv/things/_iterate?limit=7");
    assert_eq!(count, 6, "40 keys, 7 a page");
    let keys: BTreeSet<&str> = all.iter().map(|line| line["key"].as_str().unwrap()).collect();
    assert_eq!((keys.len(), all.len()), (40, 40));
    let places: Vec<(u64, u64)> =
        all.iter().map(|line| (line["partition"].as_u64().unwrap(), line["version"].as_u64().unwrap())).collect();
    assert!(places.is_sorted(), "{places:?}");
    let later = all.iter().filter(|line| line["written"].as_str().unwrap() > last_before.as_str()).count();
    let (found, _) = pages(&server, &format!("/kv/things/_iterate?ts_from={last_before}&limit=3"));
    let exact = found.iter().filter(|line| line["written"] == last_before.as_str()).count();
    assert_eq!((later, found.len()), (20, 20 + exact));
    let (found, _) = pages(&server, &format!("/kv/things/_iterate?ts_to={last_before}"));
    assert_eq!(found.len() + exact, 20);
}

#[test]
fn bad_input_is_refused_with_value_rule_and_remedy() {
    let server = crate::tenant();
    make(&server, "things", &json!({"partitions": 1}));
    for (method, path, status, part) in [
        ("GET", "/kv/none", 404, "millstream kv make none"),
        ("GET", "/kv/things?limit=0", 400, "a number from 1 on"),
        ("GET", "/kv/things?prefx=a", 400, "prefix, start, limit, delimiter and values"),
        ("GET", "/kv/none/_watch", 404, "millstream kv make none"),
        ("GET", "/kv/things/_watch?from=first", 400, "latest, earliest"),
        ("GET", "/kv/things/_watch?from=7:1", 400, "no such partition"),
        ("GET", "/kv/things/_watch?from=0:9000000000000000", 400, "ends before this offset"),
        ("GET", "/kv/things/_iterate?ts_from=x", 400, "ISO 8601"),
        ("GET", "/kv/things/_iterate?from=7:1", 400, "no such partition"),
        ("POST", "/kv/none/_bulk", 404, "millstream kv make none"),
        ("POST", "/kv/things/_bulk?ack=soon", 400, "memory, written, synced or all"),
        ("GET", "/kv/things/_other", 404, "%5Fother"),
    ] {
        let answer = ask(server.applications(), method, path, &NDJSON, b"");
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.text().contains(part), "{path}: {}", answer.text());
    }
    let watch = Events::get(&server, "/kv/things/_watch", &[]);
    let put = ask(server.applications(), "PUT", "/kv/things/%5Fwatch", &[], b"a key of that name");
    assert_eq!(put.status, 201, "{}", put.text());
    assert_eq!(pages(&server, "/kv/things").0[0]["key"], "_watch");
    drop(watch);
}
