//! Requests that the fast head reads, and those that it leaves to hyper.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, Answer, Authenticator, Claim, Identity, LaterAnswer, Limits, ListenerLimits, Problem, Reach, Request,
    Route, Routes, Unread, Verdict,
};
use millstream_types::{AccessScope, Principal, Role, Roles, TenantId};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::server::{LIMITS, Server};

/// Accepts one caller, at once or after a wait.
struct OneCaller;

impl OneCaller {
    fn judge(authorization: Option<&[u8]>) -> Result<Identity, Problem> {
        let roles = Roles::NONE.with(Role::Device);
        let principal =
            Principal { tenant: TenantId::default(), name: "d".to_owned(), roles, scope: AccessScope::default() };
        let identity =
            Identity { principal: Arc::new(principal), reach: Reach::OneTenant, revocation: None, expires_ms: None };
        let is_good = matches!(authorization, Some(b"good" | b"slow"));
        is_good.then_some(identity).ok_or_else(|| Problem::unauthenticated(HeaderValue::from_static("Any"), "no"))
    }
}

impl Authenticator for OneCaller {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        let authorization = claim.headers.get("authorization");
        let verdict = Self::judge(authorization);
        match authorization {
            Some(b"slow") => Verdict::Later(Box::pin(std::future::ready(verdict))),
            _ => Verdict::Now(verdict),
        }
    }

    fn open_remedy(&self) -> Option<&'static str> {
        None
    }
}

