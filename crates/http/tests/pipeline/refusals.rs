//! Every refusal of the pipeline: status, headers, and a body with value, rule and remedy.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, Api, Content, Cors, Error, ErrorStyle, Json, Metrics, Origins, Path, Payload, Problem, Query, Reason,
    Route, Routes,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::{LIMITS, Server, WRITER};

#[derive(Deserialize)]
struct Page {
    limit: Option<u32>,
}

#[derive(Deserialize)]
struct Thing {
    size: u32,
}

async fn list(Query(page): Query<Page>) -> String {
    format!("{:?}", page.limit)
}

async fn keep(Path((bucket, number)): Path<(String, u32)>, Payload(body): Payload) -> String {
    format!("{bucket}/{number}: {}", String::from_utf8_lossy(&body))
}

async fn describe(Json(thing): Json<Thing>) -> Json<Value> {
    Json(json!({"size": thing.size}))
}

async fn panics() -> String {
    panic!("on purpose")
}

fn things() -> Routes {
    Routes::new("things")
        .route(
            Route::get("/things", WRITER, LIMITS, "List things")
                .query("limit", "How many at most.")
                .answers_with(200, "Things.", Content::text())
                .to(list, ()),
        )
        .route(
            Route::post("/things", WRITER, LIMITS, "Describe a thing")
                .takes(Content::json(json!({"type": "object", "properties": {"size": {"type": "integer"}}})))
                .answers_with(200, "As described.", Content::json(json!({"type": "object"})))
                .to(describe, ()),
        )
        .route(
            Route::put("/things/{bucket}/{number}", WRITER, LIMITS, "Keep a thing")
                .param("bucket", "Where.")
                .param("number", "Which.")
                .header("qos-level", "How safely.")
                .takes(Content::bytes("application/octet-stream"))
                .answers(200, "Kept.")
                .to(keep, ()),
        )
        .route(Route::get("/panics", Access::Public, LIMITS, "Fail").answers(500, "Always.").to(panics, ()))
}

