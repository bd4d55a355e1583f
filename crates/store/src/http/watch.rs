//! `GET /kv/{bucket}/_watch`: writes and deletes as they land, as server-sent events.
//!
//! A watch follows the bucket's topic up to stable, so what it tells survives what the bucket's ack level survives.
//! Each event has the position of the whole watch as its id: who comes back with it misses and repeats nothing.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, Caller, Content, Event, EventSender, Path, Problem, Reason, Route, Shutdown, event_stream,
};
use millstream_log::Bell;
use millstream_types::{ErrorCode, Role};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::follower::{Follower, Start, WatchEvent};
use super::parameters::time_ms;
use super::problems::{bad_parameter, problem};
use super::query::parameters;
use super::scope::check_key_scope;
use super::{BUCKET, NEEDS_DURABLE, READ_LIMITS};
use crate::{Bucket, Store};

mod follower;

/// Most watches of all buckets together.
const WATCHES_MAX: usize = 512;
/// Steps that wait for a client.
const STEPS_WAITING_MAX: usize = 1;

pub(super) fn route(store: &Arc<Store>) -> Route {
    Route::get("/kv/{bucket}/_watch", Access::Role(Role::Reader), READ_LIMITS, "Watch writes and deletes")
        .param("bucket", BUCKET)
        .keeps_to_scope()
        .query("prefix", "Keys that begin with this only, percent-encoded.")
        .query("from", "`latest` (the default), `earliest` (what is there, then what comes), an ISO time, or a position such as `0:17,1:4`.")
        .query("values", "`true`: with values of at most 64 KiB; larger ones are left out (`value_omitted`).")
        .header("Last-Event-ID", "The `id` of the last received event; the watch continues after it.")
        .answers_with(
            200,
            "Events `put` (as a line of a listing, with `partition`) and `delete` (`key`, `partition`, `version`, `written`); `position` when much was passed over, `gap` if records are gone, `failed`. Each id is the position after the event.",
            Content::events(json!({"type": "object"})),
        )
        .answers(400, "A parameter cannot be taken.")
        .answers(404, "The bucket does not exist.")
        .answers(409, NEEDS_DURABLE)
        .answers(503, "As many watches are open as may.")
        .to(watch, Watches { store: Arc::clone(store), open: Arc::new(Semaphore::new(WATCHES_MAX)) })
}

/// The store, and how many watches may still be opened.
#[derive(Clone)]
struct Watches {
    store: Arc<Store>,
    open: Arc<Semaphore>,
}

/// The parameters of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchQuery {
    prefix: Vec<u8>,
    from: Start,
    with_values: bool,
}

impl WatchQuery {
    fn read(query: Option<&str>, last_event_id: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self { prefix: Vec::new(), from: Start::Latest, with_values: false };
        for parameter in parameters(query) {
            match &*parameter.name {
                "prefix" => asked.prefix = parameter.bytes,
                "from" => asked.from = start("from", &parameter.text())?,
                "values" => asked.with_values = parameter.switch()?,
                _ => return Err(parameter.unknown("this route takes prefix, from and values")),
            }
        }
        if let Some(id) = last_event_id.filter(|id| !id.is_empty()) {
            asked.from = start("Last-Event-ID", id)?;
        }
        Ok(asked)
    }
}

fn start(name: &str, text: &str) -> Result<Start, Problem> {
    match text {
        "earliest" => return Ok(Start::Earliest),
        "latest" => return Ok(Start::Latest),
        _ => {}
    }
    if let Ok(position) = text.parse() {
        return Ok(Start::At(position));
    }
    time_ms(name, text).map(Start::Time).map_err(|_| {
        bad_parameter(name, text, "it is latest, earliest, an ISO time, or partition:offset pairs such as 0:17,1:4")
    })
}