/// A handler whose status 200 means that the fast head has read the request, and 202 that hyper has.
fn handler() -> impl Fn(&Request<'_>) -> Answer + Send + Sync + 'static {
    let has_awaited = AtomicBool::new(false);
    move |request| {
        let body = match request.body() {
            Ok(body) => body,
            Err(unread) => {
                has_awaited.store(matches!(unread, Unread::Awaited), Ordering::Relaxed);
                return unread.into();
            }
        };
        let status = if has_awaited.swap(false, Ordering::Relaxed) { StatusCode::ACCEPTED } else { StatusCode::OK };
        match (request.param(0).unwrap().as_ref(), body) {
            (_, b"panic") => panic!("on purpose"),
            ("me", b"refuse") => Problem::invalid("not this").value(request.path()).into(),
            ("me", _) => status.into_response().into(),
            (other, _) => Problem::invalid("not me").value(other).into(),
        }
    }
}

fn route(handler: impl Fn(&Request<'_>) -> Answer + Send + Sync + 'static) -> Routes {
    route_within(LIMITS, handler)
}

fn route_within(limits: Limits, handler: impl Fn(&Request<'_>) -> Answer + Send + Sync + 'static) -> Routes {
    let draft = Route::put("/things/{name}", Access::Device, limits, "Put").param("name", "It.").answers(200, "It is.");
    Routes::new("things").route(draft.answered_by(handler))
}

async fn server(routes: Routes) -> Server {
    Server::start(routes, Arc::new(OneCaller), ListenerLimits::default()).await
}

const DROPPED: &str = "millstream_http_requests_dropped_total";
const LINE: &str = "PUT /things/me HTTP/1.1";
const LOGIN: &str = "authorization: good\r\n";
/// A header with which hyper has to read the request.
const FOR_HYPER: &str = "te: trailers\r\n";

#[tokio::test]
async fn only_requests_with_an_unusual_framing_are_left_to_hyper() {
    let server = server(route(handler())).await;
    let long = format!("PUT /things/me{} HTTP/1.1", "e".repeat(9_000));
    for (line, headers, body, status) in [
        (LINE, LOGIN, "x", 200),
        (LINE, "Authorization: good\r\nConnection: keep-alive\r\nX-Own: 1\r\nUser-Agent: u\r\n", "x", 200),
        (LINE, LOGIN, "refuse", 400),
        (LINE, LOGIN, "panic", 500),
        (LINE, "authorization: good\r\nX-Forwarded-For: 1.2.3.4\r\nVia: a\r\nVia: b\r\ntracestate: c\r\n", "x", 200),
        (LINE, "authorization: good\r\nX-Request-Id: 1\r\nForwarded: for=1.2.3.4\r\n", "x", 200),
        (LINE, "authorization: good\r\ncontent-type: a\r\ncontent-type: b\r\n", "x", 200),
        (LINE, "authorization: good\r\norigin: http://page\r\n", "x", 200),
        (LINE, "authorization: good\r\nrequest-timeout: 5s\r\n", "x", 200),
        (LINE, "authorization: good\r\nrequest-timeout: soon\r\n", "x", 400),
        (LINE, "authorization: good\r\nhost: again\r\n", "x", 400),
        ("PUT /things/me?a=b%20c HTTP/1.1", LOGIN, "x", 200),
        ("PUT /things/m%65 HTTP/1.1", LOGIN, "x", 200),
        (LINE, "authorization: bad\r\n", "x", 401),
        (LINE, "", "x", 401),
        (LINE, "authorization: slow\r\n", "x", 202),
        (LINE, "authorization: good\r\nte: trailers\r\n", "x", 202),
        (LINE, "authorization: good\r\nupgrade: h2c\r\n", "x", 202),
        (LINE, "authorization: good\r\nexpect: 100-continue\r\n", "x", 202),
        (LINE, "authorization: good\r\nconnection: close\r\n", "x", 202),
        ("PUT http://localhost/things/me HTTP/1.1", LOGIN, "x", 202),
        ("PUT /things/me HTTP/1.0", LOGIN, "x", 202),
        ("POST /things/me HTTP/1.1", LOGIN, "x", 405),
        ("PUT /nothing HTTP/1.1", LOGIN, "x", 404),
        (LINE, LOGIN, &"x".repeat(101), 413),
        (&long, LOGIN, "x", 414),
    ] {
        let mut client = server.connect().await;
        let length = body.len();
        client.send(&format!("{line}\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}")).await;
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
    assert_eq!((count("2xx"), count("4xx"), count("5xx")), (16, 7, 1), "both heads count");
    server.stop().await;
}

#[tokio::test]
async fn requests_are_answered_in_order_whichever_head_reads_them() {
    let server = server(route(handler())).await;
    let mut client = server.connect().await;
    let request = |headers: &str, body: &str| {
        format!("{LINE}\r\nhost: localhost\r\n{LOGIN}{headers}content-length: {}\r\n\r\n{body}", body.len())
    };
    // One request in two parts, then three at once, the last of which is for hyper, then another.
    let first = request("", "whole");
    let (head, body) = first.split_at(first.len() - 2);
    client.send(head).await;
    client.send(body).await;
    client.read_until("\r\n\r\n").await;
    client.send(&[request("", "a"), request("", "refuse"), request(FOR_HYPER, "c")].concat()).await;
    let answers = client.read_until("HTTP/1.1 202 Accepted").await;
    let order: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(order, ["200", "400", "202"], "{answers}");
    client.send(&request("connection: close\r\n", "d")).await;
    assert!(client.read_to_end().await.contains("HTTP/1.1 202 Accepted"));
    server.stop().await;
}

#[tokio::test]
async fn an_answer_is_waited_for_and_told_though_the_listener_stops() {
    let (entered, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let signals = (entered.clone(), go_on.clone());
    let routes = route(move |_| {
        let (entered, go_on) = signals.clone();
        Answer::later(async move {
            entered.notify_one();
            go_on.notified().await;
            StatusCode::OK.into_response()
        })
    });
    let server = server(routes).await;
    let (mut idle, mut client) = (server.connect().await, server.connect().await);
    client.send(&format!("{LINE}\r\nhost: localhost\r\n{LOGIN}content-length: 1\r\n\r\nx")).await;
    entered.notified().await;
    let stopping = tokio::spawn(server.serving.shut_down(Duration::from_secs(60)));
    assert_eq!(idle.read_to_end().await, "", "who waits for nothing is closed");
    go_on.notify_one();
    assert!(client.read_to_end().await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(stopping.await.unwrap(), 0, "nothing had to be cut off");
}

#[tokio::test]
async fn a_client_that_leaves_before_its_answer_is_counted_as_gone_by_both_heads() {
    let entered = Arc::new(Notify::new());
    let signal = entered.clone();
    let server = server(route(move |request| {
        if let Err(unread) = request.body() {
            return unread.into();
        }
        signal.notify_one();
        Answer::later(std::future::pending())
    }))
    .await;
    let count = |name: &str| -> u64 {
        let text = server.metrics.text();
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains("method=\"PUT\""));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    for (left_before, headers) in (0..).zip(["", FOR_HYPER]) {
        let mut client = server.connect().await;
        client.send(&format!("{LINE}\r\nhost: localhost\r\n{LOGIN}{headers}content-length: 1\r\n\r\nx")).await;
        entered.notified().await;
        assert_eq!(count(DROPPED), left_before, "{headers}");
        drop(client);
        while count(DROPPED) == left_before {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((count(DROPPED), count("millstream_http_requests_total")), (2, 0));
    server.stop().await;
}

#[tokio::test]
async fn requests_that_come_while_one_waits_are_read_by_the_fast_head_behind_it() {
    let (entered, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let signals = (entered.clone(), go_on.clone());
    let others = handler();
    let routes = route(move |request| match request.body() {
        Ok(b"wait") => {
            let (entered, go_on) = signals.clone();
            Answer::later(async move {
                entered.notify_one();
                go_on.notified().await;
                StatusCode::NO_CONTENT.into_response()
            })
        }
        _ => others(request),
    });
    let server = server(routes).await;
    let mut client = server.connect().await;
    let request =
        |body: &str| format!("{LINE}\r\nhost: localhost\r\n{LOGIN}content-length: {}\r\n\r\n{body}", body.len());
    client.send(&[request("wait"), request("a")].concat()).await;
    entered.notified().await;
    client.send(&[request("b"), request("refuse")].concat()).await;
    go_on.notify_one();
    let answers = client.read_until("}").await;
    let order: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(order, ["204", "200", "200", "400"], "{answers}");
    server.stop().await;
}

#[tokio::test]
async fn an_answer_is_waited_for_as_long_as_its_route_or_its_client_allows() {
    let limits = Limits { timeout: Duration::from_millis(50), ..LIMITS };
    let server = server(route_within(limits, |request| match request.body() {
        Ok(b"never") => Answer::later(std::future::pending()),
        Ok(_) => Answer::later(std::future::ready(StatusCode::OK.into_response())),
        Err(unread) => unread.into(),
    }))
    .await;
    for head in ["", FOR_HYPER] {
        let mut client = server.connect().await;
        let request = |headers: &str, body: &str| {
            let length = body.len();
            format!("{LINE}\r\nhost: localhost\r\n{LOGIN}{head}{headers}content-length: {length}\r\n\r\n{body}")
        };
        for (headers, waited) in [("", "50 ms"), ("", "50 ms"), ("request-timeout: 20\r\n", "20 ms")] {
            client.send(&request(headers, "never")).await;
            let answer = client.read_until("}").await;
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains(waited), "{answer}");
            client.send(&request("", "at once")).await;
            let answer = client.read_until("\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "the connection goes on: {answer}");
        }
    }
    server.stop().await;
}

/// An answer that never comes.
struct Never(Option<Instant>);

impl LaterAnswer for Never {
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Response> {
        Poll::Pending
    }

    fn due(&self) -> Option<Instant> {
        self.0
    }

    fn give_up(&self) -> Response {
        Problem::invalid("never").value("40 ms").into_response()
    }
}

#[tokio::test]
async fn an_answer_with_an_earlier_end_than_its_route_is_given_up_in_its_own_words() {
    for (timeout_ms, expected) in [(60_000, ["400", "40 ms"]), (20, ["503", "20 ms"])] {
        let limits = Limits { timeout: Duration::from_millis(timeout_ms), ..LIMITS };
        let server = server(route_within(limits, |request| match request.body() {
            Ok(_) => Answer::Later(Box::pin(Never(Some(request.started() + Duration::from_millis(40))))),
            Err(unread) => unread.into(),
        }))
        .await;
        for head in ["", FOR_HYPER] {
            let mut client = server.connect().await;
            for _ in 0..2 {
                client.send(&format!("{LINE}\r\nhost: localhost\r\n{LOGIN}{head}content-length: 1\r\n\r\nx")).await;
                let answer = client.read_until("}").await;
                assert!(expected.iter().all(|part| answer.contains(part)), "{timeout_ms}: {answer}");
            }
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn a_handler_that_waits_for_its_client_has_more_time_than_its_route() {
    let limits = Limits { timeout: Duration::from_millis(20), ..LIMITS };
    let server = server(route_within(limits, |request| {
        if let Err(unread) = request.body() {
            return unread.into();
        }
        let more_time = request.more_time();
        Answer::later(async move {
            more_time.wait(Duration::from_millis(100)).await;
            StatusCode::OK.into_response()
        })
    }))
    .await;
    for head in ["", FOR_HYPER] {
        let mut client = server.connect().await;
        client.send(&format!("{LINE}\r\nhost: localhost\r\n{LOGIN}{head}content-length: 1\r\n\r\nx")).await;
        let answer = client.read_until("\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn hyper_reads_a_body_only_for_a_handler_that_asks_for_it() {
    let server = server(route(|request| match request.header("x-wrong") {
        Some(_) => Problem::invalid("this header is wrong").into(),
        None => request.body().map_or_else(Answer::from, |body| format!("{} bytes", body.len()).into_response().into()),
    }))
    .await;
    let head = format!("{LINE}\r\nhost: localhost\r\n{LOGIN}expect: 100-continue\r\ncontent-length: 5\r\n");
    let mut refused = server.connect().await;
    refused.send(&format!("{head}x-wrong: 1\r\n\r\n")).await;
    assert!(refused.read_until("}").await.starts_with("HTTP/1.1 400 "), "before the body is sent");
    let mut client = server.connect().await;
    client.send(&format!("{head}\r\n")).await;
    assert_eq!(client.read_until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("whole").await;
    assert!(client.read_until("5 bytes").await.starts_with("HTTP/1.1 200 "));
    let mut chunked = server.connect().await;
    let chunks = "2\r\nwh\r\n3\r\nole\r\n0\r\n\r\n";
    chunked.send(&format!("{LINE}\r\nhost: localhost\r\n{LOGIN}transfer-encoding: chunked\r\n\r\n{chunks}")).await;
    assert!(chunked.read_until("5 bytes").await.starts_with("HTTP/1.1 200 "));
    server.stop().await;
}
