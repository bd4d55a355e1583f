//! How long notifications are on their way.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::ensure;
use millstream_load::{Receiver, RequestLoad, Until};
use serde_json::json;

use super::aims::{self, Judged};
use super::ground::{Ground, MANY, Place, Stretch};
use super::population;
use super::subscriptions::{everything, subscribe};

/// How long the last notifications are waited for.
const PATIENCE: Duration = Duration::from_secs(20);

impl Ground {
    /// Notifications to a healthy receiver, alone and beside one that never answers.
    pub(super) fn delays(&self, told: &mut Judged) -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let place = Place::open(dir.path(), &self.cores)?;
        let begin = Instant::now();
        let receiver = Receiver::start(begin)?;
        population::make(&place, 0, self.plan.few, self.plan.few)?;
        subscribe(&place, 1, receiver.address, everything)?;
        let alone = self.notified(&place, &receiver, begin, "a healthy receiver alone", told)?;
        told.aim(aims::at_most("notification delay, p99 in ms", alone, 10.0));
        // It takes connections, as its system does, and never answers.
        let dead = TcpListener::bind("127.0.0.1:0")?;
        subscribe(&place, 1, dead.local_addr()?, everything)?;
        let beside = self.notified(&place, &receiver, begin, "beside one that never answers", told)?;
        told.aim(aims::is_left_alone("notification delay beside a receiver that never answers", alone, beside));
        Ok(())
    }

    /// The p99 of delays at the rate that is aimed for.
    fn notified(
        &self,
        place: &Place,
        receiver: &Receiver,
        begin: Instant,
        what: &str,
        told: &mut Judged,
    ) -> anyhow::Result<f64> {
        let rate_per_s = self.plan.notified_per_s;
        let name = format!("notifications at {rate_per_s:.0}/s, {what}");
        eprintln!("{name}");
        let few = self.plan.few;
        let send = |number: u64, at: Instant, request: &mut Vec<u8>| {
            population::stamp(number, few, at.duration_since(begin).as_micros(), request);
        };
        place.load(self.plan, (MANY, Some(rate_per_s)), send)?;
        wait_quiet(receiver);
        receiver.take();
        let load = RequestLoad {
            address: place.address,
            connections: MANY,
            rate_per_s: Some(rate_per_s),
            until: Until::Time(self.plan.time),
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
        let stretch = Stretch { requested, cpu_s, rss_mib };
        let mut case =
            self.case(&*name, &stretch, json!({ "update_ms": updated, "missing": missing, "connections": MANY }));
        let summary = delays.summary();
        case.latency_ms = Some(summary);
        case.errors += missing;
        told.cases.push(case);
        Ok(summary.p99)
    }
}

/// Waits until nothing comes any more.
fn wait_quiet(receiver: &Receiver) {
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
