//! Requests of a client that have no answer yet.

use millstream_mqtt::AckKind;
use smallvec::SmallVec;

use super::broker_client::PendingSubscribe;
use super::publish::Sent;
use super::routing::RoutedBatch;
use crate::uplink;

/// The requests that wait for a verdict.
pub(super) enum Waits {
    /// Messages on the topics of Hono.
    Upstream(SmallVec<[Sent; 1]>),
    /// Messages in the private space: the acknowledgement of each, and their copies for telemetry and events.
    Broker { acks: Vec<(AckKind, u16)>, routed: Option<Box<RoutedBatch>> },
    /// The same, published by the tenant's owner, which may have something to say of each; those at most once have no id.
    Owned { acks: Vec<(AckKind, u16)>, routed: Option<Box<RoutedBatch>> },
    /// A subscription, and those of its filters that bring retained messages.
    Subscribed { id: u16, codes: Vec<u8>, wanted: PendingSubscribe },
    /// An unsubscription, with a code for each filter.
    Unsubscribed { id: u16, codes: Vec<u8> },
    /// Messages exactly once that the client has: it may forget their ids.
    Received(Vec<u16>),
    /// Ids that the client has forgotten.
    Forgotten(Vec<u16>),
}

impl uplink::Waits for Waits {
    fn messages(&self) -> usize {
        match self {
            Self::Upstream(sent) => sent.len(),
            Self::Broker { acks, .. } | Self::Owned { acks, .. } => acks.len(),
            Self::Subscribed { .. } | Self::Unsubscribed { .. } | Self::Received(_) | Self::Forgotten(_) => 1,
        }
    }

    fn is_first(&self) -> bool {
        matches!(self, Self::Owned { .. })
    }
}
