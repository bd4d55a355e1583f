//! A session: its windows, its links and the deliveries that are not settled.

use std::collections::{BTreeMap, HashMap, HashSet};

use millstream_amqp::{Begin, Flow};

use super::link::SenderLink;
use super::receiver_link::ReceiverLink;
use super::stream_queue::Taken;

/// Transfers that a peer may send before it is told of more room.
const INCOMING_WINDOW: u32 = 2_048;

/// A session. Its links have the handles that the peer has given them, in both directions.
pub(super) struct Session {
    pub(super) links: HashMap<u32, SenderLink>,
    /// Links over which the peer sends.
    pub(super) receivers: HashMap<u32, ReceiverLink>,
    /// Handles that we have detached, of which the peer may not know yet.
    detached: HashSet<u32>,
    /// Deliveries that were sent and not settled, by their id, each with the handle of its link.
    unsettled: BTreeMap<u32, (u32, Taken)>,
    next_delivery_id: u32,
    next_outgoing_id: u32,
    next_incoming_id: u32,
    /// Transfers that the peer still takes.
    window: u32,
    /// Transfers that have come since the peer was told of the window.
    received: u32,
}

impl Session {
    pub(super) fn new(begin: &Begin<'_>) -> Self {
        Self {
            links: HashMap::new(),
            receivers: HashMap::new(),
            detached: HashSet::new(),
            unsettled: BTreeMap::new(),
            next_delivery_id: 0,
            next_outgoing_id: 0,
            next_incoming_id: begin.next_outgoing_id,
            window: begin.incoming_window,
            received: 0,
        }
    }

    /// The answer to the begin of the peer's session on `channel`.
    pub(super) fn begin(&self, channel: u16, links_max: u32) -> Begin<'static> {
        Begin {
            remote_channel: Some(channel),
            next_outgoing_id: self.next_outgoing_id,
            incoming_window: INCOMING_WINDOW,
            outgoing_window: u32::MAX >> 1,
            handle_max: links_max - 1,
            ..Begin::default()
        }
    }

    /// Takes the peer's window (AMQP 1.0, section 2.5.6).
    pub(super) fn take_window(&mut self, flow: &Flow<'_>) {
        // Before it has seen our begin it counts from where we began.
        let known = flow.next_incoming_id.unwrap_or(0);
        let left = known.wrapping_add(flow.incoming_window).wrapping_sub(self.next_outgoing_id);
        self.window = if left > flow.incoming_window { 0 } else { left };
        self.next_incoming_id = flow.next_outgoing_id;
    }

    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// Uses one transfer of the window.
    pub(super) fn transfer_one(&mut self) {
        self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
        self.window = self.window.saturating_sub(1);
    }

    /// A transfer has come; true if the peer is to be told of more room.
    pub(super) fn receive_one(&mut self) -> bool {
        self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
        self.received += 1;
        let is_due = self.received >= INCOMING_WINDOW / 2;
        if is_due {
            self.received = 0;
        }
        is_due
    }

    /// True if a link has this handle.
    pub(super) fn has_link(&self, handle: u32) -> bool {
        self.links.contains_key(&handle) || self.receivers.contains_key(&handle)
    }

    /// Keeps in mind that we have detached a link, until the peer detaches it, too.
    pub(super) fn detached(&mut self, handle: u32) {
        self.detached.insert(handle);
    }

    /// True if we have detached it and the peer has not.
    pub(super) fn is_detached(&self, handle: u32) -> bool {
        self.detached.contains(&handle)
    }

    /// The state of the session.
    pub(super) fn flow(&self) -> Flow<'static> {
        Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: INCOMING_WINDOW,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: u32::MAX >> 1,
            ..Flow::default()
        }
    }

    /// Returns the id of another delivery.
    pub(super) fn delivery_id(&mut self) -> u32 {
        let id = self.next_delivery_id;
        self.next_delivery_id = id.wrapping_add(1);
        id
    }

    pub(super) fn keep_unsettled(&mut self, id: u32, handle: u32, taken: Taken) {
        self.unsettled.insert(id, (handle, taken));
    }

    /// Number of its links, in both directions.
    pub(super) fn link_count(&self) -> usize {
        self.links.len() + self.receivers.len()
    }

    /// Number of deliveries that are not settled.
    pub(super) fn unsettled(&self) -> usize {
        self.unsettled.len()
    }

    /// Takes the unsettled deliveries with the ids from `first` to `last`, which may wrap around.
    pub(super) fn settle(&mut self, first: u32, last: u32) -> Vec<(u32, Taken)> {
        let ranges = if first <= last { [Some(first..=last), None] } else { [Some(first..=u32::MAX), Some(0..=last)] };
        let ids: Vec<u32> =
            ranges.into_iter().flatten().flat_map(|range| self.unsettled.range(range).map(|(id, _)| *id)).collect();
        ids.iter().filter_map(|id| self.unsettled.remove(id)).collect()
    }

    /// Ends a link; what was not settled on it is given back.
    pub(super) fn end_link(&mut self, handle: u32) -> bool {
        self.detached.remove(&handle);
        if self.receivers.remove(&handle).is_some() {
            return true;
        }
        let Some(link) = self.links.remove(&handle) else { return false };
        let of_link: Vec<Taken> =
            self.unsettled.extract_if(.., |_, (of, _)| *of == handle).map(|(_, (_, taken))| taken).collect();
        link.receiver.give_back(of_link, true);
        true
    }

    /// Ends all links.
    pub(super) fn end(&mut self) {
        self.receivers.clear();
        let handles: Vec<u32> = self.links.keys().copied().collect();
        for handle in handles {
            self.end_link(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::Offset;

    use super::*;

    fn session(window: u32) -> Session {
        Session::new(&Begin { incoming_window: window, next_outgoing_id: 9, ..Begin::default() })
    }

    #[test]
    fn the_window_is_what_the_peer_takes_beyond_what_was_sent() {
        let mut session = session(2);
        assert_eq!(session.window(), 2);
        session.transfer_one();
        session.transfer_one();
        session.transfer_one();
        assert_eq!(session.window(), 0);
        for (next_incoming_id, incoming_window, expected) in
            [(Some(3), 5, 5), (Some(1), 5, 3), (None, 5, 2), (Some(0), 2, 0), (Some(0), 3, 0)]
        {
            let flow = Flow { next_incoming_id, incoming_window, next_outgoing_id: 11, ..Flow::default() };
            session.take_window(&flow);
            assert_eq!(session.window(), expected, "{next_incoming_id:?} {incoming_window}");
        }
        let (flow, expected) = (session.flow(), (Some(11), 3));
        assert_eq!((flow.next_incoming_id, flow.next_outgoing_id), expected);
    }

    #[test]
    fn deliveries_are_settled_by_ranges_that_may_wrap_around() {
        let mut session = session(2);
        for id in [u32::MAX - 1, u32::MAX, 0, 1, 2] {
            session.keep_unsettled(id, 7, Taken::at(0, Offset(id.into())));
        }
        assert_eq!(session.settle(u32::MAX, 1).len(), 3);
        assert_eq!(session.settle(u32::MAX, 1).len(), 0);
        assert_eq!((session.settle(2, 2).len(), session.unsettled()), (1, 1));
        assert_eq!(session.settle(0, u32::MAX).len(), 1);
    }
}
