//! Suite `log --peer kafka`: Kafka's own performance classes, and a generator of ours, against Millstream's listener and a
//! real broker in turn.
//!
//! A single broker of Kafka answers before anything is synced, so it is compared with topics whose level is `written`;
//! `synced` stands apart. Rounds are interleaved and figures are medians of rounds, so that a machine that slows down
//! meets both.

mod broker;
mod case;
mod latency;
mod own;
mod selection;
mod side;
mod throughput;
mod tools;

use std::time::Duration;

use anyhow::{Context as _, bail};
use millstream_load::report::BenchCase;

use super::machine::Machine;
use super::{Length, Report};
use broker::Broker;
use case::Compared;
use selection::Selection;
use side::{Contestant, Side};
use tools::Tools;

/// Partitions of every topic.
const PARTITIONS: u32 = 4;
const SMALL_BYTES: usize = 100;
const LARGE_BYTES: usize = 1024;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rounds: usize,
    /// Bytes of values that Kafka's producer sends in a round.
    produced_bytes: u64,
    /// How long it sends at half of Kafka's rate.
    half_rate: Duration,
    /// How long the generator of ours sends.
    own: Duration,
}

impl Plan {
    fn of(length: Length) -> Self {
        let s = Duration::from_secs;
        match length {
            Length::Quick => Self { rounds: 1, produced_bytes: 40_000_000, half_rate: s(3), own: s(1) },
            Length::Default => Self { rounds: 3, produced_bytes: 50_000_000, half_rate: s(3), own: s(2) },
            Length::Full => Self { rounds: 3, produced_bytes: 1_000_000_000, half_rate: s(120), own: s(20) },
        }
    }

    fn records(self, record_bytes: usize) -> u64 {
        self.produced_bytes / record_bytes as u64
    }
}

/// Everything that a case needs.
struct Ground<'a> {
    plan: Plan,
    selection: Selection<'a>,
    machine: Machine,
    tools: Tools,
    ours: Side,
    kafka: Side,
}

impl Ground<'_> {
    /// Runs `run` for each contestant in each round, and says so.
    fn interleaved(
        &self,
        what: &str,
        rounds: usize,
        contestants: &[Contestant<'_>],
        run: impl Fn(&Contestant<'_>) -> anyhow::Result<side::Figures>,
    ) -> anyhow::Result<Vec<Compared>> {
        let mut all: Vec<Compared> = contestants.iter().map(|_| Compared::default()).collect();
        for round in 0..rounds {
            eprintln!("{what}, round {} of {rounds}", round + 1);
            // Whoever was first is last in the next round.
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

/// Runs the suite, or only the cases that have `only` in their names.
pub(super) fn measure(length: Length, only: Option<&str>) -> anyhow::Result<Report> {
    let selection = Selection { only };
    if selection.is_empty() {
        bail!(
            "--only '{}': no case has that in its name; without it, all run and tell their names",
            only.unwrap_or("")
        );
    }
    let tools = Tools::beside_this_program()?;
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let broker = Broker::start(&tools, &dir.path().join("kafka"))?;
    let served = super::child::Served::start(dir.path())?;
    let ground = Ground {
        plan: Plan::of(length),
        selection,
        machine,
        tools,
        ours: Side::of_millstream(&served)?,
        kafka: Side::of_kafka(&broker)?,
    };
    let (mut cases, mut notes) = (Vec::new(), Vec::new());
    let throughput = throughput::measure(&ground, &mut cases, &mut notes)?;
    latency::measure(&ground, &throughput, &mut cases, &mut notes)?;
    own::measure(&ground, &throughput, &mut cases, &mut notes)?;
    notes.push(memory(&cases));
    notes.extend(ground.machine.warning());
    Ok(Report { heading: heading(&ground), cases, notes })
}

/// What memory came to over all cases.
fn memory(cases: &[BenchCase]) -> String {
    let highest = |of: fn(&BenchCase) -> Option<f64>| cases.iter().filter_map(of).fold(0.0, f64::max);
    let (ours, kafkas) = (highest(|c| c.rss_mib), highest(|c| c.peer.as_ref()?.rss_mib));
    let met = if ours * 5.0 <= kafkas { "met" } else { "missed" };
    format!(
        "Aim, memory at most 1/5 of Kafka's: {met}: highest {ours:.0} MiB, Kafka's {kafkas:.0} MiB ({:.2} of it).",
        ours / kafkas
    )
}

fn heading(ground: &Ground<'_>) -> String {
    let Plan { rounds, produced_bytes, half_rate, own } = ground.plan;
    format!(
        "Over sockets: Kafka's own ProducerPerformance and ConsumerPerformance, then a generator of ours, against \
         `millstream serve` (default configuration) and against {}, in turn. One client, topics of {PARTITIONS} partitions, \
         clients' defaults but for acks; linger.ms=0 where latency is measured.\n\
         {}.\n\
         {rounds} rounds each, medians; {} MB of values a round, {:.0} s at half of Kafka's rate, {:.0} s with our generator. \
         CPU time is the server's, until {:.1} s after the last answer, so that what it puts off counts; memory is the highest \
         of a round. A single Kafka does not sync before it answers: it is compared with topics at `written`.",
        ground.kafka.described,
        ground.machine,
        produced_bytes / 1_000_000,
        half_rate.as_secs_f64(),
        own.as_secs_f64(),
        side::SETTLE.as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_sends_as_many_bytes_whatever_the_records_are() {
        let plan = Plan::of(Length::Default);
        assert_eq!((plan.records(SMALL_BYTES), plan.records(LARGE_BYTES)), (500_000, 48_828));
    }
}
