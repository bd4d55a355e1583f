//! Builds one case of the report from the rounds of each comparison.

use millstream_load::report::{BenchCase, Peer};
use serde_json::{Value, json};

use super::comparison::KafkaBench;
use super::rounds::RoundResults;
use super::workload::PARTITIONS;

impl KafkaBench<'_> {
    /// A case of the report: `ours` beside `kafka`, under `conditions` besides those of all cases.
    pub(super) fn case(&self, name: String, ours: &RoundResults, kafka: &RoundResults, conditions: Value) -> BenchCase {
        let mut all = self.machine.conditions();
        let common = json!({
            "server": self.ours.described,
            "peer": self.kafka.described,
            "partitions": PARTITIONS,
            "rounds": self.plan.rounds,
            "rates_per_s": ours.rounds.iter().map(|round| round.figures.rate_per_s).collect::<Vec<_>>(),
            "peer_rates_per_s": kafka.rounds.iter().map(|round| round.figures.rate_per_s).collect::<Vec<_>>(),
        });
        for members in [common, conditions] {
            if let Value::Object(members) = members {
                all.extend(members);
            }
        }
        let cpu = ours.cpu_s_per_million();
        BenchCase {
            suite: "log".to_owned(),
            case: name,
            conditions: all,
            rate_per_s: ours.rate_per_s(),
            per_core_per_s: (cpu > 0.0).then(|| 1e6 / cpu),
            latency_ms: ours.latency_ms(),
            errors: ours.rounds.iter().map(|round| round.figures.errors).sum(),
            rss_mib: Some(ours.rss_mib()),
            cpu_s_per_million: Some(cpu),
            peer: Some(Peer {
                name: "Kafka 4.1".to_owned(),
                rate_per_s: kafka.rate_per_s(),
                latency_ms: kafka.latency_ms(),
                rss_mib: Some(kafka.rss_mib()),
                cpu_s_per_million: Some(kafka.cpu_s_per_million()),
            }),
            ratio: Some(ours.ratio_to(kafka)),
            generator_bottleneck: ours.rounds.iter().any(|round| round.figures.generator_bottleneck),
        }
    }
}

/// Formats one line about an aim.
pub(super) fn aim(what: &str, is_met: bool, told: &str) -> String {
    format!("Aim, {what}: {}: {told}.", if is_met { "met" } else { "missed" })
}
