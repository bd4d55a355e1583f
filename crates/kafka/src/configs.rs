//! A topic's configuration under Kafka's names.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_response as whole;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, ListConfigResourcesRequest,
    ListConfigResourcesResponse,
};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{AckLevel, Cleanup, TopicConfig};
use millstream_types::{Compression, Role, TopicKind};

use crate::KafkaConfig;
use crate::api_error::ApiError;
use crate::broker::{Broker, NODE_ID};
use crate::broker_settings::BROKER_SETTINGS;
use crate::config_type::{TYPE_BOOLEAN, TYPE_DOUBLE, TYPE_INT, TYPE_LIST, TYPE_LONG, TYPE_STRING};
use crate::request_context::RequestContext;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;
const SOURCE_TOPIC: i8 = 1;
const SOURCE_DEFAULT: i8 = 5;
const SOURCE_BROKER: i8 = 4;

/// One setting under Kafka's name.
struct TopicSetting {
    name: &'static str,
    kind: i8,
    show: fn(&TopicConfig) -> String,
    /// Sets the value; `None` if it cannot be parsed.
    set: fn(&mut TopicConfig, &str) -> Option<()>,
    rule: &'static str,
}

const SETTINGS: [TopicSetting; 14] = [
    TopicSetting {
        name: "retention.ms",
        kind: TYPE_LONG,
        show: |c| c.retention.map_or_else(|| "-1".to_owned(), |age| age.as_millis().to_string()),
        set: |c, text| unbounded(text).map(|ms| c.retention = ms.map(Duration::from_millis)),
        rule: "use milliseconds, or -1 for no limit",
    },
    TopicSetting {
        name: "retention.bytes",
        kind: TYPE_LONG,
        show: |c| c.retention_bytes.map_or_else(|| "-1".to_owned(), |bytes| bytes.to_string()),
        set: |c, text| unbounded(text).map(|bytes| c.retention_bytes = bytes),
        rule: "use bytes per partition, or -1 for no limit",
    },
    TopicSetting {
        name: "segment.bytes",
        kind: TYPE_INT,
        show: |c| c.segment_bytes.to_string(),
        set: |c, text| text.parse().ok().map(|bytes| c.segment_bytes = bytes),
        rule: "use bytes",
    },
    TopicSetting {
        name: "segment.ms",
        kind: TYPE_LONG,
        show: |c| c.segment_age.as_millis().to_string(),
        set: |c, text| text.parse().ok().map(|ms| c.segment_age = Duration::from_millis(ms)),
        rule: "use milliseconds",
    },
    TopicSetting {
        name: "max.message.bytes",
        kind: TYPE_INT,
        show: |c| c.record_max_bytes.to_string(),
        set: |c, text| text.parse().ok().map(|bytes| c.record_max_bytes = bytes),
        rule: "use bytes",
    },
    TopicSetting {
        name: "compression.type",
        kind: TYPE_STRING,
        show: |c| match c.compression {
            Compression::None => "producer".to_owned(),
            codec => codec.as_str().to_owned(),
        },
        set: |c, text| compression(text).map(|codec| c.compression = codec),
        rule: "use producer, uncompressed, gzip, snappy, lz4 or zstd; batches of producers stay as they were sent",
    },
    TopicSetting {
        name: "delete.retention.ms",
        kind: TYPE_LONG,
        show: |c| c.delete_retention.as_millis().to_string(),
        set: |c, text| text.parse().ok().map(|ms| c.delete_retention = Duration::from_millis(ms)),
        rule: "use milliseconds: how long a record without value stays in a compacted topic",
    },
    TopicSetting {
        name: "min.compaction.lag.ms",
        kind: TYPE_LONG,
        show: |c| c.compaction_lag_min.as_millis().to_string(),
        set: |c, text| millis(text).map(|lag| c.compaction_lag_min = lag),
        rule: "use milliseconds: how long a record of a compacted topic is not compacted",
    },
    TopicSetting {
        name: "max.compaction.lag.ms",
        kind: TYPE_LONG,
        show: |c| c.compaction_lag_max.map_or_else(|| NEVER.to_string(), |lag| lag.as_millis().to_string()),
        set: |c, text| {
            let lag = millis(text).filter(|lag| !lag.is_zero())?;
            c.compaction_lag_max = (lag.as_millis() < u128::from(NEVER)).then_some(lag);
            Some(())
        },
        rule: "use milliseconds, at least 1 and at least min.compaction.lag.ms: when a record of a compacted topic is compacted at the latest",
    },
    TopicSetting {
        name: "millstream.level",
        kind: TYPE_STRING,
        show: |c| LEVELS.iter().find(|(_, level)| *level == c.level).map_or("synced", |(name, _)| name).to_owned(),
        set: |c, text| LEVELS.iter().find(|(name, _)| *name == text).map(|(_, level)| c.level = *level),
        rule: "use memory, written or synced: what a record survives that was acknowledged with acks=all",
    },
    TopicSetting {
        name: "millstream.hold.max.bytes",
        kind: TYPE_LONG,
        show: |c| c.hold_max_bytes.to_string(),
        set: |c, text| text.parse().ok().map(|bytes| c.hold_max_bytes = bytes),
        rule: "use bytes per partition that a reader inside Millstream may hold back beyond retention",
    },
    TopicSetting {
        name: "millstream.compaction.live.percent",
        kind: TYPE_INT,
        show: |c| c.compaction_live_percent.unwrap_or(0).to_string(),
        set: |c, text| {
            let percent = text.parse().ok().filter(|percent| *percent <= 100)?;
            c.compaction_live_percent = (percent > 0).then_some(percent);
            Some(())
        },
        rule: "use 1 to 100: the share of live bytes below which compaction rewrites a segment; or 0: it rewrites each that loses a record",
    },
    TopicSetting {
        name: "message.timestamp.type",
        kind: TYPE_STRING,
        show: |c| if c.append_time { "LogAppendTime" } else { "CreateTime" }.to_owned(),
        set: |c, text| {
            c.append_time = match text {
                "LogAppendTime" => true,
                "CreateTime" => false,
                _ => return None,
            };
            Some(())
        },
        rule: "use CreateTime or LogAppendTime: whose time records get",
    },
    TopicSetting {
        name: "cleanup.policy",
        kind: TYPE_LIST,
        show: |c| c.cleanup.as_str().to_owned(),
        set: |c, text| Cleanup::from_name(text).map(|cleanup| c.cleanup = cleanup),
        rule: "use delete, compact or compact,delete",
    },
];

