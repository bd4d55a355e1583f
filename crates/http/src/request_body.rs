//! The body of a request as it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::activity::ConnectionActivity;

/// A request body that records in the connection's activity if it is dropped before its end.
pub(crate) struct RequestBody {
    body: Incoming,
    has_ended: bool,
    activity: Arc<ConnectionActivity>,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, activity: Arc<ConnectionActivity>) -> Self {
        Self { body, has_ended: false, activity }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.has_ended |= frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_end_stream() {
            self.activity.leave_body_unread();
        }
    }
}
