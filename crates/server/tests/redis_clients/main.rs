//! Redis clients that are not ours, as their users run them; Redis's own test suite; and a Redis beside ours that must
//! give the same replies. `scripts/setup-clients` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod compare;
mod differential;
mod generate;
mod nginx;
mod server;
mod suite;

use std::path::Path;

use millstream_testkit::installed;
use millstream_testkit::resp::{Connection, Reply, command};

use server::{Server, beside, long_checks_run, output, patient};

fn python(server: &Server, script: &str) {
    let mut python = patient(installed("redis/venv/bin/python"));
    // Nothing is written beside the sources.
    python.env("PYTHONDONTWRITEBYTECODE", "1").arg(beside(script));
    server.run(python);
}

fn javascript(server: &Server, script: &str) {
    let mut node = patient("node");
    node.env("REDIS_CLIENTS_HOME", installed("redis/js")).arg(beside(script));
    server.run(node);
}

#[test]
fn redis_py_works_in_both_protocols() {
    python(&Server::start(), "redis_py.py");
}

/// Runs tests of redis-py's own.
fn redis_pys_own(server: &Server) -> std::process::Command {
    let mut pytest = patient(installed("redis/venv/bin/python"));
    pytest.current_dir(installed("redis/redis-py")).env("PYTHONDONTWRITEBYTECODE", "1");
    pytest.args(["-m", "pytest", "-c", "/dev/null", "--rootdir=.", "-p", "no:cacheprovider", "-q", "--tb=short"]);
    pytest.args(["--redis-url", &format!("redis://{}/0", server.address)]);
    pytest
}

/// The tests that need none of the commands in `missing.conf`, but for those in a skip list, a line `REASON: NAME` for each.
/// A Redis that stands in for the server has to pass all of them.
#[test]
fn redis_pys_own_tests_pass() {
    if !long_checks_run() {
        return;
    }
    let server = Server::start();
    let [tests, skips] = ["redis_py_tests.txt", "redis_py_skips.txt"].map(lines_beside);
    let skips =
        skips.iter().map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{line:?} is not REASON: NAME")).1);
    let skips: Vec<&str> = if server.process().is_some() { skips.collect() } else { Vec::new() };
    for name in &skips {
        assert!(tests.iter().any(|test| test == name), "{name} is no test that runs: delete its line");
        let outcome = redis_pys_own(&server).arg(name).output().unwrap();
        assert!(!outcome.status.success(), "{name} passes: delete its line");
    }
    let run: Vec<&String> = tests.iter().filter(|test| !skips.contains(&&***test)).collect();
    let said = output(redis_pys_own(&server).args(&run), "");
    let summary = said.lines().last().unwrap_or_default();
    assert!(summary.starts_with(&format!("{} passed", run.len())), "{said}");
    assert!(!summary.contains("skipped"), "{said}");
}

