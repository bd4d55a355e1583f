//! Many queries, records that only some of them may get, and a look at what each got.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use millstream_load::Latencies;
use millstream_load::asker::{self, Asker};
use millstream_load::kafka::{Plant, Planted, Streaming, stamp_us};
use serde_json::{Value, json};

use super::Place;
use super::churn::{Churned, Churner};
use crate::bench::process;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long foreign rows are listened for after the last one that was expected.
const SETTLE: Duration = Duration::from_millis(500);
/// By then the topic's memory is full and old records go.
const TOPIC_FULL: Duration = Duration::from_millis(1_500);
/// Queries that are sent at once.
const ASKED_AT_ONCE: usize = 1_000;

/// What is asked, and what is planted.
pub(super) struct Planting {
    pub(super) queries: Vec<String>,
    /// Each record, and the queries that must get it.
    pub(super) plants: Vec<(Plant, Vec<usize>)>,
    pub(super) records_per_s: f64,
    /// Within which all are planted.
    pub(super) time: Duration,
    /// How many other queries come and go a second meanwhile.
    pub(super) churn_per_s: u64,
}

/// What came of it.
pub(super) struct Delivered {
    pub(super) expected: usize,
    pub(super) missing: usize,
    pub(super) foreign: usize,
    pub(super) twice: usize,
    /// From a record's emission to its row in the client's hands.
    pub(super) latencies: Latencies,
    /// From the first question to the last acknowledgement.
    pub(super) live_after: Duration,
    pub(super) churned: Option<Churned>,
    pub(super) cpu: Cpu,
}

/// Busy cores while records were planted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cpu {
    pub(super) query: f64,
    pub(super) server: f64,
}

