//! A client's session in its tenant's broker.

use std::collections::HashMap;

use millstream_mqtt::reason;

use super::broker::{Detached, SessionLink, SessionSubscription};
use super::disconnect::DisconnectCause;

/// A client's session in the broker, with its outgoing topic aliases.
pub(super) struct BrokerClient {
    pub(super) link: SessionLink,
    pub(super) alias_max: u16,
    /// True if the session outlives the connection.
    pub(super) is_durable: bool,
    pub(super) aliases: HashMap<Box<str>, u16>,
}

impl From<Detached> for DisconnectCause {
    fn from(lost: Detached) -> Self {
        match lost {
            Detached::TakenOver => Self::refused(reason::TAKEN_OVER, "the same client id has connected again"),
            Detached::NoRoom => {
                Self::refused(reason::BUSY, "no room in the memory budget for what waits; connect again")
            }
            Detached::Gone => Self::refused(reason::UNAVAILABLE, "the tenant's topic was deleted; connect again"),
        }
    }
}

impl BrokerClient {
    pub(super) fn new(link: SessionLink, alias_max: u16, is_durable: bool) -> Self {
        Self { link, alias_max, is_durable, aliases: HashMap::new() }
    }

    /// The client has set how long its session outlives the connection.
    pub(super) fn end_with(&self, expiry_s: u32) -> Result<(), DisconnectCause> {
        if expiry_s > 0 && !self.is_durable {
            return Err(DisconnectCause::Protocol(
                "a session expiry at the end of a connection that began without one",
            ));
        }
        self.link.set_expiry(expiry_s);
        Ok(())
    }
}

/// Work that a SUBSCRIBE leaves until the session is stored.
#[derive(Default)]
pub(super) struct PendingSubscribe {
    pub(super) is_changed: bool,
    /// Patterns that bring what is retained.
    pub(super) retained: Vec<(Box<str>, SessionSubscription)>,
}
