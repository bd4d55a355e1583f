//! Records that are joined with the latest value by key of a table.

use std::collections::BTreeMap;

use millstream_flow::{Error, FlowConfig, Functions, StopMode};
use millstream_log::{AckLevel, reply};
use millstream_testkit::eventually;
use millstream_types::{Record, TopicName, TopicPartition, partition_of_key};
use serde_json::{Value, json};

use crate::node::Node;

/// A job that adds the rate of its currency to each order.
fn priced(config: &Value) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "priced", "restart": {"policy": "never"},
        "sources": {"orders": {"type": "stream", "config": {"topic": "orders"}}},
        "transforms": {"priced": {"type": "lookup", "inputs": ["orders"], "config": config}},
        "sinks": {"out": {"type": "stream", "inputs": ["priced"], "config": {"topic": "priced"}}},
    })
}

fn by_currency() -> Value {
    json!({"topic": "rates", "key": "currency", "as": "rate"})
}

fn open(dir: &tempfile::TempDir) -> Node {
    Node::open(dir.path())
}

fn create_topics(node: &Node) {
    node.create("orders", 2);
    node.create("rates", 3);
    node.create("priced", 2);
}

fn order(number: u64, currency: &str) -> (String, String) {
    (format!("o{number}"), json!({"n": number, "currency": currency}).to_string())
}

fn rate(currency: &str, value: &str) -> (String, String) {
    (currency.to_owned(), value.to_owned())
}

/// Appends records to the partitions of their keys, those of a partition at once; `None` for a record without a value.
fn append_all(node: &Node, topic: &str, records: &[(String, Option<String>)]) {
    let name = TopicName::user(topic, &node.tenant).unwrap();
    let partitions = node.log.topic(&name).unwrap().config.partitions;
    for number in 0..partitions {
        let is_there =
            |record: &&(String, Option<String>)| partition_of_key(record.0.as_bytes(), partitions).0 == number;
        let made: Vec<Record<'_>> = records
            .iter()
            .filter(is_there)
            .map(|(key, value)| Record {
                key: Some(key.as_bytes()),
                value: value.as_deref().map(str::as_bytes),
                ..Record::default()
            })
            .collect();
        let partition = node.log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
        for part in made.chunks(1_000) {
            let (done, answer) = reply();
            partition.append(part, AckLevel::Written, done).unwrap();
            answer.wait().unwrap();
        }
    }
}

fn delete(node: &Node, topic: &str, key: &str) {
    append_all(node, topic, &[(key.to_owned(), None)]);
}

/// The rates in the results, by the numbers of their orders.
fn rates(node: &Node) -> BTreeMap<u64, Value> {
    node.read("priced").into_iter().map(|(_, record)| (record["n"].as_u64().unwrap(), record["rate"].clone())).collect()
}

/// Sends orders one after the other until one of them has this rate.
fn eventually_rated(node: &Node, next: &mut u64, currency: &str, expected: &Value) {
    eventually(&format!("{currency} has the rate {expected}"), || {
        let number = *next;
        *next += 1;
        node.append("orders", &[order(number, currency)]);
        eventually("the order is there", || rates(node).contains_key(&number));
        rates(node)[&number] == *expected
    });
}

