//! The log tells that a limit refuses subscriptions: once for each connection, with the limit.

use std::fs::File;

use millstream_testkit::millstream;

use crate::World;

#[test]
fn the_first_refused_subscription_of_each_connection_is_logged_with_its_client_and_the_limit() {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    let mut program = millstream();
    program.stderr(File::create(&log).unwrap());
    let world = World::start_by(program, &["--set", "connect.mqtt.broker.subscriptions_max=2"]);
    let filters = ["-t", "home/1", "-t", "home/2", "-t", "home/3", "-t", "home/4"];
    for connections in 1..=2 {
        let client = format!("client-{connections}");
        let arguments = [&["-V", "5", "-i", &client, "-E", "-d"], &filters[..]].concat();
        let said = world.mosquitto("mosquitto_sub", &arguments).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("Subscribed (mid: 1): 0, 0, 151, 151\n"), "{said}");
        // It was logged before it was answered.
        let logged = std::fs::read_to_string(&log).unwrap();
        let refused = "mqtt: a subscription is refused, connect.mqtt.broker.subscriptions_max = 2 is reached";
        let lines: Vec<&str> = logged.lines().filter(|line| line.contains(refused)).collect();
        assert_eq!(lines.len(), connections, "{logged}");
        for part in ["WARN", "tenant=default", "device=\"gateway\"", "filter=\"home/3\""] {
            assert!(lines.iter().all(|line| line.contains(part)), "{part} in {logged}");
        }
    }
    world.process.stop();
}
