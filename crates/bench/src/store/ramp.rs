//! A rising rate of writes until it is too much (the knee), and 70 % of that for long.

use std::cell::Cell;

use anyhow::{Context as _, bail};
use millstream_load::StopCondition;
use serde_json::json;

use super::puts::{PUBLISHED, Puts};
use super::server::{HttpRun, StoreServer};
use super::values::Values;
use super::workload::StoreWorkload;
use super::{CONNECTIONS, StoreBench};
use crate::cores::Cores;
use crate::findings::{Findings, at_least, at_most};
use crate::process;

const BUCKET: &str = "ramp";
/// Share of the offered rate that must be answered in a step that holds.
const ANSWERED_SHARE: f64 = 0.97;
/// Aim for the knee of writes that need not be synced.
const MEMORY_AIM_PER_S: f64 = 40_000.0;
/// Latency below which 98 of 100 requests must be answered in a step that holds: for that aim, and for writes that must
/// be synced that of the published knee.
const MEMORY_P98_MAX_MS: f64 = 10.0;
const SYNCED_P98_MAX_MS: f64 = PUBLISHED.1;
/// Most steps; each rate is a multiple of the one before.
const STEPS_MAX: usize = 40;
/// Share of the knee that is offered for long.
const STEADY_SHARE: f64 = 0.7;
/// Aims for the long run: p99.9 of its last part by that of the second, and the longest pause.
const P99_9_GROWTH_AIM: f64 = 2.0;
const PAUSE_AIM_MS: f64 = 100.0;
/// Aim for memory at the end, by that after the second part.
const RSS_GROWTH_AIM: f64 = 1.1;

/// A step of the ramp.
struct RampStep {
    offered_per_s: f64,
    run: HttpRun,
}

impl RampStep {
    fn holds(&self, p98_max_ms: f64) -> bool {
        let requested = &self.run.requested;
        let is_answered = requested.rate_per_s() >= self.offered_per_s * ANSWERED_SHARE;
        is_answered && requested.refused == 0 && self.run.p98_ms() <= p98_max_ms
    }
}

impl StoreBench {
    pub(super) fn measure_ramp(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let server = StoreServer::open(dir.path(), &Cores::shared())?;
        server.put_bucket(BUCKET, &json!({}))?;
        let (values, next) = (Values::random(), Cell::new(0));
        let puts = |ack| Puts { values: &values, bucket: BUCKET, ack, next: &next };
        server.load(CONNECTIONS, None, StopCondition::Count(self.plan.warm_up_puts), |_, _, request| {
            puts("written").push(request);
        })?;
        let memory_per_s = self.ramp(&server, &puts("memory"), MEMORY_P98_MAX_MS, findings)?;
        let what = format!("knee of PUT at memory with p98 {MEMORY_P98_MAX_MS:.0} ms, writes/s");
        findings.aim(at_least(&what, memory_per_s, MEMORY_AIM_PER_S));
        let knee_per_s = self.ramp(&server, &puts("synced"), SYNCED_P98_MAX_MS, findings)?;
        self.steady(&server, &puts("synced"), knee_per_s * STEADY_SHARE, findings)
    }

