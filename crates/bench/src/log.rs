//! Suite `log`: append rates of the built-in log at each level, called as a library.
//!
//! The peer of every case on disk is a loop that writes the bytes that the log wrote, in as many writes, with as many
//! syncs, to as many files: first the journal, then what the log had brought to segments by then.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use millstream_load::report::{BenchCase, Peer};
use millstream_log::{AckLevel, Embedded, LogConfig, SystemFiles};
use millstream_types::SystemClock;
use serde_json::{Map, Value, json};

use super::append::{AppendLoad, AppendResult, PARTITIONS, TopicStorage, warm_up};
use super::bare_loop::{BareLoop, BareLoopTime};
use super::machine::Machine;
use super::{Report, process};

/// Measured time of a case with `--quick`, and below with `--full`.
pub(super) const QUICK: Duration = Duration::from_secs(1);
pub(super) const FULL: Duration = Duration::from_secs(15);

/// Aim for large groups at `synced`, as a share of the bare loop's rate.
const SYNCED_AIM: f64 = 0.8;
/// Aim for batches of 100-byte records into a topic in memory, per second and core.
const MEMORY_AIM_PER_CORE: f64 = 3_000_000.0;

/// Runs the suite, each case for `case_time`.
pub(super) fn measure(case_time: Duration) -> anyhow::Result<Report> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
    let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock)?;
    let bare = BareLoop::in_dir(dir.path(), PARTITIONS)?;
    warm_up(&log)?;
    let mut cases = Vec::new();
    let mut aims = Vec::new();
    for (number, load) in loads().iter().enumerate() {
        let outcome = load.run_for(&log, &format!("bench-{number}"), case_time)?;
        let case = case(&machine, load, &outcome, bare.write_like(outcome.writes)?)?;
        aims.extend(aim(load, &case));
        cases.push(case);
    }
    log.close().context("the log was not closed cleanly")?;
    Ok(Report {
        heading: heading(&machine, case_time),
        cases,
        notes: machine.warning().into_iter().chain(aims).collect(),
    })
}

fn loads() -> Vec<AppendLoad> {
    let mut loads = Vec::new();
    let places = [
        (TopicStorage::Memory, AckLevel::Memory),
        (TopicStorage::Disk, AckLevel::Memory),
        (TopicStorage::Disk, AckLevel::Written),
        (TopicStorage::Disk, AckLevel::Synced),
    ];
    for (place, level) in places {
        for (record_bytes, append_records, in_flight) in
            [(100, 1000, 64), (1024, 100, 64), (100, 1, 1000), (1024, 1, 1000)]
        {
            loads.push(AppendLoad { place, level, record_bytes, append_records, in_flight });
        }
    }
    let (place, level) = (TopicStorage::Disk, AckLevel::Synced);
    loads.push(AppendLoad { place, level, record_bytes: 100, append_records: 1, in_flight: 1 });
    loads
}

fn heading(machine: &Machine, case_time: Duration) -> String {
    format!(
        "Library kernels: appends have no door of their own over sockets yet, so one thread of this process calls the \
         log's engine. CPU time and memory are those of the whole process, the caller's share included.\n\
         {machine}.\n\
         Default configuration, {PARTITIONS} partitions, {:.1} s a case. The bare loop writes the bytes that the log \
         wrote, in as many writes with as many syncs to as many files (journal, then segments). Latency is told in whole microseconds: 0 is less than one.",
        case_time.as_secs_f64()
    )
}

fn case(
    machine: &Machine,
    load: &AppendLoad,
    outcome: &AppendResult,
    bare: Option<BareLoopTime>,
) -> anyhow::Result<BenchCase> {
    let records = outcome.records as f64;
    let per_s = |time: Duration| records / time.as_secs_f64();
    let peer = bare.map(|bare| Peer { name: "bare loop".to_owned(), rate_per_s: per_s(bare.all), ..Peer::default() });
    let rate_per_s = per_s(outcome.took);
    let used_cpu = outcome.cpu_s > 0.0;
    Ok(BenchCase {
        suite: "log".to_owned(),
        case: name(load),
        conditions: conditions(machine, load, outcome, bare),
        rate_per_s,
        per_core_per_s: used_cpu.then(|| records / outcome.cpu_s),
        latency_ms: Some(outcome.latencies.summary()),
        errors: outcome.errors,
        rss_mib: Some(process::rss_mib(std::process::id())?),
        cpu_s_per_million: used_cpu.then(|| outcome.cpu_s / records * 1e6),
        ratio: peer.as_ref().map(|peer| rate_per_s / peer.rate_per_s),
        peer,
        // The caller's thread does a part of the engine's work: there is no generator to tell apart.
        generator_bottleneck: false,
    })
}

