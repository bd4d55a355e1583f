//! Lists, describes, creates, changes and deletes topics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millstream_http::{Caller, Json, Path, Payload, Problem, parse_json};
use millstream_kafka::group::tenant_and_id;
use millstream_log::{PartitionStats, Topic, TopicConfig};
use millstream_types::{Principal, TopicKind, TopicName};
use serde_json::{Value, json};

use super::settings::{self, TopicSettings};
use super::{Streams, blocking};

type Figures = HashMap<TopicName, Vec<PartitionStats>>;

pub(super) async fn list(State(streams): State<Arc<Streams>>, caller: Caller) -> Response {
    let mut figures = figures(&streams, |name| visible(name, &caller));
    let topics = streams.log.topics().into_iter().filter(|topic| visible(&topic.name, &caller));
    let mut shown: Vec<Value> =
        topics.map(|topic| show(&streams, &topic, figures.remove(&topic.name).unwrap_or_default())).collect();
    shown.sort_by(|one, other| one["name"].as_str().cmp(&other["name"].as_str()));
    axum::Json(shown).into_response()
}

pub(super) async fn describe(
    State(streams): State<Arc<Streams>>,
    caller: Caller,
    Path(stream): Path<String>,
) -> Result<Response, Problem> {
    let topic = streams.topic(&stream, &caller)?;
    Ok(axum::Json(described(&streams, &topic, &caller)).into_response())
}

pub(super) async fn create(
    State(streams): State<Arc<Streams>>,
    caller: Caller,
    Path(stream): Path<String>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let name = streams.name(&stream, &caller)?;
    own(&name, &[TopicKind::User])?;
    let settings = if body.is_empty() { TopicSettings::default() } else { parse_json(&body)? };
    let config = settings.apply(TopicConfig::default())?;
    let existed = streams.log.topic(&name).is_some();
    let log = streams.log.clone();
    let topic = blocking(move || log.create_topic(&name, &config)).await?;
    let status = if existed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, axum::Json(described(&streams, &topic, &caller))).into_response())
}

pub(super) async fn alter(
    State(streams): State<Arc<Streams>>,
    caller: Caller,
    Path(stream): Path<String>,
    Json(settings): Json<TopicSettings>,
) -> Result<Response, Problem> {
    let topic = streams.topic(&stream, &caller)?;
    own(
        &topic.name,
        &[
            TopicKind::User,
            TopicKind::Telemetry,
            TopicKind::Event,
            TopicKind::Command,
            TopicKind::CommandResponse,
            TopicKind::ContextUpdate,
        ],
    )?;
    let config = settings.apply(topic.config.clone())?;
    let (log, name) = (streams.log.clone(), topic.name.clone());
    let topic = if config.partitions == topic.config.partitions {
        blocking(move || log.alter_topic(&name, &config)).await?
    } else {
        check_growth(&topic, &config)?;
        blocking(move || log.add_partitions(&name, config.partitions)).await?
    };
    Ok(axum::Json(described(&streams, &topic, &caller)).into_response())
}

