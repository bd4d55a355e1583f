//! What subscriptions cost an update, and how long notifications are on their way.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use millstream_load::{Receiver, RequestLoad, Until};
use serde_json::{Value, json};

use super::aims::{self, Judged};
use super::ground::{Ground, MANY, Place, Stretch};
use super::population;

/// How long the last notifications are waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Seconds between notifications that are to be as good as none.
const HARDLY_EVER_S: u64 = 3_600;
/// As many as a server opens to a receiver by default.
const RECEIVER_CONNECTIONS: usize = 16;

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
        subscribe(&place, 1, receiver.address, everything)?;
        let count = self.plan.subscriptions;
        patch_last(&place, others, &json!({ "throttling": HARDLY_EVER_S }))?;
        let matched = self.updated(&place, &format!("{count} subscriptions, one matches, throttled"), told)?;
        patch_last(&place, others, &json!({ "throttling": 0 }))?;
        let all = self.updated(&place, &format!("{count} subscriptions, one matches"), told)?;
        let bare_us = bare_us(&place, receiver.address, self.plan.time)?;
        let dir = tempfile::tempdir()?;
        let place = Place::open(dir.path(), &self.cores)?;
        population::make(&place, 0, self.plan.few, self.plan.few)?;
        subscribe(&place, 1, receiver.address, everything)?;
        let one = self.updated(&place, "one subscription, it matches", told)?;
        let more = |stretch: &Stretch| (stretch.us_each() / none.us_each() - 1.0) * 100.0;
        let name = format!("CPU of an update with {count} subscriptions of which one matches, % more than without any");
        told.aim(aims::at_most(
            &format!("{name}, where throttling lets hardly any notification go"),
            more(&matched),
            20.0,
        ));
        told.aim(aims::at_most(&format!("{name}, where each update is a notification"), more(&all), 20.0));
        told.notes.push(format!(
            "{others} that do not match cost {:.1} % more than none; one that matches, and no other, {:.1} %. A bare POST of such a \
             notification and its answer take {bare_us:.1} us of CPU, {:.1} % of an update without subscriptions ({:.1} us).",
            more(&foreign),
            more(&one),
            bare_us / none.us_each() * 100.0,
            none.us_each(),
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

/// All entities of the bench.
fn everything(_: u64) -> String {
    "{\"idPattern\":\".*\",\"type\":\"WeatherObserved\"}".to_owned()
}

/// Changes the subscription that was made after so many others.
fn patch_last(place: &Place, others: u64, patch: &Value) -> anyhow::Result<()> {
    let page = place.get(&format!("/v2/subscriptions?limit=1&offset={others}"))?;
    let id = page.pointer("/0/id").and_then(Value::as_str).context("the last subscription is not listed")?;
    let (target, body) = (format!("/v2/subscriptions/{id}"), patch.to_string());
    place.send_all(1, 1, |_, _, request| {
        population::with_body("PATCH", &target, "application/json", &body, request);
    })?;
    Ok(())
}

/// Microseconds of CPU time that it takes to send a notification of a whole entity and read the answer, and nothing else.
fn bare_us(place: &Place, receiver: SocketAddr, time: Duration) -> anyhow::Result<f64> {
    let entity = place.get(&format!("/v2/entities/{}", population::id(0)))?;
    let body = json!({ "subscriptionId": "0123456789abcdef01234567", "data": [entity] }).to_string();
    let load = RequestLoad {
        address: receiver,
        connections: RECEIVER_CONNECTIONS,
        rate_per_s: None,
        until: Until::Time(time),
    };
    let sent = load.run(|_, _, request| population::with_body("POST", "/n", "application/json", &body, request))?;
    ensure!(sent.answered > 0, "the receiver has not answered");
    Ok(sent.cpu.as_secs_f64() * 1e6 / sent.answered as f64)
}
