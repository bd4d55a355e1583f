//! Runs the contestants of one case in turn, round by round.

use anyhow::Context as _;

use super::case_filter::CaseFilter;
use super::client_result::ClientResult;
use super::rounds::RoundResults;
use super::server::{Contestant, ServerUnderTest};
use super::tools::Tools;
use super::workload::KafkaWorkload;
use crate::machine::Machine;

/// The state that all cases share.
pub(super) struct KafkaBench<'a> {
    pub(super) plan: KafkaWorkload,
    pub(super) filter: CaseFilter<'a>,
    pub(super) machine: Machine,
    pub(super) tools: Tools,
    pub(super) ours: ServerUnderTest,
    pub(super) kafka: ServerUnderTest,
}

impl KafkaBench<'_> {
    /// Runs `run` for each contestant in each round and reports progress on standard error.
    pub(super) fn interleaved(
        &self,
        what: &str,
        rounds: usize,
        contestants: &[Contestant<'_>],
        run: impl Fn(&Contestant<'_>) -> anyhow::Result<ClientResult>,
    ) -> anyhow::Result<Vec<RoundResults>> {
        let mut all: Vec<RoundResults> = contestants.iter().map(|_| RoundResults::default()).collect();
        for round in 0..rounds {
            eprintln!("{what}, round {} of {rounds}", round + 1);
            // The order alternates, so that no contestant always runs first.
            let mut order: Vec<usize> = (0..contestants.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let contestant = &contestants[at];
                let measured = contestant.side.observe(|| run(contestant));
                let measured = measured.with_context(|| format!("{what}, {}", contestant.name))?;
                all[at].rounds.push(measured);
            }
        }
        Ok(all)
    }
}
