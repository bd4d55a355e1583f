//! A topic that takes the results of one query: a record for each row and window, at last one for its end.
//!
//! All of them stand in one partition, in their order. One append is on its way at a time; while the log or a quota holds
//! it up, rows wait in the query's outbox, whose bounds then end that query and no other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use millstream_log::{AckLevel, Error as LogError, Partition, reply};
use millstream_types::{Header, Quotas, Record, TenantId, Traffic, WallClock, header};
use serde::Serialize;
use serde_json::json;

use crate::outbox::Delivery;
use crate::{Cause, Subscription, Trouble};

/// Bytes of records that are appended at once, and the record that goes beyond.
const APPEND_BYTES: usize = 256 << 10;
/// How long the log is left alone when it has no room.
const PAUSE: Duration = Duration::from_millis(20);
/// How long it waits for a quota before it looks again.
const QUOTA_PAUSE: Duration = Duration::from_millis(100);
/// How long an end waits for room; nobody could be told more than that it did not fit.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Names of the headers of result records.
const QUERY: &str = "query-id";
const KIND: &str = "kind";
const SEQUENCE: &str = "sequence";
const WINDOW: &str = "window";

/// The kind of a record that stands for no query.
const PROBLEM: &str = "problem";

/// A topic as one query's results go into it.
pub(crate) struct Sink {
    pub(crate) partition: Arc<dyn Partition>,
    pub(crate) level: AckLevel,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) quotas: Arc<Quotas>,
    /// On whose accounts the records go.
    pub(crate) tenant: TenantId,
    pub(crate) client: String,
    /// The key of all records: the query's id, or what came in its place.
    pub(crate) key: String,
    /// What the records have in common with the request that asked for them.
    pub(crate) correlation: Option<String>,
    /// Records so far.
    pub(crate) sequence: u64,
}

/// Records on their way.
#[derive(Default)]
struct Batch {
    records: Vec<Outgoing>,
    size_bytes: usize,
    is_last: bool,
}

struct Outgoing {
    kind: &'static str,
    window: Option<u64>,
    value: Vec<u8>,
}

impl Batch {
    fn push(&mut self, kind: &'static str, window: Option<u64>, value: Vec<u8>) {
        self.size_bytes += value.len();
        self.records.push(Outgoing { kind, window, value });
    }

    fn push_json(&mut self, kind: &'static str, window: Option<u64>, value: &impl Serialize) {
        let value = serde_json::to_vec(value).expect("what is told about a query has string keys only");
        self.push(kind, window, value);
    }

    fn add(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Rows(rows) => rows.rows().for_each(|row| self.push("row", None, row.to_vec())),
            Delivery::Window(window) => {
                let number = Some(window.meta.number);
                window.rows.rows().for_each(|row| self.push("row", number, row.to_vec()));
                self.push_json("window", number, &window.meta);
            }
            Delivery::End(meta) => {
                self.is_last = true;
                self.push_json("end", None, &meta);
            }
        }
    }
}

impl Sink {
    /// Takes what a query gives, to its end. A query whose results cannot be appended ends with that reason.
    pub(crate) async fn deliver(mut self, mut subscription: Subscription) {
        let mut batch = Batch::default();
        batch.push_json("opening", None, &subscription.opening());
        let mut has_failed = false;
        loop {
            match self.append(&batch).await {
                Ok(()) if batch.is_last => return,
                Ok(()) => {}
                Err(error) if batch.is_last || has_failed => {
                    tracing::warn!(topic = %self.partition.id(), query = %self.key, %error, "the end of a live query could not be appended");
                    return;
                }
                Err(error) => {
                    has_failed = true;
                    subscription.end(Cause::Error, trouble(&error));
                }
            }
            batch = Batch::default();
            while !batch.is_last && batch.size_bytes < APPEND_BYTES {
                let next = if batch.records.is_empty() {
                    subscription.next().await
                } else {
                    subscription.next().now_or_never().flatten()
                };
                match next {
                    // What could not be appended has ended the query; of what follows only its end is told.
                    Some(Delivery::Rows(_) | Delivery::Window(_)) if has_failed => {}
                    Some(delivery) => batch.add(delivery),
                    None if batch.records.is_empty() => return,
                    None => break,
                }
            }
        }
    }

