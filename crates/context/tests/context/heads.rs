//! Requests that the fast head reads and requests that hyper reads are answered alike.

use crate::world::{Answer, Served, World};

const ENTITY: &str = r#"{"id":"r1","type":"Room","t":{"value":1,"metadata":{"m":{"value":2}}},"name":{"value":"x"}}"#;

/// Head and body; each is asked of the same state by both heads.
const REQUESTS: [(&str, Option<&str>); 50] = [
    ("PATCH /v2/entities/r1/attrs", Some(r#"{"t":{"value":5}}"#)),
    ("PATCH /v2/entities/r1/attrs?options=keyValues", Some(r#"{"t":6}"#)),
    ("PATCH /v2/entities/r1/attrs?type=Room&options=overrideMetadata", Some(r#"{"t":{"value":7}}"#)),
    ("PATCH /v2/entities/r1/attrs?type=Other", Some(r#"{"t":{"value":5}}"#)),
    ("PATCH /v2/entities/r1/attrs?colour=red", Some(r#"{"t":{"value":5}}"#)),
    ("PATCH /v2/entities/r1/attrs", Some(r#"{"other":{"value":5}}"#)),
    ("PATCH /v2/entities/r1/attrs", Some(r#"{"other":{"value":5},"t":{"value":8}}"#)),
    ("PATCH /v2/entities/r1/attrs", Some(r#"{"t":{"value":}}"#)),
    ("PATCH /v2/entities/r1/attrs", Some("{}")),
    ("PATCH /v2/entities/r1/attrs", Some("")),
    ("PATCH /v2/entities/r1/attrs", None),
    ("PATCH /v2/entities/r1/attrs\ncontent-type: text/plain", Some(r#"{"t":{"value":5}}"#)),
    ("PATCH /v2/entities/nobody/attrs", Some(r#"{"t":{"value":5}}"#)),
    ("PATCH /v2/entities/r(1/attrs", Some(r#"{"t":{"value":5}}"#)),
    ("PATCH /v2/entities/r1/attrs\nif-match: \"1-1\"", Some(r#"{"t":{"value":5}}"#)),
    ("PATCH /v2/entities/r1/attrs\nif-match: *", Some(r#"{"t":{"value":9}}"#)),
    ("PATCH /v2/entities/r1/attrs\nfiware-servicepath: /a", Some(r#"{"t":{"value":5}}"#)),
    ("PATCH /v2/entities/r1/attrs\nfiware-servicepath: /a/#", Some(r#"{"t":{"value":5}}"#)),
    ("POST /v2/entities/r1/attrs?options=append", Some(r#"{"t":{"value":5}}"#)),
    ("POST /v2/entities/r1/attrs", Some(r#"{"new":{"value":[1,{"a":null}]}}"#)),
    ("PUT /v2/entities/r1/attrs/t", Some(r#"{"value":10,"type":"Kelvin"}"#)),
    ("PUT /v2/entities/r1/attrs/none", Some(r#"{"value":10}"#)),
    ("PUT /v2/entities/r1/attrs/t/value\ncontent-type: text/plain", Some("11")),
    ("PUT /v2/entities/r1/attrs/t/value\ncontent-type: text/plain", Some("eleven")),
    ("PUT /v2/entities/r1/attrs/new/value", Some("[2]")),
    ("PUT /v2/entities/r1/attrs/new/value\ncontent-type: image/png", Some("[2]")),
    ("GET /v2/entities/r1", None),
    ("GET /v2/entities/r1?options=keyValues&attrs=new,t", None),
    ("GET /v2/entities/r1?colour=red", None),
    ("GET /v2/entities/nobody", None),
    ("GET /v2/entities/r1\naccept: text/html", None),
    ("GET /v2/entities/r1\nif-none-match: *", None),
    ("GET /v2/entities/r1\nfiware-servicepath: a", None),
    ("GET /v2/entities/r1\nfiware-servicepath: /a\nfiware-servicepath: /b", None),
    ("GET /v2/entities/%72%31", None),
    ("GET /v2/entities/r%ff", None),
    ("GET /v2/entities/r1/", None),
    ("GET /v2/entities/r1/attrs", None),
    ("GET /v2/entities/r1/attrs/t", None),
    ("GET /v2/entities/r1/attrs/none", None),
    ("GET /v2/entities/r1/attrs/t/value", None),
    ("GET /v2/entities/r1/attrs/new/value\naccept: application/json", None),
    ("PUT /v2/entities/r1/attrs", Some(r#"{"t":{"value":12}}"#)),
    ("POST /v2/entities", Some(r#"{"id":"r2","type":"Room","t":{"value":1}}"#)),
    ("POST /v2/entities", Some(r#"{"id":"r2","type":"Room"}"#)),
    ("POST /v2/entities?options=keyValues,upsert", Some(r#"{"id":"r2","type":"Room","t":2}"#)),
    ("DELETE /v2/entities/r1/attrs/t", None),
    ("DELETE /v2/entities/r1/attrs/t", None),
    ("DELETE /v2/entities/r2", None),
    ("DELETE /v2/entities/r2", None),
];

#[tokio::test(flavor = "multi_thread")]
async fn both_heads_answer_alike() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for tenant in ["fast", "hyper"] {
        let head = format!("POST /v2/entities\nfiware-service: {tenant}");
        assert_eq!(served.ask(&head, Some(ENTITY)).await.status, 201);
    }
    let mut statuses = std::collections::BTreeSet::new();
    for (head, body) in REQUESTS {
        let common = if head.contains('\n') { head.to_owned() } else { format!("{head}\n") };
        let headers = "fiware-correlator: c1";
        let fast = served.ask_kept(&format!("{common}\n{headers}\nfiware-service: Fast"), body).await;
        let hyper = format!("{common}\n{headers}\nfiware-service: Hyper\nexpect: 100-continue");
        let hyper = served.ask_kept(&hyper, body).await;
        let (fast, hyper) = (seen(&fast), seen(&hyper));
        assert_eq!(fast, hyper, "{head} {body:?}");
        statuses.insert(fast.0);
    }
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [200, 201, 204, 304, 400, 404, 406, 411, 412, 415, 422]);
    bodies_are_kept_apart(&served).await;
    served.stop().await;
    world.close();
}

/// A tenant that is no tenant is told so by both heads.
async fn bodies_are_kept_apart(served: &Served) {
    for other in ["", "\nexpect: 100-continue"] {
        let refused = served.ask_kept(&format!("GET /v2/entities/r1\nfiware-service: a-b{other}"), None).await;
        assert_eq!(refused.status, 400, "{other}");
        let nobody = served.ask_kept(&format!("GET /v2/entities/r1\nfiware-service: third{other}"), None).await;
        assert_eq!(nobody.status, 404, "{other}");
    }
}

/// Returns the parts that must be equal: all but the time, the name of a version, and whether the connection goes on, which it
/// does not after a refusal whose client had asked whether to send the body.
fn seen(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let is_free = |name: &str| matches!(name, "date" | "etag");
    let mut headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .filter(|(name, _)| name != "connection")
        .map(|(name, value)| (name.clone(), if is_free(name) { String::new() } else { value.clone() }))
        .collect();
    headers.sort();
    // The tag stands in the refusal of a version.
    let body = answer.body.split("has the version").next().unwrap_or_default();
    (answer.status, headers, body.to_owned())
}
