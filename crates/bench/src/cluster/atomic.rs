//! Atomic appends over HTTP, which share transactions while they wait, beside a loop that commits transactions of that size.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use millstream_load::JsonClient;
use millstream_load::kafka::{KafkaClient, TransactionLoad};
use serde_json::{Value, json};

use super::{ClusterBench, Round, median};
use crate::context::fixture::LoadTime;
use crate::context::population;
use crate::findings::{Findings, at_least};
use crate::process;

const TOPIC: &str = "atomic";
const PARTITIONS: u32 = 4;
const CLIENTS: usize = 64;
/// Records of an append, one for each partition.
const APPEND_RECORDS: u64 = PARTITIONS as u64;
const RECORD_BYTES: usize = 100;
/// Least ratio of the rates.
const AIM: f64 = 0.5;

impl ClusterBench {
    pub(super) fn atomic(&self, findings: &mut Findings) -> anyhow::Result<()> {
        self.on_kafka.server.create_topic(TOPIC, PARTITIONS, "synced")?;
        let (mut ours, mut theirs, mut appends) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..self.plan.rounds {
            eprintln!("atomic appends, round {} of {}", number + 1, self.plan.rounds);
            let (round, appends_each) = self.append()?;
            ours.push(round);
            theirs.push(self.bare_loop(number, appends_each.round().max(1.0) as usize)?);
            appends.push(appends_each);
        }
        let rate = |round: &Round| round.rate_per_s;
        let (ours, theirs) = (median(&ours, rate)?, median(&theirs, rate)?);
        findings.aim(at_least("atomic appends beside a bare loop", ours.rate_per_s / theirs.rate_per_s, AIM));
        let conditions = json!({
            "records_of_an_append": APPEND_RECORDS, "partitions": PARTITIONS, "record_bytes": RECORD_BYTES, "connections": CLIENTS,
            "appends_of_a_transaction": appends, "rates": "records",
        });
        findings.cases.push(self.case("records appended atomically", &ours, "bare loop", &theirs, conditions));
        Ok(())
    }

    /// Appends over HTTP. Returns the round, in records, and the mean number of appends that shared a transaction.
    fn append(&self) -> anyhow::Result<(Round, f64)> {
        let value = "v".repeat(RECORD_BYTES);
        let record = |partition| format!("{{\"value_text\":\"{value}\",\"partition\":{partition}}}\n");
        let body: String = (0..PARTITIONS).map(record).collect();
        let target = format!("/api/streams/{TOPIC}/records");
        let load = |measured| {
            let times = LoadTime { warm_up: Duration::ZERO, measured };
            self.on_kafka.load(times, CLIENTS, None, |_, _, request| {
                population::with_body("POST", &target, "application/x-ndjson", &body, request);
            })
        };
        load(self.plan.times.warm_up)?;
        let before = self.stable_sum()?;
        let phase = load(self.plan.times.measured)?;
        // Each transaction leaves a marker in each partition.
        let records = phase.requested.answered * APPEND_RECORDS;
        let transactions = (self.stable_sum()? - before).saturating_sub(records) / u64::from(PARTITIONS);
        let refusal = phase.requested.first_refusal.as_deref().unwrap_or_default();
        ensure!(phase.requested.refused == 0, "{} appends were refused: {refusal}", phase.requested.refused);
        let round = Round::of(&phase);
        let records = APPEND_RECORDS as f64;
        let (rate_per_s, per_core_per_s) = (round.rate_per_s * records, round.per_core_per_s * records);
        let appends_each = phase.requested.answered as f64 / transactions.max(1) as f64;
        Ok((Round { rate_per_s, per_core_per_s, ..round }, appends_each))
    }

    /// The sum of the offsets up to which readers see the partitions.
    fn stable_sum(&self) -> anyhow::Result<u64> {
        let path = format!("/api/streams/{TOPIC}/info");
        let info = JsonClient::connect(self.on_kafka.address)?.send("GET", &path, &Value::Null)?;
        let partitions = info["partitions"].as_array().with_context(|| format!("no partitions in {info}"))?;
        Ok(partitions.iter().filter_map(|partition| partition["stable"].as_u64()).sum())
    }

    fn bare_loop(&self, round: usize, batch_records: usize) -> anyhow::Result<Round> {
        let broker = self.brokers.brokers.first().context("there is a broker")?;
        let address: SocketAddr =
            broker.address.parse().with_context(|| format!("{} is no address", broker.address))?;
        let topic = format!("bare-loop-{round}");
        KafkaClient::connect(address)?.create_topic(&topic, PARTITIONS)?;
        let warm_up = TransactionLoad {
            address,
            topic,
            partitions: PARTITIONS,
            batch_records,
            record_bytes: RECORD_BYTES,
            duration: self.plan.times.warm_up,
        };
        warm_up.run()?;
        let before = process::cpu_s(std::process::id())?;
        let committed = TransactionLoad { duration: self.plan.times.measured, ..warm_up }.run()?;
        let cpu_s = process::cpu_s(std::process::id())? - before;
        Ok(Round {
            rate_per_s: committed.rate_per_s(),
            per_core_per_s: committed.records as f64 / cpu_s.max(f64::MIN_POSITIVE),
            latency_ms: None,
            errors: 0,
            rss_mib: 0.0,
            generator_bottleneck: false,
        })
    }
}
