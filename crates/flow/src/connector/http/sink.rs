//! The sink `http`: one batch at a time, whose requests go in lanes: records of one key share a lane, and keep their order.
//!
//! Invariant: a batch's claim is dropped once all its requests are answered 2xx; one that is given up fails it.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};

use super::request::{KeyMaker, Per, PostRequest, requests};
use super::sender::{SendError, Sender};
use super::thread::HttpThread;
use crate::Error;
use crate::batch::Batch;
use crate::connector::{ConnectorContext, Preparation, RefusedRecords, Sink, Waker, Written, refused};
use crate::delivery::BatchAck;
use crate::document::{Key, KeyType, NodeType, Role, duration_ms};
use crate::expression::RecordError;
use crate::object;

pub(in crate::connector) const SINK: NodeType = NodeType {
    name: "http",
    role: Role::Sink,
    summary: "Sends records to a server by POST, at least once, each request with the same `Idempotency-Key` in every attempt.",
    keys: &[
        Key {
            name: "url",
            value: KeyType::Url,
            is_required: true,
            default: None,
            doc: "The address; its host must be among `flow.http_allowed_targets`, if there are any.",
        },
        Key {
            name: "per",
            value: KeyType::OneOf(&["batch", "record"]),
            is_required: false,
            default: Some("batch"),
            doc: "`batch` sends an array of records, `record` each by itself.",
        },
        Key {
            name: "headers",
            value: KeyType::Checked(check_headers),
            is_required: false,
            default: None,
            doc: "Further headers: an object of texts. They stand in the document for everybody who may read it.",
        },
        Key {
            name: "timeout",
            value: KeyType::Duration,
            is_required: false,
            default: Some("10s"),
            doc: "Longest wait for an answer.",
        },
        Key {
            name: "retries",
            value: KeyType::Whole(0, 1_000),
            is_required: false,
            default: Some("10"),
            doc: "Further attempts after 408, 429, 5xx and without an answer, with pauses from 100 ms up to 30 s.",
        },
        Key {
            name: "concurrency",
            value: KeyType::Whole(1, 64),
            is_required: false,
            default: Some("1"),
            doc: "Requests of an instance that are on their way at a time. Records of one key are sent in order.",
        },
    ],
    can_end: false,
    keeps_state: false,
};

fn check_headers(value: &Value) -> Result<(), String> {
    read_headers(value).map(drop)
}

/// Headers that belong to the connection or to the length of the body.
const OWN_HEADERS: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];

fn read_headers(value: &Value) -> Result<HeaderMap, String> {
    let headers = value.as_object().ok_or("write an object such as {X-Site: north}")?;
    headers
        .iter()
        .map(|(name, value)| {
            let text = value.as_str().ok_or_else(|| format!("the value of '{name}' is no text; put it into quotes"))?;
            let name = HeaderName::try_from(name).map_err(|_| format!("'{name}' is no name of a header"))?;
            if OWN_HEADERS.contains(&name) {
                return Err(format!("'{name}' is set by the server for each request; remove it"));
            }
            let value =
                HeaderValue::try_from(text).map_err(|_| format!("the value of '{name}' has control characters"))?;
            Ok((name, value))
        })
        .collect()
}

type SentBatch = Arc<Mutex<Option<Batch>>>;
type Refused = Arc<Mutex<Vec<RefusedRecords>>>;

struct HttpSink {
    node: String,
    per: Per,
    lanes: usize,
    keys: KeyMaker,
    sender: Arc<Sender>,
    thread: Arc<HttpThread>,
    waker: Waker,
    /// The batch that is on its way; the task takes it out at its end.
    sending: SentBatch,
    task: Option<AbortHandle>,
    failure: Arc<Mutex<Option<Error>>>,
    /// Records that were given up; `None` if the first of them is to fail the job.
    refused: Option<Refused>,
}

pub(in crate::connector) fn sink(context: &ConnectorContext<'_>) -> Result<Box<dyn Sink>, Error> {
    let (config, node) = (&context.node.config, &context.node.name);
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    let refuse = |key: &str, fault: String| Error::plan(node, &format!("config.{key}"), fault);
    let url = text("url").unwrap_or_default();
    let uri: Uri = url.parse().map_err(|error| refuse("url", format!("'{url}' is no URL: {error}")))?;
    let thread = Arc::clone(&context.services()?.http);
    thread
        .outgoing
        .targets
        .check(uri.host().unwrap_or_default().trim_matches(['[', ']']))
        .map_err(|fault| refuse("url", fault))?;
    let headers = config.get("headers").map(read_headers).transpose().map_err(|fault| refuse("headers", fault))?;
    let timeout = Duration::from_millis(text("timeout").and_then(duration_ms).unwrap_or(10_000));
    let retries = config.get("retries").and_then(Value::as_u64).unwrap_or(10) as u32;
    let pauses = Arc::clone(&context.tell_pause);
    let sender = Sender::new(&thread.outgoing, uri, headers.unwrap_or_default(), timeout, retries, pauses);
    let sender = sender.map_err(|fault| refuse("url", fault))?;
    Ok(Box::new(HttpSink {
        node: node.clone(),
        per: if text("per") == Some("record") { Per::Record } else { Per::Batch },
        lanes: config.get("concurrency").and_then(Value::as_u64).unwrap_or(1) as usize,
        keys: KeyMaker {
            job: format!("{}/{}", context.tenant, context.job),
            submission: format!("{}/{}", context.tenant, context.job_id),
            node: node.clone(),
        },
        sender: Arc::new(sender),
        thread,
        waker: Arc::clone(&context.waker),
        sending: Arc::default(),
        task: None,
        failure: Arc::default(),
        refused: context.routes_errors.then(Refused::default),
    }))
}

