//! Kafka's protocol over TLS with kcat.

use millstream_testkit::has_kafka_listener;

use crate::world::{World, failed, run, succeeded};

#[test]
fn kcat_produces_and_consumes_over_ssl_and_is_told_the_port_with_tls() {
    if !has_kafka_listener() {
        return;
    }
    let world = World::start(&[]);
    let port = world.port("kafka-tls");
    let (broker, ca) = (format!("localhost:{port}"), format!("ssl.ca.location={}", world.ca()));
    let ssl = ["-b", &broker, "-X", "security.protocol=ssl", "-X", &ca];
    let listed = succeeded(&run("kcat", &[&ssl[..], &["-L"]].concat(), ""));
    assert!(listed.contains(&format!("localhost:{port} (controller)")), "{listed}");
    // Enough that they are read back from a file.
    let lines: Vec<String> = (0..20_000).map(|at| format!("reading {at} {}", "x".repeat(200))).collect();
    succeeded(&run("kcat", &[&ssl[..], &["-P", "-t", "readings", "-p", "0"]].concat(), &lines.join("\n")));
    let back = succeeded(&run("kcat", &[&ssl[..], &["-C", "-t", "readings", "-p", "0", "-e", "-q"]].concat(), ""));
    assert_eq!(back.lines().count(), lines.len());
    assert!(back.lines().eq(lines.iter().map(String::as_str)));
    let foreign = format!("ssl.ca.location={}", world.foreign_ca());
    let refused = ["-b", &broker, "-X", "security.protocol=ssl", "-X", &foreign, "-L", "-m", "10"];
    failed(&run("kcat", &refused, ""));
    world.logs(&["TLS handshake failed", "kafka", "UnknownCA"]);
    failed(&run("kcat", &["-b", &broker, "-L", "-m", "5"], ""));
    world.logs(&["TLS handshake failed", "kafka", "not_tls"]);
}

#[test]
fn kcat_logs_in_over_sasl_ssl() {
    if !has_kafka_listener() {
        return;
    }
    let token = "change-me-0123456789";
    let config = tempfile::tempdir().unwrap();
    let file = config.path().join("millstream.toml");
    let roles = "roles = [\"reader\", \"writer\", \"admin\"]";
    std::fs::write(&file, format!("[[applications.tokens]]\nname = \"shop\"\ntoken = \"{token}\"\n{roles}\n")).unwrap();
    let world = World::start(&["--config", file.to_str().unwrap()]);
    let (broker, ca) = (format!("localhost:{}", world.port("kafka-tls")), format!("ssl.ca.location={}", world.ca()));
    let by = |mechanism: &str, password: &str, more: &[&str]| {
        let (mechanism, password) = (format!("sasl.mechanism={mechanism}"), format!("sasl.password={password}"));
        let login = ["-X", &mechanism, "-X", "sasl.username=shop", "-X", &password];
        let ssl = ["-b", &broker, "-X", "security.protocol=sasl_ssl", "-X", &ca, "-m", "10"];
        run("kcat", &[&ssl[..], &login, more].concat(), "a bolt")
    };
    let with = |password: &str, more: &[&str]| by("PLAIN", password, more);
    succeeded(&with(token, &["-P", "-t", "orders"]));
    assert_eq!(succeeded(&with(token, &["-C", "-t", "orders", "-e", "-q"])), "a bolt\n");
    failed(&with("wrong-0123456789-wrong", &["-L"]));
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        assert_eq!(succeeded(&by(mechanism, token, &["-C", "-t", "orders", "-e", "-q"])), "a bolt\n", "{mechanism}");
        failed(&by(mechanism, "wrong-0123456789-wrong", &["-L"]));
    }
}
