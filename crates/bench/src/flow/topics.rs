//! The case from topic to topic: a filter and two computed members of JSON, beside a loop that does the same in one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use millstream_load::report::{BenchCase, Peer};
use millstream_log::{AckLevel, Log as _, Partition, Storage, TopicConfig, UpTo, reply};
use millstream_types::{Record, TopicName, TopicPartition};
use serde_json::{Value, json};

use super::engine::FlowEngine;
use super::topic_loop::{self, WARM};
use super::{FlowWorkload, new_case};
use crate::findings::{Findings, at_least};
use crate::machine::Machine;
use crate::process;
use crate::reader::median;

const SOURCE: &str = "bench-in";
const TOPIC_BYTES: usize = 256 << 20;
const APPEND_RECORDS: u64 = 1_000;
const START_MS: i64 = 1_767_225_600_000;
const OF_LOOP_AIM: f64 = 0.5;

/// One pass over the source topic.
#[derive(Debug, Clone, Copy)]
struct TopicPass {
    took: Duration,
    cpu_s: f64,
    made: TopicContents,
}

/// The records of a topic: number, bytes and a sum of checksums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TopicContents {
    records: u64,
    bytes: u64,
    checksum: u64,
}

pub(super) fn measure(
    engine: &FlowEngine,
    plan: FlowWorkload,
    machine: &Machine,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let source = create(engine, SOURCE)?;
    let size_bytes = fill(&*source, plan.topic_records)?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    // The first pass of each is a warm-up.
    for round in 0..=plan.rounds {
        eprintln!("topic to topic, round {round} of {}", plan.rounds);
        let by_job = pass(engine, "by-job", |_| {
            let id = engine.start(&document(round))?;
            engine.complete(&id)
        })?;
        let by_loop = pass(engine, "by-loop", |to| topic_loop::run(&*source, to))?;
        ensure!(by_job.made == by_loop.made, "the job has made {:?}, the loop {:?}", by_job.made, by_loop.made);
        if round > 0 {
            ours.push(by_job);
            bare.push(by_loop);
        }
    }
    engine.log.delete_topic(&name(engine, SOURCE)?)?;
    let case = case(plan, machine, &ours, &bare, size_bytes);
    let of_loop = case.ratio.unwrap_or_default();
    findings.aim(at_least(&format!("{}, of the bare loop by CPU time", case.case), of_loop, OF_LOOP_AIM));
    findings.cases.push(case);
    Ok(())
}

/// The job, with a group of its own for each round.
fn document(round: usize) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "topics", "restart": { "policy": "never" }, "mode": "batch",
        "sources": { "in": {
            "type": "stream", "config": { "topic": SOURCE, "group": format!("round-{round}"), "stop_at": "end" },
        } },
        "transforms": {
            "warm": { "type": "filter", "inputs": ["in"], "where": format!("temp > {WARM:.1}") },
            "both": {
                "type": "map", "inputs": ["warm"],
                "select": "*, temp * 9.0 / 5.0 + 32.0 AS fahrenheit, hum / 100.0 AS share",
            },
        },
        "sinks": { "out": { "type": "stream", "inputs": ["both"], "config": { "topic": "by-job" } } },
    })
}

pub(super) fn name(engine: &FlowEngine, topic: &str) -> anyhow::Result<TopicName> {
    Ok(TopicName::user(topic, &engine.tenant)?)
}

/// Creates a topic in memory with one partition.
pub(super) fn create(engine: &FlowEngine, topic: &str) -> anyhow::Result<Arc<dyn Partition>> {
    let storage = Storage::Memory { max_bytes: TOPIC_BYTES };
    let config = TopicConfig { partitions: 1, storage, level: AckLevel::Memory, ..TopicConfig::default() };
    let name = name(engine, topic)?;
    engine.log.create_topic(&name, &config)?;
    Ok(engine.log.partition(&TopicPartition::new(name, 0))?)
}