/// Replicas that must have a record before it is acknowledged. Other values than the one here are taken, up to a limit.
const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";

/// Kafka settings with one fixed value here, shown in Kafka's words.
const SETTLED: [(&str, &str, i8); 7] = [
    (MIN_INSYNC_REPLICAS, "1", TYPE_INT),
    ("unclean.leader.election.enable", "false", TYPE_BOOLEAN),
    ("remote.storage.enable", "false", TYPE_BOOLEAN),
    ("preallocate", "false", TYPE_BOOLEAN),
    // Records acknowledged with acks=all are on disk, as millstream.level says; no other setting forces them there.
    ("flush.messages", "9223372036854775807", TYPE_LONG),
    ("flush.ms", "9223372036854775807", TYPE_LONG),
    ("message.timestamp.before.max.ms", "9223372036854775807", TYPE_LONG),
];

/// Kafka's settings of topics that have one value for all topics here: name, value and type.
fn settled(server: &KafkaConfig) -> impl Iterator<Item = (&'static str, String, i8)> {
    let ahead_max_ms = server.message_timestamp_after_max_ms.to_string();
    let of_server = [("message.timestamp.after.max.ms", ahead_max_ms, TYPE_LONG)];
    SETTLED.iter().map(|(name, value, kind)| (*name, (*value).to_owned(), *kind)).chain(of_server)
}

