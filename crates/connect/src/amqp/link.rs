//! A link over which a receiver gets records.

use millstream_amqp::Flow;
use millstream_types::Grant;

use super::address::StreamAddress;
use super::stream_queue::QueueReceiver;

/// A link over which we send.
pub(super) struct SenderLink {
    pub(super) address: StreamAddress,
    /// The address as the receiver has written it.
    pub(super) address_text: Box<str>,
    pub(super) receiver: QueueReceiver,
    /// True if deliveries are settled when they are sent.
    pub(super) is_settled: bool,
    delivery_count: u32,
    credit: u32,
    /// True if the credit that cannot be used at once is to be given up.
    drains: bool,
    /// The rest of a message that did not fit the session's window; nothing else is sent over the link before.
    pub(super) rest: Option<MessageRest>,
    /// Memory that it counts for.
    _room: Grant,
}

/// The rest of a message, of which some frames were sent.
pub(super) struct MessageRest {
    pub(super) bytes: Vec<u8>,
    /// The number of bytes that were sent.
    pub(super) sent: usize,
}

impl SenderLink {
    pub(super) fn new(
        address: StreamAddress,
        address_text: &str,
        receiver: QueueReceiver,
        is_settled: bool,
        room: Grant,
    ) -> Self {
        Self {
            address,
            address_text: address_text.into(),
            receiver,
            is_settled,
            delivery_count: 0,
            credit: 0,
            drains: false,
            rest: None,
            _room: room,
        }
    }

    /// Takes the receiver's credit (AMQP 1.0, section 2.6.7).
    pub(super) fn grant(&mut self, flow: &Flow<'_>) {
        let Some(credit) = flow.link_credit else { return };
        // A receiver that does not know our count yet counts from where we began.
        let known = flow.delivery_count.unwrap_or(0);
        let left = known.wrapping_add(credit).wrapping_sub(self.delivery_count);
        // Credit that was lowered below what is on its way is none.
        self.credit = if left > credit { 0 } else { left };
        self.drains = flow.drain;
    }

    pub(super) fn credit(&self) -> u32 {
        self.credit
    }

    /// Uses one credit.
    pub(super) fn send_one(&mut self) {
        self.delivery_count = self.delivery_count.wrapping_add(1);
        self.credit = self.credit.saturating_sub(1);
    }

    /// Gives up the rest of the credit if the receiver wants that; true if it has to be told.
    pub(super) fn drained(&mut self) -> bool {
        if !self.drains {
            return false;
        }
        self.delivery_count = self.delivery_count.wrapping_add(self.credit);
        (self.credit, self.drains) = (0, false);
        true
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

    use super::super::stream_queue::StreamQueue;
    use super::*;

    fn link() -> SenderLink {
        let address = StreamAddress::parse("telemetry/default").unwrap();
        let room = || MemoryBudget::new("", 0).empty_grant();
        let receiver = StreamQueue::from_now_on(&[], "", room()).join(std::sync::Arc::default());
        SenderLink::new(address, "telemetry/default", receiver, false, room())
    }

    #[test]
    fn credit_counts_from_what_the_receiver_has_seen() {
        let mut link = link();
        let grant = |link: &mut SenderLink, delivery_count, link_credit| {
            link.grant(&Flow { delivery_count, link_credit, ..Flow::default() });
            link.credit()
        };
        assert_eq!(grant(&mut link, None, Some(2)), 2);
        link.send_one();
        link.send_one();
        assert_eq!(link.credit(), 0);
        for (delivery_count, credit, expected) in
            [(Some(2), Some(5), 5), (Some(1), Some(5), 4), (Some(0), Some(1), 0), (Some(2), Some(u32::MAX), u32::MAX)]
        {
            assert_eq!(grant(&mut link, delivery_count, credit), expected, "{delivery_count:?} {credit:?}");
        }
        assert_eq!(grant(&mut link, Some(2), None), u32::MAX, "a flow without credit changes nothing");
    }

    #[test]
    fn a_receiver_that_drains_gets_its_unused_credit_back_once() {
        let mut link = link();
        link.grant(&Flow { link_credit: Some(10), drain: true, ..Flow::default() });
        link.send_one();
        assert!(link.drained() && !link.drained());
        let flow = link.flow(3, Flow::default());
        assert_eq!((flow.handle, flow.delivery_count, flow.link_credit), (Some(3), Some(10), Some(0)));
        link.grant(&Flow { delivery_count: Some(10), link_credit: Some(10), ..Flow::default() });
        assert!(!link.drained());
    }
}
