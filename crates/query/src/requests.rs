//! Queries that are requested by records: each record in a tenant's topic `<query.requests_topic>.<tenant>` is a request as
//! for HTTP, and its results go into a topic.
//!
//! A record does not tell who appended it, and what it asks has the rights of the whole tenant. So a topic counts only
//! while it is [`Writers::OwnersOnly`]: then nobody but the tenant's administrators appends to it.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_log::{Bell, Error as LogError, Log, Partition, UpTo, Writers};
use millstream_types::{Offset, RecordView, TenantId, TopicPartition, header};
use serde::Deserialize;

use crate::deliveries::{Deliveries, Requester};
use crate::stream_batch::readable;
use crate::{Deliver, Error, QueryId, QueryRequest};

/// Bytes of a partition that are read at once.
const READ_BYTES: usize = 256 << 10;
/// The account of `quota.*` for answers: a record does not name its writer.
const CLIENT: &str = "queries";

/// The members of a record beside the request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kill {
    kill: QueryId,
}

/// The position in one partition.
struct PartitionCursor {
    partition: Arc<dyn Partition>,
    next: Offset,
}

/// The topics in which queries are asked.
pub struct Requests {
    deliveries: Arc<Deliveries>,
    bell: Arc<Bell>,
    cursors: HashMap<TopicPartition, PartitionCursor>,
}

impl Requests {
    /// Reads existing topics from their ends, and topics that are created later from their beginnings.
    pub fn new(deliveries: Arc<Deliveries>) -> Self {
        let mut requests = Self { deliveries, bell: Arc::default(), cursors: HashMap::new() };
        requests.log().watch_topics(&requests.bell);
        requests.discover(|partition| partition.offsets().stable);
        requests
    }

    /// Handles requests until it is dropped.
    pub async fn run(mut self) {
        loop {
            self.discover(|partition| partition.offsets().first);
            let known: Vec<TopicPartition> = self.cursors.keys().cloned().collect();
            let mut has_moved = false;
            for partition in known {
                has_moved |= self.advance(&partition).await;
            }
            if !has_moved {
                self.bell.rung().await;
            }
        }
    }

    fn log(&self) -> &Arc<dyn Log> {
        self.deliveries.engine().log()
    }

    /// Adds new topics, and drops deleted ones.
    fn discover(&mut self, begin: impl Fn(&dyn Partition) -> Offset) {
        let mut topics = self.log().topics();
        topics.retain(|topic| {
            topic.config.writers == Writers::OwnersOnly && self.deliveries.engine().is_asked_in(&topic.name)
        });
        self.cursors.retain(|partition, cursor| {
            topics.iter().any(|topic| topic.name == partition.topic && topic.id == cursor.partition.topic().id)
        });
        for topic in topics {
            for number in 0..topic.config.partitions {
                let id = TopicPartition::new(topic.name.clone(), number);
                if self.cursors.contains_key(&id) {
                    continue;
                }
                let Ok(partition) = self.log().partition(&id) else { continue };
                partition.watch(&self.bell);
                let next = begin(&*partition);
                self.cursors.insert(id, PartitionCursor { partition, next });
            }
        }
    }

    /// Handles one piece of a partition; false if there was none.
    async fn advance(&mut self, id: &TopicPartition) -> bool {
        let Some(PartitionCursor { partition, next }) = self.cursors.get(id) else { return false };
        let (partition, next) = (Arc::clone(partition), *next);
        let read = move || partition.read(next, READ_BYTES, UpTo::Stable);
        let batches = match tokio::task::spawn_blocking(read).await.unwrap_or(Err(LogError::Stopped)) {
            Ok(batches) => batches,
            Err(LogError::Trimmed { oldest, .. }) => return self.go_on(id, oldest),
            Err(error) => {
                tracing::warn!(partition = %id, %error, "requests for live queries cannot be read");
                self.cursors.remove(id);
                return false;
            }
        };
        let Some(end) = batches.last().map(|batch| batch.next_offset()) else { return false };
        for batch in &batches {
            match readable(batch) {
                Ok(Some(batch)) => {
                    for view in batch.records().flatten().filter(|view| view.offset >= next) {
                        self.take(id.topic.tenant(), &view).await;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(partition = %id, %error, "a batch of requests for live queries cannot be read")
                }
            }
        }
        self.go_on(id, end)
    }

    fn go_on(&mut self, id: &TopicPartition, next: Offset) -> bool {
        if let Some(cursor) = self.cursors.get_mut(id) {
            cursor.next = next;
        }
        true
    }

    /// Executes the request in a record; a refusal goes to the topic of the results.
    async fn take(&self, tenant: &TenantId, view: &RecordView<'_>) {
        let correlation = view.header(header::CORRELATION_ID).or(view.key);
        let correlation = correlation.and_then(|text| std::str::from_utf8(text).ok());
        let asker = Requester { tenant, client: CLIENT, correlation };
        let value = view.value.unwrap_or_default();
        if let Ok(Kill { kill }) = serde_json::from_slice(value) {
            // The query may have ended already.
            let _ = self.deliveries.engine().kill(tenant, kill);
            return;
        }
        let (topic, error) = match serde_json::from_slice::<QueryRequest>(value) {
            Ok(request) => {
                let topic = match &request.deliver {
                    Deliver::Topic(topic) => topic.clone(),
                    _ => return unanswerable(tenant, &Error::NoTopic),
                };
                match self.deliveries.begin(asker, request).await {
                    Ok(_) => return,
                    Err(error) => (topic, error),
                }
            }
            Err(wrong) => {
                let error = Error::NoRequest { what: wrong.to_string() };
                match topic_of(value) {
                    Some(topic) => (topic, error),
                    None => return unanswerable(tenant, &error),
                }
            }
        };
        if let Err(unfit) = self.deliveries.refuse(asker, &topic, &error).await {
            unanswerable(tenant, &unfit);
        }
    }
}

/// The topic that a request names which is otherwise none.
fn topic_of(value: &[u8]) -> Option<String> {
    let request: serde_json::Value = serde_json::from_slice(value).ok()?;
    Some(request["deliver"]["topic"].as_str()?.to_owned())
}

/// Logs an error that no client can be told.
fn unanswerable(tenant: &TenantId, error: &Error) {
    tracing::debug!(%tenant, %error, "a record that asks a live query names no topic that can take the answer");
}
