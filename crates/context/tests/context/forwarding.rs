//! Queries and updates that are forwarded to context providers: part A of the reference on forwarding, rows A6 to A11.

use std::time::{Duration, Instant};

use axum::response::IntoResponse;
use millstream_context::{ContextConfig, RegistrationsConfig};
use serde_json::{Value, json};

use crate::provider::{Asked, Provider, endless};
use crate::registrations::{register, registration};
use crate::world::{Answer, Registry, Served, World};

async fn create(served: &Served, entity: &str) {
    let answer = served.ask("POST /v2/entities?options=keyValues", Some(entity)).await;
    assert_eq!(answer.status, 201, "{entity}: {}", answer.body);
}

async fn patch(served: &Served, target: &str, body: &str) -> (u16, Option<String>) {
    let answer = served.ask(target, Some(body)).await;
    let error = (answer.status != 204).then(|| answer.json()["error"].as_str().unwrap().to_owned());
    (answer.status, error)
}

/// A provider of one entity with these attributes, all of which have the value of their name. It takes every update.
async fn provider_of(id: &'static str, kind: &'static str, names: &'static [&'static str]) -> Provider {
    Provider::answering(move |asked| {
        let Some(wanted) = asked.body["attrs"].as_array() else { return (204, String::new()) };
        let wanted: Vec<&str> = wanted.iter().map(|it| it.as_str().unwrap()).collect();
        let mut entity = json!({"id": id, "type": kind});
        for name in names.iter().filter(|name| wanted.is_empty() || wanted.contains(name)) {
            entity[*name] = json!({"type": "Text", "value": name, "metadata": {}});
        }
        (200, json!([entity]).to_string())
    })
    .await
}

