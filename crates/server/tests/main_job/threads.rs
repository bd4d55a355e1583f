//! Threads that have time stand back: those that answer somebody have the cores first.

use std::collections::BTreeMap;
use std::fs;

use millstream_testkit::{Process, eventually};

/// The beginnings of names of threads that work for seconds on end, as the system cuts them.
const PATIENT: [&str; 6] =
    ["log-writeback", "log-compaction", "checkpoint", "fjall:", "history-follow", "history-files"];
/// Some of those that do not.
const PROMPT: [&str; 5] = ["log-appender", "log-sync", "shard-", "io", "notify"];

#[test]
fn threads_that_have_time_have_a_third_of_the_weight() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    // A thread names itself, and stands back, once it runs.
    eventually("all threads run", || {
        let nice = nice_values(process.id());
        let have = |names: &[&str], value| {
            names.iter().all(|name| {
                let mut of_name = nice.iter().filter(|(thread, _)| thread.starts_with(name)).peekable();
                of_name.peek().is_some() && of_name.all(|(_, nice)| *nice == value)
            })
        };
        let started_with = nice[&format!("millstream {}", process.id())];
        have(&PATIENT, (started_with + 5).min(19)) && have(&PROMPT, started_with)
    });
    process.stop();
}

/// The nice values of a process's threads, by name and id.
fn nice_values(process: u32) -> BTreeMap<String, i64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // A thread may end meanwhile.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let parsed = stats.map(|stat| {
        let (before, after) = stat.rsplit_once(')').unwrap();
        let (id, name) = before.split_once(" (").unwrap();
        // Behind the name stand fields 3 and on; 19 is the nice value.
        let nice = after.split_ascii_whitespace().nth(19 - 3).unwrap().parse().unwrap();
        (format!("{name} {id}"), nice)
    });
    parsed.collect()
}
