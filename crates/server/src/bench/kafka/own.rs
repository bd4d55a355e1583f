//! The generator of ours, which needs a fraction of a core: what the servers do when the client does not set the pace.

use millstream_load::kafka::{Acks, ProduceLoad};
use millstream_load::report::BenchCase;
use serde_json::json;

use super::case::{Compared, aim};
use super::latency;
use super::side::{Contestant, Figures};
use super::throughput::Throughput;
use super::{Ground, LARGE_BYTES, PARTITIONS, SMALL_BYTES, selection};

/// What Millstream's rate is to be of Kafka's best.
const RATE_AIM: f64 = 1.5;
/// Bytes of a batch: what Kafka's producer gathers at most by default.
const BATCH_BYTES: usize = 16 << 10;
/// What a record takes besides its value.
const RECORD_OVERHEAD_BYTES: usize = 10;

/// As fast as answers allow, then open loop at half of Kafka's rate with its own clients.
pub(super) fn measure(
    ground: &Ground<'_>,
    throughput: &Throughput,
    cases: &mut Vec<BenchCase>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    for (record_bytes, best) in [(SMALL_BYTES, throughput.small), (LARGE_BYTES, throughput.large)] {
        let what = selection::own(record_bytes);
        if !ground.selection.has(&what) {
            continue;
        }
        let (contestants, compared) = run(ground, &what, record_bytes, None)?;
        let best = best.into_iter().fold(compared[0].rate_per_s(), f64::max);
        for (contestant, ours) in contestants.iter().zip(&compared).skip(1) {
            let conditions = json!({
                "client": "millstream", "record_bytes": record_bytes, "level": contestant.name,
                "load": format!("{:?}", load(ground, contestant, record_bytes, None)),
                "latency_of": "a request", "peer_best_rate_per_s": best,
            });
            cases.push(ground.case(format!("{what}, {}", contestant.name), ours, &compared[0], conditions));
        }
        let ratio = compared[1].rate_per_s() / best;
        let told = format!("{ratio:.2} ({:.0}/s and {best:.0}/s)", compared[1].rate_per_s());
        notes.push(aim(&format!("{what}: 1.5 of Kafka's best rate, whatever its client"), ratio >= RATE_AIM, &told));
    }
    let what = selection::own_half_rate();
    if !ground.selection.has(&what) {
        return Ok(());
    }
    let rate = throughput.small[1] / 2.0;
    let (contestants, compared) = run(ground, &what, SMALL_BYTES, Some(rate))?;
    let conditions = json!({
        "client": "millstream", "record_bytes": SMALL_BYTES, "records_per_s": rate,
        "load": format!("{:?}", load(ground, &contestants[1], SMALL_BYTES, Some(rate))),
        "latency_of": "a request, from when it was due",
    });
    latency::tell(ground, &what, &contestants, &compared, &conditions, cases, notes);
    Ok(())
}

fn run<'a>(
    ground: &'a Ground<'_>,
    what: &str,
    record_bytes: usize,
    records_per_s: Option<f64>,
) -> anyhow::Result<(Vec<Contestant<'a>>, Vec<Compared>)> {
    let topic = format!("bench-own-{record_bytes}-{}", if records_per_s.is_some() { "open" } else { "closed" });
    let contestants = vec![
        ground.kafka.with_topic("Kafka", &topic, "written")?,
        ground.ours.with_topic("written", &topic, "written")?,
        ground.ours.with_topic("synced", &topic, "synced")?,
    ];
    let compared = ground.interleaved(what, ground.plan.rounds, &contestants, |contestant| {
        let produced = load(ground, contestant, record_bytes, records_per_s).run()?;
        if let Some(error) = &produced.first_error {
            eprintln!("{what}, {}: {} requests were refused, the first: {error}", contestant.name, produced.errors);
        }
        Ok(Figures {
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
    ground: &Ground<'_>,
    contestant: &Contestant<'_>,
    record_bytes: usize,
    records_per_s: Option<f64>,
) -> ProduceLoad {
    ProduceLoad {
        record_bytes,
        batch_records: BATCH_BYTES / (record_bytes + RECORD_OVERHEAD_BYTES),
        acks: Acks::All,
        records_per_s,
        duration: ground.plan.own,
        ..ProduceLoad::to(contestant.side.address, &contestant.topic, PARTITIONS)
    }
}