fn key_values(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// A6, A7: what a provider is asked, and with which headers.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_goes_to_the_provider_with_what_is_registered_and_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let provider = provider_of("e", "T", &["a", "b", "c"]).await;
    let head = "fiware-service: plant\nfiware-servicepath: /x";
    let (all, base) = (json!([{"idPattern": ".*", "type": "T"}]), provider.url(""));
    register(&served, head, &registration(all, &["a", "b"], &base)).await;
    let asked = |target: &str| format!("{target}\n{head}\nfiware-correlator: root\nx-auth-token: secret");
    let answer = served.ask(&asked("GET /v2/entities/e?type=T&options=keyValues"), None).await;
    assert_eq!(key_values(&answer), json!({"id": "e", "type": "T", "a": "a", "b": "b"}));
    let [one] = &provider.take()[..] else { panic!("one request") };
    assert_eq!(one.target, "//op/query?limit=20&offset=0&options=count");
    assert_eq!(one.body, json!({"attrs": ["a", "b"], "entities": [{"id": "e", "type": "T"}]}));
    for (name, value) in [
        ("content-type", "application/json; charset=utf-8"),
        ("accept", "application/json"),
        ("fiware-service", "plant"),
        ("fiware-servicepath", "/x"),
        ("x-auth-token", "secret"),
        ("fiware-correlator", "root; cbfwd=1"),
    ] {
        assert_eq!(one.header(name), Some(value), "{name}");
    }
    assert!(one.header("user-agent").unwrap().starts_with("Millstream/"));
    // Requests, and the entities and attributes that the provider is asked for, if it is.
    for (target, body, expected) in [
        ("GET /v2/entities/e?type=T&attrs=a,c", "", Some((json!([{"id": "e", "type": "T"}]), json!(["a"])))),
        ("GET /v2/entities/e?type=T&attrs=c", "", None),
        ("GET /v2/entities/e?type=T&attrs=dateCreated", "", None),
        ("GET /v2/entities/e/attrs/b?type=T", "", Some((json!([{"id": "e", "type": "T"}]), json!(["b"])))),
        ("GET /v2/entities/e/attrs/b/value?type=T", "", Some((json!([{"id": "e", "type": "T"}]), json!(["b"])))),
        ("GET /v2/entities/e/attrs/c?type=T", "", None),
        ("GET /v2/entities/e/attrs?type=T", "", Some((json!([{"id": "e", "type": "T"}]), json!(["a", "b"])))),
        ("GET /v2/entities?type=T", "", Some((json!([{"idPattern": ".*", "type": "T"}]), json!(["a", "b"])))),
        (
            "GET /v2/entities?type=T&idPattern=e",
            "",
            Some((json!([{"idPattern": ".*", "type": "T"}]), json!(["a", "b"]))),
        ),
        (
            "GET /v2/entities?type=T&id=e,f&attrs=b",
            "",
            Some((json!([{"id": "e", "type": "T"}, {"id": "f", "type": "T"}]), json!(["b"]))),
        ),
        (
            "POST /v2/op/query",
            r#"{"entities":[{"id":"e","type":"T"}],"attrs":["a"]}"#,
            Some((json!([{"id": "e", "type": "T"}]), json!(["a"]))),
        ),
        // A registration with a type meets only requests that name it.
        ("GET /v2/entities/e", "", None),
        ("GET /v2/entities", "", None),
        ("GET /v2/entities?type=U", "", None),
        ("GET /v2/entities?type=T&options=skipForwarding", "", None),
        ("GET /v2/entities?type=T&limit=0", "", None),
        ("GET /v2/entities/e?type=T&options=skipForwarding", "", None),
    ] {
        served.ask(&asked(target), Some(body).filter(|body| !body.is_empty())).await;
        let sent: Vec<(Value, Value)> = provider
            .take()
            .into_iter()
            .map(|mut asked| (asked.body["entities"].take(), asked.body["attrs"].take()))
            .collect();
        assert_eq!(sent.first(), expected.as_ref(), "{target}");
        assert!(sent.len() <= 1, "{target}");
    }
    // Another path, and another tenant.
    for head in ["fiware-service: plant\nfiware-servicepath: /y", "fiware-servicepath: /x"] {
        assert_eq!(served.ask(&format!("GET /v2/entities/e?type=T\n{head}"), None).await.status, 404);
    }
    served.ask("GET /v2/entities?type=T\nfiware-service: plant", None).await;
    let sent = provider.take();
    assert_eq!((sent.len(), sent[0].header("fiware-servicepath")), (1, Some("/x")), "a read of all paths");
    assert_eq!(sent[0].header("x-auth-token"), None);
    served.stop().await;
    world.close();
}

/// Registrations of all types and attributes, of one entity, and modes.
#[tokio::test(flavor = "multi_thread")]
async fn the_claims_and_the_mode_of_a_registration_say_what_is_forwarded() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let provider = provider_of("e", "T", &["a"]).await;
    let any = json!([{"idPattern": ".*"}]);
    let id = register(&served, "", &registration(any.clone(), &[], &provider.url("/base"))).await;
    let take = || {
        let sent: Vec<Value> = provider.take().into_iter().map(|asked| asked.body).collect();
        sent
    };
    for (target, expected) in [
        ("/v2/entities/e", json!({"attrs": [], "entities": [{"id": "e"}]})),
        ("/v2/entities/e?type=T&attrs=x,y", json!({"attrs": ["x", "y"], "entities": [{"id": "e", "type": "T"}]})),
        ("/v2/entities", json!({"attrs": [], "entities": [{"idPattern": ".*"}]})),
        (
            "/v2/entities?type=T,U",
            json!({"attrs": [], "entities":
            [{"idPattern": ".*", "type": "T"}, {"idPattern": ".*", "type": "U"}]}),
        ),
    ] {
        served.get(target).await;
        assert_eq!(take(), [expected], "{target}");
    }
    assert_eq!(provider.take().len(), 0);
    served.ask(&format!("DELETE /v2/registrations/{id}"), None).await;
    for mode in ["none", "update"] {
        let mut body = registration(any.clone(), &[], &provider.url("/base"));
        body["provider"]["supportedForwardingMode"] = mode.into();
        register(&served, "", &body).await;
    }
    let mut body = registration(any, &[], &provider.url("/base"));
    body["expires"] = "2001-01-01T00:00:00Z".into();
    register(&served, "", &body).await;
    assert_eq!(served.get("/v2/entities/e").await.status, 404);
    assert_eq!(take(), [Value::Null; 0], "modes none and update, and one that has expired");
    // An inactive one is at work: its status is shown, and nothing else.
    let mut body = registration(json!([{"id": "e", "type": "T"}]), &["a"], &provider.url("/base"));
    body["status"] = "inactive".into();
    register(&served, "", &body).await;
    assert_eq!(served.get("/v2/entities/e?type=T").await.status, 200);
    assert_eq!(provider.take()[0].target, "/base/op/query?limit=20&offset=0&options=count");
    served.stop().await;
    world.close();
}

