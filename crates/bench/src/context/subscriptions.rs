//! Cost of subscriptions for an update.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use millstream_load::{NotificationReceiver, RequestLoad, StopCondition};
use serde_json::{Value, json};

use super::aims::{self, Findings};
use super::fixture::{ContextBench, ContextWorkload, EntityServer, LoadPhase, MANY};
use super::population;

/// Number of rounds. The speed of a machine varies, so each cost is compared with that without
/// subscriptions in the same round.
const ROUNDS: usize = 3;
/// Throttling in seconds that suppresses nearly all notifications.
const HARDLY_EVER_S: u64 = 3_600;
/// Default number of connections to a receiver.
const RECEIVER_CONNECTIONS: usize = 16;

/// One setting, measured once in each round.
struct SubscriptionRounds {
    name: String,
    rounds: Vec<LoadPhase>,
}

impl SubscriptionRounds {
    fn new(name: impl Into<String>) -> Self {
        Self { name: format!("updates, {}", name.into()), rounds: Vec::new() }
    }

    fn us_each(&self) -> Vec<f64> {
        self.rounds.iter().map(LoadPhase::us_each).collect()
    }

    /// Returns the extra cost over `none` in percent for each round, ascending.
    fn more_than(&self, none: &Self) -> Vec<f64> {
        let pairs = self.us_each().into_iter().zip(none.us_each());
        let mut more: Vec<f64> = pairs.map(|(each, without)| (each / without - 1.0) * 100.0).collect();
        more.sort_by(f64::total_cmp);
        more
    }
}

impl ContextBench {
    /// Measures updates without a subscription, with one matching, and with one matching among many, in turns.
    pub(super) fn subscriptions(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let (apart, among) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let (apart, among) = (self.populated(apart.path())?, self.populated(among.path())?);
        let receiver = NotificationReceiver::start(Instant::now())?;
        let count = self.plan.subscriptions;
        let others = count - 1;
        subscribe(&among, others, receiver.address, |number| {
            format!("{{\"id\":\"urn:other:{number}\",\"type\":\"Other\"}}")
        })?;
        subscribe(&among, 1, receiver.address, everything)?;
        let it = target_of(&among, others)?;
        let mut none = SubscriptionRounds::new("no subscription");
        let mut foreign = SubscriptionRounds::new(format!("{others} subscriptions that do not match"));
        let mut throttled = SubscriptionRounds::new(format!("{count} subscriptions, one matches, throttled"));
        let mut all = SubscriptionRounds::new(format!("{count} subscriptions, one matches"));
        let mut one = SubscriptionRounds::new("one subscription, it matches");
        for _ in 0..ROUNDS {
            self.updated(&apart, &mut none)?;
            patch(&among, &it, &json!({ "status": "inactive" }))?;
            self.updated(&among, &mut foreign)?;
            patch(&among, &it, &json!({ "status": "active", "throttling": HARDLY_EVER_S }))?;
            self.updated(&among, &mut throttled)?;
            patch(&among, &it, &json!({ "throttling": 0 }))?;
            self.updated(&among, &mut all)?;
            subscribe(&apart, 1, receiver.address, everything)?;
            self.updated(&apart, &mut one)?;
            let it = target_of(&apart, 0)?;
            apart.send_all(1, 1, |_, _, request| population::with_body("DELETE", &it, "text/plain", "", request))?;
        }
        let bare_us = bare_us(&among, receiver.address, self.plan.time)?;
        let name = format!("CPU of an update with {count} subscriptions of which one matches, % more than without any");
        let aim = |what: &str, measured: &SubscriptionRounds| {
            let more = measured.more_than(&none);
            let aim = aims::at_most(&format!("{name}, {what}, median of {ROUNDS} rounds"), more[ROUNDS / 2], 20.0);
            format!("{aim} The rounds: {}.", spread(&more))
        };
        findings.aim(aim("where throttling lets hardly any notification go", &throttled));
        findings.aim(aim("where each update is a notification", &all));
        findings.notes.push(format!(
            "In the rounds {others} that do not match cost {} % more than none; one that matches, and no other, {}. A bare POST of \
             such a notification and its answer take {bare_us:.1} us of CPU; an update without subscriptions took {} us.",
            spread(&foreign.more_than(&none)),
            spread(&one.more_than(&none)),
            spread(&none.us_each()),
        ));
        let few = self.plan.few;
        findings.cases.extend([none, foreign, throttled, all, one].into_iter().filter_map(|mut measured| {
            let conditions = json!({ "entities": few, "connections": MANY, "us_of_rounds": measured.us_each() });
            measured.rounds.sort_by(|a, b| a.us_each().total_cmp(&b.us_each()));
            Some(self.case(&*measured.name, measured.rounds.get(ROUNDS / 2)?, conditions))
        }));
        Ok(())
    }

