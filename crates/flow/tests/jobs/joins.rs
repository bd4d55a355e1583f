//! Joins of two topics: over restarts, with several instances, an idle side and late records.

use std::collections::BTreeMap;

use millstream_flow::{FlowConfig, Functions};
use millstream_testkit::eventually;
use millstream_types::TenantId;
use serde_json::{Value, json};

use crate::node::Node;

const MINUTE_MS: i64 = 60_000;

/// A job that joins orders with payments that come up to ten minutes after them.
fn paid(name: &str, kind: &str, parallelism: u32) -> Value {
    let source = |topic: &str| {
        json!({
            "type": "stream", "config": {"topic": topic}, "batch": {"size": 7}, "parallelism": 2,
            "event_time": {"field": "at", "max_out_of_orderness": "5m", "idle_timeout": "1d"},
        })
    };
    json!({
        "version": 1, "kind": "Job", "name": name, "delivery": "exactly_once", "checkpoint": {"interval": "20ms"},
        "sources": {"orders": source("orders"), "payments": source("payments")},
        "transforms": {"paid": {
            "type": "join", "inputs": ["orders", "payments"], "parallelism": {"min": 1, "max": parallelism},
            "config": {
                "left": "orders", "right": "payments", "kind": kind, "within": {"before": "2m", "after": "10m"},
                "on": {"orders": "id", "payments": "\"order\""}, "as": {"orders": "bought"},
            },
        }},
        "sinks": {"out": {"type": "stream", "inputs": ["paid"], "config": {"topic": "paid"}}},
    })
}

/// An order: its id and its minute. It lies under a key of its own, and not under its id.
fn order(id: i64, minute: i64) -> (String, String) {
    (format!("shop-{}", minute % 5), json!({"id": id, "at": minute * MINUTE_MS, "n": minute}).to_string())
}

fn payment(order: i64, minute: i64) -> (String, String) {
    (format!("bank-{}", minute % 3), json!({"order": order, "at": minute * MINUTE_MS, "n": minute}).to_string())
}

/// The minutes of the records of each result, by order, and the number of such results.
type Pairs = BTreeMap<(i64, Option<i64>, Option<i64>), u64>;

fn found(node: &Node) -> Pairs {
    let mut pairs = Pairs::new();
    for (key, value) in node.read("paid") {
        let (bought, paid) = (&value["bought"], &value["payments"]);
        let ids: Vec<i64> = bought["id"].as_i64().into_iter().chain(paid["order"].as_i64()).collect();
        assert!(ids.iter().all(|id| id.to_string() == key), "{key}: {value}");
        *pairs.entry((ids[0], bought["n"].as_i64(), paid["n"].as_i64())).or_default() += 1;
    }
    pairs
}

fn expected(orders: &[(i64, i64)], payments: &[(i64, i64)]) -> Pairs {
    let mut pairs = Pairs::new();
    let is_pair = |order: &(i64, i64), payment: &(i64, i64)| {
        order.0 == payment.0 && (order.1 - 2..=order.1 + 10).contains(&payment.1)
    };
    for order in orders {
        let partners: Vec<_> = payments.iter().filter(|payment| is_pair(order, payment)).collect();
        if partners.is_empty() {
            *pairs.entry((order.0, Some(order.1), None)).or_default() += 1;
        }
        for payment in partners {
            *pairs.entry((order.0, Some(order.1), Some(payment.1))).or_default() += 1;
        }
    }
    for payment in payments.iter().filter(|payment| !orders.iter().any(|order| is_pair(order, payment))) {
        *pairs.entry((payment.0, None, Some(payment.1))).or_default() += 1;
    }
    pairs
}

/// A record of one of the sides: its id, and its minute, which is out of order by up to four minutes.
fn nth_order(number: i64) -> (i64, i64) {
    (number % 11, number / 5 + (number * 31) % 5)
}

fn nth_payment(number: i64) -> (i64, i64) {
    (number % 13, number / 4 + (number * 17) % 5)
}

