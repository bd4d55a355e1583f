//! The ends of a link (AMQP 1.0, sections 3.5.3, 3.5.4 and 4.5.1).

use crate::composite::{Composite, Field, composite, read_composite};
use crate::delivery_state::DeliveryState;
use crate::value::{Map, Multiple};
use crate::value::{Symbol, Value};

composite! {
    /// The node that messages come from.
    #[derive(Default)]
    Source<'a> = 0x28 {
        /// Its address, of any type; mostly a string.
        address: Option<Value<'a>>,
        /// Durability of the terminus: 0 none, 1 configuration, 2 unsettled state.
        durable: u32 = 0,
        /// The moment from which it expires.
        expiry_policy: Option<Symbol<'a>>,
        /// Time until it expires, seconds.
        timeout: u32 = 0,
        /// True if the node is to be created by the peer.
        dynamic: bool = false,
        /// Properties of such a node.
        dynamic_node_properties: Option<Map<'a>>,
        /// `move` or `copy`.
        distribution_mode: Option<Symbol<'a>>,
        /// Filters, by name.
        filter: Option<Map<'a>>,
        /// Outcome of deliveries that end without one.
        default_outcome: Option<DeliveryState<'a>>,
        /// Outcomes that the peer may choose.
        outcomes: Multiple<'a> = Multiple::None,
        /// Extensions of the source.
        capabilities: Multiple<'a> = Multiple::None,
    }
}

composite! {
    /// The node that messages go to.
    #[derive(Default)]
    Target<'a> = 0x29 {
        /// Its address, of any type; the anonymous terminus has none.
        address: Option<Value<'a>>,
        /// Durability of the terminus: 0 none, 1 configuration, 2 unsettled state.
        durable: u32 = 0,
        /// The moment from which it expires.
        expiry_policy: Option<Symbol<'a>>,
        /// Time until it expires, seconds.
        timeout: u32 = 0,
        /// True if the node is to be created by the peer.
        dynamic: bool = false,
        /// Properties of such a node.
        dynamic_node_properties: Option<Map<'a>>,
        /// Extensions of the target.
        capabilities: Multiple<'a> = Multiple::None,
    }
}

composite! {
    /// The target of a link that controls transactions.
    #[derive(Default)]
    Coordinator<'a> = 0x30 {
        /// The abilities that the peer wants of it.
        capabilities: Multiple<'a> = Multiple::None,
    }
}

/// The target of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TargetTerminus<'a> {
    /// A node.
    Node(Target<'a>),
    /// Control of transactions.
    Coordinator(Coordinator<'a>),
}

impl<'a> Field<'a> for Source<'a> {
    fn read(value: Value<'a>) -> Option<Self> {
        read_composite(value)
    }

    fn write(&self, out: &mut Vec<u8>) {
        Composite::write(self, out);
    }
}

impl<'a> Field<'a> for TargetTerminus<'a> {
    fn read(value: Value<'a>) -> Option<Self> {
        read_composite(value).map(Self::Node).or_else(|| read_composite(value).map(Self::Coordinator))
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Node(target) => Composite::write(target, out),
            Self::Coordinator(coordinator) => Composite::write(coordinator, out),
        }
    }
}
