//! Requests that a route takes as they lie in the buffer, and those that are left to its handler.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, Authenticator, Claim, Identity, Limits, ListenerLimits, Payload, PlainAnswer, PlainClaim, PlainRequest,
    PlainVerdict, Problem, Reach, Route, Routes, Verdict,
};
use millstream_types::{Principal, Role, Roles, TenantId};
use tokio::sync::Notify;

use crate::server::{LIMITS, Server};

/// Knows one caller.
struct OneCaller;

impl OneCaller {
    fn judge(authorization: Option<&[u8]>) -> Option<Identity> {
        let roles = Roles::NONE.with(Role::Device);
        let principal = Principal { tenant: TenantId::default(), name: "d".to_owned(), roles };
        let identity = Identity { principal: Arc::new(principal), reach: Reach::OneTenant };
        (authorization == Some(b"good")).then_some(identity)
    }
}

impl Authenticator for OneCaller {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        let caller = Self::judge(claim.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes));
        Verdict::Now(caller.ok_or_else(|| Problem::unauthenticated(HeaderValue::from_static("Any"), "no")))
    }

    fn authenticate_plain(&self, claim: PlainClaim<'_>) -> Option<Identity> {
        Self::judge(claim.header("authorization"))
    }

    fn open_remedy(&self) -> Option<&'static str> {
        None
    }
}

/// 200 tells that it was taken plainly, 202 that the handler has it.
fn take(request: &PlainRequest<'_>) -> PlainAnswer {
    match (request.param(0), request.payload) {
        (_, b"pass") => PlainAnswer::Pass,
        (_, b"panic") => panic!("on purpose"),
        _ if request.has_query() => PlainAnswer::Pass,
        ("me", b"refuse") => PlainAnswer::Now(Problem::invalid("not this").value(request.path()).into_response()),
        ("me", _) => PlainAnswer::Now(StatusCode::OK.into_response()),
        (other, _) => PlainAnswer::Now(Problem::invalid("not me").value(other).into_response()),
    }
}

async fn handle(_: Payload) -> StatusCode {
    StatusCode::ACCEPTED
}

