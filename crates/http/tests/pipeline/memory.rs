//! Memory of connections, heads, bodies and answers, and the refusals when none is left.

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, AnswerMemory, CONNECTION_BYTES, Limits, Payload, Problem, Route, Routes};
use millstream_types::{MemoryBudget, Role};

use crate::server::{Answer, Client, LIMITS, Server, WRITER};

const READER: Access = Access::Role(Role::Reader);
/// The largest body of a route.
const LARGE_BYTES: u64 = 1 << 20;
/// More bytes than sockets buffer.
const BIG_BYTES: usize = 32 << 20;

async fn echo(Payload(body): Payload) -> Bytes {
    body
}

async fn big() -> Vec<u8> {
    vec![b'b'; BIG_BYTES]
}

/// Renders a list in steps.
async fn steps(mut memory: AnswerMemory) -> Result<Response, Problem> {
    let mut text = Vec::new();
    while text.len() < BIG_BYTES {
        text.resize(text.len() + BIG_BYTES / 8, b's');
        memory.cover(text.len())?;
    }
    let mut response = text.into_response();
    memory.hold_for(&mut response);
    Ok(response)
}

fn routes() -> Routes {
    let limits = Limits { body_max_bytes: 100, ..LIMITS };
    let large = Limits { body_max_bytes: LARGE_BYTES, ..LIMITS };
    Routes::new("things")
        .route(Route::put("/echo", WRITER, limits, "Send it back").answers(200, "It.").to(echo, ()))
        .route(Route::put("/large", WRITER, large, "Send much back").answers(200, "It.").to(echo, ()))
        .route(Route::post("/big", WRITER, LIMITS, "Change much").answers(200, "It.").to(big, ()))
        .route(Route::get("/big", READER, LIMITS, "Show much").answers(200, "It.").to(big, ()))
        .route(Route::get("/open", Access::Public, LIMITS, "Show all").answers(200, "It.").to(big, ()))
        .route(Route::get("/steps", READER, LIMITS, "Show in steps").answers(200, "It.").to(steps, ()))
}

async fn server(budget_bytes: u64) -> (Server, MemoryBudget) {
    let memory = MemoryBudget::new("memory.budget_bytes", budget_bytes);
    (Server::drawing_on(&memory, routes()).await, memory)
}

/// Waits until exactly this much memory is used.
async fn used(memory: &MemoryBudget, bytes: u64) {
    while memory.used_bytes() != bytes {
        tokio::task::yield_now().await;
    }
}

/// Sends parts so that each arrives separately.
async fn send_in_parts<const N: usize>(client: &mut Client, parts: [&str; N]) {
    for part in parts {
        client.send(part).await;
        // The server needs fewer turns to read it.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
    }
}

async fn end(server: Server, memory: MemoryBudget) {
    server.stop().await;
    assert_eq!(memory.used_bytes(), 0);
}

/// A client that has sent part of a body of 60 bytes.
async fn half(server: &Server, memory: &MemoryBudget) -> Client {
    let mut half = server.connect().await;
    half.send("PUT /echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 60\r\n\r\nhalf").await;
    used(memory, CONNECTION_BYTES + 60).await;
    half
}

