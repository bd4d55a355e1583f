//! `millstream tls self-signed`, and what a start without the right files or without TLS says.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::world::{World, failed, run, succeeded};

const MILLSTREAM: &str = env!("CARGO_BIN_EXE_millstream");

#[test]
fn the_files_of_self_signed_serve_a_server_and_a_client_and_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let tls = dir.path().join("tls");
    let make = ["tls", "self-signed", "--dir", tls.to_str().unwrap(), "--client", "operator"];
    let printed = succeeded(&run(MILLSTREAM, &make, ""));
    assert!(printed.contains("--tls-certificate") && printed.contains("curl --cacert"), "{printed}");
    let file = |name: &str| tls.join(name).to_str().unwrap().to_owned();
    for key in ["server.key", "operator.key"] {
        assert_eq!(std::fs::metadata(file(key)).unwrap().permissions().mode() & 0o777, 0o600, "{key}");
    }
    assert!(!tls.join("ca.key").exists());
    let (certificate, key) =
        (format!("tls.certificate={}", file("server.crt")), format!("tls.key={}", file("server.key")));
    let client_ca = format!("tls.client_ca={}", file("ca.crt"));
    let world = World::start(&["--set", &certificate, "--set", &key, "--set", &client_ca]);
    for host in ["localhost", "127.0.0.1"] {
        let url = world.url("applications", "/healthz").replace("localhost", host);
        let get =
            ["-sS", "--cacert", &file("ca.crt"), "--cert", &file("operator.crt"), "--key", &file("operator.key"), &url];
        succeeded(&run("curl", &get, ""));
    }
    let again = failed(&run(MILLSTREAM, &make, ""));
    assert!(again.contains("is there already"), "{again}");
}

#[test]
fn the_terminal_calls_a_server_by_https_and_refuses_an_authority_that_it_does_not_know() {
    let world = World::start(&[]);
    let (url, ca) = (world.url("applications", ""), world.ca());
    succeeded(&run(MILLSTREAM, &["topic", "create", "orders", "--server", &url, "--ca", &ca], ""));
    let listed = succeeded(&run(MILLSTREAM, &["topic", "list", "--server", &url, "--ca", &ca], ""));
    assert!(listed.contains("orders"), "{listed}");
    let refused = failed(&run(MILLSTREAM, &["topic", "list", "--server", &url, "--ca", &world.foreign_ca()], ""));
    assert!(refused.contains("no TLS with localhost") && refused.contains("--ca"), "{refused}");
    world.logs(&["TLS handshake failed", "applications", "UnknownCA"]);
}

#[test]
fn a_start_without_the_files_says_which_and_a_plain_address_on_the_network_warns() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let serve = ["serve", "--data-dir", data.to_str().unwrap(), "--listen-devices-mqtt-tls", "127.0.0.1:0"];
    let refused = failed(&run(MILLSTREAM, &serve, ""));
    assert!(refused.contains("tls.certificate") && refused.contains("tls self-signed"), "{refused}");
    assert!(!data.exists(), "nothing was opened");
    let world = World::start(&["--set", "listen.devices_mqtt=0.0.0.0:0"]);
    world.logs(&["WARN", "listen.devices_mqtt = 0.0.0.0:0 is not encrypted", "listen.devices_mqtt_tls"]);
    let settings = Command::new(MILLSTREAM).args(["config", "show", "--explain"]).output().unwrap();
    assert!(succeeded(&settings).contains("tls.client_ca"));
}
