//! Results of one contestant over the rounds of a case, and their medians.

use millstream_load::LatencyMs;

use super::server::ServerRun;

/// Results of one contestant over all rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundResults {
    pub(super) rounds: Vec<ServerRun>,
}

impl RoundResults {
    pub(super) fn median(&self, of: impl Fn(&ServerRun) -> f64) -> f64 {
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

    pub(super) fn rss_mib(&self) -> f64 {
        self.rounds.iter().map(|round| round.rss_mib).fold(0.0, f64::max)
    }

    pub(super) fn latency_ms(&self) -> Option<LatencyMs> {
        let reported: Vec<LatencyMs> = self.rounds.iter().filter_map(|round| round.figures.latency_ms).collect();
        let of = |of: fn(&LatencyMs) -> f64| median(reported.iter().map(of).collect());
        let some = |of: fn(&LatencyMs) -> Option<f64>| {
            reported.iter().map(of).collect::<Option<Vec<_>>>().map(median).filter(|_| !reported.is_empty())
        };
        (!reported.is_empty()).then(|| LatencyMs {
            p50: of(|l| l.p50),
            p90: some(|l| l.p90),
            p98: some(|l| l.p98),
            p99: of(|l| l.p99),
            p99_9: of(|l| l.p99_9),
            max: of(|l| l.max),
        })
    }

    /// Median over the rounds of our rate divided by `peer`'s rate.
    pub(super) fn ratio_to(&self, peer: &Self) -> f64 {
        let pairs = self.rounds.iter().zip(&peer.rounds);
        median(pairs.map(|(ours, peer)| ours.figures.rate_per_s / peer.figures.rate_per_s).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use millstream_load::LatencyMs;

    use super::super::client_result::ClientResult;
    use super::super::server::ServerRun;
    use super::*;

    fn compared(rates: &[f64]) -> RoundResults {
        let round = |rate: &f64| ServerRun {
            figures: ClientResult {
                records: 1,
                rate_per_s: *rate,
                latency_ms: Some(LatencyMs { p99: *rate, ..LatencyMs::default() }),
                errors: 0,
                generator_bottleneck: false,
            },
            cpu_s_per_million: 2.0,
            rss_mib: *rate,
        };
        RoundResults { rounds: rates.iter().map(round).collect() }
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
