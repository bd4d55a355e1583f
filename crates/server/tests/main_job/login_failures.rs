//! Failed logins: one limit over all listeners, counted and logged.

use std::fs::{File, read_to_string};
use std::net::{SocketAddr, TcpStream};

use millstream_testkit::{Process, Raw, ask, eventually, has_kafka_listener, millstream};

#[test]
fn failed_logins_of_an_address_are_limited_counted_and_logged_over_all_listeners() {
    let dir = tempfile::tempdir().unwrap();
    let (settings, log) = (dir.path().join("settings.toml"), dir.path().join("log.txt"));
    let token =
        "[[applications.tokens]]\nname = \"o\"\ntoken = \"0123456789abcdef\"\ntenant = \"*\"\nroles = [\"reader\"]\n";
    std::fs::write(&settings, format!("[listen]\nlogin_failures_per_minute = 2\n{token}")).unwrap();
    let mut program = millstream();
    program.stderr(File::create(&log).unwrap());
    let process = Process::start_by(program, dir.path(), &["--config", settings.to_str().unwrap()]);
    let status = |to: SocketAddr, method: &str, path: &str, login: &str| {
        ask(to, method, path, &[("Authorization", login)], b"").status
    };
    let (wrong, right, device) = ("Bearer wrong-secret-0123", "Bearer 0123456789abcdef", "Basic ZDpub3Qtc28tc2VjcmV0");
    assert_eq!(status(process.applications, "GET", "/v2/entities", wrong), 401);
    for _ in 0..2 {
        assert_eq!(status(process.devices, "POST", "/telemetry", device), 401);
    }
    let refused = ask(process.applications, "GET", "/v2/entities", &[("Authorization", wrong)], b"");
    let retry_after_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(refused.status == 429 && (1..=30).contains(&retry_after_s), "{refused:?}");
    assert!(refused.text().contains("listen.login_failures_per_minute = 2"), "{}", refused.text());
    assert_eq!(status(process.devices, "POST", "/telemetry", device), 429);
    assert_eq!(status(process.applications, "GET", "/v2/entities", right), 200);
    let mut redis = Raw(TcpStream::connect(process.redis).unwrap());
    let refused = redis.redis(&["AUTH", "o", "wrong-secret-0123"]);
    assert!(refused.contains("too many logins from 127.0.0.1 have failed"), "{refused}");
    assert_eq!(redis.redis(&["AUTH", "o", "0123456789abcdef"]), "+OK");
    let metrics = ask(process.applications, "GET", "/metrics", &[("Authorization", right)], b"").text();
    for line in [
        "# TYPE millstream_login_failures_total counter",
        "millstream_login_failures_total{protocol=\"http\"} 3",
        "millstream_login_failures_total{protocol=\"kafka\"} 0",
        "millstream_logins_throttled_total{protocol=\"http\"} 2",
        "millstream_logins_throttled_total{protocol=\"redis\"} 1",
    ]
    .into_iter()
    .filter(|line| has_kafka_listener() || !line.contains("kafka"))
    {
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }
    let told = || read_to_string(&log).unwrap();
    eventually("the failures are logged", || told().contains("logins have failed client=127.0.0.1 protocol=\"http\""));
    assert!(!told().contains("secret"), "{}", told());
    process.stop();
}
