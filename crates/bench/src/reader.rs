//! Suite `reader`: cost of a consumer that has fallen far behind for producers at the level `synced`.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use millstream_load::kafka::{Acks, ProduceLoad, ProduceResult, ReadLoad, ReadResult};
use millstream_load::report::{BenchCase, Peer};
use serde_json::json;

use super::machine::Machine;
use super::server_process::ServerProcess;
use super::{Length, Report, process};

const PARTITIONS: u32 = 4;
const OLD: &str = "old";
const LIVE: &str = "live";
const READ_BYTES_PER_S: f64 = 50e6;
/// Rate of the producers: 1,000 requests of 10 records a second.
const RECORDS_PER_S: f64 = 10_000.0;
const BATCH_RECORDS: usize = 10;
/// Time that the reader runs longer than the measurement.
const LEAD: Duration = Duration::from_millis(500);
const SETTLE: Duration = Duration::from_secs(3);
/// Largest increase of the p99, as a share and as a time.
const SLOWER_AIM: f64 = 0.2;
const SLOWER_AIM_MS: f64 = 1.0;

struct ReaderWorkload {
    old_bytes: u64,
    pairs: usize,
    time: Duration,
}

impl ReaderWorkload {
    fn of(length: Length) -> Self {
        let s = Duration::from_secs;
        match length {
            Length::Quick | Length::Default => Self { old_bytes: 300_000_000, pairs: 3, time: s(2) },
            Length::Full => Self { old_bytes: 5_000_000_000, pairs: 5, time: s(10) },
        }
    }
}

/// The producers alone, and beside the reader.
struct Pair {
    alone: ProduceResult,
    beside: ProduceResult,
    read: ReadResult,
    rss_alone_mib: f64,
    rss_beside_mib: f64,
}

pub(super) fn measure(length: Length) -> anyhow::Result<Report> {
    let plan = ReaderWorkload::of(length);
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let server = ServerProcess::start(dir.path())?;
    server.create_topic(OLD, PARTITIONS, "written")?;
    server.create_topic(LIVE, PARTITIONS, "synced")?;
    let address: SocketAddr = server.kafka.parse().with_context(|| format!("{} is no address", server.kafka))?;
    let old_bytes = fill(address, plan.old_bytes)?;
    thread::sleep(SETTLE);
    // Warm-up: creates the journal files and opens connections once.
    produce(address, Duration::from_secs(1))?;
    let mut pairs = Vec::new();
    for number in 0..plan.pairs {
        eprintln!("a reader beside producers, pair {} of {}", number + 1, plan.pairs);
        pairs.push(pair(&server, address, plan.time, number % 2 == 1)?);
    }
    let (case, aim) = case(&machine, &plan, old_bytes, &pairs);
    let heading = format!(
        "Over sockets: {RECORDS_PER_S:.0} records of 100 bytes a second, {BATCH_RECORDS} in a request, acks=all to a topic at \
         `synced`, open loop; alone, and beside a consumer that reads another topic of {:.1} GB from its start through the Kafka \
         listener.\n{machine}.\n{} pairs of {:.0} s, interleaved.",
        old_bytes as f64 / 1e9,
        plan.pairs,
        plan.time.as_secs_f64()
    );
    Ok(Report { heading, cases: vec![case], notes: machine.warning().into_iter().chain([aim]).collect() })
}

/// Fills the old topic with records of 1 KiB and returns the bytes of their values.
fn fill(address: SocketAddr, bytes: u64) -> anyhow::Result<u64> {
    let load = ProduceLoad {
        record_bytes: 1024,
        batch_records: 60,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(1),
        ..ProduceLoad::to(address, OLD, PARTITIONS)
    };
    let mut filled = 0;
    while filled < bytes {
        let produced = load.run()?;
        if let Some(error) = produced.first_error {
            bail!("the topic could not be filled: {error}");
        }
        filled += produced.records * load.record_bytes as u64;
    }
    Ok(filled)
}

fn produce(address: SocketAddr, time: Duration) -> anyhow::Result<ProduceResult> {
    let load = ProduceLoad {
        batch_records: BATCH_RECORDS,
        acks: Acks::All,
        records_per_s: Some(RECORDS_PER_S),
        warm_up: LEAD,
        duration: time,
        ..ProduceLoad::to(address, LIVE, PARTITIONS)
    };
    Ok(load.run()?)
}

fn pair(server: &ServerProcess, address: SocketAddr, time: Duration, reader_first: bool) -> anyhow::Result<Pair> {
    let alone = || -> anyhow::Result<_> {
        process::forget_peak(server.pid())?;
        Ok((produce(address, time)?, process::rss_peak_mib(server.pid())?))
    };
    let beside = || -> anyhow::Result<_> {
        process::forget_peak(server.pid())?;
        let reader = ReadLoad {
            address,
            topic: OLD.to_owned(),
            partitions: PARTITIONS,
            bytes_per_s: READ_BYTES_PER_S,
            duration: Some(time + 2 * LEAD),
        };
        thread::scope(|scope| {
            let reading = scope.spawn(|| reader.run());
            let produced = produce(address, time)?;
            let read = reading.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
            Ok((produced, read, process::rss_peak_mib(server.pid())?))
        })
    };
    let (alone, beside) = if reader_first {
        let beside = beside()?;
        (alone()?, beside)
    } else {
        (alone()?, beside()?)
    };
    Ok(Pair { alone: alone.0, rss_alone_mib: alone.1, beside: beside.0, read: beside.1, rss_beside_mib: beside.2 })
}