async fn watch(
    State(watches): State<Watches>,
    caller: Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    shutdown: Shutdown,
) -> Result<Response, Problem> {
    let id = headers.get("last-event-id").map(|id| String::from_utf8_lossy(id.as_bytes()));
    let asked = WatchQuery::read(query.as_deref(), id.as_deref())?;
    check_key_scope(caller.principal(), &name, &asked.prefix)?;
    let bucket = watches.store.bucket(&caller.tenant, &name).map_err(|error| problem(&error))?;
    let permit = Arc::clone(&watches.open).try_acquire_owned().map_err(|_| too_many())?;
    let of_thread = Arc::clone(&bucket);
    let bell = Arc::new(Bell::default());
    let rung = Arc::clone(&bell);
    let open = move || Follower::open(of_thread.partitions(), &asked.from, asked.prefix, asked.with_values, &rung);
    let opened = bucket.on_reading_thread(open).await.map_err(|error| problem(&error))?;
    let follower = opened.map_err(|refused| refused.problem())?;
    let (sender, events) = event_stream(STEPS_WAITING_MAX, shutdown);
    tokio::spawn(Watch { bucket, follower: Some(follower), bell, _permit: permit }.send(sender));
    Ok(events.into_response())
}

fn too_many() -> Problem {
    Problem::new(Reason::Code(ErrorCode::Overloaded), "as many watches are open as may")
        .value(WATCHES_MAX)
        .rule(format!("at most {WATCHES_MAX}"))
        .remedy("close a watch, or try again later")
}

struct Watch {
    bucket: Arc<Bucket>,
    /// `None` while a reading thread has it.
    follower: Option<Follower>,
    bell: Arc<Bell>,
    _permit: OwnedSemaphorePermit,
}

impl Watch {
    /// Sends events until the client leaves, or the watch fails.
    async fn send(mut self, sender: EventSender) {
        loop {
            // Nothing is read while the client has not taken the step before.
            sender.room().await;
            let (items, is_last) = tokio::select! {
                next = self.next() => next,
                () = sender.ended() => return,
            };
            let events = items.iter().map(|item| (Some(&*item.position), Some(item.kind), &*item.json));
            if sender.send(Event::several(events)).await.is_err() || is_last {
                return;
            }
        }
    }

    /// Waits for the next events; `true` if they are the last.
    async fn next(&mut self) -> (Vec<WatchEvent>, bool) {
        loop {
            let Some(mut follower) = self.follower.take() else { return (Vec::new(), true) };
            let position = follower.position();
            let work = move || {
                let step = follower.step();
                (follower, step)
            };
            match self.bucket.on_reading_thread(work).await {
                Ok((follower, Ok(step))) => {
                    self.follower = Some(follower);
                    match (step.items.is_empty(), step.has_read) {
                        (false, _) => return (step.items, false),
                        (true, true) => {}
                        (true, false) => self.bell.rung().await,
                    }
                }
                Ok((_, Err(error))) | Err(error) => {
                    let json = Value::from_iter([("cause", problem(&error).text())]).to_string();
                    return (vec![WatchEvent { kind: "failed", position, json }], true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{Offset, PartitionOffsets};

    use super::*;

    #[test]
    fn a_watch_begins_where_it_is_asked_to_or_where_it_was_cut() {
        let position = || Start::At(PartitionOffsets([(0, Offset(17)), (1, Offset(4))].into()));
        for (query, id, expected) in [
            (None, None, Start::Latest),
            (Some("from=earliest"), None, Start::Earliest),
            (Some("from=1970-01-01T00:00:01Z"), None, Start::Time(1_000)),
            (Some("from=0:17,1:4"), None, position()),
            (Some("from=earliest"), Some("0:17,1:4"), position()),
            (Some("from=earliest"), Some(""), Start::Earliest),
        ] {
            assert_eq!(WatchQuery::read(query, id).unwrap().from, expected, "{query:?} {id:?}");
        }
        let asked = WatchQuery::read(Some("prefix=a%2F&values"), None).unwrap();
        assert_eq!(asked, WatchQuery { prefix: b"a/".to_vec(), from: Start::Latest, with_values: true });
        for (query, id, rule) in [
            (Some("from=first"), None, "latest, earliest"),
            (None, Some("x"), "latest, earliest"),
            (Some("key=a"), None, "prefix, from and values"),
        ] {
            let refused = WatchQuery::read(query, id).unwrap_err();
            assert!(refused.text().contains(rule), "{query:?}: {}", refused.text());
        }
    }
}
