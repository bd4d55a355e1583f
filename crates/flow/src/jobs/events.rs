//! The topic `_job_events`: each submission, start, failure and end of all tenants' jobs, and what was asked of them, in order.
//!
//! | part | |
//! | --- | --- |
//! | key | the id of the job |
//! | value | JSON: `event`, `job`, `name`, and what belongs to the event |
//! | header `tenant` | the tenant |
//!
//! An event is appended together with the change of the job's record that it tells, so it is there if and only if the change is.
//! Epochs have none.

use std::borrow::Cow;
use std::time::Duration;

use millstream_log::{Log, TopicConfig, Writers};
use millstream_types::{StateTopic, TopicName, TopicPartition};
use millstream_view::Publish;
use serde_json::{Value, json};

use super::record::{JobRecord, JobState};

/// The header with the tenant of an event.
pub const EVENT_TENANT_HEADER: &str = "tenant";

/// Events older than this may be removed.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Bytes of events beyond which the oldest are removed, and of the parts in which they are.
const RETENTION_BYTES: u64 = 64 << 20;
const SEGMENT_BYTES: u64 = 8 << 20;
/// Characters of a reason; the whole of it is in the job's errors.
const REASON_MAX_CHARS: usize = 2_000;

/// Makes the topic if it does not exist.
///
/// # Errors
/// The log cannot make it.
pub(super) fn open_topic(log: &dyn Log) -> Result<(), millstream_log::Error> {
    let name = TopicName::internal(StateTopic::JobEvents);
    if log.topic(&name).is_some() {
        return Ok(());
    }
    let config = TopicConfig {
        partitions: 1,
        writers: Writers::OwnersOnly,
        retention: Some(RETENTION),
        retention_bytes: Some(RETENTION_BYTES),
        segment_bytes: SEGMENT_BYTES,
        ..TopicConfig::default()
    };
    log.create_topic(&name, &config).map(drop)
}

/// The place of all events.
pub(super) fn partition() -> TopicPartition {
    TopicPartition::new(TopicName::internal(StateTopic::JobEvents), 0)
}

/// The event of a job that begins to run.
pub(super) fn started(record: &JobRecord, now_ms: i64) -> Publish {
    event(record, now_ms, "started", json!({"restarts": record.restarts}))
}

/// The event of a change of a job's record; `None` for one that tells nothing new. `replaced_by` is the job that waits to take its
/// place.
pub(super) fn of_change(
    before: Option<&JobRecord>,
    after: Option<&JobRecord>,
    replaced_by: Option<&str>,
    now_ms: i64,
) -> Option<Publish> {
    let (record, name, details) = match (before, after) {
        (None, Some(after)) => {
            let resumes = after.resumes.as_ref().map(|resumes| &resumes.job);
            (after, "submitted", json!({"by": after.submitted_by, "hash": after.hash, "resumed_from": resumes}))
        }
        // A job that has ended is forgotten without a word.
        (Some(before), None) if before.state == JobState::Running => (before, "withdrawn", json!({})),
        (_, None) => return None,
        (Some(before), Some(after)) => {
            let reason = || after.error.as_ref().map(|error| json!({"node": error.node, "reason": error.message}));
            if before.state != after.state {
                let mut details = reason().unwrap_or_else(|| json!({}));
                details["replaced_by"] = json!(replaced_by);
                (after, after.state.as_str(), details)
            } else if before.restarts != after.restarts {
                (after, "restarting", reason().unwrap_or_else(|| json!({})))
            } else if before.ending != after.ending {
                (after, "stopping", json!({"to": after.ending.map(JobState::as_str)}))
            } else if before.parallelism != after.parallelism {
                (after, "rescaled", json!({"parallelism": after.parallelism}))
            } else {
                match (&before.paused, &after.paused) {
                    (None, Some(reason)) => (after, "paused", json!({"reason": reason})),
                    (Some(_), None) => (after, "resumed", json!({})),
                    _ => return None,
                }
            }
        }
    };
    Some(event(record, now_ms, name, details))
}

fn event(record: &JobRecord, now_ms: i64, name: &str, details: Value) -> Publish {
    let mut told = json!({"event": name, "job": record.id, "name": record.name});
    for (key, value) in details.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        told[key.as_str()] = match value.as_str() {
            Some(text) if key == "reason" => text.chars().take(REASON_MAX_CHARS).collect::<String>().into(),
            _ => value.clone(),
        };
    }
    Publish {
        timestamp_ms: now_ms,
        key: Some(record.id.clone().into_bytes()),
        value: Some(told.to_string().into_bytes()),
        headers: vec![(Cow::Borrowed(EVENT_TENANT_HEADER), record.tenant.clone().into_bytes())],
    }
}
