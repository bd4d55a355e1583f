//! Lines in the log: sections 18.3 and 18.5, and the names in requests that are ignored.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Once};

use millstream_context::ContextConfig;
use millstream_testkit::eventually_async;
use parking_lot::Mutex;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::subscriptions::{patch, shown, subscribe};
use crate::world::{Registry, World};

type Line = BTreeMap<&'static str, String>;

/// The lines of summaries that this process has logged.
static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// The names that this process has logged because it ignores them.
static IGNORED: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Keeps both, and nothing else.
struct Lines;

/// From now on both are kept.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Lines).unwrap());
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        matches!(metadata.target(), "millstream_context::statistics::summary" | "millstream_context::ignored")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Line::new());
        event.record(&mut fields);
        let is_summary = event.metadata().target() == "millstream_context::statistics::summary";
        (if is_summary { &LINES } else { &IGNORED }).lock().push(fields.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Fields(Line);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

/// The numbers of all lines about `alarm`, or about requests, as far as there are any.
fn told(alarm: Option<&str>, names: &[&str]) -> Vec<Vec<u64>> {
    let lines = LINES.lock();
    let about = lines.iter().filter(|line| line.get("alarm").map(String::as_str) == alarm);
    about.map(|line| names.iter().map(|name| line[name].parse().unwrap()).collect()).collect()
}

const OF_ALARMS: [&str; 5] = ["active", "raised", "raised_new", "released", "released_new"];

/// Waits for the next summary. Of itself it comes once a second.
async fn next() {
    let known = told(None, &["total"]).len();
    eventually_async("the next summary", || told(Some("MqttConnectionError"), &OF_ALARMS).len() > known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_alarms_are_summed_up_every_so_often() {
    listen();
    let dir = tempfile::tempdir().unwrap();
    let config = ContextConfig { log_summary_s: 1, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let served = world.serve().await;
    for _ in 0..3 {
        assert_eq!(served.get("/v2/entities?options=fast").await.status, 400);
    }
    next().await;
    assert_eq!(served.get("/v2/entities").await.status, 200);
    next().await;
    served.stop().await;
    world.close();
    let sums = |told: &[Vec<u64>], column: usize| told.iter().map(|line| line[column]).sum::<u64>();
    let requests = told(None, &["total", "new"]);
    assert_eq!((requests.last().unwrap()[0], sums(&requests, 1)), (4, 4), "each is new once: {requests:?}");
    let bad = told(Some("BadInput"), &OF_ALARMS);
    assert!(bad.iter().any(|line| line[0] == 1), "raised in between: {bad:?}");
    let last = bad.last().unwrap();
    assert_eq!((last[0], last[1], last[3]), (0, 1, 1), "{bad:?}");
    assert_eq!((sums(&bad, 2), sums(&bad, 4), bad.len()), (1, 1, requests.len()), "{bad:?}");
    for other in ["DatabaseError", "NotificationError", "MqttConnectionError"] {
        assert!(told(Some(other), &OF_ALARMS).iter().flatten().all(|number| *number == 0), "{other}");
    }
}

/// §6, §14.1: members and parameters that NGSI does not know break no client.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_ngsi_does_not_know_are_ignored_and_logged_once() {
    listen();
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for target in ["/v2/entities?ignored-here=1", "/v2/entities?ignored-here=2&ignored-here=3", "/v2/types?limit=1&q=a"]
    {
        assert_eq!(served.get(target).await.status, 200, "{target}");
    }
    let known = json!({"subject": {"entities": [{"id": "e"}], "condition": {"attrs": ["t"], "expression": {"q": "t"}}},
        "notification": {"http": {"url": "http://127.0.0.1:1/"}}});
    let mut sent = known.clone();
    for pointer in ["", "/subject", "/subject/entities/0", "/subject/condition", "/subject/condition/expression"]
        .into_iter()
        .chain(["/notification", "/notification/http"])
    {
        sent.pointer_mut(pointer).unwrap()["ignored=here"] = json!({"any": "(thing)"});
    }
    let (plain, other) = (subscribe(&served, "", &known).await, subscribe(&served, "", &sent).await);
    let without_id = |mut shown: serde_json::Value| shown.as_object_mut().unwrap().remove("id").map(|_| shown);
    let plain = without_id(shown(&served, &plain).await);
    let back = shown(&served, &other).await;
    assert_eq!(without_id(back.clone()), plain, "they are not kept");
    let mut back = back;
    back["notification"]["timesSent"] = json!(9);
    assert_eq!(patch(&served, &other, &back).await.status, 204, "what was read can be sent back");
    assert_eq!(without_id(shown(&served, &other).await), plain);
    served.stop().await;
    world.close();
    let logged = |name: &str| IGNORED.lock().iter().filter(|line| line["name"].contains(name)).count();
    for (name, count) in [("ignored-here", 1), ("/subject/entities/0/ignored=here", 1), ("ignored=here", 7)] {
        assert_eq!(logged(name), count, "{name}: {:?}", IGNORED.lock());
    }
    // The definition is read back without them.
    let world = World::open(dir.path());
    let served = world.serve().await;
    assert_eq!(without_id(shown(&served, &other).await), plain);
    served.stop().await;
    world.close();
}
