//! The body of a request on its way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::connection::Pulse;

/// Tells its connection if it is let go before its end: the peer is still sending then.
pub(crate) struct Arriving {
    body: Incoming,
    has_ended: bool,
    pulse: Arc<Pulse>,
}

impl Arriving {
    pub(crate) fn new(body: Incoming, pulse: Arc<Pulse>) -> Self {
        Self { body, has_ended: false, pulse }
    }
}

impl Body for Arriving {
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

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.is_end_stream() {
            self.pulse.leave_unread();
        }
    }
}
