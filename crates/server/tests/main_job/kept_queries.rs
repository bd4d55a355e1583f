//! Live queries with `keep: true`: `kill -9` and an orderly end change nothing about what they come to.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;

use millstream_load::websocket;
use millstream_testkit::{Live, Process, ask, eventually, open};
use serde_json::{Value, json};

/// All records of a topic of one partition.
fn records(process: &Process, topic: &str) -> Vec<Value> {
    let (mut from, mut all) = ("earliest".to_owned(), Vec::new());
    loop {
        let mut page = process.get_json(&format!("/api/streams/{topic}?from={from}&limit=1000"));
        let records = page["records"].as_array_mut().unwrap();
        if records.is_empty() {
            return all;
        }
        all.append(records);
        from = page["next"].as_str().unwrap().to_owned();
    }
}

/// The results of a query in a topic by their numbers, each once: those that came again are as before. And how many came.
pub(crate) fn results_of(records: &[Value], id: &str) -> (BTreeMap<u64, (String, Value)>, usize) {
    let (mut once, mut came) = (BTreeMap::new(), 0);
    for record in records.iter().filter(|record| record["key"] == id) {
        let header = |name: &str| record["headers"][name].as_str().unwrap_or_default().to_owned();
        let result = (header("kind"), record["value"].clone());
        let known = once.entry(header("sequence").parse().unwrap()).or_insert_with(|| result.clone());
        assert_eq!(*known, result);
        came += 1;
    }
    assert!(once.keys().copied().eq(1..=once.len() as u64), "{:?}", once.keys());
    (once, came)
}

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

/// Appends records of numbers, each answered before this returns.
fn append(process: &Process, numbers: std::ops::Range<u64>) {
    let record = |n: u64| json!({"key": format!("k{}", n % 11), "value": {"id": format!("g{}", n % 5), "n": n}});
    let records: Vec<Value> = numbers.map(record).collect();
    let answer =
        ask(process.applications, "POST", "/api/streams/n/records", &JSON, Value::from(records).to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Appends records, kills the server four times while the last of them are on their way into the results and ends it in
/// order the fifth time. It as it runs then, and how many records there are.
fn appended_among_kills(mut process: Process, start: impl Fn() -> Process) -> (Process, u64) {
    let mut sent = 0;
    for round in 0..5 {
        for _ in 0..8 {
            append(&process, sent..sent + 50);
            sent += 50;
        }
        if round < 4 {
            process.kill();
        } else {
            process.stop();
        }
        process = start();
    }
    append(&process, sent..sent + 50);
    (process, sent + 50)
}

fn seen(process: &Process, id: &str, records: u64) {
    eventually("the records have been seen", || {
        process.get_json(&format!("/api/queries/{id}"))["records_seen"] == records
    });
}

#[test]
#[ignore = "takes long"]
fn results_of_kept_queries_survive_kills_and_duplicates_carry_the_same_number() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Process::start_on(dir.path(), &["--set", "query.keep_every_ms=30"]);
    let process = start();
    ask(process.applications, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 4, "level": "synced"}"#);
    ask(process.applications, "PUT", "/api/streams/answers", &JSON, br#"{"partitions": 1, "level": "synced"}"#);
    let asked =
        ["SELECT n FROM \"n\" WHERE n % 2 = 0", "SELECT SUM(n) AS s FROM \"n\" WINDOWING TUMBLING(100, RECORD)"];
    let ids = asked.map(|query| {
        let asked = json!({"query": query, "deliver": {"topic": "answers"}, "keep": true}).to_string();
        let told = ask(process.applications, "POST", "/api/queries", &JSON, asked.as_bytes());
        assert_eq!(told.status, 201, "{}", told.text());
        told.json()["id"].as_str().unwrap().to_owned()
    });
    let (process, sent) = appended_among_kills(process, start);
    ids.iter().for_each(|id| seen(&process, id, sent));
    let refused = ask(process.applications, "GET", &format!("/api/queries/{}/results", ids[0]), &[], b"");
    assert_eq!(refused.status, 409, "{}", refused.text());
    for id in &ids {
        assert_eq!(ask(process.applications, "DELETE", &format!("/api/queries/{id}"), &[], b"").status, 204);
        eventually("its end has arrived", || process.get(&format!("/api/queries/{id}")).status == 404);
    }
    let records = records(&process, "answers");
    let (rows, came) = results_of(&records, &ids[0]);
    println!("{} results of rows came {came} times", rows.len());
    let mut numbers: Vec<u64> = rows.values().filter_map(|(_, value)| value["n"].as_u64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..sent).step_by(2).collect::<Vec<_>>(), "each row once, none missing");
    assert_eq!((&*rows[&1].0, &*rows.last_key_value().unwrap().1.0), ("opening", "end"));
    let end = &rows.last_key_value().unwrap().1.1;
    assert_eq!((&end["cause"], &end["matched"]), (&json!("killed"), &json!(sent / 2)));

    let (windows, _) = results_of(&records, &ids[1]);
    let of_kind =
        |of: &str| windows.values().filter(|(kind, _)| kind == of).map(|(_, value)| value).collect::<Vec<_>>();
    let sums: u64 = of_kind("row").iter().map(|value| value["s"].as_u64().unwrap()).sum();
    assert_eq!(sums, (0..sent).sum::<u64>(), "each record is in one window");
    let told: Vec<(u64, u64)> = of_kind("window")
        .iter()
        .map(|value| (value["number"].as_u64().unwrap(), value["records"].as_u64().unwrap()))
        .collect();
    let full = sent / 100;
    let expected = (1..=full).map(|number| (number, 100)).chain([(full + 1, sent % 100)]).collect::<Vec<_>>();
    assert_eq!(told, expected);
    process.stop();
}

/// Events with their ids, as a client sees them.
struct Events(BufReader<TcpStream>);

impl Events {
    /// Reads the results of a query from behind an event on; the first event, too.
    fn after(process: &Process, id: &str, event: &str) -> (Self, (String, String, Value)) {
        let path = format!("/api/queries/{id}/results");
        let (status, _, reader) = open(process.applications, "GET", &path, &[("Last-Event-ID", event)], b"");
        assert_eq!(status, 200);
        let mut events = Self(reader);
        let first = events.next().unwrap();
        (events, first)
    }

    /// The id (empty if there is none), name and data of the next one.
    fn next(&mut self) -> Option<(String, String, Value)> {
        let (mut id, mut name) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", given)) => id = given.to_owned(),
                Some(("event", given)) => name = given.to_owned(),
                Some(("data", data)) => return Some((id, name, serde_json::from_str(data).unwrap())),
                _ => {}
            }
        }
    }

    /// The id and the number of the row that comes next.
    fn row(&mut self) -> (String, u64) {
        let (id, name, data) = self.next().unwrap();
        assert_eq!((&*name, data["records"].as_array().map(Vec::len)), ("rows", Some(1)), "{data}");
        (id, data["records"][0]["n"].as_u64().unwrap())
    }
}

