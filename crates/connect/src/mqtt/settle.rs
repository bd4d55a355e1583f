//! Answers the pending requests of a client once the log, or the tenant's owner, has answered for them.

use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::StatusCode;
use millstream_http::Problem;
use millstream_mqtt::encode::ack;
use millstream_mqtt::to_client::{suback, unsuback};
use millstream_mqtt::{AckKind, Version, reason};

use super::client::Client;
use super::disconnect::DisconnectCause;
use super::pending::Waits;
use super::session_store::{PublishOutcome, StoreAnswer, StoreReply};
use crate::metrics::ProcessingOutcome as Counted;
use crate::uplink::{Kept, Settled};

impl Client {
    /// Stops reading from the client until there is room in the log again; true if it stops now.
    pub(super) fn hold_back(&mut self) -> bool {
        self.uplink.hold_back(StoreReply::Room)
    }

    /// Waits until the oldest is answered for, and tells the client of all that is answered for.
    pub(super) fn poll_verdicts(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), DisconnectCause>> {
        let mut progress = Poll::Pending;
        while let Poll::Ready(Settled { kept, answer, started }) = self.uplink.poll_settled(cx) {
            let settled = match kept {
                Kept::Requests(waits) => self.settle(waits, answer, started, out),
                Kept::Room => answer.map(drop).map_err(|problem| unacknowledged(&problem)),
            };
            if let Err(fault) = settled {
                return Poll::Ready(Err(fault));
            }
            progress = Poll::Ready(Ok(()));
        }
        progress
    }

    fn settle(
        &mut self,
        waits: Waits,
        verdict: Result<StoreAnswer, Problem>,
        started: Duration,
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        let took = self.uplink.took(started);
        let answer = match verdict {
            Ok(answer) => answer,
            Err(problem) => return self.refuse_all(&waits, &problem, out),
        };
        self.is_stirred |= !matches!(waits, Waits::Upstream(_));
        match (waits, answer) {
            (Waits::Upstream(sent), _) => {
                for sent in sent.iter().filter(|sent| sent.id != 0) {
                    ack(out, self.version, AckKind::PubAck, sent.id, reason::SUCCESS);
                }
                self.accepted(sent, took);
            }
            (Waits::Broker { acks, routed }, _) => {
                for (kind, id) in &acks {
                    ack(out, self.version, *kind, *id, reason::SUCCESS);
                }
                self.count_accepted(acks.len(), took);
                routed.iter().for_each(|routed| self.count_routed(routed, Counted::Forwarded, took));
            }
            (Waits::Owned { acks, routed }, StoreAnswer::Published(fates)) => {
                routed
                    .iter()
                    .for_each(|routed| self.count_routed(&routed.of_those_taken(&fates), Counted::Forwarded, took));
                for ((kind, id), fate) in acks.into_iter().zip(fates) {
                    self.settle_owned(kind, id, fate, took, out)?;
                }
            }
            (Waits::Subscribed { id, codes, wanted }, answer) => {
                suback(out, self.version, id, &codes);
                if let StoreAnswer::Retained(retained) = answer {
                    self.send_retained(&retained, &wanted)?;
                }
            }
            (Waits::Unsubscribed { id, codes }, _) => unsuback(out, self.version, id, &codes),
            (Waits::Received(ids), _) => self.release(&ids, out)?,
            (Waits::Forgotten(ids), _) => {
                for id in ids {
                    ack(out, self.version, AckKind::PubComp, id, reason::SUCCESS);
                }
            }
            (Waits::Owned { .. }, _) => return Err(DisconnectCause::Protocol("an answer to something else")),
        }
        Ok(())
    }

    fn settle_owned(
        &mut self,
        kind: AckKind,
        id: u16,
        fate: PublishOutcome,
        took: Duration,
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        let is_taken = fate != PublishOutcome::NoRoom;
        if is_taken {
            self.count_accepted(1, took);
        } else {
            self.count_rejected(1);
        }
        if id == 0 {
            return Ok(());
        }
        if !is_taken && self.version == Version::V311 {
            let limit = self.adapter.config.broker.retained_max_bytes;
            let why = format!("the tenant retains as much as connect.mqtt.broker.retained_max_bytes = {limit} allows");
            return Err(DisconnectCause::refused(reason::QUOTA, why));
        }
        if !is_taken {
            self.open.remove(&id);
        }
        ack(out, self.version, kind, id, if is_taken { reason::SUCCESS } else { reason::QUOTA });
        Ok(())
    }

    fn refuse_all(&mut self, waits: &Waits, problem: &Problem, out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        match waits {
            Waits::Upstream(sent) => sent.iter().try_for_each(|sent| self.refuse(sent, problem, out)),
            // Without an acknowledgement its sender has to send it again, on its next connection.
            Waits::Broker { routed: Some(routed), .. } | Waits::Owned { routed: Some(routed), .. } => {
                self.count_routed(routed, Counted::Undeliverable, Duration::ZERO);
                if problem.status() == StatusCode::NOT_FOUND {
                    self.uplink.forget_streams();
                }
                Err(unacknowledged(problem))
            }
            _ => Err(unacknowledged(problem)),
        }
    }

    /// Gives up on what the log has taken too long for.
    pub(super) fn give_up(&mut self, out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        while let Some((late, problem)) = self.uplink.take_overdue() {
            match late {
                Kept::Requests(waits) => self.refuse_all(&waits, &problem, out)?,
                Kept::Room => return Err(unacknowledged(&problem)),
            }
        }
        Ok(())
    }
}

/// Ends the connection over messages that were not taken.
pub(super) fn unacknowledged(problem: &Problem) -> DisconnectCause {
    // "Busy" would ask the client to send a message again that never fits.
    let code = if problem.status() == StatusCode::PAYLOAD_TOO_LARGE { reason::TOO_LARGE } else { reason::BUSY };
    DisconnectCause::refused(code, problem.text())
}
