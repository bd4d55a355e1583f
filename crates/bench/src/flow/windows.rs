//! Windows by key: a count beside a loop that counts in one hash table, with and without checkpoints, and sliding beside tumbling.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use millstream_load::report::{BenchCase, Peer};
use millstream_log::{AckLevel, Done, Log as _, Partition, UpTo, reply};
use millstream_types::{Record, TopicPartition};
use serde_json::{Value, json};

use super::engine::FlowEngine;
use super::member::find_two;
use super::topics::{create, name};
use super::{FlowWorkload, new_case};
use crate::findings::{Findings, at_least, at_most};
use crate::machine::Machine;
use crate::process;
use crate::reader::median;

const SOURCE: &str = "bench-windows";
const RESULTS: &str = "bench-counts";
const APPEND_RECORDS: u64 = 1_000;
/// Bytes of one read, as the source `stream` asks for.
const READ_MAX_BYTES: usize = 1 << 20;
/// Pause before a refused append is repeated.
const REST: Duration = Duration::from_micros(100);
const SIZE_MS: u64 = 60_000;
const KEYS: Readings = Readings { keys: 10_000, of_window: 10 };
const MANY_KEYS: Readings = Readings { keys: 1_000_000, of_window: 10 };
/// Ten records of a key in each distance between two sliding windows, so that results are few beside records.
const DENSE_KEYS: Readings = Readings { keys: 100, of_window: 600 };
const SLIDES: u64 = 60;
/// An epoch that does not end while a job is measured.
const NO_CHECKPOINT: &str = "1h";
const OF_LOOP_AIM: f64 = 0.5;
const WITH_CHECKPOINTS_AIM: f64 = 0.6;
const OF_TUMBLING_AIM: f64 = 3.0;

/// One pass over the source topic.
#[derive(Debug, Clone, Copy)]
struct WindowPass {
    took: Duration,
    cpu_s: f64,
    results: Results,
}

/// The results of a pass: their number, and the sum of the counts in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Results {
    windows: u64,
    records: u64,
}

/// The readings of a topic.
#[derive(Debug, Clone, Copy)]
struct Readings {
    keys: u64,
    /// Records of a key in each tumbling window.
    of_window: u64,
}

/// The job of a pass.
#[derive(Debug, Clone, Copy)]
struct WindowJob {
    slide_ms: u64,
    interval: &'static str,
}

const TUMBLING: WindowJob = WindowJob { slide_ms: SIZE_MS, interval: "1s" };
const SLIDING: WindowJob = WindowJob { slide_ms: SIZE_MS / SLIDES, interval: "1s" };
const WITHOUT_CHECKPOINTS: WindowJob = WindowJob { interval: NO_CHECKPOINT, ..TUMBLING };

pub(super) fn measure(
    engine: &FlowEngine,
    plan: FlowWorkload,
    machine: &Machine,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    loops(engine, plan, machine, findings)?;
    slides(engine, plan, machine, findings)?;
    checkpoints(engine, plan, machine, findings)
}

/// A count beside a loop that does the same in one thread.
fn loops(engine: &FlowEngine, plan: FlowWorkload, machine: &Machine, findings: &mut Findings) -> anyhow::Result<()> {
    let source = filled(engine, plan.topic_records, KEYS)?;
    let (mut counted, mut looped) = (Vec::new(), Vec::new());
    // The first pass of each is a warm-up.
    for round in 0..=plan.rounds {
        eprintln!("windows of {} keys, round {round} of {}", KEYS.keys, plan.rounds);
        let job = pass(engine, |_| run(engine, TUMBLING, round))?;
        let bare = pass(engine, |to| count(&*source, to))?;
        ensure!(job.results == bare.results, "the job has made {:?}, the loop {:?}", job.results, bare.results);
        if round > 0 {
            counted.push(job);
            looped.push(bare);
        }
    }
    engine.log.delete_topic(&name(engine, SOURCE)?)?;
    let of_loop = Compared { name: "bare loop", of: |ours, other| other.cpu_s / ours.cpu_s };
    let case = of_loop.case("tumbling count, 10 k keys", plan, machine, &counted, &looped);
    let share = case.ratio.unwrap_or_default();
    findings.aim(at_least(&format!("{}, of the bare loop by CPU time", case.case), share, OF_LOOP_AIM));
    findings.cases.push(case);
    Ok(())
}

