//! A restart with many entities, queries among them, and updates beside a client that lists entities all the time.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use millstream_load::{RequestLoad, StopCondition};
use serde_json::{Value, json};

use super::aims::{self, Findings};
use super::fixture::{ContextBench, EntityServer, LoadPhase};
use super::population::{self, OF_ONE_STATION};
use super::updates::FilledStore;
use crate::process;

/// Longest wait for an index to be built.
const PATIENCE: Duration = Duration::from_secs(120);
/// Updates a second beside lists.
const UPDATES_PER_S: f64 = 1_000.0;
const UPDATERS: usize = 16;
/// Radius in metres that contains about 20 entities.
const NEAR_M: u32 = 2_800;

/// A query case: its name, its target for an entity number, and the aim for its p99.
struct QueryCase<'q> {
    name: &'q str,
    target: &'q dyn Fn(u64) -> String,
    aim_ms: Option<f64>,
}

impl ContextBench {
    /// Starts a server on the data that [`ContextBench::updates`] left.
    pub(super) fn queries(&self, dir: &Path, filled: &FilledStore, findings: &mut Findings) -> anyhow::Result<()> {
        let many = self.plan.many;
        eprintln!("starting over {many} entities");
        let begin = Instant::now();
        let place = EntityServer::open(dir, &self.cores)?;
        place.get(&format!("/v2/entities/{}", population::id(many - 1)))?;
        findings.aim(aims::at_most(
            &format!("start over {many} entities after kill -9, until one is read, s"),
            begin.elapsed().as_secs_f64(),
            10.0,
        ));
        process::rest(place.server.pid())?;
        let beyond = self.beyond_json(&place, 0.0, filled.json_bytes)?;
        findings.notes.push(format!(
            "After that start an entity takes {beyond:.0} bytes beyond its JSON, the whole server included."
        ));
        let any = |number| population::any(number, many);
        let station = |number| format!("/v2/entities?q=station==%27{}%27", population::station(any(number)));
        let narrow = |number| {
            let from = any(number) % 30;
            format!("/v2/entities?q=windSpeed=={from};temperature%3C{}", any(number) % 50 + 1)
        };
        let near = |number| {
            let (latitude, longitude) = population::location(any(number), many);
            format!("/v2/entities?georel=near;maxDistance:{NEAR_M}&geometry=point&coords={latitude:.4},{longitude:.4}")
        };
        let nearest = |number| {
            let (latitude, longitude) = population::location(any(number), many);
            format!(
                "/v2/entities?georel=near;minDistance:0&geometry=point&coords={latitude:.4},{longitude:.4}&orderBy=geo:distance"
            )
        };
        for query in [
            QueryCase { name: "q on an indexed attribute, 20 found", target: &station, aim_ms: Some(5.0) },
            QueryCase { name: "q on two attributes, thousands fit, a page of 20", target: &narrow, aim_ms: None },
            QueryCase { name: "near within 2.8 km, about 20 found", target: &near, aim_ms: Some(10.0) },
            QueryCase { name: "the 20 nearest", target: &nearest, aim_ms: None },
        ] {
            self.query(&place, &query, findings)?;
        }
        self.beside_lists(&place, findings)
    }

    fn query(&self, place: &EntityServer, query: &QueryCase<'_>, findings: &mut Findings) -> anyhow::Result<()> {
        let name = format!("{} entities: {}", self.plan.many, query.name);
        eprintln!("{name}");
        let explained = explained(place, &(query.target)(1)).with_context(|| name.clone())?;
        let stretch = place
            .load(self.plan.times(), 1, None, |number, _, request| population::get(&(query.target)(number), request))?;
        let found: Value = serde_json::from_slice(&stretch.requested.last_body)?;
        let found = found.as_array().map_or(0, Vec::len);
        ensure!((1..=OF_ONE_STATION as usize).contains(&found), "{name}: {found} entities on the last page");
        let own = json!({
            "entities": self.plan.many, "connections": 1, "found_last": found, "explain": explained,
            "query": (query.target)(1),
        });
        let case = self.case(&*name, &stretch, own);
        findings.notes.push(format!("{name}: {}", plan(&explained)));
        if let (Some(aim), Some(latency)) = (query.aim_ms, case.latency_ms) {
            findings.aim(aims::at_most(&format!("{name}, p99 in ms"), latency.p99, aim));
        }
        findings.cases.push(case);
        Ok(())
    }

