//! `GET /api/jobs/events`: what has happened to the tenant's jobs, as a page or as server-sent events.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use millstream_flow::EVENT_TENANT_HEADER;
use millstream_http::{Access, Caller, Content, Problem, Query, Route, Shutdown};
use millstream_types::{Role, StateTopic, TopicName};
use serde::Deserialize;
use serde_json::json;

use super::LOOK_LIMITS;
use crate::streams::{OwnTopicRead, Streams};

pub(super) fn route(streams: &Arc<Streams>) -> Route {
    let reader = Access::Role(Role::Reader);
    Route::get("/api/jobs/events", reader, LOOK_LIMITS, "Read what has happened to the tenant's jobs: a page, or SSE")
        .query("from", "The number of an event, `earliest`, `latest`, an ISO time, or a `next` of before. A page begins at `earliest`, else `latest`.")
        .query("until", "`latest` (the current end) or a number at which the read ends; without it server-sent events continue.")
        .query("limit", "Ends after so many events. A page has 100, at most 1000.")
        .query("job", "Only events of jobs with this id; `*` stands for any characters, `?` for one.")
        .header("Last-Event-ID", "The `id` of the last received event; the read continues after it.")
        .answers_with(
            200,
            "One page in the form of `GET /api/streams/{stream}`: of each event number (`offset`), time and value, and `next`.",
            Content::json(json!({"type": "object"})),
        )
        .answers_with(
            200,
            "With `Accept: text/event-stream`: events `record`, `gap` (events are gone), `position` (many of other tenants were skipped), `end`, `failed`.",
            Content::events(json!({"type": "object"})),
        )
        .answers(400, "No such place or limit.")
        .answers(503, "As many tails of topics and events are open as may be, or there is no memory for another one.")
        .to(events, Arc::clone(streams))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventFilter {
    from: Option<String>,
    until: Option<String>,
    limit: Option<String>,
    job: Option<String>,
}

async fn events(
    State(streams): State<Arc<Streams>>,
    caller: Caller,
    Query(EventFilter { from, until, limit, job }): Query<EventFilter>,
    shutdown: Shutdown,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let read = OwnTopicRead {
        from: from.map(place),
        until: until.map(place),
        limit,
        key: job,
        header: (EVENT_TENANT_HEADER, caller.tenant.as_str()),
    };
    streams.serve_own(&TopicName::internal(StateTopic::JobEvents), read, shutdown, &headers).await
}

/// A number alone is one of the only partition.
fn place(text: String) -> String {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("0:{text}") } else { text }
}
