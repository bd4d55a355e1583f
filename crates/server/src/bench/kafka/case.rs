//! From rounds to cases: medians, and one case of the report for each comparison.

use millstream_load::LatencyMs;
use millstream_load::report::{BenchCase, Peer};
use serde_json::{Value, json};

use super::side::Measured;
use super::{Ground, PARTITIONS};

/// What one contestant did in all rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Compared {
    pub(super) rounds: Vec<Measured>,
}

impl Compared {
    pub(super) fn median(&self, of: impl Fn(&Measured) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    pub(super) fn rate_per_s(&self) -> f64 {
        self.median(|round| round.figures.rate_per_s)
    }

    pub(super) fn cpu_s_per_million(&self) -> f64 {
        self.median(|round| round.cpu_s_per_million)
    }

    pub(super) fn p99_ms(&self) -> f64 {
        self.median(|round| round.figures.latency_ms.map_or(0.0, |latency| latency.p99))
    }

    fn rss_mib(&self) -> f64 {
        self.rounds.iter().map(|round| round.rss_mib).fold(0.0, f64::max)
    }

    fn latency_ms(&self) -> Option<LatencyMs> {
        let told: Vec<LatencyMs> = self.rounds.iter().filter_map(|round| round.figures.latency_ms).collect();
        let of = |of: fn(&LatencyMs) -> f64| median(told.iter().map(of).collect());
        let some = |of: fn(&LatencyMs) -> Option<f64>| {
            told.iter().map(of).collect::<Option<Vec<_>>>().map(median).filter(|_| !told.is_empty())
        };
        (!told.is_empty()).then(|| LatencyMs {
            p50: of(|l| l.p50),
            p90: some(|l| l.p90),
            p98: some(|l| l.p98),
            p99: of(|l| l.p99),
            p99_9: of(|l| l.p99_9),
            max: of(|l| l.max),
        })
    }

    /// Our rate divided by `peer`'s of the same round; the median of that.
    pub(super) fn ratio_to(&self, peer: &Self) -> f64 {
        let pairs = self.rounds.iter().zip(&peer.rounds);
        median(pairs.map(|(ours, peer)| ours.figures.rate_per_s / peer.figures.rate_per_s).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

impl Ground<'_> {
    /// A case of the report: `ours` beside `kafka`, under `conditions` besides those of all cases.
    pub(super) fn case(&self, name: String, ours: &Compared, kafka: &Compared, conditions: Value) -> BenchCase {
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

/// One line about an aim: what is to be at most (or, the other way round, at least) `limit`.
pub(super) fn aim(what: &str, is_met: bool, told: &str) -> String {
    format!("Aim, {what}: {}: {told}.", if is_met { "met" } else { "missed" })
}

#[cfg(test)]
mod tests {
    use super::super::side::Figures;
    use super::*;

    fn compared(rates: &[f64]) -> Compared {
        let round = |rate: &f64| Measured {
            figures: Figures {
                records: 1,
                rate_per_s: *rate,
                latency_ms: Some(LatencyMs { p99: *rate, ..LatencyMs::default() }),
                errors: 0,
                generator_bottleneck: false,
            },
            cpu_s_per_million: 2.0,
            rss_mib: *rate,
        };
        Compared { rounds: rates.iter().map(round).collect() }
    }

    #[test]
    fn figures_are_medians_of_rounds_and_memory_is_the_highest() {
        let (ours, peer) = (compared(&[30.0, 10.0, 20.0]), compared(&[10.0, 10.0, 5.0]));
        assert_eq!((ours.rate_per_s(), ours.p99_ms(), ours.rss_mib()), (20.0, 20.0, 30.0));
        // 3, 1 and 4: of the rounds, not of the medians.
        assert_eq!(ours.ratio_to(&peer), 3.0);
        assert_eq!(ours.latency_ms().unwrap().p90, None);
    }
}
