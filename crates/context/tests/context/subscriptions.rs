//! Subscriptions as clients make, read, change and delete them: section 14 of the reference.

use millstream_testkit::found_by;
use serde_json::{Value, json};

use crate::world::{Answer, Served, World};

/// Creates a subscription; its id.
pub(crate) async fn subscribe(served: &Served, head: &str, body: &Value) -> String {
    let answer = served.ask(&format!("POST /v2/subscriptions\n{head}"), Some(&body.to_string())).await;
    assert_eq!(answer.status, 201, "{body}: {answer:?}");
    let id = answer.header("location").unwrap().strip_prefix("/v2/subscriptions/").unwrap().to_owned();
    assert!(id.len() == 24 && id.bytes().all(|c| c.is_ascii_hexdigit()), "{id}");
    id
}

pub(crate) async fn shown(served: &Served, id: &str) -> Value {
    let answer = served.get(&format!("/v2/subscriptions/{id}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Waits until the subscription is such that it `holds`.
pub(crate) async fn until_shown(served: &Served, id: &str, holds: impl Fn(&Value) -> bool) -> Value {
    found_by(&format!("the state of subscription {id}"), async || Some(shown(served, id).await).filter(&holds)).await
}

/// The same of its member `notification`.
pub(crate) async fn until_notification(served: &Served, id: &str, holds: impl Fn(&Value) -> bool) -> Value {
    until_shown(served, id, |shown| holds(&shown["notification"])).await["notification"].take()
}

pub(crate) async fn patch(served: &Served, id: &str, body: &Value) -> Answer {
    served.ask(&format!("PATCH /v2/subscriptions/{id}"), Some(&body.to_string())).await
}

fn plain() -> Value {
    json!({"subject": {"entities": [{"id": "e"}]}, "notification": {"http": {"url": "http://127.0.0.1:1/n"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_made_read_changed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let given = json!({"description": "d", "expires": "2050-04-05T14:00:00.00Z", "throttling": 5,
        "subject": {"entities": [{"idPattern": ".*", "type": "Room"}],
            "condition": {"attrs": ["t"], "expression": {"q": "t>40"}, "alterationTypes": ["entityCreate"]}},
        "notification": {"mqtt": {"url": "mqtt://127.0.0.1:1", "topic": "t", "user": "u", "passwd": "secret"},
            "attrs": ["t"], "maxFailsLimit": 3}});
    let id = subscribe(&served, "", &given).await;
    assert_eq!(
        shown(&served, &id).await,
        json!({"id": id, "description": "d", "expires": "2050-04-05T14:00:00.000Z", "status": "active",
            "subject": {"entities": [{"idPattern": ".*", "type": "Room"}], "condition": {"attrs": ["t"],
                "expression": {"q": "t>40"}, "alterationTypes": ["entityCreate"], "notifyOnMetadataChange": true}},
            "notification": {"mqtt": {"url": "mqtt://127.0.0.1:1", "topic": "t", "user": "u", "passwd": "*****",
                "qos": 0, "retain": false}, "attrs": ["t"], "maxFailsLimit": 3, "onlyChangedAttrs": false,
                "covered": false, "attrsFormat": "normalized"}, "throttling": 5})
    );
    let notified = |mut notification: Value| {
        notification["http"] = json!({"url": "http://h/p"});
        json!({"notification": notification})
    };
    let subject =
        |condition: Value| json!({"subject": {"entities": given["subject"]["entities"], "condition": condition}});
    for (change, pointer, expected) in [
        (json!({"throttling": 7}), "/throttling", json!(7)),
        (json!({"expires": ""}), "/expires", Value::Null),
        (json!({"expires": "2000-01-01"}), "/status", json!("expired")),
        (json!({"status": "inactive", "expires": "2050-01-01"}), "/status", json!("inactive")),
        (json!({"status": "oneshot"}), "/status", json!("oneshot")),
        (notified(json!({"attrs": ["t"], "maxFailsLimit": 3})), "/notification/maxFailsLimit", json!(3)),
        (notified(json!({"attrs": ["t"]})), "/notification/maxFailsLimit", Value::Null),
        (notified(json!({"delivery": {"queue": "durable"}})), "/notification/delivery/queue", json!("durable")),
        (notified(json!({"exceptAttrs": ["x"]})), "/notification/delivery", Value::Null),
        (notified(json!({})), "/notification/exceptAttrs", Value::Null),
        (notified(json!({})), "/notification/mqtt", Value::Null),
        (subject(json!({"attrs": ["u"]})), "/subject/condition/expression", Value::Null),
        (subject(json!({"notifyOnMetadataChange": false})), "/subject/condition/attrs", json!([])),
        (json!({"subject": {"entities": [{"id": "a"}]}}), "/subject/condition/notifyOnMetadataChange", json!(true)),
        (json!({"description": "other"}), "/subject/entities/0/id", json!("a")),
    ] {
        assert_eq!(patch(&served, &id, &change).await.status, 204, "{change}");
        let found = shown(&served, &id).await.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(found, expected, "{change}");
    }
    let at_last = shown(&served, &id).await;
    assert_eq!((&at_last["throttling"], &at_last["status"]), (&json!(7), &json!("oneshot")), "what was not sent stays");
    let unsaid = json!({"description": "", "throttling": 0});
    assert_eq!(patch(&served, &id, &unsaid).await.status, 204);
    let found = shown(&served, &id).await;
    assert_eq!((found.get("description"), found.get("throttling")), (None, None), "what says nothing is not shown");
    let target = format!("/v2/subscriptions/{id}");
    assert_eq!(served.ask(&format!("GET {target}\nfiware-service: other"), None).await.status, 404);
    assert_eq!(served.ask(&format!("DELETE {target}"), None).await.status, 204);
    for head in ["GET", "DELETE"] {
        assert_eq!(served.ask(&format!("{head} {target}"), None).await.status, 404, "{head}");
    }
    assert_eq!(patch(&served, &id, &json!({"throttling": 1})).await.json()["error"], "NotFound");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_pages_a_count_and_exactly_one_path() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for n in 0..25 {
        let head = ["", "fiware-servicepath: /a", "fiware-servicepath: /a/#"][n % 3];
        let mut body = plain();
        body["description"] = json!(n.to_string());
        subscribe(&served, head, &body).await;
    }
    for (query, head, expected, total) in [
        ("", "", (0..20).collect::<Vec<usize>>(), 25),
        ("&limit=3&offset=21", "", vec![21, 22, 23], 25),
        ("&limit=0", "", vec![], 25),
        ("&offset=99", "", vec![], 25),
        ("&limit=2", "fiware-servicepath: /a", vec![1, 4], 8),
        ("&limit=2", "fiware-servicepath: /a/#", vec![2, 5], 8),
        ("&limit=2", "fiware-servicepath: /#", vec![0, 3], 9),
        ("", "fiware-servicepath: /b", vec![], 0),
    ] {
        let answer = served.ask(&format!("GET /v2/subscriptions?options=count{query}\n{head}"), None).await;
        let list = answer.json();
        let found: Vec<usize> =
            list.as_array().unwrap().iter().map(|one| one["description"].as_str().unwrap().parse().unwrap()).collect();
        assert_eq!(found, expected, "{query} {head}");
        assert_eq!(answer.header("fiware-total-count"), Some(total.to_string().as_str()), "{query} {head}");
    }
    served.stop().await;
    world.close();
}

/// `plain()` with `value` at `pointer`.
fn with(pointer: &str, value: Value) -> Value {
    let mut body = plain();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(name.to_owned(), value);
    body
}

fn target(name: &str, value: Value) -> Value {
    let mut body = with(&format!("/notification/{name}"), value);
    if name != "http" {
        body["notification"].as_object_mut().unwrap().remove("http");
    }
    body
}

/// A Kafka target with a login.
fn kafka_login(mechanism: &str, protocol: &str) -> Value {
    let login = json!({"url": "kafka://h:1", "topic": "t", "user": "u", "passwd": "p", "saslMechanism": mechanism,
        "securityProtocol": protocol});
    target("kafka", login)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_subscription_is_refused_and_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let long = "x".repeat(1_025);
    let url = "http://h/";
    let rows: Vec<(Value, &str)> = vec![
        (json!({"notification": {"http": {"url": url}}}), "subject"),
        (json!({"subject": {"entities": [{"id": "e"}]}}), "notification"),
        (with("/subject/entities", json!([])), "entities"),
        (with("/subject/entities", json!([{"type": "T"}])), "idPattern"),
        (with("/subject/entities", json!([{"id": "e", "idPattern": "e"}])), "idPattern"),
        (with("/subject/entities", json!([{"id": "e", "type": "T", "typePattern": "T"}])), "typePattern"),
        (with("/subject/entities", json!([{"idPattern": "["}])), "idPattern"),
        (with("/subject/entities", json!([{"id": "e f"}])), "e f"),
        (with("/subject/condition", json!({})), "condition"),
        (with("/subject/condition", json!({"attrs": "t"})), "attrs"),
        (with("/subject/condition", json!({"expression": {}})), "expression"),
        (with("/subject/condition", json!({"expression": {"q": ""}})), "q"),
        (with("/subject/condition", json!({"expression": {"q": "t=="}})), "t=="),
        (with("/subject/condition", json!({"expression": {"x": "1"}})), "an object with x"),
        (with("/subject/condition", json!({"colour": 1})), "an object with colour"),
        (with("/subject/condition", json!({"jexlExpression": 1})), "jexlExpression"),
        (with("/subject/condition", json!({"alterationTypes": ["entityGone"]})), "entityGone"),
        (with("/subject/condition", json!({"notifyOnMetadataChange": 1})), "notifyOnMetadataChange"),
        (with("/notification/exceptAttrs", json!([])), "exceptAttrs"),
        (
            json!({"subject": plain()["subject"], "notification": {"http": {"url": url}, "attrs": ["a"], "exceptAttrs": ["b"]}}),
            "exceptAttrs",
        ),
        (with("/notification/covered", json!(true)), "covered"),
        (with("/notification/attrsFormat", json!("legacy")), "legacy"),
        (with("/notification/attrsFormat", json!("unique")), "unique"),
        (with("/notification/maxFailsLimit", json!(0)), "maxFailsLimit"),
        (with("/notification/maxFailsLimit", json!("3")), "maxFailsLimit"),
        (with("/notification/delivery", json!({"queue": "disk"})), "disk"),
        (with("/notification/delivery", json!({"queues": "durable"})), "queues"),
        (with("/notification/mqtt", json!({"url": "mqtt://h:1", "topic": "t"})), "http, mqtt"),
        (json!({"subject": plain()["subject"], "notification": {"attrs": ["t"]}}), "exactly one"),
        (target("http", json!({})), "url"),
        (target("http", json!({"url": "h/p"})), "h/p"),
        (target("http", json!({"url": "ftp://h/p"})), "ftp://h/p"),
        (target("http", json!({"url": "http://h/p?a=b"})), "a=b"),
        (target("http", json!({"url": "http://127.0.0.1:99999/x"})), "65535"),
        (target("http", json!({"url": "https://[::1]:x/x"})), "[::1]:x"),
        (target("httpCustom", json!({"url": "http://h:0/", "qs": {"a": "b"}})), "http://h:0/"),
        (target("http", json!({"url": url, "timeout": 1_800_001})), "timeout"),
        (target("http", json!({"url": url, "timeout": -1})), "timeout"),
        (target("httpCustom", json!({"url": url, "headers": {}})), "headers"),
        (target("httpCustom", json!({"url": url, "headers": {"x": "a\r\nb: c"}})), "'x'"),
        (target("httpCustom", json!({"url": url, "headers": {"x": "${t}%0D%0Ab: c"}})), "%0D%0Ab"),
        (target("httpCustom", json!({"url": "http://${h}/", "headers": {"x": "a%00"}})), "a%00"),
        (target("httpCustom", json!({"url": url, "headers": {"x\r\n${t}": "a"}})), "line breaks"),
        (target("httpCustom", json!({"url": url, "qs": {}})), "qs"),
        (target("httpCustom", json!({"url": url, "method": "STEAL"})), "STEAL"),
        (target("httpCustom", json!({"url": url, "payload": "a", "json": {}})), "payload and json"),
        (target("httpCustom", json!({"url": url, "payload": 1})), "payload"),
        (target("httpCustom", json!({"url": url, "payload": "a<b"})), "a<b"),
        (target("httpCustom", json!({"url": url, "payload": "${t"})), "${t"),
        (target("httpCustom", json!({"url": url, "json": "text"})), "json"),
        (
            target("httpCustom", json!({"url": url, "ngsi": {"a": {"value": 1, "metadata": {"m": {"value": 1}}}}})),
            "'m'",
        ),
        (target("httpCustom", json!({"url": url, "ngsi": {"a": 1}})), "'a'"),
        (target("mqtt", json!({"url": "mqtt://h", "topic": "t"})), "mqtt://h"),
        (target("mqtt", json!({"url": "mqtt://h:1/p", "topic": "t"})), "mqtt://h:1/p"),
        (target("mqtt", json!({"url": "ssl://h:1", "topic": "t"})), "ssl://h:1"),
        (target("mqtt", json!({"url": "mqtts://h", "topic": "t"})), "mqtts://h"),
        (target("mqtt", json!({"url": "mqtt://h:1"})), "topic"),
        (target("mqtt", json!({"url": "mqtt://h:1", "topic": "a/#"})), "a/#"),
        (target("mqtt", json!({"url": "mqtt://h:1", "topic": "t", "qos": 3})), "qos"),
        (target("mqtt", json!({"url": "mqtt://h:1", "topic": "t", "user": "u"})), "passwd"),
        (target("kafka", json!([])), "kafka"),
        (target("kafka", json!({"topic": "t"})), "url"),
        (target("kafka", json!({"url": 1, "topic": "t"})), "url"),
        (target("kafka", json!({"url": "http://h:1", "topic": "t"})), "http://h:1"),
        (target("kafka", json!({"url": "kafka://h", "topic": "t"})), "kafka://h"),
        (target("kafka", json!({"url": "kafka://h:1/p", "topic": "t"})), "kafka://h:1/p"),
        (target("kafka", json!({"url": "kafka://h:1,i", "topic": "t"})), "kafka://h:1,i"),
        (target("kafka", json!({"url": "kafka://h:1,-i:2", "topic": "t"})), "-i"),
        (target("kafka", json!({"url": "kafka://h:1"})), "topic"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": 1})), "topic"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": ""})), "topic"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": "a/b"})), "a/b"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": "a+"})), "a+"),
        (target("kafkaCustom", json!({"url": "kafka://h:1", "topic": "${t}#"})), "${t}#"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": "a b"})), "'a b'"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": "t", "key": 1})), "key"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": "t", "user": "u"})), "passwd"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": "t", "user": "u", "passwd": "p"})), "saslMechanism"),
        (kafka_login("GSSAPI", "SASL_SSL"), "GSSAPI"),
        (kafka_login("PLAIN", "SSL"), "SASL_PLAINTEXT"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": "t", "securityProtocol": "SASL_SSL"})), "SASL_SSL"),
        (target("kafkaCustom", json!({"url": "kafka://h:1", "topic": "t", "headers": {}})), "headers"),
        (target("kafkaCustom", json!({"url": "kafka://h:1", "topic": "t", "json": {}, "ngsi": {}})), "json and ngsi"),
        (with("/notification/kafka", json!({"url": "kafka://h:1", "topic": "t"})), "http, kafka"),
        (target("http", json!({"url": "kafka://h:1"})), "kafka://h:1"),
        (target("httpCustom", json!({"url": "kafka://h:1"})), "kafka://h:1"),
        (with("/description", json!(long)), "1025"),
        (with("/description", json!("a(b")), "a(b"),
        (with("/throttling", json!(-1)), "throttling"),
        (with("/throttling", json!("5")), "throttling"),
        (with("/expires", json!("tomorrow")), "tomorrow"),
        (with("/status", json!("failed")), "failed"),
        (with("/status", json!("expired")), "expired"),
    ];
    for (body, named) in rows {
        let answer = served.ask("POST /v2/subscriptions", Some(&body.to_string())).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert_eq!(answer.json()["error"], "BadRequest", "{body}: {answer:?}");
        let text = answer.json()["description"].as_str().unwrap().to_owned();
        assert!(text.contains(named), "{body}: '{named}' in '{text}'");
    }
    for (head, body, status) in [
        ("POST /v2/subscriptions", "{", 400),
        ("POST /v2/subscriptions", "[]", 400),
        ("POST /v2/subscriptions\nfiware-servicepath: /a,/b", "{}", 400),
        ("POST /v2/subscriptions?colour=1", "{}", 400),
        ("POST /v2/subscriptions\ncontent-type: text/plain", "{}", 415),
        ("PATCH /v2/subscriptions/0123456789abcdef01234567", "{}", 404),
        ("PUT /v2/subscriptions/0123456789abcdef01234567", "{}", 405),
    ] {
        assert_eq!(served.ask(head, Some(body)).await.status, status, "{head} {body}");
    }
    assert_eq!(served.get("/v2/subscriptions").await.json(), json!([]));
    let id = subscribe(&served, "", &plain()).await;
    let before = shown(&served, &id).await;
    for change in [
        json!({}),
        json!({"throttling": -1}),
        json!({"notification": {"covered": true}}),
        json!({"notification": {"attrs": ["t"]}}),
        json!({"subject": {"condition": {"attrs": ["t"]}}}),
        json!({"notification": {"attrs": null}}),
        json!({"notification": {"http": {"url": "http://127.0.0.1:65536/"}}}),
        json!({"status": "failed"}),
    ] {
        assert_eq!(patch(&served, &id, &change).await.status, 400, "{change}");
    }
    assert_eq!(shown(&served, &id).await, before);
    served.stop().await;
    world.close();
}

