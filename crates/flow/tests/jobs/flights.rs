//! A month of flights from New York: delays by carrier and hour are those of a computation over the file.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use millstream_flow::{FlowConfig, Functions};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

const FLIGHTS: u64 = 27_004;
const FILE: &str = "flights-2013-01.csv.gz";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/nyc-2013").join(FILE)
}

/// The number of flights and the mean delay of their departure, by carrier and scheduled hour.
type Delays = BTreeMap<(String, String), (u64, Option<f64>)>;

/// The delays by the lines of the file. A flight that was cancelled counts and has no delay.
fn expected() -> Delays {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(file()).unwrap()).read_to_string(&mut text).unwrap();
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let [carrier, hour, delay] =
        ["carrier", "time_hour", "dep_delay"].map(|name| columns.iter().position(|column| *column == name).unwrap());
    let mut sums: BTreeMap<(String, String), (u64, Vec<i64>)> = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let hour = fields[hour].replace('Z', ".000Z");
        let (count, delays) = sums.entry((fields[carrier].to_owned(), hour)).or_default();
        *count += 1;
        delays.extend(fields[delay].parse::<i64>());
    }
    assert_eq!(sums.values().map(|(count, _)| count).sum::<u64>(), FLIGHTS);
    let mean = |delays: &[i64]| (!delays.is_empty()).then(|| delays.iter().sum::<i64>() as f64 / delays.len() as f64);
    sums.into_iter().map(|(key, (count, delays))| (key, (count, mean(&delays)))).collect()
}

/// The results of the job; each is there once.
fn found(node: &Node) -> Delays {
    let mut found = Delays::new();
    for (key, record) in node.read("delays") {
        let text = |name: &str| record[name].as_str().unwrap().to_owned();
        assert_eq!(key, text("carrier"));
        let before = found.insert((key, text("hour")), (record["n"].as_u64().unwrap(), record["delay"].as_f64()));
        assert_eq!(before, None, "{record}");
    }
    found
}

fn check(node: &Node, context: &str) {
    let (expected, found) = (expected(), found(node));
    assert_eq!(found.len(), expected.len(), "{context}");
    for ((key, (count, delay)), (known, (flights, mean))) in found.iter().zip(&expected) {
        assert_eq!((key, count, delay.is_some()), (known, flights, mean.is_some()), "{context}");
        assert!(
            (delay.unwrap_or_default() - mean.unwrap_or_default()).abs() < 1e-9,
            "{context}: {key:?} {delay:?} {mean:?}"
        );
    }
}

/// Delays by carrier and hour. The file is in the order of departures, so flights are up to a day behind their hour.
fn delays(parallelism: u32) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": format!("delays-{parallelism}"), "mode": "batch",
        "sources": {"flights": {
            "type": "file", "config": {"path": FILE},
            "event_time": {"field": "time_hour", "max_out_of_orderness": "1d"},
        }},
        "transforms": {"hourly": {
            "type": "aggregate", "inputs": ["flights"], "key_by": ["carrier"], "parallelism": parallelism,
            "window": {"type": "tumbling", "size": "1h"},
            "aggregates": "COUNT(*) AS n, AVG(CAST(NULLIF(dep_delay, 'NA') AS DOUBLE)) AS delay",
            "select": "carrier, window.start AS hour, n, delay",
        }},
        "sinks": {"out": {"type": "stream", "inputs": ["hourly"], "config": {"topic": "delays", "key": "carrier"}}},
    })
}

fn open(dir: &tempfile::TempDir) -> Node {
    let folder = dir.path().join("files/default");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(file(), folder.join(FILE)).unwrap();
    let config = FlowConfig { files_dir: dir.path().join("files"), ..FlowConfig::default() };
    Node::open_with(dir.path(), config, Functions::default())
}

#[test]
fn delays_by_carrier_and_hour_are_those_of_the_file_with_one_and_with_three_instances() {
    for parallelism in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = open(&dir);
        node.create("delays", 3);
        let job = node.ended(&node.run(&delays(parallelism)));
        assert_eq!(job["state"], "completed", "{job:#}");
        check(&node, &format!("{parallelism} instances"));
        node.close();
    }
}

#[test]
fn delays_are_there_once_though_the_server_ends_in_the_middle() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.create("delays", 3);
    let mut document = delays(3);
    document["delivery"] = json!("exactly_once");
    document["checkpoint"] = json!({"interval": "10ms"});
    document["sources"]["flights"]["batch"] = json!({"size": 2});
    let id = node.run(&document);
    eventually("there are results", || node.read("delays").len() > 1_000);
    // It has no time to finish.
    node.jobs.shut_down(Duration::ZERO);
    let before = node.read("delays").len();
    node.close();

    let node = open(&dir);
    let job = node.ended(&id);
    assert_eq!(job["state"], "completed", "{job:#}");
    assert!(before < node.read("delays").len(), "{before} results before the end of the server were all");
    check(&node, "one restart");
    node.close();
}
