//! Notifications over TLS: to an HTTPS server of Python's and to a real Mosquitto, with certificates that OpenSSL has made.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use millstream_context::{ContextConfig, NotificationsConfig};
use millstream_testkit::eventually_async;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::mosquitto::{Running, program};
use crate::notifications::change;
use crate::receiver::{Receiver, own_ip};
use crate::subscriptions::{shown, subscribe, until_notification};
use crate::world::{Registry, Served, World};

const RECEIVER: &str = include_str!("tls/receiver.py");

/// Files of an authority and of what it says of a receiver.
struct Certificates {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificates {
    /// Of a receiver of that name: a host or `IP:` and an address.
    fn of(dir: &Path, name: &str) -> Self {
        let file = |name: &str| dir.join(name);
        let openssl = |arguments: &[&str]| {
            let output = Command::new("openssl").args(arguments).current_dir(dir).output();
            let output = output.expect("openssl is there: scripts/setup-clients installs it");
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let names = format!("subjectAltName={}", if name.contains(':') { name.into() } else { format!("DNS:{name}") });
        let authority =
            ["req", "-x509", "-days", "2", "-subj", "/CN=Test authority", "-keyout", "ca.key", "-out", "ca.pem"];
        openssl(&[&authority[..], &new_key].concat());
        let request = ["req", "-x509", "-days", "2", "-subj", "/CN=Receiver", "-CA", "ca.pem", "-CAkey", "ca.key"];
        let rest =
            ["-addext", &names, "-addext", "basicConstraints=CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"];
        openssl(&[&request[..], &new_key, &rest].concat());
        Self { authority: file("ca.pem"), certificate: file("cert.pem"), key: file("key.pem") }
    }
}

/// The requests that an HTTPS server got: number of the connection, path, bytes of the body.
type Got = Arc<Mutex<Vec<(u64, String, String)>>>;

/// A server of Python's.
struct Https {
    _running: Running,
    port: u16,
    got: Got,
}

impl Https {
    fn start(certificates: &Certificates) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", RECEIVER])
            .args([&certificates.certificate, &certificates.key])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().parse().unwrap();
        let got = Got::default();
        let into = got.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let one: (u64, String, String) = serde_json::from_str(&line).unwrap();
                into.lock().push(one);
            }
        });
        Self { _running: Running(child), port, got }
    }

    fn of(&self, path: &str) -> Vec<(u64, String)> {
        let got = self.got.lock();
        got.iter()
            .filter(|(_, known, _)| known == path)
            .map(|(connection, _, body)| (*connection, body.clone()))
            .collect()
    }
}

async fn world(dir: &Path, notifications: NotificationsConfig) -> (World, Served) {
    let notifications = NotificationsConfig { retry_first_ms: 10, retry_longest_ms: 50, ..notifications };
    let config = ContextConfig { notifications, ..ContextConfig::default() };
    let world = World::open_with(dir, Arc::new(Registry::default()), config);
    let served = world.serve().await;
    (world, served)
}

fn trusting(certificates: &Certificates) -> NotificationsConfig {
    NotificationsConfig { ca_file: certificates.authority.display().to_string(), ..NotificationsConfig::default() }
}

fn subscription(target: &str, fields: Value) -> Value {
    json!({"subject": {"entities": [{"idPattern": ".*"}]}, "notification": {target: fields, "attrsFormat": "keyValues"}})
}

async fn update(served: &Served, value: &Value) {
    change(served, "POST /v2/entities?options=upsert,keyValues", &json!({"id": "e", "t": value}).to_string()).await;
}

