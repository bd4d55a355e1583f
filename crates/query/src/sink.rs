//! The sink of one query: it appends a record to a topic for each row and window, and one for the end.
//!
//! All records of a query go to one partition, in their order. One append is in flight at a time. While the log or a quota
//! delays it, rows wait in the query's outbox, whose limits end that query and no other. Rows of a kept query wait there
//! until they are stored (`sink_progress.rs`), and stay until their append is acknowledged.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use millstream_log::{AckLevel, Error as LogError, Partition, reply};
use millstream_types::{Header, QuotaType, Quotas, Record, TenantId, WallClock, header};
use serde::Serialize;
use serde_json::json;

use crate::outbox::Delivery;
use crate::sink_progress::OPENING;
use crate::{Cause, RowBatch, Subscription, Trouble};

/// Bytes of records that are appended at once, and the record that goes beyond.
const APPEND_BYTES: usize = 256 << 10;
/// Pause before the next attempt if the log has no room.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause before the next check of an exceeded quota.
const QUOTA_PAUSE: Duration = Duration::from_millis(100);
/// Time that an end record waits for room; there is no other way to report the end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Names of the headers of result records.
const QUERY: &str = "query-id";
const KIND: &str = "kind";
const SEQUENCE: &str = "sequence";
const WINDOW: &str = "window";

/// The kind of a record that belongs to no query.
const PROBLEM: &str = "problem";

/// A topic as one query's results go into it.
pub(crate) struct TopicSink {
    pub(crate) partition: Arc<dyn Partition>,
    pub(crate) level: AckLevel,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) quotas: Arc<Quotas>,
    /// The tenant and the account for the records.
    pub(crate) tenant: TenantId,
    pub(crate) client: String,
    /// The key of all records: the query's id, or its substitute in a refusal.
    pub(crate) key: String,
    /// The client's own text, which each record repeats.
    pub(crate) correlation: Option<String>,
}

/// The records of one append.
#[derive(Default)]
struct Batch {
    records: Vec<OutgoingRecord>,
    size_bytes: usize,
    is_last: bool,
    /// True if it waits for room without a limit.
    is_patient: bool,
}

struct OutgoingRecord {
    kind: &'static str,
    number: u64,
    window: Option<u64>,
    value: Vec<u8>,
}

impl Batch {
    fn push(&mut self, kind: &'static str, number: u64, window: Option<u64>, value: Vec<u8>) {
        self.size_bytes += value.len();
        self.records.push(OutgoingRecord { kind, number, window, value });
    }

    fn push_json(&mut self, kind: &'static str, number: u64, window: Option<u64>, value: &impl Serialize) {
        let value = serde_json::to_vec(value).expect("what is told about a query has string keys only");
        self.push(kind, number, window, value);
    }

    /// Adds a delivery, whose first record has the number `first`.
    fn add(&mut self, first: u64, delivery: Delivery) {
        match delivery {
            Delivery::Rows(rows) => self.add_rows(first, None, &rows),
            Delivery::Window(window) => {
                let number = Some(window.meta.number);
                self.add_rows(first, number, &window.rows);
                let after = first + window.rows.row_count() as u64;
                self.push_json("window", after, number, &window.meta);
            }
            Delivery::End(meta) => {
                self.is_last = true;
                self.push_json("end", first, None, &meta);
            }
        }
    }

    fn add_rows(&mut self, first: u64, window: Option<u64>, rows: &RowBatch) {
        rows.rows().zip(first..).for_each(|(row, number)| self.push("row", number, window, row.to_vec()));
    }
}

