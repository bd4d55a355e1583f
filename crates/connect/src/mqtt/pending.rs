//! What a client has sent and the log has not answered for yet. It is answered in the order in which it came.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use millstream_log::{Appended, Reply};

use super::client::Client;
use super::encode::{AckKind, ack};
use super::fault::{Fault, reason};
use super::upstream::Sent;
use crate::refusal::{not_accepted_in_time, not_taken};

/// Something that waits for the log.
pub(super) struct Pending {
    pub(super) reply: Reply<Appended>,
    pub(super) waits: Waits,
    /// Monotonic time at which the log got it.
    pub(super) started: Duration,
}

/// What is waited for.
pub(super) enum Waits {
    /// Messages on Hono's topics.
    Upstream(Vec<Sent>),
    /// Messages in the private space: how each is acknowledged.
    Private(Vec<(AckKind, u16)>),
}

impl Waits {
    fn count(&self) -> usize {
        match self {
            Self::Upstream(sent) => sent.len(),
            Self::Private(ids) => ids.len(),
        }
    }
}

impl Client {
    /// Keeps what the log has to answer for.
    pub(super) fn pend(&mut self, pending: Pending) {
        self.waiting += pending.waits.count();
        self.pending.push_back(pending);
    }

    /// Waits until the log has answered for the oldest, and acknowledges all that it has answered for.
    pub(super) fn poll_verdicts(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<(), Fault>> {
        let mut progress = Poll::Pending;
        while let Some(first) = self.pending.front_mut() {
            let Poll::Ready(verdict) = Pin::new(&mut first.reply).poll(cx) else { break };
            let Some(Pending { waits, started, .. }) = self.pending.pop_front() else { break };
            self.waiting -= waits.count();
            if let Err(fault) = self.settle(waits, verdict, started, out) {
                return Poll::Ready(Err(fault));
            }
            progress = Poll::Ready(Ok(()));
        }
        progress
    }

    fn settle(
        &mut self,
        waits: Waits,
        verdict: Result<Appended, millstream_log::Error>,
        started: Duration,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let took = self.adapter.monotonic.now().saturating_sub(started);
        match (waits, verdict.map_err(|error| not_taken(&error))) {
            (Waits::Upstream(sent), Ok(_)) => {
                for sent in &sent {
                    ack(out, self.version, AckKind::PubAck, sent.id, reason::SUCCESS);
                }
                self.accepted(sent, took);
            }
            (Waits::Private(ids), Ok(_)) => {
                for (kind, id) in &ids {
                    ack(out, self.version, *kind, *id, reason::SUCCESS);
                }
                self.count_accepted(ids.len(), took);
            }
            (waits, Err(problem)) => self.refuse_all(&waits, &problem, out)?,
        }
        Ok(())
    }

    fn refuse_all(
        &mut self,
        waits: &Waits,
        problem: &millstream_http::Problem,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        match waits {
            Waits::Upstream(sent) => sent.iter().try_for_each(|sent| self.refuse(sent, problem, out)),
            // Without an acknowledgement its sender has to send it again, on its next connection.
            Waits::Private(_) => Err(Fault::refused(reason::BUSY, problem.text())),
        }
    }

    /// How long the log may still take for the oldest; `None` if nothing waits.
    pub(super) fn patience(&self) -> Option<Duration> {
        let limit = Duration::from_millis(self.adapter.config.send_timeout_ms);
        let first = self.pending.front()?;
        Some(limit.saturating_sub(self.adapter.monotonic.now().saturating_sub(first.started)))
    }

    /// Gives up on what the log has taken too long for.
    pub(super) fn give_up(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        while self.patience() == Some(Duration::ZERO) {
            let Some(late) = self.pending.pop_front() else { break };
            self.waiting -= late.waits.count();
            let limit = Duration::from_millis(self.adapter.config.send_timeout_ms);
            let problem = not_accepted_in_time("connect.mqtt.send_timeout_ms", limit);
            self.refuse_all(&late.waits, &problem, out)?;
        }
        Ok(())
    }
}
