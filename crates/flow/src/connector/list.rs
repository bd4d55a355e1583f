//! The source `list`: records that stand in the document.

use std::sync::Arc;
use std::time::Duration;

use millstream_columns::{Value as ColumnValue, time_ms};
use millstream_types::WallClock;
use serde_json::Value;

use super::{ConnectorContext, Polled, Source, Started};
use crate::Error;
use crate::batch::SourceBatch;
use crate::delivery::SourcePosition;
use crate::document::{Key, KeyType, NodeType, Role};

/// The member of the configuration by which a test lets time pass after the last record.
pub(crate) const TICK_MS: &str = "$tick_ms";

pub(super) const SOURCE: NodeType = NodeType {
    name: "list",
    role: Role::Source,
    summary: "Reads the records that stand in the document, once, in order.",
    keys: &[
        Key {
            name: "records",
            value: KeyType::Checked(check_records),
            is_required: true,
            default: None,
            doc: "A list of objects. The members `$key` and `$timestamp` (milliseconds since 1970, or a text as in RFC 3339) are the record's key and time and no part of its payload.",
        },
        Key {
            name: "open",
            value: KeyType::Bool,
            is_required: false,
            default: Some("false"),
            doc: "`true` to wait after the last record instead of ending.",
        },
    ],
    can_end: true,
    keeps_state: false,
};

fn check_records(value: &Value) -> Result<(), String> {
    let records = value.as_array().ok_or("write a list of objects")?;
    if let Some(at) = records.iter().position(|record| !record.is_object()) {
        return Err(format!("element {at} is no object; every record is one"));
    }
    match records.iter().position(|record| record.get("$timestamp").is_some_and(|time| read_time(time).is_none())) {
        Some(at) => Err(format!("$timestamp of element {at} is no time; write milliseconds, or a text as in RFC 3339")),
        None => Ok(()),
    }
}

/// A time in milliseconds since 1970-01-01T00:00:00Z.
fn read_time(value: &Value) -> Option<i64> {
    let value = match value {
        Value::Number(number) => ColumnValue::Integer(number.as_i64()?),
        Value::String(text) => ColumnValue::Text(text.as_str().into()),
        _ => return None,
    };
    time_ms(&value).ok().flatten()
}

struct List {
    records: Vec<Value>,
    next: usize,
    step: usize,
    is_open: bool,
    wall: Arc<dyn WallClock>,
    /// The time between the last record and the end, in a test.
    tick_ms: i64,
    ends_at_ms: Option<i64>,
}

pub(super) fn source(context: &ConnectorContext<'_>) -> Result<Box<dyn Source>, Error> {
    let records = context.node.config.get("records").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(Box::new(List {
        records,
        next: context.instance as usize,
        step: context.instances as usize,
        is_open: context.node.config.get("open") == Some(&Value::Bool(true)),
        wall: Arc::clone(context.wall),
        tick_ms: context.node.config.get(TICK_MS).and_then(Value::as_i64).unwrap_or_default(),
        ends_at_ms: None,
    }))
}

impl Source for List {
    fn start(&mut self) -> Result<Started, Error> {
        Ok(Started::Yes)
    }

    fn poll(&mut self, max_records: usize) -> Result<Polled, Error> {
        let now_ms = self.wall.now_ms();
        let mut batch = SourceBatch::default();
        while let Some(record) = self.records.get(self.next).filter(|_| batch.len() < max_records) {
            let mut payload = record.clone();
            let key = payload.as_object_mut().and_then(|members| members.shift_remove("$key"));
            let time = payload.as_object_mut().and_then(|members| members.shift_remove("$timestamp"));
            let time_ms = time.and_then(|time| read_time(&time)).unwrap_or(now_ms);
            let key = key.map(|key| key.as_str().map_or_else(|| key.to_string(), str::to_owned));
            batch.push(self.next as u64, key.as_deref().map(str::as_bytes), time_ms, |out| {
                out.extend_from_slice(payload.to_string().as_bytes());
            });
            self.next += self.step;
        }
        if batch.is_empty() {
            if self.is_open {
                return Ok(Polled::NotYet(None));
            }
            let left_ms = self.ends_at_ms.get_or_insert(now_ms.saturating_add(self.tick_ms)).saturating_sub(now_ms);
            let left = u64::try_from(left_ms).map(Duration::from_millis).unwrap_or_default();
            return Ok(if left.is_zero() { Polled::End } else { Polled::NotYet(Some(left)) });
        }
        let position = SourcePosition::after(self.next as u64);
        Ok(Polled::Batch(batch.finish(), position))
    }

    fn finished(&mut self, _up_to: &[SourcePosition]) -> Option<Duration> {
        None
    }

    fn is_settled(&self) -> bool {
        true
    }
}