    /// Measures open-loop updates, alone and beside a client that lists all entities by pattern in a loop.
    fn beside_lists(&self, place: &EntityServer, findings: &mut Findings) -> anyhow::Result<()> {
        let many = self.plan.many;
        let update = |number, _, request: &mut Vec<u8>| population::update(number, many, request);
        let alone = place.load(self.plan.times(), UPDATERS, Some(UPDATES_PER_S), update)?;
        let time = self.plan.time + self.plan.warm_up + Duration::from_secs(1);
        let lists =
            RequestLoad { address: place.address, connections: 1, rate_per_s: None, until: StopCondition::Time(time) };
        let list = |number: u64, _, request: &mut Vec<u8>| {
            let offset = number % (many / 1_000).max(1) * 1_000;
            let target = format!("/v2/entities?idPattern=.*&limit=1000&offset={offset}&options=count");
            population::get(&target, request);
        };
        eprintln!("updates beside lists");
        let (beside, listed) = std::thread::scope(|scope| {
            let listing = scope.spawn(|| lists.run(list));
            std::thread::sleep(self.plan.warm_up);
            let time = RequestLoad {
                address: place.address,
                connections: UPDATERS,
                rate_per_s: Some(UPDATES_PER_S),
                until: StopCondition::Time(self.plan.time),
            };
            let requested = time.run(update);
            (requested, listing.join())
        });
        let listed = listed.map_err(|_| anyhow::anyhow!("the client that lists has panicked"))??;
        ensure!(listed.answered > 0, "no list was answered: {:?}", listed.first_refusal);
        let rss_mib = place.server.rss_mib()?;
        let beside = LoadPhase { requested: beside?, cpu_s: 0.0, rss_mib };
        let listed_ms = listed.latencies.summary().p50;
        let lists = json!({ "listed": listed.answered, "lists_refused": listed.refused, "list_p50_ms": listed_ms });
        let name = format!("{many} entities: updates at {UPDATES_PER_S:.0}/s");
        findings.cases.push(self.case(&*name, &alone, json!({ "connections": UPDATERS })));
        findings.cases.push(self.case(format!("{name} beside lists of all by pattern"), &beside, lists));
        let p99 = |stretch: &LoadPhase| stretch.requested.latencies.summary().p99;
        findings.aim(aims::is_left_alone("updates beside lists of all by pattern", p99(&alone), p99(&beside)));
        findings.notes.push(format!(
            "Meanwhile {} lists of a page of 1,000 out of all, counted, were answered, p50 {listed_ms:.0} ms.",
            listed.answered
        ));
        Ok(())
    }
}

/// Waits until no index is being built and returns the query plan. A scan is an error.
fn explained(place: &EntityServer, target: &str) -> anyhow::Result<Value> {
    let begin = Instant::now();
    loop {
        let plan = place.get(&format!("{target}&options=explain"))?;
        if plan["building"].as_array().is_none_or(Vec::is_empty) {
            ensure!(plan["index"] != "creation" && plan["index"] != "type", "{target} is a scan: {plan}");
            return Ok(plan);
        }
        ensure!(begin.elapsed() < PATIENCE, "the index that {target} needs is not built after {PATIENCE:?}: {plan}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn plan(explained: &Value) -> String {
    let text = |name: &str| explained[name].as_str().unwrap_or_default().to_owned();
    format!("found by index '{}', {} candidates of {}.", text("index"), explained["candidates"], explained["entities"])
}