#[test]
fn the_keys_of_a_join_are_listed_once_each_with_the_sizes_of_all_their_records() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    for topic in ["orders", "payments", "paid"] {
        node.create(topic, 1);
    }
    let id = node.run(&paid("paid", "inner", 1));
    node.append("orders", &[order(1, 0), order(1, 1), order(2, 1)]);
    node.append("payments", &[payment(1, 2)]);
    let state = |key| node.jobs.state(&TenantId::default(), &id, "paid", key, 10).unwrap();
    eventually("they are stored", || state(None)["values"].as_array().unwrap().len() == 2 && found(&node).len() == 2);
    let size = |key| {
        let stored = state(Some(key));
        let [value] = stored["values"].as_array().unwrap().as_slice() else { panic!("{stored:#}") };
        assert_eq!(value["key"], json!(key.parse::<i64>().unwrap()), "{stored:#}");
        value["bytes"].as_u64().unwrap()
    };
    assert!(size("1") > 2 * size("2"), "three records and one");
    node.close();
}

#[test]
fn each_pair_and_each_record_without_one_is_sent_once_whenever_the_job_ends() {
    const ROUNDS: i64 = 6;
    const RECORDS: i64 = 150;
    let dir = tempfile::tempdir().unwrap();
    let mut id = String::new();
    for round in 0..ROUNDS {
        // The join has as many instances as there are threads.
        let config = FlowConfig { threads: 1 + round as usize % 3, ..FlowConfig::default() };
        let node = Node::open_with(dir.path(), config, Functions::default());
        if round == 0 {
            node.create("orders", 3);
            node.create("payments", 2);
            node.create("paid", 2);
            id = node.run(&paid("paid", "full", 3));
        }
        let numbers = || round * RECORDS..(round + 1) * RECORDS;
        node.append("orders", &numbers().map(nth_order).map(|(id, minute)| order(id, minute)).collect::<Vec<_>>());
        let payments: Vec<_> = numbers().map(nth_payment).map(|(id, minute)| payment(id, minute)).collect();
        node.append("payments", &payments);
        if round % 2 == 1 {
            eventually("some are there", || found(&node).len() as i64 > round * 20);
            assert_eq!(node.job(&id)["nodes"][2]["instances"], 1 + round % 3);
        }
        node.close();
    }
    let all = || 0..ROUNDS * RECORDS;
    let expected = expected(&all().map(nth_order).collect::<Vec<_>>(), &all().map(nth_payment).collect::<Vec<_>>());
    // A record of each partition far ahead lets the last ones go.
    let node = Node::open(dir.path());
    node.append("orders", &(0..5).map(|number| order(1_000, 100_000 + number)).collect::<Vec<_>>());
    node.append("payments", &(0..3).map(|number| payment(2_000, 100_000 + number)).collect::<Vec<_>>());
    eventually("all are there", || found(&node).values().sum::<u64>() >= expected.values().sum());
    assert_eq!(found(&node), expected);
    node.close();
}

#[test]
fn a_batch_job_gives_the_records_without_a_partner_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("orders", 3);
    node.create("payments", 2);
    node.create("paid", 2);
    node.append("orders", &[order(1, 1), order(2, 1), order(3, 1)]);
    node.append("payments", &[payment(4, 1), payment(2, 11), payment(3, 12)]);
    let mut sent = 0;
    for (kind, count) in [("inner", 1), ("left", 3), ("right", 3), ("full", 5)] {
        let mut document = paid(kind, kind, 3);
        document["mode"] = json!("batch");
        for source in ["orders", "payments"] {
            document["sources"][source]["config"]["stop_at"] = json!("end");
        }
        let id = node.run(&document);
        assert_eq!(node.ended(&id)["state"], "completed", "{:#}", node.job(&id));
        sent += count;
        assert_eq!(node.read("paid").len(), sent, "{kind}: {:?}", found(&node));
    }
    node.close();
}

#[test]
fn a_side_without_records_does_not_hold_the_other_one_back_and_its_late_records_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("orders", 1);
    node.create("payments", 1);
    node.create("paid", 1);
    let mut document = paid("idle", "left", 1);
    document["sources"]["payments"]["event_time"]["idle_timeout"] = json!("100ms");
    let id = node.run(&document);
    node.append("payments", &[payment(7, 0)]);
    node.append("orders", &[order(1, 1), order(2, 60), order(3, 61)]);
    let unpaid = Pairs::from([((1, Some(1), None), 1)]);
    eventually("the first order is given alone", || found(&node) == unpaid);
    // The second one still waits, for the payment that comes now as for others; the third payment has come too late.
    node.append("payments", &[payment(2, 59), payment(1, 2)]);
    eventually("a late record is counted", || node.job(&id)["nodes"][2]["late"] == 1);
    let paid = Pairs::from([((1, Some(1), None), 1), ((2, Some(60), Some(59)), 1)]);
    eventually("the pair is there", || found(&node) == paid);
    node.stop(&id, millstream_flow::StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");
    assert_eq!(found(&node), paid, "a stop gives no record alone");
    node.close();
}