/// §14.2, §16.1: an empty payload is none, and attributes of a patch have the default types of their values.
#[tokio::test(flavor = "multi_thread")]
async fn a_custom_target_is_shown_without_an_empty_payload_and_with_default_types() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let ngsi = json!({"id": "x", "a": {"value": "${t}"}, "b": {"value": 7}, "c": {"value": true, "type": "Flag"}});
    let shown = json!({"id": "x", "a": {"value": "${t}", "type": "Text"}, "b": {"value": 7, "type": "Number"},
        "c": {"value": true, "type": "Flag"}});
    for (given, expected) in [
        (json!({"url": "http://h/", "payload": ""}), json!({"url": "http://h/"})),
        (json!({"url": "http://h/", "payload": null}), json!({"url": "http://h/", "payload": null})),
        (json!({"url": "http://h/", "ngsi": ngsi}), json!({"url": "http://h/", "ngsi": shown})),
    ] {
        let body = json!({"subject": {"entities": [{"id": "e"}]}, "notification": {"httpCustom": given}});
        let id = subscribe(&served, "", &body).await;
        let document = served.get(&format!("/v2/subscriptions/{id}")).await.json();
        assert_eq!(document["notification"]["httpCustom"], expected, "{given}");
    }
    served.stop().await;
    world.close();
}