/// A8.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_merged_and_local_values_win() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    create(&served, r#"{"id":"e","type":"T","a":{"x":[1,"z"]},"own":1}"#).await;
    let one = provider_of("e", "T", &["a", "b"]).await;
    let two = provider_of("e", "T", &["b", "c"]).await;
    let only = provider_of("f", "T", &["a"]).await;
    let unwanted = provider_of("other", "T", &["a"]).await;
    for (id, provider) in [("e", &one), ("e", &two), ("f", &only), ("e", &unwanted)] {
        register(&served, "", &registration(json!([{"id": id, "type": "T"}]), &[], &provider.url("/v2"))).await;
    }
    let expected = json!({"id": "e", "type": "T", "a": {"x": [1, "z"]}, "own": 1, "b": "b", "c": "c"});
    let answer = served.get("/v2/entities/e?options=keyValues").await;
    assert_eq!(key_values(&answer), expected, "the type of the entity here is the request's");
    let all = served.get("/v2/entities?type=T&options=keyValues,count").await;
    assert_eq!(key_values(&all), json!([expected, {"id": "f", "type": "T", "a": "a"}]));
    assert_eq!(served.get("/v2/entities/e/attrs/c?type=T").await.json()["value"], "c");
    assert_eq!(served.get("/v2/entities/e/attrs/c/value?type=T").await.body, "\"c\"");
    assert_eq!(served.get("/v2/entities/f?type=T&options=values").await.body, r#"["a"]"#);
    // A version tells of the values here alone.
    let local = served.get("/v2/entities/e?options=skipForwarding").await;
    let known = format!("if-none-match: {}", local.header("etag").unwrap());
    for target in ["/v2/entities/e", "/v2/entities/e/attrs", "/v2/entities/e/attrs/c", "/v2/entities/e/attrs/c/value"] {
        let answer = served.ask(&format!("GET {target}\n{known}"), None).await;
        assert_eq!((answer.status, answer.header("etag")), (200, None), "{target}");
    }
    let answer = served.ask(&format!("GET /v2/entities/e?options=skipForwarding\n{known}"), None).await;
    assert_eq!(answer.status, 304);
    // What is here needs no provider.
    one.take();
    assert_eq!(served.get("/v2/entities/e/attrs/a?type=T").await.status, 200);
    assert_eq!(one.take().len(), 0);
    // Nothing anywhere.
    assert_eq!(served.get("/v2/entities/g?type=T").await.status, 404);
    assert_eq!(served.get("/v2/entities/e/attrs/z?type=T").await.status, 404);
    assert_eq!(served.get("/v2/entities?type=U").await.body, "[]");
    served.stop().await;
    world.close();
}

