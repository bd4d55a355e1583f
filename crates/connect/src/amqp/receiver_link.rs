//! A link over which a client sends commands.

use millstream_amqp::{Flow, Transfer, condition};
use millstream_types::{Grant, TenantId};

/// Commands that a client may have sent over a link and not been told the outcome of.
pub(super) const CREDIT: u32 = 100;

/// A link over which we receive.
pub(super) struct ReceiverLink {
    /// The tenant that its address names; none if each message names its own.
    pub(super) tenant: Option<TenantId>,
    /// Tells it from another one that had its handle.
    pub(super) serial: u64,
    delivery_count: u32,
    credit: u32,
    /// Commands without an outcome.
    in_progress: u32,
    partial: Option<Partial>,
    message_max_bytes: usize,
    /// Memory of a message that has come in part.
    _room: Grant,
}

/// A message of which some frames have come.
struct Partial {
    delivery_id: u32,
    is_settled: bool,
    bytes: Vec<u8>,
}

/// A message that has come as a whole.
pub(super) struct Delivered {
    pub(super) delivery_id: u32,
    pub(super) is_settled: bool,
    pub(super) bytes: Vec<u8>,
}

/// The condition and the text with which a link is detached.
pub(super) type LinkFault = (&'static str, String);

impl ReceiverLink {
    pub(super) fn new(tenant: Option<TenantId>, serial: u64, message_max_bytes: usize, room: Grant) -> Self {
        Self {
            tenant,
            serial,
            delivery_count: 0,
            credit: CREDIT,
            in_progress: 0,
            partial: None,
            message_max_bytes,
            _room: room,
        }
    }

    /// Takes a frame of a message; answers the message with its last one.
    pub(super) fn take(&mut self, transfer: &Transfer<'_>, payload: &[u8]) -> Result<Option<Delivered>, LinkFault> {
        let mut partial = match self.partial.take() {
            Some(partial) => partial,
            None => {
                if self.credit == 0 {
                    let why = format!("a transfer without credit; a link has at most {CREDIT}");
                    return Err((condition::TRANSFER_LIMIT_EXCEEDED, why));
                }
                let Some(delivery_id) = transfer.delivery_id else {
                    return Err((condition::INVALID_FIELD, "a transfer that begins without delivery-id".to_owned()));
                };
                self.credit -= 1;
                self.delivery_count = self.delivery_count.wrapping_add(1);
                Partial { delivery_id, is_settled: false, bytes: Vec::new() }
            }
        };
        partial.is_settled |= transfer.settled == Some(true);
        if transfer.aborted {
            return Ok(None);
        }
        let (bytes, limit) = (partial.bytes.len() + payload.len(), self.message_max_bytes);
        if bytes > limit {
            return Err((
                condition::MESSAGE_SIZE_EXCEEDED,
                format!("a message of {bytes} bytes; at most {limit} are taken"),
            ));
        }
        partial.bytes.extend_from_slice(payload);
        if transfer.more {
            self.partial = Some(partial);
            return Ok(None);
        }
        let Partial { delivery_id, is_settled, bytes } = partial;
        self.in_progress += 1;
        Ok(Some(Delivered { delivery_id, is_settled, bytes }))
    }

    /// A command has its outcome.
    pub(super) fn ended(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
    }

    /// Grants credit up to the limit, if half of it is used up; true if it has to be told.
    pub(super) fn replenish(&mut self) -> bool {
        let most = CREDIT.saturating_sub(self.in_progress);
        let is_low = self.credit <= CREDIT / 2 && most > self.credit;
        if is_low {
            self.credit = most;
        }
        is_low
    }

    /// The state of the link, to be sent within the flow of its session.
    pub(super) fn flow(&self, handle: u32, session: Flow<'static>) -> Flow<'static> {
        Flow {
            handle: Some(handle),
            delivery_count: Some(self.delivery_count),
            link_credit: Some(self.credit),
            ..session
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::MemoryBudget;

    use super::*;

    fn link() -> ReceiverLink {
        ReceiverLink::new(None, 1, 10, MemoryBudget::new("", 0).empty_grant())
    }

    fn begun(id: u32) -> Transfer<'static> {
        Transfer { delivery_id: Some(id), ..Transfer::default() }
    }

    #[test]
    fn a_message_is_its_frames_and_ends_with_the_last_or_an_abort() {
        let mut link = link();
        let more = Transfer { more: true, ..begun(7) };
        assert!(link.take(&more, b"12345").unwrap().is_none());
        let last = Transfer { settled: Some(true), ..Transfer::default() };
        let whole = link.take(&last, b"67").unwrap().unwrap();
        assert_eq!((whole.delivery_id, whole.is_settled, whole.bytes), (7, true, b"1234567".to_vec()));
        assert!(link.take(&more, b"12345").unwrap().is_none());
        assert!(link.take(&Transfer { aborted: true, ..Transfer::default() }, b"").unwrap().is_none());
        assert_eq!(link.take(&Transfer::default(), b"").err().unwrap().0, condition::INVALID_FIELD);
        assert!(link.take(&more, b"12345").unwrap().is_none());
        let refused = link.take(&more, b"123456").err().unwrap();
        assert_eq!(
            refused,
            (condition::MESSAGE_SIZE_EXCEEDED, "a message of 11 bytes; at most 10 are taken".to_owned())
        );
    }

    #[test]
    fn credit_returns_with_the_outcomes() {
        let mut link = link();
        for id in 0..CREDIT {
            assert!(link.take(&begun(id), b"").unwrap().is_some());
        }
        assert_eq!(link.take(&begun(CREDIT), b"").err().unwrap().0, condition::TRANSFER_LIMIT_EXCEEDED);
        assert!(!link.replenish());
        link.ended();
        assert!(link.replenish());
        let flow = link.flow(3, Flow::default());
        assert_eq!((flow.handle, flow.delivery_count, flow.link_credit), (Some(3), Some(CREDIT), Some(1)));
        (1..CREDIT).for_each(|_| link.ended());
        assert!(link.replenish() && !link.replenish());
        assert_eq!(link.flow(3, Flow::default()).link_credit, Some(CREDIT));
    }
}