#[tokio::test]
async fn a_body_that_finds_no_memory_is_answered_503_until_another_is_gone() {
    let budget = 2 * CONNECTION_BYTES + 150;
    let (server, memory) = server(budget).await;
    let mut half = half(&server, &memory).await;
    let large = "b".repeat(91);
    let refused = server.ask("PUT /echo HTTP/1.1", &large).await;
    refused.expect_problem_of(503, "overloaded", Some("91"), &format!("memory.budget_bytes = {budget}"));
    let text = format!(
        "no memory for a body of 91 bytes now: {} of {budget} bytes are in use; memory.budget_bytes = {budget}; \
         send it again later, or raise the budget",
        2 * CONNECTION_BYTES + 60
    );
    assert_eq!(refused.json()["error"], text);
    assert_eq!(refused.header("retry-after"), Some("1"));
    used(&memory, CONNECTION_BYTES + 60).await;
    // A body of unknown length counts as its route's limit.
    let chunked = "PUT /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\nhost: localhost\r\nconnection: close\r\n\r\n1\r\na\r\n0\r\n\r\n";
    let mut client = server.connect().await;
    client.send(chunked).await;
    Answer::parse(&client.read_to_end().await).expect_problem_of(503, "overloaded", Some("100"), "memory.budget_bytes");
    drop(client);
    used(&memory, CONNECTION_BYTES + 60).await;
    assert_eq!(server.ask("PUT /echo HTTP/1.1", &large[1..]).await.body, large[1..], "what fits is taken meanwhile");

    half.send(&"b".repeat(56)).await;
    assert_eq!(Answer::parse(&half.read_to_end().await).status, 200);
    drop(half);
    used(&memory, 0).await;
    assert_eq!(server.ask("PUT /echo HTTP/1.1", &large).await.body, large);
    used(&memory, 0).await;
    let mut client = server.connect().await;
    client.send(chunked).await;
    assert_eq!(Answer::parse(&client.read_to_end().await).body, "a");
    drop(client);
    end(server, memory).await;
}

#[tokio::test]
async fn what_one_tenant_announces_leaves_memory_for_the_bodies_of_another() {
    let (server, memory) = server(8 * LARGE_BYTES).await;
    let announced =
        |tenant: &str| format!("PUT /large HTTP/1.1\r\nFiware-Service: {tenant}\r\ncontent-length: {LARGE_BYTES}");
    let mut standing = Vec::new();
    for _ in 0..20 {
        let mut client = server.connect().await;
        client.send(&format!("{}\r\nhost: localhost\r\nconnection: close\r\n\r\n", announced("greedy"))).await;
        standing.push(client);
    }
    // Three stand, as the connections count, too.
    for mut refused in standing.split_off(3) {
        let answer = Answer::parse(&refused.read_to_end().await);
        answer.expect_problem_of(503, "overloaded", Some(&LARGE_BYTES.to_string()), "no more than what it leaves free");
    }
    let body = "b".repeat(LARGE_BYTES as usize);
    for _ in 0..3 {
        let answer = server.ask("PUT /large HTTP/1.1\r\nFiware-Service: other", &body).await;
        assert_eq!((answer.status, answer.body.len()), (200, body.len()));
    }
    drop(standing);
    end(server, memory).await;
}

