//! Writes of 1 to 5 KiB over HTTP, beside a loop that writes and syncs the same bytes.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Context as _;
use millstream_load::StopCondition;
use millstream_load::report::Peer;
use serde_json::json;

use super::engine::PARTITIONS;
use super::server::{HttpRun, StoreServer};
use super::values::{Values, key, push_put};
use super::{CONNECTIONS, StoreBench, median};
use crate::bare_loop::{BareLoop, BareLoopTime, LogWrites};
use crate::cores::Cores;
use crate::findings::{Findings, at_least, at_most};
use crate::process;

const BUCKET: &str = "puts";
/// Different keys, each written once before the first is written again.
pub(super) const KEYS: u64 = 1_000_000;
/// Aim for writes that must be synced, as a share of the bare loop's rate.
pub(super) const SYNCED_AIM: f64 = 0.6;
/// Published: writes a second, and the time within which 98 of 100 were answered.
pub(super) const PUBLISHED: (f64, f64) = (23_000.0, 25.0);

/// The writes of a bucket, whose numbers go on from load to load.
pub(super) struct Puts<'a> {
    pub(super) values: &'a Values,
    pub(super) bucket: &'a str,
    pub(super) ack: &'a str,
    pub(super) next: &'a Cell<u64>,
}

impl Puts<'_> {
    /// Appends the next request and returns the bytes of its value.
    pub(super) fn push(&self, request: &mut Vec<u8>) -> usize {
        let number = self.next.replace(self.next.get() + 1);
        let value = self.values.get(number);
        push_put(self.bucket, &key(number % KEYS), self.ack, value, request);
        value.len()
    }
}

/// A round of a level.
struct PutRun {
    http: HttpRun,
    value_bytes: u64,
    /// Times of the bare loop for the same bytes.
    bare: Option<BareLoopTime>,
}

impl PutRun {
    fn ratio(&self) -> Option<f64> {
        self.share_of(self.bare?.all)
    }

    /// Our rate by that of a loop that took `time` for the same bytes.
    fn share_of(&self, time: Duration) -> Option<f64> {
        Some(time.as_secs_f64() / self.http.requested.took.as_secs_f64())
    }
}

impl StoreBench {
    pub(super) fn measure_puts(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let server = StoreServer::open(dir.path(), &Cores::shared())?;
        server.put_bucket(BUCKET, &json!({ "partitions": PARTITIONS }))?;
        let bare = BareLoop::in_dir(dir.path(), PARTITIONS)?;
        let (values, next) = (Values::random(), Cell::new(0));
        let puts = |ack| Puts { values: &values, bucket: BUCKET, ack, next: &next };
        server.load(CONNECTIONS, None, StopCondition::Count(self.plan.warm_up_puts), |_, _, request| {
            puts("written").push(request);
        })?;
        let levels = ["synced", "written", "memory"];
        let mut runs = levels.map(|_| Vec::new());
        for round in 0..self.plan.rounds {
            for (level, runs) in levels.iter().zip(&mut runs) {
                eprintln!("PUT, {level}, round {} of {}", round + 1, self.plan.rounds);
                process::rest(server.process.pid())?;
                let value_bytes = Cell::new(0);
                let puts = puts(level);
                let http = server.load_for(CONNECTIONS, self.plan.time, |_, _, request| {
                    value_bytes.set(value_bytes.get() + puts.push(request) as u64);
                })?;
                let value_bytes = value_bytes.get();
                let bare = if *level == "synced" { bare.write_like(writes_of(&http, value_bytes))? } else { None };
                runs.push(PutRun { http, value_bytes, bare });
            }
        }
        let mut here = Vec::new();
        for (level, runs) in levels.into_iter().zip(runs) {
            let key = |run: &PutRun| run.ratio().unwrap_or_else(|| run.http.requested.rate_per_s());
            let run = median(runs, key).context("there is at least one round")?;
            let rate_per_s = run.http.requested.rate_per_s();
            here.push(format!("{level} {rate_per_s:.0}/s with p98 {:.1} ms", run.http.p98_ms()));
            self.report_puts(level, &run, findings);
        }
        let (published_per_s, published_p98_ms) = PUBLISHED;
        findings.notes.push(format!(
            "Published for the older system, 1–5 KB through an HTTP proxy into one node's cache, the client elsewhere: \
             {published_per_s:.0} writes/s with p98 {published_p98_ms:.0} ms; here, client and server on the same cores: {}.",
            here.join("; "),
        ));
        Ok(())
    }

    fn report_puts(&self, level: &str, run: &PutRun, findings: &mut Findings) {
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "cores_of": Cores::shared().to_string(),
            "connections": CONNECTIONS, "loop": "closed", "value_bytes": [1_024, 5_120], "ack": level, "partitions": PARTITIONS,
            "rounds": self.plan.rounds,
            "took_s": run.http.requested.took.as_secs_f64(),
            "payload_bytes": run.value_bytes,
            "server_wrote_bytes": run.http.written_bytes,
            "ratio_to_bare_journal_alone": run.bare.and_then(|time| run.share_of(time.journal)),
            "first_refusal": run.http.requested.first_refusal,
        });
        let mut case = run.http.fill(self.case(format!("PUT 1–5 KiB, {level}"), own));
        let answered = run.http.requested.answered as f64;
        case.peer = run.bare.map(|time| Peer {
            name: "bare loop, groups of 64".to_owned(),
            rate_per_s: answered / time.all.as_secs_f64(),
            ..Peer::default()
        });
        case.ratio = run.ratio();
        if let Some(ratio) = case.ratio {
            findings.aim(at_least("PUT of 1–5 KiB at synced, of the bare loop's rate", ratio, SYNCED_AIM));
        }
        if level != "synced" {
            let what = format!("p98 in ms of PUT at {level} with all {CONNECTIONS} connections busy");
            findings.aim(at_most(&what, run.http.p98_ms(), PUBLISHED.1));
        }
        findings.cases.push(case);
    }
}

/// The least that a log must write for these values: one frame and one sync for all that were in flight
/// together, and each value once more in a segment. A short run of ours may leave some of that for
/// later; `ratio_to_bare_journal_alone` is without it.
fn writes_of(run: &HttpRun, value_bytes: u64) -> LogWrites {
    let groups = run.requested.answered.div_ceil(CONNECTIONS as u64);
    LogWrites { bytes: value_bytes, frames: groups, syncs: groups, segment_bytes: value_bytes }
}
