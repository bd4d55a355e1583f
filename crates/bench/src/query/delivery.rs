//! Delivery test: many queries, marked records for some of them, and a check of the rows that each received.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use millstream_load::Latencies;
use millstream_load::kafka::{Marker, MarkerField, RunningStream, stamp_us};
use millstream_load::websocket::{self, WebSocketSender};
use serde_json::{Value, json};

use super::churn::{ChurnResult, Churner};
use super::server::QueryServer;
use crate::process;

const PATIENCE: Duration = Duration::from_secs(60);
/// Time to wait for unexpected rows after the last expected one.
const SETTLE: Duration = Duration::from_millis(500);
/// Time after which the topic is full and old records are removed.
const TOPIC_FULL: Duration = Duration::from_millis(1_500);
const ASKED_AT_ONCE: usize = 1_000;

/// Queries and marked records of a test.
pub(super) struct DeliveryTest {
    pub(super) queries: Vec<String>,
    /// Each record, and the queries that must get it.
    pub(super) plants: Vec<(Marker, Vec<usize>)>,
    pub(super) records_per_s: f64,
    /// Time within which all marked records are sent.
    pub(super) time: Duration,
    /// Short-lived queries a second during the test.
    pub(super) churn_per_s: u64,
}

/// Results of a delivery test.
pub(super) struct DeliveryResult {
    pub(super) expected: usize,
    pub(super) missing: usize,
    pub(super) foreign: usize,
    pub(super) twice: usize,
    /// From a record's emission to its row in the client's hands.
    pub(super) latencies: Latencies,
    /// From the first question to the last acknowledgement.
    pub(super) live_after: Duration,
    pub(super) churned: Option<ChurnResult>,
    pub(super) cpu: BusyCores,
}

/// Busy cores while records were planted.
#[derive(Debug, Clone, Copy)]
pub(super) struct BusyCores {
    pub(super) query: f64,
    pub(super) server: f64,
}

impl DeliveryTest {
    /// Starts the queries, sends the marked records and counts the rows.
    pub(super) fn run(
        &self,
        place: &QueryServer,
        stream: &RunningStream,
        begin: Instant,
    ) -> anyhow::Result<DeliveryResult> {
        let mut session = QuerySession::open(place.applications, begin)?;
        let pid = place.server.pid();
        // The topic is full by then and removes old records, as in normal operation.
        thread::sleep(TOPIC_FULL);
        let live_after = session.ask_all(&self.queries)?;
        let churner = match self.churn_per_s {
            0 => None,
            per_s => Some(Churner::start(place.applications, per_s, super::passing_query)?),
        };
        let before = (Instant::now(), process::threads_cpu_s(pid, "query-")?, process::cpu_s(pid)?);
        let pause = self.time / self.plants.len() as u32;
        for (number, (plant, _)) in self.plants.iter().enumerate() {
            let sequence = (MarkerField::Sequence, format!("{number:08}"));
            stream.plant(plant.iter().cloned().chain([sequence]).collect());
            thread::sleep((before.0 + pause * (number as u32 + 1)).saturating_duration_since(Instant::now()));
        }
        let took_s = before.0.elapsed().as_secs_f64();
        let cpu = BusyCores {
            query: (process::threads_cpu_s(pid, "query-")? - before.1) / took_s,
            server: (process::cpu_s(pid)? - before.2) / took_s,
        };
        let churned = churner.map(Churner::stop).transpose()?;
        let expected: usize = self.plants.iter().map(|(_, queries)| queries.len()).sum();
        let rows = session.wait_rows(expected)?;
        let mut delivered = DeliveryResult {
            expected,
            missing: 0,
            foreign: 0,
            twice: 0,
            latencies: Latencies::default(),
            live_after,
            churned,
            cpu,
        };
        delivered.count(self, rows);
        Ok(delivered)
    }
}

impl DeliveryResult {
    fn count(&mut self, planting: &DeliveryTest, rows: Vec<ResultRow>) {
        let mut got: HashMap<(usize, usize), usize> = HashMap::new();
        for row in rows {
            self.latencies.record(row.after);
            *got.entry((row.query, row.sequence)).or_default() += 1;
        }
        for (number, (_, queries)) in planting.plants.iter().enumerate() {
            for query in queries {
                match got.remove(&(*query, number)) {
                    None => self.missing += 1,
                    Some(times) => self.twice += times - 1,
                }
            }
        }
        self.foreign = got.values().sum();
    }

    pub(super) fn conditions(&self, planting: &DeliveryTest) -> Value {
        json!({
            "queries": planting.queries.len(),
            "planted": planting.plants.len(),
            "expected_rows": self.expected,
            "missing": self.missing,
            "foreign": self.foreign,
            "twice": self.twice,
            "live_after_s": self.live_after.as_secs_f64(),
            "query_threads_cores": self.cpu.query,
            "server_cores": self.cpu.server,
            "records_per_s": planting.records_per_s,
        })
    }
}

