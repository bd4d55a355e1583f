//! Rows of sections 8 and 14 to 16 of the reference that no other table has, with real receivers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_context::{ContextConfig, NotificationsConfig};
use millstream_testkit::{eventually_async, found_by};
use serde_json::{Value, json};

use crate::notifications::{change, to};
use crate::receiver::{Received, Receiver, own_ip};
use crate::subscriptions::{shown, subscribe};
use crate::world::{Registry, Served, World};

const CREATE: &str = "POST /v2/entities";
const UPDATE: &str = "PATCH /v2/entities/e/attrs";
const ENTITY: &str = r#"{"id":"e","type":"Room","t":{"value":20},"service":{"value":"mine"},"metadata":{"value":"lost"},
    "location":{"type":"geo:json","value":{"type":"Point","coordinates":[-3.7,40.4]}},
    "dateExpires":{"type":"DateTime","value":"2999-01-01"}}"#;

/// A world with the entity in it.
async fn filled(dir: &std::path::Path, notifications: NotificationsConfig) -> (World, Served, Receiver) {
    let config = ContextConfig { notifications, timeout_ms: 600_000, ..ContextConfig::default() };
    let world = World::open_with(dir, Arc::new(Registry::default()), config);
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    change(&served, CREATE, ENTITY).await;
    (world, served, receiver)
}

fn simple(attrs: Value) -> Value {
    json!({"attrsFormat": "simplifiedKeyValues", "attrs": attrs})
}

fn custom(receiver: &Receiver, path: &str, fields: Value) -> Value {
    let mut fields = fields;
    fields["url"] = json!(receiver.url(path));
    json!({"httpCustom": fields})
}

/// Section and row, condition, notification (a target of its own goes to the row's path), and what its body is.
fn rows(receiver: &Receiver, path: impl Fn(usize) -> String) -> Vec<(&'static str, Value, Value, Value)> {
    let near = |coords: &str| json!({"expression": {"georel": "near;maxDistance:1000", "geometry": "point", "coords": coords}});
    let t = json!({"id": "e", "type": "Room", "t": 21});
    let text = |at: usize, payload: &str| custom(receiver, &path(at), json!({"payload": payload}));
    let mut rows = vec![
        ("§14.1 expression: a geo query that holds", near("40.4,-3.7"), simple(json!(["t"])), t.clone()),
        (
            "§14.1 expression: q and mq and a geo query together",
            {
                let mut all = near("40.4,-3.7");
                all["expression"]["q"] = json!("t>20");
                all["expression"]["mq"] = json!("t.m");
                all
            },
            simple(json!(["t"])),
            t.clone(),
        ),
        (
            "§8 dateExpires is shown where it is named",
            Value::Null,
            simple(json!(["t", "dateExpires"])),
            json!({"id": "e", "type": "Room", "t": 21, "dateExpires": "2999-01-01T00:00:00.000Z"}),
        ),
        (
            "§8 dateExpires in q of a condition",
            json!({"expression": {"q": "dateExpires>2998-01-01"}}),
            simple(json!(["t"])),
            t.clone(),
        ),
        (
            "§8 dateExpires is not shown otherwise",
            Value::Null,
            json!({"attrsFormat": "simplifiedKeyValues", "exceptAttrs": ["location", "service", "metadata"]}),
            t.clone(),
        ),
        (
            "§14.1 attrs empty: all",
            Value::Null,
            simple(json!([])),
            json!({"id": "e", "type": "Room", "t": 21, "service": "mine", "metadata": "lost", "location": {"type": "Point", "coordinates": [-3.7, 40.4]}}),
        ),
        (
            "§14.1 values in the order of attrs",
            Value::Null,
            json!({"attrsFormat": "values", "attrs": ["service", "t"]}),
            json!(["mine", 21]),
        ),
        ("§16.1 ngsi {} is no patch", Value::Null, Value::Null, json!(21)),
        (
            "§16.1 ngsi changes before notification.attrs filters",
            Value::Null,
            Value::Null,
            json!({"t": 21, "new": "a21"}),
        ),
    ];
    let ngsi = |at: usize, patch: Value, attrs: Value| {
        let mut given = custom(receiver, &path(at), json!({"ngsi": patch}));
        given["attrs"] = attrs;
        given["attrsFormat"] = json!("simplifiedKeyValues");
        given
    };
    rows[7].2 = ngsi(7, json!({}), json!(["t"]));
    rows[8].2 = ngsi(
        8,
        json!({"new": {"value": "a${t}"}, "hidden": {"value": 1, "metadata": {"evalPriority": {"value": 2, "type": "Number"}}}}),
        json!(["t", "new"]),
    );
    for (row, payload, expected) in [
        ("§16.2 service, servicePath and authToken of the request", "${servicePath} ${authToken}", "/ secret"),
        ("§16.2 an attribute named service wins", "${service}", "mine"),
        (
            "§16.2 metadata of an attribute, built-ins too; an attribute named metadata loses",
            "${metadata.t.m} ${metadata.t.previousValue} ${metadata.t.actionType} -${metadata}-",
            "7 20 update -null-",
        ),
        (
            "§16.2 id, type and any attribute, updated or not",
            "${id} ${type} ${t} ${location}",
            r#"e Room 21 {"type":"Point","coordinates":[-3.7,40.4]}"#,
        ),
        ("§16.1 a missing attribute is null; what is encoded is decoded", "[${none}] %28a%3Bb%29", "[null] (a;b)"),
        ("§16.2 built-ins of the entity", "${alterationType} ${dateExpires}", "entityChange 2999-01-01T00:00:00.000Z"),
    ] {
        rows.push((row, Value::Null, text(rows.len(), payload), json!(expected)));
    }
    rows
}