fn lines_beside(file: &str) -> Vec<String> {
    std::fs::read_to_string(beside(file)).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn ioredis_works() {
    javascript(&Server::start(), "ioredis.mjs");
}

#[test]
fn go_redis_works_in_both_protocols() {
    if long_checks_run() {
        Server::start().run(patient(installed("redis/go_redis")));
    }
}

#[test]
fn jedis_works_in_both_protocols() {
    if long_checks_run() {
        let mut java = patient("java");
        java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp"]);
        java.arg(installed("redis/jars").join("*")).arg(beside("Jedis.java"));
        Server::start().run(java);
    }
}

#[test]
fn djangos_own_cache_and_sessions_work() {
    if long_checks_run() {
        python(&Server::start(), "django_cache.py");
    }
}

#[test]
fn two_express_applications_share_sessions_by_connect_redis() {
    if long_checks_run() {
        javascript(&Server::start(), "sessions.mjs");
    }
}

#[test]
fn two_socket_io_servers_reach_each_others_clients() {
    if long_checks_run() {
        javascript(&Server::start(), "socket_io.mjs");
    }
}

#[test]
fn redis_cli_shows_replies_as_those_of_redis() {
    let server = Server::start();
    let session = [
        ("SET cli:key \"two words\"", "OK"),
        ("GET cli:key", "\"two words\""),
        ("GET cli:none", "(nil)"),
        ("INCRBY cli:count 42", "(integer) 42"),
        ("MGET cli:count cli:none", "1) \"42\"\n2) (nil)"),
        ("INCR cli:key", "(error) ERR value is not an integer or out of range"),
        ("NOSUCH a b", "(error) ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "),
        ("MULTI", "OK"),
        ("INCR cli:count", "QUEUED"),
        ("EXEC", "1) (integer) 43"),
    ];
    let asked: String = session.iter().map(|(asked, _)| format!("{asked}\n")).collect();
    for protocol in ["-2", "-3"] {
        assert_eq!(server.redis_cli(&["FLUSHALL"], ""), "OK\n");
        let expected: Vec<&str> = session.iter().flat_map(|(_, shown)| shown.lines()).collect();
        let shown = server.redis_cli(&[protocol, "--no-raw"], &asked);
        // It tells the time of a command that takes more than half a second.
        let is_time =
            |line: &str| line.strip_prefix('(').and_then(|it| it.strip_suffix("s)")?.parse::<f64>().ok()).is_some();
        let shown: Vec<&str> = shown.lines().filter(|line| !line.is_empty() && !is_time(line)).collect();
        assert_eq!(shown, expected);
    }
}

#[test]
fn keys_that_expire_and_changes_are_counted() {
    let server = Server::start();
    let mut connection = Connection::open(&server.address).unwrap();
    let mut ask = |line: &str| connection.ask(&command(&line.split(' ').collect::<Vec<_>>())).unwrap();
    let changes = |info: Reply| -> u64 {
        let info = String::from_utf8(info.bulk.unwrap()).unwrap();
        let count = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        count.unwrap().parse().unwrap()
    };
    assert!(ask("MSET a 1 b 2").is("+OK"));
    let before = changes(ask("INFO persistence"));
    // A thousand years ahead.
    for (line, expected) in [
        ("EXPIREAT a 33177117420", ":1"),
        ("EXPIRETIME a", ":33177117420"),
        ("PEXPIRETIME a", ":33177117420000"),
        ("SETBIT bits 0 1", ":0"),
        ("SETBIT bits 0 1", ":1"),
        ("DEL none", ":0"),
        ("COPY a c DB 1", ":1"),
        ("COPY b c DB 1", ":0"),
    ] {
        assert!(ask(line).is(expected), "{line}");
    }
    assert_eq!(changes(ask("INFO persistence")) - before, 3, "EXPIREAT, SETBIT and COPY change something, once each");
    let keyspace = String::from_utf8(ask("INFO keyspace").bulk.unwrap()).unwrap();
    assert!(keyspace.contains("db0:keys=3,expires=1") && keyspace.contains("db1:keys=1,expires=1"), "{keyspace}");
    assert!(ask("SELECT 1").is("+OK"));
    assert!(ask("EXPIRETIME c").is(":33177117420"));
}

#[test]
fn redis_cli_loads_scans_and_measures_keys() {
    let server = Server::start();
    let loaded: String = (0..5000).map(|at| format!("SET load:{at} {at}\r\n")).collect();
    let said = server.redis_cli(&["--pipe"], &loaded);
    assert!(said.contains("errors: 0, replies: 5000"), "{said}");
    let mut found: Vec<String> =
        server.redis_cli(&["--scan", "--pattern", "load:*"], "").lines().map(str::to_owned).collect();
    found.sort_unstable();
    let mut expected: Vec<String> = (0..5000).map(|at| format!("load:{at}")).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let biggest = server.redis_cli(&["--bigkeys"], "");
    assert!(biggest.contains("Sampled 5000 keys") && biggest.contains("5000 strings with 18890 bytes"), "{biggest}");
    let info = server.redis_cli(&["INFO", "keyspace"], "");
    assert!(info.contains("db0:keys=5000,expires=0"), "{info}");
}

#[test]
fn redis_benchmark_runs_and_sees_no_error() {
    let server = Server::start();
    let (host, port) = server.host_and_port();
    for depth in ["1", "16"] {
        let mut benchmark = patient(Path::new("redis-benchmark"));
        benchmark.args([
            "-h",
            host,
            "-p",
            port,
            "-t",
            "ping,set,get,incr,mset",
            "-n",
            "2000",
            "-c",
            "20",
            "-r",
            "1000",
        ]);
        let said = output(benchmark.args(["-P", depth, "--csv"]), "");
        let measured: Vec<&str> = said.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
        let expected = ["\"PING_INLINE\"", "\"PING_MBULK\"", "\"SET\"", "\"GET\"", "\"INCR\"", "\"MSET (10 keys)\""];
        assert_eq!(measured, expected, "{said}");
    }
    assert_ne!(server.redis_cli(&["DBSIZE"], "").trim(), "0");
}
