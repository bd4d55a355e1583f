//! `/api/queries`: live queries over HTTP. A thin door: what a query is and does stands in crate `query`.

mod socket;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millstream_http::{
    Access, AnswerMemory, Caller, Content, Event, EventSender, Json, Limits, Path, Problem, Route, Routes, Shutdown,
    event_stream,
};
use millstream_query::{
    Asker, Deliver, Deliveries, Delivery, Diagnostic, Engine, Error, NoResultId, QueryId, QueryRequest, ResultId,
    RowBatch, Subscription, WindowResult,
};
use millstream_types::Role;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::schema::Schemas;

/// Rows batches that may wait in the socket's own queue; what waits beyond stays with the query and its bounds.
pub(crate) const EVENTS_WAITING_MAX: usize = 4;
/// A query that waits for its one answer may take as long as its duration says, up to a day; the routes' text says so.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const BODY_MAX_SETTING: &str = "none: a request for a query has at most 128 KiB";
pub(crate) const ASK_LIMITS: Limits =
    Limits { body_max_bytes: 128 << 10, body_max_setting: BODY_MAX_SETTING, timeout: ANSWER_TIMEOUT };
const LOOK_LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: BODY_MAX_SETTING, timeout: Duration::from_secs(10) };

/// What a client names that comes again: the id of the last event that it has.
const LAST_EVENT_ID: &str = "last-event-id";

/// Shared by all handlers.
type Queries = Arc<Engine>;

/// The routes.
pub(crate) fn routes(engine: Queries, deliveries: &Arc<Deliveries>, schemas: &Arc<Schemas>) -> Routes {
    let reader = Access::Role(Role::Reader);
    let id = "The query's id.";
    Routes::new("queries")
        .route(
            Route::post("/api/queries", reader, ASK_LIMITS, "Ask a live query")
                .takes(Content::json(json!({"type": "object", "required": ["query"]})))
                .answers_with(
                    200,
                    "With `deliver: wait` all rows and the meta at the end, after 24 hours at most: use `sse` to listen longer.",
                    Content::json(json!({"type": "object"})),
                )
                .answers_with(
                    200,
                    "With `deliver: sse` events `meta`, `rows` or `window`, `end`.",
                    Content::events(json!({"type": "object"})),
                )
                .answers_with(
                    201,
                    "With `deliver: {topic: name}`: its id, its columns, and in which partition its results are. It takes the role writer, too.",
                    Content::json(json!({"type": "object", "required": ["id", "topic"]})),
                )
                .answers(422, "The text is no query: `errors` says where and why.")
                .answers(429, "As many queries of the tenant live as may.")
                .answers(503, "As many queries live as may.")
                .to(ask, (Arc::clone(&engine), Arc::clone(deliveries))),
        )
        .route(
            Route::post("/api/queries/validate", reader, ASK_LIMITS, "Check the text of a query")
                .takes(Content::json(json!({"type": "object", "required": ["query"]})))
                .answers(204, "It is a query.")
                .answers_with(
                    200,
                    "It is a query, but `hints` says which of its fields no record has that was looked at, and what was probably meant.",
                    Content::json(json!({"type": "object", "required": ["hints"]})),
                )
                .answers(422, "It is none: `errors` says where and why.")
                .to(validate, (Arc::clone(&engine), Arc::clone(schemas))),
        )
        .route(
            Route::get("/api/queries", reader, LOOK_LIMITS, "List the tenant's live queries")
                .answers_with(200, "What can be told about each.", Content::json(json!({"type": "array"})))
                .to(list, Arc::clone(&engine)),
        )
        .route(
            Route::get("/api/queries/ws", reader, LOOK_LIMITS, "Ask many live queries over one WebSocket")
                .answers(101, "A WebSocket: `{tag, query, …}` asks, `{kill: tag}` ends; `opening`, `records`, `end`, `problem` come back.")
                .answers(400, "No WebSocket was asked for.")
                .to(socket::open, Arc::clone(&engine)),
        )
        .route(
            Route::get("/api/queries/{id}", reader, LOOK_LIMITS, "Look at a live query")
                .param("id", id)
                .answers_with(200, "What can be told about it.", Content::json(json!({"type": "object"})))
                .answers(404, "It does not exist or has ended.")
                .to(look, Arc::clone(&engine)),
        )
        .route(
            Route::get("/api/queries/{id}/results", reader, ASK_LIMITS, "Read the results of a query that is kept")
                .param("id", id)
                .answers_with(
                    200,
                    "Events as of `deliver: sse`: what nobody has read yet, and what comes; with `Last-Event-ID` what follows that event. After `end` the query is forgotten.",
                    Content::events(json!({"type": "object"})),
                )
                .answers(204, "`Last-Event-ID` is that of `end`: there is nothing more, and the query is forgotten.")
                .answers(404, "It does not exist, or somebody has read its end.")
                .answers(400, "`Last-Event-ID` is none of its events'.")
                .answers(409, "It is not kept, or somebody else reads and does not name `Last-Event-ID`.")
                .to(results, Arc::clone(&engine)),
        )
        .route(
            Route::delete("/api/queries/{id}", reader, LOOK_LIMITS, "End a live query")
                .param("id", id)
                .answers(204, "It has ended; its client gets what was waiting. One that was kept and had ended is forgotten.")
                .answers(404, "It does not exist or has ended.")
                .to(kill, engine),
        )
}

