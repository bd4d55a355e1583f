//! Server-sent events: a bounded stream from whoever produces to one client, alive while silent, over at shutdown.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use millstream_types::Grant;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use crate::Shutdown;

/// A silent stream carries a comment this often, so that proxies and the client know that it lives.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One event, encoded, with the memory that it takes if somebody counts that.
#[derive(Debug, Clone)]
pub struct Event {
    text: Bytes,
    held: Option<Arc<Grant>>,
}

impl Event {
    /// An event with `data`; its lines become lines of the event. `id` is what the client sends as `Last-Event-ID`
    /// when it comes back, `name` its type (`message` if there is none). Neither goes beyond its first line.
    pub fn new(id: Option<&str>, name: Option<&str>, data: &str) -> Self {
        Self::several([(id, name, data)].into_iter())
    }

    /// Events that leave in one piece, each as [`Event::new`] has it.
    pub fn several<'a>(events: impl Iterator<Item = (Option<&'a str>, Option<&'a str>, &'a str)> + Clone) -> Self {
        let length = |text: Option<&str>| text.map_or(0, |text| text.len() + 8);
        let bytes = events.clone().map(|(id, name, data)| length(id) + length(name) + data.len() + 8);
        let mut text = String::with_capacity(bytes.sum());
        for (id, name, data) in events {
            for (field, value) in [("id", id), ("event", name)] {
                if let Some(value) = value {
                    let line = value.split(['\r', '\n', '\0']).next().unwrap_or_default();
                    // Writing to a String cannot fail.
                    let _ = writeln!(text, "{field}: {line}");
                }
            }
            for lines in data.split("\r\n") {
                for line in lines.split(['\r', '\n']) {
                    let _ = writeln!(text, "data: {line}");
                }
            }
            text.push('\n');
        }
        Self { text: text.into(), held: None }
    }

    /// Bytes that leave.
    pub fn size_bytes(&self) -> usize {
        self.text.len()
    }

    /// Keeps `memory` until the event has left.
    #[must_use]
    pub fn holding(mut self, memory: Option<Arc<Grant>>) -> Self {
        self.held = memory;
        self
    }
}

/// Why an event was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// As many events wait as may; the client is slow.
    #[error("the client reads more slowly than events come")]
    Full,
    /// The client has left, or the listener stops.
    #[error("the stream has ended")]
    Ended,
}

/// The producer's end. The stream ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct EventSender(mpsc::Sender<Event>);

impl EventSender {
    /// Sends, waiting for room.
    ///
    /// # Errors
    /// [`NotSent::Ended`].
    pub async fn send(&self, event: Event) -> Result<(), NotSent> {
        self.0.send(event).await.map_err(|_| NotSent::Ended)
    }

    /// Waits until one more may wait for the client, or none will be read any more.
    pub async fn room(&self) {
        // One that is not to be had any more is told by whatever is sent next.
        drop(self.0.reserve().await);
    }

    /// Sends if there is room.
    ///
    /// # Errors
    /// [`NotSent`].
    pub fn try_send(&self, event: Event) -> Result<(), NotSent> {
        self.0.try_send(event).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotSent::Full,
            mpsc::error::TrySendError::Closed(_) => NotSent::Ended,
        })
    }

    /// Resolves when nobody reads any more.
    pub async fn ended(&self) {
        self.0.closed().await;
    }
}

/// The client's end: an answer of type `text/event-stream`.
pub struct EventStream {
    events: mpsc::Receiver<Event>,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    keep_alive: Pin<Box<Sleep>>,
    /// Of the event that is leaving.
    leaving: Option<Arc<Grant>>,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventStream")
    }
}

/// A stream on which at most `waiting_max` events wait for the client.
pub fn event_stream(waiting_max: usize, shutdown: Shutdown) -> (EventSender, EventStream) {
    let (sender, events) = mpsc::channel(waiting_max.max(1));
    let stream = EventStream {
        events,
        stopping: Box::pin(shutdown.begun()),
        keep_alive: Box::pin(sleep(KEEP_ALIVE)),
        leaving: None,
    };
    (EventSender(sender), stream)
}

impl HttpBody for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.events.is_closed() && self.stopping.as_mut().poll(cx).is_ready() {
            // What was accepted still goes out.
            self.events.close();
        }
        // What was given before has been sent, or nobody would ask for more.
        self.leaving = None;
        match self.events.poll_recv(cx) {
            Poll::Ready(Some(Event { text, held })) => {
                self.leaving = held;
                self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                Poll::Ready(Some(Ok(Frame::data(text))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                std::task::ready!(self.keep_alive.as_mut().poll(cx));
                self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": still here\n\n")))))
            }
        }
    }
}

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::new(self));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::MemoryBudget;
    use tokio::sync::watch;

    use super::*;
    use crate::context::Stage;

    #[tokio::test]
    async fn what_an_event_holds_is_given_back_when_the_event_after_it_is_asked_for() {
        let (_stage, stages) = watch::channel(Stage::Serving);
        let (sender, mut stream) = event_stream(2, Shutdown(stages));
        let memory = MemoryBudget::new("memory.budget_bytes", 100);
        let grant = memory.take(70).map(Arc::new);
        sender.try_send(Event::new(None, None, "{}").holding(grant)).unwrap();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut stream).poll_frame(&mut cx).is_ready());
        assert_eq!(memory.used_bytes(), 70);
        assert!(Pin::new(&mut stream).poll_frame(&mut cx).is_pending());
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn an_event_cannot_break_out_of_its_frame() {
        let check = |id, name, data, expected: &str| assert_eq!(Event::new(id, name, data).text, expected);
        check(None, None, "{}", "data: {}\n\n");
        check(Some("7"), Some("row"), "a\nb\r\nc\rd", "id: 7\nevent: row\ndata: a\ndata: b\ndata: c\ndata: d\n\n");
        check(Some("7\ndata: x"), Some("row\r\n\r\n"), "", "id: 7\nevent: row\ndata: \n\n");
    }
}
