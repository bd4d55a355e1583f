//! Full-rate cases with Kafka's own clients: producing with both kinds of acks, then consuming the records.

use millstream_load::report::BenchCase;
use serde_json::json;

use super::case::aim;
use super::case_filter;
use super::comparison::KafkaBench;
use super::rounds::RoundResults;
use super::server::Contestant;
use super::tools::ProducerRun;
use super::workload::{KafkaWorkload, LARGE_BYTES, SMALL_BYTES};
use crate::Length;

/// Largest ratio of Millstream's CPU time to Kafka's.
const CPU_AIM: f64 = 0.25;

/// Kafka's rates with its own clients, on which later cases depend.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    /// Records of 100 bytes a second with acks=1 and with acks=all.
    pub(super) small: [f64; 2],
    /// The same of 1 KiB.
    pub(super) large: [f64; 2],
}

pub(super) fn measure(
    suite: &KafkaBench<'_>,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<Throughput> {
    let mut found = Throughput::default();
    let Throughput { small, large } = &mut found;
    for (record_bytes, rates) in [(SMALL_BYTES, small), (LARGE_BYTES, large)] {
        let consumes = suite.filter.has(&case_filter::consume(record_bytes));
        for (acks, rate) in ["1", "all"].into_iter().zip(rates) {
            let is_consumed = consumes && acks == "1";
            let Some(plan) = plan(suite, record_bytes, acks, is_consumed) else { continue };
            let contestants = contestants(suite, record_bytes, acks)?;
            *rate = produce(suite, plan, &contestants, record_bytes, acks, cases, notes)?[0].rate_per_s();
            if is_consumed {
                consume(suite, &contestants, record_bytes, cases, notes)?;
            }
        }
    }
    Ok(found)
}

/// Returns the workload of the produce case; `None` if no selected case needs it.
fn plan(suite: &KafkaBench<'_>, record_bytes: usize, acks: &str, is_consumed: bool) -> Option<KafkaWorkload> {
    let filter = suite.filter;
    let is_asked_for = is_consumed || filter.has(&case_filter::produce(record_bytes, acks));
    let shortly = || filter.builds_on_producing(record_bytes, acks).then(|| KafkaWorkload::of(Length::Default));
    if is_asked_for { Some(suite.plan) } else { shortly() }
}

/// Creates the contestants: Kafka, Millstream at `written` and, with acks=all, at `synced`.
fn contestants<'a>(suite: &'a KafkaBench<'_>, record_bytes: usize, acks: &str) -> anyhow::Result<Vec<Contestant<'a>>> {
    let topic = format!("bench-{record_bytes}-{acks}");
    let mut all =
        vec![suite.kafka.with_topic("Kafka", &topic, "written")?, suite.ours.with_topic("written", &topic, "written")?];
    if acks == "all" {
        all.push(suite.ours.with_topic("synced", &topic, "synced")?);
    }
    Ok(all)
}

fn produce(
    suite: &KafkaBench<'_>,
    plan: KafkaWorkload,
    contestants: &[Contestant<'_>],
    record_bytes: usize,
    acks: &'static str,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<RoundResults>> {
    let what = case_filter::produce(record_bytes, acks);
    let records = plan.records(record_bytes);
    let compared = suite.interleaved(&what, plan.rounds, contestants, |contestant| {
        suite.tools.produce(&ProducerRun {
            bootstrap: &contestant.side.bootstrap,
            topic: &contestant.topic,
            records,
            record_bytes,
            acks,
            records_per_s: None,
        })
    })?;
    for (contestant, ours) in contestants.iter().zip(&compared).skip(1).filter(|_| suite.filter.has(&what)) {
        let conditions = json!({
            "client": "org.apache.kafka.tools.ProducerPerformance", "acks": acks, "record_bytes": record_bytes,
            "records": records, "level": contestant.name,
        });
        cases.push(suite.case(format!("{what}, {}", contestant.name), ours, &compared[0], conditions));
        if contestant.name == "written" {
            notes.push(rate_and_cpu(&what, ours, &compared[0]));
        }
    }
    Ok(compared)
}

fn consume(
    suite: &KafkaBench<'_>,
    contestants: &[Contestant<'_>],
    record_bytes: usize,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let what = case_filter::consume(record_bytes);
    let records = suite.plan.records(record_bytes) * suite.plan.rounds as u64;
    let compared = suite.interleaved(&what, suite.plan.rounds, contestants, |contestant| {
        suite.tools.consume(&contestant.side.bootstrap, &contestant.topic, records)
    })?;
    let conditions = json!({
        "client": "org.apache.kafka.tools.ConsumerPerformance", "record_bytes": record_bytes, "records": records,
        "rate_of": "fetching, without the time until the group had its partitions",
    });
    cases.push(suite.case(what.clone(), &compared[1], &compared[0], conditions));
    notes.push(rate_and_cpu(&what, &compared[1], &compared[0]));
    Ok(())
}

fn rate_and_cpu(what: &str, ours: &RoundResults, kafka: &RoundResults) -> String {
    let (ratio, cpu) = (ours.ratio_to(kafka), ours.cpu_s_per_million() / kafka.cpu_s_per_million());
    let told = format!(
        "{ratio:.2} of its rate, {cpu:.2} of its CPU time ({:.2} s and {:.2} s per million)",
        ours.cpu_s_per_million(),
        kafka.cpu_s_per_million()
    );
    aim(&format!("{what}: Kafka's rate at 1/4 of its CPU time"), ratio >= 1.0 && cpu <= CPU_AIM, &told)
}
