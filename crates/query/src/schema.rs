//! The schema of a stream: the fields that some of its records have, sampled on request.
//!
//! Nothing is stored between requests. A request samples records, half of them the latest and half spread over the whole
//! log, so that fields that were added or removed show up too. The answer is reused for a second.

mod bullet;
mod field;
mod look;
mod node;
mod observed;
mod sample;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::TopicName;
use parking_lot::Mutex;

pub use self::field::{Schema, SchemaField};
use self::observed::Observed;
use crate::SchemaConfig;
use crate::live::LiveStream;
use crate::read_error::ReadError;

/// Time for which a sampled schema is reused.
const FRESH: Duration = Duration::from_secs(1);
/// Number of streams whose schema is remembered.
const REMEMBERED_MAX: usize = 64;

/// The schemas that were sampled recently.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    known: Mutex<HashMap<TopicName, (Duration, Arc<Schema>)>>,
}

impl Schemas {
    /// The stream's schema. Blocks on disks, and samples again after a second.
    pub(crate) fn of(
        &self,
        stream: &LiveStream,
        config: &SchemaConfig,
        now: Duration,
    ) -> Result<Arc<Schema>, ReadError> {
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
        // Sampling a stream without records is cheap, and its first record may arrive soon.
        if known.len() < REMEMBERED_MAX && schema.records > 0 {
            known.insert(stream.topic.name.clone(), (now, schema.clone()));
        }
        Ok(schema)
    }
}