#[test]
fn a_record_gets_the_latest_value_of_its_key_and_null_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    let table = [
        rate("EUR", "1"),
        rate("USD", r#" {"value": 1.1} "#),
        rate("EUR", "1.5"),
        rate("JPY", "no JSON"),
        rate("7", "true"),
    ];
    node.append("rates", &table);
    let orders = [order(1, "EUR"), order(2, "USD"), order(3, "JPY"), order(4, "CHF")];
    node.append("orders", &orders);
    node.append("orders", &[("o5".to_owned(), r#"{"n": 5, "currency": 7, "rate": "old"}"#.to_owned())]);
    node.append("orders", &[("o6".to_owned(), r#"{"n": 6}"#.to_owned())]);
    let id = node.run(&priced(&by_currency()));
    let expected = [json!(1.5), json!({"value": 1.1}), json!("no JSON"), Value::Null, json!(true), Value::Null];
    eventually("all are there", || rates(&node) == (1..).zip(expected.clone()).collect());
    let job = node.job(&id);
    assert_eq!(job["nodes"][1]["keys"], 4, "{job:#}");
    node.close();
}

#[test]
fn a_table_follows_its_topic_while_the_job_runs() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    let id = node.run(&priced(&by_currency()));
    let mut next = 1;
    eventually_rated(&node, &mut next, "EUR", &Value::Null);
    // Two sources of another job write into the table.
    let list = |records: Value| json!({"type": "list", "config": {"records": records}});
    let writer = json!({
        "version": 1, "kind": "Job", "name": "rates", "mode": "batch",
        "sources": {
            "europe": list(json!([{"currency": "EUR", "value": 1}, {"currency": "CHF", "value": 2}, {"currency": "EUR", "value": 3}])),
            "asia": list(json!([{"currency": "JPY", "value": 4}, {"currency": "CHF", "value": 2}])),
        },
        "sinks": {"out": {"type": "stream", "inputs": ["europe", "asia"], "config": {"topic": "rates", "key": "{currency}"}}},
    });
    let written = node.run(&writer);
    assert_eq!(node.ended(&written)["state"], "completed");
    for (currency, value) in [("EUR", 3), ("CHF", 2), ("JPY", 4)] {
        eventually_rated(&node, &mut next, currency, &json!({"currency": currency, "value": value}));
    }
    delete(&node, "rates", "CHF");
    eventually_rated(&node, &mut next, "CHF", &Value::Null);
    // A partition that is added is followed, too.
    let name = TopicName::user("rates", &node.tenant).unwrap();
    node.log.add_partitions(&name, 8).unwrap();
    let added = ["A", "B", "C", "D", "E", "F"].map(|key| rate(key, "5"));
    assert!(added.iter().any(|(key, _)| partition_of_key(key.as_bytes(), 8).0 >= 3));
    node.append("rates", &added);
    for (currency, _) in &added {
        eventually_rated(&node, &mut next, currency, &json!(5));
    }
    eventually_rated(&node, &mut next, "JPY", &json!({"currency": "JPY", "value": 4}));
    assert_eq!(node.job(&id)["nodes"][1]["keys"], 8);
    node.close();
}

#[test]
fn a_large_table_is_whole_before_the_first_record_and_is_shared_by_all_instances() {
    const KEYS: u64 = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    // Each key twice, and some without a value in the end.
    let values = |round: u64| (0..KEYS).map(move |n| (format!("c{n}"), Some((n * 10 + round).to_string())));
    let deleted = (0..KEYS).step_by(10).map(|n| (format!("c{n}"), None));
    append_all(&node, "rates", &values(1).chain(values(2)).chain(deleted).collect::<Vec<_>>());
    let orders: Vec<u64> = (0..KEYS).step_by(97).collect();
    let order = |n: &u64| (format!("o{n}"), Some(json!({"n": n, "currency": format!("c{n}")}).to_string()));
    append_all(&node, "orders", &orders.iter().map(order).collect::<Vec<_>>());
    let expected = |n: &u64| (*n, if n.is_multiple_of(10) { Value::Null } else { json!(n * 10 + 2) });
    let expected: BTreeMap<u64, Value> = orders.iter().map(expected).collect();
    let (mut state_bytes, mut results) = (Vec::new(), 0);
    for parallelism in [1, 3] {
        let mut document = priced(&by_currency());
        document["name"] = json!(format!("priced-by-{parallelism}"));
        document["transforms"]["priced"]["parallelism"] = json!(parallelism);
        let id = node.run(&document);
        results += orders.len();
        eventually("all orders are there", || node.read("priced").len() == results);
        assert!(rates(&node) == expected, "with {parallelism} instances");
        let job = node.job(&id);
        assert_eq!(job["nodes"][1]["keys"], KEYS * 9 / 10, "{job:#}");
        state_bytes.push(job["state_bytes"].as_u64().unwrap());
        node.kill(&id).unwrap();
        node.ended(&id);
    }
    // Memory is taken in steps, so it is not the same to the byte.
    let difference = u64::abs_diff(state_bytes[0], state_bytes[1]);
    assert!(difference < state_bytes[0] / 10, "one table, whatever the number of instances: {state_bytes:?}");
    node.close();
}

#[test]
fn a_table_is_loaded_again_at_a_restart_with_the_changes_of_the_meantime() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    node.append("rates", &[rate("EUR", "1"), rate("USD", "2")]);
    let id = node.run(&priced(&by_currency()));
    let mut next = 1;
    eventually_rated(&node, &mut next, "EUR", &json!(1));
    node.close();

    let node = open(&dir);
    node.append("rates", &[rate("EUR", "3")]);
    delete(&node, "rates", "USD");
    eventually_rated(&node, &mut next, "EUR", &json!(3));
    eventually_rated(&node, &mut next, "USD", &Value::Null);
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");
    // The next job of the name reads the table from its beginning, and the orders from where that one has stopped.
    let number = next;
    node.append("orders", &[order(number, "EUR"), order(number + 1, "USD")]);
    node.run(&priced(&by_currency()));
    eventually("both are there", || rates(&node).contains_key(&(number + 1)));
    assert_eq!((&rates(&node)[&number], &rates(&node)[&(number + 1)]), (&json!(3), &Value::Null));
    node.close();
}

#[test]
fn a_lookup_beside_state_and_exactly_once_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(&dir);
    create_topics(&node);
    node.append("rates", &[rate("EUR", "1"), rate("USD", "2")]);
    let mut document = priced(&by_currency());
    document["delivery"] = json!("exactly_once");
    document["checkpoint"] = json!({"interval": "20ms"});
    document["transforms"] = json!({
        "once": {"type": "deduplicate", "inputs": ["orders"], "key_by": "n", "config": {"ttl": "1h"}, "parallelism": 2},
        "priced": {"type": "lookup", "inputs": ["once"], "config": by_currency()},
    });
    document["sinks"]["out"]["inputs"] = json!(["priced"]);
    let id = node.run(&document);
    for round in 1..=3_u64 {
        let numbers = (0..round * 100).chain(0..round * 100);
        let orders: Vec<(String, String)> = numbers.map(|n| order(n, ["EUR", "USD"][n as usize % 2])).collect();
        node.append("orders", &orders);
        eventually("each order is there once", || node.read("priced").len() as u64 == round * 100);
        eventually("they are committed", || node.job(&id)["lag"] == 0);
        node.close();
        node = open(&dir);
    }
    assert_eq!(rates(&node), (0..300).map(|n| (n, json!(n % 2 + 1))).collect());
    eventually("the job runs again", || node.job(&id)["state"] == "running");
    node.close();
}

#[test]
fn a_table_beyond_the_memory_of_its_job_fails_it_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let config = FlowConfig { job_state_max_bytes: 64 << 10, ..FlowConfig::default() };
    let node = Node::open_with(dir.path(), config, Functions::default());
    create_topics(&node);
    let id = node.run(&priced(&by_currency()));
    let values: Vec<_> = (0..2_000).map(|n| (format!("c{n}"), Some(n.to_string()))).collect();
    append_all(&node, "rates", &values);
    let job = node.ended(&id);
    assert_eq!((&job["state"], &job["error"]["node"]), (&json!("failed"), &json!("priced")), "{job:#}");
    let reason = job["reason"].as_str().unwrap();
    assert!(reason.contains("flow.job_state_max_bytes = 65536") && reason.contains("smaller table"), "{job:#}");
    node.close();
}

#[test]
fn a_job_waits_for_a_topic_that_is_not_there_and_fails_once_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.create("orders", 2);
    node.create("priced", 2);
    let id = node.run(&priced(&by_currency()));
    let reason = || node.job(&id)["reason"].as_str().unwrap_or_default().to_owned();
    let expected = "topic 'rates', which does not exist; 'millstream topic create rates --cleanup compact'";
    eventually("the job waits", || reason().contains(expected));
    node.create("rates", 1);
    eventually("it goes on", || node.job(&id)["reason"].is_null());
    let mut next = 1;
    eventually_rated(&node, &mut next, "EUR", &Value::Null);
    node.log.delete_topic(&TopicName::user("rates", &node.tenant).unwrap()).unwrap();
    let job = node.ended(&id);
    assert_eq!((&job["state"], &job["error"]["node"]), (&json!("failed"), &json!("priced")), "{job:#}");
    assert!(job["reason"].as_str().unwrap().contains("topic 'rates', its table, was deleted"), "{job:#}");
    node.close();
}

#[test]
fn a_table_of_another_tenant_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    let refused =
        node.submit(&priced(&json!({"topic": "telemetry.acme", "key": "currency", "as": "rate"}))).unwrap_err();
    let Error::Invalid { findings } = refused else { panic!("{refused:?}") };
    assert_eq!(findings[0].path, "transforms.priced.config.topic");
    assert!(findings[0].message.contains("is of tenant 'acme'"), "{findings:?}");
    node.close();
}

