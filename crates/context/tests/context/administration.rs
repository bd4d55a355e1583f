//! Routes for operators: section 18 of the reference.

use std::sync::Arc;

use millstream_context::ContextConfig;
use millstream_http::{ApiToken, ApiTokens, Authenticator, RoleName};
use millstream_testkit::found_by;
use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;

use crate::notifications::{change, to};
use crate::receiver::Receiver;
use crate::refusals::{ask, check};
use crate::subscriptions::subscribe;
use crate::world::{Registry, Served, World};

const CREATE: &str = "POST /v2/entities?options=upsert,keyValues";

async fn metrics(served: &Served, query: &str) -> Value {
    served.get(&format!("/admin/metrics{query}")).await.json()
}

/// A request, the service and subservice that it counts on, and whether it counts as an error.
const ROWS: [(&str, Option<&str>, &str, &str, bool); 9] = [
    (CREATE, Some(r#"{"id":"a"}"#), "default-service", "root-subserv", false),
    ("GET /v2/entities\nfiware-servicepath: /#", None, "default-service", "root-subserv", false),
    ("GET /v2/entities\nfiware-service: T1", None, "t1", "root-subserv", false),
    ("GET /v2/entities\nfiware-service: t1\nfiware-servicepath: /A/#", None, "t1", "A", false),
    ("GET /v2/entities\nfiware-service: t1\nfiware-servicepath: /A/B/", None, "t1", "A/B", false),
    ("GET /v2/entities\nfiware-service: t1\nfiware-servicepath: /A, /B", None, "t1", "A", false),
    ("GET /v2/entities/none\nfiware-service: t1\nfiware-servicepath: /A", None, "t1", "A", true),
    ("GET /v2/entities?options=fast\nfiware-service: t2\nfiware-servicepath: /C", None, "t2", "C", true),
    ("POST /v2/entities\nfiware-service: t2\nfiware-servicepath: /C", Some("{"), "t2", "C", true),
];

/// §18.1: the tree, its keys, what counts where, on either way that a request may take.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_by_service_and_subservice() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let mut expected: Vec<(String, [u64; 4])> = Vec::new();
    for is_kept in [false, true] {
        for (head, body, service, subservice, is_error) in ROWS {
            let answer = if is_kept { served.ask_kept(head, body).await } else { served.ask(head, body).await };
            assert_eq!(answer.status >= 400, is_error, "{head}: {answer:?}");
            let pointer = format!("/services/{service}/subservs/{}", subservice.replace('/', "~1"));
            let bytes = [body.map_or(0, str::len) as u64, answer.body.len() as u64];
            let more = [1, bytes[0], bytes[1], u64::from(is_error)];
            match expected.iter_mut().find(|(known, _)| *known == pointer) {
                Some((_, counted)) => counted.iter_mut().zip(more).for_each(|(all, more)| *all += more),
                None => expected.push((pointer, more)),
            }
        }
    }
    for head in ["GET /v2/entities\nfiware-service: a-b", "GET /v2/entities\nfiware-servicepath: nowhere"] {
        assert_eq!(served.ask(head, None).await.status, 400, "{head}");
    }
    let shown = metrics(&served, "?reset=true").await;
    let names = ["", "RequestSize", "ResponseSize", "Errors"].map(|name| match name {
        "" => "incomingTransactions".to_owned(),
        name => format!("incomingTransaction{name}"),
    });
    let mut sum = [0; 4];
    for (pointer, counted) in &expected {
        let found = shown.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {shown}"));
        assert!(found["serviceTime"].as_f64().unwrap() > 0.0, "{found}");
        for ((name, counted), sum) in names.iter().zip(counted).zip(&mut sum) {
            let expected = if *counted > 0 { json!(counted) } else { Value::Null };
            assert_eq!(found.get(name).cloned().unwrap_or_default(), expected, "{pointer} {name}: {found}");
            *sum += counted;
        }
    }
    assert_eq!(shown["services"]["t1"]["sum"]["incomingTransactions"], 10);
    for (name, sum) in names.iter().zip(sum) {
        assert_eq!(shown["sum"]["sum"][name], sum, "malformed tenants and paths are not counted: {name}");
    }
    // The paths of one name in all services together.
    let of_all = |path: &str| shown["sum"]["subservs"][path]["incomingTransactions"].as_u64();
    assert_eq!(
        ["root-subserv", "A", "A~B", "A/B", "C"].map(of_all),
        [Some(6), Some(6), None, Some(2), Some(4)],
        "{shown}"
    );
    // Read and reset in one step: what is left are empty branches, and the request itself.
    let after = metrics(&served, "").await;
    assert_eq!(after["services"]["t1"], json!({"subservs": {"root-subserv": {}, "A": {}, "A/B": {}}, "sum": {}}));
    assert_eq!(after["sum"]["sum"]["incomingTransactions"], 1, "{after}");
    assert_eq!(served.ask("DELETE /admin/metrics", None).await.status, 204);
    assert_eq!(metrics(&served, "").await["sum"]["sum"]["incomingTransactions"], 1);
    let head = "GET /admin/metrics?reset=maybe";
    check(&ask(&served, head, None).await, 400, "BadRequest", "maybe", head);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_are_outgoing_transactions_of_their_subscriptions_path() {
    let dir = tempfile::tempdir().unwrap();
    let config = ContextConfig { stat_notif_queue: true, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let (served, receiver) = (world.serve().await, Receiver::start().await);
    let head = "fiware-service: t1\nfiware-servicepath: /A/#";
    subscribe(&served, head, &to(&receiver, "/n", "e", Value::Null, &json!({}))).await;
    let mut lost = to(&receiver, "/n", "e", Value::Null, &json!({"http": {"url": "http://127.0.0.1:1/"}}));
    lost["notification"]["delivery"] = json!({"retry": "never"});
    subscribe(&served, "fiware-service: t1", &lost).await;
    change(&served, &format!("{CREATE}\nfiware-service: t1\nfiware-servicepath: /A"), r#"{"id":"e"}"#).await;
    let received = receiver.under("/n", 1).await.remove(0);
    let both_are_sent = async || {
        let shown = metrics(&served, "").await["services"]["t1"].clone();
        (shown["sum"]["outgoingTransactions"] == 2).then_some(shown)
    };
    let shown = found_by("both notifications", both_are_sent).await;
    let a = &shown["subservs"]["A"];
    assert_eq!((&a["outgoingTransactions"], a.get("outgoingTransactionErrors")), (&json!(1), None));
    assert_eq!(a["outgoingTransactionRequestSize"], received.body.len());
    assert_eq!(a["outgoingTransactionResponseSize"], "ok".len());
    assert_eq!(shown["subservs"]["root-subserv"]["outgoingTransactionErrors"], 1, "{shown}");
    // The same in the block notifQueue of /statistics.
    let both_are_counted = async || {
        let queue = served.get("/statistics").await.json()["notifQueue"].clone();
        (queue["sentOk"] == 1 && queue["sentError"] == 1).then_some(queue)
    };
    let queue = found_by("both notifications in the queue", both_are_counted).await;
    assert_eq!((&queue["in"], &queue["out"], &queue["reject"]), (&json!(2), &json!(2), &json!(0)), "{queue}");
    assert_eq!(queue["size"], 0);
    assert!(queue["timeInQueue"].is_f64() && queue["avgTimeInQueue"].is_f64(), "{queue}");
    served.stop().await;
    world.close();
    receiver.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_that_are_switched_off_or_full_count_no_further_places() {
    for (metrics_max, services) in [(0, json!({})), (1, json!(["a"]))] {
        let dir = tempfile::tempdir().unwrap();
        let config = ContextConfig { metrics_max, ..ContextConfig::default() };
        let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
        let served = world.serve().await;
        for tenant in ["a", "b", "c"] {
            assert_eq!(served.ask(&format!("GET /v2/entities\nfiware-service: {tenant}"), None).await.status, 200);
        }
        let shown = metrics(&served, "").await;
        let names: Vec<&String> = shown["services"].as_object().unwrap().keys().collect();
        assert_eq!(json!(names).as_array().unwrap().len(), services.as_array().map_or(0, Vec::len), "{shown}");
        assert_eq!(shown["sum"]["sum"].get("incomingTransactions"), (metrics_max > 0).then_some(&json!(3)), "{shown}");
        served.stop().await;
        world.close();
    }
}

/// §18.2: GET and PUT of the level, Orion's names, the other three values.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_looked_at_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let shown =
        |level: &str| json!({"level": level, "infoPayloadMaxSize": 5_120, "lineMaxSize": 32_768, "deprecate": false});
    assert_eq!(served.get("/admin/log").await.json(), shown("WARN"));
    for (given, level, name) in [
        ("NONE", LevelFilter::OFF, "NONE"),
        ("FATAL", LevelFilter::ERROR, "ERROR"),
        ("ERROR", LevelFilter::ERROR, "ERROR"),
        ("WARN", LevelFilter::WARN, "WARN"),
        ("Warning", LevelFilter::WARN, "WARN"),
        ("INFO", LevelFilter::INFO, "INFO"),
        ("debug", LevelFilter::DEBUG, "DEBUG"),
    ] {
        assert_eq!(served.ask(&format!("PUT /admin/log?level={given}"), None).await.status, 200, "{given}");
        let found = *world.log_level.lock();
        assert_eq!((found, served.get("/admin/log").await.json()), (level, shown(name)));
    }
    let head = "PUT /admin/log?infoPayloadMaxSize=7&lineMaxSize=8&deprecate=true";
    assert_eq!(served.ask(head, None).await.status, 200);
    let expected = json!({"level": "DEBUG", "infoPayloadMaxSize": 7, "lineMaxSize": 8, "deprecate": true});
    assert_eq!(served.get("/admin/log").await.json(), expected);
    for (head, named) in [
        ("PUT /admin/log", "nothing is to be changed"),
        ("PUT /admin/log?level=LOUD", "LOUD"),
        ("PUT /admin/log?level=WARNINGS", "WARNINGS"),
        ("PUT /admin/log?level=INFO&lineMaxSize=0", "lineMaxSize"),
        ("PUT /admin/log?infoPayloadMaxSize=-1", "-1"),
        ("PUT /admin/log?deprecate=maybe", "maybe"),
        ("PUT /admin/log?colour=red", "name at least one"),
    ] {
        check(&ask(&served, head, None).await, 400, "BadRequest", named, head);
    }
    assert_eq!(served.get("/admin/log").await.json(), expected, "what is wrong changes nothing");
    // What Orion has of its own internals is taken and has nothing to tell.
    for (head, expected) in [
        ("GET /log/trace", json!({"tracelevels": "empty"})),
        ("GET /log/trace/5", json!({"tracelevels": "empty"})),
        ("PUT /log/trace/1-5,8", json!({})),
        ("DELETE /log/trace/1-5", json!({})),
        ("PUT /log/trace", json!({})),
        ("DELETE /log/trace", json!({})),
        ("GET /admin/sem", json!({})),
    ] {
        let answer = served.ask(head, None).await;
        assert_eq!((answer.status, answer.json()), (200, expected), "{head}");
    }
    served.stop().await;
    world.close();
}

/// The members of the block `timing`.
const TIMED: [&str; 3] = ["jsonV2Parse", "render", "total"];

/// Every request that has a body or an answer of its own takes time to read the one and to write the other.
#[tokio::test(flavor = "multi_thread")]
async fn reading_bodies_and_writing_answers_takes_time_in_every_request_that_has_some() {
    let dir = tempfile::tempdir().unwrap();
    let config = ContextConfig { stat_timing: true, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let served = world.serve().await;
    let subscription =
        json!({"subject": {"entities": [{"id": "none"}]}, "notification": {"http": {"url": "http://h/"}}});
    let id = subscribe(&served, "", &subscription).await;
    let [one, patched] = [format!("/v2/subscriptions/{id}"), json!({"description": "d"}).to_string()];
    let entity = r#"{"id":"e","type":"T","a":{"value":1}}"#;
    let update = format!(r#"{{"actionType":"append","entities":[{entity}]}}"#);
    for (head, body, names) in [
        ("POST /v2/subscriptions", Some(&*subscription.to_string()), &["jsonV2Parse"][..]),
        (&*format!("PATCH {one}"), Some(&*patched), &["jsonV2Parse"]),
        (&*format!("GET {one}"), None, &["render"]),
        ("GET /v2/subscriptions", None, &["render"]),
        ("POST /v2/entities", Some(entity), &["jsonV2Parse"]),
        ("POST /v2/entities/e/attrs", Some(r#"{"b":{"value":1}}"#), &["jsonV2Parse"]),
        ("PUT /v2/entities/e/attrs/a", Some(r#"{"value":2}"#), &["jsonV2Parse"]),
        ("PUT /v2/entities/e/attrs/a/value", Some("[3]"), &["jsonV2Parse"]),
        ("POST /v2/op/update", Some(&*update), &["jsonV2Parse"]),
        ("POST /v2/op/notify", Some(&*format!(r#"{{"subscriptionId":"s","data":[{entity}]}}"#)), &["jsonV2Parse"]),
        ("POST /v2/op/query", Some(r#"{"attrs":["a"]}"#), &["jsonV2Parse", "render"]),
        ("GET /v2/entities?limit=1000", None, &["render"]),
        ("GET /v2/entities/e", None, &["render"]),
        ("GET /v2/entities/e/attrs/a", None, &["render"]),
        ("GET /v2/entities/e/attrs/a/value", None, &["render"]),
        ("GET /v2/types", None, &["render"]),
        ("GET /v2/types/T", None, &["render"]),
    ] {
        assert_eq!(served.ask("DELETE /statistics", None).await.status, 200);
        let answer = served.ask(head, body).await;
        assert!(answer.status < 300, "{head}: {answer:?}");
        let shown = served.get("/statistics").await.json()["timing"]["accumulated"].clone();
        for name in ["jsonV2Parse", "render"] {
            assert_eq!(shown[name].as_f64().unwrap() > 0.0, names.contains(&name), "{head} {name}: {shown}");
        }
    }
    served.stop().await;
    world.close();
}

/// §18.2: the blocks of `/statistics`, each by its switch; zeros only with `fullCounters`.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_statistics_are_switched_on_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = ContextConfig { stat_counters: true, stat_timing: true, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let served = world.serve().await;
    let old = r#"{"id":"e","p":{"type":"geo:point","value":"1,2"}}"#;
    assert_eq!(served.ask("POST /v2/entities", Some(old)).await.status, 201);
    for _ in 0..2 {
        assert_eq!(served.get("/v2/entities/e").await.status, 200);
    }
    assert_eq!(served.get("/v2/entities?options=fast").await.status, 400);
    let shown = served.get("/statistics").await.json();
    let expected = json!({
        "deprecatedFeatures": 1, "invalidRequests": 1, "jsonRequests": 1, "noPayloadRequests": 3,
        "requests": {"/v2/entities": {"GET": 1, "POST": 1}, "/v2/entities/{id}": {"GET": 2}},
    });
    assert_eq!(shown["counters"], expected);
    for (part, name) in ["accumulated", "last"].into_iter().flat_map(|part| TIMED.map(|name| (part, name))) {
        assert!(shown["timing"][part][name].as_f64().unwrap() > 0.0, "{part} {name}: {shown}");
    }
    assert_eq!(shown.get("notifQueue"), None, "it is not switched on");
    let full = served.get("/statistics?options=fullCounters").await.json();
    assert_eq!(full["counters"]["notificationsSent"], 0);
    assert_eq!(served.ask("DELETE /statistics", None).await.status, 200);
    let anew = served.get("/statistics").await.json();
    let times = anew["timing"]["accumulated"].as_object().unwrap();
    assert_eq!(times.keys().collect::<Vec<_>>(), TIMED, "{anew}");
    assert_eq!((&times["jsonV2Parse"], &times["render"]), (&json!(0.0), &json!(0.0)), "{anew}");
    let counted = anew["counters"].clone();
    assert_eq!(counted, json!({"noPayloadRequests": 1, "requests": {"/statistics": {"DELETE": 1}}}));
    served.stop().await;
    world.close();
}

fn tokens() -> Arc<dyn Authenticator> {
    let token = |name: &str, tenant: &str, roles| ApiToken {
        name: name.to_owned(),
        token: format!("{name}-0123456789abcdef0123456789abcdef"),
        tenant: tenant.to_owned(),
        roles,
    };
    let all = [
        token("operator", "*", vec![RoleName::Admin, RoleName::Reader]),
        token("admin", "t1", vec![RoleName::Admin]),
        token("writer", "t1", vec![RoleName::Writer]),
        token("reader", "t1", vec![RoleName::Reader]),
    ];
    Arc::new(ApiTokens::new(&all).unwrap())
}

/// §6 401 and 403, and who may look at what: section 18.2's "all of these need the admin role".
#[tokio::test(flavor = "multi_thread")]
async fn roles_and_tenants_limit_reads_and_writes() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve_to(tokens()).await;
    let who = |name: &str, head: &str| {
        let token = format!("{name}-0123456789abcdef0123456789abcdef");
        format!("{head}\nauthorization: Bearer {token}\nfiware-service: t1")
    };
    for (name, head, body, status) in [
        ("reader", "GET /v2/entities", None, 200),
        ("reader", "POST /v2/entities", Some(r#"{"id":"e"}"#), 403),
        ("writer", "POST /v2/entities", Some(r#"{"id":"e"}"#), 201),
        ("writer", "GET /admin/metrics", None, 403),
        ("writer", "GET /statistics", None, 403),
        ("writer", "GET /cache/statistics", None, 403),
        ("admin", "GET /admin/metrics", None, 200),
        ("admin", "GET /statistics", None, 200),
        ("admin", "GET /admin/log", None, 403),
        ("admin", "PUT /admin/log?level=DEBUG", None, 403),
        ("admin", "GET /log/trace", None, 403),
        ("admin", "GET /admin/sem", None, 403),
        ("operator", "GET /admin/log", None, 200),
    ] {
        let answer = ask(&served, &who(name, head), body).await;
        if status == 403 {
            check(&answer, 403, "Forbidden", name, head);
        } else {
            assert_eq!(answer.status, status, "{name} {head}: {answer:?}");
        }
    }
    for head in ["GET /v2/entities", "GET /v2/entities\nauthorization: Bearer wrong"] {
        let refused = ask(&served, head, None).await;
        check(&refused, 401, "Unauthorized", "", head);
        assert!(refused.header("www-authenticate").is_some(), "{refused:?}");
    }
    let other = who("operator", "GET /v2/entities").replace("t1", "t2");
    assert_eq!(served.ask(&other, None).await.status, 200);
    let of = async |name: &str| {
        let shown = served.ask(&who(name, "GET /admin/metrics"), None).await.json();
        shown["services"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(
        (of("operator").await, of("admin").await),
        (vec!["t1".to_owned(), "t2".to_owned()], vec!["t1".to_owned()])
    );
    served.stop().await;
    world.close();
}