    fn populated(&self, dir: &std::path::Path) -> anyhow::Result<EntityServer> {
        let place = EntityServer::open(dir, &self.cores)?;
        place.create_entities(0, self.plan.few, self.plan.few)?;
        Ok(place)
    }

    fn updated(&self, place: &EntityServer, measured: &mut SubscriptionRounds) -> anyhow::Result<()> {
        eprintln!("{}, round {} of {ROUNDS}", measured.name, measured.rounds.len() + 1);
        let few = self.plan.few;
        let plan = ContextWorkload { time: self.plan.time / 2, ..self.plan };
        measured
            .rounds
            .push(place.load(plan.times(), MANY, None, |number, _, request| population::update(number, few, request))?);
        Ok(())
    }
}

fn spread(figures: &[f64]) -> String {
    figures.iter().map(|figure| format!("{figure:.1}")).collect::<Vec<_>>().join(", ")
}

/// Creates `count` subscriptions of `receiver` to the entities that `of` names.
pub(super) fn subscribe(
    place: &EntityServer,
    count: u64,
    receiver: SocketAddr,
    of: impl Fn(u64) -> String,
) -> anyhow::Result<()> {
    let requested = place.send_all(MANY, count, |number, _, request| {
        let body = format!(
            "{{\"subject\":{{\"entities\":[{}]}},\"notification\":{{\"http\":{{\"url\":\"http://{receiver}/n\"}}}}}}",
            of(number)
        );
        population::with_body("POST", "/v2/subscriptions", "application/json", &body, request);
    });
    requested.map(drop).context("cannot subscribe")
}

pub(super) fn everything(_: u64) -> String {
    "{\"idPattern\":\".*\",\"type\":\"WeatherObserved\"}".to_owned()
}

/// Returns the path of the subscription that was created after `others` others.
fn target_of(place: &EntityServer, others: u64) -> anyhow::Result<String> {
    let page = place.get(&format!("/v2/subscriptions?limit=1&offset={others}"))?;
    let id = page.pointer("/0/id").and_then(Value::as_str).context("the last subscription is not listed")?;
    Ok(format!("/v2/subscriptions/{id}"))
}

fn patch(place: &EntityServer, target: &str, patch: &Value) -> anyhow::Result<()> {
    let body = patch.to_string();
    place.send_all(1, 1, |_, _, request| {
        population::with_body("PATCH", target, "application/json", &body, request);
    })?;
    Ok(())
}

/// Measures the CPU microseconds of a bare POST of a notification, as a baseline.
fn bare_us(place: &EntityServer, receiver: SocketAddr, time: Duration) -> anyhow::Result<f64> {
    let entity = place.get(&format!("/v2/entities/{}", population::id(0)))?;
    let body = json!({ "subscriptionId": "0123456789abcdef01234567", "data": [entity] }).to_string();
    let load = RequestLoad {
        address: receiver,
        connections: RECEIVER_CONNECTIONS,
        rate_per_s: None,
        until: StopCondition::Time(time),
    };
    let sent = load.run(|_, _, request| population::with_body("POST", "/n", "application/json", &body, request))?;
    ensure!(sent.answered > 0, "the receiver has not answered");
    Ok(sent.cpu.as_secs_f64() * 1e6 / sent.answered as f64)
}
