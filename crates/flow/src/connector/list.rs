//! The source `list`: records that stand in the document.

use serde_json::Value;

use super::{ConnectorContext, Polled, Source, Started};
use crate::Error;
use crate::batch::SourceBatch;
use crate::delivery::SourcePosition;
use crate::document::{Key, KeyType, NodeType, Role};

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
            doc: "A list of objects. The member `$key` is the record's key and no part of its payload.",
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
    match records.iter().position(|record| !record.is_object()) {
        Some(at) => Err(format!("element {at} is no object; every record is one")),
        None => Ok(()),
    }
}

struct List {
    records: Vec<Value>,
    next: usize,
    step: usize,
    is_open: bool,
    now_ms: i64,
}

pub(super) fn source(context: &ConnectorContext<'_>) -> Result<Box<dyn Source>, Error> {
    let records = context.node.config.get("records").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(Box::new(List {
        records,
        next: context.instance as usize,
        step: context.instances as usize,
        is_open: context.node.config.get("open") == Some(&Value::Bool(true)),
        now_ms: context.wall.now_ms(),
    }))
}

impl Source for List {
    fn start(&mut self) -> Result<Started, Error> {
        Ok(Started::Yes)
    }

    fn poll(&mut self, max_records: usize) -> Result<Polled, Error> {
        let mut batch = SourceBatch::default();
        while let Some(record) = self.records.get(self.next).filter(|_| batch.len() < max_records) {
            let mut payload = record.clone();
            let key = payload.as_object_mut().and_then(|members| members.shift_remove("$key"));
            let key = key.map(|key| key.as_str().map_or_else(|| key.to_string(), str::to_owned));
            batch.push(self.next as u64, key.as_deref().map(str::as_bytes), self.now_ms, |out| {
                out.extend_from_slice(payload.to_string().as_bytes());
            });
            self.next += self.step;
        }
        if batch.is_empty() {
            return Ok(if self.is_open { Polled::NotYet(None) } else { Polled::End });
        }
        let position = SourcePosition::after(self.next as u64);
        Ok(Polled::Batch(batch.finish(), position))
    }

    fn finished(&mut self, _up_to: &[SourcePosition]) -> Option<std::time::Duration> {
        None
    }

    fn is_settled(&self) -> bool {
        true
    }
}