/// Settings with which a Kafka operator tunes files. They promise nothing to clients, so changes are ignored
/// and Kafka's defaults are shown.
const TUNING: [(&str, &str, i8); 5] = [
    ("file.delete.delay.ms", "60000", TYPE_LONG),
    ("index.interval.bytes", "4096", TYPE_INT),
    ("min.cleanable.dirty.ratio", "0.5", TYPE_DOUBLE),
    ("segment.index.bytes", "10485760", TYPE_INT),
    ("segment.jitter.ms", "0", TYPE_LONG),
];

/// Size of a request without its only record.
const REQUEST_OVERHEAD_BYTES: usize = 1 << 10;

const LEVELS: [(&str, AckLevel); 3] =
    [("memory", AckLevel::Memory), ("written", AckLevel::Written), ("synced", AckLevel::Synced)];

/// Kafka's largest number, its value for *never*.
const NEVER: u64 = i64::MAX.cast_unsigned();

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|ms| *ms <= NEVER).map(Duration::from_millis)
}

/// A number, or -1 for none.
fn unbounded(text: &str) -> Option<Option<u64>> {
    if text == "-1" { Some(None) } else { text.parse().ok().map(Some) }
}

fn compression(text: &str) -> Option<Compression> {
    match text {
        "producer" | "uncompressed" => Some(Compression::None),
        codec => Compression::from_name(codec),
    }
}

/// Sets Kafka's setting `name` in `config` to `value`, or to its default if `None`.
pub(crate) fn apply(
    config: &mut TopicConfig,
    name: &str,
    value: Option<&str>,
    server: &KafkaConfig,
) -> Result<(), ApiError> {
    let request_max_bytes = server.request_max_bytes;
    let invalid = |why: String| ApiError::new(ResponseError::InvalidConfig, why);
    if TUNING.iter().any(|(known, ..)| *known == name) {
        return Ok(());
    }
    if let Some((_, settled, _)) = settled(server).find(|(known, ..)| *known == name) {
        let limit = server.replication_factor_max;
        let is_count = |text: &str| text.parse().is_ok_and(|count| (1..=limit).contains(&count));
        return match value {
            Some(count) if name == MIN_INSYNC_REPLICAS => is_count(count).then_some(()).ok_or_else(|| {
                invalid(format!(
                    "{name} = {count}: there is one broker; use 1, or up to kafka.replication_factor_max = {limit}, which counts as 1"
                ))
            }),
            Some(other) if other != settled => {
                Err(invalid(format!("{name} = {other}: it is always {settled} here; leave it out")))
            }
            _ => Ok(()),
        };
    }
    let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
        if value.is_none() {
            // It has no value that could go, as in Kafka.
            return Ok(());
        }
        let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        return Err(invalid(format!("'{name}' is no setting of a topic here; there are {}", known.join(", "))));
    };
    let default = (setting.show)(&TopicConfig::default());
    let is_given = value.is_some();
    let value = value.unwrap_or(&default);
    (setting.set)(config, value).ok_or_else(|| invalid(format!("{name} = {value}: {}", setting.rule)))?;
    let largest_bytes = request_max_bytes.saturating_sub(REQUEST_OVERHEAD_BYTES);
    if name == "max.message.bytes" && is_given && config.record_max_bytes > largest_bytes {
        let why = format!(
            "{name} = {value}: a request has at most kafka.request_max_bytes = {request_max_bytes}; use at most {largest_bytes}, or raise that"
        );
        return Err(invalid(why));
    }
    Ok(())
}

/// The topic's configuration with every alterable setting at its default.
fn at_defaults(config: &TopicConfig) -> TopicConfig {
    let mut fresh = config.clone();
    let default = TopicConfig::default();
    for setting in &SETTINGS {
        // A default is always valid.
        let _ = (setting.set)(&mut fresh, &(setting.show)(&default));
    }
    fresh
}

