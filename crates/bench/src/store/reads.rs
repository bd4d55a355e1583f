//! Reads at random by the engine in this process, of values that only the page cache holds, beside a loop of `pread`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use millstream_load::Latencies;
use millstream_load::report::Peer;
use millstream_log::AckLevel;
use millstream_store::{Look, Value};
use serde_json::json;
use tokio::task::JoinSet;

use super::bare_reads::{BareReads, ReadTimes};
use super::engine::StoreEngine;
use super::values::{Values, key};
use super::{StoreBench, median};
use crate::findings::{Findings, at_least};
use crate::process;

/// Callers, each with one read in flight.
const READERS: u64 = 32;
/// Callers that fill the bucket.
const WRITERS: u64 = 512;
/// Aim, as a share of the reads of the loop per second of CPU time.
const AIM: f64 = 0.5;

/// A round: ours, then the loop.
struct ReadRun {
    ours: ReadTimes,
    latencies: Latencies,
    bare: ReadTimes,
}

impl ReadRun {
    fn ratio(&self) -> f64 {
        self.ours.per_cpu_s() / self.bare.per_cpu_s()
    }
}

impl StoreEngine {
    /// Stores the values of the numbers below `count`.
    fn fill(&self, values: &Arc<Values>, count: u64) -> anyhow::Result<()> {
        self.runtime.block_on(async {
            let mut writers = JoinSet::new();
            for writer in 0..WRITERS.min(count) {
                let (bucket, values) = (Arc::clone(&self.bucket), Arc::clone(values));
                writers.spawn(async move {
                    for number in (writer..count).step_by(WRITERS as usize) {
                        let bytes = Bytes::copy_from_slice(values.get(number));
                        let value = Value { bytes, expires_ms: None, attributes: None };
                        bucket.put(key(number).as_bytes(), value, Some(AckLevel::Written)).await?;
                    }
                    anyhow::Ok(())
                });
            }
            while let Some(written) = writers.join_next().await {
                written??;
            }
            Ok(())
        })
    }

    /// The numbers below `count` whose values no memory of the engine holds.
    fn on_disk(&self, count: u64) -> anyhow::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for number in 0..count {
            match self.bucket.look(key(number).as_bytes())? {
                Look::OnDisk { .. } => numbers.push(number),
                Look::Found(_) => {}
                Look::Missing => anyhow::bail!("key {} is not there after the restart", key(number)),
            }
        }
        ensure!(!numbers.is_empty(), "no value of {count} is on disk only");
        Ok(numbers)
    }

    /// Reads values at random until `until`; each must be the value that was written.
    fn read(
        &self,
        numbers: &Arc<[u64]>,
        values: &Arc<Values>,
        time: Duration,
    ) -> anyhow::Result<(ReadTimes, Latencies)> {
        let (started, cpu_s) = (Instant::now(), process::cpu_s(std::process::id())?);
        let latencies = self.runtime.block_on(async {
            let mut readers = JoinSet::new();
            for reader in 0..READERS {
                let (bucket, numbers, values) = (Arc::clone(&self.bucket), Arc::clone(numbers), Arc::clone(values));
                readers.spawn(async move {
                    let (mut random, mut latencies) = (fastrand::Rng::with_seed(reader), Latencies::default());
                    while started.elapsed() < time {
                        let number = numbers[random.usize(..numbers.len())];
                        let begin = Instant::now();
                        let found = bucket.read(key(number).as_bytes()).await?;
                        latencies.record(begin.elapsed());
                        let (found, expected) =
                            (found.context("a key has gone")?.stored.value.bytes, values.get(number));
                        // Comparing all bytes would cost more than the loop's read.
                        let is_same = found.len() == expected.len() && found.first() == expected.first();
                        ensure!(is_same, "key {} has another value", key(number));
                    }
                    anyhow::Ok(latencies)
                });
            }
            let mut latencies = Latencies::default();
            while let Some(read) = readers.join_next().await {
                latencies.add(&read??);
            }
            anyhow::Ok(latencies)
        })?;
        let cpu_s = process::cpu_s(std::process::id())? - cpu_s;
        Ok((ReadTimes { reads: latencies.count(), took: started.elapsed(), cpu_s }, latencies))
    }
}

impl StoreBench {
    pub(super) fn measure_reads(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let (values, count) = (Arc::new(Values::random()), self.plan.read_keys);
        eprintln!("GET by the engine: storing {count} values");
        let engine = StoreEngine::open(dir.path())?;
        engine.fill(&values, count)?;
        engine.close()?;
        // After a start no value is in memory but the tail's.
        let engine = StoreEngine::open(dir.path())?;
        let numbers: Arc<[u64]> = engine.on_disk(count)?.into();
        let mut bare = BareReads::in_dir(dir.path(), &values, count)?;
        // What has been read once is in the page cache.
        engine.read(&numbers, &values, self.plan.time)?;
        let mut runs = Vec::new();
        for round in 0..self.plan.rounds {
            eprintln!("GET by the engine, round {} of {}", round + 1, self.plan.rounds);
            let (ours, latencies) = engine.read(&numbers, &values, self.plan.time)?;
            runs.push(ReadRun { ours, latencies, bare: bare.read_for(self.plan.time)? });
        }
        let rss_mib = process::rss_mib(std::process::id())?;
        let run = median(runs, ReadRun::ratio).context("there is at least one round")?;
        let own = json!({
            "engine": "in this process, cache_bytes 0, otherwise the default configuration",
            "keys": count, "keys_on_disk_only": numbers.len(), "value_bytes": [1_024, 5_120], "readers": READERS,
            "rounds": self.plan.rounds, "ratio_of": "reads per second of CPU time",
            "bare_reads_per_cpu_s": run.bare.per_cpu_s(),
        });
        let mut case = self.case("GET of 1–5 KiB by the engine, page cache warm", own);
        case.rate_per_s = run.ours.rate_per_s();
        case.per_core_per_s = Some(run.ours.per_cpu_s());
        case.latency_ms = Some(run.latencies.summary());
        case.rss_mib = Some(rss_mib);
        case.cpu_s_per_million = Some(1e6 / run.ours.per_cpu_s());
        case.peer = Some(Peer {
            name: "pread loop".to_owned(),
            rate_per_s: run.bare.rate_per_s(),
            cpu_s_per_million: Some(1e6 / run.bare.per_cpu_s()),
            ..Peer::default()
        });
        case.ratio = Some(run.ratio());
        findings.aim(at_least("GET by the engine, of the reads of a pread loop per CPU second", run.ratio(), AIM));
        findings.cases.push(case);
        engine.close()
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::StoreWorkload;
    use super::*;
    use crate::Length;
    use crate::machine::Machine;

    #[test]
    fn the_shortest_run_reads_what_was_written_beside_the_loop() {
        let plan = StoreWorkload {
            rounds: 1,
            time: Duration::from_millis(30),
            read_keys: 2_000,
            ..StoreWorkload::of(Length::Quick)
        };
        let machine = Machine::with_files_in(&std::env::temp_dir());
        let mut findings = Findings::default();
        StoreBench { plan, machine, peer: None }.measure_reads(&mut findings).unwrap();
        let case = &findings.cases[0];
        assert!(case.rate_per_s > 0.0 && case.peer.as_ref().is_some_and(|peer| peer.rate_per_s > 0.0), "{case:?}");
        assert!(findings.notes[0].starts_with("Aim"), "{:?}", findings.notes);
    }
}