#[test]
fn events_resume_after_a_clients_last_one_when_its_connection_breaks() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = Process::start(dir.path());
    ask(process.applications, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 1, "level": "synced"}"#);
    let request = |keep: bool| json!({"query": "SELECT n FROM \"n\"", "deliver": "sse", "keep": keep}).to_string();
    let asked = |keep: bool| {
        let (status, _, reader) = open(process.applications, "POST", "/api/queries", &JSON, request(keep).as_bytes());
        assert_eq!(status, 200);
        Events(reader)
    };
    let (mut fleeting, mut kept) = (asked(false), asked(true));
    let (first, name, opening) = kept.next().unwrap();
    assert_eq!((&*name, opening.get("gap")), ("meta", None));
    let id = opening["id"].as_str().unwrap().to_owned();
    let mut ids = vec![first];
    for n in 0..4 {
        append(&process, n..n + 1);
        let (id, given) = kept.row();
        assert_eq!(given, n);
        ids.push(id);
    }
    // A query that is not kept ends with its client: its events promise nothing.
    assert_eq!(fleeting.next().unwrap().0, "");
    assert_eq!(fleeting.row(), (String::new(), 0));
    drop(fleeting);

    let (mut again, (opened, name, _)) = Events::after(&process, &id, &ids[2]);
    assert_eq!((&opened, &*name), (&ids[2], "meta"));
    assert_eq!([again.row(), again.row()], [(ids[3].clone(), 2), (ids[4].clone(), 3)]);
    assert!(kept.next().is_none(), "somebody else reads in its place");
    let results = format!("/api/queries/{id}/results");
    for (event, says) in [("x", "as the id of its event was"), ("99-1", "no result of query")] {
        let refused = ask(process.applications, "GET", &results, &[("Last-Event-ID", event)], b"");
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains(says), "{}", refused.text());
    }
    assert_eq!(ask(process.applications, "GET", &results, &[], b"").status, 409, "it says not that it is the same");

    process.stop();
    drop(again);
    process = Process::start(dir.path());
    seen(&process, &id, 4);
    let (mut again, _) = Events::after(&process, &id, &ids[3]);
    assert_eq!(again.row(), (ids[4].clone(), 3), "an orderly end loses nothing that was on its way");
    append(&process, 4..5);
    let (fifth, n) = again.row();
    assert_eq!(n, 4);

    process.kill();
    process = Process::start(dir.path());
    seen(&process, &id, 5);
    let (mut again, (_, _, opening)) = Events::after(&process, &id, &fifth);
    assert_eq!(opening.get("gap"), None);
    append(&process, 5..6);
    let mut last = again.row();
    if last.1 == 4 {
        // It was not written down before the crash: at least once.
        assert_ne!(last.0, fifth);
        last = again.row();
    }
    assert_eq!(last.1, 5);

    assert_eq!(ask(process.applications, "DELETE", &format!("/api/queries/{id}"), &[], b"").status, 204);
    let (end, name, _) = again.next().unwrap();
    assert_eq!(name, "end");
    assert_eq!(again.next(), None);
    let (_, (_, _, opening)) = Events::after(&process, &id, &last.0);
    assert_eq!(opening["id"], *id, "the end can be read again");
    let done = ask(process.applications, "GET", &results, &[("Last-Event-ID", &end)], b"");
    assert_eq!(done.status, 204, "{}", done.text());
    assert_eq!(ask(process.applications, "GET", &results, &[("Last-Event-ID", &end)], b"").status, 404);
    process.stop();
}