/// The settings of `config`; only those in `only` if it names any.
pub(crate) fn describe(
    config: &TopicConfig,
    server: &KafkaConfig,
    only: Option<&[StrBytes]>,
) -> Vec<DescribeConfigsResourceResult> {
    let default = TopicConfig::default();
    let described = SETTINGS.iter().map(|setting| {
        let (value, default) = ((setting.show)(config), (setting.show)(&default));
        DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_static_str(setting.name))
            .with_config_source(if value == default { SOURCE_DEFAULT } else { SOURCE_TOPIC })
            .with_value(Some(StrBytes::from_string(value)))
            .with_config_type(setting.kind)
            .with_documentation(Some(StrBytes::from_static_str(setting.rule)))
    });
    let tuning = TUNING.iter().map(|(name, value, kind)| (*name, (*value).to_owned(), *kind));
    let fixed = settled(server).chain(tuning);
    let fixed = fixed.map(|(name, value, kind)| read_only(name, value, kind).with_config_source(SOURCE_DEFAULT));
    described.chain(fixed).filter(|described| is_asked(described, only)).collect()
}

/// The broker's settings under Kafka's names.
fn describe_broker(broker: &Broker, only: Option<&[StrBytes]>) -> Vec<DescribeConfigsResourceResult> {
    let described = BROKER_SETTINGS.iter().map(|(name, kind, show)| read_only(name, show(broker), *kind));
    described.filter(|described| is_asked(described, only)).collect()
}

/// A setting that clients can read and not alter.
fn read_only(name: &'static str, value: String, kind: i8) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(name))
        .with_value(Some(StrBytes::from_string(value)))
        .with_read_only(true)
        .with_config_source(SOURCE_BROKER)
        .with_config_type(kind)
}

/// `None` and an empty list ask for all.
fn is_asked(described: &DescribeConfigsResourceResult, only: Option<&[StrBytes]>) -> bool {
    only.is_none_or(|only| only.is_empty() || only.contains(&described.name))
}

pub(crate) async fn describe_configs(
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> DescribeConfigsResponse {
    let results = request.resources.into_iter().map(|resource| describe_resource(&context.broker, resource));
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn describe_resource(broker: &Broker, resource: DescribeConfigsResource) -> DescribeConfigsResult {
    let configs = match resource.resource_type {
        TOPIC => {
            let topic = broker.topic(&resource.resource_name);
            topic.map(|topic| describe(&topic.config, &broker.config, resource.configuration_keys.as_deref()))
        }
        BROKER => match resource.resource_name.as_str() {
            // No setting of all brokers in common is ever altered.
            "" => Ok(Vec::new()),
            name if name == NODE_ID.to_string() => Ok(describe_broker(broker, resource.configuration_keys.as_deref())),
            other => {
                let why = format!("broker '{other}' does not exist; the only one is {NODE_ID}");
                Err(ApiError::new(ResponseError::InvalidRequest, why))
            }
        },
        // Members choose their timeouts by themselves, or have those of the broker: a group has no settings.
        GROUP => Ok(Vec::new()),
        other => Err(no_such_resource(other)),
    };
    let result = DescribeConfigsResult::default()
        .with_resource_type(resource.resource_type)
        .with_resource_name(resource.resource_name);
    match configs {
        Ok(configs) => result.with_configs(configs),
        Err(refusal) => result.with_error_code(refusal.code()).with_error_message(refusal.message()),
    }
}

/// ListConfigResources: the resources that DescribeConfigs can describe. Version 0 asks for client metrics only,
/// which do not exist here.
pub(crate) async fn list_resources(
    request: ListConfigResourcesRequest,
    context: RequestContext,
) -> ListConfigResourcesResponse {
    let wants =
        |kind: i8| context.version > 0 && (request.resource_types.is_empty() || request.resource_types.contains(&kind));
    let resource = |kind: i8, name: String| {
        ConfigResource::default().with_resource_type(kind).with_resource_name(StrBytes::from_string(name))
    };
    let mut resources = Vec::new();
    if wants(TOPIC) {
        let broker = &context.broker;
        resources.extend(broker.topics().iter().map(|topic| resource(TOPIC, broker.namespace.render(&topic.name))));
    }
    if wants(BROKER) {
        resources.push(resource(BROKER, NODE_ID.to_string()));
    }
    ListConfigResourcesResponse::default().with_config_resources(resources)
}

pub(crate) async fn incremental_alter_configs(
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
) -> IncrementalAlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        responses.push(match altered(&context, resource, false, request.validate_only).await {
            Ok(()) => response,
            Err(refusal) => response.with_error_code(refusal.code()).with_error_message(refusal.message()),
        });
    }
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

/// AlterConfigs, from older clients: settings that the request does not name return to their defaults.
pub(crate) async fn alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let response = whole::AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        let set = resource.configs.into_iter().map(|setting| {
            AlterableConfig::default().with_name(setting.name).with_value(setting.value).with_config_operation(SET)
        });
        let resource = AlterConfigsResource::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
            .with_configs(set.collect());
        responses.push(match altered(&context, resource, true, request.validate_only).await {
            Ok(()) => response,
            Err(refusal) => response.with_error_code(refusal.code()).with_error_message(refusal.message()),
        });
    }
    AlterConfigsResponse::default().with_responses(responses)
}