fn route(take: impl Fn(&PlainRequest<'_>) -> PlainAnswer + Send + Sync + 'static) -> Routes {
    route_within(LIMITS, take)
}

fn route_within(limits: Limits, take: impl Fn(&PlainRequest<'_>) -> PlainAnswer + Send + Sync + 'static) -> Routes {
    let draft = Route::put("/things/{name}", Access::Device, limits, "Put").param("name", "It.").answers(200, "It is.");
    Routes::new("things").route(draft.to(handle, ()).plain(&["x-own"], take))
}

async fn server(routes: Routes) -> Server {
    Server::start(routes, Arc::new(OneCaller), ListenerLimits::default()).await
}

const LINE: &str = "PUT /things/me HTTP/1.1";
const LOGIN: &str = "authorization: good\r\n";

#[tokio::test]
async fn only_requests_that_are_plain_in_every_part_are_taken_as_such() {
    let server = server(route(take)).await;
    let long = format!("PUT /things/me{} HTTP/1.1", "e".repeat(9_000));
    for (line, headers, body, status) in [
        (LINE, LOGIN, "x", 200),
        (LINE, "Authorization: good\r\nConnection: keep-alive\r\nX-Own: 1\r\nUser-Agent: u\r\n", "x", 200),
        (LINE, LOGIN, "refuse", 400),
        (LINE, LOGIN, "panic", 500),
        (LINE, LOGIN, "pass", 202),
        (LINE, "authorization: good\r\nx-other: 1\r\n", "x", 202),
        (LINE, "authorization: good\r\norigin: http://page\r\n", "x", 202),
        (LINE, "authorization: good\r\nrequest-timeout: 5s\r\n", "x", 202),
        (LINE, "authorization: good\r\nexpect: 100-continue\r\n", "x", 202),
        (LINE, "authorization: good\r\nx-own: 1\r\nx-own: 2\r\n", "x", 202),
        (LINE, "authorization: good\r\nconnection: close\r\n", "x", 202),
        (LINE, "authorization: bad\r\n", "x", 401),
        (LINE, "", "x", 401),
        ("PUT /things/me?a=b HTTP/1.1", LOGIN, "x", 202),
        ("PUT /things/m%65 HTTP/1.1", LOGIN, "x", 202),
        ("PUT /things/me HTTP/1.0", LOGIN, "x", 202),
        ("POST /things/me HTTP/1.1", LOGIN, "x", 405),
        ("PUT /nothing HTTP/1.1", LOGIN, "x", 404),
        (LINE, LOGIN, &"x".repeat(101), 413),
        (&long, LOGIN, "x", 414),
    ] {
        let mut client = server.connect().await;
        let length = body.len();
        client.send(&format!("{line}\r\nhost: t\r\n{headers}content-length: {length}\r\n\r\n{body}")).await;
        let mut answer = client.read_until("\r\n\r\n").await;
        if answer == "HTTP/1.1 100 Continue\r\n\r\n" {
            answer = client.read_until("\r\n\r\n").await;
        }
        let shown = format!("{line:.40} {headers} {body:.10}: {answer}");
        assert!(answer.contains(&format!(" {status} ")), "{shown}");
    }
    let text = server.metrics.text();
    let count = |class| {
        let head = format!("millstream_http_requests_total{{api=\"test\",class=\"{class}\",method=\"PUT\",");
        let line = text.lines().find(|line| line.starts_with(&head)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!((count("2xx"), count("4xx"), count("5xx")), (12, 5, 1), "both ways are counted");
    server.stop().await;
}

#[tokio::test]
async fn requests_are_answered_in_order_whichever_way_they_take() {
    let server = server(route(take)).await;
    let mut client = server.connect().await;
    let request = |headers: &str, body: &str| {
        format!("{LINE}\r\nhost: t\r\n{LOGIN}{headers}content-length: {}\r\n\r\n{body}", body.len())
    };
    // In two parts, then three at once of which the last is not plain, then one that would be.
    let first = request("", "whole");
    let (head, body) = first.split_at(first.len() - 2);
    client.send(head).await;
    client.send(body).await;
    client.read_until("\r\n\r\n").await;
    client.send(&[request("", "a"), request("", "refuse"), request("x-other: 1\r\n", "c")].concat()).await;
    let answers = client.read_until("HTTP/1.1 202 Accepted").await;
    let order: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(order, ["200", "400", "202"], "{answers}");
    client.send(&request("connection: close\r\n", "d")).await;
    assert!(client.read_to_end().await.contains("HTTP/1.1 202 Accepted"));
    server.stop().await;
}

#[tokio::test]
async fn a_verdict_is_waited_for_and_told_though_the_listener_stops() {
    let (entered, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let signals = (entered.clone(), go_on.clone());
    let routes = route(move |_| {
        let (entered, go_on) = signals.clone();
        PlainAnswer::Later(Box::pin(async move {
            entered.notify_one();
            go_on.notified().await;
            StatusCode::OK.into_response()
        }))
    });
    let server = server(routes).await;
    let (mut idle, mut client) = (server.connect().await, server.connect().await);
    client.send(&format!("{LINE}\r\nhost: t\r\n{LOGIN}content-length: 1\r\n\r\nx")).await;
    entered.notified().await;
    let stopping = tokio::spawn(server.serving.shut_down(Duration::from_secs(60)));
    assert_eq!(idle.read_to_end().await, "", "who waits for nothing is closed");
    go_on.notify_one();
    assert!(client.read_to_end().await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(stopping.await.unwrap(), 0, "nothing had to be cut off");
}

#[tokio::test]
async fn a_verdict_is_waited_for_as_long_as_its_route_allows() {
    let limits = Limits { timeout: Duration::from_millis(50), ..LIMITS };
    let server = server(route_within(limits, |request| match request.payload {
        b"never" => PlainAnswer::Later(Box::pin(std::future::pending())),
        _ => PlainAnswer::Later(Box::pin(std::future::ready(StatusCode::OK.into_response()))),
    }))
    .await;
    let mut client = server.connect().await;
    let request = |body: &str| format!("{LINE}\r\nhost: t\r\n{LOGIN}content-length: {}\r\n\r\n{body}", body.len());
    for _ in 0..2 {
        client.send(&request("never")).await;
        let answer = client.read_until("}").await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("50 ms"), "{answer}");
        client.send(&request("at once")).await;
        let answer = client.read_until("\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "the connection goes on: {answer}");
    }
    server.stop().await;
}

/// A verdict that never comes.
struct Never;

impl PlainVerdict for Never {
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Response> {
        Poll::Pending
    }

    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_millis(40))
    }

    fn give_up(&self, waited: Duration) -> Response {
        Problem::invalid("never").value(format!("{waited:?}")).into_response()
    }
}

#[tokio::test]
async fn who_has_less_patience_than_the_route_says_so_in_its_own_words() {
    for (timeout_ms, expected) in [(60_000, ["400", "40ms"]), (20, ["503", "20 ms"])] {
        let limits = Limits { timeout: Duration::from_millis(timeout_ms), ..LIMITS };
        let server = server(route_within(limits, |_| PlainAnswer::Later(Box::pin(Never)))).await;
        let mut client = server.connect().await;
        for _ in 0..2 {
            client.send(&format!("{LINE}\r\nhost: t\r\n{LOGIN}content-length: 1\r\n\r\nx")).await;
            let answer = client.read_until("}").await;
            assert!(expected.iter().all(|part| answer.contains(part)), "{timeout_ms}: {answer}");
        }
        server.stop().await;
    }
}