pub(super) async fn delete(
    State(streams): State<Arc<Streams>>,
    caller: Caller,
    Path(stream): Path<String>,
) -> Result<StatusCode, Problem> {
    // A refused deletion does not explain how to create the topic.
    let advise = |refusal: Problem| match refusal.status() {
        StatusCode::NOT_FOUND => {
            refusal.remedy("'GET /api/streams' or 'millstream topic list' shows the topics there are")
        }
        _ => refusal,
    };
    let topic = streams.topic(&stream, &caller).map_err(advise)?;
    own(&topic.name, &[TopicKind::User])?;
    let log = streams.log.clone();
    blocking(move || log.delete_topic(&topic.name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn visible(name: &TopicName, caller: &Principal) -> bool {
    let is_own = *name.tenant() == caller.tenant && name.kind() != TopicKind::Internal;
    is_own && (!caller.scope.is_limited() || caller.scope.has_topic(&name.to_string()))
}

/// Refuses other partitions of Millstream's topics, and other settings beside partitions: the two are stored one after
/// the other, and a request is done whole or not at all.
fn check_growth(topic: &Topic, config: &TopicConfig) -> Result<(), Problem> {
    if topic.name.kind() != TopicKind::User {
        return Err(Problem::forbidden(format!("topic '{}' keeps its partitions", topic.name))
            .value(config.partitions)
            .rule("partitions are added to topics with a name of your own")
            .remedy("leave partitions out"));
    }
    if (TopicConfig { partitions: topic.config.partitions, ..config.clone() }) != topic.config {
        return Err(Problem::invalid("partitions are not changed together with other settings")
            .value(config.partitions)
            .rule("a change of partitions is a request of its own")
            .remedy("send two requests, one of them with partitions only"));
    }
    Ok(())
}

/// Refuses topics that the planes manage themselves.
fn own(name: &TopicName, kinds: &[TopicKind]) -> Result<(), Problem> {
    if kinds.contains(&name.kind()) {
        return Ok(());
    }
    Err(Problem::forbidden(format!("topic '{name}' belongs to Millstream, which makes and removes it itself"))
        .value(name)
        .rule("topics with a name of your own are created, changed and deleted here; of telemetry.<tenant>, event.<tenant>, context_update.<tenant> and those of commands settings are changed")
        .remedy("choose a name whose first word is none of telemetry, event, command, command_response, context, context_update, mqtt, kv"))
}

fn described(streams: &Streams, topic: &Topic, caller: &Principal) -> Value {
    let mut shown = show(streams, topic, streams.log.topic_stats(&topic.name));
    shown["groups"] = json!(groups(streams, topic, caller));
    shown
}

/// Returns the tenant's groups that have read the topic and that the caller may use, by name, with position and lag per partition.
fn groups(streams: &Streams, topic: &Topic, caller: &Principal) -> Vec<Value> {
    let mut groups: BTreeMap<String, (u64, Vec<Value>)> = BTreeMap::new();
    for read in streams.log.lags(&topic.name) {
        let Some((tenant, id)) = tenant_and_id(&read.group) else { continue };
        if tenant == topic.name.tenant().as_str() && caller.scope.has_group(id) {
            let (lag, partitions) = groups.entry(id.to_owned()).or_default();
            *lag += read.lag;
            let (partition, position) = (read.partition.partition.0, read.position.0);
            partitions.push(json!({"partition": partition, "position": position, "lag": read.lag}));
        }
    }
    let shown = groups
        .into_iter()
        .map(|(group, (lag, partitions))| json!({"group": group, "lag": lag, "partitions": partitions}));
    shown.collect()
}

fn figures(streams: &Streams, wanted: impl Fn(&TopicName) -> bool) -> Figures {
    let mut figures = Figures::new();
    for partition in streams.log.stats().partitions {
        if wanted(&partition.partition.topic) {
            figures.entry(partition.partition.topic.clone()).or_default().push(partition);
        }
    }
    figures
}

fn show(streams: &Streams, topic: &Topic, mut partitions: Vec<PartitionStats>) -> Value {
    // The brokers of Kafka keep them to themselves.
    let segments = |count: u64| streams.has_segments.then_some(count);
    partitions.sort_by_key(|partition| partition.partition.partition);
    let offsets: Vec<Value> = partitions
        .iter()
        .map(|partition| {
            json!({
                "partition": partition.partition.partition.0,
                "first": partition.offsets.first.0,
                "stable": partition.offsets.stable.0,
                "tail": partition.offsets.tail.0,
                "bytes": partition.record_bytes,
                "segments": segments(partition.segments),
            })
        })
        .collect();
    json!({
        "name": topic.name.to_string(),
        "kind": topic.name.kind().prefix().unwrap_or("user"),
        "config": settings::show(topic),
        "bytes": partitions.iter().map(|partition| partition.record_bytes).sum::<u64>(),
        "segments": segments(partitions.iter().map(|partition| partition.segments).sum()),
        "partitions": offsets,
    })
}
