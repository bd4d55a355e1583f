//! What the log says of itself every so often: sections 18.3 and 18.5.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use millstream_context::ContextConfig;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::world::{Registry, World};

type Line = BTreeMap<&'static str, String>;

/// The lines of summaries that this process has logged.
static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Keeps them, and nothing else.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "millstream_context::summary"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Line::new());
        event.record(&mut fields);
        LINES.lock().push(fields.0);
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
    while told(Some("MqttConnectionError"), &OF_ALARMS).len() <= known {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_alarms_are_summed_up_every_so_often() {
    tracing::subscriber::set_global_default(Lines).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = ContextConfig { log_summary_s: 1, ..ContextConfig::default() };
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let served = world.serve().await;
    for _ in 0..3 {
        assert_eq!(served.get("/v2/entities?colour=red").await.status, 400);
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