/// A8, A11: whatever a provider does, the answer is as if it had nothing, and comes in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_fails_counts_as_one_that_has_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registrations =
        RegistrationsConfig { timeout_ms: 500, answer_max_bytes: 100_000, ..RegistrationsConfig::default() };
    let config = ContextConfig { registrations, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), std::sync::Arc::new(Registry::default()), config);
    let served = world.serve().await;
    create(&served, r#"{"id":"e","type":"T","a":{"x":[1,"z"]}}"#).await;
    let bodies = [
        (200, String::new()),
        (404, json!({"error": "NotFound"}).to_string()),
        (500, "[]".to_owned()),
        (200, "no JSON".to_owned()),
        (200, "{}".to_owned()),
        (200, "[1,{},{\"id\":7},[],{\"id\":\"e\",\"type\":\"T\",\"b\":5}]".to_owned()),
        (200, format!("[{{\"id\":\"e\",\"type\":\"T\",\"b\":{{\"value\":\"{}\"}}}}]", "x".repeat(5 << 20))),
    ];
    let mut providers = Vec::new();
    for (status, body) in bodies {
        providers.push(Provider::answering(move |_| (status, body.clone())).await);
    }
    providers.push(Provider::serving(|_| async { endless() }).await);
    providers.push(
        Provider::serving(|_| async {
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            ().into_response()
        })
        .await,
    );
    let gone = Provider::answering(|_| (200, String::new())).await.url("");
    let urls: Vec<String> = providers.iter().map(|provider| provider.url("")).chain([gone]).collect();
    for url in &urls {
        register(&served, "", &registration(json!([{"idPattern": ".*", "type": "T"}]), &[], url)).await;
    }
    let begun = Instant::now();
    let answer = served.get("/v2/entities/e?type=T&options=keyValues").await;
    assert_eq!(key_values(&answer), json!({"id": "e", "type": "T", "a": {"x": [1, "z"]}}));
    assert_eq!(served.get("/v2/entities/f?type=T").await.status, 404);
    let answer = served.get("/v2/entities?type=T&options=keyValues,count").await;
    assert_eq!(
        (key_values(&answer), answer.header("fiware-total-count")),
        (json!([{"id": "e", "type": "T", "a": {"x": [1, "z"]}}]), Some("2"))
    );
    assert!(begun.elapsed() < Duration::from_secs(60), "nothing waits for a provider that hangs");
    for asked in providers.iter().map(Provider::take) {
        assert_eq!(asked.len(), 3);
    }
    // The registrations tell of it, where they are asked to.
    let known = served.get("/v2/registrations?options=forwardingInformation").await.json();
    let outcome = |one: &Value| {
        let of = &one["forwardingInformation"];
        assert!(of["timesSent"] == 3 && of["lastForwarding"].is_string(), "{of}");
        let (success, failure) = (of.get("lastSuccess").is_some(), of.get("lastFailure").is_some());
        assert_eq!((success, failure), (of["lastSuccessCode"].is_u64(), of["lastFailureReason"].is_string()), "{of}");
        format!("{} {}", of["lastSuccessCode"], of["lastFailureReason"]).replace("null", "-")
    };
    let outcomes: Vec<String> = known.as_array().unwrap().iter().map(outcome).collect();
    let not_whole = "its answer does not end in time, is broken off, or has more than 100000 bytes";
    let late = "timeout: no answer came in time";
    let expected = ["200 -", "404 -", "- \"the provider answered 500\"", "200 -", "200 -", "200 -"];
    assert_eq!(outcomes[..6], expected);
    assert_eq!(outcomes[6..9], [not_whole, not_whole, late].map(|reason| format!("- {reason:?}")));
    assert!(outcomes[9].starts_with("- \"") && outcomes[9].contains("refused"), "{}", outcomes[9]);
    served.stop().await;
    world.close();
}

