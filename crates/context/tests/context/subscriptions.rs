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

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_subscription_is_refused_and_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let long = "x".repeat(1_025);
    let url = "http://h/";
    let rows: Vec<(Value, u16, &str)> = vec![
        (json!({"notification": {"http": {"url": url}}}), 400, "subject"),
        (json!({"subject": {"entities": [{"id": "e"}]}}), 400, "notification"),
        (with("/subject/entities", json!([])), 400, "entities"),
        (with("/subject/entities", json!([{"type": "T"}])), 400, "idPattern"),
        (with("/subject/entities", json!([{"id": "e", "idPattern": "e"}])), 400, "idPattern"),
        (with("/subject/entities", json!([{"id": "e", "type": "T", "typePattern": "T"}])), 400, "typePattern"),
        (with("/subject/entities", json!([{"idPattern": "["}])), 400, "idPattern"),
        (with("/subject/entities", json!([{"id": "e f"}])), 400, "e f"),
        (with("/subject/condition", json!({})), 400, "condition"),
        (with("/subject/condition", json!({"attrs": "t"})), 400, "attrs"),
        (with("/subject/condition", json!({"expression": {}})), 400, "expression"),
        (with("/subject/condition", json!({"expression": {"q": ""}})), 400, "q"),
        (with("/subject/condition", json!({"expression": {"q": "t=="}})), 400, "t=="),
        (with("/subject/condition", json!({"expression": {"x": "1"}})), 400, "an object with x"),
        (with("/subject/condition", json!({"colour": 1})), 400, "an object with colour"),
        (with("/subject/condition", json!({"jexlExpression": 1})), 400, "jexlExpression"),
        (with("/subject/condition", json!({"alterationTypes": ["entityGone"]})), 400, "entityGone"),
        (with("/subject/condition", json!({"notifyOnMetadataChange": 1})), 400, "notifyOnMetadataChange"),
        (with("/notification/exceptAttrs", json!([])), 400, "exceptAttrs"),
        (
            json!({"subject": plain()["subject"], "notification": {"http": {"url": url}, "attrs": ["a"], "exceptAttrs": ["b"]}}),
            400,
            "exceptAttrs",
        ),
        (with("/notification/covered", json!(true)), 400, "covered"),
        (with("/notification/attrsFormat", json!("legacy")), 400, "legacy"),
        (with("/notification/attrsFormat", json!("unique")), 400, "unique"),
        (with("/notification/maxFailsLimit", json!(0)), 400, "maxFailsLimit"),
        (with("/notification/maxFailsLimit", json!("3")), 400, "maxFailsLimit"),
        (with("/notification/delivery", json!({"queue": "disk"})), 400, "disk"),
        (with("/notification/delivery", json!({"queues": "durable"})), 400, "queues"),
        (with("/notification/mqtt", json!({"url": "mqtt://h:1", "topic": "t"})), 400, "http, mqtt"),
        (json!({"subject": plain()["subject"], "notification": {"attrs": ["t"]}}), 400, "exactly one"),
        (target("http", json!({})), 400, "url"),
        (target("http", json!({"url": "h/p"})), 400, "h/p"),
        (target("http", json!({"url": "ftp://h/p"})), 400, "ftp://h/p"),
        (target("http", json!({"url": "http://h/p?a=b"})), 400, "a=b"),
        (target("http", json!({"url": "http://127.0.0.1:99999/x"})), 400, "65535"),
        (target("http", json!({"url": "https://[::1]:x/x"})), 400, "[::1]:x"),
        (target("httpCustom", json!({"url": "http://h:0/", "qs": {"a": "b"}})), 400, "http://h:0/"),
        (target("http", json!({"url": url, "timeout": 1_800_001})), 400, "timeout"),
        (target("http", json!({"url": url, "timeout": -1})), 400, "timeout"),
        (target("httpCustom", json!({"url": url, "headers": {}})), 400, "headers"),
        (target("httpCustom", json!({"url": url, "headers": {"x": "a\r\nb: c"}})), 400, "'x'"),
        (target("httpCustom", json!({"url": url, "headers": {"x": "${t}%0D%0Ab: c"}})), 400, "%0D%0Ab"),
        (target("httpCustom", json!({"url": "http://${h}/", "headers": {"x": "a%00"}})), 400, "a%00"),
        (target("httpCustom", json!({"url": url, "headers": {"x\r\n${t}": "a"}})), 400, "line breaks"),
        (target("httpCustom", json!({"url": url, "qs": {}})), 400, "qs"),
        (target("httpCustom", json!({"url": url, "method": "STEAL"})), 400, "STEAL"),
        (target("httpCustom", json!({"url": url, "payload": "a", "json": {}})), 400, "payload and json"),
        (target("httpCustom", json!({"url": url, "payload": 1})), 400, "payload"),
        (target("httpCustom", json!({"url": url, "payload": "a<b"})), 400, "a<b"),
        (target("httpCustom", json!({"url": url, "payload": "${t"})), 400, "${t"),
        (target("httpCustom", json!({"url": url, "json": "text"})), 400, "json"),
        (
            target("httpCustom", json!({"url": url, "ngsi": {"a": {"value": 1, "metadata": {"m": {"value": 1}}}}})),
            400,
            "'m'",
        ),
        (target("httpCustom", json!({"url": url, "ngsi": {"a": 1}})), 400, "'a'"),
        (target("mqtt", json!({"url": "mqtt://h", "topic": "t"})), 400, "mqtt://h"),
        (target("mqtt", json!({"url": "mqtt://h:1/p", "topic": "t"})), 400, "mqtt://h:1/p"),
        (target("mqtt", json!({"url": "ssl://h:1", "topic": "t"})), 400, "ssl://h:1"),
        (target("mqtt", json!({"url": "mqtts://h", "topic": "t"})), 400, "mqtts://h"),
        (target("mqtt", json!({"url": "mqtt://h:1"})), 400, "topic"),
        (target("mqtt", json!({"url": "mqtt://h:1", "topic": "a/#"})), 400, "a/#"),
        (target("mqtt", json!({"url": "mqtt://h:1", "topic": "t", "qos": 3})), 400, "qos"),
        (target("mqtt", json!({"url": "mqtt://h:1", "topic": "t", "user": "u"})), 400, "passwd"),
        (target("kafka", json!({"url": "kafka://h:1", "topic": "t"})), 501, "kafka"),
        (target("kafkaCustom", json!({"url": "kafka://h:1", "topic": "t"})), 501, "kafkaCustom"),
        (with("/description", json!(long)), 400, "1025"),
        (with("/description", json!("a(b")), 400, "a(b"),
        (with("/throttling", json!(-1)), 400, "throttling"),
        (with("/throttling", json!("5")), 400, "throttling"),
        (with("/expires", json!("tomorrow")), 400, "tomorrow"),
        (with("/status", json!("failed")), 400, "failed"),
        (with("/status", json!("expired")), 400, "expired"),
    ];
    for (body, status, named) in rows {
        let answer = served.ask("POST /v2/subscriptions", Some(&body.to_string())).await;
        let name = if status == 400 { "BadRequest" } else { "NotImplemented" };
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(name)), "{body}: {answer:?}");
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