#[test]
fn windows_behind_a_join_get_the_records_without_a_partner_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    for topic in ["orders", "payments", "paid"] {
        node.create(topic, 1);
    }
    let mut document = paid("hours", "full", 3);
    document["transforms"]["hours"] = json!({
        "type": "aggregate", "inputs": ["paid"], "key_by": ["bought IS NULL", "payments IS NULL"], "parallelism": 2,
        "window": {"type": "tumbling", "size": "10m"}, "aggregates": "COUNT(*) AS n",
        "select": "n, window.start AS start",
    });
    document["sinks"]["out"]["inputs"] = json!(["hours"]);
    let id = node.run(&document);
    let (orders, payments): (Vec<_>, Vec<_>) = (
        (0..100).map(|minute| order(minute, minute)).collect(),
        (0..100).map(|minute| payment(-minute - 1, minute)).collect(),
    );
    node.append("orders", &orders);
    node.append("payments", &payments);
    node.append("orders", &[order(1_000, 1_000)]);
    node.append("payments", &[payment(2_000, 1_000)]);
    let counts = || node.read("paid").iter().map(|(_, value)| value["n"].as_i64().unwrap()).collect::<Vec<_>>();
    eventually("all windows are there", || counts().len() >= 20);
    assert_eq!(counts(), [10; 20]);
    let late: Vec<_> = node.job(&id)["nodes"].as_array().unwrap().iter().map(|node| node["late"].clone()).collect();
    assert!(late.iter().all(|late| late.as_u64().unwrap_or_default() == 0), "{late:?}");
    node.close();
}

#[test]
fn a_topic_is_joined_with_itself_by_way_of_maps() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    for topic in ["orders", "paid"] {
        node.create(topic, 2);
    }
    node.append("orders", &(0..600).map(|minute| order(minute % 7, minute)).collect::<Vec<_>>());
    let mut document = paid("self", "left", 3);
    document["mode"] = json!("batch");
    document["sources"].as_object_mut().unwrap().remove("payments");
    document["sources"]["orders"]["config"]["stop_at"] = json!("end");
    document["sources"]["orders"]["batch"] = json!({"size": 1000});
    document["transforms"]["left"] = json!({"type": "map", "inputs": ["orders"], "select": "*", "parallelism": 2});
    document["transforms"]["right"] =
        json!({"type": "map", "inputs": ["orders"], "select": "id AS \"order\", at, n", "parallelism": 2});
    document["transforms"]["paid"]["inputs"] = json!(["left", "right"]);
    document["transforms"]["paid"]["config"] = json!({
        "left": "left", "right": "right", "on": {"left": "id", "right": "\"order\""}, "kind": "left",
        "within": {"before": "-7m", "after": "7m"}, "as": {"left": "bought", "right": "payments"},
    });
    let id = node.run(&document);
    assert_eq!(node.ended(&id)["state"], "completed", "{:#}", node.job(&id));
    let next = |minute: i64| Some(minute + 7).filter(|minute| *minute < 600);
    let expected: Pairs = (0..600).map(|minute| ((minute % 7, Some(minute), next(minute)), 1)).collect();
    assert_eq!(found(&node), expected);
    node.close();
}

#[test]
fn inputs_that_come_together_hold_time_back_for_all_that_is_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    for topic in ["north", "south", "hours"] {
        node.create(topic, 1);
    }
    let orders: Vec<_> = (0..600).map(|minute| order(1, minute)).collect();
    let source = |topic: &str| {
        json!({
            "type": "stream", "config": {"topic": topic, "stop_at": "end"}, "batch": {"size": 1000},
            "parallelism": 2,            "event_time": {"field": "at"},
        })
    };
    let document = json!({
        "version": 1, "kind": "Job", "name": "united", "mode": "batch",
        "sources": {"north": source("north"), "south": source("south")},
        "transforms": {
            "united": {"type": "map", "inputs": ["north", "south"], "select": "*"},
            "hours": {
                "type": "aggregate", "inputs": ["united"], "key_by": ["id"],
                "window": {"type": "tumbling", "size": "10m"}, "aggregates": "COUNT(*) AS n",
            },
        },
        "sinks": {"out": {"type": "stream", "inputs": ["hours"], "config": {"topic": "hours"}}},
    });
    node.append("north", &orders);
    node.append("south", &orders);
    let id = node.run(&document);
    assert_eq!(node.ended(&id)["state"], "completed", "{:#}", node.job(&id));
    let counts: Vec<_> = node.read("hours").iter().map(|(_, value)| value["n"].as_i64().unwrap()).collect();
    assert_eq!(counts, [20; 60]);
    node.close();
}