impl TopicSink {
    /// Appends the results of a query until its end. If they cannot be appended, the query ends with that reason.
    pub(crate) async fn deliver(self, mut subscription: Subscription) {
        let is_patient = subscription.must_arrive();
        let mut batch = Batch { is_patient, ..Batch::default() };
        if !subscription.is_opened() {
            batch.push_json("opening", OPENING, None, &subscription.opening());
        }
        let mut has_failed = false;
        loop {
            match self.append(&batch).await {
                Ok(()) => {
                    subscription.has_arrived();
                    if batch.is_last {
                        return;
                    }
                }
                Err(error) if batch.is_last || has_failed => {
                    tracing::warn!(topic = %self.partition.id(), query = %self.key, %error, "the end of a live query could not be appended");
                    return subscription.give_up(trouble(&error));
                }
                Err(error) => {
                    has_failed = true;
                    subscription.end(Cause::Error, trouble(&error));
                }
            }
            batch = Batch { is_patient, ..Batch::default() };
            while !batch.is_last && batch.size_bytes < APPEND_BYTES {
                let next = if batch.records.is_empty() {
                    subscription.next_numbered().await
                } else {
                    subscription.next_numbered().now_or_never().flatten()
                };
                match next {
                    // Results that could not be appended have ended the query; only its end follows.
                    Some((_, Delivery::Rows(_) | Delivery::Window(_))) if has_failed => {}
                    Some((first, delivery)) => batch.add(first, delivery),
                    None if batch.records.is_empty() => return,
                    None => break,
                }
            }
        }
    }

    /// Appends one record that tells why there are no results.
    pub(crate) async fn refuse(self, problem: &serde_json::Value) {
        let mut batch = Batch { is_last: true, ..Batch::default() };
        batch.push_json(PROBLEM, OPENING, None, problem);
        if let Err(error) = self.append(&batch).await {
            tracing::warn!(topic = %self.partition.id(), %error, "the refusal of a live query could not be appended");
        }
    }

    /// Appends records in pieces, each once the one before has been answered.
    async fn append(&self, batch: &Batch) -> Result<(), LogError> {
        let mut records = &batch.records[..];
        while !records.is_empty() {
            let mut size_bytes = 0;
            let fits = |record: &&OutgoingRecord| {
                let fits = size_bytes < APPEND_BYTES;
                size_bytes += record.value.len();
                fits
            };
            let count = records.iter().take_while(fits).count();
            let (piece, rest) = records.split_at(count);
            self.append_piece(piece, batch.is_last && !batch.is_patient).await?;
            records = rest;
        }
        Ok(())
    }

    async fn append_piece(&self, piece: &[OutgoingRecord], gives_up: bool) -> Result<(), LogError> {
        let size_bytes: usize = piece.iter().map(|record| record.value.len() + self.key.len()).sum();
        while let Err(excess) = self.quotas.admit(QuotaType::Produce, &self.tenant, &self.client, size_bytes as u64) {
            tokio::time::sleep(excess.wait.min(QUOTA_PAUSE)).await;
        }
        let mut waited = Duration::ZERO;
        loop {
            match self.try_append(piece).await {
                Err(error) if error.is_temporary() && !(gives_up && waited > END_PATIENCE) => {
                    tokio::time::sleep(PAUSE).await;
                    waited += PAUSE;
                }
                answered => return answered,
            }
        }
    }

    async fn try_append(&self, piece: &[OutgoingRecord]) -> Result<(), LogError> {
        let numbers: Vec<(String, Option<String>)> = piece
            .iter()
            .map(|record| (record.number.to_string(), record.window.map(|number| number.to_string())))
            .collect();
        let headers: Vec<Vec<Header<'_>>> = piece
            .iter()
            .zip(&numbers)
            .map(|(record, (sequence, window))| self.headers(record, sequence, window.as_deref()))
            .collect();
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
        record: &'h OutgoingRecord,
        sequence: &'h str,
        window: Option<&'h str>,
    ) -> Vec<Header<'h>> {
        let header = |key, value: &'h str| Header { key, value: Some(value.as_bytes()) };
        let mut headers = vec![header(KIND, record.kind), header(SEQUENCE, sequence)];
        headers.extend((record.kind != PROBLEM).then(|| header(QUERY, &self.key)));
        headers.extend(window.map(|window| header(WINDOW, window)));
        headers.extend(self.correlation.as_deref().map(|id| header(header::CORRELATION_ID, id)));
        headers
    }
}

pub(crate) fn trouble(error: &impl std::fmt::Display) -> Trouble {
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
