//! The body of an answer on its way out: counted, and its end noted on the connection's pulse.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::api::Served;
use crate::connection::Pulse;

/// What hyper sends.
pub(crate) struct Answer {
    body: Body,
    sent_bytes: u64,
    route: Option<Arc<Served>>,
    pulse: Arc<Pulse>,
}

impl Answer {
    pub(crate) fn of_route(body: Body, route: Arc<Served>, pulse: Arc<Pulse>) -> Self {
        Self { body, sent_bytes: 0, route: Some(route), pulse }
    }

    pub(crate) fn plain(body: Body, pulse: Arc<Pulse>) -> Self {
        Self { body, sent_bytes: 0, route: None, pulse }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(piece) = frame.data_ref()
        {
            self.sent_bytes += piece.len() as u64;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(route) = self.route.as_ref().filter(|_| self.sent_bytes > 0) {
            route.metrics.response_bytes.inc_by(self.sent_bytes);
        }
        self.pulse.end_request();
    }
}
