//! The commands of a client: its subscriptions to them, and those that are on their way to it.

use std::sync::Arc;
use std::time::Duration;

use millstream_mqtt::Qos;
use millstream_types::Principal;
use tokio::sync::mpsc;

use super::command_filter::{CommandFilter, CommandTarget};
use crate::commands::{Command, CommandDelivery, Listening};
use crate::presence::Present;

/// A client's subscriptions to commands, and the commands on their way to it. Dropping it ends the subscriptions and
/// releases the commands that the client has not acknowledged.
pub(super) struct Deliveries {
    pub(super) subscribed: Vec<Subscribed>,
    pub(super) outbox: mpsc::Sender<CommandDelivery>,
    pub(super) inbox: mpsc::Receiver<CommandDelivery>,
    pub(super) flights: Vec<SentCommand>,
    last_id: u16,
}

pub(super) struct Subscribed {
    pub(super) filter: CommandFilter,
    pub(super) qos: Qos,
    /// The principal on whose behalf the client listens.
    pub(super) who: Arc<Principal>,
    // Dropped in this order: it is told that the device listens no longer when it does not.
    pub(super) _listening: Vec<Listening>,
    pub(super) _present: Present,
}

/// A command that was sent.
pub(super) struct SentCommand {
    /// The packet id; 0 at QoS 0.
    pub(super) id: u16,
    /// Monotonic time at which it was sent.
    pub(super) sent: Duration,
    /// `None` once it was withdrawn: the client may still acknowledge it, so its id is not free.
    pub(super) delivery: Option<CommandDelivery>,
}

impl Deliveries {
    pub(super) fn new(in_flight_max: usize) -> Self {
        let (outbox, inbox) = mpsc::channel(in_flight_max);
        Self { subscribed: Vec::new(), outbox, inbox, flights: Vec::new(), last_id: 0 }
    }

    /// Ends a subscription; true if there was one.
    pub(super) fn unsubscribe(&mut self, filter: &str) -> bool {
        let before = self.subscribed.len();
        self.subscribed.retain(|known| &*known.filter.text != filter);
        self.subscribed.len() < before
    }

    /// The subscription that a command to `device` came by: the latest that names it, else the latest for all.
    pub(super) fn covering(&self, command: &Command) -> Option<&Subscribed> {
        let of_tenant = || self.subscribed.iter().rev().filter(|known| known.who.tenant == command.tenant);
        let latest = |wanted: CommandTarget<'_>| of_tenant().find(|known| known.filter.whom(&known.who.name) == wanted);
        latest(CommandTarget::One(&command.device)).or_else(|| latest(CommandTarget::All))
    }

    /// On whose behalf, and for which device each subscription is.
    pub(super) fn each(&self) -> impl Iterator<Item = (&Principal, &str)> {
        self.subscribed.iter().map(|known| (&*known.who, known.filter.device(&known.who.name)))
    }

    /// An id of a client that has no private space.
    pub(super) fn free_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.flights.iter().any(|flight| flight.id == self.last_id) {
                return self.last_id;
            }
        }
    }
}
