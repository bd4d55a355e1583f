//! Server-sent events.

use std::time::Duration;

use axum::extract::State;
use millstream_http::{Access, Event, EventSender, EventStream, NotSent, Route, Routes, Shutdown, event_stream};
use tokio::sync::mpsc;

use crate::server::{LIMITS, Server};

async fn follow(State(senders): State<mpsc::UnboundedSender<EventSender>>, shutdown: Shutdown) -> EventStream {
    let (sender, stream) = event_stream(2, shutdown);
    senders.send(sender).unwrap();
    stream
}

async fn server() -> (Server, mpsc::UnboundedReceiver<EventSender>) {
    let (senders, receiver) = mpsc::unbounded_channel();
    let route = Route::get("/follow", Access::Public, LIMITS, "Follow").answers(200, "Events.").to(follow, senders);
    (Server::of(Routes::new("streams").route(route)).await, receiver)
}

const FOLLOW: &str = "GET /follow HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test]
async fn events_arrive_as_they_are_sent_and_the_stream_ends_with_its_sender() {
    let (server, mut senders) = server().await;
    let mut client = server.connect().await;
    client.send(FOLLOW).await;
    let sender = senders.recv().await.unwrap();
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.contains("content-type: text/event-stream") && head.contains("cache-control: no-store"), "{head}");
    for id in ["1", "2", "3"] {
        sender.send(Event::new(Some(id), Some("row"), "{}")).await.unwrap();
        client.read_until(&format!("id: {id}\nevent: row\ndata: {{}}\n\n")).await;
    }
    drop(sender);
    client.read_until("0\r\n\r\n").await;
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn the_producer_learns_that_its_client_has_left() {
    let (server, mut senders) = server().await;
    let mut client = server.connect().await;
    client.send(FOLLOW).await;
    let sender = senders.recv().await.unwrap();
    client.read_until("\r\n\r\n").await;
    drop(client);
    sender.ended().await;
    assert_eq!(sender.try_send(Event::new(None, None, "late")), Err(NotSent::Ended));
    server.stop().await;
}

#[tokio::test]
async fn a_stream_ends_at_shutdown_after_its_accepted_events() {
    let (server, mut senders) = server().await;
    let mut client = server.connect().await;
    client.send(FOLLOW).await;
    let sender = senders.recv().await.unwrap();
    client.read_until("\r\n\r\n").await;
    sender.send(Event::new(None, None, "last")).await.unwrap();
    let stopping = tokio::spawn(server.serving.shut_down(Duration::from_secs(20)));
    let text = client.read_to_end().await;
    assert!(text.contains("data: last\n\n") && text.ends_with("0\r\n\r\n"), "{text}");
    sender.ended().await;
    assert_eq!(stopping.await.unwrap(), 0);
}
