//! Expressions in subscriptions: part B of the reference on forwarding, rows B1 and B4 to B7, with a real receiver.

use serde_json::{Value, json};

use crate::notifications::{change, to};
use crate::receiver::Receiver;
use crate::subscriptions::{patch, shown, subscribe};
use crate::world::{Served, World};

const CREATE: &str = "POST /v2/entities";
const UPDATE: &str = "PATCH /v2/entities/e/attrs";
const ENTITY: &str = r#"{"id":"e","type":"Room","t":{"value":20},"A":{"value":1},"B":{"value":5},"A-B":{"value":"lost"},
    "A:B":{"value":"lost"},"n":{"value":null},"s":{"value":"Hi there"},"o":{"value":{"k":[1,2]}},
    "rooms":{"value":[{"b":1},{"b":7},{"b":"x"},{}]},"metadata":{"value":"lost"},
    "at":{"type":"DateTime","value":"2024-08-01T08:15:29.500Z"}}"#;
/// Changes `t`, with a metadata item.
const WARMER: &str = r#"{"t":{"value":21,"metadata":{"m":{"value":7}}}}"#;

struct Site {
    world: World,
    served: Served,
    receiver: Receiver,
}

impl Site {
    /// A site with the entity in it.
    async fn open(dir: &std::path::Path) -> Self {
        let world = World::open(dir);
        let (served, receiver) = (world.serve().await, Receiver::start().await);
        change(&served, CREATE, ENTITY).await;
        Self { world, served, receiver }
    }

    /// Subscribes to the entity with a custom target that has these fields.
    async fn custom(&self, path: &str, fields: Value) -> String {
        let mut target = json!({"url": self.receiver.url(path)});
        target.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let body = to(&self.receiver, path, "e", Value::Null, &json!({"httpCustom": target}));
        subscribe(&self.served, "", &body).await
    }

    async fn close(self) {
        self.served.stop().await;
        self.world.close();
        self.receiver.stop();
    }
}

/// B1.
#[tokio::test(flavor = "multi_thread")]
async fn an_expression_may_stand_in_each_field_of_a_custom_target() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::open(dir.path()).await;
    site.custom(
        "/of/${s|lowercase|replaceStr(' ','-')}",
        json!({
            "qs": {"${'a' + 'b'}": "${t * 2}", "none": "${none + 1}"},
            "headers": {"x-${s|len|toString}": "${\"q\" + s|lowercase}", "x-none": "${none + 1}"},
            "payload": "${t > 20 ? 'warm' : 'cold'}, ${{a: o.k[0], b: [A, n]}|toString} at ${rooms[.b < 5]|len}",
        }),
    )
    .await;
    // Characters that are forbidden elsewhere may be encoded.
    site.custom("/encoded", json!({"payload": "%28${s%7Csubstring%280,2%29}%29 ${s|substring(0,2)}"})).await;
    change(&site.served, UPDATE, WARMER).await;
    let one = site.receiver.under("/of/hi-there?ab=42", 1).await.remove(0);
    assert_eq!(one.path(), "/of/hi-there?ab=42");
    assert_eq!((one.header("x-8"), one.header("x-none")), (Some("qhi there"), None));
    assert_eq!(one.body, r#"warm, {"a":1,"b":[1,null]} at 1"#);
    assert_eq!(site.receiver.under("/encoded", 1).await[0].body, "(Hi) Hi");
    site.close().await;
}

