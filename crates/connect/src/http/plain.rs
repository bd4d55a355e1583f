//! Messages whose request is plain: from the thread's buffer to the partition, without anything between.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millstream_http::{PlainAnswer, PlainRequest, PlainVerdict, Problem};
use millstream_log::{Appended, Error, Reply};
use millstream_types::Principal;

use super::HttpAdapter;
use super::message::Said;
use super::send::{Offered, not_in_time};
use crate::meter::{Delivery, Fate};
use crate::refusal::not_taken;
use crate::sender::Target;
use crate::streams::{Stream, TenantStreams};

/// A message that waits for what the log makes of it. Dropped before that, its sender has left, and it is not counted.
struct Unjudged {
    verdict: Reply<Appended>,
    adapter: Arc<HttpAdapter>,
    streams: Arc<TenantStreams>,
    caller: Arc<Principal>,
    delivery: Delivery,
    payload_bytes: usize,
    started: Duration,
}

impl HttpAdapter {
    /// As [`HttpAdapter::take`], for a message that needs nothing but to be appended.
    pub(super) fn take_plain(
        self: &Arc<Self>,
        stream: Stream,
        target: Target<'_>,
        request: &PlainRequest<'_>,
    ) -> PlainAnswer {
        if request.has_query() {
            return PlainAnswer::Pass;
        }
        let caller = request.principal;
        let Some(streams) = self.streams.known(&caller.tenant) else { return PlainAnswer::Pass };
        let started = self.monotonic.now();
        let said = match Said::plainly(stream, request) {
            Ok(said) => said,
            Err(problem) => {
                self.count_unread();
                return PlainAnswer::Now(problem.into_response());
            }
        };
        let offered = match self.offer(said, target, caller, &streams) {
            // Somebody has deleted the topic since it was resolved.
            Ok(Err(Error::UnknownTopic { .. })) => return PlainAnswer::Pass,
            Ok(Err(error)) => Err(not_taken(&error)),
            Ok(Ok(offered)) => Ok(offered),
            Err(problem) => Err(problem),
        };
        let (delivery, payload_bytes) = (said.delivery, said.payload.len());
        match offered {
            Ok(Offered { verdict: Some(verdict), .. }) => {
                let (adapter, caller) = (self.clone(), caller.clone());
                PlainAnswer::Later(Box::pin(Unjudged {
                    verdict,
                    adapter,
                    streams,
                    caller,
                    delivery,
                    payload_bytes,
                    started,
                }))
            }
            Ok(_) => {
                let took = self.monotonic.now().saturating_sub(started);
                self.totals.accept_latency.record(took);
                streams.meter.count(delivery, Fate::Forwarded, payload_bytes, took);
                PlainAnswer::Now(StatusCode::ACCEPTED.into_response())
            }
            Err(problem) => {
                let took = self.monotonic.now().saturating_sub(started);
                self.count_refused(caller, &problem, delivery, payload_bytes, took);
                PlainAnswer::Now(problem.into_response())
            }
        }
    }
}

impl Unjudged {
    /// Counts the message and answers its sender.
    fn answer(&self, judged: Result<(), Problem>) -> Response {
        let took = self.adapter.monotonic.now().saturating_sub(self.started);
        match judged {
            Ok(()) => {
                self.adapter.totals.accept_latency.record(took);
                self.streams.meter.count(self.delivery, Fate::Forwarded, self.payload_bytes, took);
                StatusCode::ACCEPTED.into_response()
            }
            Err(problem) => {
                self.adapter.count_refused(&self.caller, &problem, self.delivery, self.payload_bytes, took);
                problem.into_response()
            }
        }
    }
}

impl PlainVerdict for Unjudged {
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let judged = ready!(Pin::new(&mut self.verdict).poll(cx));
        Poll::Ready(self.answer(judged.map(drop).map_err(|error| not_taken(&error))))
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.adapter.patience())
    }

    fn give_up(&self, waited: Duration) -> Response {
        self.answer(Err(not_in_time(waited)))
    }
}