/// Appends the readings, half of them warm, and returns the bytes of their keys and payloads.
fn fill(source: &dyn Partition, records: u64) -> anyhow::Result<u64> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut size_bytes = 0;
    for first in (0..records).step_by(APPEND_RECORDS as usize) {
        let reading = |number: u64| {
            let (temp, hum) = (random.u32(..400), random.u32(100..1_000));
            let device = format!("sensor-{:04}", number % 1_000);
            let payload = format!(
                "{{\"id\":\"{device}\",\"seq\":{number},\"site\":\"north-{}\",\"temp\":{}.{},\"hum\":{}.{},\"ok\":true}}",
                number % 7,
                temp / 10,
                temp % 10,
                hum / 10,
                hum % 10
            );
            (device, payload)
        };
        let readings: Vec<(String, String)> = (first..records.min(first + APPEND_RECORDS)).map(reading).collect();
        size_bytes += readings.iter().map(|(device, payload)| (device.len() + payload.len()) as u64).sum::<u64>();
        let records: Vec<Record<'_>> = readings
            .iter()
            .map(|(device, payload)| Record {
                timestamp_ms: START_MS + first as i64,
                key: Some(device.as_bytes()),
                value: Some(payload.as_bytes()),
                headers: &[],
            })
            .collect();
        let (done, answer) = reply();
        source.append(&records, AckLevel::Memory, done)?;
        answer.wait()?;
    }
    Ok(size_bytes)
}

/// Measures `work`, which fills a new topic, and looks at what it has made.
fn pass(
    engine: &FlowEngine,
    topic: &str,
    work: impl FnOnce(&dyn Partition) -> anyhow::Result<()>,
) -> anyhow::Result<TopicPass> {
    let to = create(engine, topic)?;
    let pid = std::process::id();
    let (begin, cpu_before) = (Instant::now(), process::cpu_s(pid)?);
    work(&*to)?;
    let (took, cpu_s) = (begin.elapsed(), process::cpu_s(pid)? - cpu_before);
    let made = contents(&*to)?;
    engine.log.delete_topic(&name(engine, topic)?)?;
    Ok(TopicPass { took, cpu_s, made })
}

fn contents(partition: &dyn Partition) -> anyhow::Result<TopicContents> {
    let (mut contents, mut next) = (TopicContents::default(), partition.offsets().first);
    loop {
        let batches = partition.read(next, 1 << 20, UpTo::Stable)?;
        let Some(last) = batches.last() else { return Ok(contents) };
        next = last.next_offset();
        for record in batches.iter().flat_map(|batch| batch.records()) {
            let record = record?;
            contents.records += 1;
            for part in [record.key, record.value].into_iter().flatten() {
                contents.bytes += part.len() as u64;
                contents.checksum = contents.checksum.wrapping_add(u64::from(crc32c::crc32c(part)));
            }
        }
    }
}

fn case(plan: FlowWorkload, machine: &Machine, ours: &[TopicPass], bare: &[TopicPass], size_bytes: u64) -> BenchCase {
    let records = plan.topic_records as f64;
    let cpu_s = |pass: &TopicPass| pass.cpu_s.max(0.01);
    let all = |passes: &[TopicPass], of: fn(&TopicPass) -> f64| passes.iter().map(of).collect::<Vec<_>>();
    let rate = |passes: &[TopicPass]| records / median(all(passes, |pass| pass.took.as_secs_f64()));
    let per_million = |passes: &[TopicPass]| median(passes.iter().map(cpu_s).collect()) / records * 1e6;
    let ratios: Vec<f64> = ours.iter().zip(bare).map(|(ours, bare)| cpu_s(bare) / cpu_s(ours)).collect();
    let own = json!({
        "engine": "in this process, default configuration",
        "topics": "in memory, one partition each",
        "records": plan.topic_records,
        "bytes_a_record": size_bytes as f64 / records,
        "made_records": ours.first().map(|pass| pass.made.records),
        "outputs_compared": "number, bytes and checksums of keys and payloads",
        "rate_of": "source records",
        "rounds": plan.rounds,
        "cpu_s_of_rounds": all(ours, |pass| pass.cpu_s),
        "loop_cpu_s_of_rounds": all(bare, |pass| pass.cpu_s),
        "took_s_of_rounds": all(ours, |pass| pass.took.as_secs_f64()),
        "loop_took_s_of_rounds": all(bare, |pass| pass.took.as_secs_f64()),
    });
    BenchCase {
        rate_per_s: rate(ours),
        per_core_per_s: Some(1e6 / per_million(ours)),
        cpu_s_per_million: Some(per_million(ours)),
        rss_mib: process::rss_mib(std::process::id()).ok(),
        peer: Some(Peer {
            name: "bare loop".to_owned(),
            rate_per_s: rate(bare),
            cpu_s_per_million: Some(per_million(bare)),
            ..Peer::default()
        }),
        ratio: Some(median(ratios)),
        ..new_case("topic, filter, two members, topic", machine, own)
    }
}
