//! Subscriptions that fire and notifications that are sent: sections 14 to 16 of the reference, with real receivers.

use millstream_testkit::found_by;
use serde_json::{Value, json};

use crate::receiver::{Received, Receiver};
use crate::subscriptions::{shown, subscribe};
use crate::world::{Served, World};

/// A subscription to `entity` whose notifications go to a path of the receiver.
pub(crate) fn to(receiver: &Receiver, path: &str, entity: &str, condition: Value, notification: &Value) -> Value {
    let mut notification = notification.clone();
    let fields = notification.as_object_mut().unwrap();
    if !fields.keys().any(|name| name.contains("http")) {
        fields.insert("http".to_owned(), json!({"url": receiver.url(path)}));
    }
    let mut subject = json!({"entities": [{"id": entity}]});
    if !condition.is_null() {
        subject["condition"] = condition;
    }
    json!({"subject": subject, "notification": notification})
}

pub(crate) async fn change(served: &Served, head: &str, body: &str) {
    let answer = served.ask(head, (!body.is_empty()).then_some(body)).await;
    assert!(answer.status < 300, "{head} {body}: {answer:?}");
}

const CREATE: &str = "POST /v2/entities?options=keyValues";

/// Everything that is done to the entity of a row after its subscription was made, one after the other.
async fn live(served: &Served, id: &str) {
    change(served, CREATE, &json!({"id": id, "type": "Room", "t": 20, "h": 1}).to_string()).await;
    for (head, body) in [
        (format!("PATCH /v2/entities/{id}/attrs?options=keyValues"), r#"{"t":30}"#),
        (format!("PATCH /v2/entities/{id}/attrs?options=keyValues"), r#"{"t":30}"#),
        (format!("PATCH /v2/entities/{id}/attrs?options=keyValues"), r#"{"h":2}"#),
        (format!("PUT /v2/entities/{id}/attrs/t"), r#"{"value":30,"metadata":{"m":{"value":1}}}"#),
        (format!("POST /v2/entities/{id}/attrs?options=keyValues"), r#"{"t":50,"n":1}"#),
        (format!("DELETE /v2/entities/{id}/attrs/h"), ""),
        (format!("DELETE /v2/entities/{id}"), ""),
    ] {
        change(served, &head, body).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_condition_fires_for_its_changes_and_for_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    // What happens, in order: create; t changes; t the same; h changes; metadata of t; t and n; h goes; deleted.
    let (c, h, u, d) = ("entityCreate", "entityChange", "entityUpdate", "entityDelete");
    let kinds = |kinds: &[&str]| json!({"alterationTypes": kinds});
    let rows: Vec<(Value, Vec<&str>)> = vec![
        (Value::Null, vec![c, h, h, h, h, h]),
        (json!({"attrs": []}), vec![c, h, h, h, h, h]),
        (json!({"attrs": ["t"]}), vec![c, h, h, h]),
        (json!({"attrs": ["h"]}), vec![c, h, h]),
        (json!({"attrs": ["n", "none"]}), vec![h]),
        (json!({"attrs": ["none"]}), vec![]),
        (json!({"notifyOnMetadataChange": false}), vec![c, h, h, h, h]),
        (json!({"attrs": ["t"], "notifyOnMetadataChange": false}), vec![c, h, h]),
        (kinds(&[c]), vec![c]),
        (kinds(&[h]), vec![h, h, h, h, h]),
        (kinds(&[u]), vec![h, u, h, h, h, h]),
        (kinds(&[d]), vec![d]),
        (kinds(&[c, u, h, d]), vec![c, h, u, h, h, h, h, d]),
        (json!({"attrs": ["none"], "alterationTypes": [h, d]}), vec![d]),
        (json!({"attrs": ["t"], "alterationTypes": [u]}), vec![h, u, h, h]),
        (json!({"expression": {"q": "t>40"}}), vec![h, h]),
        (json!({"expression": {"q": "t>40"}, "attrs": ["t"]}), vec![h]),
        (json!({"expression": {"mq": "t.m==1"}}), vec![h, h, h]),
        (json!({"expression": {"q": "!n"}, "alterationTypes": [h]}), vec![h, h, h]),
    ];
    let notification = json!({"attrs": ["alterationType"], "attrsFormat": "simplifiedKeyValues"});
    for (n, (condition, _)) in rows.iter().enumerate() {
        let (path, id) = (format!("/{n}"), format!("e{n}"));
        subscribe(&served, "", &to(&receiver, &path, &id, condition.clone(), &notification)).await;
    }
    for n in 0..rows.len() {
        live(&served, &format!("e{n}")).await;
    }
    for (n, (condition, expected)) in rows.iter().enumerate() {
        let received = receiver.under(&format!("/{n}"), expected.len()).await;
        let found: Vec<Value> = received.iter().map(|one| one.json()["alterationType"].clone()).collect();
        assert_eq!(found, *expected, "{condition}");
    }
    let total: usize = rows.iter().map(|(_, expected)| expected.len()).sum();
    assert_eq!(receiver.received().len(), total, "and nothing else was sent");
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_are_found_by_id_pattern_type_and_path() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    // Entities: r1 Room /, r2 Room /a, car1 Car /a/b, and r1 of another tenant.
    let rows = [
        (json!({"id": "r1"}), "", vec!["r1"]),
        (json!({"id": "r1", "type": "Room"}), "", vec!["r1"]),
        (json!({"id": "r1", "type": "Car"}), "", vec![]),
        (json!({"idPattern": ".*"}), "", vec!["r1", "r2", "car1"]),
        (json!({"idPattern": ".*", "type": "Room"}), "", vec!["r1", "r2"]),
        (json!({"idPattern": ".*", "typePattern": "^Ro+m$"}), "", vec!["r1", "r2"]),
        (json!({"idPattern": "^r"}), "", vec!["r1", "r2"]),
        (json!({"idPattern": "^r1$"}), "", vec!["r1"]),
        (json!({"idPattern": "1$"}), "", vec!["r1", "car1"]),
        (json!({"idPattern": "^car.*"}), "", vec!["car1"]),
        (json!({"idPattern": "x"}), "", vec![]),
        (json!({"idPattern": ".*"}), "fiware-servicepath: /", vec!["r1"]),
        (json!({"idPattern": ".*"}), "fiware-servicepath: /a", vec!["r2"]),
        (json!({"idPattern": ".*"}), "fiware-servicepath: /a/#", vec!["r2", "car1"]),
        (json!({"idPattern": ".*"}), "fiware-service: other", vec!["r1"]),
    ];
    for (n, (entity, head, _)) in rows.iter().enumerate() {
        let mut body =
            to(&receiver, &format!("/{n}"), "x", Value::Null, &json!({"attrsFormat": "simplifiedKeyValues"}));
        body["subject"]["entities"] = json!([entity]);
        subscribe(&served, head, &body).await;
    }
    for (head, body) in [
        ("", r#"{"id":"r1","type":"Room","t":1}"#),
        ("\nfiware-servicepath: /a", r#"{"id":"r2","type":"Room","t":1}"#),
        ("\nfiware-servicepath: /a/b", r#"{"id":"car1","type":"Car","t":1}"#),
        ("\nfiware-service: other", r#"{"id":"r1","type":"Room","t":1}"#),
    ] {
        change(&served, &format!("{CREATE}{head}"), body).await;
    }
    for (n, (entity, head, expected)) in rows.iter().enumerate() {
        let received = receiver.under(&format!("/{n}"), expected.len()).await;
        let mut found: Vec<String> = received.iter().map(|one| one.json()["id"].as_str().unwrap().to_owned()).collect();
        let mut expected = expected.clone();
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected, "{entity} {head}");
    }
    let total: usize = rows.iter().map(|(.., expected)| expected.len()).sum();
    assert_eq!(receiver.received().len(), total, "and nothing else was sent");
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_has_the_requested_attributes_in_the_requested_format() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    change(
        &served,
        "POST /v2/entities",
        r#"{"id":"e","type":"Room","t":{"value":20,"metadata":{"m":{"value":1}}},"h":{"value":"x"}}"#,
    )
    .await;
    let number = |value: i64, metadata: Value| json!({"type": "Number", "value": value, "metadata": metadata});
    let (m, h) = (json!({"m": {"type": "Number", "value": 1}}), json!({"type": "Text", "value": "x", "metadata": {}}));
    let (t, n) = (number(21, m.clone()), number(7, json!({})));
    let none = json!({"type": "None", "value": null, "metadata": {}});
    let all = json!({"id": "e", "type": "Room", "t": t, "h": h, "n": n});
    let action = |name: &str| json!({"actionType": {"type": "Text", "value": name}});
    let previous = json!({"previousValue": {"type": "Number", "value": 20}});
    let simplified = "simplifiedNormalized";
    let rows: Vec<(Value, Value)> = vec![
        (json!({}), json!({"data": [all]})),
        (
            json!({"attrsFormat": "keyValues"}),
            json!({"data": [{"id": "e", "type": "Room", "t": 21, "h": "x", "n": 7}]}),
        ),
        (json!({"attrsFormat": "values", "attrs": ["n", "t"]}), json!({"data": [[7, 21]]})),
        (json!({"attrsFormat": simplified}), all.clone()),
        (json!({"attrsFormat": "simplifiedKeyValues"}), json!({"id": "e", "type": "Room", "t": 21, "h": "x", "n": 7})),
        (json!({"attrsFormat": simplified, "attrs": ["h", "none"]}), json!({"id": "e", "type": "Room", "h": h})),
        (json!({"attrsFormat": simplified, "exceptAttrs": ["h", "n"]}), json!({"id": "e", "type": "Room", "t": t})),
        (
            json!({"attrsFormat": simplified, "onlyChangedAttrs": true}),
            json!({"id": "e", "type": "Room", "t": t, "n": n}),
        ),
        (
            json!({"attrsFormat": simplified, "attrs": ["t", "h"], "onlyChangedAttrs": true}),
            json!({"id": "e", "type": "Room", "t": t}),
        ),
        (
            json!({"attrsFormat": simplified, "attrs": ["t", "none"], "covered": true}),
            json!({"id": "e", "type": "Room", "t": t, "none": none}),
        ),
        (
            json!({"attrsFormat": "simplifiedKeyValues", "attrs": ["*", "alterationType", "servicePath"]}),
            json!({"id": "e", "type": "Room", "t": 21, "h": "x", "n": 7, "alterationType": "entityChange", "servicePath": "/"}),
        ),
        (
            json!({"attrsFormat": "simplifiedKeyValues", "attrs": ["h", "alterationType"], "onlyChangedAttrs": true}),
            json!({"id": "e", "type": "Room", "alterationType": "entityChange"}),
        ),
        (
            json!({"attrsFormat": simplified, "attrs": ["t", "h", "n"], "metadata": ["previousValue"]}),
            json!({"id": "e", "type": "Room", "t": number(21, previous), "n": n,
                "h": {"type": "Text", "value": "x", "metadata": {"previousValue": {"type": "Text", "value": "x"}}}}),
        ),
        (
            json!({"attrsFormat": simplified, "attrs": ["t", "h", "n"], "metadata": ["actionType"]}),
            json!({"id": "e", "type": "Room", "t": number(21, action("update")), "h": h, "n": number(7, action("append"))}),
        ),
        (
            json!({"attrsFormat": simplified, "attrs": ["t"], "metadata": ["*", "none"]}),
            json!({"id": "e", "type": "Room", "t": t}),
        ),
    ];
    let mut ids = Vec::new();
    for (n, (notification, _)) in rows.iter().enumerate() {
        ids.push(subscribe(&served, "", &to(&receiver, &format!("/{n}"), "e", Value::Null, notification)).await);
    }
    change(&served, "POST /v2/entities/e/attrs?options=keyValues", r#"{"t":21,"n":7}"#).await;
    for (n, (notification, expected)) in rows.iter().enumerate() {
        let received = receiver.under(&format!("/{n}"), 1).await;
        let mut expected = expected.clone();
        if expected.get("data").is_some() {
            expected["subscriptionId"] = json!(ids[n]);
        }
        assert_eq!(received[0].json(), expected, "{notification}");
        let format = notification["attrsFormat"].as_str().unwrap_or("normalized");
        assert_eq!(received[0].header("ngsiv2-attrsformat"), Some(format));
    }
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_headers_name_the_origin_of_the_change() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    for (path, head) in [("/1", "fiware-service: acme"), ("/2", "fiware-service: acme"), ("/3", "")] {
        subscribe(&served, head, &to(&receiver, path, "e", Value::Null, &json!({}))).await;
    }
    let caller = "fiware-service: ACME\nfiware-servicepath: /a/b\nfiware-correlator: c1\nx-auth-token: secret";
    change(&served, &format!("{CREATE}\n{caller}"), r#"{"id":"e","t":1}"#).await;
    change(&served, CREATE, r#"{"id":"e","t":1}"#).await;
    let mut correlators = Vec::new();
    for path in ["/1", "/2"] {
        let one = receiver.under(path, 1).await.remove(0);
        for (name, expected) in [
            ("content-type", "application/json; charset=utf-8"),
            ("accept", "application/json"),
            ("user-agent", concat!("millstream/", env!("CARGO_PKG_VERSION"))),
            ("fiware-service", "acme"),
            ("fiware-servicepath", "/a/b"),
            ("x-auth-token", "secret"),
            ("host", &receiver.address.to_string()),
        ] {
            assert_eq!(one.header(name), Some(expected), "{name}");
        }
        assert!(one.line.starts_with("POST "), "{}", one.line);
        correlators.push(one.header("fiware-correlator").unwrap().to_owned());
    }
    correlators.sort();
    assert_eq!(correlators, ["c1; cbnotif=1", "c1; cbnotif=2"]);
    let one = receiver.under("/3", 1).await.remove(0);
    assert_eq!((one.header("fiware-service"), one.header("x-auth-token")), (None, None));
    assert!(one.header("fiware-correlator").unwrap().ends_with("; cbnotif=1"));
    // An update that a notification has led to is applied and fires nothing: the loop ends here.
    for (correlator, t) in [("c2", 2), ("c2; cbnotif=1", 3), ("c3; cbnotif=1", 4)] {
        let head = format!("PATCH /v2/entities/e/attrs?options=keyValues\nfiware-correlator: {correlator}");
        change(&served, &head, &format!("{{\"t\":{t}}}")).await;
    }
    let received = receiver.under("/3", 3).await;
    let found: Vec<Value> = received.iter().map(|one| one.json()["data"][0]["t"]["value"].clone()).collect();
    assert_eq!(found, [1, 2, 4]);
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_notifications_are_made_of_the_entity() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    change(&served, "POST /v2/entities", r#"{"id":"e","type":"Room","t":{"value":20,"metadata":{"m":{"value":"C"}}},"s":{"value":"a b"},"o":{"value":{"k":[1]}}}"#).await;
    type Check = fn(&Received);
    let rows: Vec<(&str, Value, Check)> = vec![
        (
            "/text",
            json!({"payload": "t is ${t} (${metadata.t.m}): ${none}%22${s}%22 ${o} ${id} ${type} [${service}] ${servicePath}"
            .replace('(', "%28").replace(')', "%29")}),
            |one| {
                assert_eq!(one.body, "t is 21 (C): null\"a b\" {\"k\":[1]} e Room [] /");
                assert_eq!(
                    (one.header("content-type"), one.header("ngsiv2-attrsformat")),
                    (Some("text/plain; charset=utf-8"), Some("custom"))
                );
            },
        ),
        ("/none", json!({"payload": null}), |one| {
            assert_eq!((one.body.as_str(), one.header("content-length")), ("", Some("0")));
        }),
        ("/empty", json!({"payload": ""}), |one| assert_eq!(one.json()["data"][0]["t"]["value"], 21)),
        (
            "/json",
            json!({"json": {"t": "${t}", "text": "t=${t}".replace('=', ":"), "${t}": ["${o}", "${none}"], "prev": "${metadata.t.previousValue}"}}),
            |one| {
                assert_eq!(one.json(), json!({"t": 21, "text": "t:21", "${t}": [{"k": [1]}, null], "prev": 20}));
                assert_eq!(
                    (one.header("content-type"), one.header("ngsiv2-attrsformat")),
                    (Some("application/json; charset=utf-8"), Some("custom"))
                );
            },
        ),
        (
            "/ngsi",
            json!({"ngsi": {"id": "n:${id}", "type": "Copy", "t": {"value": "${s}!", "type": "Text"}, "new": {"value": "${t}"}}}),
            |one| {
                let entity = &one.json()["data"][0];
                assert_eq!((&entity["id"], &entity["type"]), (&json!("n:e"), &json!("Copy")));
                assert_eq!(
                    (&entity["t"]["value"], &entity["new"]),
                    (&json!("a b!"), &json!({"type": "Number", "value": 21, "metadata": {}}))
                );
                assert_eq!(entity["o"]["value"], json!({"k": [1]}));
                assert_eq!(one.header("ngsiv2-attrsformat"), Some("normalized"));
            },
        ),
        (
            "/headers",
            json!({"headers": {"X-${id}": "%22${t}%22", "Accept": "", "Content-Type": "text/x", "Fiware-Correlator": "mine", "X-Auth-Token": ""}, "payload": "x"}),
            |one| {
                assert_eq!((one.header("x-e"), one.header("accept")), (Some("\"21\""), None));
                assert_eq!((one.header("content-type"), one.header("x-auth-token")), (Some("text/x"), None));
                assert_eq!(one.header("fiware-correlator"), Some("c1; cbnotif=6"), "it cannot be overridden");
            },
        ),
    ];
    for (path, custom, _) in &rows {
        let mut custom = custom.clone();
        custom["url"] = json!(receiver.url(path));
        subscribe(&served, "", &to(&receiver, path, "e", Value::Null, &json!({"httpCustom": custom}))).await;
    }
    let custom = json!({"url": receiver.url("/p/${id}"), "qs": {"t": "${t}", "k${id}": "a b"}, "method": "PUT"});
    subscribe(&served, "", &to(&receiver, "", "e", Value::Null, &json!({"httpCustom": custom}))).await;
    let broken =
        subscribe(&served, "", &to(&receiver, "", "e", Value::Null, &json!({"httpCustom": {"url": "${s}"}}))).await;
    let head = "PATCH /v2/entities/e/attrs?options=keyValues\nfiware-correlator: c1\nx-auth-token: secret";
    change(&served, head, r#"{"t":21}"#).await;
    for (path, _, check) in rows {
        check(&receiver.under(path, 1).await[0]);
    }
    assert_eq!(receiver.under("/p/e?t=21&ke=a%20b", 1).await[0].line, "PUT /p/e?t=21&ke=a%20b HTTP/1.1");
    let failed = async || {
        let shown = shown(&served, &broken).await;
        (shown["notification"]["failsCounter"] == 1).then_some(shown)
    };
    let shown = found_by("the failure", failed).await;
    assert!(shown["notification"]["lastFailureReason"].as_str().unwrap().contains("a b"), "{shown}");
    served.stop().await;
    world.close();
    receiver.stop();
}
