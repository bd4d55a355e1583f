//! MQTT over TLS with mosquitto_pub.

use std::process::Output;

use crate::world::{World, failed, run, succeeded};

impl World {
    fn publish(&self, port: &str, host: &str, more: &[&str]) -> Output {
        let port = self.port(port);
        let login = ["-h", host, "-p", &port, "-u", "thermometer@default", "-P", "pw", "-q", "1", "-t", "telemetry"];
        run("mosquitto_pub", &[&login[..], more].concat(), "")
    }
}

#[test]
fn mosquitto_pub_sends_over_tls_in_both_versions_and_refuses_what_it_does_not_trust() {
    let world = World::start(&["--set", "connect.mqtt.payload_max_bytes=200000"]);
    world.register("thermometer");
    for version in ["311", "5"] {
        let message = format!("over-tls-{version}");
        let more = ["--cafile", &world.ca(), "-V", version, "-m", &message];
        succeeded(&world.publish("devices-mqtt-tls", "localhost", &more));
        assert!(world.records("telemetry.default").contains(&message));
    }
    // Larger than a record of TLS, and than a socket's buffer.
    let large = world.file("large");
    std::fs::write(&large, vec![b'x'; 200_000]).unwrap();
    succeeded(&world.publish("devices-mqtt-tls", "localhost", &["--cafile", &world.ca(), "-f", &large]));
    failed(&world.publish("devices-mqtt-tls", "localhost", &["--cafile", &world.foreign_ca(), "-m", "a"]));
    world.logs(&["TLS handshake failed", "devices-mqtt", "UnknownCA"]);
    failed(&world.publish("devices-mqtt-tls", "127.0.0.1", &["--cafile", &world.ca(), "-m", "a"]));
    // It says no more than that; other clients name the certificate.
    world.logs(&["TLS handshake failed", "devices-mqtt", "the client broke off: InternalError"]);
    let refused = failed(&world.publish("devices-mqtt-tls", "localhost", &["-V", "5", "-m", "a"]));
    assert!(refused.contains("ot authori"), "{refused}");
    world.logs(&["TLS handshake failed", "devices-mqtt", "not_tls"]);
    // The other way round: TLS on the port without it.
    failed(&world.publish("devices-mqtt", "localhost", &["--cafile", &world.ca(), "-m", "a"]));
}
