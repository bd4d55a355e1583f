//! Running requests when their client leaves or the listener stops.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use millstream_http::{Access, Peer, Route, Routes, TraceContext};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use crate::server::{Answer, LIMITS, Server};

/// Reports the state of the handlers to the test.
#[derive(Clone)]
struct Stage {
    entered: mpsc::UnboundedSender<&'static str>,
    go_on: Arc<Notify>,
}

/// Reports that the handler's future is dropped.
struct Exit(mpsc::UnboundedSender<&'static str>);

impl Drop for Exit {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

async fn wait(State(stage): State<Stage>) -> &'static str {
    let _exit = Exit(stage.entered.clone());
    stage.entered.send("entered").unwrap();
    stage.go_on.notified().await;
    "finished"
}

async fn trace(trace: TraceContext, Peer(peer): Peer) -> String {
    assert!(peer.ip().is_loopback());
    trace.to_string()
}

async fn server() -> (Server, mpsc::UnboundedReceiver<&'static str>, Arc<Notify>) {
    let (entered, seen) = mpsc::unbounded_channel();
    let stage = Stage { entered, go_on: Arc::new(Notify::new()) };
    let go_on = stage.go_on.clone();
    let routes = Routes::new("work")
        .route(Route::get("/wait", Access::Public, LIMITS, "Wait").answers(200, "Waited.").to(wait, stage))
        .route(Route::get("/trace", Access::Public, LIMITS, "Show the trace").answers(200, "It.").to(trace, ()));
    (Server::of(routes).await, seen, go_on)
}

#[tokio::test]
async fn a_handler_is_dropped_when_its_client_leaves() {
    let (server, mut seen, _go_on) = server().await;
    let mut client = server.connect().await;
    client.send("GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(seen.recv().await, Some("entered"));
    drop(client);
    assert_eq!(seen.recv().await, Some("dropped"));
    let line = "millstream_http_requests_dropped_total{api=\"test\",method=\"GET\",route=\"/wait\"} 1";
    let text = server.metrics.text();
    assert!(text.contains(line), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn shutting_down_finishes_the_running_request_and_accepts_no_other() {
    let (server, mut seen, go_on) = server().await;
    let address = server.address;
    let mut idle = server.connect().await;
    let mut client = server.connect().await;
    client.send("GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(seen.recv().await, Some("entered"));
    let stopping = tokio::spawn(server.serving.shut_down(Duration::from_secs(20)));
    assert_eq!(idle.read_to_end().await, "", "an idle connection is closed at once");
    assert!(TcpStream::connect(address).await.is_err());
    assert!(!stopping.is_finished());
    go_on.notify_one();
    let answer = Answer::parse(&client.read_to_end().await);
    assert_eq!((answer.status, answer.body.as_str()), (200, "finished"));
    assert_eq!(stopping.await.unwrap(), 0);
}

#[tokio::test]
async fn a_request_that_outlasts_the_shutdown_is_cut_off_and_counted() {
    let (server, mut seen, _go_on) = server().await;
    let mut client = server.connect().await;
    client.send("GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(seen.recv().await, Some("entered"));
    assert_eq!(server.serving.shut_down(Duration::from_millis(20)).await, 1);
    assert_eq!(seen.recv().await, Some("dropped"));
    assert_eq!(client.read_to_end().await, "");
}

#[tokio::test]
async fn a_handler_sees_the_trace_of_its_caller() {
    let (server, _seen, _go_on) = server().await;
    let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let answer = server.ask(&format!("GET /trace HTTP/1.1\r\ntraceparent: {given}"), "").await;
    assert!(answer.body.starts_with(&given[..36]) && answer.body.ends_with("-01") && answer.body != given);
    let (one, two) = (server.ask("GET /trace HTTP/1.1", "").await, server.ask("GET /trace HTTP/1.1", "").await);
    assert_ne!(one.body[3..35], two.body[3..35]);
    server.stop().await;
}
