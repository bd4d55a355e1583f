//! The server's certificate is replaced while clients stay connected and others come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use millstream_testkit::{TlsServer, has_kafka_listener, installed};

use crate::clients::{beside, mqttjs_home};
use crate::running_client::{PATIENCE, RunningClient};
use crate::world::{World, path, run, succeeded};

/// The lines of curl for a request over a new connection, and over that of the one before.
const CONNECTED: &str = "1 200";
const KEPT: &str = "0 200";

/// The certificate that a listener shows to openssl.
fn shown(world: &World, listener: &str) -> String {
    let address = format!("127.0.0.1:{}", world.port(&format!("{listener}-tls")));
    let ca = world.ca();
    let said = succeeded(&run(
        "openssl",
        &["s_client", "-connect", &address, "-servername", "localhost", "-CAfile", &ca, "-verify_return_error"],
        "",
    ));
    let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    let (_, rest) = said.split_once(begin).unwrap();
    rest.split_once(end).unwrap().0.split_whitespace().collect()
}

/// The call of the server by mosquitto_pub.
fn mosquitto(world: &World, more: &[&str]) -> Vec<String> {
    let (port, ca) = (world.port("devices-mqtt-tls"), world.ca());
    let address = ["mosquitto_pub", "-h", "localhost", "-p", &port, "--cafile", &ca, "-q", "1", "-t", "telemetry"];
    let login = ["-u", "thermometer@default", "-P", "pw"];
    [&address[..], &login, more].concat().into_iter().map(str::to_owned).collect()
}

/// The call of the server by kcat.
fn kcat(world: &World, more: &[&str]) -> Vec<String> {
    let (broker, ca) = (format!("localhost:{}", world.port("kafka-tls")), format!("ssl.ca.location={}", world.ca()));
    let address = ["kcat", "-b", &broker, "-X", "security.protocol=ssl", "-X", &ca, "-t", "readings", "-p", "0"];
    [&address[..], more].concat().into_iter().map(str::to_owned).collect()
}

/// The call of the server by curl: a line for each answer, with the number of connections that it took.
fn curl(world: &World, query: &str, more: &[&str]) -> Vec<String> {
    let (url, ca) = (world.url("applications", &format!("/healthz{query}")), world.ca());
    let line = "%{num_connects} %{http_code}\\n";
    let get = ["curl", "-sS", "--fail", "--cacert", &ca, "-o", "/dev/null", "-w", line, &url];
    [&get[..], more].concat().into_iter().map(str::to_owned).collect()
}

/// The clients that stay connected; paho and MQTT.js make new connections besides.
struct StayingClients {
    mosquitto: RunningClient,
    paho: RunningClient,
    mqttjs: RunningClient,
    /// On a server that has a listener for it.
    kcat: Option<RunningClient>,
    curl: RunningClient,
}

impl StayingClients {
    fn start(world: &World) -> Self {
        let (ca, port) = (world.ca(), world.port("devices-mqtt-tls"));
        let (python, paho, mqttjs) =
            (installed("mqtt/venv/bin/python"), beside("paho_stay.py"), beside("mqttjs_stay.mjs"));
        let (home, url) = (mqttjs_home(), world.url("devices-http", "/mqtt").replace("https", "wss"));
        let paho = [path(&python), "-B", path(&paho), "localhost", &port, &ca].map(str::to_owned);
        let mqttjs = ["env", &home, "node", path(&mqttjs), &url, &ca].map(str::to_owned);
        Self {
            mosquitto: RunningClient::start("mosquitto", &mosquitto(world, &["-l", "-d"])),
            paho: RunningClient::start("paho", &paho),
            mqttjs: RunningClient::start("mqttjs", &mqttjs),
            kcat: has_kafka_listener()
                .then(|| RunningClient::start("kcat", &kcat(world, &["-P", "-X", "linger.ms=5"]))),
            curl: RunningClient::start("curl", &curl(world, "?[1-1000000]", &["--rate", "100/s"])),
        }
    }

    /// Waits until messages of each have been confirmed, and requests answered.
    fn go_on(&self, world: &World) {
        self.mosquitto.goes_on("received PUBACK", 20);
        for client in [&self.paho, &self.mqttjs] {
            ["kept", "new"].into_iter().for_each(|word| client.goes_on(word, 5));
        }
        self.curl.goes_on(KEPT, 20);
        if self.kcat.is_none() {
            return;
        }
        let stored = || world.records("readings").matches("kcat ").count();
        let (before, deadline) = (stored(), Instant::now() + PATIENCE);
        while stored() < before + 20 {
            assert!(Instant::now() < deadline, "kcat does not go on");
        }
    }

    /// Ends them: none has lost its connection, and each of their messages is there.
    fn end(self, world: &World) {
        let Self { mosquitto, paho, mqttjs, kcat: producer, curl } = self;
        let (given, said) = mosquitto.end();
        assert_eq!(said.iter().filter(|line| line.contains("sending CONNECT")).count(), 1, "{said:?}");
        let sent = world.records("telemetry.default");
        assert!((0..given).all(|line| sent.contains(&format!("\"mosquitto {line}\""))), "{given} lines were sent");
        for client in [paho, mqttjs] {
            let (_, said) = client.end();
            assert!(said.iter().all(|line| ["kept", "new", "ended"].contains(&line.as_str())), "{said:?}");
            assert_eq!(said.last().map(String::as_str), Some("ended"));
        }
        if let Some(producer) = producer {
            let (given, said) = producer.end();
            assert!(said.is_empty(), "it tells of lost connections: {said:?}");
            let consumer = kcat(world, &["-C", "-q", "-e", "-o", "beginning"]);
            assert_eq!(succeeded(&run_all(&consumer)).lines().count() as u64, given);
        }
        let said = curl.kill();
        let connected: Vec<_> = said.iter().filter(|line| *line != KEPT).collect();
        assert_eq!(connected, [CONNECTED], "all requests go over one connection");
    }
}

/// Runs a program with its arguments.
fn run_all(program: &[String]) -> std::process::Output {
    run(&program[0], &program[1..].iter().map(String::as_str).collect::<Vec<_>>(), "")
}

/// Connects with a new process again and again until it is told to stop; returns the number of times.
fn come_and_go(program: Vec<String>, is_over: Arc<AtomicBool>) -> JoinHandle<u32> {
    std::thread::spawn(move || {
        let mut times = 0;
        while !is_over.load(Ordering::Acquire) {
            succeeded(&run_all(&program));
            times += 1;
        }
        times
    })
}

#[test]
fn a_certificate_is_replaced_under_load_and_no_client_loses_a_connection_or_is_refused_one() {
    let world = World::start(&[]);
    world.register("thermometer");
    let staying = StayingClients::start(&world);
    let is_over = Arc::new(AtomicBool::new(false));
    let new = [curl(&world, "", &[]), mosquitto(&world, &["-m", "by a new process"])];
    let new = new.map(|program| come_and_go(program, is_over.clone()));
    staying.go_on(&world);
    let before = shown(&world, "applications");
    world.server.authority.server(&["localhost"]).write(world.server.dir.path(), "server");
    world.logs(&["TLS files were read again"]);
    let after: Vec<String> = TlsServer::listeners().into_iter().map(|listener| shown(&world, listener)).collect();
    assert!(after.iter().all(|shown| *shown == after[0] && *shown != before), "each shows the new certificate");
    staying.go_on(&world);
    is_over.store(true, Ordering::Release);
    for times in new {
        assert!(times.join().unwrap() > 1);
    }
    staying.end(&world);
    assert_eq!(world.metric("millstream_tls_reloads_total{outcome=\"replaced\"}"), 1);
}