fn case(machine: &Machine, plan: &ReaderWorkload, old_bytes: u64, pairs: &[Pair]) -> (BenchCase, String) {
    let of = |of: fn(&Pair) -> f64| pairs.iter().map(of).collect::<Vec<_>>();
    let p99 = |produced: &ProduceResult| produced.latencies.summary().p99;
    let (alone, beside) = (median(of(|pair| pair.alone.rate_per_s())), median(of(|pair| pair.beside.rate_per_s())));
    let p99_alone: Vec<f64> = pairs.iter().map(|pair| p99(&pair.alone)).collect();
    let p99_beside: Vec<f64> = pairs.iter().map(|pair| p99(&pair.beside)).collect();
    let slower: Vec<f64> = p99_alone.iter().zip(&p99_beside).map(|(alone, beside)| beside - alone).collect();
    let share: Vec<f64> = p99_alone.iter().zip(&p99_beside).map(|(alone, beside)| beside / alone - 1.0).collect();
    let (slower_ms, slower_share) = (median(slower), median(share));
    let all = |of: fn(&Pair) -> &ProduceResult| {
        let mut all = millstream_load::Latencies::default();
        pairs.iter().for_each(|pair| all.add(&of(pair).latencies));
        all.summary()
    };
    let read_mb_per_s = of(|pair| pair.read.bytes as f64 / pair.read.took.as_secs_f64() / 1e6);
    let (rss_alone, rss_beside) = (of(|pair| pair.rss_alone_mib), of(|pair| pair.rss_beside_mib));
    let met = slower_share <= SLOWER_AIM || slower_ms <= SLOWER_AIM_MS;
    let note = format!(
        "Aim, producers' p99 (synced) beside a reader of {:.1} GB at 50 MB/s at most 20 % or 1 ms higher: {}: median of {} pairs \
         {slower_ms:+.2} ms ({:+.0} %), p99 alone {:.2} ms; the reader had {:.0} MB/s. Memory at the highest: {:.0} MiB in the first \
         run beside it, {:.0} MiB in the last; alone {:.0} MiB.",
        old_bytes as f64 / 1e9,
        if met { "met" } else { "missed" },
        pairs.len(),
        slower_share * 100.0,
        median(p99_alone.clone()),
        median(read_mb_per_s.clone()),
        rss_beside.first().copied().unwrap_or_default(),
        rss_beside.last().copied().unwrap_or_default(),
        median(rss_alone.clone()),
    );
    let mut conditions = machine.conditions();
    let own = [
        ("server", json!("millstream serve, a process of its own, default configuration")),
        ("level", json!("synced")),
        ("partitions", json!(PARTITIONS)),
        ("record_bytes", json!(100)),
        ("batch_records", json!(BATCH_RECORDS)),
        ("records_per_s", json!(RECORDS_PER_S)),
        ("loop", json!("open")),
        ("latency_of", json!("a request, from when it was due")),
        ("topic_bytes", json!(old_bytes)),
        (
            "reader",
            json!("through the Kafka listener, from the start, checksums verified; files may be in the page cache"),
        ),
        ("pairs", json!(plan.pairs)),
        ("pair_s", json!(plan.time.as_secs_f64())),
        ("p99_alone_ms", json!(p99_alone)),
        ("p99_beside_ms", json!(p99_beside)),
        ("read_mb_per_s", json!(read_mb_per_s)),
        ("rss_alone_mib", json!(rss_alone)),
        ("rss_beside_mib", json!(rss_beside)),
    ];
    conditions.extend(own.map(|(name, value)| (name.to_owned(), value)));
    let case = BenchCase {
        suite: "reader".to_owned(),
        case: format!("synced appends beside a reader of {:.1} GB", old_bytes as f64 / 1e9),
        conditions,
        rate_per_s: beside,
        per_core_per_s: None,
        latency_ms: Some(all(|pair| &pair.beside)),
        errors: pairs.iter().map(|pair| pair.alone.errors + pair.beside.errors).sum(),
        rss_mib: Some(rss_beside.iter().copied().fold(0.0, f64::max)),
        cpu_s_per_million: None,
        peer: Some(Peer {
            name: "no reader".to_owned(),
            rate_per_s: alone,
            latency_ms: Some(all(|pair| &pair.alone)),
            rss_mib: Some(rss_alone.iter().copied().fold(0.0, f64::max)),
            cpu_s_per_million: None,
        }),
        ratio: Some(beside / alone),
        generator_bottleneck: pairs.iter().any(|pair| pair.beside.generator_bottleneck()),
    };
    (case, note)
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