#[tokio::test]
async fn answers_that_one_tenant_does_not_read_leave_memory_for_those_of_another() {
    for path in ["/big", "/steps"] {
        let (server, memory) = server(4 * BIG_BYTES as u64).await;
        let asking = |tenant: &str| format!("GET {path} HTTP/1.1\r\nFiware-Service: {tenant}");
        let mut standing = Vec::new();
        for _ in 0..4 {
            let mut client = server.connect().await;
            client.send(&format!("{}\r\nhost: localhost\r\nconnection: close\r\n\r\n", asking("greedy"))).await;
            client.read_until("HTTP/1.1 ").await;
            standing.push(client);
        }
        let size = BIG_BYTES as u64;
        assert!((size..=2 * size).contains(&memory.used_bytes()), "{path}: {}", memory.used_bytes());
        let answer = server.ask(&asking("other"), "").await;
        assert_eq!((answer.status, answer.body.len()), (200, BIG_BYTES), "{path}");
        drop(standing);
        end(server, memory).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_body_gives_its_memory_back() {
    let (server, memory) = server(CONNECTION_BYTES + 150).await;
    drop(half(&server, &memory).await);
    used(&memory, 0).await;
    end(server, memory).await;
}

#[tokio::test]
async fn a_connection_without_memory_is_refused_and_others_go_on() {
    let budget = 2 * CONNECTION_BYTES + 100;
    let (server, memory) = server(budget).await;
    let mut first = server.connect().await;
    // So little memory has room for one connection that has made no request yet.
    let request = "PUT /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi";
    first.send(request).await;
    first.read_until("hi").await;
    let second = server.connect().await;
    used(&memory, 2 * CONNECTION_BYTES).await;
    let mut third = server.connect().await;
    let refused = Answer::parse(&third.read_to_end().await);
    refused.expect_problem_of(503, "overloaded", Some("16384"), &format!("memory.budget_bytes = {budget}"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    first.send(request).await;
    first.read_until("hi").await;
    drop(second);
    used(&memory, CONNECTION_BYTES).await;
    assert_eq!(server.ask("PUT /echo HTTP/1.1", "ho").await.body, "ho");
    drop(first);
    end(server, memory).await;
}

#[tokio::test]
async fn a_large_head_takes_memory_while_its_request_lasts_and_is_refused_without_it() {
    let padding = "x".repeat(5_000);
    let start = format!("GET /steps HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-padding: {padding}");
    let request = [&start, &padding, "xxx\r\n\r\n"];
    let head_bytes = 64 << 10;
    let (poor, memory) = server(CONNECTION_BYTES + head_bytes - 1).await;
    let mut client = poor.connect().await;
    send_in_parts(&mut client, request).await;
    let refused = Answer::parse(&client.read_to_end().await);
    refused.expect_problem_of(503, "overloaded", Some("65536"), "memory.budget_bytes");
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(client);
    used(&memory, 0).await;
    end(poor, memory).await;

    let (rich, memory) = server(CONNECTION_BYTES + head_bytes + 3 * BIG_BYTES as u64).await;
    let mut client = rich.connect().await;
    send_in_parts(&mut client, request).await;
    client.read_until("sss").await;
    assert_eq!(memory.used_bytes(), CONNECTION_BYTES + head_bytes + BIG_BYTES as u64);
    assert!(client.read_to_end().await.len() > BIG_BYTES / 2);
    drop(client);
    used(&memory, 0).await;
    end(rich, memory).await;
}

#[tokio::test]
async fn a_head_whose_end_arrives_together_with_the_body_is_no_larger_for_that() {
    let (server, memory) = server(CONNECTION_BYTES + 100).await;
    let mut client = server.connect().await;
    let start = format!("PUT /echo HTTP/1.1\r\nhost: localhost\r\nx-padding: {}", "x".repeat(8_100));
    let body = "b".repeat(100);
    let rest = format!("\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{body}");
    send_in_parts(&mut client, [&start, &rest]).await;
    assert_eq!(Answer::parse(&client.read_to_end().await).body, body);
    drop(client);
    end(server, memory).await;
}

#[tokio::test]
async fn an_answer_counts_until_its_client_has_it_and_one_without_memory_is_503() {
    for path in ["/big", "/steps"] {
        let budget = 2 * (CONNECTION_BYTES + BIG_BYTES as u64);
        let (server, memory) = server(budget).await;
        let mut slow = server.connect().await;
        slow.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        used(&memory, CONNECTION_BYTES + BIG_BYTES as u64).await;
        // The answer has fewer pieces than turns: the server sends only what the client reads.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(memory.used_bytes(), CONNECTION_BYTES + BIG_BYTES as u64);
        let refused = server.ask(&format!("GET {path} HTTP/1.1"), "").await;
        refused.expect_problem_of(503, "overloaded", None, &format!("memory.budget_bytes = {budget}"));
        assert!(refused.json()["detail"].as_str().unwrap().starts_with("no memory for an answer of "), "{refused:?}");
        assert_eq!(refused.header("retry-after"), Some("1"));
        used(&memory, CONNECTION_BYTES + BIG_BYTES as u64).await;
        // Requests that changed something and public routes are answered even without memory.
        for head in ["POST /big HTTP/1.1", "GET /open HTTP/1.1"] {
            assert_eq!(server.ask(head, "").await.body.len(), BIG_BYTES, "{head}");
        }
        drop(slow);
        used(&memory, 0).await;
        assert_eq!(server.ask(&format!("GET {path} HTTP/1.1"), "").await.body.len(), BIG_BYTES);
        end(server, memory).await;
    }
}
