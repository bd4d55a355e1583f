//! `/api/queries`: live queries over HTTP. The crate `query` defines and runs them.

mod socket;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millstream_http::{
    Access, AnswerMemory, Caller, Content, Event, EventSender, Json, Limits, Path, Problem, Query, Route, Routes,
    Shutdown, finished_event_stream,
};
use millstream_query::{
    CopyMemory, Deliver, Deliveries, Delivery, Engine, InvalidResultId, QueryId, QueryRequest, Requester, ResultId,
    RowBatch, Subscription, WindowResult,
};
use millstream_types::Role;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::query_problem::{place, problem};
use crate::schema::Schemas;

/// Batches of rows that may wait in the socket's queue; further ones stay in the query's outbox.
pub(crate) const EVENTS_WAITING_MAX: usize = 4;
/// Time that a client may stall if its query drops the oldest rows.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(3600);
/// Limit for a query with a single answer, which may run as long as its duration, up to a day;
/// the routes' texts mention it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const BODY_MAX_SETTING: &str = "none: a request for a query has at most 128 KiB";
pub(crate) const ASK_LIMITS: Limits =
    Limits { body_max_bytes: 128 << 10, body_max_setting: BODY_MAX_SETTING, timeout: ANSWER_TIMEOUT };
const LOOK_LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: BODY_MAX_SETTING, timeout: Duration::from_secs(10) };

/// Header with the total number of queries.
const TOTAL_COUNT: &str = "total-count";
/// Header of a reconnecting client with the id of its last event.
const LAST_EVENT_ID: &str = "last-event-id";

type Queries = Arc<Engine>;

#[derive(Clone)]
struct AskState {
    engine: Queries,
    deliveries: Arc<Deliveries>,
}

#[derive(Clone)]
struct ValidationState {
    engine: Queries,
    schemas: Arc<Schemas>,
}

pub(crate) fn routes(engine: Queries, deliveries: &Arc<Deliveries>, schemas: &Arc<Schemas>) -> Routes {
    let reader = Access::Role(Role::Reader);
    let id = "The query's id.";
    Routes::new("queries")
        .route(
            Route::post("/api/queries", reader, ASK_LIMITS, "Ask a live query")
                .takes(Content::json(json!({"type": "object", "required": ["query"]})))
                .answers_with(
                    200,
                    "With `deliver: wait`: all rows and the meta at the end, after 24 hours at most; use `sse` for longer queries.",
                    Content::json(json!({"type": "object"})),
                )
                .answers_with(
                    200,
                    "With `deliver: sse` events `meta`, `rows` or `window`, `end`.",
                    Content::events(json!({"type": "object"})),
                )
                .answers_with(
                    201,
                    "With `deliver: {topic: name}`: the query's id, its columns, and the partition of its results. The caller also needs the role writer.",
                    Content::json(json!({"type": "object", "required": ["id", "topic"]})),
                )
                .answers(404, "The topic does not exist.")
                .answers(422, "The text is not a valid query; `errors` says where and why.")
                .answers(429, "The tenant has reached its limit of live queries.")
                .answers(503, "The server has reached its limit of live queries.")
                .to(ask, AskState { engine: Arc::clone(&engine), deliveries: Arc::clone(deliveries) }),
        )
        .route(
            Route::post("/api/queries/validate", reader, ASK_LIMITS, "Check the text of a query")
                .takes(Content::json(json!({"type": "object", "required": ["query"]})))
                .answers(204, "The query is valid.")
                .answers_with(
                    200,
                    "The query is valid, but `hints` lists fields that no inspected record has, with suggestions.",
                    Content::json(json!({"type": "object", "required": ["hints"]})),
                )
                .answers(404, "The topic does not exist.")
                .answers(422, "The text is not a valid query; `errors` says where and why.")
                .to(validate, ValidationState { engine: Arc::clone(&engine), schemas: Arc::clone(schemas) }),
        )
        .route(
            Route::get("/api/queries", reader, LOOK_LIMITS, "List the tenant's live queries")
                .query("limit", "Queries on a page, 1 to 1000; 1000 if left out.")
                .query("offset", "Queries to skip; 0 if left out.")
                .answers_with(
                    200,
                    "The queries, oldest first; `Total-Count` has their number.",
                    Content::json(json!({"type": "array"})),
                )
                .answers(400, "`limit` or `offset` is none.")
                .to(list, Arc::clone(&engine)),
        )
        .route(
            Route::get("/api/queries/ws", reader, LOOK_LIMITS, "Ask many live queries over one WebSocket")
                .answers(101, "A WebSocket: `{tag, query, …}` asks, `{kill: tag}` ends; `opening`, `records`, `end`, `problem` come back.")
                .answers(400, "The request is not a WebSocket upgrade.")
                .to(socket::open, Arc::clone(&engine)),
        )
        .route(
            Route::get("/api/queries/{id}", reader, LOOK_LIMITS, "Describe a live query")
                .param("id", id)
                .answers_with(200, "The query's text, state and figures.", Content::json(json!({"type": "object"})))
                .answers(404, "It does not exist or has ended.")
                .to(look, Arc::clone(&engine)),
        )
        .route(
            Route::get("/api/queries/{id}/results", reader, ASK_LIMITS, "Read the results of a query that is kept")
                .param("id", id)
                .answers_with(
                    200,
                    "Events as with `deliver: sse`: unread and new ones, or with `Last-Event-ID` those after that event. The query is deleted after `end`.",
                    Content::events(json!({"type": "object"})),
                )
                .answers(204, "`Last-Event-ID` is that of `end`: there are no more events, and the query is deleted.")
                .answers(404, "The query does not exist, or its end was read.")
                .answers(400, "`Last-Event-ID` is not an event of this query.")
                .answers(409, "The query is not kept, or it has another reader and the request has no `Last-Event-ID`.")
                .to(results, Arc::clone(&engine)),
        )
        .route(
            Route::delete("/api/queries/{id}", reader, LOOK_LIMITS, "End a live query")
                .param("id", id)
                .answers(204, "The query has ended; its client gets the waiting results. A kept query that had ended before is deleted.")
                .answers(404, "It does not exist or has ended.")
                .to(kill, engine),
        )
}

