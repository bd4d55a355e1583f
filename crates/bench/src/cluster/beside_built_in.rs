//! Updates of entities and telemetry of devices, beside a server with the built-in log.

use anyhow::Context as _;
use millstream_load::JsonClient;
use millstream_load::sim::SimArgs;
use serde_json::json;

use super::{ClusterBench, Round};
use crate::connect::case::{self, CASES};
use crate::connect::{log_everybody_in, sim_args};
use crate::context::fixture::EntityServer;
use crate::context::population;
use crate::findings::Findings;
use crate::store::values::{Values, key, push_put};

const ENTITIES: u64 = 10_000;
const CLIENTS: usize = 500;
/// Least ratios of what a CPU second does.
const ENTITIES_AIM: f64 = 0.4;
const TELEMETRY_AIM: f64 = 0.6;
const BUCKET: &str = "values";
/// Keys of 1 to 5 KiB, more in all than the newest records that are kept in memory.
const KEYS: u64 = 50_000;

impl ClusterBench {
    pub(super) fn entities(&self, findings: &mut Findings) -> anyhow::Result<()> {
        for place in [&self.built_in, &self.on_kafka] {
            place.create_entities(0, ENTITIES, ENTITIES)?;
        }
        let update = |place: &EntityServer| {
            let phase = place.load(self.plan.times, CLIENTS, None, |number, _, request| {
                population::update(number, ENTITIES, request);
            })?;
            Ok(Round::of(&phase))
        };
        let conditions = json!({ "entities": ENTITIES, "connections": CLIENTS });
        self.compare("one attribute of an entity updated by PATCH", Some(ENTITIES_AIM), conditions, update, findings)
    }

    pub(super) fn telemetry(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        for place in [&self.built_in, &self.on_kafka] {
            runtime.block_on(log_everybody_in(sim_args(&place.server, CASES[0].options)?))?;
        }
        for case in CASES.iter().filter(|case| [case::HTTP_1, case::MQTT_1, case::MQTT_1_16].contains(&case.name)) {
            let send = |place: &EntityServer| {
                let args = sim_args(&place.server, case.options)?;
                let (warm_up, duration) = (self.plan.times.warm_up, Some(self.plan.times.measured));
                let args = SimArgs { warm_up, duration, ..args };
                let run = runtime.block_on(case::run(place.server.pid(), &args))?;
                Ok(Round {
                    rate_per_s: run.report.rate_per_s,
                    per_core_per_s: run.per_core_per_s().context("nothing was accepted, or no CPU time was used")?,
                    latency_ms: Some(run.report.latency_ms),
                    errors: run.report.failed(),
                    rss_mib: run.rss_mib,
                    generator_bottleneck: run.report.generator.bottleneck,
                })
            };
            self.compare(case.name, Some(TELEMETRY_AIM), json!({ "options": case.options }), send, findings)?;
        }
        Ok(())
    }

    pub(super) fn values(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let values = Values::random();
        for place in [&self.built_in, &self.on_kafka] {
            JsonClient::connect(place.address)?.send("PUT", &format!("/buckets/{BUCKET}"), &json!({}))?;
            place.send_all(CLIENTS, KEYS, |number, _, request| {
                push_put(BUCKET, &key(number), "written", values.get(number), request);
            })?;
        }
        let read = |place: &EntityServer| {
            let phase = place.load(self.plan.times, CLIENTS, None, |number, _, request| {
                population::get(&format!("/kv/{BUCKET}/{}", key(population::any(number, KEYS))), request);
            })?;
            Ok(Round::of(&phase))
        };
        let conditions = json!({ "keys": KEYS, "value_bytes": [1_024, 5_120], "connections": CLIENTS });
        self.compare("a value read at random by GET", None, conditions, read, findings)
    }
}