    /// Appends one record that tells why there are no results.
    pub(crate) async fn refuse(mut self, problem: &serde_json::Value) {
        let mut batch = Batch { is_last: true, ..Batch::default() };
        batch.push_json(PROBLEM, None, problem);
        if let Err(error) = self.append(&batch).await {
            tracing::warn!(topic = %self.partition.id(), %error, "the refusal of a live query could not be appended");
        }
    }

    /// Appends records in pieces, each once the one before has been answered.
    async fn append(&mut self, batch: &Batch) -> Result<(), LogError> {
        let mut records = &batch.records[..];
        while !records.is_empty() {
            let mut size_bytes = 0;
            let fits = |record: &&Outgoing| {
                let fits = size_bytes < APPEND_BYTES;
                size_bytes += record.value.len();
                fits
            };
            let count = records.iter().take_while(fits).count();
            let (piece, rest) = records.split_at(count);
            self.append_piece(piece, batch.is_last).await?;
            records = rest;
        }
        Ok(())
    }

    async fn append_piece(&mut self, piece: &[Outgoing], is_last: bool) -> Result<(), LogError> {
        let size_bytes: usize = piece.iter().map(|record| record.value.len() + self.key.len()).sum();
        while let Err(excess) = self.quotas.admit(Traffic::Produce, &self.tenant, &self.client, size_bytes as u64) {
            tokio::time::sleep(excess.wait.min(QUOTA_PAUSE)).await;
        }
        let mut waited = Duration::ZERO;
        loop {
            match self.try_append(piece).await {
                Err(error) if is_full(&error) && !(is_last && waited > END_PATIENCE) => {
                    tokio::time::sleep(PAUSE).await;
                    waited += PAUSE;
                }
                Ok(()) => {
                    self.sequence += piece.len() as u64;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn try_append(&self, piece: &[Outgoing]) -> Result<(), LogError> {
        let numbers: Vec<(String, Option<String>)> = piece
            .iter()
            .enumerate()
            .map(|(i, record)| ((self.sequence + 1 + i as u64).to_string(), record.window.map(|n| n.to_string())))
            .collect();
        let headers: Vec<Vec<Header<'_>>> =
            piece.iter().zip(&numbers).map(|(record, numbers)| self.headers(record, numbers)).collect();
        let timestamp_ms = self.wall.now_ms();
        let records: Vec<Record<'_>> = piece
            .iter()
            .zip(&headers)
            .map(|(record, headers)| Record {
                timestamp_ms,
                key: Some(self.key.as_bytes()),
                value: Some(&record.value),
                headers,
            })
            .collect();
        let (done, answered) = reply();
        self.partition.append(&records, self.level, done)?;
        answered.await.map(drop)
    }

    fn headers<'h>(
        &'h self,
        record: &'h Outgoing,
        (sequence, window): &'h (String, Option<String>),
    ) -> Vec<Header<'h>> {
        let header = |key, value: &'h str| Header { key, value: Some(value.as_bytes()) };
        let mut headers = vec![header(KIND, record.kind), header(SEQUENCE, sequence)];
        headers.extend((record.kind != PROBLEM).then(|| header(QUERY, &self.key)));
        headers.extend(window.as_deref().map(|window| header(WINDOW, window)));
        headers.extend(self.correlation.as_deref().map(|id| header(header::CORRELATION_ID, id)));
        headers
    }
}

/// Whether the log may have room later.
fn is_full(error: &LogError) -> bool {
    matches!(error, LogError::Overloaded { .. } | LogError::TooManyUnsynced { .. })
}

fn trouble(error: &LogError) -> Trouble {
    Trouble {
        error: format!("its results could not be appended: {error}"),
        resolution: "ask again once the topic takes them; of rows that are too large select fewer fields".to_owned(),
    }
}

/// A refusal as records tell it.
pub(crate) fn problem(error: &crate::Error) -> serde_json::Value {
    let mut problem = json!({"code": error.code().as_str(), "detail": error.to_string()});
    if let crate::Error::Refused { diagnostics } = error {
        problem["errors"] = json!(diagnostics);
    }
    problem
}