#[test]
fn records_that_cannot_be_joined_take_the_error_routes_and_keys_are_compared_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    for topic in ["orders", "payments", "paid", "dead"] {
        node.create(topic, 1);
    }
    let mut document = paid("errors", "inner", 3);
    document["mode"] = json!("batch");
    for source in ["orders", "payments"] {
        document["sources"][source]["config"]["stop_at"] = json!("end");
    }
    document["transforms"]["paid"]["config"]["on"] = json!({
        "orders": ["id", "$key"], "payments": ["CAST(\"order\" AS INTEGER)", "$key"],
    });
    document["transforms"]["paid"]["parallelism"] = json!(3);
    document["sinks"]["dead"] = json!({"type": "stream", "inputs": ["paid"], "config": {"topic": "dead"}});
    document["routes"] = json!([
        {"from": "paid", "on_error": true, "to": ["dead"], "select": "error.code AS code, input AS record", "stop": true},
        {"from": "paid", "to": ["out"]},
    ]);
    let record = |key: &str, value: Value| (key.to_owned(), value.to_string());
    node.append(
        "orders",
        &[
            record("a", json!({"id": 7, "at": 0})),
            record("a", json!({"id": 7})),
            record("b", json!({"id": 8, "at": 0})),
            record("a", json!({"at": 0})),
        ],
    );
    node.append(
        "payments",
        &[
            record("a", json!({"order": "7", "at": 0})),
            record("a", json!({"order": "seven", "at": 0})),
            record("a", json!({"order": 8, "at": 0})),
            record("a", json!({"at": 0})),
        ],
    );
    let id = node.run(&document);
    assert_eq!(node.ended(&id)["state"], "completed", "{:#}", node.job(&id));
    let joined = json!({"bought": {"id": 7, "at": 0}, "payments": {"order": "7", "at": 0}});
    assert_eq!(node.read("paid"), [("[7,\"a\"]".to_owned(), joined)]);
    let mut dead: Vec<String> = node.read("dead").iter().map(|(_, value)| value.to_string()).collect();
    dead.sort();
    assert_eq!(
        dead,
        [
            r#"{"code":"cast_failed","record":"{\"order\":\"seven\",\"at\":0}"}"#,
            r#"{"code":"no_event_time","record":"{\"id\":7}"}"#,
        ]
    );
    node.close();
}

#[test]
fn an_outer_join_tells_of_a_record_without_a_partner_while_all_is_silent_and_an_inner_one_waits() {
    for kind in ["left", "inner"] {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open(dir.path());
        for topic in ["orders", "payments", "paid"] {
            node.create(topic, 1);
        }
        let mut document = paid("silent", kind, 1);
        document["transforms"]["paid"]["config"]["within"] = json!({"before": "0s", "after": "200ms"});
        for source in ["orders", "payments"] {
            document["sources"][source]["event_time"] = json!({"field": "at", "idle_timeout": "50ms"});
        }
        let id = node.run(&document);
        node.append("orders", &[order(1, 1)]);
        node.append("payments", &[payment(2, 1)]);
        eventually("both are read", || node.job(&id)["nodes"][2]["records_in"] == 2);
        if kind == "inner" {
            std::thread::sleep(std::time::Duration::from_millis(600));
            assert_eq!(found(&node), Pairs::new());
            node.append("payments", &[payment(1, 1)]);
            eventually("the partner is found", || !found(&node).is_empty());
        } else {
            eventually("it is told of", || !found(&node).is_empty());
            assert_eq!(found(&node), Pairs::from([((1, Some(1), None), 1)]));
        }
        node.close();
    }
}
