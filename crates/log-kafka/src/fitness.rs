//! Checks at the start that the cluster can keep this log.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeConfigsRequest, MetadataResponse,
};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{Error, Writers};
use millstream_types::{TOPICS, TopicKind, TopicName};

use crate::catalogue::Catalogue;
use crate::cluster::Purpose;
use crate::config::EngineConfig;
use crate::core::Core;
use crate::{coordinator, fetching, producing, replicas, topic_admin, topic_settings};

const API_VERSIONS_VERSION: i16 = 3;
const BROKER_RESOURCE: i8 = 4;
/// The oldest release that is good for transactions: earlier ones could tear one whose end is repeated.
const OLDEST: &str = "use Kafka 4.1 or newer";
/// The feature by which each transaction has an epoch of its own (KIP-890), and its level.
const TRANSACTIONS: (&str, i16) = ("transaction.version", 2);

/// The requests that this engine sends, each with its version.
const REQUESTS: [(ApiKey, i16); 4] = [
    (ApiKey::Produce, producing::PRODUCE_VERSION),
    (ApiKey::Fetch, fetching::FETCH_VERSION),
    (ApiKey::EndTxn, coordinator::END_TXN_VERSION),
    (ApiKey::InitProducerId, coordinator::INIT_PRODUCER_ID_VERSION),
];

