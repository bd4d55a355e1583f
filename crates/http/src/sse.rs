//! Server-sent events: a bounded stream from one producer to one client, with keep-alive
//! comments, that ends at shutdown.

use std::convert::Infallible;
use std::fmt::{self, Write as _};
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
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use crate::Shutdown;

/// Interval of keep-alive comments on a silent stream, for proxies and the client.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// An encoded event, optionally with the memory that it takes.
#[derive(Debug, Clone)]
pub struct Event {
    text: Bytes,
    held: Option<HeldMemory>,
}

/// Memory that is given back on drop.
type HeldMemory = Arc<dyn fmt::Debug + Send + Sync>;

impl Event {
    /// Encodes an event with `data`; each line becomes a line of the event. The client sends `id` as `Last-Event-ID`
    /// when it reconnects; `name` is the event's type (`message` without one). Both end at their first line break.
    pub fn new(id: Option<&str>, name: Option<&str>, data: &str) -> Self {
        Self::several([(id, name, data)].into_iter())
    }

    /// Encodes several events that are sent in one piece, each like [`Event::new`].
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

    /// Size of the encoded event.
    pub fn size_bytes(&self) -> usize {
        self.text.len()
    }

    /// Holds `memory` until the event is sent.
    #[must_use]
    pub fn holding<M: fmt::Debug + Send + Sync + 'static>(mut self, memory: Option<Arc<M>>) -> Self {
        self.held = memory.map(|memory| memory as HeldMemory);
        self
    }
}

/// The reason that an event was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The queue is full; the client is slow.
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
    /// Sends an event, and waits for room if necessary.
    ///
    /// # Errors
    /// [`NotSent::Ended`], if the client is gone.
    pub async fn send(&self, event: Event) -> Result<(), NotSent> {
        self.0.send(event).await.map_err(|_| NotSent::Ended)
    }

    /// Waits until the queue has room or the stream has ended.
    pub async fn room(&self) {
        // If the stream has ended, the next send reports it.
        drop(self.0.reserve().await);
    }

    /// Sends an event if the queue has room.
    ///
    /// # Errors
    /// [`NotSent`], with the reason why the event was not queued.
    pub fn try_send(&self, event: Event) -> Result<(), NotSent> {
        self.0.try_send(event).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotSent::Full,
            mpsc::error::TrySendError::Closed(_) => NotSent::Ended,
        })
    }

    /// Resolves when the stream has ended.
    pub async fn ended(&self) {
        self.0.closed().await;
    }
}

/// The client's end: an answer of type `text/event-stream`.
pub struct EventStream {
    events: mpsc::Receiver<Event>,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    keep_alive: Pin<Box<Sleep>>,
    /// The memory of the event that is being sent.
    leaving: Option<HeldMemory>,
    stall_max: Option<StallMax>,
}

/// Longest time that a client may read nothing of an answer before its connection is closed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StallMax(pub(crate) Duration);

impl EventStream {
    /// Lets the client read nothing for `stall_max` before its connection is closed, instead of `http.head_timeout_ms`.
    /// For producers that drop old events.
    #[must_use]
    pub fn bearing_stalls(mut self, stall_max: Duration) -> Self {
        self.stall_max = Some(StallMax(stall_max));
        self
    }
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventStream")
    }
}

/// Makes a stream on which at most `waiting_max` events wait for the client. It accepts no more events once
/// the listener begins to stop.
pub fn event_stream(waiting_max: usize, shutdown: Shutdown) -> (EventSender, EventStream) {
    stream_until(waiting_max, shutdown.begun())
}

/// Like [`event_stream`], for a producer that observes [`Shutdown`] itself, sends its last events and drops its sender.
/// A client that does not read them is cut off when the listener's shutdown time is over.
pub fn finished_event_stream(waiting_max: usize) -> (EventSender, EventStream) {
    stream_until(waiting_max, std::future::pending())
}

fn stream_until(waiting_max: usize, stopping: impl Future<Output = ()> + Send + 'static) -> (EventSender, EventStream) {
    let (sender, events) = mpsc::channel(waiting_max.max(1));
    let stream = EventStream {
        events,
        stopping: Box::pin(stopping),
        keep_alive: Box::pin(sleep(KEEP_ALIVE)),
        leaving: None,
        stall_max: None,
    };
    (EventSender(sender), stream)
}

impl HttpBody for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.events.is_closed() && self.stopping.as_mut().poll(cx).is_ready() {
            // Accepted events are still sent.
            self.events.close();
        }
        // The previous event has been sent; otherwise hyper would not poll for more.
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
        let stall_max = self.stall_max;
        let mut response = Response::new(Body::new(self));
        if let Some(stall_max) = stall_max {
            response.extensions_mut().insert(stall_max);
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::MemoryBudget;

    use super::*;

    #[tokio::test]
    async fn the_memory_of_an_event_is_returned_when_the_next_event_is_polled() {
        let (sender, mut stream) = event_stream(2, Shutdown::of_listener(millstream_net::Shutdown::never()));
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
