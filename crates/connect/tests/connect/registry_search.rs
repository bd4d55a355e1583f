//! Search over tenants and devices.

use serde_json::{Value, json};

use crate::world::World;

/// Parameters of a search; the ids on its page, and the total.
type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], u64);

/// The ids on a page, and the total.
fn found(answer: &Value) -> (Vec<&str>, u64) {
    let result = answer["result"].as_array().unwrap();
    (result.iter().map(|found| found["id"].as_str().unwrap()).collect(), answer["total"].as_u64().unwrap())
}

/// A query whose values are URL-encoded.
fn query(path: &str, parameters: &[(&str, &str)]) -> String {
    let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let parameters: Vec<_> = parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    format!("GET {path}?{}", parameters.join("&"))
}

async fn with_devices(world: &World) {
    world.do_registry("POST /v1/tenants/T", "", 201).await;
    for (id, body) in [
        ("a", json!({"ext": {"id": "x1", "n": 3}})),
        ("b", json!({"ext": {"id": "x2", "n": 20}, "enabled": false})),
        ("c", json!({"ext": {"id": "x33"}})),
        ("d", json!({"via": ["a"], "ext": {"n": 1.5}})),
        ("e", json!({"memberOf": ["roof"]})),
    ] {
        world.do_registry(&format!("POST /v1/devices/T/{id}"), &body.to_string(), 201).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_found_by_filter_in_order_and_by_page() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    with_devices(&world).await;
    let by_id = ("filterJson", r#"{"field":"/ext/id","op":"eq","value":"x*"}"#);
    let short = ("filterJson", r#"{"field":"/ext/id","value":"x?"}"#);
    let enabled = ("filterJson", r#"{"field":"/enabled","value":true}"#);
    let by_number = ("sortJson", r#"{"field":"/ext/n","direction":"desc"}"#);
    let down = ("sortJson", r#"{"field":"/id","direction":"desc"}"#);
    let table: [Row<'_>; 13] = [
        (&[], &["a", "b", "c", "d", "e"], 5),
        (&[("pageSize", "2")], &["a", "b"], 5),
        (&[("pageSize", "2"), ("pageOffset", "4")], &["e"], 5),
        (&[("pageSize", "0")], &[], 5),
        (&[("pageOffset", "9")], &[], 5),
        (&[by_id], &["a", "b", "c"], 3),
        (&[short, enabled], &["a"], 1),
        (&[by_number], &["b", "a", "d", "c", "e"], 5),
        (&[("sortJson", r#"{"field":"/enabled"}"#), down], &["b", "e", "d", "c", "a"], 5),
        (&[by_id, down, ("pageSize", "1"), ("pageOffset", "1")], &["b"], 3),
        (&[("isGateway", "true")], &["a", "e"], 2),
        (&[("isGateway", "false")], &["b", "c", "d"], 3),
        (&[("isGateway", "true"), by_id], &["a"], 1),
    ];
    for (parameters, ids, total) in table {
        let line = query("/v1/devices/T", parameters);
        let answer = world.do_registry(&line, "", 200).await.json();
        assert_eq!(found(&answer), (ids.to_vec(), total), "{parameters:?}");
    }
    let answer = world.do_registry(&query("/v1/devices/T", &[by_id, ("pageSize", "1")]), "", 200).await.json();
    let device = &answer["result"][0];
    assert_eq!((&device["ext"]["id"], &device["enabled"]), (&json!("x1"), &json!(true)));
    assert!(device["status"]["created"].is_string(), "{device}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_without_result_are_answered_404_and_junk_400() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    with_devices(&world).await;
    for (path, name, value, status, told, rule) in [
        ("/v1/devices/T", "filterJson", r#"{"field":"/ext/id","value":"y*"}"#, 404, "0 results", "answered 404"),
        ("/v1/tenants", "filterJson", r#"{"field":"/alias","value":"*"}"#, 404, "0 results", "answered 404"),
        ("/v1/devices/U", "pageSize", "1", 404, "U", "created before"),
        ("/v1/devices/T", "pageSize", "-1", 400, "-1", "0 to 200"),
        ("/v1/devices/T", "pageSize", "201", 400, "201", "0 to 200"),
        ("/v1/tenants", "pageOffset", "-100", 400, "-100", "0 or more"),
        ("/v1/devices/T", "filterJson", "junk", 400, "junk", "filterJson is like"),
        ("/v1/devices/T", "filterJson", r#"{"field":"ext","value":1}"#, 400, "ext", "filterJson is like"),
        ("/v1/devices/T", "filterJson", r#"{"field":"/ext","value":{}}"#, 400, "/ext", "filterJson is like"),
        ("/v1/devices/T", "filterJson", r#"{"field":"/ext","op":"gt","value":1}"#, 400, "gt", "filterJson is like"),
        ("/v1/tenants", "sortJson", r#"{"field":"/id","direction":"up"}"#, 400, "up", "direction asc or desc"),
        ("/v1/devices/T", "isGateway", "maybe", 400, "maybe", "true or false"),
        ("/v1/tenants", "isGateway", "true", 400, "isGateway", "pageSize, pageOffset"),
    ] {
        let line = query(path, &[(name, value)]);
        world.registry(&line, &[], "").await.expect_refusal(&line, "", status, told, rule);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_of_all_partitions_are_found_and_many_devices_by_a_thread_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for number in 0..12 {
        let body = json!({"ext": {"n": number}}).to_string();
        world.do_registry(&format!("POST /v1/tenants/t{number:02}"), &body, 201).await;
    }
    let sorted = ("sortJson", r#"{"field":"/ext/n","direction":"desc"}"#);
    let line = query("/v1/tenants", &[sorted, ("pageSize", "3"), ("pageOffset", "1")]);
    let answer = world.do_registry(&line, "", 200).await.json();
    assert_eq!(found(&answer), (vec!["t10", "t09", "t08"], 13), "default is one, too");
    for number in 0..300 {
        world.do_registry(&format!("POST /v1/devices/t00/d{number:03}"), "", 201).await;
    }
    let line = query("/v1/devices/t00", &[("filterJson", r#"{"field":"/id","value":"d?99"}"#)]);
    let answer = world.do_registry(&line, "", 200).await.json();
    assert_eq!(found(&answer), (vec!["d099", "d199", "d299"], 3));
    world.stop().await;
}