/// B4, B5.
#[tokio::test(flavor = "multi_thread")]
async fn an_expression_knows_what_the_reference_names_and_is_null_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::open(dir.path()).await;
    let rows = [
        // Keeps its type alone, and is text within a text.
        ("${t + 1}", json!(22)),
        ("x ${t + 1}", json!("x 22")),
        ("${t > 20}", json!(true)),
        ("${o.k}", json!([1, 2])),
        ("${none + 1}", json!(null)),
        ("x ${none + 1}", json!("x null")),
        // The null rule.
        ("${t +}", json!(null)),
        ("${t|nothing}", json!(null)),
        ("${t + n}", json!(null)),
        ("${A||-1}", json!(null)),
        ("${A||0}", json!(1)),
        ("${none||'x'}", json!("x")),
        ("${n||'x'}", json!("x")),
        ("${none==null?1:2}", json!(2)),
        ("${n==null?1:2}", json!(1)),
        // Names with signs in them are no names.
        ("${A-B}", json!(-4)),
        ("${A:B}", json!(null)),
        // Attributes that the update left alone, and what is no attribute.
        ("${B * 2}", json!(10)),
        ("${id + '/' + type}", json!("e/Room")),
        ("${servicePath + service}", json!("/")),
        ("${metadata.t.m + 1}", json!(8)),
        ("${t - metadata.t.previousValue}", json!(1)),
        ("${A - metadata.A.previousValue}", json!(0)),
        ("${metadata.t.actionType|uppercase}", json!("UPDATE")),
        ("${metadata.none.m + 1}", json!(null)),
        ("${(at|getTime)|toIsoString}", json!("2024-08-01T08:15:29+00:00")),
        ("${(0|now) > 1700000000}", json!(true)),
    ];
    let template: Vec<&str> = rows.iter().map(|(given, _)| *given).collect();
    site.custom("/json", json!({"json": template})).await;
    change(&site.served, UPDATE, WARMER).await;
    let told = site.receiver.under("/json", 1).await[0].json();
    for ((given, expected), told) in rows.iter().zip(told.as_array().unwrap()) {
        assert_eq!(told, expected, "{given}");
    }
    // On creation there was nothing before.
    let body = to(&site.receiver, "/new", "new", Value::Null, &json!({}));
    let mut body = body;
    let json =
        json!(["${metadata.t.previousValue}", "${t - metadata.t.previousValue}", "${metadata.t.actionType + ''}"]);
    body["notification"] = json!({"httpCustom": {"url": site.receiver.url("/new"), "json": json}});
    subscribe(&site.served, "", &body).await;
    change(&site.served, CREATE, r#"{"id":"new","type":"Room","t":{"value":1}}"#).await;
    assert_eq!(site.receiver.under("/new", 1).await[0].json(), json!([null, null, "append"]));
    site.close().await;
}

