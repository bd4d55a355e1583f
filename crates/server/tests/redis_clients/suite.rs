//! Redis's own test suite, against the server. What needs commands that are not there stands in a file of `skips` for each
//! file of the suite, a line `REASON: NAME` for each test. A reason is a section of `missing.conf`, which lists the
//! commands that are not there; `setting NAME`, a setting of Redis that is not there; `refused COMMAND`, a command that the
//! server answers with an error; or `race`, a test that sends to one connection, does not wait, and expects the effect at
//! another one, which only a server of one thread gives. The lists only shrink: an entry is refused if its test is gone,
//! passes, or fails for another reason than the one given.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use millstream_testkit::installed;
use millstream_testkit::resp::{Connection, command};

use crate::server::{Redis, Server, beside, long_checks_run, patient};

const HOME: &str = "redis/redis-7.0.15";
/// The suite looks for a free port among some from here on.
const FIRST_PORT: u32 = 20_100;

/// Files whose servers the suite would start itself, with settings that it gives them. Most of their tests pass on any
/// server, so here they run as those of the other files.
const OF_OWN_SERVERS: &[&str] = &["unit/info", "unit/auth"];

/// The reason for a test that passes or fails by chance.
const RACE: &str = "race";

/// Its tests measure times, so one file runs at a time.
static RUNNING: Mutex<()> = Mutex::new(());

/// The result of one test of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
    /// The suite itself leaves it out: it needs a server that the suite starts, or several databases.
    Ignored,
}

/// A run of one file of the suite.
struct Run {
    outcomes: Vec<(Outcome, String)>,
    is_success: bool,
    said: String,
}

impl Run {
    /// Runs a file against the server at the address.
    fn of(file: &str, address: &str, arguments: &[&str]) -> Self {
        let file = &for_any_server(file);
        let (host, port) = address.rsplit_once(':').unwrap();
        let mut suite = patient(Path::new("./runtest"));
        suite.current_dir(installed(HOME)).args(["--host", host, "--port", port, "--single", file]);
        suite.args(["--singledb", "--ignore-encoding", "--ignore-digest", "--timeout", "240"]);
        // Another run on this machine looks elsewhere.
        let port = FIRST_PORT + std::process::id() % 200 * 40;
        let output = suite.args(["--baseport", &port.to_string()]).args(arguments).output().unwrap();
        let said = without_colours(&String::from_utf8_lossy(&output.stdout));
        let outcomes = said.lines().filter_map(|line| outcome(line, file)).collect();
        Self { outcomes, is_success: output.status.success(), said }
    }

    fn outcome(&self, name: &str) -> Option<Outcome> {
        self.outcomes.iter().find(|(_, of)| of == name).map(|(outcome, _)| *outcome)
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.iter().filter(|(of, _)| *of == outcome).count()
    }
}

/// The file, or a copy of it that the suite runs against a server that it did not start.
fn for_any_server(file: &str) -> String {
    if !OF_OWN_SERVERS.contains(&file) {
        return file.to_owned();
    }
    let (tests, copy) = (installed(HOME).join("tests"), format!("{file}_for_any_server"));
    let text = std::fs::read_to_string(tests.join(format!("{file}.tcl"))).unwrap();
    assert!(text.contains("external:skip"), "{file} runs as it is");
    let text = text.replace("external:skip", "any-server").replace(" overrides {requirepass foobar}", "");
    std::fs::write(tests.join(format!("{copy}.tcl")), text).unwrap();
    copy
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

/// Reads a line such as `[ok]: NAME (3 ms)` or `[err]: NAME in tests/FILE.tcl`.
fn outcome(line: &str, file: &str) -> Option<(Outcome, String)> {
    let (kind, rest) = line.strip_prefix('[')?.split_once("]: ")?;
    let (outcome, name) = match kind {
        "ok" => (Outcome::Passed, rest.rsplit_once(" (")?.0),
        "err" => (Outcome::Failed, rest.strip_suffix(&format!(" in tests/{file}.tcl")).unwrap_or(rest)),
        "skip" => (Outcome::Skipped, rest),
        "ignore" => (Outcome::Ignored, rest),
        _ => return None,
    };
    Some((outcome, name.to_owned()))
}

/// A test that is left out, and why.
struct Skip {
    reason: String,
    name: String,
}

/// The tests of one file of the suite that are left out.
fn skips(file: &str) -> Vec<Skip> {
    let name = file.trim_start_matches("unit/").replace('/', "_");
    let list = std::fs::read_to_string(beside(&format!("skips/{name}.txt"))).unwrap_or_default();
    let skip = |line: &str| {
        let (reason, name) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?} is not REASON: NAME"));
        Skip { reason: reason.to_owned(), name: name.to_owned() }
    };
    list.lines().map(skip).collect()
}

