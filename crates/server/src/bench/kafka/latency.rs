//! How long a produced record takes at half of what Kafka can do, with Kafka's own producer.

use millstream_load::report::BenchCase;
use serde_json::json;

use super::case::{Compared, aim};
use super::side::Contestant;
use super::throughput::Throughput;
use super::tools::ProducerRun;
use super::{Ground, SMALL_BYTES, selection};

/// What Millstream's p99 may be of Kafka's.
pub(super) const P99_AIM: f64 = 1.0 / 3.0;

/// 100-byte records at half of Kafka's rate.
pub(super) fn measure(
    ground: &Ground<'_>,
    throughput: &Throughput,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    for (acks, best) in ["1", "all"].into_iter().zip(throughput.small) {
        let what = selection::half_rate(acks);
        if !ground.selection.has(&what) {
            continue;
        }
        let rate = best / 2.0;
        let topic = format!("bench-half-{acks}");
        let mut contestants = vec![
            ground.kafka.with_topic("Kafka", &topic, "written")?,
            ground.ours.with_topic("written", &topic, "written")?,
        ];
        if acks == "all" {
            contestants.push(ground.ours.with_topic("synced", &topic, "synced")?);
        }
        let compared = ground.interleaved(&what, ground.plan.rounds, &contestants, |contestant| {
            ground.tools.produce(&ProducerRun {
                bootstrap: &contestant.side.bootstrap,
                topic: &contestant.topic,
                records: (rate * ground.plan.half_rate.as_secs_f64()) as u64,
                record_bytes: SMALL_BYTES,
                acks,
                records_per_s: Some(rate),
            })
        })?;
        let conditions = json!({
            "client": "org.apache.kafka.tools.ProducerPerformance", "acks": acks, "record_bytes": SMALL_BYTES,
            "linger_ms": 0, "records_per_s": rate, "latency_of": "a record, told in whole milliseconds",
        });
        tell(ground, &what, &contestants, &compared, &conditions, cases, notes);
    }
    Ok(())
}

/// A case for each of ours, and what became of the aim.
pub(super) fn tell(
    ground: &Ground<'_>,
    what: &str,
    contestants: &[Contestant<'_>],
    compared: &[Compared],
    conditions: &serde_json::Value,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) {
    for (contestant, ours) in contestants.iter().zip(compared).skip(1) {
        let mut conditions = conditions.clone();
        conditions["level"] = json!(contestant.name);
        cases.push(ground.case(format!("{what}, {}", contestant.name), ours, &compared[0], conditions));
        if contestant.name == "written" {
            let (own, kafkas) = (ours.p99_ms(), compared[0].p99_ms());
            let told = format!("{own:.2} ms, Kafka's {kafkas:.2} ms");
            notes.push(aim(&format!("{what}: p99 at most 1/3 of Kafka's"), own <= kafkas * P99_AIM, &told));
        }
    }
}
