//! The source `file`: the records of one file, once, in order.
//!
//! Its place is the number of records that are finished. A run that starts again passes over so many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::csv::{ColumnType, TYPES};
use super::location::{Location, check_path};
use super::no_files::NoFiles;
use super::reader::{Chunk, ReadPlan, RecordReader};
use super::{COMPRESSION, FORMAT, FileFormat, file_form};
use crate::Error;
use crate::connector::{ConnectorContext, Places, Polled, Services, Source, Started, Waker};
use crate::delivery::SourcePosition;
use crate::document::{Key, KeyType, NodeType, Role};

pub(in crate::connector) const SOURCE: NodeType = NodeType {
    name: "file",
    role: Role::Source,
    summary: "Reads a file of JSON lines or CSV, once, in order. One instance reads; a restart goes on behind what is finished.",
    keys: &[
        Key {
            name: "path",
            value: KeyType::Checked(check_path),
            is_required: true,
            default: None,
            doc: "The file, below the tenant's folder in `flow.files_dir`.",
        },
        FORMAT,
        COMPRESSION,
        Key {
            name: "types",
            value: KeyType::Checked(check_types),
            is_required: false,
            default: None,
            doc: "CSV: `text`, `number`, `boolean` or `json` by column; an empty field of the last three is null. Other columns are texts.",
        },
        Key {
            name: "infer",
            value: KeyType::Bool,
            is_required: false,
            default: Some("false"),
            doc: "CSV: in columns without a type, fields that read as numbers or booleans become such, and empty ones null.",
        },
    ],
    can_end: true,
    keeps_state: false,
};

/// Pause between two stores of the place.
const STORE_EVERY: Duration = Duration::from_secs(1);

fn check_types(value: &Value) -> Result<(), String> {
    read_types(value).map(drop)
}

fn read_types(value: &Value) -> Result<BTreeMap<String, ColumnType>, String> {
    let types = value.as_object().ok_or("write an object such as {temp: number}")?;
    let kind = |word: &Value| TYPES.iter().find(|(known, _)| word == known).map(|(_, kind)| *kind);
    types
        .iter()
        .map(|(column, word)| {
            let known = || TYPES.map(|(word, _)| word).join(", ");
            let kind = kind(word).ok_or_else(|| format!("{word} is no type of column '{column}'; use {}", known()))?;
            Ok((column.clone(), kind))
        })
        .collect()
}

struct FileSource {
    node: String,
    plan: ReadPlan,
    services: Services,
    places: Option<Arc<dyn Places>>,
    waker: Waker,
    state: State,
    /// A place that is not stored yet.
    unstored: Option<u64>,
    is_storing: Arc<AtomicBool>,
    last_stored: Option<Duration>,
}

enum State {
    Closed,
    Reading(Pending),
    /// All records are handed out.
    Ended,
}

type Pending = Arc<Mutex<Option<Result<(RecordReader, Chunk), String>>>>;

pub(in crate::connector) fn source(context: &ConnectorContext<'_>) -> Result<Box<dyn Source>, Error> {
    let config = &context.node.config;
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    let refuse = |key: &str, fault: String| Error::plan(&context.node.name, &format!("config.{key}"), fault);
    let path = text("path").unwrap_or_default();
    let form = file_form(path, text("format"), text("compression"), None);
    let (format, compression) = form.map_err(|(key, fault)| refuse(key, fault))?;
    let types = config.get("types").map(read_types).transpose().map_err(|fault| refuse("types", fault))?;
    let infers = config.get("infer") == Some(&Value::Bool(true));
    if format == FileFormat::JsonLines && (types.is_some() || infers) {
        return Err(refuse(
            "types",
            "types and infer are for CSV, and the file has JSON lines; leave them out".to_owned(),
        ));
    }
    let Some(files) = &context.services()?.files else {
        return Ok(Box::new(NoFiles { path: path.to_owned() }));
    };
    let location = Location::new(files.dir(), context.tenant, path);
    let plan = ReadPlan {
        location: location.map_err(|fault| refuse("path", fault))?,
        format,
        compression,
        types: types.unwrap_or_default(),
        other_type: if infers { ColumnType::Inferred } else { ColumnType::Text },
    };
    Ok(Box::new(FileSource {
        node: context.node.name.clone(),
        plan,
        services: context.services()?.clone(),
        places: context.places.clone(),
        waker: Arc::clone(&context.waker),
        state: if context.instance == 0 { State::Closed } else { State::Ended },
        unstored: None,
        is_storing: Arc::default(),
        last_stored: None,
    }))
}