/// B6.
#[tokio::test(flavor = "multi_thread")]
async fn attributes_of_a_patch_are_evaluated_by_priority_and_see_those_before() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::open(dir.path()).await;
    let of = |value: &str, priority: Option<u32>| match priority {
        None => json!({"value": value}),
        Some(number) => json!({"value": value, "metadata": {"evalPriority": {"value": number, "type": "Number"}}}),
    };
    let chain = json!({
        "id": "${id}:${c}", "type": "${type|uppercase}", "last": of("${c + 1}", None), "c": of("${b * 10}", Some(3)),
        "b": of("${a + 1}", Some(2)), "a": of("${t + 1}", Some(1)),
    });
    // Of one priority, none sees another.
    let swap = json!({"A": of("${B}", None), "B": of("${A}", None)});
    let turns = json!({"x": of("${t}", Some(1)), "t": of("${t + 1}", Some(2)), "y": of("${t}", Some(100_000))});
    let mut ids = Vec::new();
    for (path, ngsi, more) in [
        ("/values", &chain, json!({"attrsFormat": "values", "attrs": ["c", "last"]})),
        ("/simple", &chain, json!({"attrsFormat": "simplifiedKeyValues", "attrs": ["c"]})),
        ("/key", &chain, json!({"attrsFormat": "keyValues", "attrs": ["c", "absent"], "covered": true})),
        ("/turns", &turns, json!({"attrsFormat": "simplifiedKeyValues", "attrs": ["x", "t", "y"]})),
        ("/swap", &swap, json!({"attrsFormat": "values", "attrs": ["A", "B"]})),
        ("/changed", &turns, json!({"attrsFormat": "simplifiedKeyValues", "onlyChangedAttrs": true})),
        ("/whole", &turns, json!({"attrs": ["x", "t"]})),
    ] {
        let mut notification = more;
        notification["httpCustom"] = json!({"url": site.receiver.url(path), "ngsi": ngsi});
        let body = to(&site.receiver, path, "e", Value::Null, &notification);
        ids.push(subscribe(&site.served, "", &body).await);
    }
    change(&site.served, UPDATE, WARMER).await;
    assert_eq!(site.receiver.under("/swap", 1).await[0].json()["data"], json!([[5, 1]]));
    let mut told = Vec::new();
    for path in ["/values", "/simple", "/key", "/turns", "/changed", "/whole"] {
        told.push(site.receiver.under(path, 1).await[0].json());
    }
    assert_eq!(told[0]["data"], json!([[230, 231]]));
    let patched = json!({"id": "e:230", "type": "ROOM", "c": 230});
    assert_eq!(told[1], patched);
    assert_eq!(told[2]["data"][0], json!({"id": "e:230", "type": "ROOM", "c": 230, "absent": null}));
    let turned = json!({"id": "e", "type": "Room", "x": 21, "t": 22, "y": 22});
    assert_eq!(told[3], turned);
    assert_eq!(told[4], turned);
    let with = |value: u32, priority: u32, more: Value| {
        let mut metadata = more;
        metadata["evalPriority"] = json!({"type": "Number", "value": priority});
        json!({"type": "Number", "value": value, "metadata": metadata})
    };
    let x = with(21, 1, json!({}));
    let t = with(22, 2, json!({"m": {"type": "Number", "value": 7}}));
    assert_eq!(told[5]["data"][0], json!({"id": "e", "type": "Room", "x": x, "t": t}));
    let seen = shown(&site.served, &ids[6]).await["notification"]["httpCustom"]["ngsi"]["x"]["metadata"].clone();
    assert_eq!(seen, json!({"evalPriority": {"type": "Number", "value": 1}}));
    site.close().await;
}