/// The records of a batch that share a lane, with their requests.
struct Lane {
    batch: Batch,
    requests: Vec<PostRequest>,
}

impl Lane {
    /// Sends the requests in order. Gathers the records of those that are given up, if there is somebody to take them.
    async fn send(
        self,
        sender: &Sender,
        sending: &SentBatch,
        refused: Option<&Refused>,
        node: &str,
    ) -> Result<(), Error> {
        for request in self.requests {
            match (sender.send(&request).await, refused) {
                (Ok(()), _) => {}
                (Err(SendError { code, message }), None) => {
                    let (row, record) = (request.rows.start as u32, request.records);
                    return Err(Error::Record { node: node.to_owned(), code, row, record, message });
                }
                (Err(SendError { code, message }), Some(refused)) => {
                    let batch = self.batch.select(request.rows.start as u32..request.rows.end as u32);
                    let failed = (0..batch.len() as u32).map(|row| RecordError { row, code, message: message.clone() });
                    let failed = failed.collect();
                    refused.lock().push(RefusedRecords { batch, failed });
                }
            }
            sending.lock().iter().filter_map(Batch::ack).for_each(BatchAck::part_is_written);
        }
        Ok(())
    }
}

/// Sends the requests of all lanes at the same time. The first failure ends all.
async fn send_all(
    sender: &Arc<Sender>,
    lanes: Vec<Lane>,
    sending: &SentBatch,
    refused: Option<&Refused>,
    node: &str,
) -> Result<(), Error> {
    let mut running = JoinSet::new();
    for lane in lanes {
        let (sender, sending) = (Arc::clone(sender), Arc::clone(sending));
        let (refused, node) = (refused.cloned(), node.to_owned());
        running.spawn(async move { lane.send(&sender, &sending, refused.as_ref(), &node).await });
    }
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| Error::connector(node, format!("a request broke off: {error}")))??;
    }
    Ok(())
}

/// The rows in up to `count` parts. Rows of one key are in one part, in their order.
fn lanes(batch: &Batch, count: usize) -> Vec<Batch> {
    if count == 1 {
        return vec![batch.clone()];
    }
    let hash = BuildHasherDefault::<DefaultHasher>::default();
    let mut rows = vec![Vec::new(); count];
    for row in 0..batch.len() {
        let hashed = match batch.key(row) {
            Some(key) => hash.hash_one(key),
            // Rows of one source record stay together: they count on in the names of their requests.
            None => hash.hash_one(batch.offset(row).0),
        };
        rows[(hashed % count as u64) as usize].push(row as u32);
    }
    rows.into_iter().filter(|rows| !rows.is_empty()).map(|rows| batch.select(rows)).collect()
}

impl Sink for HttpSink {
    fn write(&mut self, batch: &Batch) -> Result<Written, Error> {
        if self.sending.lock().is_some() {
            return Ok(Written::NotYet(None));
        }
        self.check()?;
        if let Some(row) = (0..batch.len()).find(|row| !batch.payload(*row).is_some_and(object::is_object)) {
            let message = "the payload is not a JSON object; requests have only such records".to_owned();
            return Err(refused(&self.node, batch, row, "invalid_json", message));
        }
        let lane = |batch: Batch| Lane { requests: requests(&batch, self.per, &self.keys), batch };
        let lanes: Vec<Lane> = lanes(batch, self.lanes).into_iter().map(lane).collect();
        let refused = self.refused.clone();
        let (sender, node, waker) = (Arc::clone(&self.sender), self.node.clone(), Arc::clone(&self.waker));
        let (failure, sending) = (Arc::clone(&self.failure), Arc::clone(&self.sending));
        *self.sending.lock() = Some(batch.clone());
        let task = self.thread.run(async move {
            if let Err(error) = send_all(&sender, lanes, &sending, refused.as_ref(), &node).await {
                sending.lock().iter().filter_map(Batch::ack).for_each(BatchAck::fail);
                *failure.lock() = Some(error);
            }
            let sent = sending.lock().take();
            drop(sent);
            waker();
        });
        let task = task.map_err(|error| Error::connector(&self.node, format!("requests cannot be sent: {error}")))?;
        self.task = Some(task);
        Ok(Written::Taken)
    }

    fn prepare(&mut self) -> Result<Preparation, Error> {
        if self.sending.lock().is_some() {
            return Ok(Preparation::NotYet(None));
        }
        self.check()?;
        // Records that were given up take their error routes first.
        let has_refused = self.refused.as_ref().is_some_and(|refused| !refused.lock().is_empty());
        Ok(if has_refused { Preparation::NotYet(Some(Duration::ZERO)) } else { Preparation::Done(None) })
    }

    fn check(&mut self) -> Result<(), Error> {
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    fn take_refused(&mut self) -> Vec<RefusedRecords> {
        self.refused.as_ref().map(|refused| std::mem::take(&mut *refused.lock())).unwrap_or_default()
    }
}

impl Drop for HttpSink {
    fn drop(&mut self) {
        // What is not answered is not written, and a later run sends it again.
        self.sending.lock().iter().filter_map(Batch::ack).for_each(BatchAck::fail);
        self.take_refused().iter().filter_map(|refused| refused.batch.ack()).for_each(BatchAck::fail);
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn headers_are_names_with_texts() {
        assert_eq!(read_headers(&json!({"X-Site": "north"})).unwrap()["x-site"], "north");
        let own = ["Host", "content-length", "Transfer-Encoding", "Connection"].map(|name| json!({ name: "1" }));
        let faulty = [json!([]), json!({"a b": "x"}), json!({"a": 7}), json!({"a": "x\ny"})];
        for refused in faulty.into_iter().chain(own) {
            assert!(read_headers(&refused).is_err(), "{refused}");
        }
    }
}