impl FileSource {
    /// Reads the next chunk in the background; opens the file first, if there is no reader.
    fn read(&mut self, reader: Option<RecordReader>, max_records: usize) {
        let pending = Pending::default();
        self.state = State::Reading(Arc::clone(&pending));
        let (plan, places, node) = (self.plan.clone(), self.places.clone(), self.node.clone());
        let (waker, wall) = (Arc::clone(&self.waker), Arc::clone(&self.services.wall));
        self.services.blocking.run(move || {
            let read = || {
                let skipped = || places.map_or(0, |places| places.records_read(&node));
                let mut reader = reader.map_or_else(|| RecordReader::open(plan, skipped()), Ok)?;
                let chunk = reader.read(max_records, wall.now_ms())?;
                Ok((reader, chunk))
            };
            *pending.lock() = Some(read());
            waker();
        });
    }

    /// Stores the place in the background.
    fn store(&mut self) -> Option<Duration> {
        let (records_read, places) = self.unstored.zip(self.places.clone())?;
        if self.is_storing.load(Ordering::Acquire) {
            return None;
        }
        let now = self.services.clock.now();
        let wait = self.last_stored.and_then(|last| (last + STORE_EVERY).checked_sub(now));
        if let Some(wait) = wait.filter(|_| !matches!(self.state, State::Ended)) {
            return Some(wait);
        }
        self.is_storing.store(true, Ordering::Release);
        (self.unstored, self.last_stored) = (None, Some(now));
        let (node, waker, is_storing) = (self.node.clone(), Arc::clone(&self.waker), Arc::clone(&self.is_storing));
        self.services.blocking.run(move || {
            if !places.store(&node, records_read) {
                tracing::warn!(
                    node,
                    records_read,
                    "the place in a file is not stored; a restart reads more of it again"
                );
            }
            is_storing.store(false, Ordering::Release);
            waker();
        });
        None
    }
}

impl Source for FileSource {
    fn start(&mut self) -> Result<Started, Error> {
        Ok(Started::Yes)
    }

    fn poll(&mut self, max_records: usize) -> Result<Polled, Error> {
        let pending = match &self.state {
            State::Ended => return Ok(Polled::End),
            State::Closed => {
                self.read(None, max_records);
                return Ok(Polled::NotYet(None));
            }
            State::Reading(pending) => Arc::clone(pending),
        };
        let Some(read) = pending.lock().take() else { return Ok(Polled::NotYet(None)) };
        let (reader, chunk) = read.map_err(|fault| Error::connector(&self.node, fault))?;
        if chunk.is_last {
            self.state = State::Ended;
        } else {
            self.read(Some(reader), max_records);
        }
        let position = SourcePosition::after(chunk.records_read);
        Ok(match chunk {
            Chunk { batch, .. } if batch.is_empty() => Polled::End,
            Chunk { batch, failed, .. } if failed.is_empty() => Polled::Batch(batch, position),
            Chunk { batch, failed, .. } => Polled::WithErrors(batch, failed, position),
        })
    }

    fn finished(&mut self, up_to: &[SourcePosition]) -> Option<Duration> {
        if let (Some(last), Some(_)) = (up_to.last(), &self.places) {
            self.unstored = Some(last.offset);
        }
        self.store()
    }

    fn is_settled(&self) -> bool {
        self.unstored.is_none() && !self.is_storing.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_words_by_column() {
        assert_eq!(read_types(&json!({"temp": "number"})).unwrap()["temp"], ColumnType::Number);
        for refused in [json!("number"), json!({"temp": "float"}), json!({"temp": 7})] {
            assert!(read_types(&refused).is_err(), "{refused}");
        }
    }
}