/// A9.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_goes_on_at_the_providers() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for n in 0..5 {
        create(&served, &format!(r#"{{"id":"l{n}","type":"T"}}"#)).await;
    }
    let of = async |prefix: &'static str, count: usize| {
        Provider::serving(move |asked: Asked| {
            let number = |name: &str| -> usize {
                let query = asked.target.split_once('?').unwrap().1;
                query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap().parse().unwrap()
            };
            let (limit, offset) = (number("limit="), number("offset="));
            let page: Vec<Value> = (0..count)
                .skip(offset)
                .take(limit)
                .map(|n| json!({"id": format!("{prefix}{n}"), "type": "T"}))
                .collect();
            let total = [("fiware-total-count", count.to_string())];
            std::future::ready((total, Value::from(page).to_string()).into_response())
        })
        .await
    };
    let (one, two) = (of("p", 4).await, of("q", 9).await);
    for provider in [&one, &two] {
        register(&served, "", &registration(json!([{"idPattern": ".*", "type": "T"}]), &[], &provider.url(""))).await;
    }
    let page = |provider: &Provider| {
        let targets: Vec<String> = provider.take().into_iter().map(|asked| asked.target).collect();
        targets.iter().map(|target| target.replace("//op/query?", "").replace("&options=count", "")).collect::<Vec<_>>()
    };
    // limit and offset, what comes, what each provider is asked for, and the total.
    for (target, ids, asked, total) in [
        ("limit=10", "l0 l1 l2 l3 l4 p0 p1 p2 p3 q0", ["limit=5&offset=0", "limit=1&offset=0"], "18"),
        ("limit=7&offset=4", "l4 p0 p1 p2 p3 q0 q1", ["limit=6&offset=0", "limit=2&offset=0"], "18"),
        ("limit=10&offset=6", "p1 p2 p3 q0 q1 q2 q3 q4 q5 q6", ["limit=10&offset=1", "limit=7&offset=0"], "18"),
        ("limit=3&offset=10", "q1 q2 q3", ["limit=3&offset=5", "limit=3&offset=1"], "18"),
        ("limit=3", "l0 l1 l2", ["", ""], "5"),
        ("limit=0", "", ["", ""], "5"),
        ("limit=6", "l0 l1 l2 l3 l4 p0", ["limit=1&offset=0", ""], "9"),
        ("limit=9&offset=30", "", ["limit=9&offset=25", "limit=9&offset=21"], "18"),
    ] {
        let answer = served.get(&format!("/v2/entities?type=T&options=count,keyValues&{target}")).await;
        let found = key_values(&answer);
        let found: Vec<&str> = found.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(found.join(" "), ids, "{target}");
        assert_eq!([page(&one).join(" "), page(&two).join(" ")], asked, "{target}");
        assert_eq!(answer.header("fiware-total-count"), Some(total), "{target}");
    }
    served.stop().await;
    world.close();
}