struct ResultRow {
    query: usize,
    sequence: usize,
    /// The time since its record was emitted.
    after: Duration,
}

enum ServerMessage {
    Live,
    Row(ResultRow),
    Refused(String),
}

/// A WebSocket with many queries, whose tags are numbers.
pub(super) struct QuerySession {
    sender: WebSocketSender,
    heard: Receiver<ServerMessage>,
    receiving: Option<JoinHandle<()>>,
    live: usize,
    rows: Vec<ResultRow>,
}

impl QuerySession {
    pub(super) fn open(address: SocketAddr, begin: Instant) -> anyhow::Result<Self> {
        let (sender, mut receiver) = websocket::open(address, "/api/queries/ws")?;
        let (events, heard) = channel();
        let receiving = thread::spawn(move || {
            while let Ok(Some(message)) = receiver.receive() {
                let now_us = stamp_us(begin);
                if understood(&message, now_us).into_iter().any(|heard| events.send(heard).is_err()) {
                    return;
                }
            }
        });
        Ok(Self { sender, heard, receiving: Some(receiving), live: 0, rows: Vec::new() })
    }

    pub(super) fn ask(&mut self, queries: impl IntoIterator<Item = (usize, String)>) -> anyhow::Result<()> {
        let messages: Vec<String> = queries
            .into_iter()
            .map(|(tag, query)| json!({ "tag": tag.to_string(), "query": query }).to_string())
            .collect();
        Ok(self.sender.send(messages.iter().map(String::as_str))?)
    }

    /// Starts the first queries of the session, tagged by index, and returns the time until all are live.
    pub(super) fn ask_all(&mut self, queries: &[String]) -> anyhow::Result<Duration> {
        let asked = Instant::now();
        for (chunk, number) in queries.chunks(ASKED_AT_ONCE).zip((0..).step_by(ASKED_AT_ONCE)) {
            self.ask((number..).zip(chunk.iter().cloned()))?;
        }
        self.wait_live(queries.len())?;
        Ok(asked.elapsed())
    }

    /// Waits until `count` queries have become live.
    pub(super) fn wait_live(&mut self, count: usize) -> anyhow::Result<()> {
        while self.live < count {
            self.hear(PATIENCE)?.then_some(()).context("queries did not become live")?;
        }
        Ok(())
    }

    /// Waits for the row with this sequence number and returns its latency.
    pub(super) fn wait_row(&mut self, sequence: usize) -> anyhow::Result<Duration> {
        loop {
            if let Some(row) = self.rows.iter().rev().find(|row| row.sequence == sequence) {
                return Ok(row.after);
            }
            self.hear(PATIENCE)?.then_some(()).context("the planted record was not found")?;
        }
    }

    /// Waits for `count` rows and then for [`SETTLE`].
    fn wait_rows(&mut self, count: usize) -> anyhow::Result<Vec<ResultRow>> {
        while self.rows.len() < count && self.hear(Duration::from_secs(10))? {}
        while self.hear(SETTLE)? {}
        Ok(std::mem::take(&mut self.rows))
    }

    /// Handles the next message; returns false after `patience` without one.
    fn hear(&mut self, patience: Duration) -> anyhow::Result<bool> {
        match self.heard.recv_timeout(patience) {
            Ok(ServerMessage::Live) => self.live += 1,
            Ok(ServerMessage::Row(row)) => self.rows.push(row),
            Ok(ServerMessage::Refused(why)) => bail!("a query was refused or ended: {why}"),
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => bail!("the server has closed the connection"),
        }
        Ok(true)
    }
}

impl Drop for QuerySession {
    fn drop(&mut self) {
        self.sender.close();
        if let Some(receiving) = self.receiving.take() {
            // A panic of the thread has been printed already.
            let _ = receiving.join();
        }
    }
}

fn understood(message: &Value, now_us: u64) -> Vec<ServerMessage> {
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<usize>().ok()).unwrap_or(usize::MAX);
    let query = number(&message["tag"]);
    if let Some(records) = message["records"].as_array() {
        let row = |record: &Value| {
            let emitted_us = record["emitted_us"].as_u64().unwrap_or(0);
            let after = Duration::from_micros(now_us.saturating_sub(emitted_us));
            ServerMessage::Row(ResultRow { query, sequence: number(&record["seq"]), after })
        };
        return records.iter().map(row).collect();
    }
    if message["opening"].is_object() {
        return vec![ServerMessage::Live];
    }
    // A query with a LIMIT ends by itself; windows come by the clock.
    let is_usual = message["window"].is_object() || message["end"]["cause"] == "size";
    if is_usual { Vec::new() } else { vec![ServerMessage::Refused(message.to_string())] }
}
