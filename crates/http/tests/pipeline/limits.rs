//! Limits for slow and greedy clients.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use millstream_http::{Access, Deadline, Limits, ListenerLimits, LoopbackApplications, Payload, Route, Routes};

use crate::server::{Answer, LIMITS, Server, WRITER};

async fn echo(Payload(body): Payload) -> Bytes {
    body
}

async fn axum_echo(body: Bytes) -> String {
    body.len().to_string()
}

async fn never(deadline: Deadline) {
    assert!(!deadline.has_passed() && deadline.remaining() <= LIMITS.timeout);
    std::future::pending().await
}

fn routes(limits: Limits) -> Routes {
    Routes::new("slow")
        .route(Route::put("/echo", WRITER, limits, "Send it back").answers(200, "It.").to(echo, ()))
        .route(Route::put("/axum", WRITER, limits, "Count it").answers(200, "Bytes.").to(axum_echo, ()))
        .route(Route::get("/never", Access::Public, limits, "Wait for ever").answers(200, "Never.").to(never, ()))
}

async fn impatient(limits: ListenerLimits) -> Server {
    Server::start(routes(LIMITS), Arc::new(LoopbackApplications::default()), limits).await
}

#[tokio::test]
async fn a_request_without_a_verdict_in_time_is_answered_503() {
    let server = Server::of(routes(LIMITS)).await;
    let answer = server.ask("GET /never HTTP/1.1\r\nrequest-timeout: 20ms", "").await;
    answer.expect_problem_of(503, "deadline-passed", Some("20 ms"), "may or may not have taken effect");
    assert!(answer.json()["detail"].as_str().unwrap().starts_with("no verdict in time"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    server.stop().await;

    let short = Server::of(routes(Limits { timeout: Duration::from_millis(20), ..LIMITS })).await;
    let answer = short.ask("GET /never HTTP/1.1\r\nrequest-timeout: 1m", "").await;
    answer.expect_problem_of(503, "deadline-passed", Some("20 ms"), "may or may not");
    short.stop().await;
}

/// A client that reads only after it has sent a body over the limit still gets the refusal.
#[tokio::test]
async fn a_client_that_still_sends_a_refused_body_gets_the_refusal() {
    let server = Server::of(routes(LIMITS)).await;
    let mut client = server.connect().await;
    let size = LIMITS.body_max_bytes as usize + (32 << 20);
    client.send(&format!("PUT /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\r\n")).await;
    let begin = client.read_until("\r\n\r\n").await;
    let piece = "x".repeat(size / 16);
    for _ in 0..16 {
        client.send(&piece).await;
    }
    let answer = Answer::parse(&(begin + &client.read_to_end().await));
    assert_eq!(answer.status, 413);
    server.stop().await;
}

/// A connection continues after a refusal if the body arrived whole, and a stopping listener does not wait for its
/// peer.
#[tokio::test]
async fn a_listener_stops_at_once_beside_a_connection_that_was_kept_after_a_refusal() {
    let server = Server::of(routes(LIMITS)).await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        client.send("PUT /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nbody").await;
        assert!(client.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 404"));
        client.read_until("}").await;
    }
    let stopped = tokio::time::timeout(Duration::from_secs(8), server.stop()).await;
    assert!(stopped.is_ok(), "it has waited for the peer to close");
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_answered_408() {
    let server = Server::of(routes(LIMITS)).await;
    let mut client = server.connect().await;
    client.send("PUT /echo HTTP/1.1\r\nhost: localhost\r\nrequest-timeout: 20\r\ncontent-length: 10\r\n\r\nhalf").await;
    let answer = Answer::parse(&client.read_to_end().await);
    answer.expect_problem_of(408, "slow-body", Some("20 ms"), "nothing was done");
    server.stop().await;
}

#[tokio::test]
async fn bodies_arrive_whole_in_pieces_chunked_and_above_two_mebibytes() {
    let server = Server::of(routes(Limits { body_max_bytes: 4 << 20, ..LIMITS })).await;
    let mut client = server.connect().await;
    let head = "PUT /echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    client.send(&format!("{head}3\r\nabc\r\n4\r\ndefg\r\n1\r\nh\r\n0\r\n\r\n")).await;
    assert_eq!(Answer::parse(&client.read_to_end().await).body, "abcdefgh");
    let big = "b".repeat(3 << 20);
    assert_eq!(server.ask("PUT /echo HTTP/1.1", &big).await.body, big);
    assert_eq!(server.ask("PUT /axum HTTP/1.1", &big).await.body, big.len().to_string());
    server.stop().await;
}

#[tokio::test]
async fn a_connection_whose_head_does_not_arrive_is_closed() {
    let server = impatient(ListenerLimits { head_timeout_ms: 30, ..ListenerLimits::default() }).await;
    for sent in ["", "GET /never HT", "GET /never HTTP/1.1\r\nhost: localhost\r\n"] {
        let mut client = server.connect().await;
        client.send(sent).await;
        assert_eq!(client.read_to_end().await, "", "{sent:?}");
    }
    // A second head on the same connection has as much time as the first.
    let mut client = server.connect().await;
    client.send("PUT /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi").await;
    client.read_until("hi").await;
    client.send("PUT /echo").await;
    assert_eq!(client.read_to_end().await, "");
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_at_work_is_not() {
    let limits = ListenerLimits { idle_timeout_ms: 30, head_timeout_ms: 20, ..ListenerLimits::default() };
    let server = impatient(limits).await;
    let mut client = server.connect().await;
    client.send("GET /never HTTP/1.1\r\nhost: localhost\r\nrequest-timeout: 200\r\n\r\n").await;
    let text = client.read_to_end().await;
    Answer::parse(&text).expect_problem_of(503, "deadline-passed", Some("200 ms"), "may or may not");
    server.stop().await;
}

#[tokio::test]
async fn a_route_has_series_from_its_first_request_on_and_rates_of_failures_with_them() {
    let server = impatient(ListenerLimits::default()).await;
    let of_http = |text: &str| text.lines().filter(|line| line.starts_with("millstream_http_")).count();
    assert_eq!(of_http(&server.metrics.text()), 0, "{}", server.metrics.text());
    assert_eq!(server.ask("PUT /echo HTTP/1.1", "hi").await.body, "hi");
    let text = server.metrics.text();
    for class in ["4xx", "5xx"] {
        let line = format!(
            "millstream_http_requests_total{{api=\"test\",class=\"{class}\",method=\"PUT\",route=\"/echo\"}} 0"
        );
        assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
    }
    for absent in ["/never", "class=\"1xx\"", "class=\"3xx\"", "millstream_http_requests_dropped_total"] {
        assert!(!text.contains(absent), "{absent} in\n{text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn connections_over_the_limit_are_refused_with_the_limit() {
    let server = impatient(ListenerLimits { connections_max: 1, ..ListenerLimits::default() }).await;
    let mut first = server.connect().await;
    first.send("PUT /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi").await;
    first.read_until("hi").await;
    let mut second = server.connect().await;
    let request = "PUT /echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";
    second.send(request).await;
    let answer = Answer::parse(&second.read_to_end().await);
    answer.expect_problem_of(503, "overloaded", Some("1"), "http.connections_max = 1");
    assert_eq!(answer.header("retry-after"), Some("1"));
    for line in [
        "millstream_connections{listener=\"test\"} 1",
        "millstream_connections_refused_total{listener=\"test\"} 1",
        "millstream_http_requests_total{api=\"test\",class=\"2xx\",method=\"PUT\",route=\"/echo\"} 1",
        "millstream_http_requests_total{api=\"test\",class=\"5xx\",method=\"PUT\",route=\"/echo\"} 1",
        "millstream_http_request_bytes_total{api=\"test\",method=\"PUT\",route=\"/echo\"} 4",
        "millstream_http_request_seconds_count{api=\"test\",method=\"PUT\",route=\"/echo\"} 2",
    ] {
        // The second connection may still be on its way out.
        while !server.metrics.text().lines().any(|known| known == line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    drop((first, second));
    server.stop().await;
}
