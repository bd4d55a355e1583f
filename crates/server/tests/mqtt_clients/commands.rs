//! Commands to clients that are not ours, which take and answer them; and over `kill -9`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::thread::JoinHandle;

use millstream_testkit::mqtt::{Mqtt, packet};
use millstream_testkit::{Answer, ask, eventually};
use tokio::runtime::Runtime;

use crate::{World, output, patient, target};

/// An application that sends a command, which waits for its device, and waits for the answer.
fn send(applications: SocketAddr, device: &str, rest: &str) -> JoinHandle<Answer> {
    let path = format!("/api/commands/default/{device}?command=set&timeout-ms=60000&ttl-s=60{rest}");
    std::thread::spawn(move || ask(applications, "POST", &path, &[("Content-Type", "text/plain")], b"21.5"))
}

fn expect_done(answer: JoinHandle<Answer>, who: &str) {
    let answer = answer.join().unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "did 21.5"), "{who}: {answer:?}");
    assert_eq!(answer.header("hono-cmd-status"), Some("200"), "{who}");
    assert_eq!(answer.header("content-type"), Some("text/plain"), "{who}");
}

#[test]
fn paho_gmqtt_and_mqttjs_take_commands_and_answer_them_as_devices_and_as_gateways() {
    let world = World::start();
    let python = target().join("mqtt/venv/bin/python");
    let (tcp, http) = (world.process.mqtt.to_string(), world.process.devices.to_string());
    for version in ["4", "5"] {
        for (device, user, filter) in [
            ("stranger", "stranger", "c///q/#"),
            ("stranger", "stranger", "command/default/stranger/req/#"),
            ("behind", "gateway", "c//+/q/#"),
            ("behind", "gateway", "command//behind/req/#"),
        ] {
            for (program, script, to) in [
                (python.as_path(), "commands/paho_command.py", tcp.clone()),
                (&python, "commands/gmqtt_command.py", tcp.clone()),
                (Path::new("node"), "commands/mqttjs_command.mjs", format!("ws://{http}/mqtt")),
            ] {
                let answer = send(world.process.applications, device, "");
                world.run_with(program, script, &[&to, version, user, filter]);
                expect_done(answer, &format!("{script}, version {version}, {filter}"));
            }
        }
    }
    world.kill();
}

#[test]
fn mosquitto_sub_takes_a_command_and_mosquitto_pub_answers_it() {
    let world = World::start();
    for version in ["311", "5"] {
        for (device, filter, qos) in [("gateway", "c///q/#", "0"), ("behind", "command//+/req/#", "1")] {
            let answer = send(world.process.applications, device, "");
            let arguments = ["-V", version, "-q", qos, "-t", filter, "-C", "1", "-F", "%t %p"];
            let said = output(world.mosquitto("mosquitto_sub", &arguments));
            let (topic, payload) = said.trim().split_once(' ').unwrap();
            assert_eq!(payload, "21.5");
            let topic = topic.replace("/q/", "/s/").replace("/req/", "/res/");
            let topic = topic.strip_suffix("/set").unwrap().to_owned() + "/200/?content-type=text%2Fplain";
            output(world.mosquitto("mosquitto_pub", &["-V", version, "-q", qos, "-t", &topic, "-m", "did 21.5"]));
            expect_done(answer, &format!("version {version}, {filter}"));
        }
    }
    world.kill();
}

#[test]
fn curl_waits_for_a_command_and_answers_it() {
    let world = World::start();
    let devices = world.process.devices_url();
    for (device, user, path, method) in
        [("stranger", "stranger", "/telemetry", "POST"), ("behind", "gateway", "/event//behind", "PUT")]
    {
        let login = format!("{user}@default:pw");
        let curl = |arguments: &[&str]| {
            let mut command = patient("curl");
            command.args(["-s", "-i", "-u", &login, "-X", method]).args(arguments);
            output(command)
        };
        let mut waiting = patient("curl");
        waiting.args(["-s", "-i", "-u", &login, "-X", method, "-d", "x", "-H", "hono-ttd: 50"]);
        let waiting = waiting.arg(format!("{devices}{path}")).stdout(Stdio::piped()).spawn().unwrap();
        let answer = send(world.process.applications, device, "");
        let out = waiting.wait_with_output().unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 OK") && said.ends_with("\r\n\r\n21.5"), "{said}");
        let header = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        assert_eq!(header("hono-command:"), Some("set"), "{said}");
        assert_eq!(header("hono-cmd-target-device:"), (user != device).then_some(device), "{said}");
        let id = header("hono-cmd-req-id:").unwrap();
        let to = if user == device { format!("/command/res/{id}") } else { format!("/command/res//{device}/{id}") };
        let done = ["-d", "did 21.5", "-H", "hono-cmd-status: 200", "-H", "content-type: text/plain"];
        let said = curl(&[&done[..], &[&format!("{devices}{to}")]].concat());
        assert!(said.starts_with("HTTP/1.1 202"), "{said}");
        expect_done(answer, user);
    }
    world.kill();
}