#[tokio::test]
async fn each_refusal_names_value_rule_and_remedy() {
    let server = Server::of(things()).await;
    let ask = async |head: &str, body: &str| server.ask(head, body).await;
    let json = "content-type: application/json";

    ask("GET /nothing HTTP/1.1", "").await.expect_problem_of(404, "unknown-route", Some("/nothing"), "capitals");
    let refused = ask("DELETE /things HTTP/1.1", "").await;
    refused.expect_problem_of(405, "method-not-allowed", Some("DELETE"), "GET, HEAD, OPTIONS, POST");
    assert_eq!(refused.header("allow"), Some("GET, HEAD, OPTIONS, POST"));

    let long = "x".repeat(101);
    ask("PUT /things/a/1 HTTP/1.1", &long).await.expect_problem_of(
        413,
        "body-too-large",
        Some("101"),
        "things.body_max_bytes = 100",
    );
    let chunked =
        "PUT /things/a/1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut client = server.connect().await;
    client.send(&format!("{chunked}65\r\n{long}\r\n0\r\n\r\n")).await;
    crate::server::Answer::parse(&client.read_to_end().await).expect_problem_of(
        413,
        "body-too-large",
        None,
        "things.body_max_bytes = 100",
    );

    ask(&format!("GET /things?{} HTTP/1.1", "q".repeat(8200)), "").await.expect_problem_of(
        414,
        "uri-too-long",
        Some("8208"),
        "http.uri_max_bytes = 8192",
    );
    ask(&format!("GET /things HTTP/1.1\r\nx-long: {}", "h".repeat(20_000)), "").await.expect_problem_of(
        431,
        "head-too-large",
        Some("20034"),
        "http.head_max_bytes = 16384",
    );

    let refused = ask(&format!("POST /things HTTP/1.1\r\n{json}"), "{\"size\":\n ?}").await;
    refused.expect_problem_of(400, "malformed-body", None, "line 2 column 2");
    assert_eq!((refused.json()["line"].as_u64(), refused.json()["column"].as_u64()), (Some(2), Some(2)));
    ask(&format!("POST /things HTTP/1.1\r\n{json}"), "{\"size\":\"big\"}").await.expect_problem_of(
        400,
        "malformed-body",
        None,
        "expected a whole number of at most 4294967295",
    );
    ask("POST /things HTTP/1.1\r\ncontent-type: text/csv", "{}").await.expect_problem_of(
        415,
        "unsupported-media-type",
        Some("text/csv"),
        "Content-Type: application/json",
    );
    ask("POST /things HTTP/1.1", "{}").await.expect_problem_of(
        415,
        "unsupported-media-type",
        Some(""),
        "application/json",
    );
    ask("GET /things?limit=many HTTP/1.1", "").await.expect_problem_of(
        400,
        "malformed-parameter",
        Some("limit=many"),
        "limit",
    );
    ask("GET /things HTTP/1.1\r\nrequest-timeout: soon", "").await.expect_problem_of(
        400,
        "malformed-parameter",
        Some("soon"),
        "milliseconds",
    );

    let refused = ask("PUT /things/a/one HTTP/1.1", "x").await;
    assert_eq!((refused.status, refused.json()["value"].as_str()), (400, Some("one")), "{refused:?}");
    assert!(refused.json()["detail"].as_str().unwrap().contains("'number'"));
    let refused = ask("PUT /things/%ff/1 HTTP/1.1", "x").await;
    assert_eq!((refused.status, refused.json()["value"].as_str()), (400, Some("%ff")), "{refused:?}");

    let failed = ask("GET /panics HTTP/1.1", "").await;
    assert_eq!(failed.status, 500);
    assert!(!failed.body.contains("on purpose"), "the cause is for the log: {failed:?}");
    assert_eq!(ask("PUT /things/a%20b/7 HTTP/1.1", "hello").await.body, "a b/7: hello");
    server.stop().await;
}

#[tokio::test]
async fn head_and_options_are_answered_for_every_path() {
    let server = Server::of(things()).await;
    let head = server.ask("HEAD /things HTTP/1.1", "").await;
    assert_eq!((head.status, head.body.as_str(), head.header("content-length")), (200, "", Some("4")));
    let options = server.ask("OPTIONS /things HTTP/1.1\r\norigin: http://a", "").await;
    assert_eq!((options.status, options.header("allow")), (204, Some("GET, HEAD, OPTIONS, POST")));
    assert_eq!(options.header("access-control-allow-origin"), None, "CORS is off by default");
    server.stop().await;
}

#[tokio::test]
async fn cross_origin_calls_are_allowed_where_a_group_says_so() {
    let cors = Cors {
        origins: Origins::Of(vec!["http://page".parse().unwrap()]),
        allowed_headers: "authorization, qos-level".parse().unwrap(),
        exposed_headers: "etag".parse().unwrap(),
        max_age_s: 600,
    };
    let server = Server::of(things().cors(cors)).await;
    let preflight = "OPTIONS /things HTTP/1.1\r\naccess-control-request-method: POST\r\norigin:";
    let answer = server.ask(&format!("{preflight} http://page"), "").await;
    let headers = ["access-control-allow-origin", "access-control-allow-methods", "access-control-allow-headers"];
    let told = headers.map(|name| answer.header(name).unwrap_or_default());
    assert_eq!(told, ["http://page", "GET, HEAD, OPTIONS, POST", "authorization, qos-level"]);
    assert_eq!((answer.header("access-control-max-age"), answer.header("vary")), (Some("600"), Some("origin")));
    let stranger = server.ask(&format!("{preflight} http://other"), "").await;
    assert_eq!((stranger.header(headers[0]), stranger.header(headers[1])), (None, None));

    let answer = server.ask("GET /things?limit=no HTTP/1.1\r\norigin: http://page", "").await;
    let told = (answer.status, answer.header(headers[0]), answer.header("access-control-expose-headers"));
    assert_eq!(told, (400, Some("http://page"), Some("etag")), "a page may read refusals too");
    server.stop().await;
}

