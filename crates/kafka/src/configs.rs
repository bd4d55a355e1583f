//! A topic's configuration under Kafka's names.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_response as whole;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{AckLevel, Cleanup, TopicConfig};
use millstream_types::{Compression, Kind, Role};

use crate::caller::Caller;
use crate::node::Node;
use crate::refusal::Refusal;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;
const SOURCE_TOPIC: i8 = 1;
const SOURCE_DEFAULT: i8 = 5;
const TYPE_STRING: i8 = 2;
const TYPE_INT: i8 = 3;
const TYPE_LONG: i8 = 5;

/// One setting under Kafka's name.
struct Setting {
    name: &'static str,
    kind: i8,
    /// Cannot be altered once the topic is there.
    fixed: bool,
    show: fn(&TopicConfig) -> String,
    /// Whether the value was understood.
    set: fn(&mut TopicConfig, &str) -> Option<()>,
    rule: &'static str,
}

const SETTINGS: [Setting; 10] = [
    Setting {
        name: "retention.ms",
        kind: TYPE_LONG,
        fixed: false,
        show: |c| c.retention.map_or_else(|| "-1".to_owned(), |age| age.as_millis().to_string()),
        set: |c, text| unbounded(text).map(|ms| c.retention = ms.map(Duration::from_millis)),
        rule: "use milliseconds, or -1 for no limit",
    },
    Setting {
        name: "retention.bytes",
        kind: TYPE_LONG,
        fixed: false,
        show: |c| c.retention_bytes.map_or_else(|| "-1".to_owned(), |bytes| bytes.to_string()),
        set: |c, text| unbounded(text).map(|bytes| c.retention_bytes = bytes),
        rule: "use bytes per partition, or -1 for no limit",
    },
    Setting {
        name: "segment.bytes",
        kind: TYPE_INT,
        fixed: false,
        show: |c| c.segment_bytes.to_string(),
        set: |c, text| text.parse().ok().map(|bytes| c.segment_bytes = bytes),
        rule: "use bytes",
    },
    Setting {
        name: "segment.ms",
        kind: TYPE_LONG,
        fixed: false,
        show: |c| c.segment_age.as_millis().to_string(),
        set: |c, text| text.parse().ok().map(|ms| c.segment_age = Duration::from_millis(ms)),
        rule: "use milliseconds",
    },
    Setting {
        name: "max.message.bytes",
        kind: TYPE_INT,
        fixed: false,
        show: |c| c.record_max_bytes.to_string(),
        set: |c, text| text.parse().ok().map(|bytes| c.record_max_bytes = bytes),
        rule: "use bytes",
    },
    Setting {
        name: "compression.type",
        kind: TYPE_STRING,
        fixed: false,
        show: |c| match c.compression {
            Compression::None => "producer".to_owned(),
            codec => codec.as_str().to_owned(),
        },
        set: |c, text| compression(text).map(|codec| c.compression = codec),
        rule: "use producer, uncompressed, gzip, snappy, lz4 or zstd; batches of producers stay as they were sent",
    },
    Setting {
        name: "delete.retention.ms",
        kind: TYPE_LONG,
        fixed: false,
        show: |c| c.delete_retention.as_millis().to_string(),
        set: |c, text| text.parse().ok().map(|ms| c.delete_retention = Duration::from_millis(ms)),
        rule: "use milliseconds: how long a record without value stays in a compacted topic",
    },
    Setting {
        name: "millstream.level",
        kind: TYPE_STRING,
        fixed: false,
        show: |c| LEVELS.iter().find(|(_, level)| *level == c.level).map_or("synced", |(name, _)| name).to_owned(),
        set: |c, text| LEVELS.iter().find(|(name, _)| *name == text).map(|(_, level)| c.level = *level),
        rule: "use memory, written or synced: what a record survives that was acknowledged with acks=all",
    },
    Setting {
        name: "millstream.hold.max.bytes",
        kind: TYPE_LONG,
        fixed: false,
        show: |c| c.hold_max_bytes.to_string(),
        set: |c, text| text.parse().ok().map(|bytes| c.hold_max_bytes = bytes),
        rule: "use bytes per partition that a reader inside Millstream may hold back beyond retention",
    },
    Setting {
        name: "cleanup.policy",
        kind: TYPE_STRING,
        fixed: true,
        show: |c| c.cleanup.as_str().to_owned(),
        set: |c, text| Cleanup::from_name(text).map(|cleanup| c.cleanup = cleanup),
        rule: "use delete, compact or compact,delete when the topic is created; it cannot be altered",
    },
];

