//! As fast as Kafka's own clients go: producing with both kinds of acks, then consuming what was produced.

use millstream_load::report::BenchCase;
use serde_json::json;

use super::case::{Compared, aim};
use super::side::Contestant;
use super::tools::ProducerRun;
use super::{Ground, LARGE_BYTES, Length, Plan, SMALL_BYTES, selection};

/// What Millstream's CPU time may be of Kafka's.
const CPU_AIM: f64 = 0.25;

/// What Kafka does with its own clients: what later cases are held against.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    /// Records of 100 bytes a second with acks=1 and with acks=all.
    pub(super) small: [f64; 2],
    /// The same of 1 KiB.
    pub(super) large: [f64; 2],
}

/// Produces and consumes.
pub(super) fn measure(
    ground: &Ground<'_>,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<Throughput> {
    let mut found = Throughput::default();
    let Throughput { small, large } = &mut found;
    for (record_bytes, rates) in [(SMALL_BYTES, small), (LARGE_BYTES, large)] {
        let consumes = ground.selection.has(&selection::consume(record_bytes));
        for (acks, rate) in ["1", "all"].into_iter().zip(rates) {
            let is_consumed = consumes && acks == "1";
            let Some(plan) = plan(ground, record_bytes, acks, is_consumed) else { continue };
            let contestants = contestants(ground, record_bytes, acks)?;
            *rate = produce(ground, plan, &contestants, record_bytes, acks, cases, notes)?[0].rate_per_s();
            if is_consumed {
                consume(ground, &contestants, record_bytes, cases, notes)?;
            }
        }
    }
    Ok(found)
}

/// How much is produced; `None` if nobody asks for it.
fn plan(ground: &Ground<'_>, record_bytes: usize, acks: &str, is_consumed: bool) -> Option<Plan> {
    let selection = ground.selection;
    let is_asked_for = is_consumed || selection.has(&selection::produce(record_bytes, acks));
    let shortly = || selection.builds_on_producing(record_bytes, acks).then(|| Plan::of(Length::Default));
    if is_asked_for { Some(ground.plan) } else { shortly() }
}

/// Kafka, Millstream at `written` and, where acks=all makes a difference, at `synced`.
fn contestants<'a>(ground: &'a Ground<'_>, record_bytes: usize, acks: &str) -> anyhow::Result<Vec<Contestant<'a>>> {
    let topic = format!("bench-{record_bytes}-{acks}");
    let mut all = vec![
        ground.kafka.with_topic("Kafka", &topic, "written")?,
        ground.ours.with_topic("written", &topic, "written")?,
    ];
    if acks == "all" {
        all.push(ground.ours.with_topic("synced", &topic, "synced")?);
    }
    Ok(all)
}

fn produce(
    ground: &Ground<'_>,
    plan: Plan,
    contestants: &[Contestant<'_>],
    record_bytes: usize,
    acks: &'static str,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Compared>> {
    let what = selection::produce(record_bytes, acks);
    let records = plan.records(record_bytes);
    let compared = ground.interleaved(&what, plan.rounds, contestants, |contestant| {
        ground.tools.produce(&ProducerRun {
            bootstrap: &contestant.side.bootstrap,
            topic: &contestant.topic,
            records,
            record_bytes,
            acks,
            records_per_s: None,
        })
    })?;
    for (contestant, ours) in contestants.iter().zip(&compared).skip(1).filter(|_| ground.selection.has(&what)) {
        let conditions = json!({
            "client": "org.apache.kafka.tools.ProducerPerformance", "acks": acks, "record_bytes": record_bytes,
            "records": records, "level": contestant.name,
        });
        cases.push(ground.case(format!("{what}, {}", contestant.name), ours, &compared[0], conditions));
        if contestant.name == "written" {
            notes.push(rate_and_cpu(&what, ours, &compared[0]));
        }
    }
    Ok(compared)
}

fn consume(
    ground: &Ground<'_>,
    contestants: &[Contestant<'_>],
    record_bytes: usize,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let what = selection::consume(record_bytes);
    let records = ground.plan.records(record_bytes) * ground.plan.rounds as u64;
    let compared = ground.interleaved(&what, ground.plan.rounds, contestants, |contestant| {
        ground.tools.consume(&contestant.side.bootstrap, &contestant.topic, records)
    })?;
    let conditions = json!({
        "client": "org.apache.kafka.tools.ConsumerPerformance", "record_bytes": record_bytes, "records": records,
        "rate_of": "fetching, without the time until the group had its partitions",
    });
    cases.push(ground.case(what.clone(), &compared[1], &compared[0], conditions));
    notes.push(rate_and_cpu(&what, &compared[1], &compared[0]));
    Ok(())
}

fn rate_and_cpu(what: &str, ours: &Compared, kafka: &Compared) -> String {
    let (ratio, cpu) = (ours.ratio_to(kafka), ours.cpu_s_per_million() / kafka.cpu_s_per_million());
    let told = format!(
        "{ratio:.2} of its rate, {cpu:.2} of its CPU time ({:.2} s and {:.2} s per million)",
        ours.cpu_s_per_million(),
        kafka.cpu_s_per_million()
    );
    aim(&format!("{what}: Kafka's rate at 1/4 of its CPU time"), ratio >= 1.0 && cpu <= CPU_AIM, &told)
}
