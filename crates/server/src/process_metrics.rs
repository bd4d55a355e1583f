//! The metrics of the process, under the names that Prometheus' own clients give them, and what was built.

use std::fs;

use millstream_http::Metrics;
use millstream_types::MemoryBudget;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::built::BUILD;

/// Registers the metrics of the process, which began at `started_s` (Unix time), and of its memory budget.
pub(crate) fn show(started_s: f64, memory: &MemoryBudget, metrics: &Metrics) {
    metrics.counter_fn("process_cpu_seconds_total", "CPU time of the process, in user and system mode.", cpu_seconds);
    metrics.gauge_fn("process_start_time_seconds", "When the process began, in Unix time.", move || started_s);
    let of_system = |name, help, read: fn() -> Option<u64>| {
        // A figure that the system does not tell is not shown.
        metrics
            .gauges_fn(name, help, &[], move || read().map(|value| (Vec::new(), value as f64)).into_iter().collect());
    };
    of_system("process_resident_memory_bytes", "Physical memory that the process uses.", resident_bytes);
    of_system("process_virtual_memory_bytes", "Address space of the process.", virtual_bytes);
    of_system("process_open_fds", "Open files and sockets.", open_files);
    of_system("process_max_fds", "Limit of open files and sockets.", || getrlimit(Resource::Nofile).current);
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("revision", BUILD.git_hash), ("compiler", BUILD.compiler)];
    metrics.gauge("millstream_build_info", "The version that runs; always 1.", &labels).set(1);
    let (limit_bytes, memory) = (memory.limit_bytes(), memory.clone());
    let help = "Bytes that queues, caches, connections, bodies and answers may hold together: memory.budget_bytes.";
    metrics.gauge_fn("millstream_memory_budget_bytes", help, move || limit_bytes as f64);
    let help = "Bytes of the memory budget that are given out or set aside, in use or not. What the process uses is \
                process_resident_memory_bytes.";
    metrics.gauge_fn("millstream_memory_reserved_bytes", help, move || memory.used_bytes() as f64);
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn resident_bytes() -> Option<u64> {
    memory_bytes(1)
}

fn virtual_bytes() -> Option<u64> {
    memory_bytes(0)
}

/// The figure at a place of `/proc/self/statm`, which counts pages.
fn memory_bytes(place: usize) -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(place)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn open_files() -> Option<u64> {
    // One of them is the directory that is being read.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64)
}