async fn ask(
    State((engine, deliveries)): State<(Queries, Arc<Deliveries>)>,
    caller: Caller,
    shutdown: Shutdown,
    memory: AnswerMemory,
    Json(request): Json<QueryRequest>,
) -> Result<Response, Problem> {
    match request.deliver {
        Deliver::Wait => return answer_once(&engine, &caller, request, shutdown, memory).await,
        Deliver::Topic(_) => return answer_into_topic(&deliveries, &caller, request).await,
        Deliver::Sse => {}
    }
    let subscription = engine.submit(&caller.tenant, request).await.map_err(problem)?;
    Ok(events(subscription.resumable(), shutdown))
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
        return Ok(events(subscription.resumable(), shutdown));
    };
    match engine.attach_after(&caller.tenant, id, parse_result_id(after)?).map_err(problem)? {
        Some(subscription) => Ok(events(subscription, shutdown)),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn events(subscription: Subscription, shutdown: Shutdown) -> Response {
    let (sender, stream) = event_stream(EVENTS_WAITING_MAX, shutdown);
    tokio::spawn(deliver_events(subscription, sender));
    stream.into_response()
}

/// Takes a query that goes on by itself; its results are records.
async fn answer_into_topic(
    deliveries: &Deliveries,
    caller: &Caller,
    request: QueryRequest,
) -> Result<Response, Problem> {
    if !caller.roles.has(Role::Writer) {
        return Err(Problem::forbidden("results are appended to a topic, which you may not")
            .value(&caller.name)
            .rule("delivery into a topic takes the roles reader and writer")
            .remedy("ask with 'deliver': 'sse', or with a token that has both roles"));
    }
    let asker = Asker { tenant: &caller.tenant, client: &caller.name, correlation: None };
    let told = deliveries.begin(asker, request).await.map_err(problem)?;
    Ok((StatusCode::CREATED, axum::Json(told)).into_response())
}

/// Waits for the end of a query: all that it gave, as one answer.
pub(crate) async fn answer_once(
    engine: &Engine,
    caller: &Caller,
    request: QueryRequest,
    shutdown: Shutdown,
    mut memory: AnswerMemory,
) -> Result<Response, Problem> {
    let is_of_bullet = request.is_of_bullet;
    let subscription = engine.submit(&caller.tenant, request).await.map_err(problem)?;
    let answer = tokio::select! {
        answer = subscription.answer() => answer,
        () = shutdown.begun() => return Err(problem(Error::Stopped)),
    };
    memory.cover(answer.size_bytes())?;
    let json = HeaderValue::from_static("application/json");
    let answer = if is_of_bullet { answer.to_json_called(engine.bullet_names()) } else { answer.to_json() };
    let mut response = ([(CONTENT_TYPE, json)], Bytes::from(answer)).into_response();
    memory.hold_for(&mut response);
    Ok(response)
}

/// Sends what a query gives until it ends or its client leaves, which ends it unless it is kept. Events of one that is kept
/// have ids.
async fn deliver_events(mut subscription: Subscription, sender: EventSender) {
    let opening = event(subscription.begins_after(), "meta", &subscription.opening());
    if sender.send(opening).await.is_err() {
        return;
    }
    loop {
        let delivery = tokio::select! {
            delivery = subscription.next_sent() => delivery,
            () = sender.ended() => return,
        };
        let event = match &delivery {
            Some((id, Delivery::Rows(rows))) => rows_event(*id, rows),
            Some((id, Delivery::Window(window))) => window_event(*id, window),
            Some((id, Delivery::End(meta))) => event(*id, "end", meta),
            None => return,
        };
        if sender.send(event).await.is_err() {
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
    new_event(id, "window", &String::from_utf8_lossy(&data)).holding(window.rows.held())
}

fn rows_event(id: Option<ResultId>, rows: &RowBatch) -> Event {
    let mut data = b"{\"records\":[".to_vec();
    rows.write_list(&mut data);
    data.extend_from_slice(b"]}");
    new_event(id, "rows", &String::from_utf8_lossy(&data)).holding(rows.held())
}

#[derive(Debug, Deserialize)]
struct Text {
    query: String,
}

async fn validate(
    State((engine, schemas)): State<(Queries, Arc<Schemas>)>,
    caller: Caller,
    Json(text): Json<Text>,
) -> Result<Response, Problem> {
    engine.validate(&text.query).map_err(problem)?;
    // A stream that cannot be looked at, or is not there yet, is told to whoever asks the query.
    let hints = schemas.hints(&caller.tenant, text.query).await.unwrap_or_default();
    if hints.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let hints: Vec<Value> = hints.iter().map(place).collect();
    Ok(axum::Json(json!({ "hints": hints })).into_response())
}

async fn list(State(engine): State<Queries>, caller: Caller) -> Response {
    axum::Json(engine.list(&caller.tenant)).into_response()
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
    let refused = |rule: NoResultId| {
        Problem::invalid(format!("Last-Event-ID: '{after}' is no event's id")).value(&*after).rule(rule.to_string())
    };
    after.parse().map_err(refused)
}

/// A refusal; one of the text itself is 422 and points at the places.
pub(crate) fn problem(error: Error) -> Problem {
    let problem = Problem::from_error(error.code(), &error);
    match error {
        Error::Refused { diagnostics } => {
            let errors: Vec<Value> = diagnostics.iter().map(place).collect();
            problem.with_status(StatusCode::UNPROCESSABLE_ENTITY).member("errors", errors)
        }
        _ => problem,
    }
}

/// A diagnostic with the length of what it points at.
fn place(diagnostic: &Diagnostic) -> Value {
    let mut place = serde_json::to_value(diagnostic).expect("a diagnostic has string keys only");
    place["length"] = diagnostic.found.chars().count().max(1).into();
    place
}