    /// Raises the rate until a step does not hold, and returns the last rate that did. A first rate that
    /// is too high is halved.
    fn ramp(
        &self,
        server: &StoreServer,
        puts: &Puts<'_>,
        p98_max_ms: f64,
        findings: &mut Findings,
    ) -> anyhow::Result<f64> {
        let ack = puts.ack;
        let (mut offered_per_s, factor) = self.plan.ramp;
        let (mut knee, mut steps, mut has_failed) = (None, Vec::new(), false);
        for _ in 0..STEPS_MAX {
            eprintln!("ramp, {ack}, {offered_per_s:.0} writes/s");
            process::rest(server.process.pid())?;
            let until = StopCondition::Time(self.plan.step);
            let run = server.load(CONNECTIONS, Some(offered_per_s), until, |_, _, request| {
                puts.push(request);
            })?;
            let step = RampStep { offered_per_s, run };
            steps.push(json!({
                "offered_per_s": offered_per_s,
                "answered_per_s": step.run.requested.rate_per_s(),
                "p98_ms": step.run.p98_ms(),
                "holds": step.holds(p98_max_ms),
            }));
            match (step.holds(p98_max_ms), &knee) {
                (true, _) => {
                    knee = Some(step);
                    offered_per_s *= factor;
                }
                // What the machine does beside must not end the ramp: a step that does not hold is tried once more.
                (false, _) if !has_failed => {
                    has_failed = true;
                    continue;
                }
                (false, Some(_)) => break,
                // The machine is slower than the ramp begins.
                (false, None) => offered_per_s /= 2.0,
            }
            has_failed = false;
        }
        let Some(RampStep { offered_per_s, run }) = knee else {
            bail!("{ack}: no step of the ramp holds: {}", json!(steps));
        };
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "cores_of": Cores::shared().to_string(),
            "connections": CONNECTIONS, "loop": "open", "value_bytes": [1_024, 5_120], "ack": ack,
            "a_step_holds": format!("{ANSWERED_SHARE} of the rate answered, p98 at most {p98_max_ms} ms, in one of two tries"),
            "steps": steps, "step_s": self.plan.step.as_secs_f64(),
        });
        findings.notes.push(format!(
            "Knee of PUT at {ack}: {offered_per_s:.0} writes/s with p98 {:.1} ms, steps of {:.0} % (published: {:.0} with {:.0} ms).",
            run.p98_ms(),
            (factor - 1.0) * 100.0,
            PUBLISHED.0,
            PUBLISHED.1,
        ));
        findings.cases.push(run.fill(self.case(format!("knee of PUT 1–5 KiB, {ack}"), own)));
        Ok(offered_per_s)
    }

    fn steady(
        &self,
        server: &StoreServer,
        puts: &Puts<'_>,
        offered_per_s: f64,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        eprintln!("{offered_per_s:.0} writes/s for {:.0} s", self.plan.steady_time.as_secs_f64());
        process::rest(server.process.pid())?;
        let until = StopCondition::Time(self.plan.steady_time / StoreWorkload::SLICES);
        let mut parts = Vec::new();
        for _ in 0..StoreWorkload::SLICES {
            parts.push(server.load(CONNECTIONS, Some(offered_per_s), until, |_, _, request| {
                puts.push(request);
            })?);
        }
        let p99_9_ms: Vec<f64> = parts.iter().map(|part| part.requested.latencies.summary().p99_9).collect();
        let rss_mib: Vec<f64> = parts.iter().map(|part| part.rss_mib).collect();
        let total = HttpRun::sum(parts).context("there is at least one part")?;
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "cores_of": Cores::shared().to_string(),
            "connections": CONNECTIONS, "loop": "open", "offered_per_s": offered_per_s, "value_bytes": [1_024, 5_120],
            "ack": puts.ack, "took_s": total.requested.took.as_secs_f64(),
            "p99_9_ms_of_parts": p99_9_ms, "rss_mib_of_parts": rss_mib,
        });
        let case = total.fill(self.case("PUT 1–5 KiB, synced, at 70 % of the knee", own));
        findings.aim(at_most(
            "70 % of the knee, p99.9 of the last part by that of the second",
            growth(&p99_9_ms),
            P99_9_GROWTH_AIM,
        ));
        findings.aim(at_most(
            "70 % of the knee, memory after the last part by that after the second",
            growth(&rss_mib),
            RSS_GROWTH_AIM,
        ));
        let longest_ms = case.latency_ms.map_or(0.0, |latency| latency.max);
        findings.aim(at_most("70 % of the knee, the longest answer in ms", longest_ms, PAUSE_AIM_MS));
        findings.aim(at_least(
            "70 % of the knee, answered of offered",
            case.rate_per_s / offered_per_s,
            ANSWERED_SHARE,
        ));
        findings.cases.push(case);
        Ok(())
    }
}

/// The last figure by the second; the first part still warms up.
fn growth(parts: &[f64]) -> f64 {
    match (parts.get(1), parts.last()) {
        (Some(second), Some(last)) => last / second.max(f64::MIN_POSITIVE),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_from_the_second_part_to_the_last() {
        assert_eq!(growth(&[9.0, 2.0, 7.0, 4.0]), 2.0);
        assert!(growth(&[1.0]).is_nan());
    }
}