/// Settings of Kafka's that have one value here, in the words of its clients, which some of them say.
const SETTLED: [(&str, &str); 5] = [
    ("message.timestamp.type", "CreateTime"),
    ("min.insync.replicas", "1"),
    ("unclean.leader.election.enable", "false"),
    ("remote.storage.enable", "false"),
    ("preallocate", "false"),
];

/// Settings of Kafka's by which an operator tunes its files. They promise nothing to clients, and are passed over.
const TUNING: [&str; 9] = [
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "segment.index.bytes",
    "segment.jitter.ms",
];

const LEVELS: [(&str, AckLevel); 3] =
    [("memory", AckLevel::Memory), ("written", AckLevel::Written), ("synced", AckLevel::Synced)];

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

/// Puts `value` (`None`: the default) under Kafka's `name` into `config`.
pub(crate) fn apply(config: &mut TopicConfig, name: &str, value: Option<&str>) -> Result<(), Refusal> {
    let invalid = |why: String| Refusal::new(ResponseError::InvalidConfig, why);
    if TUNING.contains(&name) {
        return Ok(());
    }
    if let Some((_, settled)) = SETTLED.iter().find(|(known, _)| *known == name) {
        return match value {
            Some(other) if other != *settled => Err(invalid(format!("{name} = {other}: it is always {settled} here"))),
            _ => Ok(()),
        };
    }
    let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
        let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        return Err(invalid(format!("'{name}' is no setting of a topic here; there are {}", known.join(", "))));
    };
    let default = (setting.show)(&TopicConfig::default());
    let value = value.unwrap_or(&default);
    (setting.set)(config, value).ok_or_else(|| invalid(format!("{name} = {value}: {}", setting.rule)))
}

/// What a topic of that configuration would be if nothing had been altered.
fn at_defaults(config: &TopicConfig) -> TopicConfig {
    let mut fresh = config.clone();
    let default = TopicConfig::default();
    for setting in SETTINGS.iter().filter(|setting| !setting.fixed) {
        // A default is always understood.
        let _ = (setting.set)(&mut fresh, &(setting.show)(&default));
    }
    fresh
}

/// Every setting of `config`, those of `only` if it names any.
pub(crate) fn describe(config: &TopicConfig, only: Option<&[StrBytes]>) -> Vec<DescribeConfigsResourceResult> {
    let default = TopicConfig::default();
    let asked = |setting: &&Setting| only.is_none_or(|only| only.iter().any(|name| name.as_str() == setting.name));
    let described = SETTINGS.iter().filter(asked).map(|setting| {
        let (value, default) = ((setting.show)(config), (setting.show)(&default));
        DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_static_str(setting.name))
            .with_config_source(if value == default { SOURCE_DEFAULT } else { SOURCE_TOPIC })
            .with_value(Some(StrBytes::from_string(value)))
            .with_read_only(setting.fixed)
            .with_config_type(setting.kind)
            .with_documentation(Some(StrBytes::from_static_str(setting.rule)))
    });
    described.collect()
}