/// Sliding windows beside tumbling ones.
fn slides(engine: &FlowEngine, plan: FlowWorkload, machine: &Machine, findings: &mut Findings) -> anyhow::Result<()> {
    filled(engine, plan.topic_records, DENSE_KEYS)?;
    let (mut tumbled, mut slid) = (Vec::new(), Vec::new());
    for round in 0..=plan.rounds {
        eprintln!("sliding windows, round {round} of {}", plan.rounds);
        let tumbling = pass(engine, |_| run(engine, TUMBLING, round + 1_000))?;
        let sliding = pass(engine, |_| run(engine, SLIDING, round + 2_000))?;
        let in_windows = sliding.results.records;
        ensure!(in_windows == plan.topic_records * SLIDES, "sliding windows have {in_windows} records");
        if round > 0 {
            tumbled.push(tumbling);
            slid.push(sliding);
        }
    }
    engine.log.delete_topic(&name(engine, SOURCE)?)?;
    let of_tumbling = Compared { name: "tumbling", of: |ours, other| ours.cpu_s / other.cpu_s };
    let case = of_tumbling.case("sliding count, size / slide = 60, 100 keys", plan, machine, &slid, &tumbled);
    let times = case.ratio.unwrap_or_default();
    findings.aim(at_most(&format!("{}, CPU time of tumbling", case.case), times, OF_TUMBLING_AIM));
    findings.cases.push(case);
    Ok(())
}

/// Many keys, each with state, with a checkpoint every second and with none.
fn checkpoints(
    engine: &FlowEngine,
    plan: FlowWorkload,
    machine: &Machine,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let records = 2 * MANY_KEYS.keys;
    filled(engine, records, MANY_KEYS)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        eprintln!("windows of {} keys, round {round} of {}", MANY_KEYS.keys, plan.rounds);
        without.push(pass(engine, |_| run(engine, WITHOUT_CHECKPOINTS, round + 3_000))?);
        with.push(pass(engine, |_| run(engine, TUMBLING, round + 4_000))?);
    }
    engine.log.delete_topic(&name(engine, SOURCE)?)?;
    let of_rate =
        Compared { name: "no checkpoints", of: |ours, other| other.took.as_secs_f64() / ours.took.as_secs_f64() };
    let plan = FlowWorkload { topic_records: records, ..plan };
    let case = of_rate.case("tumbling count, 1 M keys, a checkpoint a second", plan, machine, &with, &without);
    let share = case.ratio.unwrap_or_default();
    findings.aim(at_least(&format!("{}, of the rate without", case.case), share, WITH_CHECKPOINTS_AIM));
    findings.cases.push(case);
    Ok(())
}

fn run(engine: &FlowEngine, job: WindowJob, round: usize) -> anyhow::Result<()> {
    let id = engine.start(&document(job, round))?;
    engine.complete(&id)
}

/// The job, with a group of its own for each round.
fn document(WindowJob { slide_ms, interval }: WindowJob, round: usize) -> Value {
    let (size, slide) = (format!("{SIZE_MS}ms"), format!("{slide_ms}ms"));
    json!({
        "version": 1, "kind": "Job", "name": "windows", "restart": { "policy": "never" }, "mode": "batch",
        "checkpoint": { "interval": interval, "timeout": "10m" },
        "sources": { "in": {
            "type": "stream", "config": { "topic": SOURCE, "group": format!("windows-{round}"), "stop_at": "end" },
            "event_time": { "field": "at" },
        } },
        "transforms": { "counts": {
            "type": "aggregate", "inputs": ["in"], "key_by": ["id"], "aggregates": "COUNT(*) AS n",
            "window": { "type": "sliding", "size": size, "slide": slide },
        } },
        "sinks": { "out": { "type": "stream", "inputs": ["counts"], "config": { "topic": RESULTS } } },
    })
}

/// Makes the source topic with readings of these devices, in the order of their times.
fn filled(
    engine: &FlowEngine,
    records: u64,
    Readings { keys, of_window }: Readings,
) -> anyhow::Result<std::sync::Arc<dyn Partition>> {
    let source = create(engine, SOURCE)?;
    let mut random = fastrand::Rng::with_seed(11);
    for first in (0..records).step_by(APPEND_RECORDS as usize) {
        let reading = |number: u64| {
            let (device, at) = (number.wrapping_mul(7_919) % keys, number * SIZE_MS / (keys * of_window));
            format!(
                "{{\"id\":\"sensor-{device:07}\",\"at\":{at},\"site\":\"north\",\"temp\":{}.5,\"ok\":true}}",
                random.u32(..40)
            )
        };
        let readings: Vec<String> = (first..records.min(first + APPEND_RECORDS)).map(reading).collect();
        let batch: Vec<Record<'_>> =
            readings.iter().map(|payload| Record { value: Some(payload.as_bytes()), ..Record::default() }).collect();
        let (done, answer) = reply();
        source.append(&batch, AckLevel::Memory, done)?;
        answer.wait()?;
    }
    Ok(source)
}

/// Measures `work`, which fills a new topic of results, and looks at what it has made.
fn pass(engine: &FlowEngine, work: impl FnOnce(&dyn Partition) -> anyhow::Result<()>) -> anyhow::Result<WindowPass> {
    let to = create(engine, RESULTS)?;
    let pid = std::process::id();
    let (begin, cpu_before) = (Instant::now(), process::cpu_s(pid)?);
    work(&*to)?;
    let (took, cpu_s) = (begin.elapsed(), (process::cpu_s(pid)? - cpu_before).max(0.01));
    let topic = name(engine, RESULTS)?;
    let results = results(&*engine.log.partition(&TopicPartition::new(topic.clone(), 0))?)?;
    engine.log.delete_topic(&topic)?;
    Ok(WindowPass { took, cpu_s, results })
}

