//! `/metrics` has a series for what can be counted, and none that stays at zero for good.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

use millstream_testkit::{Server, ask, millstream, terminate};

use crate::log_has_no_files;

/// Begins of series that count what listeners do which can be off.
const OF_OTHER_LISTENERS: [&str; 8] = [
    "connect_mqtt_",
    "hono_connections_",
    "millstream_redis_clients_closed_total{",
    "millstream_login_failures_total{protocol=\"kafka\"}",
    "millstream_login_failures_total{protocol=\"mqtt\"}",
    "millstream_login_failures_total{protocol=\"redis\"}",
    "millstream_connections{listener=\"kafka\"}",
    "millstream_tls_",
];

#[test]
fn a_listener_that_is_off_and_a_limit_that_is_not_set_have_no_series() {
    let dir = tempfile::tempdir().unwrap();
    let off = ["devices-http", "devices-mqtt", "kafka", "redis"]
        .map(|listener| [format!("--listen-{listener}"), "off".to_owned()]);
    let mut server = millstream()
        .args(["serve", "--listen-applications", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path())
        .args(off.as_flattened())
        .args(["--set", "listen.login_failures_per_minute=0", "--set", "logging.level=warn"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(server.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let address: SocketAddr = line.strip_prefix("listening applications http://").unwrap().parse().unwrap();
    let text = ask(address, "GET", "/metrics", &[], b"").text();
    for begin in OF_OTHER_LISTENERS.into_iter().chain(["millstream_logins_throttled_total"]) {
        assert!(!text.contains(&format!("\n{begin}")), "{begin} in\n{text}");
    }
    assert!(text.contains("\nmillstream_login_failures_total{protocol=\"http\"} 0\n"), "{text}");
    terminate(&mut server);
}

#[test]
fn a_topic_has_series_of_what_can_happen_to_it() {
    let server = crate::tenant();
    let own = server.tenant();
    let telemetry = format!("telemetry.{own}");
    let memory = br#"{"storage": "memory"}"#;
    let made = ask(server.applications(), "PUT", "/api/streams/fleeting", &[], memory);
    assert!(made.status < 300, "{}", made.text());
    let text = server.get("/metrics").text();
    let has = |metric: &str, tenant: &str, topic: &str| {
        text.contains(&format!("\nmillstream_topic_{metric}{{tenant=\"{tenant}\",topic=\"{topic}\"}} "))
    };
    let rows = [(own, "fleeting", true, false), ("default", "_registry", false, true), (own, &telemetry, true, true)];
    for (tenant, topic, loses_its_start, is_on_disk) in rows {
        assert!(has("bytes", tenant, topic) && has("stable_offsets", tenant, topic), "{topic} in\n{text}");
        assert_eq!(
            (has("first_offsets", tenant, topic), has("segments", tenant, topic)),
            (loses_its_start, is_on_disk && !log_has_no_files()),
            "{topic}"
        );
    }
}