/// Looks until applications have been told as often.
fn await_told(world: &World, device: &str, count: usize) {
    eventually(&format!("{count} events of {device}"), || told(world, device).len() >= count);
}

/// The `ttd` of the events that tell whether a device listens, in order.
fn told(world: &World, device: &str) -> Vec<i64> {
    let path = "/api/streams/event.default?from=earliest&until=latest";
    let text = ask(world.process.applications, "GET", path, &[("Accept", "text/event-stream")], b"").text();
    let records = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let records = records.filter_map(|json| serde_json::from_str::<serde_json::Value>(json).ok());
    let is_it = |record: &serde_json::Value| {
        record["key"] == device
            && record["headers"]["content-type"] == "application/vnd.eclipse-hono-empty-notification"
    };
    let of_device = records.filter(is_it);
    of_device.map(|record| record["headers"]["ttd"].as_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn applications_hear_which_devices_listen_and_once_after_kill_9_that_they_stopped() {
    let (mut world, runtime) = (World::start(), Runtime::new().unwrap());
    runtime.block_on(async {
        let mut device = Mqtt::log_in(world.process.mqtt, 5, "stranger@default").await;
        device.subscribe("c///q/#", 1).await;
        // Twice is no news, and neither is the end of one of two.
        device.subscribe("command///req/#", 1).await;
        device.unsubscribe("c///q/#").await;
        await_told(&world, "stranger", 1);
        device.unsubscribe("command///req/#").await;
        await_told(&world, "stranger", 2);
        assert_eq!(told(&world, "stranger"), [-1, 0]);
        device.subscribe("c///q/#", 1).await;
        drop(device);
        await_told(&world, "stranger", 4);
        assert_eq!(told(&world, "stranger"), [-1, 0, -1, 0]);
        let mut gateway = Mqtt::log_in(world.process.mqtt, 4, "gateway@default").await;
        gateway.subscribe("c//+/q/#", 1).await;
        gateway.subscribe("c//behind/q/#", 1).await;
        await_told(&world, "gateway", 1);
        await_told(&world, "behind", 1);
        std::mem::forget(gateway);
    });
    for _ in 0..2 {
        world = world.kill_and_start();
        for (device, expected) in [("stranger", &[-1, 0, -1, 0][..]), ("gateway", &[-1, 0]), ("behind", &[-1, 0])] {
            assert_eq!(told(&world, device), expected, "{device}");
        }
    }
    world.kill();
}

#[test]
fn a_command_that_waits_for_a_sleeping_device_survives_kill_9_and_is_delivered_once() {
    let (mut world, runtime) = (World::start(), Runtime::new().unwrap());
    let answer = send(world.process.applications, "stranger", "&one-way=true").join().unwrap();
    assert_eq!((answer.status, answer.json()["outcome"].as_str()), (202, Some("waiting")), "{}", answer.text());
    world = world.kill_and_start();
    runtime.block_on(async {
        let mut device = Mqtt::log_in(world.process.mqtt, 5, "stranger@default").await;
        device.subscribe("c///q/#", 1).await;
        let message = device.message().await;
        assert_eq!(message.text(), ("c///q//set", "21.5"));
        device.send(&packet(0x40, &message.id.to_be_bytes())).await;
    });
    // What follows goes after it, and it is not there again.
    let answer = send(world.process.applications, "stranger", "");
    let path = "/telemetry?hono-ttd=50";
    let login = [("Authorization", "Basic c3RyYW5nZXJAZGVmYXVsdDpwdw=="), ("Content-Type", "text/plain")];
    let command = ask(world.process.devices, "POST", path, &login, b"x");
    assert_eq!((command.status, command.text().as_str()), (200, "21.5"));
    let id = command.header("hono-cmd-req-id").expect("an answer is wanted of the second");
    let path = format!("/command/res/{id}?hono-cmd-status=200");
    assert_eq!(ask(world.process.devices, "POST", &path, &login, b"did 21.5").status, 202);
    expect_done(answer, "over HTTP");
    world.kill();
}