/// Checks every broker.
///
/// # Errors
/// [`Error::Unreachable`] if none answers; [`Error::Unfit`] names the broker, the rule and the remedy.
pub(crate) async fn check(core: &Core) -> Result<(), Error> {
    let metadata = core.cluster.metadata(Some(&[])).await.map_err(|error| core.unreachable(&error))?;
    warn_of_count(&core.config, &metadata);
    for broker in &metadata.brokers {
        let address = format!("{}:{}", &*broker.host, broker.port);
        let Ok(connection) = core.cluster.broker(broker.node_id.0, Purpose::Control).await else {
            tracing::warn!(broker = address, "a broker of the cluster does not answer");
            continue;
        };
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("millstream"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let answer = connection.call(&request, API_VERSIONS_VERSION).await;
        check_versions(&address, &answer.map_err(|error| core.unreachable(&error))?)?;
        let resource = DescribeConfigsResource::default()
            .with_resource_type(BROKER_RESOURCE)
            .with_resource_name(StrBytes::from_string(broker.node_id.0.to_string()))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let answer = connection.call(&request, topic_admin::DESCRIBE_CONFIGS_VERSION).await;
        let answer = answer.map_err(|error| core.unreachable(&error))?;
        let settings = topic_settings::of_answer(answer);
        check_settings(&core.config, &address, &settings)?;
    }
    Ok(())
}

/// Time between two looks at replicas that are awaited.
const PAUSE: Duration = Duration::from_millis(250);

/// Waits until the state of this log, and transactions, can be written: after a restart of brokers that takes a while.
///
/// # Errors
/// [`Error::Unreachable`]; [`Error::Unfit`] names the partition, the rule and the missing brokers.
pub(crate) async fn until_replicated(core: &Core) -> Result<(), Error> {
    let deadline = Instant::now() + core.config.delivery_timeout;
    let mut told = None;
    loop {
        let metadata = match core.cluster.metadata(None).await {
            Ok(metadata) => metadata,
            Err(error) if Instant::now() > deadline => return Err(core.unreachable(&error)),
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        core.cluster.have_replicas(&replicas::holders(&metadata.topics));
        let is_state = |_: &str, name: &TopicName| name.kind() == TopicKind::Internal;
        let lacking = replicas::report(core, &metadata.topics, is_state).troubles;
        let Some(first) = lacking.first() else {
            core.waits.send_replace(None);
            return Ok(());
        };
        let why = match &first.partition {
            Some(partition) => format!("{partition} {}", first.why),
            None => first.why.clone(),
        };
        if told.as_ref() != Some(&why) {
            tracing::warn!(partitions = lacking.len(), %why, "the start waits until enough replicas are in sync");
            core.waits.send_replace(Some(format!("waits for Kafka: {why}")));
            told = Some(why.clone());
        }
        if Instant::now() > deadline {
            let rule = format!("{why}; start the missing brokers");
            return Err(unfit(
                &core.config.brokers.join(", "),
                "partitions that cannot be written",
                lacking.len(),
                rule,
            ));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Checks that topics in which a key's partition is part of the state have as many partitions as their descriptions say.
///
/// # Errors
/// [`Error::Unfit`] names the topic, the rule and the remedy.
pub(crate) fn check_partition_counts(
    core: &Core,
    topics: &[MetadataResponseTopic],
    catalogue: &Catalogue,
) -> Result<(), Error> {
    for topic in topics.iter().filter(|topic| topic.error_code == 0) {
        let Some(kafka_name) = topic.name.as_ref().map(|name| name.as_str()) else { continue };
        let Some(described) = catalogue.config(kafka_name) else { continue };
        let (count, wanted) = (topic.partitions.len(), described.partitions);
        let is_fixed = described.cleanup.compacts() || described.writers == Writers::OwnersOnly;
        if is_fixed && u32::try_from(count) != Ok(wanted) {
            let rule = format!(
                "its description in the topic {} says {wanted}, and its keys are spread over so many; restore it with {wanted} partitions, or name another log.kafka.prefix",
                core.names.internal(TOPICS.name)
            );
            let setting = format!("the partitions of topic {kafka_name}");
            return Err(unfit(&core.config.brokers.join(", "), &setting, count, rule));
        }
    }
    Ok(())
}

fn unfit(broker: &str, setting: &str, value: impl ToString, rule: impl Into<String>) -> Error {
    let (broker, setting) = (broker.to_owned(), setting.to_owned());
    Error::Unfit { broker, setting, value: value.to_string(), rule: rule.into() }
}

/// Too few brokers are no reason not to start: one may be down, and topics that exist are kept by the others.
fn warn_of_count(config: &EngineConfig, metadata: &MetadataResponse) {
    let (count, needed) = (metadata.brokers.len(), config.replication_factor);
    if count < usize::try_from(needed).unwrap_or(0) {
        tracing::warn!(brokers = count, replicas = needed, "fewer brokers run than there are replicas of a topic");
    }
}

fn check_versions(broker: &str, answer: &ApiVersionsResponse) -> Result<(), Error> {
    for (key, version) in REQUESTS {
        let spoken = answer.api_keys.iter().find(|spoken| spoken.api_key == key as i16);
        let highest = spoken.map_or(-1, |spoken| spoken.max_version);
        if highest < version {
            let rule = format!("version {version} is needed; {OLDEST}");
            return Err(unfit(broker, &format!("the highest version of {key:?}"), highest, rule));
        }
    }
    let (feature, needed) = TRANSACTIONS;
    let level = answer.finalized_features.iter().find(|known| &*known.name == feature);
    let level = level.map_or(0, |known| known.max_version_level);
    if level < needed {
        let rule = format!(
            "{needed} is needed; {OLDEST}, and run: kafka-features.sh --bootstrap-server {broker} upgrade --feature {feature}={needed}"
        );
        return Err(unfit(broker, feature, level, rule));
    }
    Ok(())
}

/// The log of transactions has to survive what the topics survive.
fn check_settings(config: &EngineConfig, broker: &str, settings: &HashMap<String, String>) -> Result<(), Error> {
    let rules = [
        ("transaction.state.log.replication.factor", config.replication_factor),
        ("transaction.state.log.min.isr", config.min_insync_replicas),
    ];
    for (setting, least) in rules {
        let Some(value) = settings.get(setting).and_then(|value| value.parse::<i16>().ok()) else { continue };
        if value < least {
            let rule =
                format!("at least {least} is needed, as topics have; set it in server.properties of each broker");
            return Err(unfit(broker, setting, value, rule));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey};
    use millstream_log::LogConfig;

    use super::*;

    fn answer(produce: i16, transactions: Option<i16>) -> ApiVersionsResponse {
        let spoken = |(key, version): (ApiKey, i16)| {
            let highest = if key == ApiKey::Produce { produce } else { version };
            ApiVersion::default().with_api_key(key as i16).with_max_version(highest)
        };
        let feature = |level| {
            FinalizedFeatureKey::default()
                .with_name(StrBytes::from_static_str(TRANSACTIONS.0))
                .with_max_version_level(level)
        };
        ApiVersionsResponse::default()
            .with_api_keys(REQUESTS.into_iter().map(spoken).collect())
            .with_finalized_features(transactions.map(feature).into_iter().collect())
    }

    #[test]
    fn an_old_broker_is_refused_with_the_remedy() {
        assert!(check_versions("b:1", &answer(13, Some(2))).is_ok());
        for (answer, told) in [
            (answer(12, Some(2)), "Kafka at b:1 has the highest version of Produce = 12: version 13 is needed"),
            (answer(13, Some(1)), "Kafka at b:1 has transaction.version = 1: 2 is needed"),
            (answer(13, None), "transaction.version = 0"),
        ] {
            let refusal = check_versions("b:1", &answer).unwrap_err().to_string();
            assert!(refusal.contains(told) && refusal.contains(OLDEST), "{refusal}");
        }
    }

    #[test]
    fn a_log_of_transactions_that_survives_less_than_topics_is_refused() {
        let mut of_log = LogConfig::default();
        of_log.kafka.brokers = vec!["b:1".to_owned()];
        let config = EngineConfig::new(of_log).unwrap();
        let settings = |factor: &str, in_sync: &str| {
            HashMap::from([
                ("transaction.state.log.replication.factor".to_owned(), factor.to_owned()),
                ("transaction.state.log.min.isr".to_owned(), in_sync.to_owned()),
            ])
        };
        assert!(check_settings(&config, "b:1", &settings("3", "2")).is_ok());
        for (factor, in_sync, told) in [("1", "2", "replication.factor = 1"), ("3", "1", "min.isr = 1")] {
            let refusal = check_settings(&config, "b:1", &settings(factor, in_sync)).unwrap_err().to_string();
            assert!(refusal.contains(told) && refusal.contains("server.properties"), "{refusal}");
        }
    }
}