#[test]
fn missing_is_null_or_error() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    let mut document = priced(&by_currency());
    for (name, word) in [("one", Value::Null), ("two", json!("null")), ("three", json!("error"))] {
        document["name"] = json!(name);
        document["transforms"]["priced"]["config"]["missing"] = word;
        node.run(&document);
    }
    document["name"] = json!("four");
    document["transforms"]["priced"]["config"]["missing"] = json!("drop");
    let refused = node.submit(&document).unwrap_err().to_string();
    assert!(refused.contains("is neither null nor error"), "{refused}");
    node.close();
}

#[test]
fn a_key_that_is_missing_may_be_an_error_of_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    node.append("rates", &[rate("EUR", "1")]);
    let mut document = priced(&json!({"topic": "rates", "key": "currency", "as": "rate", "missing": "error"}));
    document["sinks"]["dead"] = json!({"type": "collect", "inputs": ["priced"]});
    document["routes"] = json!([
        {"from": "priced", "on_error": true, "to": ["dead"], "select": "error.code AS code, error.message AS why, input.n AS n", "stop": true},
        {"from": "priced", "to": ["out"]},
    ]);
    node.append(
        "orders",
        &[order(1, "EUR"), order(2, "CHF"), ("o3".to_owned(), r#"{"n": 3}"#.to_owned()), order(4, "EUR")],
    );
    let id = node.run(&document);
    eventually("all are read", || rates(&node).len() == 2 && node.collected(&id, "dead").len() == 2);
    assert_eq!(rates(&node), BTreeMap::from([(1, json!(1)), (4, json!(1))]));
    let mut dead = node.collected(&id, "dead");
    dead.sort_by_key(|record| record["n"].as_u64());
    assert_eq!(
        dead,
        [
            json!({"code": "lookup_missing", "why": "'rates' has no value for the key 'CHF'", "n": 2}),
            json!({"code": "lookup_missing", "why": "'rates' has no value for the key NULL", "n": 3}),
        ]
    );
    node.kill(&id).unwrap();

    document["name"] = json!("strict");
    document["sinks"].as_object_mut().unwrap().remove("dead");
    document.as_object_mut().unwrap().remove("routes");
    let job = node.ended(&node.run(&document));
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("lookup_missing")), "{job:#}");
    node.close();
}

