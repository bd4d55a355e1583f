//! What subscriptions cost an update, and how long notifications are on their way.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use millstream_load::Receiver;
use serde_json::json;

use super::aims::{self, Judged};
use super::ground::{Ground, MANY, Place, Stretch};
use super::population;

/// How long the last notifications are waited for.
const PATIENCE: Duration = Duration::from_secs(20);

impl Ground {
    /// Updates that nobody hears of, that one subscription does, and that one among very many does.
    pub(super) fn subscriptions(&self, told: &mut Judged) -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let place = Place::open(dir.path(), &self.cores)?;
        let receiver = Receiver::start(Instant::now())?;
        population::make(&place, 0, self.plan.few, self.plan.few)?;
        let others = self.plan.subscriptions - 1;
        let none = self.updated(&place, "no subscription", told)?;
        subscribe(&place, others, receiver.address, |number| {
            format!("{{\"id\":\"urn:other:{number}\",\"type\":\"Other\"}}")
        })?;
        let foreign = self.updated(&place, &format!("{others} subscriptions that do not match"), told)?;
        subscribe(&place, 1, receiver.address, |_| "{\"idPattern\":\".*\",\"type\":\"WeatherObserved\"}".to_owned())?;
        let all = self.updated(&place, &format!("{} subscriptions, one matches", self.plan.subscriptions), told)?;
        let dir = tempfile::tempdir()?;
        let place = Place::open(dir.path(), &self.cores)?;
        population::make(&place, 0, self.plan.few, self.plan.few)?;
        subscribe(&place, 1, receiver.address, |_| "{\"idPattern\":\".*\",\"type\":\"WeatherObserved\"}".to_owned())?;
        let one = self.updated(&place, "one subscription, it matches", told)?;
        let more = |stretch: &Stretch, than: &Stretch| (stretch.us_each() / than.us_each() - 1.0) * 100.0;
        let all_name = format!("CPU of an update with {} subscriptions of which one matches", self.plan.subscriptions);
        told.aim(aims::at_most(&format!("{all_name}, % more than without any"), more(&all, &none), 20.0));
        told.notes.push(format!(
            "Those that do not match cost {:.1} % more than none; all together {:.1} % more than the one that matches, whose \
             notification costs {:.1} % of an update itself.",
            more(&foreign, &none),
            more(&all, &one),
            more(&one, &none),
        ));
        Ok(())
    }

    fn updated(&self, place: &Place, what: &str, told: &mut Judged) -> anyhow::Result<Stretch> {
        let name = format!("updates, {what}");
        eprintln!("{name}");
        let few = self.plan.few;
        let stretch =
            place.load(self.plan, (MANY, None), |number, _, request| population::update(number, few, request))?;
        told.cases.push(self.case(&*name, &stretch, json!({ "entities": few, "connections": MANY })));
        Ok(stretch)
    }

    /// Notifications to a healthy receiver, alone and beside one that never answers.
    pub(super) fn delays(&self, told: &mut Judged) -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let place = Place::open(dir.path(), &self.cores)?;
        let begin = Instant::now();
        let receiver = Receiver::start(begin)?;
        population::make(&place, 0, self.plan.few, self.plan.few)?;
        let all = |_| "{\"idPattern\":\".*\",\"type\":\"WeatherObserved\"}".to_owned();
        subscribe(&place, 1, receiver.address, all)?;
        let alone = self.notified(&place, &receiver, begin, "a healthy receiver alone", told)?;
        told.aim(aims::at_most("notification delay, p99 in ms", alone, 10.0));
        // It takes connections, as its system does, and never answers.
        let dead = TcpListener::bind("127.0.0.1:0")?;
        subscribe(&place, 1, dead.local_addr()?, all)?;
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
        let load = millstream_load::RequestLoad {
            address: place.address,
            connections: MANY,
            rate_per_s: Some(rate_per_s),
            until: millstream_load::Until::Time(self.plan.time),
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

/// Subscribes `receiver` so many times to the entities that `of` names.
fn subscribe(place: &Place, count: u64, receiver: SocketAddr, of: impl Fn(u64) -> String) -> anyhow::Result<()> {
    let requested = place.send_all(MANY, count, |number, _, request| {
        let body = format!(
            "{{\"subject\":{{\"entities\":[{}]}},\"notification\":{{\"http\":{{\"url\":\"http://{receiver}/n\"}}}}}}",
            of(number)
        );
        population::with_body("POST", "/v2/subscriptions", "application/json", &body, request);
    });
    requested.map(drop).context("cannot subscribe")
}
