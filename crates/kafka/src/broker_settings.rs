//! The broker's own settings under Kafka's names, for tools that inspect brokers. They
//! change in Millstream's configuration only.

use millstream_log::{Cleanup, TopicConfig};

use crate::broker::{Broker, NODE_ID};
use crate::config_type::{TYPE_BOOLEAN, TYPE_INT, TYPE_LIST, TYPE_LONG, TYPE_STRING};
use crate::group::{Assignor, GroupConfig};
use crate::sasl_state;

/// Name, type and value of one setting.
pub(crate) type BrokerSetting = (&'static str, i8, fn(&Broker) -> String);

pub(crate) const BROKER_SETTINGS: [BrokerSetting; 35] = [
    ("advertised.listeners", TYPE_STRING, advertised_listeners),
    ("auto.create.topics.enable", TYPE_BOOLEAN, |broker| broker.config.auto_create_topics.to_string()),
    ("broker.id", TYPE_INT, |_| NODE_ID.to_string()),
    ("compression.type", TYPE_STRING, |_| "producer".to_owned()),
    ("connections.max.idle.ms", TYPE_LONG, |broker| broker.config.idle_timeout_ms.to_string()),
    ("default.replication.factor", TYPE_INT, |_| "1".to_owned()),
    ("delete.topic.enable", TYPE_BOOLEAN, |_| "true".to_owned()),
    ("group.consumer.assignors", TYPE_LIST, |_| Assignor::ALL.map(Assignor::name).join(",")),
    ("group.consumer.heartbeat.interval.ms", TYPE_INT, |broker| {
        group(broker).consumer_heartbeat_interval.as_millis().to_string()
    }),
    ("group.consumer.max.size", TYPE_INT, |broker| group(broker).group_members_max.to_string()),
    ("group.consumer.session.timeout.ms", TYPE_INT, |broker| {
        group(broker).consumer_session_timeout.as_millis().to_string()
    }),
    ("group.initial.rebalance.delay.ms", TYPE_INT, |broker| {
        group(broker).initial_rebalance_delay.as_millis().to_string()
    }),
    ("group.max.session.timeout.ms", TYPE_INT, |broker| group(broker).session_timeout_max.as_millis().to_string()),
    ("group.max.size", TYPE_INT, |broker| group(broker).group_members_max.to_string()),
    ("group.min.session.timeout.ms", TYPE_INT, |broker| group(broker).session_timeout_min.as_millis().to_string()),
    ("log.cleanup.policy", TYPE_STRING, |_| Cleanup::Delete.as_str().to_owned()),
    ("log.message.timestamp.after.max.ms", TYPE_LONG, |broker| {
        broker.config.message_timestamp_after_max_ms.to_string()
    }),
    ("log.message.timestamp.before.max.ms", TYPE_LONG, |_| i64::MAX.to_string()),
    ("log.message.timestamp.type", TYPE_STRING, |_| "CreateTime".to_owned()),
    ("log.retention.bytes", TYPE_LONG, |_| {
        topic().retention_bytes.map_or_else(|| "-1".to_owned(), |max| max.to_string())
    }),
    ("log.retention.ms", TYPE_LONG, |_| {
        topic().retention.map_or_else(|| "-1".to_owned(), |age| age.as_millis().to_string())
    }),
    ("log.roll.ms", TYPE_LONG, |_| topic().segment_age.as_millis().to_string()),
    ("log.segment.bytes", TYPE_INT, |_| topic().segment_bytes.to_string()),
    ("max.connections", TYPE_INT, |broker| broker.config.connections_max.to_string()),
    ("message.max.bytes", TYPE_INT, |_| topic().record_max_bytes.to_string()),
    ("min.insync.replicas", TYPE_INT, |_| "1".to_owned()),
    ("node.id", TYPE_INT, |_| NODE_ID.to_string()),
    ("num.partitions", TYPE_INT, |_| topic().partitions.to_string()),
    ("offset.metadata.max.bytes", TYPE_INT, |_| millstream_log::POSITION_METADATA_MAX_BYTES.to_string()),
    ("offsets.retention.minutes", TYPE_INT, |broker| (group(broker).offsets_retention.as_secs() / 60).to_string()),
    ("sasl.enabled.mechanisms", TYPE_STRING, |broker| sasl_mechanisms(broker)),
    ("socket.request.max.bytes", TYPE_INT, |broker| broker.config.request_max_bytes.to_string()),
    ("transaction.max.timeout.ms", TYPE_INT, |broker| broker.config.transaction_timeout_max_ms.to_string()),
    ("transactional.id.expiration.ms", TYPE_INT, |broker| broker.config.transactional_id_expiration_ms.to_string()),
    ("unclean.leader.election.enable", TYPE_BOOLEAN, |_| "false".to_owned()),
];

fn sasl_mechanisms(broker: &Broker) -> String {
    let mechanisms: Vec<_> = sasl_state::mechanisms().collect();
    if broker.requires_logins() { mechanisms.join(",") } else { String::new() }
}

fn advertised_listeners(broker: &Broker) -> String {
    let (plain, tls) = match broker.requires_logins() {
        true => ("SASL_PLAINTEXT", "SASL_SSL"),
        false => ("PLAINTEXT", "SSL"),
    };
    let listeners = [(plain, &broker.config.advertised), (tls, &broker.config.advertised_tls)];
    let set = listeners.into_iter().filter(|(_, address)| !address.is_empty());
    set.map(|(protocol, address)| format!("{protocol}://{address}")).collect::<Vec<_>>().join(",")
}

fn topic() -> TopicConfig {
    TopicConfig::default()
}

fn group(broker: &Broker) -> &GroupConfig {
    &broker.groups.config
}
