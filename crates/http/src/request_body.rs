//! The body of a request as it arrives.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::activity::ConnectionActivity;

/// Turns of the connection that a body which is there takes to be handed over.
const TURNS: usize = 2;
/// Most bytes of a refused body that are read to keep its connection.
const DISCARDED_MAX_BYTES: usize = 64 << 10;

/// A request body that records in the connection's activity if it is dropped before its end.
pub(crate) struct RequestBody {
    /// There until it is dropped.
    body: Option<Incoming>,
    has_ended: bool,
    activity: Arc<ConnectionActivity>,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, activity: Arc<ConnectionActivity>) -> Self {
        Self { body: Some(body), has_ended: false, activity }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        self.has_ended |= frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_end_stream() {
            self.activity.leave_body_unread(self.body.take());
        }
    }
}

/// True if the rest of an unread body has arrived with the head, so that another request may follow. Discards it.
pub(crate) async fn has_arrived(mut body: Incoming) -> bool {
    let (mut waits, mut bytes) = (0, 0);
    poll_fn(|cx| {
        loop {
            match Pin::new(&mut body).poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Ok(frame))) if bytes < DISCARDED_MAX_BYTES => {
                    bytes += frame.data_ref().map_or(0, Bytes::len);
                }
                Poll::Ready(Some(_)) => return Poll::Ready(false),
                // Hyper hands over what it has once it is asked, at the next turn of the connection.
                Poll::Pending if waits < TURNS => {
                    waits += 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => return Poll::Ready(false),
            }
        }
    })
    .await
}
