//! Produce latency at half of Kafka's rate, with Kafka's own producer.

use millstream_load::report::BenchCase;
use serde_json::json;

use super::case::aim;
use super::case_filter;
use super::comparison::KafkaBench;
use super::rounds::RoundResults;
use super::server::Contestant;
use super::throughput::Throughput;
use super::tools::ProducerRun;
use super::workload::SMALL_BYTES;

/// Largest ratio of Millstream's p99 to Kafka's.
pub(super) const P99_AIM: f64 = 1.0 / 3.0;

/// Measures 100-byte records at half of Kafka's rate.
pub(super) fn measure(
    suite: &KafkaBench<'_>,
    throughput: &Throughput,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    for (acks, best) in ["1", "all"].into_iter().zip(throughput.small) {
        let what = case_filter::half_rate(acks);
        if !suite.filter.has(&what) {
            continue;
        }
        let rate = best / 2.0;
        let topic = format!("bench-half-{acks}");
        let mut contestants = vec![
            suite.kafka.with_topic("Kafka", &topic, "written")?,
            suite.ours.with_topic("written", &topic, "written")?,
        ];
        if acks == "all" {
            contestants.push(suite.ours.with_topic("synced", &topic, "synced")?);
        }
        let compared = suite.interleaved(&what, suite.plan.rounds, &contestants, |contestant| {
            suite.tools.produce(&ProducerRun {
                bootstrap: &contestant.side.bootstrap,
                topic: &contestant.topic,
                records: (rate * suite.plan.half_rate.as_secs_f64()) as u64,
                record_bytes: SMALL_BYTES,
                acks,
                records_per_s: Some(rate),
            })
        })?;
        let conditions = json!({
            "client": "org.apache.kafka.tools.ProducerPerformance", "acks": acks, "record_bytes": SMALL_BYTES,
            "linger_ms": 0, "records_per_s": rate, "latency_of": "a record, told in whole milliseconds",
        });
        tell(suite, &what, &contestants, &compared, &conditions, cases, notes);
    }
    Ok(())
}

/// Adds a case for each of our contestants and checks the aim.
pub(super) fn tell(
    suite: &KafkaBench<'_>,
    what: &str,
    contestants: &[Contestant<'_>],
    compared: &[RoundResults],
    conditions: &serde_json::Value,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) {
    for (contestant, ours) in contestants.iter().zip(compared).skip(1) {
        let mut conditions = conditions.clone();
        conditions["level"] = json!(contestant.name);
        cases.push(suite.case(format!("{what}, {}", contestant.name), ours, &compared[0], conditions));
        if contestant.name == "written" {
            let (own, kafkas) = (ours.p99_ms(), compared[0].p99_ms());
            let told = format!("{own:.2} ms, Kafka's {kafkas:.2} ms");
            notes.push(aim(&format!("{what}: p99 at most 1/3 of Kafka's"), own <= kafkas * P99_AIM, &told));
        }
    }
}