#[test]
fn large_values_are_added_in_parts_and_each_record_comes_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    let large = "x".repeat(300_000) + "y";
    node.append("rates", &[rate("EUR", &json!(large).to_string()), rate("USD", "1")]);
    let mut document = priced(&by_currency());
    let transform = &mut document["transforms"]["priced"];
    transform["where"] = json!("12 / n >= 0");
    transform["select"] = json!("n, CASE WHEN rate LIKE '%xy' THEN 'large' ELSE rate END AS size");
    document["sinks"] =
        json!({"out": {"type": "collect", "inputs": ["priced"]}, "dead": {"type": "collect", "inputs": ["priced"]}});
    document["routes"] = json!([
        {"from": "priced", "on_error": true, "to": ["dead"], "stop": true},
        {"from": "priced", "to": ["out"]},
    ]);
    let orders: Vec<_> =
        (1..=30).map(|n| (format!("o{n}"), Some(order(n, if n % 3 == 0 { "USD" } else { "EUR" }).1))).collect();
    append_all(&node, "orders", &orders);
    append_all(
        &node,
        "orders",
        &(1..=4).map(|n| (format!("z{n}"), Some(r#"{"n": 0}"#.to_owned()))).collect::<Vec<_>>(),
    );
    let id = node.run(&document);
    eventually("all are there", || node.collected(&id, "out").len() >= 30 && node.collected(&id, "dead").len() >= 4);
    let mut sizes: Vec<(u64, Value)> = node
        .collected(&id, "out")
        .into_iter()
        .map(|record| (record["n"].as_u64().unwrap(), record["size"].clone()))
        .collect();
    sizes.sort_by_key(|(n, _)| *n);
    let size = |n: u64| if n.is_multiple_of(3) { json!(1) } else { json!("large") };
    assert_eq!(sizes, (1..=30).map(|n| (n, size(n))).collect::<Vec<_>>());
    assert_eq!(node.collected(&id, "dead").len(), 4);
    node.close();
}

#[test]
fn a_job_with_a_table_that_does_not_change_takes_no_turn() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    node.append("rates", &[rate("EUR", "1")]);
    let id = node.run(&priced(&by_currency()));
    let mut next = 1;
    eventually_rated(&node, &mut next, "EUR", &json!(1));
    let turns = || node.running(&id)["turns"].as_u64().unwrap();
    let mut last = turns();
    eventually("the turns stand still", || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        std::mem::replace(&mut last, turns()) == last
    });
    node.append("rates", &[rate("EUR", "2")]);
    eventually("a change of the table takes turns", || turns() > last);
    node.close();
}

/// A node whose jobs may use the files in `files` below the directory.
fn open_with_files(dir: &tempfile::TempDir, files: &[(&str, &str)]) -> Node {
    let folder = dir.path().join("files/default");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let config = FlowConfig { files_dir: dir.path().join("files"), ..FlowConfig::default() };
    Node::open_with(dir.path(), config, Functions::default())
}