async fn altered(
    context: &RequestContext,
    resource: AlterConfigsResource,
    replace: bool,
    validate_only: bool,
) -> Result<(), ApiError> {
    let (broker, name) = (Arc::clone(&context.broker), resource.resource_name.clone());
    let altered = match context.check(Role::Admin) {
        Ok(()) => tokio::task::spawn_blocking(move || alter(&broker, &resource, replace, validate_only)).await,
        Err(refusal) => Ok(Err(refusal)),
    };
    let altered = altered.unwrap_or_else(|e| Err(ApiError::failed(&e)));
    context.audit(if replace { "AlterConfigs" } else { "IncrementalAlterConfigs" }, &name, &altered);
    altered
}

/// With `replace`, settings that the request does not name return to their defaults.
fn alter(broker: &Broker, resource: &AlterConfigsResource, replace: bool, validate_only: bool) -> Result<(), ApiError> {
    if resource.resource_type != TOPIC {
        return Err(no_such_resource(resource.resource_type));
    }
    let invalid = |why: String| Err(ApiError::new(ResponseError::InvalidRequest, why));
    if resource.resource_name.is_empty() {
        return invalid("the name of the topic is missing; there are no settings of all topics".to_owned());
    }
    let mut named = HashSet::new();
    if let Some(twice) = resource.configs.iter().find(|change| !named.insert(&change.name)) {
        return invalid(format!("{} is changed twice in one request; name it once", twice.name));
    }
    // One change of topics at a time, so that none is lost between reading the configuration and writing it.
    let _one = broker.creating.lock();
    let topic = broker.topic(&resource.resource_name)?;
    if topic.name.kind() != TopicKind::User {
        let why = format!("topic '{}' is Millstream's own and keeps its configuration", topic.name);
        return Err(ApiError::new(ResponseError::TopicAuthorizationFailed, why));
    }
    let mut config = if replace { at_defaults(&topic.config) } else { topic.config.clone() };
    for change in &resource.configs {
        let list;
        let value = match (change.config_operation, &change.value) {
            (SET, Some(value)) => Some(value.as_str()),
            (DELETE, _) => None,
            (operation @ (APPEND | SUBTRACT), Some(value)) => {
                list = changed_list(&config, &change.name, operation, value)?;
                Some(list.as_str())
            }
            (operation, _) => {
                let why = format!(
                    "operation {operation} on {}: use set, append or subtract (0, 2, 3) with a value, or delete (1)",
                    change.name
                );
                return Err(ApiError::new(ResponseError::InvalidConfig, why));
            }
        };
        apply(&mut config, &change.name, value, &broker.config)?;
    }
    if validate_only {
        return config.validate(&topic.name).map_err(|e| ApiError::from(&e));
    }
    broker.log.alter_topic(&topic.name, &config).map(drop).map_err(|e| ApiError::from(&e))
}

