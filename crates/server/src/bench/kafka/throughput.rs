//! As fast as Kafka's own clients go: producing with both kinds of acks, then consuming what was produced.

use millstream_load::report::BenchCase;
use serde_json::json;

use super::case::{Compared, aim};
use super::side::Contestant;
use super::tools::ProducerRun;
use super::{Ground, LARGE_BYTES, SMALL_BYTES};

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
    ground: &Ground,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<Throughput> {
    let mut found = Throughput::default();
    for record_bytes in [SMALL_BYTES, LARGE_BYTES] {
        let leader = contestants(ground, record_bytes, "1")?;
        let compared = produce(ground, &leader, record_bytes, "1", cases, notes)?;
        let first = compared[0].rate_per_s();
        let all = contestants(ground, record_bytes, "all")?;
        let compared = produce(ground, &all, record_bytes, "all", cases, notes)?;
        let rates = [first, compared[0].rate_per_s()];
        *(if record_bytes == SMALL_BYTES { &mut found.small } else { &mut found.large }) = rates;
        consume(ground, &leader, record_bytes, cases, notes)?;
    }
    Ok(found)
}

/// Kafka, Millstream at `written` and, where acks=all makes a difference, at `synced`.
fn contestants<'a>(ground: &'a Ground, record_bytes: usize, acks: &str) -> anyhow::Result<Vec<Contestant<'a>>> {
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
    ground: &Ground,
    contestants: &[Contestant<'_>],
    record_bytes: usize,
    acks: &'static str,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Compared>> {
    let what = format!("produce {record_bytes} B, acks={acks}");
    let records = ground.plan.records(record_bytes);
    let compared = ground.interleaved(&what, contestants, |contestant| {
        ground.tools.produce(&ProducerRun {
            bootstrap: &contestant.side.bootstrap,
            topic: &contestant.topic,
            records,
            record_bytes,
            acks,
            records_per_s: None,
        })
    })?;
    for (contestant, ours) in contestants.iter().zip(&compared).skip(1) {
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
    ground: &Ground,
    contestants: &[Contestant<'_>],
    record_bytes: usize,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let what = format!("consume {record_bytes} B");
    let records = ground.plan.records(record_bytes) * ground.plan.rounds as u64;
    let compared = ground.interleaved(&what, contestants, |contestant| {
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