/// Errors like those of a context broker.
const STYLE: ErrorStyle = ErrorStyle {
    render: style,
    media_type: "application/json",
    schema_name: "BrokerError",
    schema: || json!({"type": "object", "required": ["error", "description"]}),
};

fn style(problem: Problem) -> Response {
    let (status, name) = match problem.reason() {
        Reason::UnknownRoute => (StatusCode::BAD_REQUEST, "BadRequest"),
        Reason::MethodNotAllowed => (problem.status(), "MethodNotAllowed"),
        Reason::BodyTooLarge => (problem.status(), "RequestEntityTooLarge"),
        _ => (problem.status(), "Other"),
    };
    (status, axum::Json(json!({"error": name, "description": problem.text()}))).into_response()
}

#[tokio::test]
async fn a_group_renders_the_refusals_of_the_rim_in_its_own_style() {
    let server = Server::of(things().errors("/things", STYLE)).await;
    let check = async |head: &str, body: &str, status: u16, error: &str| {
        let answer = server.ask(head, body).await;
        assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(error)), "{head}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer
    };
    check("GET /things/unknown HTTP/1.1", "", 400, "BadRequest").await;
    let refused = check("PATCH /things HTTP/1.1", "", 405, "MethodNotAllowed").await;
    assert_eq!(refused.header("allow"), Some("GET, HEAD, OPTIONS, POST"));
    let refused = check("PUT /things/a/1 HTTP/1.1", &"x".repeat(200), 413, "RequestEntityTooLarge").await;
    assert!(refused.json()["description"].as_str().unwrap().contains("things.body_max_bytes = 100"));
    check("GET /things?limit=many HTTP/1.1", "", 400, "Other").await;
    assert_eq!(server.ask("GET /elsewhere HTTP/1.1", "").await.status, 404, "other paths keep the common style");
    server.stop().await;
}