/// The list that setting `name` has in `config`, with the elements of `value` appended or taken out.
fn changed_list(config: &TopicConfig, name: &str, operation: i8, value: &str) -> Result<String, ApiError> {
    let setting = SETTINGS.iter().find(|setting| setting.name == name && setting.kind == TYPE_LIST);
    let Some(setting) = setting else {
        let lists: Vec<_> = SETTINGS.iter().filter(|of| of.kind == TYPE_LIST).map(|of| of.name).collect();
        let why = format!("operation {operation} on {name}: only lists take it ({}); use set", lists.join(", "));
        return Err(ApiError::new(ResponseError::InvalidConfig, why));
    };
    let shown = (setting.show)(config);
    let elements = |text| str::split(text, ',').map(str::trim).filter(|element| !element.is_empty());
    let mut list: Vec<&str> = elements(&shown).collect();
    for element in elements(value) {
        match operation {
            APPEND if list.contains(&element) => {}
            APPEND => list.push(element),
            _ => list.retain(|known| *known != element),
        }
    }
    Ok(list.join(","))
}

fn no_such_resource(kind: i8) -> ApiError {
    let why = match kind {
        BROKER => "settings of the broker are changed in Millstream's configuration (kafka.…, log.…) and take effect by a restart".to_owned(),
        GROUP => "a group has no settings: its members choose their timeouts, or have those of all groups, which are in Millstream's configuration (kafka.group_consumer_session_timeout_ms, kafka.group_consumer_heartbeat_interval_ms)".to_owned(),
        other => format!("resource type {other} has no configuration here; use a topic ({TOPIC})"),
    };
    ApiError::new(ResponseError::InvalidRequest, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(config: &mut TopicConfig, name: &str, value: Option<&str>) -> Result<(), ApiError> {
        super::apply(config, name, value, &KafkaConfig::default())
    }

    #[test]
    fn each_setting_reads_back_as_it_is_shown_and_nonsense_is_refused_with_its_name() {
        for (name, value) in [
            ("retention.ms", "-1"),
            ("retention.ms", "60000"),
            ("retention.bytes", "1048576"),
            ("segment.bytes", "65536"),
            ("segment.ms", "1000"),
            ("max.message.bytes", "2048"),
            ("compression.type", "zstd"),
            ("cleanup.policy", "compact"),
            ("cleanup.policy", "compact,delete"),
            ("delete.retention.ms", "1000"),
            ("message.timestamp.type", "LogAppendTime"),
            ("min.compaction.lag.ms", "86400000"),
            ("max.compaction.lag.ms", "172800000"),
            ("millstream.level", "written"),
            ("millstream.hold.max.bytes", "4096"),
            ("millstream.compaction.live.percent", "50"),
        ] {
            let mut config = TopicConfig::default();
            apply(&mut config, name, Some(value)).unwrap();
            let only = [StrBytes::from_static_str(name)];
            let shown = describe(&config, &KafkaConfig::default(), Some(&only));
            assert_eq!(shown[0].value.as_deref(), Some(value), "{name}");
            assert_eq!(shown.len(), 1);
            apply(&mut config, name, None).unwrap();
            assert_eq!(config, TopicConfig::default(), "{name}");
            let refusal = apply(&mut config, name, Some("many")).unwrap_err();
            assert!(refusal.why.contains(name) && refusal.why.contains("many"), "{}", refusal.why);
        }
        let mut config = TopicConfig::default();
        let tuning = TUNING.into_iter().map(|(name, value, kind)| (name, value.to_owned(), kind));
        for (name, value, _) in settled(&KafkaConfig::default()).chain(tuning) {
            apply(&mut config, name, Some(&value)).unwrap();
            apply(&mut config, name, None).unwrap();
        }
        assert_eq!(config, TopicConfig::default());
        for (name, value) in [
            ("flush.messages", "1"),
            ("flush.ms", "1000"),
            ("message.timestamp.after.max.ms", "1"),
            ("min.insync.replicas", "4"),
            ("min.insync.replicas", "0"),
            ("max.message.bytes", "8388608"),
            ("x", "1"),
        ] {
            assert!(apply(&mut config, name, Some(value)).unwrap_err().why.contains(name), "{name}");
        }
    }
}
