//! Notification delays, alone and beside a receiver that never answers.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::ensure;
use millstream_load::{NotificationReceiver, RequestLoad, StopCondition};
use serde_json::json;

use super::aims::{self, Findings};
use super::fixture::{ContextBench, EntityServer, LoadPhase, MANY};
use super::population;
use super::subscriptions::{everything, subscribe};

/// Longest wait for the last notifications.
const PATIENCE: Duration = Duration::from_secs(20);

impl ContextBench {
    /// Measures notifications to a healthy receiver, alone and beside one that never answers.
    pub(super) fn delays(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let place = EntityServer::open(dir.path(), &self.cores)?;
        let begin = Instant::now();
        let receiver = NotificationReceiver::start(begin)?;
        place.create_entities(0, self.plan.few, self.plan.few)?;
        subscribe(&place, 1, receiver.address, everything)?;
        let alone = self.notified(&place, &receiver, begin, "a healthy receiver alone", findings)?;
        findings.aim(aims::at_most("notification delay, p99 in ms", alone, 10.0));
        // The system accepts its connections, but nothing answers.
        let dead = TcpListener::bind("127.0.0.1:0")?;
        subscribe(&place, 1, dead.local_addr()?, everything)?;
        let beside = self.notified(&place, &receiver, begin, "beside one that never answers", findings)?;
        findings.aim(aims::is_left_alone("notification delay beside a receiver that never answers", alone, beside));
        Ok(())
    }

    /// Measures the p99 of delays at the target rate.
    fn notified(
        &self,
        place: &EntityServer,
        receiver: &NotificationReceiver,
        begin: Instant,
        what: &str,
        findings: &mut Findings,
    ) -> anyhow::Result<f64> {
        let rate_per_s = self.plan.notified_per_s;
        let name = format!("notifications at {rate_per_s:.0}/s, {what}");
        eprintln!("{name}");
        let few = self.plan.few;
        let send = |number: u64, at: Instant, request: &mut Vec<u8>| {
            population::stamp(number, few, at.duration_since(begin).as_micros(), request);
        };
        place.load(self.plan.times(), MANY, Some(rate_per_s), send)?;
        wait_quiet(receiver);
        receiver.take();
        let load = RequestLoad {
            address: place.address,
            connections: MANY,
            rate_per_s: Some(rate_per_s),
            until: StopCondition::Time(self.plan.time),
        };
        let cpu_before = place.server.cpu_s()?;
        let requested = load.run(send)?;
        wait_quiet(receiver);
        let cpu_s = place.server.cpu_s()? - cpu_before;
        let delays = receiver.take();
        ensure!(delays.count() > 0, "no notification has come");
        let missing = requested.answered.saturating_sub(delays.count());
        let rss_mib = place.server.rss_mib()?;
        let updated = requested.latencies.summary();
        let phase = LoadPhase { requested, cpu_s, rss_mib };
        let mut case =
            self.case(&*name, &phase, json!({ "update_ms": updated, "missing": missing, "connections": MANY }));
        let summary = delays.summary();
        case.latency_ms = Some(summary);
        case.errors += missing;
        findings.cases.push(case);
        Ok(summary.p99)
    }
}

/// Waits until no notification arrives any more.
fn wait_quiet(receiver: &NotificationReceiver) {
    let begin = Instant::now();
    let mut before = receiver.count();
    while begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(300));
        let now = receiver.count();
        if now == before {
            return;
        }
        before = now;
    }
}