async fn reason(served: &Served, id: &str) -> String {
    let shown = until_notification(served, id, |shown| shown["lastFailureReason"].is_string()).await;
    shown["lastFailureReason"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_reach_an_https_receiver_in_order_over_connections_that_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::of(dir.path(), "IP:127.0.0.1");
    let https = Https::start(&certificates);
    let (world, served) = world(&dir.path().join("data"), trusting(&certificates)).await;
    let url = |path: &str| format!("https://127.0.0.1:{}{path}", https.port);
    let plain = subscribe(&served, "", &subscription("http", json!({"url": url("/plain")}))).await;
    let custom = json!({"url": url("/${id}"), "payload": "t ${t}", "method": "PUT"});
    subscribe(&served, "", &subscription("httpCustom", custom)).await;
    for t in 1..=50 {
        update(&served, &json!(t)).await;
    }
    // More than a record of TLS, and more than what it buffers.
    let long = "x".repeat(300_000);
    update(&served, &json!(long)).await;
    eventually_async("all", || https.of("/plain").len() == 51 && https.of("/e").len() == 51).await;
    let got = https.of("/plain");
    let values: Vec<Value> = got
        .iter()
        .map(|(_, body)| serde_json::from_str::<Value>(body).unwrap())
        .map(|body| {
            assert_eq!(body["subscriptionId"], *plain);
            body["data"][0]["t"].clone()
        })
        .collect();
    let sent: Vec<Value> = (1..=50).map(Value::from).chain([Value::from(long.as_str())]).collect();
    assert!(values == sent, "in order, each once");
    assert_eq!(https.of("/e")[6].1, "t 7");
    let connections: std::collections::HashSet<u64> =
        https.got.lock().iter().map(|(connection, ..)| *connection).collect();
    assert!(connections.len() <= 4, "{} connections for two subscriptions", connections.len());
    assert_eq!(shown(&served, &plain).await["notification"]["http"]["url"], *url("/plain"));
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_without_a_trusted_certificate_gets_nothing_unless_insecure_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::of(dir.path(), "IP:127.0.0.1");
    let https = Https::start(&certificates);
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let (here, named) = (format!("https://127.0.0.1:{}", https.port), format!("https://localhost:{}", https.port));
    let unable = format!("https://{}", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in plain.incoming() {
            let _ = socket.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let anybody = NotificationsConfig { insecure: true, ..NotificationsConfig::default() };
    for (number, (notifications, url, refused)) in [
        (NotificationsConfig::default(), &here, Some("UnknownIssuer")),
        (trusting(&certificates), &named, Some("not valid for")),
        (trusting(&certificates), &here, None),
        (anybody.clone(), &named, None),
        (anybody, &unable, Some("corrupt")),
    ]
    .into_iter()
    .enumerate()
    {
        let (world, served) = world(&dir.path().join(number.to_string()), notifications).await;
        let path = format!("/{number}");
        let id = subscribe(&served, "", &subscription("http", json!({"url": format!("{url}{path}")}))).await;
        update(&served, &json!(1)).await;
        match refused {
            Some(why) => {
                let reason = reason(&served, &id).await;
                assert!(reason.starts_with("TLS refused: ") && reason.contains(why), "{number}: {reason}");
                assert!(https.of(&path).is_empty(), "{number}");
            }
            None => eventually_async(&path, || https.of(&path).len() == 1).await,
        }
        served.stop().await;
        world.close();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_reach_a_real_mosquitto_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::of(dir.path(), "localhost");
    // The certificate is of a name. The system does not give ports below 30,000.
    let encrypted = 10_000 + (std::process::id() % 20_000) as u16;
    let plain = SocketAddr::from((own_ip(), 1884));
    let conf = format!(
        "user root\nallow_anonymous true\nlistener {} localhost\ncertfile {}\nkeyfile {}\nlistener {} {}\n",
        encrypted,
        certificates.certificate.display(),
        certificates.key.display(),
        plain.port(),
        plain.ip()
    );
    std::fs::write(dir.path().join("mosquitto.conf"), conf).unwrap();
    let broker = program("mosquitto").arg("-c").arg(dir.path().join("mosquitto.conf")).stderr(Stdio::null()).spawn();
    let broker = Running(broker.unwrap());
    eventually_async("Mosquitto", || {
        TcpStream::connect(("localhost", encrypted)).is_ok() && TcpStream::connect(plain).is_ok()
    })
    .await;
    let (listener, heard) = crate::mosquitto::listen(plain);
    eventually_async("the listener", || {
        let _ = crate::mosquitto::at("mosquitto_pub", plain).args(["-t", "ready", "-m", "x", "-q", "1"]).status();
        !heard.lock().is_empty()
    })
    .await;
    let (world, served) = world(&dir.path().join("data"), trusting(&certificates)).await;
    let url = format!("mqtts://localhost:{encrypted}");
    for qos in 0..=2 {
        let target = json!({"url": url, "topic": format!("q{qos}"), "qos": qos});
        subscribe(&served, "", &subscription("mqtt", target)).await;
    }
    // Its certificate is of another name.
    let wrong = json!({"url": format!("mqtts://127.0.0.1:{encrypted}"), "topic": "wrong"});
    let wrong = subscribe(&served, "", &subscription("mqtt", wrong)).await;
    for t in 1..=20 {
        update(&served, &json!(t)).await;
    }
    let long = "x".repeat(100_000);
    update(&served, &json!(long)).await;
    for qos in 0..=2 {
        let topic = format!("q{qos}");
        let of = || -> Vec<String> {
            heard.lock().iter().filter(|(known, _)| *known == topic).map(|(_, payload)| payload.clone()).collect()
        };
        eventually_async(&topic, || of().len() == 21).await;
        let values: Vec<Value> =
            of().iter().map(|text| serde_json::from_str::<Value>(text).unwrap()["data"][0]["t"].clone()).collect();
        let sent: Vec<Value> = (1..=20).map(Value::from).chain([Value::from(long.as_str())]).collect();
        assert!(values == sent, "{topic}: in order, each once");
    }
    // Subscriptions to brokers show no reasons (NGSIv2).
    until_notification(&served, &wrong, |shown| shown["failsCounter"].as_u64() >= Some(1)).await;
    served.stop().await;
    world.close();
    // A server that trusts the system's authorities only.
    let (world, served) = self::world(&dir.path().join("untrusting"), NotificationsConfig::default()).await;
    let foreign = subscribe(&served, "", &subscription("mqtt", json!({"url": url, "topic": "foreign"}))).await;
    update(&served, &json!(1)).await;
    until_notification(&served, &foreign, |shown| shown["failsCounter"].as_u64() >= Some(1)).await;
    assert!(heard.lock().iter().all(|(topic, _)| topic != "foreign" && topic != "wrong"));
    served.stop().await;
    world.close();
    drop((listener, broker));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_not_allowed_is_refused_and_none_is_reached_by_a_macro() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start().await;
    let allowed = |targets: &[&str]| NotificationsConfig {
        allowed_targets: targets.iter().map(|text| (*text).to_owned()).collect(),
        ..NotificationsConfig::default()
    };
    let (world, served) = world(dir.path(), allowed(&["receiver.example", "10.0.0.0/8"])).await;
    for (target, fields) in [
        ("http", json!({"url": receiver.url("/n")})),
        ("httpCustom", json!({"url": receiver.url("/n"), "payload": "x"})),
        ("mqtt", json!({"url": "mqtt://127.0.0.1:1883", "topic": "t"})),
    ] {
        let body = subscription(target, fields).to_string();
        let answer = served.ask("POST /v2/subscriptions", Some(&body)).await;
        let text = answer.json()["description"].as_str().unwrap().to_owned();
        assert_eq!((answer.status, text.contains("'127.0.0.1' is not among")), (400, true), "{body}: {answer:?}");
    }
    let fits = subscription("http", json!({"url": "http://receiver.example/n"}));
    let id = subscribe(&served, "", &fits).await;
    let patch = json!({"notification": {"http": {"url": receiver.url("/n")}}});
    assert_eq!(crate::subscriptions::patch(&served, &id, &patch).await.status, 400);
    assert_eq!(shown(&served, &id).await["notification"]["http"]["url"], "http://receiver.example/n");
    let by_name = json!({"url": format!("http://localhost:{}/n", receiver.address.port())});
    assert_eq!(
        served.ask("POST /v2/subscriptions", Some(&subscription("http", by_name).to_string())).await.status,
        400
    );
    // Hosts that a macro makes: an address, and a name whose address is known only when something is to be sent.
    let by_macro = json!({"url": format!("http://${{t}}:{}/n", receiver.address.port()), "payload": "x"});
    for host in ["127.0.0.1", "localhost"] {
        let id = subscribe(&served, "", &subscription("httpCustom", by_macro.clone())).await;
        update(&served, &json!(host)).await;
        let reason = reason(&served, &id).await;
        assert!(reason.contains("is not among context.notifications.allowed_targets"), "{host}: {reason}");
    }
    assert!(receiver.received().is_empty());
    served.stop().await;
    world.close();
}