/// B7.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_in_jexl_holds_only_if_it_is_true() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::open(dir.path()).await;
    let simple = json!({"attrsFormat": "simplifiedKeyValues", "attrs": ["t"]});
    let jexl = |expression: &str, more: Value| {
        let mut condition = more;
        condition["jexlExpression"] = json!(expression);
        condition
    };
    let deleted = json!({"alterationTypes": ["entityDelete"]});
    let rows = [
        (jexl("t > 20", json!({})), vec!["21"]),
        (jexl("t > 20 && id == 'e' && s|len == 8", json!({})), vec!["21"]),
        (jexl("t - metadata.t.previousValue == 1", json!({})), vec!["21"]),
        (jexl("t == 19 || B == 5", json!({})), vec!["21", "19"]),
        // Neither what counts as true, nor anything that fails.
        (jexl("t", json!({})), vec![]),
        (jexl("1", json!({})), vec![]),
        (jexl("'X'", json!({})), vec![]),
        (jexl("none > 1", json!({})), vec![]),
        (jexl("t >", json!({})), vec![]),
        // Together with the other conditions.
        (jexl("t > 0", json!({"attrs": ["A"]})), vec![]),
        (jexl("t > 0", json!({"expression": {"q": "t<20"}})), vec!["19"]),
        (jexl("t == 19", json!({"expression": {"q": "t>20"}})), vec![]),
        // What is deleted is as it was.
        (jexl("t == 19", deleted.clone()), vec!["19"]),
        (jexl("t == 21", deleted), vec![]),
    ];
    let mut ids = Vec::new();
    for (at, (condition, _)) in rows.iter().enumerate() {
        let body = to(&site.receiver, &format!("/{at}"), "e", condition.clone(), &simple);
        ids.push(subscribe(&site.served, "", &body).await);
    }
    let condition = shown(&site.served, &ids[0]).await["subject"]["condition"].clone();
    assert_eq!(condition["jexlExpression"], "t > 20");
    let refused = |expression: Value| {
        let condition = json!({"jexlExpression": expression});
        to(&site.receiver, "/no", "e", condition, &simple)
    };
    for expression in [json!(1), json!(null), json!(""), json!({"a": 1})] {
        let answer = site.served.ask("POST /v2/subscriptions", Some(&refused(expression).to_string())).await;
        assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some("BadRequest")), "{}", answer.body);
    }
    change(&site.served, UPDATE, WARMER).await;
    change(&site.served, UPDATE, r#"{"t":{"value":19}}"#).await;
    change(&site.served, "DELETE /v2/entities/e", "").await;
    // A subscription that all changes fire, so that all others have been looked at before.
    for (at, (condition, expected)) in rows.iter().enumerate() {
        let told = site.receiver.under(&format!("/{at}"), expected.len()).await;
        let told: Vec<String> = told.iter().map(|one| one.json()["t"].to_string()).collect();
        assert_eq!(told, *expected, "{condition}");
    }
    // A PATCH replaces it with the rest of the subject.
    let body = json!({"subject": {"entities": [{"id": "e"}], "condition": {"jexlExpression": "t == 5"}}});
    assert_eq!(patch(&site.served, &ids[0], &body).await.status, 204);
    change(&site.served, CREATE, r#"{"id":"e","type":"Room","t":{"value":30}}"#).await;
    change(&site.served, UPDATE, r#"{"t":{"value":5}}"#).await;
    let told = site.receiver.under("/0", 2).await;
    assert_eq!(told[1].json()["t"], 5);
    site.close().await;
}

/// The work of one notification's expressions is bounded, and that of one change.
#[tokio::test(flavor = "multi_thread")]
async fn expressions_that_take_long_are_null_and_hold_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::open(dir.path()).await;
    let fields = json!({"json": vec!["${big|replaceStr('a','b')|len}"; 1_000]});
    for at in 0..30 {
        site.custom(&format!("/heavy/{at}"), fields.clone()).await;
    }
    // One without expressions, and one whose condition would hold if there was time for it.
    subscribe(&site.served, "", &to(&site.receiver, "/plain", "e", Value::Null, &json!({}))).await;
    let late = json!({"jexlExpression": "t == 20"});
    subscribe(&site.served, "", &to(&site.receiver, "/late", "e", late, &json!({}))).await;
    let mut other = to(&site.receiver, "/other", "e", Value::Null, &json!({}));
    other["notification"] = json!({"httpCustom": {"url": site.receiver.url("/other"), "json": ["${t + 1}"]}});
    subscribe(&site.served, "fiware-service: other", &other).await;
    let big = json!({"big": {"value": "a".repeat(100_000)}}).to_string();
    change(&site.served, "POST /v2/entities/e/attrs", &big).await;
    let of_other = format!("{CREATE}\nfiware-service: other");
    change(&site.served, &of_other, r#"{"id":"e","type":"Room","t":{"value":1}}"#).await;
    assert_eq!(site.receiver.under("/other", 1).await[0].json(), json!([2]));
    let mut whole = 0;
    for at in 0..30 {
        let told = site.receiver.under(&format!("/heavy/{at}"), 1).await[0].json();
        let values = told.as_array().unwrap();
        let some = values.iter().take_while(|value| **value == 100_000).count();
        assert!(some < 100 && values[some..].iter().all(Value::is_null), "{some} of {}", values.len());
        whole += usize::from(some > 0);
    }
    assert!((5..=15).contains(&whole), "{whole} notifications of the change have values");
    assert_eq!(site.receiver.under("/plain", 1).await.len(), 1);
    // Each that was cut short counts, whether it was told or not; one without expressions does not.
    let told = site.receiver.received().iter().filter(|one| one.path() == "/late").count();
    let counted = format!("millstream_notifications_over_budget_total {}", 31 - told);
    assert!(site.world.metrics.text().contains(&counted), "{counted}");
    site.close().await;
}