fn results(partition: &dyn Partition) -> anyhow::Result<Results> {
    let (mut found, mut next) = (Results::default(), partition.offsets().first);
    loop {
        let batches = partition.read(next, READ_MAX_BYTES, UpTo::Stable)?;
        let Some(last) = batches.last() else { return Ok(found) };
        next = last.next_offset();
        for record in batches.iter().flat_map(|batch| batch.records()) {
            let [n, _] = find_two(record?.value.unwrap_or_default(), [b"n", b"id"]);
            found.windows += 1;
            found.records += number(n.context("a result has no count")?)?;
        }
    }
}

/// The baseline: one thread that reads, finds two members, and counts in a hash table, one for each window.
fn count(from: &dyn Partition, to: &dyn Partition) -> anyhow::Result<()> {
    let offsets = from.offsets();
    let (mut next, mut window, mut counts) = (offsets.first, 0, HashMap::<Box<[u8]>, u64>::new());
    while next < offsets.stable {
        for batch in from.read(next, READ_MAX_BYTES, UpTo::Stable)? {
            next = batch.next_offset();
            for record in batch.records() {
                let [id, at] = find_two(record?.value.unwrap_or_default(), [b"id", b"at"]);
                let (id, at) = (id.context("a reading has no id")?, number(at.context("a reading has no time")?)?);
                if at / SIZE_MS != window {
                    append(window, std::mem::take(&mut counts), to)?;
                    window = at / SIZE_MS;
                }
                match counts.get_mut(id) {
                    Some(count) => *count += 1,
                    None => drop(counts.insert(id.into(), 1)),
                }
            }
        }
    }
    append(window, counts, to)
}

/// Appends the counts of a window.
fn append(window: u64, counts: HashMap<Box<[u8]>, u64>, to: &dyn Partition) -> anyhow::Result<()> {
    let counts: Vec<(Box<[u8]>, u64)> = counts.into_iter().collect();
    for part in counts.chunks(APPEND_RECORDS as usize) {
        let mut payloads = Vec::new();
        let mut ends = Vec::with_capacity(part.len());
        for (id, count) in part {
            payloads.extend_from_slice(b"{\"id\":");
            payloads.extend_from_slice(id);
            write!(payloads, ",\"n\":{count},\"window\":{{\"start\":{}}}}}", window * SIZE_MS)?;
            ends.push(payloads.len());
        }
        let mut start = 0;
        let mut records: Vec<Record<'_>> = Vec::with_capacity(part.len());
        for ((id, _), end) in part.iter().zip(ends) {
            records.push(Record { key: Some(id), value: Some(&payloads[start..end]), ..Record::default() });
            start = end;
        }
        loop {
            match to.append(&records, AckLevel::Memory, Done::ignore()) {
                Ok(()) => break,
                Err(error) if error.is_retryable() => std::thread::park_timeout(REST),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn number(value: &[u8]) -> anyhow::Result<u64> {
    Ok(std::str::from_utf8(value)?.parse()?)
}

/// A case beside another, with their ratio.
struct Compared {
    name: &'static str,
    of: fn(&WindowPass, &WindowPass) -> f64,
}

impl Compared {
    fn case(
        &self,
        case: &str,
        plan: FlowWorkload,
        machine: &Machine,
        ours: &[WindowPass],
        other: &[WindowPass],
    ) -> BenchCase {
        let records = plan.topic_records as f64;
        let all = |passes: &[WindowPass], of: fn(&WindowPass) -> f64| passes.iter().map(of).collect::<Vec<_>>();
        let rate = |passes: &[WindowPass]| records / median(all(passes, |pass| pass.took.as_secs_f64()));
        let per_million = |passes: &[WindowPass]| median(all(passes, |pass| pass.cpu_s)) / records * 1e6;
        let own = json!({
            "engine": "in this process, 1 GiB for state",
            "topics": "in memory, one partition each",
            "records": plan.topic_records,
            "windows": ours.first().map(|pass| pass.results.windows),
            "rounds": ours.len(),
            "cpu_s_of_rounds": all(ours, |pass| pass.cpu_s),
            "other_cpu_s_of_rounds": all(other, |pass| pass.cpu_s),
            "took_s_of_rounds": all(ours, |pass| pass.took.as_secs_f64()),
            "other_took_s_of_rounds": all(other, |pass| pass.took.as_secs_f64()),
        });
        BenchCase {
            rate_per_s: rate(ours),
            per_core_per_s: Some(1e6 / per_million(ours)),
            cpu_s_per_million: Some(per_million(ours)),
            rss_mib: process::rss_mib(std::process::id()).ok(),
            peer: Some(Peer {
                name: self.name.to_owned(),
                rate_per_s: rate(other),
                cpu_s_per_million: Some(per_million(other)),
                ..Peer::default()
            }),
            ratio: Some(median(ours.iter().zip(other).map(|(ours, other)| (self.of)(ours, other)).collect())),
            ..new_case(case, machine, own)
        }
    }
}
