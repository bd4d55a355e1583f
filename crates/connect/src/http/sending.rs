//! A message that waits for the log's reply and nothing else.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::Response;
use millstream_http::LaterAnswer;
use millstream_log::{Appended, Reply};
use millstream_types::Principal;
use tokio::time::Instant;

use super::HttpAdapter;
use crate::refusal::not_taken;
use crate::stream::Delivery;
use crate::streams::TenantStreams;

/// The figures by which a message is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) delivery: Delivery,
    pub(super) payload_bytes: usize,
    /// The arrival of the request, by the monotonic clock.
    pub(super) started: Duration,
}

/// The message of a request until the log's reply. It is not counted if its sender leaves before the reply.
pub(super) struct Sending {
    pub(super) verdict: Reply<Appended>,
    pub(super) adapter: Arc<HttpAdapter>,
    pub(super) streams: Arc<TenantStreams>,
    pub(super) caller: Arc<Principal>,
    pub(super) figures: Figures,
    /// The end of the wait.
    pub(super) due: Option<Instant>,
}

impl LaterAnswer for Sending {
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        Poll::Ready(match ready!(Pin::new(&mut self.verdict).poll(cx)) {
            Ok(_) => self.adapter.accepted(&self.streams, self.figures),
            Err(error) => self.adapter.refused(&self.caller, not_taken(&error), self.figures),
        })
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn give_up(&self) -> Response {
        self.adapter.refused(&self.caller, self.adapter.uplink.not_in_time(), self.figures)
    }
}
