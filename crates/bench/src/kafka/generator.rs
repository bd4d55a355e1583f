//! Cases with our own generator, which is light enough not to limit the servers.

use millstream_load::kafka::{Acks, ProduceLoad};
use millstream_load::report::BenchCase;
use serde_json::json;

use super::case::aim;
use super::case_filter;
use super::client_result::ClientResult;
use super::comparison::KafkaBench;
use super::latency;
use super::rounds::RoundResults;
use super::server::Contestant;
use super::throughput::Throughput;
use super::workload::{LARGE_BYTES, PARTITIONS, SMALL_BYTES};

/// Smallest ratio of Millstream's rate to Kafka's best rate.
const RATE_AIM: f64 = 1.5;
/// Bytes of a batch: the default `batch.size` of Kafka's producer.
const BATCH_BYTES: usize = 16 << 10;
/// Bytes of a record besides its value.
const RECORD_OVERHEAD_BYTES: usize = 10;

/// Runs the closed loop, then the open loop at half of Kafka's rate with its own clients.
pub(super) fn measure(
    suite: &KafkaBench<'_>,
    throughput: &Throughput,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    for (record_bytes, best) in [(SMALL_BYTES, throughput.small), (LARGE_BYTES, throughput.large)] {
        let what = case_filter::own(record_bytes);
        if !suite.filter.has(&what) {
            continue;
        }
        let (contestants, compared) = run(suite, &what, record_bytes, None)?;
        let best = best.into_iter().fold(compared[0].rate_per_s(), f64::max);
        for (contestant, ours) in contestants.iter().zip(&compared).skip(1) {
            let conditions = json!({
                "client": "millstream", "record_bytes": record_bytes, "level": contestant.name,
                "load": format!("{:?}", load(suite, contestant, record_bytes, None)),
                "latency_of": "a request", "peer_best_rate_per_s": best,
            });
            cases.push(suite.case(format!("{what}, {}", contestant.name), ours, &compared[0], conditions));
        }
        let ratio = compared[1].rate_per_s() / best;
        let told = format!("{ratio:.2} ({:.0}/s and {best:.0}/s)", compared[1].rate_per_s());
        notes.push(aim(&format!("{what}: 1.5 of Kafka's best rate, whatever its client"), ratio >= RATE_AIM, &told));
    }
    let what = case_filter::own_half_rate();
    if !suite.filter.has(&what) {
        return Ok(());
    }
    let rate = throughput.small[1] / 2.0;
    let (contestants, compared) = run(suite, &what, SMALL_BYTES, Some(rate))?;
    let conditions = json!({
        "client": "millstream", "record_bytes": SMALL_BYTES, "records_per_s": rate,
        "load": format!("{:?}", load(suite, &contestants[1], SMALL_BYTES, Some(rate))),
        "latency_of": "a request, from when it was due",
    });
    latency::tell(suite, &what, &contestants, &compared, &conditions, cases, notes);
    Ok(())
}

fn run<'a>(
    suite: &'a KafkaBench<'_>,
    what: &str,
    record_bytes: usize,
    records_per_s: Option<f64>,
) -> anyhow::Result<(Vec<Contestant<'a>>, Vec<RoundResults>)> {
    let topic = format!("bench-own-{record_bytes}-{}", if records_per_s.is_some() { "open" } else { "closed" });
    let contestants = vec![
        suite.kafka.with_topic("Kafka", &topic, "written")?,
        suite.ours.with_topic("written", &topic, "written")?,
        suite.ours.with_topic("synced", &topic, "synced")?,
    ];
    let compared = suite.interleaved(what, suite.plan.rounds, &contestants, |contestant| {
        let produced = load(suite, contestant, record_bytes, records_per_s).run()?;
        if let Some(error) = &produced.first_error {
            eprintln!("{what}, {}: {} requests were refused, the first: {error}", contestant.name, produced.errors);
        }
        Ok(ClientResult {
            records: produced.records,
            rate_per_s: produced.rate_per_s(),
            latency_ms: Some(produced.latencies.summary()),
            errors: produced.errors,
            generator_bottleneck: produced.generator_bottleneck(),
        })
    })?;
    Ok((contestants, compared))
}

fn load(
    suite: &KafkaBench<'_>,
    contestant: &Contestant<'_>,
    record_bytes: usize,
    records_per_s: Option<f64>,
) -> ProduceLoad {
    ProduceLoad {
        record_bytes,
        batch_records: BATCH_BYTES / (record_bytes + RECORD_OVERHEAD_BYTES),
        acks: Acks::All,
        records_per_s,
        duration: suite.plan.own,
        ..ProduceLoad::to(contestant.side.address, &contestant.topic, PARTITIONS)
    }
}
