//! `/api/bullet`: the paths of Bullet's web service for its clients. A request body is the query itself, as text or
//! JSON, and refusals have the form of results.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, AnswerMemory, Caller, Content, Cors, ErrorStyle, Event, EventSender, Origins, Payload, Problem, Query,
    Route, Routes, Shutdown, finished_event_stream,
};
use millstream_query::{Deliver, Delivery, Engine, QueryRequest, Subscription};
use millstream_types::Role;
use serde_json::{Value, json};

use crate::queries::{ASK_LIMITS, EVENTS_WAITING_MAX, answer_once};
use crate::query_problem::{FINDINGS, problem};
use crate::schema::{LOOK_LIMITS, STREAM, SchemaParameters, Schemas};

/// Time that a browser may cache the answer to a CORS preflight.
const CORS_MAX_AGE_S: u32 = 86_400;

/// Builds the routes of `/api/bullet`.
///
/// # Errors
/// `query.bullet.cors_origin` is invalid.
pub(crate) fn routes(engine: Arc<Engine>, schemas: &Arc<Schemas>) -> anyhow::Result<Routes> {
    let reader = Access::Role(Role::Reader);
    let post = |path, summary| {
        Route::post(path, reader, ASK_LIMITS, summary)
            .takes(Content::json(json!({"description": "A query as text or as a document."})))
            .answers(404, "The topic does not exist.")
            .answers(422, "The text is not a valid query; `meta.errors` says where and why.")
    };
    let result = || Content::json(json!({"type": "object", "required": ["records", "meta"]}));
    let routes = Routes::new("bullet").errors("/api/bullet", STYLE);
    let routes = match cors(engine.bullet_cors_origin())? {
        Some(cors) => routes.cors(cors),
        None => routes,
    };
    let routes = routes
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
                .answers(204, "The query is valid.")
                .to(validate, Arc::clone(&engine)),
        )
        .route(
            Route::get(
                "/api/bullet/queries/ws-query",
                reader,
                LOOK_LIMITS,
                "Bullet's WebSocket, which is not supported yet",
            )
            .answers(501, "Always; the text names an alternative.")
            .to(no_stomp, ()),
        )
        .route(
            post("/api/bullet/queries/async-query", "Bullet's asynchronous queries, which are not supported yet")
                .answers(501, "Always; the text names an alternative.")
                .to(no_responders, ()),
        )
        .route(
            Route::patch(
                "/api/bullet/admin/replay",
                Access::Role(Role::Admin),
                LOOK_LIMITS,
                "Accepted without effect, because queries need none",
            )
            .answers(202, "Kept live queries continue without it.")
            .to(replay, ()),
        )
        .route(
            Route::get("/api/bullet/columns", reader, LOOK_LIMITS, "List the fields that a query can select")
                .query("stream", STREAM)
                .answers_with(200, "A JSON:API document of fields.", Content::bytes("application/vnd.api+json"))
                .answers(404, "The topic does not exist.")
                .to(columns, Arc::clone(schemas)),
        )
        .route(
            post("/drpc/{function}", "Ask as Bullet's load script does")
                .param("function", "Any name; there is one function, to ask.")
                .answers_with(200, "All records and the meta.", result())
                .to(ask, engine),
        );
    Ok(routes)
}

/// Returns the CORS rules for pages of other origins; `None` if those are not allowed.
fn cors(origin: &str) -> anyhow::Result<Option<Cors>> {
    let origins = match origin {
        "" => return Ok(None),
        "__ALL" => Origins::Any,
        origin if origin.contains("://") => Origins::WithCredentials(vec![
            HeaderValue::from_str(origin)
                .with_context(|| format!("query.bullet.cors_origin = '{origin}' is no origin"))?,
        ]),
        other => bail!("query.bullet.cors_origin = '{other}' is no origin; use __ALL or scheme://host:port"),
    };
    let allowed_headers = HeaderValue::from_static("Authorization, Content-Type, Fiware-Service");
    Ok(Some(Cors {
        origins,
        allowed_headers,
        exposed_headers: HeaderValue::from_static(""),
        max_age_s: CORS_MAX_AGE_S,
    }))
}

/// The form of refusals: results without records.
const STYLE: ErrorStyle = ErrorStyle {
    render: in_meta,
    media_type: "application/json",
    schema_name: "BulletError",
    schema: || {
        let error = json!({
            "type": "object",
            "required": ["error", "resolution"],
            "properties": {"error": {"type": "string"}, "resolution": {"type": "string"}},
        });
        let meta = json!({
            "type": "object",
            "required": ["errors"],
            "properties": {"errors": {"type": "array", "items": error}},
        });
        json!({
            "type": "object",
            "required": ["records", "meta"],
            "properties": {"records": {"type": "array", "maxItems": 0}, "meta": meta},
        })
    },
};

/// Renders each finding in the text of a query as `line:column: text`, any other refusal as one error.
fn in_meta(problem: Problem) -> Response {
    let texts = match problem.value_of(FINDINGS).and_then(Value::as_array) {
        Some(findings) => findings.iter().map(finding).collect(),
        None => vec![problem.detail().to_owned()],
    };
    let error =
        |error: &String| json!({"error": error, "resolution": "change the query or the request as the error says"});
    let errors: Vec<Value> = texts.iter().map(error).collect();
    (problem.status(), axum::Json(json!({"records": [], "meta": {"errors": errors}}))).into_response()
}

fn finding(finding: &Value) -> String {
    let message = finding["message"].as_str().unwrap_or_default();
    let meant = finding["suggestion"].as_str().map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    format!("{}:{}: {message}{meant}", finding["line"], finding["column"])
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
    let (sender, stream) = finished_event_stream(EVENTS_WAITING_MAX);
    tokio::spawn(deliver(subscription, engine, sender, shutdown));
    Ok(stream.into_response())
}

/// Sends the query's id, then each result as `{"records": […], "meta": {…}}`. The query ends by itself, or when its
/// client leaves or the server stops.
async fn deliver(mut subscription: Subscription, engine: Arc<Engine>, sender: EventSender, shutdown: Shutdown) {
    let opening = subscription.meta().to_json_called(engine.bullet_names());
    if sender.send(Event::new(None, None, &String::from_utf8_lossy(&opening))).await.is_err() {
        return;
    }
    let (mut stopping, mut is_stopping) = (std::pin::pin!(shutdown.begun()), false);
    loop {
        let delivery = tokio::select! {
            delivery = subscription.next() => delivery,
            () = sender.ended() => return,
            () = &mut stopping, if !is_stopping => {
                is_stopping = true;
                subscription.stop();
                continue;
            }
        };
        let Some(delivery) = delivery else { return };
        let memory = tokio::select! {
            memory = engine.copies().take(subscription.tenant(), delivery.size_bytes()) => memory,
            () = sender.ended() => return,
        };
        let data = match delivery {
            Delivery::Rows(rows) => {
                let mut json = rows.to_json();
                json.pop();
                json.extend_from_slice(b",\"meta\":{}}");
                json
            }
            Delivery::Window(window) => window.to_json_called(engine.bullet_names()),
            Delivery::End(meta) => meta.to_json_called(engine.bullet_names()),
        };
        let event = Event::new(None, None, &String::from_utf8_lossy(&data)).holding(memory);
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
    Query(SchemaParameters { stream }): Query<SchemaParameters>,
) -> Result<Response, Problem> {
    let columns = schemas.look(&caller.tenant, stream).await?.bullet_columns();
    let json_api = HeaderValue::from_static("application/vnd.api+json");
    Ok(([(CONTENT_TYPE, json_api)], columns.to_string()).into_response())
}
