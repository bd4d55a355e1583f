//! Administrative requests by Kafka's own client, to this broker and to a real one: each is answered alike, or differs for a reason.

use std::collections::BTreeMap;

use millstream_testkit::RealKafka;

use crate::broker::Broker;

const PROGRAM: &str = include_str!("AdminRows.java");

const DEFAULTS: &str = "defaults are Millstream's own";
const REPLICAS: &str = "there are no replicas, whatever a client asks for";
const POLICY: &str = "a policy is no list with an order, and one that is the default counts as unset";
const QUOTAS: &str = "rates are settings, and hold for every client alike";

/// A row in which the answers differ.
struct Difference {
    row: &'static str,
    kafka: &'static str,
    ours: &'static str,
    /// Why it stays so.
    reason: &'static str,
}

const fn differs(row: &'static str, kafka: &'static str, ours: &'static str, reason: &'static str) -> Difference {
    Difference { row, kafka, ours, reason }
}

const DIFFERENCES: [Difference; 15] = [
    differs("create with default partitions", "1 partitions, 1", "4 partitions, 1", DEFAULTS),
    differs("create with 2 replicas", "InvalidReplicationFactorException", "1 partitions, 1", REPLICAS),
    differs(
        "create with {cleanup.policy=}",
        "1 partitions, 1",
        "InvalidConfigurationException",
        "a topic whose records stay for ever has retention.ms = -1",
    ),
    differs(
        "describe limits",
        "max.message.bytes=1048588 DEFAULT_CONFIG INT, segment.bytes=1073741824 DEFAULT_CONFIG INT, segment.ms=604800000 DEFAULT_CONFIG LONG",
        "max.message.bytes=1048576 DEFAULT_CONFIG INT, segment.bytes=67108864 DEFAULT_CONFIG INT, segment.ms=86400000 DEFAULT_CONFIG LONG",
        DEFAULTS,
    ),
    differs(
        "append compact",
        "cleanup.policy=delete,compact DYNAMIC_TOPIC_CONFIG LIST",
        "cleanup.policy=compact,delete DYNAMIC_TOPIC_CONFIG LIST",
        POLICY,
    ),
    differs(
        "append compact again",
        "cleanup.policy=delete,compact DYNAMIC_TOPIC_CONFIG LIST",
        "cleanup.policy=compact,delete DYNAMIC_TOPIC_CONFIG LIST",
        POLICY,
    ),
    differs(
        "subtract compact",
        "cleanup.policy=delete DYNAMIC_TOPIC_CONFIG LIST",
        "cleanup.policy=delete DEFAULT_CONFIG LIST",
        POLICY,
    ),
    differs(
        "subtract compact again",
        "cleanup.policy=delete DYNAMIC_TOPIC_CONFIG LIST",
        "cleanup.policy=delete DEFAULT_CONFIG LIST",
        POLICY,
    ),
    differs(
        "list the largest time after all are deleted",
        "9 at 1700000000009",
        "-1 at -1",
        "Kafka tells a record that its segment still has; nobody can read it",
    ),
    differs("add a user", "null", "UnacceptableCredentialException", "the server makes the secrets of API tokens"),
    differs("set quota producer_byte_rate", "null", "PolicyViolationException", QUOTAS),
    differs("set quota request_percentage", "null", "PolicyViolationException", QUOTAS),
    differs("list reassignments", "{}", "UnsupportedVersionException", REPLICAS),
    differs(
        "elect leaders",
        "{a-0=Optional[org.apache.kafka.common.errors.ElectionNotNeededException: Leader election not needed for topic partition.]}",
        "UnsupportedVersionException",
        REPLICAS,
    ),
    differs(
        "describe the replicas in sync",
        "min.insync.replicas=1 DYNAMIC_DEFAULT_BROKER_CONFIG INT",
        "min.insync.replicas=1 DEFAULT_CONFIG INT read-only",
        REPLICAS,
    ),
];

fn rows(printed: &str) -> BTreeMap<String, String> {
    // Java's client logs among them.
    let lines = printed.lines().filter_map(|line| line.strip_prefix("row ")?.split_once(" | "));
    lines.map(|(name, outcome)| (name.to_owned(), outcome.to_owned())).collect()
}

#[test]
#[ignore = "takes long"]
fn administrative_requests_are_answered_as_by_a_real_kafka() {
    let Some(broker) = Broker::configured("") else { return };
    let run = |address: &str| {
        let program = PROGRAM.replace("@ADDRESS@", address);
        rows(&broker.java_source("AdminRows.java", &program))
    };
    let ours = run(&broker.address);
    let real = RealKafka::start(1);
    let kafka = run(&real.bootstrap());
    assert!(kafka.len() > 130 && kafka.keys().eq(ours.keys()), "{} rows, {} here", kafka.len(), ours.len());
    let mut wrong = Vec::new();
    for (row, answer) in &kafka {
        let known = DIFFERENCES.iter().find(|difference| difference.row == row);
        let expected =
            known.map_or((answer.as_str(), answer.as_str()), |difference| (difference.kafka, difference.ours));
        if (answer.as_str(), ours[row].as_str()) != expected {
            let reason = known.map_or("no difference is known", |difference| difference.reason);
            wrong.push(format!("{row} ({reason})\n  Kafka: {answer}\n  here:  {}", ours[row]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unused: Vec<_> = DIFFERENCES.iter().filter(|difference| !kafka.contains_key(difference.row)).collect();
    assert!(unused.is_empty(), "{:?}", unused.iter().map(|difference| difference.row).collect::<Vec<_>>());
}