/// Returns the content of a body in the form of the row.
fn said(row: &str, one: &Received) -> Value {
    if row.starts_with("§16.2") || row.contains("encoded") {
        return json!(one.body);
    }
    let body = one.json();
    match row {
        _ if row.contains("values in") => body["data"][0].clone(),
        _ if row.contains("{} is no patch") => body["t"].clone(),
        _ if row.contains("before notification") => {
            let mut body = body;
            let members = body.as_object_mut().unwrap();
            members.retain(|name, _| name != "id" && name != "type");
            body
        }
        _ => body,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_and_macros_give_the_result_of_each_row() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served, receiver) = filled(dir.path(), NotificationsConfig::default()).await;
    let rows = rows(&receiver, |at| format!("/{at}"));
    for (at, (_, condition, notification, _)) in rows.iter().enumerate() {
        subscribe(&served, "", &to(&receiver, &format!("/{at}"), "e", condition.clone(), notification)).await;
    }
    for (at, condition) in [
        (90, json!({"expression": {"georel": "near;maxDistance:1000", "geometry": "point", "coords": "1,1"}})),
        (91, json!({"expression": {"q": "dateExpires<2998-01-01"}})),
    ] {
        subscribe(&served, "", &to(&receiver, &format!("/{at}"), "e", condition, &json!({}))).await;
    }
    assert!(receiver.received().is_empty(), "§14.1 creating a subscription sends nothing");
    let body = r#"{"t":{"value":21,"metadata":{"m":{"value":7}}}}"#;
    change(&served, &format!("{UPDATE}\nx-auth-token: secret"), body).await;
    for (at, (row, _, _, expected)) in rows.iter().enumerate() {
        let received = receiver.under(&format!("/{at}"), 1).await;
        assert_eq!(said(row, &received[0]), *expected, "{row}");
    }
    assert_eq!(receiver.received().len(), rows.len(), "and nothing else was sent");
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_changed_attributes_with_the_built_ins_that_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served, receiver) = filled(dir.path(), NotificationsConfig::default()).await;
    let mut notification = simple(json!(["service", "alterationType", "dateCreated", "dateModified", "servicePath"]));
    notification["onlyChangedAttrs"] = json!(true);
    subscribe(&served, "", &to(&receiver, "/n", "e", Value::Null, &notification)).await;
    change(&served, UPDATE, r#"{"t":{"value":21}}"#).await;
    let body = receiver.under("/n", 1).await.remove(0).json();
    let names: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(names, ["id", "type", "alterationType", "dateCreated", "dateModified"], "§8");
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §14.1: `onlyChangedAttrs` where none of the attributes changed.
#[tokio::test(flavor = "multi_thread")]
async fn only_changed_attributes_of_which_none_changed_are_not_told() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served, receiver) = filled(dir.path(), NotificationsConfig::default()).await;
    let only = |attrs: Value| {
        let mut notification = simple(attrs);
        notification["onlyChangedAttrs"] = json!(true);
        notification
    };
    let mut covering = only(json!(["service", "absent"]));
    covering["covered"] = json!(true);
    let mut text = custom(&receiver, "/text", json!({"payload": "x"}));
    text["onlyChangedAttrs"] = json!(true);
    text["attrs"] = json!(["service"]);
    let every = json!({"alterationTypes": ["entityUpdate"]});
    for (path, condition, notification) in [
        ("/service", Value::Null, only(json!(["service"]))),
        ("/covered", Value::Null, covering),
        ("/text", Value::Null, text),
        ("/t", Value::Null, only(json!(["t", "service"]))),
        ("/every", every, only(json!(["t", "service"]))),
    ] {
        subscribe(&served, "", &to(&receiver, path, "e", condition, &notification)).await;
    }
    for t in [21, 21, 22] {
        change(&served, UPDATE, &json!({"t": {"value": t}}).to_string()).await;
    }
    change(&served, UPDATE, r#"{"service":{"value":"other"}}"#).await;
    let told = |received: Vec<Received>| received.iter().map(|one| json!(one.body)).collect::<Vec<_>>();
    let bodies = |bodies: &[&str]| -> Vec<Value> {
        bodies.iter().map(|body| json!(format!(r#"{{"id":"e","type":"Room",{body}}}"#))).collect()
    };
    let service = r#""service":"other""#;
    assert_eq!(told(receiver.under("/t", 3).await), bodies(&[r#""t":21"#, r#""t":22"#, service]));
    let every = bodies(&[r#""t":21"#, r#""t":21"#, r#""t":22"#, service]);
    assert_eq!(told(receiver.under("/every", 4).await), every, "what an update sets again is told to entityUpdate");
    assert_eq!(told(receiver.under("/service", 1).await), bodies(&[service]));
    assert_eq!(told(receiver.under("/covered", 1).await), bodies(&[r#""service":"other","absent":null"#]));
    assert_eq!(told(receiver.under("/text", 1).await), [json!("x")]);
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §10, §15.2: Orion tells of what an operator set, whatever the value was.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_changes_nothing_is_told_as_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served, receiver) = filled(dir.path(), NotificationsConfig::default()).await;
    change(&served, "POST /v2/entities/e/attrs", r#"{"l":{"value":[1]},"n":{"value":5}}"#).await;
    let changed = json!({"attrs": ["l", "n"]});
    subscribe(&served, "", &to(&receiver, "/", "e", changed, &simple(json!(["l", "n"])))).await;
    let patch = "PATCH /v2/entities/e/attrs?options=keyValues";
    for body in [r#"{"l":[1],"n":5}"#, r#"{"l":{"$addToSet":1}}"#, r#"{"n":{"$inc":0}}"#, r#"{"n":{"$max":4}}"#] {
        change(&served, patch, body).await;
    }
    change(&served, patch, r#"{"n":6}"#).await;
    let told: Vec<String> = receiver.under("/", 4).await.into_iter().map(|one| one.body).collect();
    let same = r#"{"id":"e","type":"Room","l":[1],"n":5}"#;
    assert_eq!(told, [same, same, same, r#"{"id":"e","type":"Room","l":[1],"n":6}"#]);
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §4, §15.2: every update that is asked for so fires without a difference, PUT value and batches too.
#[tokio::test(flavor = "multi_thread")]
async fn a_forced_update_notifies_without_a_difference() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served, receiver) = filled(dir.path(), NotificationsConfig::default()).await;
    subscribe(&served, "", &to(&receiver, "/n", "e", json!({"attrs": ["t"]}), &simple(json!(["alterationType"]))))
        .await;
    let (t, short) =
        (r#"{"t":{"value":20}}"#, r#"{"actionType":"update","entities":[{"id":"e","type":"Room","t":{"value":20}}]}"#);
    let mut sent = 0;
    for (head, body) in [
        ("PATCH /v2/entities/e/attrs", t),
        ("POST /v2/entities/e/attrs", t),
        ("PUT /v2/entities/e/attrs/t", r#"{"value":20}"#),
        ("PUT /v2/entities/e/attrs/t/value\ncontent-type: text/plain", "20"),
        ("POST /v2/op/update", short),
        ("POST /v2/entities?options=upsert", r#"{"id":"e","type":"Room","t":{"value":20}}"#),
    ] {
        change(&served, head, body).await;
        let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
        let forced = match line.contains('?') {
            true => format!("{line},forcedUpdate\n{headers}"),
            false => format!("{line}?options=forcedUpdate\n{headers}"),
        };
        change(&served, &forced, body).await;
        sent += 1;
        let received = receiver.under("/n", sent).await;
        assert_eq!(
            (received.len(), &received[sent - 1].json()["alterationType"]),
            (sent, &json!("entityChange")),
            "{head}"
        );
    }
    served.stop().await;
    world.close();
    receiver.stop();
}

async fn reason(served: &Served, id: &str) -> String {
    let failed = async || {
        let notification = shown(served, id).await["notification"].clone();
        notification["lastFailureReason"].is_string().then_some(notification)
    };
    let notification = found_by("the reason of the failure", failed).await;
    assert_eq!((&notification["failsCounter"], &notification["timesSent"]), (&json!(1), &json!(1)));
    assert_eq!(notification.get("lastSuccess"), None);
    assert!(notification["lastFailure"].is_string());
    notification["lastFailureReason"].as_str().unwrap().to_owned()
}

/// §15.3: a failure is no answer, and has a short reason; §7: a message that is too large is not sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_has_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let notifications = NotificationsConfig { message_max_bytes: 2_000, ..NotificationsConfig::default() };
    let (world, served, receiver) = filled(dir.path(), notifications).await;
    for (row, url, named) in [
        ("refused connection", "http://127.0.0.1:1/".to_owned(), "no connection"),
        ("unknown host", "http://no-such-host.invalid/".to_owned(), "unknown host"),
        ("§16.1 no port after substitution", "http://127.0.0.1:9999${t}/".to_owned(), ":999920/' is no URL"),
        ("too large", receiver.url("/large"), "2000 bytes"),
    ] {
        let kind = if url.contains("${") { "httpCustom" } else { "http" };
        let mut notification = json!({kind: {"url": url}, "delivery": {"retry": "never"}});
        if row != "too large" {
            notification["attrs"] = json!(["t"]);
        }
        let id = subscribe(&served, "", &to(&receiver, "", "e", Value::Null, &notification)).await;
        let long = "x".repeat(3_000);
        change(
            &served,
            "POST /v2/entities/e/attrs?options=keyValues",
            &json!({"long": format!("{row} {long}")}).to_string(),
        )
        .await;
        let reason = reason(&served, &id).await;
        assert!(reason.contains(named), "{row}: {reason}");
        assert_eq!(served.ask(&format!("DELETE /v2/subscriptions/{id}"), None).await.status, 204);
    }
    assert!(receiver.received().is_empty(), "what is too large is not sent");
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §18.3: an alarm is raised when a receiver is away, and released when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_away_is_an_alarm_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served, _) = filled(dir.path(), NotificationsConfig::default()).await;
    let receiver = Receiver::answering((own_ip(), 0).into(), |_, _| Some(200)).await;
    let (address, url) = (receiver.address, receiver.url("/n"));
    subscribe(&served, "", &to(&receiver, "/n", "e", Value::Null, &json!({}))).await;
    receiver.stop();
    eventually_async("nobody listens", || std::net::TcpStream::connect(address).is_err()).await;
    change(&served, UPDATE, r#"{"t":{"value":21}}"#).await;
    let alarms = async || served.get("/statistics").await.json()["millstream"]["alarms"].clone();
    let raised = json!([format!("NotificationError {url}")]);
    found_by("the alarm", async || (alarms().await == raised).then_some(())).await;
    let receiver = Receiver::answering(address, |_, _| Some(404)).await;
    receiver.under("/n", 1).await;
    found_by("the end of the alarm", async || alarms().await.is_null().then_some(())).await;
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §16.1: with custom notifications off a custom target acts as the plain one, and nothing in its URL is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn custom_notifications_can_be_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let notifications = NotificationsConfig { custom: false, ..NotificationsConfig::default() };
    let (world, served, receiver) = filled(dir.path(), notifications).await;
    let fields = json!({"method": "PUT", "headers": {"x-mine": "1"}, "qs": {"a": "b"}, "payload": "t ${t}"});
    subscribe(&served, "", &to(&receiver, "", "e", Value::Null, &custom(&receiver, "/off", fields))).await;
    change(&served, UPDATE, r#"{"t":{"value":21}}"#).await;
    let one = receiver.under("/off", 1).await.remove(0);
    assert!(one.line.starts_with("POST /off "), "{one:?}");
    assert_eq!((one.header("x-mine"), &one.json()["data"][0]["t"]["value"]), (None, &json!(21)));
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §7, §14: limits of subscriptions.
#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_have_their_limits() {
    let dir = tempfile::tempdir().unwrap();
    let notifications = NotificationsConfig { subscriptions_max: 2, ..NotificationsConfig::default() };
    let (world, served, receiver) = filled(dir.path(), notifications).await;
    let mut body = to(&receiver, "/n", "e", Value::Null, &json!({}));
    body["description"] = json!("x".repeat(1_024));
    let first = subscribe(&served, "fiware-servicepath: /a", &body).await;
    subscribe(&served, "", &body).await;
    let head = "POST /v2/subscriptions\nfiware-correlator: from-the-test";
    let refused = served.ask(head, Some(&body.to_string())).await;
    crate::refusals::check(&refused, 429, "TooManyRequests", "subscriptions_max", "a third");
    subscribe(&served, "fiware-service: other", &body).await;
    let target = format!("/v2/subscriptions/{first}\nfiware-servicepath: /b");
    assert_eq!(served.ask(&format!("GET {target}"), None).await.status, 404, "§3.2: it is read under its own path");
    assert_eq!(served.ask(&format!("DELETE {target}"), None).await.status, 204, "§3.2: and deleted under any");
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §19: the answer waits until the notifications of its update have gone, as far as the gauge says, and no longer than
/// the longest time.
#[tokio::test(flavor = "multi_thread")]
async fn flow_control_holds_the_answer_while_notifications_drain() {
    let is_open = Arc::new(AtomicBool::new(false));
    for (flow_control, is_held) in [("1:2:500000", true), ("0.5:2:500000", true), ("0:2:500000", false), ("", false)] {
        is_open.store(false, Ordering::Release);
        let dir = tempfile::tempdir().unwrap();
        let notifications = NotificationsConfig {
            flow_control: flow_control.to_owned(),
            retry_first_ms: 1,
            retry_longest_ms: 5,
            ..NotificationsConfig::default()
        };
        let (world, served, slow) = filled(dir.path(), notifications).await;
        slow.stop();
        let opened = is_open.clone();
        let receiver = Receiver::answering("127.0.0.1:0".parse().unwrap(), move |_, _| {
            Some(if opened.load(Ordering::Acquire) { 200 } else { 503 })
        })
        .await;
        // Two that hear of it, so that one half can be waited for; and a change that nobody hears of.
        for path in ["/1", "/2"] {
            subscribe(&served, "", &to(&receiver, path, "e", Value::Null, &simple(json!(["t"])))).await;
        }
        let other = "POST /v2/entities?options=upsert,keyValues,flowControl";
        change(&served, other, r#"{"id":"nobody","t":1}"#).await;
        let served = Arc::new(served);
        let mut steps: Vec<(&str, &str)> = vec![
            ("PATCH /v2/entities/e/attrs?options=flowControl", r#"{"t":{"value":1}}"#),
            ("PUT /v2/entities/e/attrs/t?options=flowControl", r#"{"value":2}"#),
            ("PUT /v2/entities/e/attrs/t/value?options=flowControl", "[3]"),
        ];
        let batch =
            r#"{"actionType":"update","entities":[{"id":"e","t":{"value":4}},{"id":"nobody","t":{"value":4}}]}"#;
        steps.push(("POST /v2/op/update?options=flowControl", batch));
        for (head, body) in steps {
            is_open.store(false, Ordering::Release);
            let before = receiver.received().len();
            let asked = tokio::spawn({
                let served = served.clone();
                async move { change(&served, head, body).await }
            });
            if is_held {
                eventually_async("attempts that fail", || receiver.received().len() > before + 4).await;
                assert!(!asked.is_finished(), "{flow_control} {head}");
                is_open.store(true, Ordering::Release);
            }
            tokio::time::timeout(std::time::Duration::from_secs(60), asked).await.expect("an answer").unwrap();
            let ended = receiver.received().len() - before;
            assert!(ended >= if is_held { 2 } else { 0 }, "{flow_control} {head}");
        }
        is_open.store(true, Ordering::Release);
        Arc::into_inner(served).unwrap().stop().await;
        world.close();
        receiver.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_control_waits_no_longer_than_the_longest_time() {
    let dir = tempfile::tempdir().unwrap();
    let notifications = NotificationsConfig { flow_control: "1:1:20".to_owned(), ..NotificationsConfig::default() };
    let (world, served, receiver) = filled(dir.path(), notifications).await;
    let dead = Receiver::answering("127.0.0.1:0".parse().unwrap(), |_, _| None).await;
    subscribe(&served, "", &to(&dead, "/n", "e", Value::Null, &json!({}))).await;
    change(&served, &format!("{UPDATE}?options=flowControl"), r#"{"t":{"value":1}}"#).await;
    assert_eq!(served.get("/v2/entities/e/attrs/t/value").await.body, "1");
    served.stop().await;
    dead.stop();
    world.close();
    receiver.stop();
}
