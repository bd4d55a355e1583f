//! Handlers that take a body as it arrives.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millstream_http::{Answer, BodyStream, Limits, Problem, Request, Route, Routes};
use millstream_types::MemoryBudget;

use crate::server::{LIMITS, Server, WRITER};

const BODY_MAX_BYTES: u64 = 8 << 20;
const HELD_BYTES: u64 = 100_000;

async fn count(mut body: BodyStream) -> Result<String, Problem> {
    let mut bytes = 0;
    while let Some(piece) = body.next().await? {
        bytes += piece.len();
    }
    Ok(bytes.to_string())
}

/// Counts the bytes of a body, or refuses it by its head.
fn handler(request: &Request<'_>) -> Answer {
    if request.query() == Some("refuse") {
        return StatusCode::CONFLICT.into_response().into();
    }
    Answer::stream(async |body| -> Response { count(body).await.into_response() })
}

async fn server() -> (Server, MemoryBudget) {
    let limits = Limits { body_max_bytes: BODY_MAX_BYTES, ..LIMITS };
    let route = Route::put("/count", WRITER, limits, "Count").answers(200, "How many.").streams(HELD_BYTES);
    // A connection, its head and the part of a body that is held.
    let memory = MemoryBudget::new("memory.budget_bytes", 2 * HELD_BYTES);
    (Server::drawing_on(&memory, Routes::new("things").route(route.answered_by(handler))).await, memory)
}

#[tokio::test]
async fn a_body_larger_than_the_memory_arrives_as_a_stream() {
    let (server, memory) = server().await;
    for length in [0, 1, 20_000, 3_000_000] {
        let answer = server.ask("PUT /count HTTP/1.1", &"x".repeat(length)).await;
        assert_eq!((answer.status, answer.body), (200, length.to_string()));
    }
    let refused = server.ask("PUT /count?refuse HTTP/1.1", "xyz").await;
    assert_eq!(refused.status, 409);
    while memory.used_bytes() > 0 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_chunked_body_is_bounded_and_one_that_is_cut_is_refused() {
    let (server, _memory) = server().await;
    let head = "PUT /count HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
    let mut client = server.connect().await;
    client.send(&format!("{head}{}0\r\n\r\n", chunk.repeat(3))).await;
    assert!(client.read_to_end().await.ends_with(&(3 << 20).to_string()));
    let mut client = server.connect().await;
    client.send(&format!("{head}{}5\r\nx", chunk.repeat(8))).await;
    client.send("yyyy\r\n0\r\n\r\n").await;
    let refused = client.read_until("urn:millstream:problem").await;
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    let mut client = server.connect().await;
    client.send(&format!("{head}{chunk}zz\r\n")).await;
    let refused = client.read_until("urn:millstream:problem").await;
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    server.stop().await;
}
