//! Notifications of the context plane to topics of Kafka, which kcat reads: at this server's own listener, and at Kafka itself.

use std::net::SocketAddr;

use millstream_testkit::{Authority, Process, RealKafka, TlsServer, ask, eventually, own_addresses};
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::relay::Relay;

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

/// A request to the context plane that must succeed.
fn context(server: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Value {
    let answer = ask(server, method, path, &[&JSON[..], headers].concat(), body.to_string().as_bytes());
    assert!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.text());
    answer.headers.iter().find(|(name, _)| name == "location").map_or(Value::Null, |(_, place)| json!(place))
}

/// Subscribes to all rooms; the path of the subscription.
fn subscribe(server: SocketAddr, headers: &[(&str, &str)], kind: &str, target: Value, more: Value) -> String {
    let mut notification = json!({kind: target});
    for (name, value) in more.as_object().unwrap() {
        notification[name] = value.clone();
    }
    let body = json!({"subject": {"entities": [{"idPattern": ".*", "type": "Room"}]}, "notification": notification});
    context(server, "POST", "/v2/subscriptions", headers, &body).as_str().unwrap().to_owned()
}

fn room(number: u32) -> Value {
    json!({"id": format!("r{number}"), "type": "Room", "t": {"value": number}})
}

/// Records as kcat reads them from the beginning: key, headers, value. None while there is no topic.
fn records(broker: &Broker, topic: &str) -> Vec<String> {
    let all = ["-C", "-t", topic, "-o", "beginning", "-e", "-Z", "-f", "%k|%h|%s\n"];
    let lines = broker.try_kcat(&all, "").unwrap_or_default();
    lines.lines().map(str::to_owned).collect()
}

