//! Suite `log --peer kafka`: Kafka's own performance classes, and a generator of ours, against Millstream's listener
//! and a real broker in turn.
//!
//! A single broker of Kafka answers before anything is synced, so it is compared with topics whose level is
//! `written`; `synced` stands apart. Rounds are interleaved and figures are medians of rounds, so that a machine
//! that slows down meets both.

pub(crate) mod brokers;
mod case;
mod case_filter;
mod client_result;
mod comparison;
mod generator;
mod latency;
mod rounds;
mod server;
mod throughput;
pub(crate) mod tools;
mod workload;

use anyhow::{Context as _, bail};
use millstream_load::report::BenchCase;

use super::machine::Machine;
use super::{Length, Report};
use brokers::KafkaBrokers;
use case_filter::CaseFilter;
use comparison::KafkaBench;
use server::ServerUnderTest;
use tools::Tools;
use workload::{KafkaWorkload, PARTITIONS};

/// Runs the suite, or only the cases that have `only` in their names.
pub(super) fn measure(length: Length, only: Option<&str>) -> anyhow::Result<Report> {
    let filter = CaseFilter { only };
    if filter.is_empty() {
        bail!(
            "--only '{}': no case name contains this text; leave the option out to run all cases and see their names",
            only.unwrap_or("")
        );
    }
    let tools = Tools::beside_this_program()?;
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let cluster = KafkaBrokers::start(&tools, &dir.path().join("kafka"), 1)?;
    let [broker] = &cluster.brokers[..] else { bail!("Kafka has started with another number of brokers than one") };
    let served = super::server_process::ServerProcess::start(dir.path())?;
    let suite = KafkaBench {
        plan: KafkaWorkload::of(length),
        filter,
        machine,
        tools,
        ours: ServerUnderTest::of_millstream(&served)?,
        kafka: ServerUnderTest::of_kafka(broker)?,
    };
    let (mut cases, mut notes) = (Vec::new(), Vec::new());
    let throughput = throughput::measure(&suite, &mut cases, &mut notes)?;
    latency::measure(&suite, &throughput, &mut cases, &mut notes)?;
    generator::measure(&suite, &throughput, &mut cases, &mut notes)?;
    notes.push(memory(&cases));
    notes.extend(suite.machine.warning());
    Ok(Report { heading: heading(&suite), cases, notes })
}

/// Compares the peak memory over all cases.
fn memory(cases: &[BenchCase]) -> String {
    let highest = |of: fn(&BenchCase) -> Option<f64>| cases.iter().filter_map(of).fold(0.0, f64::max);
    let (ours, kafkas) = (highest(|c| c.rss_mib), highest(|c| c.peer.as_ref()?.rss_mib));
    let met = if ours * 5.0 <= kafkas { "met" } else { "missed" };
    format!(
        "Aim, memory at most 1/5 of Kafka's: {met}: highest {ours:.0} MiB, Kafka's {kafkas:.0} MiB ({:.2} of it).",
        ours / kafkas
    )
}

fn heading(suite: &KafkaBench<'_>) -> String {
    let KafkaWorkload { rounds, produced_bytes, half_rate, own } = suite.plan;
    format!(
        "Over sockets: Kafka's own ProducerPerformance and ConsumerPerformance, then a generator of ours, against \
         `millstream serve` (default configuration) and against {}, in turn. One client, topics of {PARTITIONS} partitions, \
         clients' defaults but for acks; linger.ms=0 where latency is measured.\n\
         {}.\n\
         {rounds} rounds each, medians; {} MB of values a round, {:.0} s at half of Kafka's rate, {:.0} s with our generator. \
         CPU time is the server's, until {:.1} s after the last answer, so that what it puts off counts; memory is the highest \
         of a round. A single Kafka does not sync before it answers: it is compared with topics at `written`.",
        suite.kafka.described,
        suite.machine,
        produced_bytes / 1_000_000,
        half_rate.as_secs_f64(),
        own.as_secs_f64(),
        server::SETTLE.as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::workload::{LARGE_BYTES, SMALL_BYTES};
    use super::*;

    #[test]
    fn a_plan_sends_about_as_many_bytes_at_every_record_size() {
        let plan = KafkaWorkload::of(Length::Default);
        assert_eq!((plan.records(SMALL_BYTES), plan.records(LARGE_BYTES)), (500_000, 48_828));
    }
}