#[test]
fn a_table_may_be_a_file_of_csv_or_json_lines() {
    let dir = tempfile::tempdir().unwrap();
    let lines = (0..10_000).map(|n| format!("{{\"id\": {n}, \"value\": {}}}\n", n * 2)).collect::<String>();
    let files = [("rates.csv", "code,value\nEUR,1\nUSD,\"2,5\"\nEUR,3\n"), ("rates.jsonl", &lines)];
    let node = open_with_files(&dir, &files);
    create_topics(&node);
    node.append("orders", &[order(1, "eur"), order(2, "usd"), order(3, "chf")]);
    let id = node.run(&priced(&json!({"file": "rates.csv", "column": "code", "key": "upper(currency)", "as": "rate"})));
    let expected = [json!({"code": "EUR", "value": "3"}), json!({"code": "USD", "value": "2,5"}), Value::Null];
    eventually("all are there", || rates(&node) == (1..).zip(expected.clone()).collect());
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");

    let id = node.run(&priced(&json!({"file": "rates.jsonl", "column": "id", "key": "n * 100", "as": "rate"})));
    node.append("orders", &[order(4, "eur"), order(99, "eur"), order(100, "eur")]);
    let of = |n: u64| json!({"id": n, "value": n * 2});
    eventually("all are there", || rates(&node).contains_key(&100));
    assert_eq!([4, 99, 100].map(|n| rates(&node)[&n].clone()), [of(400), of(9_900), Value::Null]);
    assert_eq!(node.job(&id)["nodes"][1]["keys"], 10_000);
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");

    let packed = zstd::stream::encode_all("code,value\nEUR,3\n".as_bytes(), 1).unwrap();
    std::fs::write(dir.path().join("files/default/rates.csv.zst"), packed).unwrap();
    let mut document =
        priced(&json!({"file": "rates.csv.zst", "column": "code", "key": "upper(currency)", "as": "found"}));
    document["transforms"]["priced"]["select"] = json!("n, CAST(found.value AS DOUBLE) * 2 AS rate");
    node.run(&document);
    node.append("orders", &[order(101, "eur")]);
    eventually("the text is a number", || rates(&node).get(&101) == Some(&json!(6.0)));
    node.close();
}

#[test]
fn a_file_that_is_no_table_fails_the_job_with_its_name_and_place() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("rates.csv", "code,value\nEUR,1\n"),
        ("bad.csv", "code,value\nEUR,1\nUSD\n"),
        ("gap.jsonl", "{\"id\": 1}\n{}\n"),
    ];
    let node = open_with_files(&dir, &files);
    create_topics(&node);
    for (file, column, expected) in [
        ("nowhere.csv", "code", "file 'nowhere.csv' in"),
        ("rates.csv", "id", "record 1 of 'rates.csv' has no 'id', which 'column' names as its key"),
        ("bad.csv", "code", "file 'bad.csv', line 3: the record has 1 fields"),
        ("gap.jsonl", "id", "record 2 of 'gap.jsonl' has no 'id'"),
    ] {
        let job = node.ended(&node.run(&priced(&json!({"file": file, "column": column, "key": "n", "as": "rate"}))));
        assert_eq!((&job["state"], &job["error"]["node"]), (&json!("failed"), &json!("priced")), "{job:#}");
        assert!(job["reason"].as_str().unwrap().contains(expected), "{job:#}");
    }
    node.close();
}

#[test]
fn a_job_whose_table_cannot_be_loaded_yet_says_so_and_reads_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    create_topics(&node);
    node.append("orders", &[order(1, "EUR")]);
    let mut document = priced(&json!({"file": "rates.csv", "column": "code", "key": "currency", "as": "rate"}));
    document["exchange"] = json!("queue");
    let id = node.run(&document);
    eventually("the job waits", || {
        let job = node.job(&id);
        let reason = job["reason"].as_str().unwrap_or_default();
        let of_node = job["nodes"][1]["waits"].as_str().unwrap_or_default();
        reason.starts_with("priced waits: 'rates.csv' is a file") && of_node.contains("flow.files_dir")
    });
    node.close();

    let node = open_with_files(&dir, &[("rates.csv", "code,value\nEUR,1\n")]);
    eventually("the job goes on", || rates(&node) == BTreeMap::from([(1, json!({"code": "EUR", "value": "1"}))]));
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");
    node.close();

    let node = open(&dir);
    node.append("orders", &[order(2, "EUR")]);
    let id = node.run(&document);
    eventually("the next job waits", || node.job(&id)["reason"].is_string());
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");
    assert_eq!(rates(&node).len(), 1, "it has read nothing");
    node.close();
}
