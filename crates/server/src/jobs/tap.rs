//! `GET /api/jobs/{id}/tap`: samples of the records that pass an edge of a running job, as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use millstream_flow::{Jobs, Tap, TappedRecord};
use millstream_http::{
    Access, Caller, Content, Event, EventSender, Path, Problem, Query, Reason, Route, Shutdown, event_stream,
};
use millstream_types::{ErrorCode, Grant, Header, MemoryBudget, Offset, Role, TenantId, iso_time};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{LOOK_LIMITS, RETRY_AFTER, problem};
use crate::streams::RecordJson;

/// Records a second that a tap takes if the request does not say.
const RATE_DEFAULT: f64 = 10.0;
/// Limits of the rate; the route's text and `millstream job tap` mention them.
const RATE_MIN: f64 = 0.1;
const RATE_MAX: f64 = 1_000.0;
/// Events that wait for the client; samples wait in the tap.
const EVENTS_WAITING_MAX: usize = 1;
/// Time until the end of a job is stored.
const END_WAIT: Duration = Duration::from_secs(5);

pub(super) struct Taps {
    pub(super) jobs: Arc<Jobs>,
    pub(super) memory: MemoryBudget,
}

pub(super) fn route(taps: Arc<Taps>) -> Route {
    let reader = Access::Role(Role::Reader);
    Route::get("/api/jobs/{id}/tap", reader, LOOK_LIMITS, "Watch samples of the records that pass an edge of a job")
        .param("id", "The job's id.")
        .required_query("edge", "Two nodes with a comma between them, such as `readings,celsius`.")
        .query("rate", "Records a second, 0.1 to 1000; 10 if left out. Further records pass unseen.")
        .answers_with(
            200,
            "Events `open`, `record` (as in `GET /api/streams/{stream}`, with `topic`, `truncated`, `seen` and `dropped`), and `end` with the reason.",
            Content::events(json!({"type": "object"})),
        )
        .answers(400, "The rate is out of range, or the edge has no comma.")
        .answers(404, "No job with that id runs.")
        .answers(422, "The job has no such edge; `edges` has those that it has.")
        .answers(503, "8 taps of the job are open, or 64 in all, or there is no memory for another one.")
        .to(tap, taps)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TapRequest {
    edge: String,
    rate: Option<f64>,
}

async fn tap(
    State(taps): State<Arc<Taps>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(TapRequest { edge, rate }): Query<TapRequest>,
    shutdown: Shutdown,
) -> Result<Response, Problem> {
    let rate = rate.unwrap_or(RATE_DEFAULT);
    if !(RATE_MIN..=RATE_MAX).contains(&rate) {
        let rule = format!("a tap takes {RATE_MIN} to {RATE_MAX} records a second");
        return Err(Problem::invalid(format!("rate={rate} is out of range")).value(rate).rule(rule));
    }
    let (from, to) = edge.split_once(',').ok_or_else(|| {
        Problem::invalid(format!("edge={edge} has no comma"))
            .value(&edge)
            .rule("an edge is two nodes with a comma between them, such as readings,celsius")
            .remedy(format!("'GET /api/jobs/{id}/graph' lists the edges"))
    })?;
    let memory = taps.memory.take(Tap::MAX_BYTES as u64).ok_or_else(|| {
        Problem::new(Reason::Code(ErrorCode::Overloaded), "no memory for another tap")
            .value(Tap::MAX_BYTES)
            .rule(format!("{} = {}", taps.memory.setting(), taps.memory.limit_bytes()))
            .remedy("close a tap, or try again later")
            .retry_after(RETRY_AFTER)
    })?;
    let tap = taps.jobs.tap(&caller.tenant, &id, from, to, rate).await.map_err(problem)?;
    let opening =
        json!({"at": iso_time(taps.jobs.now_ms()), "job": id, "edge": {"from": from, "to": to}, "rate": rate});
    let (sender, events) = event_stream(EVENTS_WAITING_MAX, shutdown);
    // The stream is new and has room.
    let _ = sender.try_send(Event::new(None, Some("open"), &opening.to_string()));
    tokio::spawn(send(taps, caller.tenant.clone(), id, tap, sender, memory));
    Ok(events.into_response())
}

/// Sends samples until the job ends, the client leaves or the server stops.
async fn send(taps: Arc<Taps>, tenant: TenantId, id: String, mut tap: Tap, sender: EventSender, _memory: Grant) {
    loop {
        // Samples wait in the tap, which drops those that are too many.
        sender.room().await;
        let record = tokio::select! {
            record = tap.next() => record,
            () = sender.ended() => return,
        };
        let event = match record {
            Some(record) => Some(("record", rendered(&record, &tap))),
            None => taps.end(&tenant, &id, &tap).await.map(|end| ("end", end.to_string())),
        };
        let Some((name, data)) = event else { return };
        if sender.send(Event::new(None, Some(name), &data)).await.is_err() || name == "end" {
            return;
        }
    }
}

fn rendered(record: &TappedRecord, tap: &Tap) -> String {
    let mut members = vec![("seen", tap.seen().into()), ("dropped", tap.dropped().into())];
    members.extend(record.topic.as_ref().map(|topic| ("topic", Value::from(topic.as_str()))));
    members.extend(record.is_truncated.then_some(("truncated", true.into())));
    let headers = record.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() });
    let record = RecordJson {
        partition: record.partition,
        offset: Offset(record.offset),
        timestamp_ms: record.timestamp_ms,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
    };
    record.render(headers, &members)
}

impl Taps {
    /// The last event of a tap; `None` if the job has not ended and the server stops.
    async fn end(&self, tenant: &TenantId, id: &str, tap: &Tap) -> Option<Value> {
        let job = self.jobs.wait(tenant, id, END_WAIT).await.ok()?;
        let reason = job["state"].as_str().filter(|state| !matches!(*state, "starting" | "running"))?;
        let mut end = json!({
            "at": job["at"],
            "reason": reason,
            "seen": tap.seen(),
            "sent": tap.sent(),
            "dropped": tap.dropped(),
        });
        if let Some(message) = job.get("reason") {
            end["message"] = message.clone();
        }
        Some(end)
    }
}