fn name(load: &AppendLoad) -> String {
    let place = if load.place == TopicStorage::Memory { "memory topic" } else { "disk topic" };
    let flight = match load.level {
        AckLevel::Memory => String::new(),
        AckLevel::Written | AckLevel::Synced => format!(", {} in flight", load.in_flight),
    };
    format!("{place}, {}, {} × {} B{flight}", level(load), load.append_records, load.record_bytes)
}

fn level(load: &AppendLoad) -> &'static str {
    match load.level {
        AckLevel::Memory => "memory",
        AckLevel::Written => "written",
        AckLevel::Synced => "synced",
    }
}

fn conditions(
    machine: &Machine,
    load: &AppendLoad,
    outcome: &AppendResult,
    bare: Option<BareLoopTime>,
) -> Map<String, Value> {
    let mut conditions = machine.conditions();
    let answered_at_once = load.level == AckLevel::Memory;
    let own = [
        ("kind", json!("library kernel")),
        ("log_configuration", json!("default")),
        ("topic", json!(if load.place == TopicStorage::Memory { "memory" } else { "disk" })),
        ("level", json!(level(load))),
        ("partitions", json!(PARTITIONS)),
        ("record_bytes", json!(load.record_bytes)),
        ("append_records", json!(load.append_records)),
        ("in_flight", json!((!answered_at_once).then_some(load.in_flight))),
        ("latency_of", json!("an append, from its call to its answer")),
        ("latency_of_one_append_in", json!(load.timed_one_in())),
        ("took_s", json!(outcome.took.as_secs_f64())),
        ("refused_and_repeated", json!(outcome.repeated)),
        ("batch_bytes", json!(outcome.writes.bytes)),
        ("journal_writes", json!(outcome.writes.frames)),
        ("journal_syncs", json!(outcome.writes.syncs)),
        ("segment_bytes", json!(outcome.writes.segment_bytes)),
        ("ratio_to_bare_journal_alone", json!(bare.map(|bare| ratio(bare.journal, outcome)))),
    ];
    conditions.extend(own.map(|(name, value)| (name.to_owned(), value)));
    conditions
}

/// The log's rate divided by that of a loop that took `bare` for the same records.
fn ratio(bare: Duration, outcome: &AppendResult) -> f64 {
    bare.as_secs_f64() / outcome.took.as_secs_f64()
}

/// Returns a line about the aim of the case, if it has one.
fn aim(load: &AppendLoad, case: &BenchCase) -> Option<String> {
    let told = |value: Option<f64>| value.map_or_else(|| "not measured".to_owned(), |value| format!("{value:.2}"));
    let verdict = |met: bool| if met { "met" } else { "missed" };
    match (load.place, load.level, load.record_bytes, load.append_records) {
        (TopicStorage::Disk, AckLevel::Synced, _, 100..) => Some(format!(
            "Aim, {}: at least {SYNCED_AIM} of the bare loop: {} ({}). Of a bare loop that writes the journal alone: {}.",
            case.case,
            verdict(case.ratio.is_some_and(|ratio| ratio >= SYNCED_AIM)),
            told(case.ratio),
            told(case.conditions["ratio_to_bare_journal_alone"].as_f64()),
        )),
        (TopicStorage::Memory, _, 100, 100..) => Some(format!(
            "Aim, {}: at least {:.0} M records a second and core: {} ({} M).",
            case.case,
            MEMORY_AIM_PER_CORE / 1e6,
            verdict(case.per_core_per_s.is_some_and(|rate| rate >= MEMORY_AIM_PER_CORE)),
            told(case.per_core_per_s.map(|rate| rate / 1e6)),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use millstream_load::report::write_json;

    use super::*;

    #[test]
    fn the_shortest_run_has_every_case_without_errors_and_its_json_reads_back() {
        let report = measure(Duration::from_millis(5)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.json");
        write_json(&path, &report.cases).unwrap();
        let read: Vec<BenchCase> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read.len(), 17);
        let levels = [("memory", "memory"), ("disk", "memory"), ("disk", "written"), ("disk", "synced")];
        let expected: BTreeSet<_> =
            levels.iter().flat_map(|(topic, level)| [100, 1024].map(|bytes| (*topic, *level, bytes))).collect();
        let member = |case: &BenchCase, name: &str| case.conditions[name].as_str().unwrap().to_owned();
        let found: BTreeSet<_> = read
            .iter()
            .map(|case| {
                (member(case, "topic"), member(case, "level"), case.conditions["record_bytes"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(
            found.iter().map(|(topic, level, bytes)| (&**topic, &**level, *bytes)).collect::<BTreeSet<_>>(),
            expected
        );
        for case in &read {
            assert_eq!(case.errors, 0, "{}", case.case);
            assert!(case.rate_per_s > 0.0, "{}", case.case);
            assert_eq!(case.peer.is_some(), member(case, "topic") == "disk", "{}", case.case);
        }
        let text = report.to_string();
        assert!(text.starts_with("Library kernels"), "{text}");
        assert_eq!(report.notes.iter().filter(|note| note.starts_with("Aim")).count(), 3, "{text}");
    }
}