/// The commands that are not there, by section.
fn missing_commands() -> BTreeMap<String, Vec<String>> {
    let (mut sections, mut section) = (BTreeMap::<_, Vec<_>>::new(), String::new());
    for line in std::fs::read_to_string(beside("missing.conf")).unwrap().lines() {
        if let Some(name) = line.strip_prefix("## ") {
            section = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("rename-command ") {
            sections.entry(section.clone()).or_default().push(rest.split(' ').next().unwrap().to_owned());
        }
    }
    sections
}

/// A Redis without the commands of a section.
fn redis_without(commands: &[String]) -> Redis {
    Redis::start(&commands.iter().map(|name| format!("rename-command {name} \"\"\n")).collect::<String>())
}

/// Runs a test alone.
fn alone(file: &str, address: &str, name: &str) -> Run {
    Run::of(file, address, &["--durable", "--only", name])
}

/// Returns `true` if the server knows a command.
fn knows(address: &str, name: &str) -> bool {
    let reply = Connection::open(address).unwrap().ask(&command(&[name])).unwrap();
    !reply.head.starts_with(b"-ERR unknown command")
}

/// Runs a file without the tests of a skip list; says what is wrong with the server or with the list.
fn complaints(file: &str, address: &str, skips: &[Skip]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("skips");
    std::fs::write(&list, skips.iter().map(|skip| format!("{}\n", skip.name)).collect::<String>()).unwrap();
    let run = Run::of(file, address, &["--skipfile", list.to_str().unwrap()]);
    let [passed, ignored] = [Outcome::Passed, Outcome::Ignored].map(|outcome| run.count(outcome));
    println!("{file}: {passed} passed, {} skipped, {ignored} that the suite leaves out", run.count(Outcome::Skipped));
    if !run.is_success || run.count(Outcome::Failed) > 0 || passed + ignored == 0 {
        return run.said;
    }
    let mut wrong = String::new();
    for Skip { reason, name } in skips {
        if run.outcome(name) != Some(Outcome::Skipped) {
            writeln!(wrong, "{file}: {name:?} is no test that runs: delete its line").unwrap();
        } else if reason != RACE && alone(file, address, name).outcome(name) == Some(Outcome::Passed) {
            writeln!(wrong, "{file}: {name:?} passes: delete its line").unwrap();
        }
    }
    wrong
}

/// Runs a file with its skip list. A Redis that stands in for the server has to pass all of it, unless it was started
/// without the commands of `missing.conf`.
fn check(file: &str) {
    if !long_checks_run() {
        return;
    }
    let _turn = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::start();
    let is_whole =
        server.process().is_none() && missing_commands()["lists"].iter().all(|name| knows(&server.address, name));
    let skips = if is_whole { Vec::new() } else { skips(file) };
    let wrong = complaints(file, &server.address, &skips);
    assert!(wrong.is_empty(), "{wrong}");
}

macro_rules! files {
    ($($test:ident: $file:literal,)*) => {
        const FILES: &[&str] = &[$($file),*];
        $(
            #[test]
            fn $test() {
                check($file);
            }
        )*
    };
}

files! {
    the_suite_passes_for_strings: "unit/type/string",
    the_suite_passes_for_increments: "unit/type/incr",
    the_suite_passes_for_expiry: "unit/expire",
    the_suite_passes_for_the_key_space: "unit/keyspace",
    the_suite_passes_for_scan: "unit/scan",
    the_suite_passes_for_the_protocol: "unit/protocol",
    the_suite_passes_for_transactions: "unit/multi",
    the_suite_passes_for_publish_and_subscribe: "unit/pubsub",
    the_suite_passes_for_info: "unit/info",
    the_suite_passes_for_authentication: "unit/auth",
    the_suite_passes_for_introspection: "unit/introspection",
    the_suite_passes_for_bit_operations: "unit/bitops",
    the_suite_passes_for_bit_fields: "unit/bitfield",
}

#[test]
fn each_skipped_test_fails_on_a_redis_without_the_commands_of_its_reason() {
    if !long_checks_run() {
        return;
    }
    let _turn = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let (whole, missing) = (Redis::start(""), missing_commands());
    let mut without = BTreeMap::new();
    let mut wrong = String::new();
    for (file, Skip { reason, name }) in FILES.iter().flat_map(|file| skips(file).into_iter().map(move |it| (file, it)))
    {
        if reason == RACE || reason.starts_with("setting ") || reason.starts_with("refused ") {
            continue;
        }
        let Some(commands) = missing.get(&reason) else {
            writeln!(wrong, "{file}: {reason:?} is neither a section of missing.conf nor a setting").unwrap();
            continue;
        };
        let redis = without.entry(reason.clone()).or_insert_with(|| redis_without(commands));
        let run = alone(file, &redis.address.to_string(), &name);
        let fails = run.outcome(&name) == Some(Outcome::Failed);
        // One that does not say which command it misses might need a test before it, which has not run.
        let is_alone_good = || alone(file, &whole.address.to_string(), &name).outcome(&name) == Some(Outcome::Passed);
        if !fails || !(run.said.contains("unknown command") || is_alone_good()) {
            writeln!(wrong, "{file}: {name:?} does not need {reason}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_skip_list_is_refused_if_a_test_of_it_passes_or_is_gone() {
    if !long_checks_run() {
        return;
    }
    let _turn = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let missing = missing_commands().into_values().flatten().collect::<Vec<_>>();
    let (redis, file) = (redis_without(&missing), "unit/type/incr");
    let address = redis.address.to_string();
    assert_eq!(complaints(file, &address, &skips(file)), "");
    for (name, expected) in [
        ("No negative zero", "\"No negative zero\" passes: delete its line\n"),
        ("INCR against a pony", "\"INCR against a pony\" is no test that runs: delete its line\n"),
    ] {
        let mut skips = skips(file);
        skips.push(Skip { reason: "lists".to_owned(), name: name.to_owned() });
        assert_eq!(complaints(file, &address, &skips), format!("{file}: {expected}"));
    }
    assert!(complaints(file, &address, &[]).contains("INCR fails against a key holding a list"));
}

#[test]
fn what_skip_lists_call_missing_is_not_there() {
    let server = Server::start();
    if server.process().is_none() {
        return;
    }
    // DEBUG is refused as Redis refuses it unless it is switched on, and SWAPDB is refused always.
    for name in missing_commands().into_values().flatten().filter(|name| !["debug", "swapdb"].contains(&&name[..])) {
        assert!(!knows(&server.address, &name), "{name} is there: delete its line in missing.conf");
    }
    let mut connection = Connection::open(&server.address).unwrap();
    for reason in FILES.iter().flat_map(|file| skips(file)).map(|skip| skip.reason) {
        if let Some(line) = reason.strip_prefix("refused ") {
            let reply = connection.ask(&command(&line.split(' ').collect::<Vec<_>>())).unwrap();
            assert!(reply.is_error(), "{line:?} is not refused: delete the lines with it");
        } else if let Some(setting) = reason.strip_prefix("setting ") {
            let reply = connection.ask(&command(&["CONFIG", "GET", setting])).unwrap();
            assert!(reply.elements.is_empty(), "the setting {setting} is there: delete the lines with it");
        }
    }
}