impl Planting {
    /// Asks, plants and counts.
    pub(super) fn run(&self, place: &Place, stream: &Streaming, begin: Instant) -> anyhow::Result<Delivered> {
        let mut session = Session::open(place.applications, begin)?;
        let pid = place.server.pid();
        // Old records go by then, as they do all the time in such a topic.
        thread::sleep(TOPIC_FULL);
        let live_after = session.ask_all(&self.queries)?;
        let churner = match self.churn_per_s {
            0 => None,
            per_s => Some(Churner::start(place.applications, per_s, super::passing_query)?),
        };
        let before = (Instant::now(), process::threads_cpu_s(pid, "query-")?, process::cpu_s(pid)?);
        let pause = self.time / self.plants.len() as u32;
        for (number, (plant, _)) in self.plants.iter().enumerate() {
            let sequence = (Planted::Sequence, format!("{number:08}"));
            stream.plant(plant.iter().cloned().chain([sequence]).collect());
            thread::sleep((before.0 + pause * (number as u32 + 1)).saturating_duration_since(Instant::now()));
        }
        let took_s = before.0.elapsed().as_secs_f64();
        let cpu = Cpu {
            query: (process::threads_cpu_s(pid, "query-")? - before.1) / took_s,
            server: (process::cpu_s(pid)? - before.2) / took_s,
        };
        let churned = churner.map(Churner::stop).transpose()?;
        let expected: usize = self.plants.iter().map(|(_, queries)| queries.len()).sum();
        let rows = session.wait_rows(expected)?;
        let mut delivered = Delivered {
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

impl Delivered {
    fn count(&mut self, planting: &Planting, rows: Vec<Row>) {
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

    pub(super) fn conditions(&self, planting: &Planting) -> Value {
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

/// A row of a query.
struct Row {
    query: usize,
    sequence: usize,
    /// The time since its record was emitted.
    after: Duration,
}

/// What the server says.
enum Heard {
    Live,
    Row(Row),
    Refused(String),
}

/// A WebSocket with many queries, whose tags are numbers.
pub(super) struct Session {
    asker: Asker,
    heard: Receiver<Heard>,
    hearer: Option<JoinHandle<()>>,
    live: usize,
    rows: Vec<Row>,
}

impl Session {
    pub(super) fn open(address: SocketAddr, begin: Instant) -> anyhow::Result<Self> {
        let (asker, mut hearer) = asker::open(address, "/api/queries/ws")?;
        let (sender, heard) = channel();
        let hearer = thread::spawn(move || {
            while let Ok(Some(message)) = hearer.hear() {
                let now_us = stamp_us(begin);
                if understood(&message, now_us).into_iter().any(|heard| sender.send(heard).is_err()) {
                    return;
                }
            }
        });
        Ok(Self { asker, heard, hearer: Some(hearer), live: 0, rows: Vec::new() })
    }

    pub(super) fn ask(&mut self, queries: impl IntoIterator<Item = (usize, String)>) -> anyhow::Result<()> {
        let messages: Vec<String> = queries
            .into_iter()
            .map(|(tag, query)| json!({ "tag": tag.to_string(), "query": query }).to_string())
            .collect();
        Ok(self.asker.send(messages.iter().map(String::as_str))?)
    }

    /// Asks these, tagged by their places, the first ones of the session; how long it takes until all are live.
    pub(super) fn ask_all(&mut self, queries: &[String]) -> anyhow::Result<Duration> {
        let asked = Instant::now();
        for (chunk, number) in queries.chunks(ASKED_AT_ONCE).zip((0..).step_by(ASKED_AT_ONCE)) {
            self.ask((number..).zip(chunk.iter().cloned()))?;
        }
        self.wait_live(queries.len())?;
        Ok(asked.elapsed())
    }

    /// Waits until so many queries have become live.
    pub(super) fn wait_live(&mut self, count: usize) -> anyhow::Result<()> {
        while self.live < count {
            self.hear(PATIENCE)?.then_some(()).context("queries did not become live")?;
        }
        Ok(())
    }

    /// Waits for the row with this sequence number; how long it took.
    pub(super) fn wait_row(&mut self, sequence: usize) -> anyhow::Result<Duration> {
        loop {
            if let Some(row) = self.rows.iter().rev().find(|row| row.sequence == sequence) {
                return Ok(row.after);
            }
            self.hear(PATIENCE)?.then_some(()).context("the planted record was not found")?;
        }
    }

    /// Waits for so many rows and a moment longer.
    fn wait_rows(&mut self, count: usize) -> anyhow::Result<Vec<Row>> {
        while self.rows.len() < count && self.hear(Duration::from_secs(10))? {}
        while self.hear(SETTLE)? {}
        Ok(std::mem::take(&mut self.rows))
    }

    /// Takes what is heard next; false if there is nothing for so long.
    fn hear(&mut self, patience: Duration) -> anyhow::Result<bool> {
        match self.heard.recv_timeout(patience) {
            Ok(Heard::Live) => self.live += 1,
            Ok(Heard::Row(row)) => self.rows.push(row),
            Ok(Heard::Refused(why)) => bail!("a query was refused or ended: {why}"),
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => bail!("the server has closed the connection"),
        }
        Ok(true)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.asker.close();
        if let Some(hearer) = self.hearer.take() {
            // It has nothing to tell but that it panicked, which has been printed.
            let _ = hearer.join();
        }
    }
}

fn understood(message: &Value, now_us: u64) -> Vec<Heard> {
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<usize>().ok()).unwrap_or(usize::MAX);
    let query = number(&message["tag"]);
    if let Some(records) = message["records"].as_array() {
        let row = |record: &Value| {
            let emitted_us = record["emitted_us"].as_u64().unwrap_or(0);
            let after = Duration::from_micros(now_us.saturating_sub(emitted_us));
            Heard::Row(Row { query, sequence: number(&record["seq"]), after })
        };
        return records.iter().map(row).collect();
    }
    if message["opening"].is_object() {
        return vec![Heard::Live];
    }
    // A query with a LIMIT ends by itself; windows come by the clock.
    let is_usual = message["window"].is_object() || message["end"]["cause"] == "size";
    if is_usual { Vec::new() } else { vec![Heard::Refused(message.to_string())] }
}
