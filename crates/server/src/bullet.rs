//! `/api/bullet`: the paths of Bullet's web service for its clients. A request is the query itself, as text or as JSON;
//! refusals have the shape of results.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, AnswerMemory, Caller, Content, Event, EventSender, Payload, Problem, Query, Route, Routes, Shutdown,
    event_stream,
};
use millstream_query::{Deliver, Delivery, Engine, QueryRequest, Subscription};
use millstream_types::Role;
use serde_json::json;

use crate::queries::{ASK_LIMITS, EVENTS_WAITING_MAX, answer_once, problem};
use crate::schema::{LOOK_LIMITS, Parameters, STREAM, Schemas};

/// The routes.
pub(crate) fn routes(engine: Arc<Engine>, schemas: &Arc<Schemas>) -> Routes {
    let reader = Access::Role(Role::Reader);
    let post = |path, summary| {
        Route::post(path, reader, ASK_LIMITS, summary)
            .takes(Content::json(json!({"description": "A query as text or as a document."})))
            .answers(422, "It is no query: `meta.errors` says where and why.")
    };
    let result = || Content::json(json!({"type": "object", "required": ["records", "meta"]}));
    Routes::new("bullet")
        .errors("/api/bullet", in_meta)
        .route(
            post("/api/bullet/queries/http-query", "Ask a query for one result at its end")
                .answers_with(200, "All records and the meta.", result())
                .to(ask, Arc::clone(&engine)),
        )
        .route(
            post("/api/bullet/queries/sse-query", "Ask a query for results as they come")
                .answers_with(200, "An event for each result.", Content::events(json!({"type": "object"})))
                .to(listen, Arc::clone(&engine)),
        )
        .route(
            post("/api/bullet/queries/validate-query", "Check a query")
                .answers(204, "It is one.")
                .to(validate, Arc::clone(&engine)),
        )
        .route(
            Route::get(
                "/api/bullet/queries/ws-query",
                reader,
                LOOK_LIMITS,
                "Bullet's WebSocket, which is not there yet",
            )
            .answers(501, "Always; it names what there is instead.")
            .to(no_stomp, ()),
        )
        .route(
            post("/api/bullet/queries/async-query", "Bullet's asynchronous queries, which are not there yet")
                .answers(501, "Always; it names what there is instead.")
                .to(no_responders, ()),
        )
        .route(
            Route::patch(
                "/api/bullet/admin/replay",
                Access::Role(Role::Admin),
                LOOK_LIMITS,
                "Nothing: queries need none",
            )
            .answers(202, "Live queries that are kept go on by themselves.")
            .to(replay, ()),
        )
        .route(
            Route::get("/api/bullet/columns", reader, LOOK_LIMITS, "See what a query can select")
                .query("stream", STREAM)
                .answers_with(200, "A JSON:API document of fields.", Content::json(json!({"type": "object"})))
                .answers(404, "The topic does not exist.")
                .to(columns, Arc::clone(schemas)),
        )
        .route(
            post("/drpc/{function}", "Ask as Bullet's load script does")
                .param("function", "Any name; there is one function, to ask.")
                .answers_with(200, "All records and the meta.", result())
                .to(ask, engine),
        )
}

/// A refusal as a result without records.
fn in_meta(problem: Problem) -> Response {
    let error = json!({"error": problem.detail(), "resolution": "change the query or the request as the error says"});
    (problem.status(), axum::Json(json!({"records": [], "meta": {"errors": [error]}}))).into_response()
}

fn text(payload: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(payload).map_err(|_| Problem::invalid("the body is no UTF-8 text; send the query itself"))
}

async fn ask(
    State(engine): State<Arc<Engine>>,
    caller: Caller,
    shutdown: Shutdown,
    memory: AnswerMemory,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let request = QueryRequest { is_of_bullet: true, ..QueryRequest::new(text(&body)?) };
    answer_once(&engine, &caller, request, shutdown, memory).await
}

async fn listen(
    State(engine): State<Arc<Engine>>,
    caller: Caller,
    shutdown: Shutdown,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let request = QueryRequest { deliver: Deliver::Sse, is_of_bullet: true, ..QueryRequest::new(text(&body)?) };
    let subscription = engine.submit(&caller.tenant, request).await.map_err(problem)?;
    let (sender, stream) = event_stream(EVENTS_WAITING_MAX, shutdown);
    tokio::spawn(deliver(subscription, engine, sender));
    Ok(stream.into_response())
}

/// Each result as `{"records": […], "meta": {…}}`, until the query ends or its client leaves, which ends it.
async fn deliver(mut subscription: Subscription, engine: Arc<Engine>, sender: EventSender) {
    loop {
        let delivery = tokio::select! {
            delivery = subscription.next() => delivery,
            () = sender.ended() => return,
        };
        let (data, held) = match delivery {
            Some(Delivery::Rows(rows)) => {
                let mut json = rows.to_json();
                json.pop();
                json.extend_from_slice(b",\"meta\":{}}");
                (json, rows.held())
            }
            Some(Delivery::Window(window)) => (window.to_json_called(engine.bullet_names()), window.rows.held()),
            Some(Delivery::End(meta)) => (meta.to_json_called(engine.bullet_names()), None),
            None => return,
        };
        let event = Event::new(None, None, &String::from_utf8_lossy(&data)).holding(held);
        if sender.send(event).await.is_err() {
            return;
        }
    }
}

async fn validate(State(engine): State<Arc<Engine>>, Payload(body): Payload) -> Result<StatusCode, Problem> {
    engine.validate(text(&body)?).map(|_| StatusCode::NO_CONTENT).map_err(problem)
}

fn not_there(what: &'static str, instead: &'static str) -> Problem {
    Problem::invalid(format!("{what} is not there yet; {instead}")).with_status(StatusCode::NOT_IMPLEMENTED)
}

async fn no_stomp() -> Problem {
    not_there("STOMP over a WebSocket", "POST to /api/bullet/queries/sse-query, or use the WebSocket /api/queries/ws")
}

async fn no_responders() -> Problem {
    let instead = "POST /api/queries with 'deliver': {'topic': name} answers at once and gives the results to a topic";
    not_there("an asynchronous query", instead)
}

async fn replay() -> StatusCode {
    StatusCode::ACCEPTED
}

async fn columns(
    State(schemas): State<Arc<Schemas>>,
    caller: Caller,
    Query(Parameters { stream }): Query<Parameters>,
) -> Result<Response, Problem> {
    let columns = schemas.look(&caller.tenant, stream).await?.bullet_columns();
    let json_api = HeaderValue::from_static("application/vnd.api+json");
    Ok(([(CONTENT_TYPE, json_api)], columns.to_string()).into_response())
}
