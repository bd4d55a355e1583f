//! `POST /api/streams/{stream}/records`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millstream_http::{Caller, Path, Payload, Problem, Query, Reason};
use millstream_log::{AckLevel, Appended, AtomicAppend, Reply, Topic, reply};
use millstream_types::{ErrorCode, Excess, Principal, QuotaType, Record, TopicKind, TopicPartition, partition_of_key};
use serde::Deserialize;
use serde_json::{Value, json};

use super::received::{self, Format, Framing, Received};
use super::{Streams, bad_parameter, problem, settings};

/// Larger bodies are parsed on a blocking thread.
const PARSE_INLINE_MAX_BYTES: usize = 32 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AppendParameters {
    ack: Option<String>,
    format: Option<String>,
}

pub(super) async fn append(
    State(streams): State<Arc<Streams>>,
    caller: Caller,
    Path(stream): Path<String>,
    Query(parameters): Query<AppendParameters>,
    headers: HeaderMap,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let topic = streams.topic_to_append(&stream, &caller).await?;
    if !topic.takes_records_of(&caller) {
        return Err(not_for(&topic, &caller));
    }
    let level = level(&parameters, &topic)?;
    let format = format(&parameters)?;
    check_encoding(&headers)?;
    let framing = framing(&headers)?;
    let admitted = streams.quotas.admit(QuotaType::Produce, &caller.tenant, &caller.name, body.len() as u64);
    admitted.map_err(over_quota)?;
    let taken = if body.len() <= PARSE_INLINE_MAX_BYTES {
        take(&streams, &topic, &body, framing, format, level)?
    } else {
        let sharing = streams.clone();
        streams.on_thread(&caller.tenant, move || take(&sharing, &topic, &body, framing, format, level)).await??
    };
    let appended = taken.reply.await.map_err(|error| problem(&error))?;
    let partitions: Vec<Value> = taken
        .counts
        .iter()
        .zip(appended)
        .map(|((partition, count), ends)| {
            json!({"partition": partition, "count": count, "first": ends.first.0, "last": ends.last.0})
        })
        .collect();
    let count: usize = taken.counts.values().sum();
    let answer = json!({"count": count, "ack": settings::level_name(level), "partitions": partitions});
    Ok(axum::Json(answer).into_response())
}

/// The refusal of a caller who may not append to this topic.
fn not_for(topic: &Topic, caller: &Principal) -> Problem {
    match topic.name.kind() {
        TopicKind::User => Problem::forbidden(format!("topic '{}' takes records of administrators alone", topic.name))
            .value(&caller.name)
            .rule("its records ask queries with the rights of the whole tenant")
            .remedy("ask by 'POST /api/queries', or use a token with the role admin that is not limited"),
        _ => Problem::forbidden(format!("topic '{}' takes no records from outside", topic.name))
            .value(&topic.name)
            .rule("its records are the state or the changes of a part of Millstream, which alone appends them")
            .remedy("change that state by its own interface, or append to a topic of your own"),
    }
}

/// The refusal of an append beyond the quota.
fn over_quota(Excess { setting, rate, wait }: Excess) -> Problem {
    Problem::new(Reason::Code(ErrorCode::RateLimited), "the append exceeds the rate limit; nothing was stored")
        .value(format!("{setting} = {rate}"))
        .rule(format!("bytes per second; the earlier appends take {} ms more", wait.as_millis()))
        .remedy("send the request again after that time, or have the limit raised")
        .retry_after(wait)
}

/// Records that are being appended.
struct Taken {
    counts: BTreeMap<u32, usize>,
    reply: Reply<Vec<Appended>>,
}

fn take(
    streams: &Streams,
    topic: &Topic,
    body: &Bytes,
    framing: Framing,
    format: Format,
    level: AckLevel,
) -> Result<Taken, Problem> {
    let received = received::parse(body, framing, format)?;
    received.iter().try_for_each(|record| check(record, topic))?;
    let headers: Vec<_> = received.iter().map(Received::borrowed_headers).collect();
    let now_ms = streams.wall.now_ms();
    let mut turn = streams.turn.fetch_add(1, Ordering::Relaxed);
    let mut records: BTreeMap<u32, Vec<Record<'_>>> = BTreeMap::new();
    for (record, headers) in received.iter().zip(&headers) {
        let partition = record.partition.unwrap_or_else(|| match &record.key {
            Some(key) => partition_of_key(key, topic.config.partitions).0,
            None => {
                turn = turn.wrapping_add(1);
                turn % topic.config.partitions
            }
        });
        records.entry(partition).or_default().push(Record {
            timestamp_ms: record.timestamp_ms.unwrap_or(now_ms),
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers,
        });
    }
    let counts = records.iter().map(|(partition, records)| (*partition, records.len())).collect();
    let of_topic = |(partition, records)| (TopicPartition::new(topic.name.clone(), partition), records);
    let append = AtomicAppend { records: records.into_iter().map(of_topic).collect(), positions: Vec::new() };
    let (done, reply) = reply();
    streams.writer.commit(&append, level, done.failing_on_full_disk()).map_err(|error| problem(&error))?;
    Ok(Taken { counts, reply })
}

/// Checks a record against the topic's settings.
fn check(record: &Received<'_>, topic: &Topic) -> Result<(), Problem> {
    let refuse = |what, rule: String, remedy| Err(received::refused(record.at, record.text, what, rule, remedy));
    let partitions = topic.config.partitions;
    if let Some(partition) = record.partition.filter(|partition| *partition >= partitions) {
        let rule = format!("the topic has partitions 0 to {}", partitions - 1);
        return refuse(format!("partition {partition} does not exist"), rule, "choose one of them, or leave it out");
    }
    let (size, limit) = (record.size_bytes(), topic.config.record_max_bytes);
    if size > limit {
        let rule = format!("record_max_bytes of the topic is {limit}");
        return refuse(format!("a record of {size} bytes is too large"), rule, "split it, or raise the topic's limit");
    }
    if topic.config.cleanup.compacts() && record.key.is_none() {
        let rule = "a compacted topic keeps the last record of each key".to_owned();
        return refuse("it has no key".to_owned(), rule, "give each record a key");
    }
    Ok(())
}

fn level(parameters: &AppendParameters, topic: &Topic) -> Result<AckLevel, Problem> {
    let Some(ack) = &parameters.ack else { return Ok(topic.config.level) };
    settings::level(ack).ok_or_else(|| bad_parameter("ack", ack, "use memory, written or synced"))
}

fn format(parameters: &AppendParameters) -> Result<Format, Problem> {
    match parameters.format.as_deref() {
        None | Some("records") => Ok(Format::Records),
        Some("values") => Ok(Format::Values),
        Some(other) => Err(bad_parameter("format", other, "use records or values")),
    }
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_ENCODING).map(|value| String::from_utf8_lossy(value.as_bytes()));
    match given.filter(|encoding| !encoding.trim().eq_ignore_ascii_case("identity")) {
        None => Ok(()),
        Some(encoding) => Err(Problem::new(Reason::UnsupportedMediaType, "the body has a content encoding")
            .value(encoding)
            .rule("records are appended without Content-Encoding")
            .remedy("send the body as it is; the topic's setting 'compression' says how it is stored")),
    }
}

fn framing(headers: &HeaderMap) -> Result<Framing, Problem> {
    let given = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
    match given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Framing::Ndjson),
        "application/json" => Ok(Framing::Array),
        _ => Err(Problem::new(Reason::UnsupportedMediaType, "the body is neither NDJSON nor JSON")
            .value(&given)
            .rule("Content-Type: application/x-ndjson or application/json")
            .remedy("send one of them")),
    }
}
