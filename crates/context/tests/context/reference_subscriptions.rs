//! More rows of sections 14 to 16 of the reference: what a subscription may say, and what is sent for it.

use millstream_testkit::eventually_async;
use serde_json::{Value, json};

use crate::notifications::{change, to};
use crate::receiver::{Received, Receiver};
use crate::refusals::{ask, check};
use crate::subscriptions::{patch, subscribe};
use crate::world::World;

/// A subscription with these members of `notification` and `condition` beside a plain target.
pub(crate) fn of(notification: Value, condition: Value) -> Value {
    let mut body = json!({"subject": {"entities": [{"id": "e"}]}, "notification": {"http": {"url": "http://h/"}}});
    for (at, given) in [("/notification", notification), ("/subject", condition)] {
        let (Some(known), Value::Object(given)) = (body.pointer_mut(at).and_then(Value::as_object_mut), given) else {
            unreachable!()
        };
        if given.keys().any(|name| name.starts_with("http") || name.starts_with("mqtt")) {
            known.shift_remove("http");
        }
        known.extend(given);
    }
    body
}

/// A plain subscription with these members beside subject and notification.
fn of_top(members: Value) -> Value {
    let mut body = of(json!({}), json!({}));
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

fn custom(fields: Value) -> Value {
    let mut fields = fields;
    fields["url"] = json!("http://h/");
    of(json!({"httpCustom": fields}), json!({}))
}

fn mqtt(name: &str, fields: Value) -> Value {
    let mut fields = fields;
    (fields["url"], fields["topic"]) = (json!("mqtt://h:1"), json!("t"));
    of(json!({name: fields}), json!({}))
}

/// Section, subscription, and what its refusal names; none if it is taken.
fn fields() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let condition = |condition: Value| of(json!({}), json!({"condition": condition}));
    let notified = |members: Value| of(members, json!({}));
    let priority = |given: Value| custom(json!({"ngsi": {"a": {"value": 1, "metadata": {"evalPriority": given}}}}));
    let long = |bytes: usize| "x".repeat(bytes);
    let topic = |name: &str, topic: &str| notified(json!({name: {"url": "mqtt://h:1", "topic": topic}}));
    let timeout = |ms: Value| notified(json!({"http": {"url": "http://h/", "timeout": ms}}));
    let mut rows = vec![
        (
            "§14.1 expression: a geo triple, all",
            condition(json!({"expression": {"georel": "equals", "geometry": "point", "coords": "1,2"}})),
            None,
        ),
        (
            "§12 expression: lists have values of one kind",
            condition(json!({"expression": {"q": "a!=true,5"}})),
            Some("one kind"),
        ),
        (
            "§13 expression: near has a distance",
            condition(json!({"expression": {"georel": "near", "geometry": "point", "coords": "1,2"}})),
            Some("no distance"),
        ),
        (
            "§14.1 expression: or nothing",
            condition(json!({"expression": {"georel": "equals", "geometry": "point"}})),
            Some("come together"),
        ),
        ("§14.1 expression: mq", condition(json!({"expression": {"mq": "t"}})), Some("no metadata")),
        (
            "§14.1 expression: q may have some of the forbidden characters",
            condition(json!({"expression": {"q": "t=='a;b'"}})),
            None,
        ),
        (
            "§14.1 expression: q may not have brackets",
            condition(json!({"expression": {"q": "t=='(;)'"}})),
            Some("< > ( )"),
        ),
        ("§4 attrs of a condition, each once", condition(json!({"attrs": ["a", "a"]})), Some("'a' twice")),
        ("§4 attrs of a notification, each once", notified(json!({"attrs": ["a", "b", "a"]})), Some("'a' twice")),
        ("§4 exceptAttrs, each once", notified(json!({"exceptAttrs": ["a", "a"]})), Some("'a' twice")),
        ("§14.1 expires: after 1970", of_top(json!({"expires": "1969-12-31T23:59:59Z"})), Some("before 1970")),
        ("§14.1 expires: a zone with a point", of_top(json!({"expires": "2050-01-01T00:00:00+01.00"})), None),
        ("§14.2 url: a host's name", notified(json!({"http": {"url": "http://.bad/"}})), Some("'.bad'")),
        ("§14.2 url: parts of a host's name", notified(json!({"http": {"url": "http://a-.b/"}})), Some("'a-.b'")),
        (
            "§14.2 url: a container's name",
            notified(json!({"http": {"url": "http://quantum_leap:8668/v2/notify"}})),
            None,
        ),
        (
            "§14.2 mqtt: a host's name",
            notified(json!({"mqtt": {"url": "mqtt://a..b:1", "topic": "t"}})),
            Some("'a..b'"),
        ),
        (
            "§7 patterns of ids and types have groups",
            json!({"subject": {"entities": [{"idPattern": "^(a|b)$", "typePattern": "^(T=;'\"<>)?$"}]},
                "notification": {"http": {"url": "http://h/"}}}),
            None,
        ),
        (
            "§7 ids have none of these characters",
            json!({"subject": {"entities": [{"id": "(a)"}]}, "notification": {"http": {"url": "http://h/"}}}),
            Some("(a)"),
        ),
        ("§14.1 attrs of a condition are names", condition(json!({"attrs": ["a b"]})), Some("a b")),
        ("§14.1 alterationTypes: none named, the default", condition(json!({"alterationTypes": []})), None),
        ("§14.1 alterationTypes: text", condition(json!({"alterationTypes": "entityCreate"})), Some("alterationTypes")),
        ("§14.1 attrs of a notification are names", notified(json!({"attrs": ["a;b"]})), Some("a;b")),
        ("§14.1 onlyChangedAttrs", notified(json!({"onlyChangedAttrs": "yes"})), Some("onlyChangedAttrs")),
        ("§14.1 metadata", notified(json!({"metadata": "m"})), Some("metadata")),
        ("§14.1 maxFailsLimit: whole", notified(json!({"maxFailsLimit": 1.5})), Some("maxFailsLimit")),
        ("§14.1 maxFailsLimit: positive", notified(json!({"maxFailsLimit": -1})), Some("maxFailsLimit")),
        ("§7 timeout 0 is the default", timeout(json!(0)), None),
        ("§7 timeout, the longest", timeout(json!(1_800_000)), None),
        ("§7 timeout, a text", timeout(json!("5")), Some("timeout")),
        ("§7 quotes in headers", custom(json!({"headers": {"x": "\"a\" 'b'"}})), None),
        ("§7 nothing else in headers", custom(json!({"headers": {"x": "a<b"}})), Some("a<b")),
        ("§7 nor in qs", custom(json!({"qs": {"x": "a\"b"}})), Some("a\"b")),
        ("§14.2 headers are texts", custom(json!({"headers": {"x": 1}})), Some("'x'")),
        ("§14.2 a header's name", custom(json!({"headers": {"x y": "1"}})), Some("x y")),
        (
            "§7 ngsi: any character in id, type and values",
            custom(json!({"ngsi": {"id": "f(${id})", "type": "<t>", "a": {"value": "x=(y)", "type": "Text"}}})),
            None,
        ),
        (
            "§16.1 ngsi: not in types of attributes",
            custom(json!({"ngsi": {"a": {"value": 1, "type": "a b"}}})),
            Some("a b"),
        ),
        (
            "§16.1 ngsi: evalPriority",
            custom(json!({"ngsi": {"a": {"value": 1, "metadata": {"evalPriority": {"value": 1, "type": "Number"}}}}})),
            None,
        ),
        ("§16.1 ngsi: the last evalPriority", priority(json!({"value": 100_000})), None),
        ("§16.1 ngsi: evalPriority 0", priority(json!({"value": 0})), Some("100000")),
        ("§16.1 ngsi: evalPriority beyond the last", priority(json!({"value": 100_001})), Some("100001")),
        ("§16.1 ngsi: evalPriority, a part", priority(json!({"value": 1.5})), Some("1.5")),
        ("§16.1 ngsi: evalPriority, a text", priority(json!({"value": "1"})), Some("evalPriority")),
        ("§16.1 ngsi: evalPriority without a value", priority(json!(1)), Some("evalPriority")),
        ("§16.1 ngsi beside json", custom(json!({"ngsi": {}, "json": {}})), Some("exclude each other")),
        ("§16.1 ngsi is an object", custom(json!({"ngsi": []})), Some("ngsi")),
        ("§16.1 json: an array", custom(json!({"json": ["${t}"]})), None),
        ("§16.1 json: null", custom(json!({"json": null})), Some("json")),
        ("§14.2 mqtt retain", mqtt("mqtt", json!({"retain": "yes"})), Some("retain")),
        ("§14.2 mqtt qos", mqtt("mqtt", json!({"qos": 1.5})), Some("qos")),
        ("§14.2 mqtt: the longest login", mqtt("mqtt", json!({"user": long(65_535), "passwd": long(65_535)})), None),
        ("§14.2 mqtt: a longer user", mqtt("mqtt", json!({"user": long(65_536), "passwd": "p"})), Some("65536 bytes")),
        (
            "§14.2 mqtt: a longer passwd",
            mqtt("mqtt", json!({"user": "u", "passwd": long(70_000)})),
            Some("70000 bytes"),
        ),
        ("§14.2 mqtt: the longest topic", topic("mqtt", &long(65_535)), None),
        ("§14.2 mqtt: a longer topic", topic("mqtt", &long(65_536)), Some("65536 bytes")),
        ("§14.2 mqttCustom: a longer topic", topic("mqttCustom", &long(65_536)), Some("65536 bytes")),
        ("§14.2 mqtt passwd without user", mqtt("mqtt", json!({"passwd": "p"})), Some("come together")),
        ("§14.2 mqtt has no payload of its own", mqtt("mqtt", json!({"payload": "x"})), None),
        ("§14.2 mqttCustom: qs", mqtt("mqttCustom", json!({"qs": {"a": "b"}})), None),
        ("§14.2 mqttCustom: method", mqtt("mqttCustom", json!({"method": "POST"})), None),
        ("§14.2 mqttCustom: ngsi", mqtt("mqttCustom", json!({"ngsi": {"a": {"value": "${t}"}}})), None),
        ("§14.2 http has no method", notified(json!({"http": {"url": "http://h/", "method": "PUT"}})), None),
        (
            "§14.2 two targets",
            notified(json!({"http": {"url": "http://h/"}, "httpCustom": {"url": "http://h/"}})),
            Some("exactly one"),
        ),
    ];
    for method in ["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT"] {
        rows.push(("§14.2 httpCustom: method", custom(json!({"method": method})), None));
    }
    for counter in
        ["lastNotification", "lastSuccess", "lastSuccessCode", "lastFailure", "lastFailureReason", "failsCounter"]
    {
        rows.push(("§14.1 counters are read only", of(json!({counter: 1}), json!({})), None));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_is_taken_or_refused_as_section_14_says() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for (row, body, refused) in fields() {
        let what = format!("{row}: {body}");
        let answer = ask(&served, "POST /v2/subscriptions", Some(&body.to_string())).await;
        match refused {
            None => assert_eq!(answer.status, 201, "{what}: {answer:?}"),
            Some(named) => check(&answer, 400, "BadRequest", named, &what),
        }
    }
    served.stop().await;
    world.close();
}

/// §3.2: the path header of GET and PATCH; §14.2: a password is shown by no answer.
#[tokio::test(flavor = "multi_thread")]
async fn the_service_path_matters_to_reads_not_to_patches_and_passwords_are_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let secret = json!({"user": "u", "passwd": "secret"});
    let id = subscribe(&served, "fiware-servicepath: /a", &mqtt("mqtt", secret.clone())).await;
    subscribe(&served, "", &mqtt("mqttCustom", secret)).await;
    for (path, status) in [("/a", 200), ("/a/", 200), ("/#", 200), ("/b", 404), ("/a/#", 404), ("/", 404), ("a", 400)] {
        let head = format!("GET /v2/subscriptions/{id}\nfiware-servicepath: {path}");
        assert_eq!(ask(&served, &head, None).await.status, status, "{path}");
    }
    let head = format!("PATCH /v2/subscriptions/{id}\nfiware-servicepath: /b");
    assert_eq!(ask(&served, &head, Some(r#"{"throttling":9}"#)).await.status, 204);
    let list = served.get("/v2/subscriptions").await;
    assert_eq!((list.json()[0]["throttling"].clone(), list.body.matches("*****").count()), (json!(9), 2), "{list:?}");
    let refused = patch(&served, &id, &json!({"notification": {"mqtt": {"user": "u", "passwd": "secret"}}})).await;
    for answer in [list, served.get(&format!("/v2/subscriptions/{id}")).await, refused] {
        assert!(!answer.body.contains("secret"), "{answer:?}");
    }
    served.stop().await;
    world.close();
}

const ENTITY: &str =
    r#"{"id":"e","type":"Room","t":{"type":"Celsius","value":20,"metadata":{"m":{"value":1}}},"s":{"value":"x"}}"#;
/// The change: an operator, another type, and a new attribute.
const CHANGE: &str = r#"{"t":{"type":"Kelvin","value":{"$inc":1}},"n":{"value":null}}"#;

/// Section, members of the notification or of a custom target, and what has come of it.
type Sent = (&'static str, Value, fn(&Received) -> Value, Value);

fn sent() -> Vec<Sent> {
    let simple = |attrs: Value| json!({"attrsFormat": "simplifiedKeyValues", "attrs": attrs});
    let normal = |metadata: Value| json!({"attrsFormat": "simplifiedNormalized", "attrs": ["t"], "metadata": metadata});
    let whole: fn(&Received) -> Value = |one| json!(one.body);
    let of_t: fn(&Received) -> Value = |one| one.json()["t"]["metadata"].clone();
    let entity: fn(&Received) -> Value = |one| one.json()["data"][0].clone();
    vec![
        (
            "§7 * stands for what attrs does not name",
            simple(json!(["t", "*"])),
            whole,
            json!(r#"{"id":"e","type":"Room","t":21,"s":"x","n":null}"#),
        ),
        (
            "§14.1 covered: what is not there is null",
            json!({"attrsFormat": "simplifiedKeyValues", "attrs": ["x", "t"], "covered": true}),
            whole,
            json!(r#"{"id":"e","type":"Room","x":null,"t":21}"#),
        ),
        (
            "§8 a built-in alone",
            simple(json!(["servicePath"])),
            whole,
            json!(r#"{"id":"e","type":"Room","servicePath":"/"}"#),
        ),
        (
            "§7 nothing stands twice: metadata",
            normal(json!(["m", "m", "actionType", "actionType"])),
            whole,
            json!(
                r#"{"id":"e","type":"Room","t":{"type":"Kelvin","value":21,"metadata":{"m":{"type":"Number","value":1},"actionType":{"type":"Text","value":"update"}}}}"#
            ),
        ),
        (
            "§7 nothing stands twice: id and type are no attributes",
            json!({"attrsFormat": "simplifiedKeyValues", "attrs": ["id", "type", "t"], "covered": true}),
            whole,
            json!(r#"{"id":"e","type":"Room","t":21}"#),
        ),
        (
            "§8 previousValue has the old type",
            normal(json!(["previousValue"])),
            of_t,
            json!({"previousValue": {"type": "Celsius", "value": 20}}),
        ),
        (
            "§8 dateCreated and dateModified of an attribute",
            normal(json!(["dateCreated", "dateModified"])),
            |one| {
                let metadata = one.json()["t"]["metadata"].clone();
                let at = |name: &str| metadata[name]["value"].as_str().unwrap().to_owned();
                json!([
                    at("dateCreated") < at("dateModified"),
                    metadata["dateCreated"]["type"],
                    metadata.as_object().unwrap().len()
                ])
            },
            json!([true, "DateTime", 2]),
        ),
        (
            "§8 dateCreated and dateModified of the entity",
            simple(json!(["dateCreated", "dateModified"])),
            |one| {
                let body = one.json();
                json!(body["dateCreated"].as_str().unwrap() < body["dateModified"].as_str().unwrap())
            },
            json!(true),
        ),
        (
            "§8 the built-ins named hide all of the user's",
            simple(json!(["alterationType"])),
            whole,
            json!(r#"{"id":"e","type":"Room","alterationType":"entityChange"}"#),
        ),
        (
            "§10 an operator notifies its result",
            json!({}),
            |one| one.json()["data"][0]["t"].clone(),
            json!({"type": "Kelvin", "value": 21, "metadata": {"m": {"type": "Number", "value": 1}}}),
        ),
        (
            "§16.1 what cannot be overridden",
            json!({"httpCustom": {"headers": {"Ngsiv2-AttrsFormat": "mine", "FIWARE-CORRELATOR": "", "x": "\"q\""}, "payload": "x"}}),
            |one| {
                let correlator = one.header("fiware-correlator").unwrap().starts_with("c1; cbnotif=");
                json!([one.header("ngsiv2-attrsformat"), correlator, one.header("x")])
            },
            json!(["custom", true, "\"q\""]),
        ),
        (
            "§16.1 default headers are removed by an empty text",
            json!({"httpCustom": {"headers": {"user-agent": "", "fiware-servicepath": "", "content-type": ""}, "payload": "x"}}),
            |one| {
                json!([
                    one.header("user-agent"),
                    one.header("fiware-servicepath"),
                    one.header("content-type"),
                    one.body
                ])
            },
            json!([null, null, null, "x"]),
        ),
        (
            "§16.1 payload: its type is text/plain unless headers say otherwise",
            json!({"httpCustom": {"headers": {"Content-Type": "text/${s}"}, "payload": "x"}}),
            |one| json!(one.header("content-type")),
            json!("text/x"),
        ),
        (
            "§16.1 payload: its text is UTF-8, and its type says so",
            json!({"httpCustom": {"payload": "x"}}),
            |one| json!(one.header("content-type")),
            json!("text/plain; charset=utf-8"),
        ),
        (
            "§16.1 json: its text is UTF-8, and its type says so",
            json!({"httpCustom": {"json": []}}),
            |one| json!(one.header("content-type")),
            json!("application/json; charset=utf-8"),
        ),
        (
            "§16.1 ngsi: id and type are text",
            json!({"httpCustom": {"ngsi": {"id": "${t}", "type": "${n}"}}, "attrs": ["s"]}),
            entity,
            json!({"id": "21", "type": "null", "s": {"type": "Text", "value": "x", "metadata": {}}}),
        ),
        (
            "§16.1 ngsi: no macros in keys or types; any character in values",
            json!({"httpCustom": {"ngsi": {"a${t}": {"value": "x=(${t})", "type": "T${t}"}}}, "attrs": ["a${t}"]}),
            entity,
            json!({"id": "e", "type": "Room", "a${t}": {"type": "T${t}", "value": "x=(21)", "metadata": {}}}),
        ),
        (
            "§16.1 ngsi: a value keeps its JSON type",
            json!({"httpCustom": {"ngsi": {"a": {"value": ["${t}", "${n}", "${none}"]}}}, "attrs": ["a"]}),
            entity,
            json!({"id": "e", "type": "Room", "a": {"type": "StructuredValue", "value": [21, null, null], "metadata": {}}}),
        ),
        (
            "§16.1 json: an array",
            json!({"httpCustom": {"json": ["${t}", "${s}${t}", true]}}),
            whole,
            json!(r#"[21,"x21",true]"#),
        ),
        (
            "§16.1 qs: an empty value",
            json!({"httpCustom": {"qs": {"a": "", "b": "c d&e"}, "payload": null}}),
            |one| json!(one.line.split_once('?').unwrap().1),
            json!("a=&b=c%20d%26e HTTP/1.1"),
        ),
        (
            "§16.1 qs: one of which nothing is there is left out; within a text it is null",
            json!({"httpCustom": {"qs": {"a": "${none}", "${none}": "a", "b": "${t}", "c": "${none}-${t}", "d": "${n}"}, "payload": null}}),
            |one| json!(one.line.split_once('?').unwrap().1),
            json!("b=21&c=null%2D21&d=null HTTP/1.1"),
        ),
        (
            "§16.1 headers: one of which nothing is there is left out; within a text it is null",
            json!({"httpCustom": {"headers": {"a": "${none}", "b": "x${none}", "accept": "${none}"}, "payload": "x"}}),
            |one| json!([one.header("a"), one.header("b"), one.header("accept")]),
            json!([null, "xnull", "application/json"]),
        ),
        (
            "§16.1 a text, and a part of JSON: what is missing is null",
            json!({"httpCustom": {"json": ["${none}", "-${none}-", "${none}${none}"]}}),
            whole,
            json!(r#"[null,"-null-","nullnull"]"#),
        ),
        (
            "§16.1 ngsi: id and type of which nothing is there stay the entity's",
            json!({"httpCustom": {"ngsi": {"id": "${none}", "type": "${none}"}}, "attrs": ["s"]}),
            entity,
            json!({"id": "e", "type": "Room", "s": {"type": "Text", "value": "x", "metadata": {}}}),
        ),
        (
            "§8 previousValue is on all attributes that were there before",
            json!({"attrsFormat": "simplifiedNormalized", "metadata": ["previousValue"]}),
            |one| {
                let body = one.json();
                json!(["t", "s", "n"].map(|name| body[name]["metadata"]["previousValue"]["value"].clone()))
            },
            json!([20, "x", null]),
        ),
        (
            "§8 previousValue of what a patch sets is the entity's own",
            json!({"httpCustom": {"ngsi": {"s": {"value": "y"}, "new": {"value": 1}}}, "attrs": ["s", "new"], "metadata": ["previousValue"]}),
            |one| {
                let entity = one.json()["data"][0].clone();
                json!([entity["s"]["value"], entity["s"]["metadata"], entity["new"]["metadata"]])
            },
            json!(["y", {"previousValue": {"type": "Text", "value": "x"}}, {}]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_notification_has_the_content_of_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    change(&served, "POST /v2/entities", ENTITY).await;
    crate::world::next_millisecond();
    let rows = sent();
    for (at, (_, notification, ..)) in rows.iter().enumerate() {
        let mut notification = notification.clone();
        if let Some(custom) = notification.get_mut("httpCustom") {
            custom["url"] = json!(receiver.url(&format!("/{at}")));
        }
        subscribe(&served, "", &to(&receiver, &format!("/{at}"), "e", Value::Null, &notification)).await;
    }
    change(&served, "POST /v2/entities/e/attrs\nfiware-correlator: c1\nx-auth-token: t", CHANGE).await;
    for (at, (row, _, said, expected)) in rows.iter().enumerate() {
        let begins = |one: &Received| one.path().split('?').next() == Some(&format!("/{at}"));
        eventually_async(row, || receiver.received().iter().any(begins)).await;
        let one = receiver.received().into_iter().find(begins).unwrap();
        assert_eq!(said(&one), *expected, "{row}: {one:?}");
    }
    served.stop().await;
    world.close();
    receiver.stop();
}

/// §14.2: each method is the one that is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_custom_target_is_asked_by_its_method() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let methods = ["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"];
    let mut receivers = Vec::new();
    for method in methods {
        let receiver = Receiver::start().await;
        let fields = json!({"url": receiver.url("/m"), "method": method.to_ascii_lowercase(), "payload": "t ${t}"});
        subscribe(&served, "", &to(&receiver, "", "e", Value::Null, &json!({"httpCustom": fields}))).await;
        receivers.push(receiver);
    }
    change(&served, "POST /v2/entities?options=keyValues", r#"{"id":"e","t":1}"#).await;
    for (method, receiver) in methods.into_iter().zip(receivers) {
        let one = receiver.under("/m", 1).await.remove(0);
        assert_eq!((one.line, one.body), (format!("{method} /m HTTP/1.1"), "t 1".to_owned()));
        receiver.stop();
    }
    served.stop().await;
    world.close();
}

/// §15.1, §15.2: a batch gives one notification for each entity and subscription, of the entity after its whole change.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_notifies_once_for_each_entity_and_subscription() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    for path in ["/a", "/b"] {
        let mut body = to(&receiver, path, "x", Value::Null, &json!({"attrsFormat": "keyValues"}));
        body["subject"]["entities"] = json!([{"idPattern": "^e"}, {"id": "e1"}]);
        subscribe(&served, "", &body).await;
    }
    let batch = json!({"actionType": "append", "entities": [{"id": "e1", "a": 1, "b": 2}, {"id": "e2", "a": 1}, {"id": "f", "a": 1}]});
    change(&served, "POST /v2/op/update?options=keyValues", &batch.to_string()).await;
    for path in ["/a", "/b"] {
        let received = receiver.under(path, 2).await;
        let mut data: Vec<Value> = received.iter().map(|one| one.json()["data"].clone()).collect();
        data.sort_by_key(Value::to_string);
        assert_eq!(
            data,
            [json!([{"id": "e1", "type": "Thing", "a": 1, "b": 2}]), json!([{"id": "e2", "type": "Thing", "a": 1}])]
        );
    }
    assert_eq!(receiver.received().len(), 4, "and nothing else was sent");
    served.stop().await;
    world.close();
    receiver.stop();
}
