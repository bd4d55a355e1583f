//! Synced writes by the engine in this process, beside a loop with the same bytes, writes, syncs and files: what the
//! store adds to the disk's time, sockets and clients not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use millstream_load::Latencies;
use millstream_load::report::Peer;
use millstream_log::{AckLevel, LogFigures, LogStats};
use millstream_store::Value;
use serde_json::json;
use tokio::task::JoinSet;

use super::engine::{PARTITIONS, StoreEngine};
use super::puts::SYNCED_AIM;
use super::values::{Values, key};
use super::{CONNECTIONS, StoreBench, median};
use crate::bare_loop::{BareLoop, BareLoopTime, LogWrites};
use crate::findings::{Findings, at_least};
use crate::process;

/// A round: ours, then the loop.
struct EnginePuts {
    latencies: Latencies,
    took: Duration,
    cpu_s: f64,
    writes: LogWrites,
    bare: BareLoopTime,
}

impl EnginePuts {
    fn ratio(&self) -> f64 {
        self.bare.all.as_secs_f64() / self.took.as_secs_f64()
    }

    fn per_s(&self, time: Duration) -> f64 {
        self.latencies.count() as f64 / time.as_secs_f64()
    }
}

impl StoreEngine {
    /// Stores new values until `time` has passed, as many at a time as the HTTP cases have connections.
    fn put_for(&self, time: Duration, values: &Arc<Values>, next: &Arc<AtomicU64>) -> anyhow::Result<Latencies> {
        let started = Instant::now();
        self.runtime.block_on(async {
            let mut writers = JoinSet::new();
            for _ in 0..CONNECTIONS {
                let (bucket, values, next) = (Arc::clone(&self.bucket), Arc::clone(values), Arc::clone(next));
                writers.spawn(async move {
                    let mut latencies = Latencies::default();
                    while started.elapsed() < time {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let bytes = Bytes::copy_from_slice(values.get(number));
                        let value = Value { bytes, expires_ms: None, attributes: None };
                        let begin = Instant::now();
                        bucket.put(key(number).as_bytes(), value, Some(AckLevel::Synced)).await?;
                        latencies.record(begin.elapsed());
                    }
                    anyhow::Ok(latencies)
                });
            }
            let mut latencies = Latencies::default();
            while let Some(written) = writers.join_next().await {
                latencies.add(&written??);
            }
            Ok(latencies)
        })
    }
}

impl StoreBench {
    pub(super) fn measure_engine_puts(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let engine = StoreEngine::open(dir.path())?;
        let bare = BareLoop::in_dir(dir.path(), PARTITIONS)?;
        let (values, next) = (Arc::new(Values::random()), Arc::new(AtomicU64::new(0)));
        // Makes the journal's files.
        engine.put_for(self.plan.time, &values, &next)?;
        let mut runs = Vec::new();
        for round in 0..self.plan.rounds {
            eprintln!("PUT by the engine, round {} of {}", round + 1, self.plan.rounds);
            engine.log.flush()?;
            let (before, cpu_s) = (engine.log.stats(), process::cpu_s(std::process::id())?);
            let started = Instant::now();
            let latencies = engine.put_for(self.plan.time, &values, &next)?;
            let (took, after) = (started.elapsed(), engine.log.stats());
            let cpu_s = process::cpu_s(std::process::id())? - cpu_s;
            let writes = writes_between(&before, &after);
            let bare = bare.write_like(writes)?.context("the log wrote nothing")?;
            runs.push(EnginePuts { latencies, took, cpu_s, writes, bare });
        }
        let run = median(runs, EnginePuts::ratio).context("there is at least one round")?;
        let count = run.latencies.count() as f64;
        let own = json!({
            "engine": "in this process, cache_bytes 0, otherwise the default configuration",
            "in_flight": CONNECTIONS, "loop": "closed", "value_bytes": [1_024, 5_120], "ack": "synced",
            "partitions": PARTITIONS, "rounds": self.plan.rounds, "took_s": run.took.as_secs_f64(),
            "batch_bytes": run.writes.bytes, "journal_writes": run.writes.frames, "journal_syncs": run.writes.syncs,
            "segment_bytes": run.writes.segment_bytes,
            "ratio_to_bare_journal_alone": run.bare.journal.as_secs_f64() / run.took.as_secs_f64(),
        });
        let mut case = self.case("PUT 1–5 KiB by the engine, synced", own);
        case.rate_per_s = run.per_s(run.took);
        case.latency_ms = Some(run.latencies.summary());
        case.per_core_per_s = (run.cpu_s > 0.0).then(|| count / run.cpu_s);
        case.cpu_s_per_million = Some(run.cpu_s / count * 1e6);
        case.rss_mib = Some(process::rss_mib(std::process::id())?);
        let rate_per_s = run.per_s(run.bare.all);
        case.peer = Some(Peer { name: "bare loop, same syncs".to_owned(), rate_per_s, ..Peer::default() });
        case.ratio = Some(run.ratio());
        let what = "PUT of 1–5 KiB at synced by the engine, of a bare loop with the same writes and syncs";
        findings.aim(at_least(what, run.ratio(), SYNCED_AIM));
        findings.cases.push(case);
        engine.close()
    }
}

fn writes_between(before: &LogStats, after: &LogStats) -> LogWrites {
    let segments = |stats: &LogStats| stats.partitions.iter().map(|partition| partition.segment_bytes).sum::<u64>();
    LogWrites {
        bytes: after.bytes - before.bytes,
        frames: after.frames - before.frames,
        syncs: after.syncs - before.syncs,
        segment_bytes: segments(after).saturating_sub(segments(before)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::StoreWorkload;
    use super::*;
    use crate::Length;
    use crate::machine::Machine;

    #[test]
    fn the_shortest_run_writes_beside_the_loop() {
        let plan = StoreWorkload { rounds: 1, time: Duration::from_millis(30), ..StoreWorkload::of(Length::Quick) };
        let machine = Machine::with_files_in(&std::env::temp_dir());
        let mut findings = Findings::default();
        StoreBench { plan, machine, peer: None }.measure_engine_puts(&mut findings).unwrap();
        let case = &findings.cases[0];
        assert!(case.rate_per_s > 0.0 && case.ratio > Some(0.0), "{case:?}");
        assert!(case.conditions["journal_syncs"].as_u64() > Some(0), "{case:?}");
    }
}
