//! What the records of a stream look like: the fields that some of them have, seen as somebody asks.
//!
//! Nothing is kept while nobody asks. Whoever asks has some records looked at, half of them the latest and half spread
//! over what is kept, so that a field that has come or gone is seen too; the answer holds for a second.

mod bullet;
mod look;
mod node;
mod sample;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use millstream_types::TopicName;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::node::Observed;
use crate::stream::Stream;
use crate::tailed::Broken;
use crate::{Field, Step};

/// How long what was seen of a stream is told again.
const FRESH: Duration = Duration::from_secs(1);
/// Streams of which is remembered what was seen.
const REMEMBERED_MAX: usize = 64;

/// How closely streams are looked at when somebody asks for their fields (`query.schema`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchemaConfig {
    /// Most records of a stream that are looked at. Default 1,000.
    pub records_max: usize,
    /// Most bytes of a stream that are read for it, as they are stored. Default 8 MiB.
    pub read_max_bytes: usize,
    /// Most fields that are told; the first ones seen. Default 1,000.
    pub fields_max: usize,
    /// Into how many objects and lists, one in the other, it is looked. Default 8.
    pub depth_max: usize,
    /// Longest text that is told as an example, bytes; longer ones are cut. Default 64.
    pub example_max_bytes: usize,
}

impl Default for SchemaConfig {
    fn default() -> Self {
        Self { records_max: 1000, read_max_bytes: 8 << 20, fields_max: 1000, depth_max: 8, example_max_bytes: 64 }
    }
}

/// What the records of a stream have been seen to hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// The topic.
    pub stream: String,
    /// How many records were looked at.
    pub records: u64,
    /// How many of them are objects; others have no fields but those that begin with `$`.
    pub objects: u64,
    /// Whether there is a field that is not told, for one of `query.schema.fields_max` and `query.schema.depth_max`.
    pub cut: bool,
    /// The fields: `$key` and headers first, then those of the payload, each followed by its parts.
    pub fields: Vec<SchemaField>,
}

impl Schema {
    /// The fields of the payload that have been seen.
    pub(crate) fn payload_paths(&self) -> impl Iterator<Item = &[Step]> {
        self.fields.iter().filter_map(|seen| match &seen.field {
            Some(Field::Payload(steps)) => Some(steps.as_slice()),
            _ => None,
        })
    }
}

/// A field that some records have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemaField {
    /// As a query names it, such as `a.b`. Of a list only the first element is looked at: `a[0]`.
    pub path: String,
    /// In how many records it is of which type, as `TYPEOF` calls it, or `NULL`.
    pub types: BTreeMap<String, u64>,
    /// In which share of the records it is there and not null, from 0 to 1.
    pub present: f64,
    /// Some different values; none of lists and objects, whose parts are fields of their own.
    pub examples: Vec<Value>,
    /// The same for programs.
    #[serde(skip)]
    field: Option<Field>,
}

/// What has been seen of streams lately.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    known: Mutex<HashMap<TopicName, (Duration, Arc<Schema>)>>,
}

impl Schemas {
    /// What the stream's records look like; it waits for disks, and looks again once what is known is a second old.
    pub(crate) fn of(&self, stream: &Stream, config: &SchemaConfig, now: Duration) -> Result<Arc<Schema>, Broken> {
        if let Some((seen, schema)) = self.known.lock().get(&stream.topic.name)
            && now.saturating_sub(*seen) < FRESH
        {
            return Ok(schema.clone());
        }
        let mut observed = Observed::new(config);
        sample::records(stream, config, &mut observed)?;
        let schema = Arc::new(observed.schema(stream.topic.name.to_string()));
        let mut known = self.known.lock();
        known.retain(|_, (seen, _)| now.saturating_sub(*seen) < FRESH);
        // Of a stream without records the next look costs nothing, and somebody is about to send the first.
        if known.len() < REMEMBERED_MAX && schema.records > 0 {
            known.insert(stream.topic.name.clone(), (now, schema.clone()));
        }
        Ok(schema)
    }
}
