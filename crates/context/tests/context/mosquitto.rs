//! Notifications over MQTT, to a real Mosquitto; `scripts/setup-clients` installs it.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use millstream_testkit::eventually_async;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::receiver::own_ip;
use crate::subscriptions::{shown, subscribe};
use crate::world::World;

/// A program that is killed when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Debian keeps the broker where not everybody's PATH leads.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()));
    command
}

async fn broker(dir: &Path, address: SocketAddr) -> Running {
    let passwords = dir.join("passwords");
    let hashed = program("mosquitto_passwd").args(["-b", "-c"]).arg(&passwords).args(["user", "pw"]).status().unwrap();
    assert!(hashed.success());
    let text = format!(
        "listener {} {}\nuser root\npassword_file {}\nallow_anonymous true\n",
        address.port(),
        address.ip(),
        passwords.display()
    );
    let file = dir.join("mosquitto.conf");
    std::fs::write(&file, text).unwrap();
    let child = program("mosquitto").arg("-c").arg(&file).stderr(Stdio::null()).spawn().unwrap();
    eventually_async("Mosquitto's listener", || TcpStream::connect(address).is_ok()).await;
    Running(child)
}

/// A client of the broker at that address.
pub(crate) fn at(name: &str, address: SocketAddr) -> Command {
    let mut client = program(name);
    client.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    client
}

/// Topics and payloads.
pub(crate) type Heard = Arc<Mutex<Vec<(String, String)>>>;

/// Starts a subscriber to everything and returns the messages that it hears.
pub(crate) fn listen(address: SocketAddr) -> (Running, Heard) {
    let mut child = at("mosquitto_sub", address)
        .args(["-t", "#", "-q", "2", "-F", "%t %p"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (lines, into) = (BufReader::new(child.stdout.take().unwrap()).lines(), heard.clone());
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let (topic, payload) = line.split_once(' ').unwrap();
            into.lock().push((topic.to_owned(), payload.to_owned()));
        }
    });
    (Running(child), heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_reach_a_real_mosquitto_and_find_it_again_after_it_was_away() {
    let dir = tempfile::tempdir().unwrap();
    let address = SocketAddr::from((own_ip(), 1883));
    let mosquitto = broker(dir.path(), address).await;
    let (listener, heard) = listen(address);
    let world = World::open(&dir.path().join("data"));
    let served = world.serve().await;
    let url = format!("mqtt://{address}");
    let subscription = |target: &str, fields: Value| {
        let mut fields = fields;
        fields["url"] = json!(url);
        json!({"subject": {"entities": [{"idPattern": ".*"}]}, "notification": {target: fields, "attrsFormat": "keyValues"}})
    };
    let mut ids = Vec::new();
    for (target, fields) in [
        ("mqtt", json!({"topic": "q0"})),
        ("mqtt", json!({"topic": "q1", "qos": 1, "user": "user", "passwd": "pw"})),
        ("mqtt", json!({"topic": "q2", "qos": 2, "retain": true})),
        ("mqttCustom", json!({"topic": "c/${id}", "qos": 1, "payload": "t ${t}"})),
        ("mqttCustom", json!({"topic": "json", "qos": 1, "json": {"t": "${t}"}})),
        ("mqtt", json!({"topic": "refused", "user": "user", "passwd": "wrong"})),
    ] {
        ids.push(subscribe(&served, "", &subscription(target, fields)).await);
    }
    // Whoever listens is there before the first message.
    let hello = at("mosquitto_pub", address).args(["-t", "ready", "-m", "x", "-q", "1"]).status();
    assert!(hello.unwrap().success());
    eventually_async("the listener", || {
        let _ = at("mosquitto_pub", address).args(["-t", "ready", "-m", "x", "-q", "1"]).status();
        !heard.lock().is_empty()
    })
    .await;
    let of = |topic: &str| -> Vec<String> {
        heard.lock().iter().filter(|(known, _)| known == topic).map(|(_, payload)| payload.clone()).collect()
    };
    for t in 1..=20 {
        let body = json!({"id": "e", "t": t}).to_string();
        assert!(served.ask("POST /v2/entities?options=upsert,keyValues", Some(&body)).await.status < 300);
    }
    for (topic, id) in [("q0", &ids[0]), ("q1", &ids[1]), ("q2", &ids[2])] {
        eventually_async(topic, || of(topic).len() == 20).await;
        let ts: Vec<Value> = of(topic)
            .iter()
            .map(|text| serde_json::from_str::<Value>(text).unwrap())
            .map(|body| {
                assert_eq!(body["subscriptionId"], *id.as_str());
                body["data"][0]["t"].clone()
            })
            .collect();
        assert_eq!(ts, (1..=20).map(Value::from).collect::<Vec<_>>(), "in order");
    }
    eventually_async("custom topics", || of("c/e").len() == 20 && of("json").len() == 20).await;
    assert_eq!((of("c/e")[4].as_str(), of("json")[19].as_str()), ("t 5", r#"{"t":20}"#));
    assert!(of("refused").is_empty());
    let refused = shown(&served, &ids[5]).await;
    assert!(refused["notification"]["failsCounter"].as_u64() >= Some(1), "{refused}");
    assert_eq!(refused["notification"].get("lastFailureReason"), None, "no reasons for MQTT");
    assert_eq!(refused["notification"]["mqtt"]["passwd"], "*****");

    // The broker goes; what certainly was not taken is sent again when it is back.
    drop((listener, mosquitto));
    let body = json!({"id": "e", "t": 21}).to_string();
    assert!(served.ask("POST /v2/entities?options=upsert,keyValues", Some(&body)).await.status < 300);
    let mosquitto = broker(dir.path(), address).await;
    let (listener, heard) = listen(address);
    eventually_async("what was sent meanwhile", || heard.lock().iter().any(|(_, payload)| payload.contains("21")))
        .await;
    served.stop().await;
    world.close();
    drop((listener, mosquitto));
}