#[test]
#[ignore = "takes long"]
fn a_kept_query_counts_each_record_once_across_kills_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Process::start_on(dir.path(), &["--set", "query.kept_end_again_ms=100"]);
    let process = start();
    ask(process.applications, "PUT", "/api/streams/n", &JSON, br#"{"partitions": 4, "level": "synced"}"#);
    let grouped = "SELECT id, COUNT(*) AS c, SUM(n) AS s, COUNT(DISTINCT n) AS d FROM \"n\" GROUP BY id ORDER BY id";
    let (client, sums) = Live::ask_for(&process, &json!({"query": grouped, "deliver": "sse", "keep": true}));
    let windows = "SELECT COUNT(*) AS c FROM \"n\" WINDOWING TUMBLING(500, RECORD)";
    let (mut sender, mut receiver) = websocket::open(process.applications, "/api/queries/ws").unwrap();
    sender.send([&*json!({"tag": "w", "query": windows, "keep": true}).to_string()]).unwrap();
    let counts = receiver.receive().unwrap().unwrap()["opening"]["id"].as_str().unwrap().to_owned();
    drop(client);
    sender.close();

    let (process, sent) = appended_among_kills(process, start);
    seen(&process, &sums, sent);
    seen(&process, &counts, sent);

    assert_eq!(ask(process.applications, "DELETE", &format!("/api/queries/{sums}"), &[], b"").status, 204);
    let (rows, end) = Live::attach(&process, &sums).finish();
    let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for n in 0..sent {
        let (count, sum) = expected.entry(n % 5).or_default();
        (*count, *sum) = (*count + 1, *sum + n);
    }
    let expected: Vec<Value> =
        expected.iter().map(|(id, (c, s))| json!({"id": format!("g{id}"), "c": c, "s": s, "d": c})).collect();
    assert_eq!(rows, expected);
    assert_eq!((&end["cause"], &end["matched"], &end["records_seen"]), (&"killed".into(), &sent.into(), &sent.into()));
    eventually("it is forgotten", || process.get(&format!("/api/queries/{sums}")).status == 404);

    // The windows that nobody has read are there, in their order; the WebSocket reads them on.
    let (mut sender, mut receiver) = websocket::open(process.applications, "/api/queries/ws").unwrap();
    sender.send([&*json!({"tag": "w", "attach": counts}).to_string(), r#"{"tag": "x", "attach": "?"}"#]).unwrap();
    assert_eq!(receiver.receive().unwrap().unwrap()["opening"]["id"], *counts);
    let (mut numbers, mut is_refused) = (Vec::new(), false);
    while numbers.len() < 4 || !is_refused {
        let told = receiver.receive().unwrap().unwrap();
        if told["tag"] == "x" {
            is_refused = true;
            assert!(told["problem"]["detail"].as_str().unwrap().contains("'?' is no query's id"), "{told}");
            continue;
        }
        assert_eq!(told["window"]["records"], json!([{"c": 500}]));
        numbers.push(told["window"]["meta"]["window"]["number"].as_u64().unwrap());
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
    sender.send([r#"{"kill": "w"}"#]).unwrap();
    assert_eq!(receiver.receive().unwrap().unwrap()["window"]["records"], json!([{"c": 50}]));
    assert_eq!(receiver.receive().unwrap().unwrap()["end"]["matched"], sent);
    sender.close();
    process.stop();
}