/// A10.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_of_what_is_not_here_goes_to_its_provider() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    create(&served, r#"{"id":"e","type":"T","own":1}"#).await;
    let answers = |status: u16| Provider::answering(move |_| (status, String::new()));
    // Only 204 tells that it is done.
    let (takes, lacks, fails) = (answers(204).await, answers(404).await, answers(200).await);
    for (attrs, provider) in [(["a", "b"], &takes), (["c", "d"], &lacks), (["f", "g"], &fails)] {
        register(&served, "", &registration(json!([{"id": "e", "type": "T"}]), &attrs, &provider.url(""))).await;
    }
    let normalized = r#"{"a":{"type":"command","value":"on","metadata":{"m":{"type":"Number","value":1}}}}"#;
    assert_eq!(patch(&served, "PATCH /v2/entities/e/attrs\nfiware-correlator: root", normalized).await, (204, None));
    let [one] = &takes.take()[..] else { panic!("one request") };
    assert_eq!((one.target.as_str(), one.header("fiware-correlator")), ("//op/update", Some("root; cbfwd=1")));
    let expected = json!({"actionType": "update", "entities": [{"id": "e", "type": "T",
        "a": {"type": "command", "value": "on", "metadata": {"m": {"type": "Number", "value": 1}}}}]});
    assert_eq!(one.body, expected);
    let no = |error: &str| Some(error.to_owned());
    // The update, its answer, the attributes that each provider gets, and what is here then.
    for (target, body, expected, sent, own) in [
        ("PATCH /v2/entities/e/attrs?type=T", r#"{"a":{"value":1},"b":{"value":2}}"#, (204, None), ["a b", "", ""], 1),
        ("PATCH /v2/entities/e/attrs", r#"{"own":{"value":2},"b":{"value":2}}"#, (204, None), ["b", "", ""], 2),
        (
            "PATCH /v2/entities/e/attrs",
            r#"{"c":{"value":1},"d":{"value":2}}"#,
            (404, no("NotFound")),
            ["", "c d", ""],
            2,
        ),
        ("PATCH /v2/entities/e/attrs", r#"{"f":{"value":1}}"#, (404, no("NotFound")), ["", "", "f"], 2),
        (
            "PATCH /v2/entities/e/attrs",
            r#"{"a":{"value":1},"c":{"value":2}}"#,
            (404, no("PartialUpdate")),
            ["a", "c", ""],
            2,
        ),
        (
            "PATCH /v2/entities/e/attrs",
            r#"{"own":{"value":3},"c":{"value":2},"f":{"value":3}}"#,
            (404, no("PartialUpdate")),
            ["", "c", "f"],
            3,
        ),
        (
            "PATCH /v2/entities/e/attrs",
            r#"{"a":{"value":3},"nobody":{"value":2}}"#,
            (404, no("PartialUpdate")),
            ["a", "", ""],
            3,
        ),
        ("PATCH /v2/entities/e/attrs", r#"{"nobody":{"value":2}}"#, (422, no("Unprocessable")), ["", "", ""], 3),
        ("PUT /v2/entities/e/attrs/a", r#"{"value":7}"#, (204, None), ["a", "", ""], 3),
        ("PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain", "7", (204, None), ["a", "", ""], 3),
        ("PUT /v2/entities/e/attrs/c", r#"{"value":7}"#, (404, no("NotFound")), ["", "c", ""], 3),
        ("PUT /v2/entities/e/attrs/own", r#"{"value":4}"#, (204, None), ["", "", ""], 4),
        (
            "POST /v2/op/update",
            r#"{"actionType":"update","entities":[{"id":"e","type":"T","own":{"value":5},"a":{"value":1}}]}"#,
            (204, None),
            ["a", "", ""],
            5,
        ),
        (
            "POST /v2/op/update",
            r#"{"actionType":"update","entities":[{"id":"e","type":"T","c":{"value":5},"a":{"value":1}}]}"#,
            (404, no("PartialUpdate")),
            ["a", "c", ""],
            5,
        ),
        // Other actions create what is not here.
        (
            "POST /v2/op/update",
            r#"{"actionType":"append","entities":[{"id":"n","type":"T","a":{"value":5}}]}"#,
            (204, None),
            ["", "", ""],
            5,
        ),
    ] {
        assert_eq!(patch(&served, target, body).await, expected, "{target} {body}");
        let names = |provider: &Provider| {
            let sent = provider.take();
            let of = |asked: &Asked| {
                let members = asked.body["entities"][0].as_object().unwrap().keys().skip(2).cloned();
                members.collect::<Vec<_>>().join(" ")
            };
            sent.iter().map(of).collect::<Vec<_>>().join(" | ")
        };
        assert_eq!([names(&takes), names(&lacks), names(&fails)], sent, "{target} {body}");
        assert_eq!(served.get("/v2/entities/e/attrs/own?options=skipForwarding").await.json()["value"], own, "{body}");
    }
    // An entity that nobody here has.
    register(&served, "", &registration(json!([{"id": "far", "type": "T"}]), &[], &takes.url("/v2"))).await;
    assert_eq!(patch(&served, "PATCH /v2/entities/far/attrs?type=T", r#"{"z":{"value":1}}"#).await, (204, None));
    assert_eq!(takes.take()[0].target, "/v2/op/update");
    // The registration has a type, and neither the request nor an entity here tells one.
    assert_eq!(patch(&served, "PATCH /v2/entities/far/attrs", r#"{"z":{"value":1}}"#).await, (404, no("NotFound")));
    served.stop().await;
    world.close();
}

/// A10, over two brokers; and brokers that name each other do not run in a circle.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_on_over_two_brokers_and_a_circle_ends() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let worlds = [World::open(dirs[0].path()), World::open(dirs[1].path())];
    let (first, second) = (worlds[0].serve().await, worlds[1].serve().await);
    let last = provider_of("e", "T", &["a"]).await;
    let claims = json!([{"id": "e", "type": "T"}]);
    register(&first, "", &registration(claims.clone(), &["a"], &format!("http://{}/v2", second.address))).await;
    register(&second, "", &registration(claims.clone(), &["a"], &last.url(""))).await;
    let answer = first.ask("GET /v2/entities/e?type=T&options=keyValues\nfiware-correlator: root", None).await;
    assert_eq!(key_values(&answer), json!({"id": "e", "type": "T", "a": "a"}));
    assert_eq!(last.take()[0].header("fiware-correlator"), Some("root; cbfwd=1"));
    let circle = json!([{"id": "c", "type": "T"}]);
    for (broker, other) in [(&first, &second), (&second, &first)] {
        register(broker, "", &registration(circle.clone(), &[], &format!("http://{}/v2", other.address))).await;
    }
    let begun = Instant::now();
    assert_eq!(first.get("/v2/entities/c?type=T").await.status, 404);
    assert_eq!(patch(&first, "PATCH /v2/entities/c/attrs?type=T", r#"{"x":{"value":1}}"#).await.0, 404);
    assert!(begun.elapsed() < Duration::from_secs(4), "a circle ends before any of its requests is given up");
    first.stop().await;
    second.stop().await;
    worlds.into_iter().for_each(|world| drop(world.close()));
}

/// A11.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_as_many_forwards_as_the_setting_allows() {
    let provider = provider_of("e", "T", &["a"]).await;
    for limit in [0, 1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let registrations = RegistrationsConfig { forward_limit: limit, ..RegistrationsConfig::default() };
        let config = ContextConfig { registrations, ..ContextConfig::default() };
        let world = World::open_with(dir.path(), std::sync::Arc::new(Registry::default()), config);
        let served = world.serve().await;
        for path in ["/1", "/2", "/3"] {
            register(&served, "", &registration(json!([{"id": "e", "type": "T"}]), &[], &provider.url(path))).await;
        }
        served.get("/v2/entities/e?type=T").await;
        assert_eq!(provider.take().len(), limit);
        let updated = patch(&served, "PATCH /v2/entities/e/attrs?type=T", r#"{"x":{"value":1}}"#).await;
        assert_eq!((updated.0, provider.take().len()), if limit == 0 { (404, 0) } else { (204, 1) });
        // An update for two providers, and for this server and one.
        create(&served, r#"{"id":"l","type":"T","own":1}"#).await;
        for (attr, path) in [("x", "/4"), ("y", "/5")] {
            register(&served, "", &registration(json!([{"id": "l", "type": "T"}]), &[attr], &provider.url(path))).await;
        }
        for (body, forwards) in
            [(r#"{"x":{"value":1},"y":{"value":1}}"#, 2), (r#"{"own":{"value":2},"x":{"value":1}}"#, 1)]
        {
            let (status, error) = patch(&served, "PATCH /v2/entities/l/attrs", body).await;
            assert_eq!(provider.take().len(), forwards.min(limit), "{body}");
            let is_done_in_part = limit > 0 || body.contains("own");
            match error.as_deref() {
                None => assert!(status == 204 && forwards <= limit, "{limit} {body}"),
                Some("PartialUpdate") => {
                    assert!(status == 404 && forwards > limit && is_done_in_part, "{limit} {body}")
                }
                other => assert!(status == 404 && other == Some("NotFound") && !is_done_in_part, "{limit} {body}"),
            }
        }
        served.stop().await;
        world.close();
    }
}