/// DescribeConfigs.
pub(crate) async fn describe_configs(request: DescribeConfigsRequest, caller: Caller) -> DescribeConfigsResponse {
    let results = request.resources.into_iter().map(|resource| describe_resource(&caller.node, resource));
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn describe_resource(node: &Node, resource: DescribeConfigsResource) -> DescribeConfigsResult {
    let configs = match resource.resource_type {
        TOPIC => {
            let topic = node.topic(&resource.resource_name);
            topic.map(|topic| describe(&topic.config, resource.configuration_keys.as_deref()))
        }
        // A broker's own configuration is Millstream's, and not in Kafka's words.
        BROKER => Ok(Vec::new()),
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

/// IncrementalAlterConfigs.
pub(crate) async fn incremental_alter_configs(
    request: IncrementalAlterConfigsRequest,
    caller: Caller,
) -> IncrementalAlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        responses.push(match altered(&caller, resource, false, request.validate_only).await {
            Ok(()) => response,
            Err(refusal) => response.with_error_code(refusal.code()).with_error_message(refusal.message()),
        });
    }
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

/// AlterConfigs, which older clients ask for: whatever it does not name gets its default.
pub(crate) async fn alter_configs(request: AlterConfigsRequest, caller: Caller) -> AlterConfigsResponse {
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
        responses.push(match altered(&caller, resource, true, request.validate_only).await {
            Ok(()) => response,
            Err(refusal) => response.with_error_code(refusal.code()).with_error_message(refusal.message()),
        });
    }
    AlterConfigsResponse::default().with_responses(responses)
}

async fn altered(
    caller: &Caller,
    resource: AlterConfigsResource,
    replace: bool,
    validate_only: bool,
) -> Result<(), Refusal> {
    caller.check(Role::Admin)?;
    let node = Arc::clone(&caller.node);
    let altered = tokio::task::spawn_blocking(move || alter(&node, &resource, replace, validate_only)).await;
    altered.unwrap_or_else(|e| Err(Refusal::failed(&e)))
}

/// `replace`: what the resource does not name gets its default.
fn alter(node: &Node, resource: &AlterConfigsResource, replace: bool, validate_only: bool) -> Result<(), Refusal> {
    if resource.resource_type != TOPIC {
        return Err(no_such_resource(resource.resource_type));
    }
    // One change of topics at a time, so that none is lost between reading the configuration and writing it.
    let _one = node.creating.lock();
    let topic = node.topic(&resource.resource_name)?;
    if topic.name.kind() != Kind::User {
        let why = format!("topic '{}' is Millstream's own and keeps its configuration", topic.name);
        return Err(Refusal::new(ResponseError::TopicAuthorizationFailed, why));
    }
    let mut config = if replace { at_defaults(&topic.config) } else { topic.config.clone() };
    for change in &resource.configs {
        let value = match (change.config_operation, &change.value) {
            (SET, Some(value)) => Some(value.as_str()),
            (DELETE, _) => None,
            (operation, _) => {
                let why = format!("operation {operation} on {}: use set (with a value) or delete", change.name);
                return Err(Refusal::new(ResponseError::InvalidConfig, why));
            }
        };
        apply(&mut config, &change.name, value)?;
    }
    if validate_only {
        return config.validate(&topic.name).map_err(|e| Refusal::from(&e));
    }
    node.log.alter_topic(&topic.name, &config).map(drop).map_err(|e| Refusal::from(&e))
}

fn no_such_resource(kind: i8) -> Refusal {
    let why = format!("resource type {kind} has no configuration to be changed here; use a topic ({TOPIC})");
    Refusal::new(ResponseError::InvalidRequest, why)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("millstream.level", "written"),
            ("millstream.hold.max.bytes", "4096"),
        ] {
            let mut config = TopicConfig::default();
            apply(&mut config, name, Some(value)).unwrap();
            let shown = describe(&config, Some(&[StrBytes::from_static_str(name)]));
            assert_eq!(shown[0].value.as_deref(), Some(value), "{name}");
            assert_eq!(shown.len(), 1);
            apply(&mut config, name, None).unwrap();
            assert_eq!(config, TopicConfig::default(), "{name}");
            let refusal = apply(&mut config, name, Some("many")).unwrap_err();
            assert!(refusal.why.contains(name) && refusal.why.contains("many"), "{}", refusal.why);
        }
        let mut config = TopicConfig::default();
        for (name, value) in SETTLED.into_iter().chain(TUNING.map(|name| (name, "1"))) {
            apply(&mut config, name, Some(value)).unwrap();
            apply(&mut config, name, None).unwrap();
        }
        assert_eq!(config, TopicConfig::default());
        for (name, value) in [("min.insync.replicas", "2"), ("message.timestamp.type", "LogAppendTime"), ("x", "1")] {
            assert!(apply(&mut config, name, Some(value)).unwrap_err().why.contains(name), "{name}");
        }
    }
}