/// The notification of a subscription, as it is shown.
fn shown(server: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Value {
    ask(server, "GET", path, headers, b"").json()["notification"].clone()
}

/// Each kind of target to the brokers of `url`, whose records `broker` shows.
fn check_targets(server: &Process, broker: &Broker) {
    let url = format!("kafka://{}", broker.address);
    let at = server.applications;
    let service = [("Fiware-Service", "acme"), ("Fiware-ServicePath", "/plant")];
    let [plain, keyless, custom] = ["plain", "keyless", "custom"].map(|what| broker.topic(what));
    let no_more = || json!({});
    let paths = [
        subscribe(
            at,
            &service,
            "kafka",
            json!({"url": url, "topic": plain, "key": "k"}),
            json!({"attrsFormat": "keyValues"}),
        ),
        subscribe(
            at,
            &service,
            "kafka",
            json!({"url": url, "topic": keyless}),
            json!({"attrsFormat": "simplifiedKeyValues"}),
        ),
        subscribe(
            at,
            &service,
            "kafkaCustom",
            json!({
                "url": url, "topic": custom, "key": "${type}-${id}",
                "headers": {"X-Room": "%22${id}%22", "fiware-service": "other", "Fiware-ServicePath": "", "Ngsiv2-AttrsFormat": "no"},
                "json": {"twice": "${t * 2}"},
            }),
            no_more(),
        ),
    ];
    let correlated = [&service[..], &[("Fiware-Correlator", "root-1")]].concat();
    (1..=3).for_each(|number| drop(context(at, "POST", "/v2/entities", &correlated, &room(number))));
    let all = [&plain, &keyless, &custom];
    eventually("kcat has the records", || all.iter().all(|topic| records(broker, topic).len() >= 3));
    let [plain, keyless, custom] = all.map(|topic| {
        let mut records = records(broker, topic);
        records.sort();
        records
    });
    let id = paths[0].rsplit('/').next().unwrap();
    assert_eq!(
        plain[0],
        format!(
            "k|Fiware-Service=acme,Fiware-ServicePath=/plant,Fiware-Correlator=root-1; cbnotif=1,Ngsiv2-AttrsFormat=keyValues|\
             {{\"subscriptionId\":\"{id}\",\"data\":[{{\"id\":\"r1\",\"type\":\"Room\",\"t\":1}}]}}"
        )
    );
    assert!(keyless[0].starts_with("NULL|Fiware-Service=acme,"), "{keyless:?}");
    assert!(keyless[0].ends_with(r#"|{"id":"r1","type":"Room","t":1}"#), "{keyless:?}");
    let expected: Vec<String> = (1..=3)
        .map(|number| {
            format!(
                "Room-r{number}|Fiware-Correlator=root-1; cbnotif=3,Ngsiv2-AttrsFormat=custom,X-Room=\"r{number}\",\
                 fiware-service=other|{{\"twice\":{}}}",
                number * 2
            )
        })
        .collect();
    assert_eq!(custom, expected);
    for path in paths {
        eventually("the outcome is told", || shown(at, &path, &service)["ended"]["delivered"] == 3);
        let shown = shown(at, &path, &service);
        assert_eq!(shown["timesSent"], 3, "{shown}");
        assert!(shown["lastSuccess"].is_string() && shown.get("lastSuccessCode").is_none(), "{shown}");
    }
}

#[test]
fn kcat_reads_notifications_at_our_own_listener() {
    if Broker::is_another() {
        return;
    }
    let broker = Broker::start();
    check_targets(broker.process().unwrap(), &broker);
}

#[test]
fn kcat_reads_notifications_at_kafka() {
    if Broker::is_another() {
        return;
    }
    let (dir, kafka) = (tempfile::tempdir().unwrap(), RealKafka::of_environment());
    let server = Process::start(dir.path());
    check_targets(&server, &Broker::at(&kafka.brokers()[0].address.parse().unwrap()));
}

/// A login over TLS, and one that is wrong: its password is nowhere, and the alarm ends with the first success.
#[test]
fn notifications_log_in_over_tls() {
    if Broker::is_another() {
        return;
    }
    const SECRET: &str = "correct-horse-battery";
    let (authority, dir) = (Authority::new("tests"), tempfile::tempdir().unwrap());
    let file = dir.path().join("settings.toml");
    let token = format!(
        "[[applications.tokens]]\nname = \"admin\"\ntoken = \"{SECRET}\"\ntenant = \"default\"\n\
         roles = [\"reader\", \"writer\", \"admin\"]\n\
         [context.notifications]\nallowed_targets = [\"private\"]\nca_file = \"ca.crt\"\n"
    );
    std::fs::write(&file, token).unwrap();
    let signed = authority.server(&["localhost", "127.0.0.1"]);
    let server = TlsServer::start_with(authority, &signed, &["--config", file.to_str().unwrap()]);
    let (at, bearer) = (server.addresses["applications"], format!("Bearer {SECRET}"));
    let caller = [("Authorization", &*bearer)];
    let login = |mechanism: &str, password: &str| {
        let url = format!("kafka://{}", server.addresses["kafka-tls"]);
        json!({"url": url, "topic": "rooms", "user": "admin", "passwd": password, "saslMechanism": mechanism})
    };
    let path = subscribe(at, &caller, "kafka", login("PLAIN", "wrong-secret"), json!({"delivery": {"maxAge": 600}}));
    context(at, "POST", "/v2/entities", &caller, &room(1));
    eventually("the failure is told", || shown(at, &path, &caller)["failsCounter"] == 1);
    let broken = shown(at, &path, &caller);
    assert_eq!((&broken["kafka"]["passwd"], broken.get("lastFailureReason")), (&json!("*****"), None), "{broken}");
    eventually("the alarm is raised", || server.log().contains("KafkaConnectionError"));
    for (number, mechanism) in (2..).zip(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]) {
        context(at, "PATCH", &path, &caller, &json!({"notification": {"kafka": login(mechanism, SECRET)}}));
        context(at, "POST", "/v2/entities", &caller, &room(number));
        eventually("it is delivered", || shown(at, &path, &caller)["ended"]["delivered"] == number);
    }
    eventually("the alarm is released", || server.log().contains("alarm released"));
    assert!(!server.log().contains("wrong-secret") && !server.log().contains(SECRET), "{}", server.log());
}

/// The queue that is kept lies in the log: what waits while no broker is there outlives the sender's end.
#[test]
fn a_queue_that_is_kept_outlives_kill_9_of_the_sender() {
    if Broker::is_another() {
        return;
    }
    const ROOMS: u32 = 20;
    let (sender_dir, receiver_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = Relay::start(0);
    // Nobody is there yet.
    relay.lead_to(own_addresses()[0]);
    let target = json!({"url": format!("kafka://{}", relay.address), "topic": "rooms"});
    let kept = json!({"attrsFormat": "simplifiedKeyValues", "delivery": {"queue": "durable", "maxAge": 600}});
    let sender = Process::start(sender_dir.path());
    let mut custom = target.clone();
    custom["key"] = json!("${id}");
    custom["payload"] = json!("t ${t}");
    let paths = [
        subscribe(sender.applications, &[], "kafka", target, kept.clone()),
        subscribe(sender.applications, &[], "kafkaCustom", custom, json!({"delivery": kept["delivery"]})),
    ];
    let change = |sender: &Process, rooms: std::ops::Range<u32>| {
        rooms.for_each(|number| drop(context(sender.applications, "POST", "/v2/entities", &[], &room(number))));
    };
    change(&sender, 0..ROOMS / 2);
    sender.kill();
    // Changed and killed once more, so that what waits is of two lives.
    let sender = Process::start(sender_dir.path());
    change(&sender, ROOMS / 2..ROOMS);
    sender.kill();
    let receiver = Broker::start_behind(&relay, receiver_dir.path());
    let sender = Process::start(sender_dir.path());
    let broker = Broker::at(&relay.address);
    let all = 2 * ROOMS as usize;
    eventually("all are delivered", || records(&broker, "rooms").len() >= all);
    for path in &paths {
        eventually("nothing waits", || shown(sender.applications, path, &[]).get("queue").is_none());
    }
    let read = records(&broker, "rooms");
    let of = |custom: bool| -> Vec<&String> { read.iter().filter(|line| line.contains("|t ") == custom).collect() };
    for custom in [false, true] {
        let mut found: Vec<u32> = of(custom)
            .iter()
            .map(|line| {
                let value = line.rsplit('|').next().unwrap();
                match value.strip_prefix("t ") {
                    Some(number) => number.parse().unwrap(),
                    None => serde_json::from_str::<Value>(value).unwrap()["t"].as_u64().unwrap() as u32,
                }
            })
            .collect();
        // What was repeated stands twice.
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, (0..ROOMS).collect::<Vec<_>>(), "custom: {custom}");
    }
    sender.stop();
    receiver.stop();
}

/// Brokers name the places of their partitions: those must be allowed, too.
#[test]
fn a_leader_at_a_place_that_is_not_allowed_is_not_connected_to() {
    if Broker::is_another() {
        return;
    }
    let (dir, forbidden) = (tempfile::tempdir().unwrap(), std::net::TcpListener::bind("127.0.0.2:0").unwrap());
    forbidden.set_nonblocking(true).unwrap();
    let advertised = format!("kafka.advertised={}", forbidden.local_addr().unwrap());
    let allowed = "context.notifications.allowed_targets=[\"127.0.0.1\"]";
    let server = Process::start_on(dir.path(), &["--set", &advertised, "--set", allowed]);
    let target = json!({"url": format!("kafka://{}", server.kafka), "topic": "rooms"});
    let path = subscribe(server.applications, &[], "kafka", target, json!({}));
    context(server.applications, "POST", "/v2/entities", &[], &room(1));
    eventually("the failure is told", || shown(server.applications, &path, &[])["failsCounter"] == 1);
    assert_eq!(forbidden.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// The leader of some partitions dies in the middle; with `retry = always` nothing is lost, and an entity keeps its order.
#[test]
#[ignore = "takes long"]
fn nothing_is_lost_when_a_broker_dies_and_comes_back() {
    const ROOMS: u32 = 20;
    const ROUNDS: u32 = 40;
    let (dir, mut kafka) = (tempfile::tempdir().unwrap(), RealKafka::start(3));
    let server = Process::start(dir.path());
    let (at, urls) = (server.applications, kafka.bootstrap());
    let broker = Broker::at(&kafka.brokers()[0].address.parse().unwrap());
    let topic = broker.topic("rooms");
    broker.kcat(&["-L", "-t", &topic, "-X", "allow.auto.create.topics=true"], "");
    let target = json!({"url": format!("kafka://{urls}"), "topic": topic});
    let more = json!({"attrsFormat": "simplifiedKeyValues", "delivery": {"retry": "always", "maxAge": 600}});
    let path = subscribe(at, &[], "kafka", target, more);
    for round in 0..ROUNDS {
        if round == ROUNDS / 3 {
            kafka.kill(2);
        }
        if round == 2 * ROUNDS / 3 {
            kafka.start_again(2);
        }
        let entities: Vec<Value> = (0..ROOMS)
            .map(|number| json!({"id": format!("r{number}"), "type": "Room", "n": {"value": round}}))
            .collect();
        context(at, "POST", "/v2/op/update", &[], &json!({"actionType": "append", "entities": entities}));
    }
    let sent = u64::from(ROOMS * ROUNDS);
    eventually("all are delivered", || shown(at, &path, &[])["ended"]["delivered"].as_u64() == Some(sent));
    let read = records(&broker, &topic);
    for number in 0..ROOMS {
        let of_room = format!("\"id\":\"r{number}\"");
        let mut rounds: Vec<u64> = read
            .iter()
            .filter(|line| line.contains(&of_room))
            .map(|line| serde_json::from_str::<Value>(line.rsplit('|').next().unwrap()).unwrap()["n"].as_u64().unwrap())
            .collect();
        // One that was repeated may stand twice, next to itself.
        rounds.dedup();
        assert_eq!(rounds, (0..u64::from(ROUNDS)).collect::<Vec<_>>(), "r{number}");
    }
}
