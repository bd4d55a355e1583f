//! The connector `stream`: topics of the log as sources and sinks.

mod group;
mod held;
mod partition_reader;
mod progress;
mod sink;
mod source;
mod start_at;

use millstream_log::{Log, Topic};
use millstream_types::{TenantId, TopicKind, TopicName};
use serde_json::Value;
use std::sync::Arc;

pub(crate) use self::group::{group_of, groups_of, position_commit};
pub(crate) use self::partition_reader::PartitionReader;
pub(crate) use self::progress::StreamProgress;
pub(super) use self::sink::{SINK, StreamSink, sink};
pub(super) use self::source::{SOURCE, source};
use crate::Error;
use crate::document::{Node, topic_named};

/// The topic that a node's config names.
pub(crate) fn topic_name(node: &Node, tenant: &TenantId) -> Result<TopicName, Error> {
    let text = node.config.get("topic").and_then(Value::as_str).unwrap_or_default();
    let refuse = |message: String| Error::plan(&node.name, "config.topic", message);
    let name = topic_named(text, tenant).map_err(|error| refuse(error.to_string()))?;
    if name.kind() == TopicKind::Internal {
        return Err(refuse(format!("topic '{name}' is Millstream's own; jobs do not read or write it")));
    }
    if name.tenant() != tenant {
        let message = format!("topic '{name}' is of tenant '{}', and the job of '{tenant}'", name.tenant());
        return Err(refuse(message));
    }
    Ok(name)
}

/// The topic, or the reason why a job that needs it waits.
fn topic(log: &dyn Log, name: &TopicName) -> Result<Arc<Topic>, String> {
    let waits = || format!("waits for topic '{name}', which does not exist; 'millstream topic create {name}' makes it");
    log.topic(name).ok_or_else(waits)
}