async fn ask(
    State(AskState { engine, deliveries }): State<AskState>,
    caller: Caller,
    shutdown: Shutdown,
    memory: AnswerMemory,
    Json(request): Json<QueryRequest>,
) -> Result<Response, Problem> {
    let request = QueryRequest { submitted_by: Some(caller.name.to_string()), ..request };
    match request.deliver {
        Deliver::Wait => return answer_once(&engine, &caller, request, shutdown, memory).await,
        Deliver::Topic(_) => return answer_into_topic(&deliveries, &caller, request).await,
        Deliver::Sse => {}
    }
    let subscription = engine.submit(&caller.tenant, request).await.map_err(problem)?;
    Ok(events(&engine, subscription.resumable(), shutdown))
}

async fn results(
    State(engine): State<Queries>,
    caller: Caller,
    shutdown: Shutdown,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let Some(after) = headers.get(LAST_EVENT_ID).filter(|after| !after.is_empty()) else {
        let subscription = engine.attach(&caller.tenant, id).map_err(problem)?;
        return Ok(events(&engine, subscription.resumable(), shutdown));
    };
    match engine.attach_after(&caller.tenant, id, parse_result_id(after)?).map_err(problem)? {
        Some(subscription) => Ok(events(&engine, subscription, shutdown)),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn events(engine: &Engine, subscription: Subscription, shutdown: Shutdown) -> Response {
    let (sender, stream) = finished_event_stream(EVENTS_WAITING_MAX);
    let stream = if subscription.drops_oldest() { stream.bearing_stalls(STALL_MAX) } else { stream };
    tokio::spawn(deliver_events(subscription, engine.copies().clone(), sender, shutdown));
    stream.into_response()
}

/// Starts a query that writes its results to a topic.
async fn answer_into_topic(
    deliveries: &Deliveries,
    caller: &Caller,
    request: QueryRequest,
) -> Result<Response, Problem> {
    if !caller.roles.has(Role::Writer) {
        return Err(Problem::forbidden("delivery into a topic appends records, which these credentials do not allow")
            .value(&caller.name)
            .rule("delivery into a topic takes the roles reader and writer")
            .remedy("ask with 'deliver': 'sse', or with a token that has both roles"));
    }
    let asker = Requester { tenant: &caller.tenant, client: &caller.name, correlation: None };
    let told = deliveries.begin(asker, request).await.map_err(problem)?;
    Ok((StatusCode::CREATED, axum::Json(told)).into_response())
}

/// Waits until the query ends and returns all results as one answer.
pub(crate) async fn answer_once(
    engine: &Engine,
    caller: &Caller,
    request: QueryRequest,
    shutdown: Shutdown,
    mut memory: AnswerMemory,
) -> Result<Response, Problem> {
    let is_of_bullet = request.is_of_bullet;
    let subscription = engine.submit(&caller.tenant, request).await.map_err(problem)?;
    let answer = subscription.answer_until(shutdown.begun()).await.map_err(problem)?;
    memory.cover(answer.size_bytes())?;
    let json = HeaderValue::from_static("application/json");
    let answer = if is_of_bullet { answer.to_json_called(engine.bullet_names()) } else { answer.to_json() };
    let mut response = ([(CONTENT_TYPE, json)], Bytes::from(answer)).into_response();
    memory.hold_for(&mut response);
    Ok(response)
}

/// Sends results until the query ends or its client leaves. A query that is not kept ends with its client; when the
/// server stops, it returns its last results. Events of a kept query have ids.
async fn deliver_events(mut subscription: Subscription, copies: CopyMemory, sender: EventSender, shutdown: Shutdown) {
    let opening = event(subscription.begins_after(), "meta", &subscription.opening());
    if sender.send(opening).await.is_err() {
        return;
    }
    let (mut stopping, mut is_stopping) = (std::pin::pin!(shutdown.begun()), false);
    loop {
        let delivery = tokio::select! {
            delivery = subscription.next_sent() => delivery,
            () = sender.ended() => return,
            () = &mut stopping, if !is_stopping => {
                is_stopping = true;
                if subscription.stop() {
                    continue;
                }
                return;
            }
        };
        let Some((id, delivery)) = delivery else { return };
        let memory = tokio::select! {
            memory = copies.take(subscription.tenant(), delivery.size_bytes()) => memory,
            () = sender.ended() => return,
        };
        let event = match &delivery {
            Delivery::Rows(rows) => rows_event(id, rows),
            Delivery::Window(window) => window_event(id, window),
            Delivery::End(meta) => event(id, "end", meta),
        };
        drop(delivery);
        if sender.send(event.holding(memory)).await.is_err() {
            return;
        }
    }
}

fn event(id: Option<ResultId>, name: &str, data: &impl serde::Serialize) -> Event {
    let data = serde_json::to_string(data).expect("what is told about a query has string keys only");
    new_event(id, name, &data)
}

fn new_event(id: Option<ResultId>, name: &str, data: &str) -> Event {
    let id = id.map(|id| id.to_string());
    Event::new(id.as_deref(), Some(name), data)
}

fn window_event(id: Option<ResultId>, window: &WindowResult) -> Event {
    let data = window.to_json();
    new_event(id, "window", &String::from_utf8_lossy(&data))
}

fn rows_event(id: Option<ResultId>, rows: &RowBatch) -> Event {
    let mut data = b"{\"records\":[".to_vec();
    rows.write_list(&mut data);
    data.extend_from_slice(b"]}");
    new_event(id, "rows", &String::from_utf8_lossy(&data))
}

#[derive(Debug, Deserialize)]
struct Text {
    query: String,
}

async fn validate(
    State(ValidationState { engine, schemas }): State<ValidationState>,
    caller: Caller,
    Json(text): Json<Text>,
) -> Result<Response, Problem> {
    engine.validate(&text.query).map_err(problem)?;
    // The client learns from the query itself if the stream is missing or unreadable.
    let hints = schemas.hints(&caller.tenant, text.query).await.unwrap_or_default();
    if hints.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let hints: Vec<Value> = hints.iter().map(place).collect();
    Ok(axum::Json(json!({ "hints": hints })).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageParameters {
    #[serde(default = "PageParameters::limit_max")]
    limit: usize,
    #[serde(default)]
    offset: usize,
}

impl PageParameters {
    const fn limit_max() -> usize {
        1000
    }
}

async fn list(
    State(engine): State<Queries>,
    caller: Caller,
    Query(PageParameters { limit, offset }): Query<PageParameters>,
) -> Result<Response, Problem> {
    if !(1..=PageParameters::limit_max()).contains(&limit) {
        let rule = format!("a page has 1 to {} queries", PageParameters::limit_max());
        let problem =
            Problem::invalid(format!("limit={limit} is not a valid page size")).value(limit.to_string()).rule(rule);
        return Err(problem.remedy("ask for more pages with 'offset'"));
    }
    let (page, total) = engine.page(&caller.tenant, offset, limit);
    Ok(([(TOTAL_COUNT, total.to_string())], axum::Json(page)).into_response())
}

async fn look(State(engine): State<Queries>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    let meta = engine.get(&caller.tenant, parse_id(&id)?).map_err(problem)?;
    Ok(axum::Json(meta).into_response())
}

async fn kill(State(engine): State<Queries>, caller: Caller, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    engine.kill(&caller.tenant, parse_id(&id)?).map_err(problem)?;
    Ok(StatusCode::NO_CONTENT)
}

fn parse_id(id: &str) -> Result<QueryId, Problem> {
    let rule = "a query's id is a UUID, as 'GET /api/queries' lists it";
    id.parse().map_err(|_| Problem::invalid(format!("'{id}' is no query's id")).value(id).rule(rule))
}

fn parse_result_id(after: &HeaderValue) -> Result<ResultId, Problem> {
    let after = String::from_utf8_lossy(after.as_bytes());
    let refused = |rule: InvalidResultId| {
        Problem::invalid(format!("Last-Event-ID: '{after}' is no event's id")).value(&*after).rule(rule.to_string())
    };
    after.parse().map_err(refused)
}