#[tokio::test]
async fn a_group_echoes_a_header_on_every_answer_or_begins_one() {
    let name = axum::http::HeaderName::from_static("x-correlator");
    let group = Routes::new("things").errors("/things", STYLE).echo(name);
    let route = Route::get("/things", Access::Public, LIMITS, "List").answers(200, "Things.").to(async || "", ());
    let server = Server::of(group.route(route)).await;
    for (request, status) in [("GET /things", 200), ("GET /things/1", 400), ("PUT /things", 405)] {
        let answer = server.ask(&format!("{request} HTTP/1.1\r\nx-correlator: mine"), "").await;
        assert_eq!((answer.status, answer.header("x-correlator")), (status, Some("mine")), "{request}");
        let answer = server.ask(&format!("{request} HTTP/1.1"), "").await;
        let begun = answer.header("x-correlator").unwrap();
        assert_eq!(begun.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{begun}");
    }
    assert_eq!(server.ask("GET /openapi.json HTTP/1.1", "").await.header("x-correlator"), None);
    server.stop().await;
}

#[test]
fn routes_that_overlap_or_are_not_documented_refuse_to_start() {
    async fn nothing() {}
    let check = |routes: &[(&'static str, &'static str)], expected: &str| {
        let group = routes.iter().fold(Routes::new("g"), |group, (path, param)| {
            let draft = Route::get(path, Access::Public, LIMITS, "Nothing").answers(204, "Nothing.");
            group.route(if param.is_empty() { draft } else { draft.param(param, "It.") }.to(nothing, ()))
        });
        let refusal = Api::builder("a", "A", "1").with(group).build(&Metrics::default()).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{refusal}");
    };
    check(&[("/a", ""), ("/a", "")], "GET /a of 'g' is declared twice");
    check(&[("/a/{x}", "x"), ("/a/{y}", "y")], "same path with other names");
    check(&[("/a/{x}", "")], "GET /a/{x} of 'g' does not document the path parameter 'x'");
    check(&[("/a/{x", "")], "is no route");
    let silent = Routes::new("g").route(Route::get("/a", Access::Public, LIMITS, "Nothing").to(nothing, ()));
    let refusal = Api::builder("a", "A", "1").with(silent).build(&Metrics::default()).unwrap_err();
    assert!(matches!(refusal, Error::Undocumented { .. }));
}

#[tokio::test]
async fn the_openapi_document_shows_every_route_with_limits_and_roles() {
    let server = Server::of(things()).await;
    let answer = server.ask("GET /openapi.json HTTP/1.1", "").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    insta::assert_snapshot!(serde_json::to_string_pretty(&answer.json()["paths"]).unwrap());
    assert_eq!(answer.json()["openapi"], "3.1.0");
    let (references, document) = (answer.body.matches("$ref").count(), answer.json());
    assert!(references > 5);
    for target in ["/components/responses/Problem503", "/components/schemas/Problem"] {
        assert!(document.pointer(target).is_some(), "{target}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_status_that_a_route_does_not_document_becomes_a_fault_where_statuses_are_checked() {
    let route = |path: &str, documented: u16| {
        let draft = Route::get(path, Access::Public, LIMITS, "List").answers(documented, "Things.");
        draft.to(async || StatusCode::CONFLICT, ())
    };
    let routes = things().route(route("/documented", 409)).route(route("/undocumented", 200));
    let server = Server::checking_statuses(routes).await;
    assert_eq!(server.ask("GET /documented HTTP/1.1", "").await.status, 409);
    assert_eq!(server.ask("GET /undocumented HTTP/1.1", "").await.status, 500);
    assert_eq!(server.ask("GET /undocumented HTTP/1.1\r\nrequest-timeout: never", "").await.status, 400);
    server.stop().await;
}

#[tokio::test]
async fn unescaped_characters_in_a_request_target_are_accepted() {
    let server = Server::of(things()).await;
    let request = "PUT /things/a<b>\"c\"`/7 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\n<x>";
    let mut client = server.connect().await;
    for split in 0..request.len() {
        let (first, rest) = request.split_at(split);
        client.send(first).await;
        tokio::task::yield_now().await;
        client.send(rest).await;
        let answer = client.read_until("<x>").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "split at {split}: {answer}");
        assert!(answer.ends_with("\r\n\r\na<b>\"c\"`/7: <x>"), "split at {split}: {answer}");
    }
    let long = format!("PUT /things/{}/7 HTTP/1.1", "<".repeat(2_600));
    assert_eq!(server.ask(&long, "").await.body, format!("{}/7: ", "<".repeat(2_600)));
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_before_the_body_has_come_says_that_the_connection_closes() {
    let server = Server::of(things()).await;
    for head in ["POST /nothing", "DELETE /things", "POST /things"] {
        let mut client = server.connect().await;
        let kind = if head == "POST /things" { "text/plain" } else { "application/json" };
        client
            .send(&format!("{head} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: 2\r\n\r\n"))
            .await;
        let refusal = client.read_until("\r\n\r\n").await.to_lowercase();
        assert!(
            refusal.starts_with("http/1.1 4") && refusal.contains("\r\nconnection: close\r\n"),
            "{head}: {refusal}"
        );
        client.send("{}").await;
        client.read_to_end().await;
    }
    // Where all of the request has been read, the connection goes on.
    let mut client = server.connect().await;
    for _ in 0..2 {
        client.send("GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let refusal = client.read_until("}").await.to_lowercase();
        assert!(refusal.starts_with("http/1.1 404") && !refusal.contains("connection: close"), "{refusal}");
    }
    server.stop().await;
}
