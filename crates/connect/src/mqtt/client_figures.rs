//! The figures of a client, for the table of connections.
//!
//! The session's own figures are read under its broker's lock when somebody asks. The client notes here what only its
//! connection knows: its subscriptions to commands and errors, and its commands in flight.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::broker::SessionView;
use crate::connection_table::{Figures, ListedFilters, ReadFigures};

#[derive(Default)]
pub(super) struct ClientFigures {
    /// The session in the tenant's private space, if the client has one.
    session: OnceLock<SessionView>,
    /// Subscriptions to commands and errors.
    reserved: Mutex<ListedFilters>,
    commands_in_flight: AtomicUsize,
}

impl ClientFigures {
    /// The client has a session in its tenant's private space.
    pub(super) fn follow(&self, session: SessionView) {
        self.session.get_or_init(|| session);
    }

    /// Notes the client's subscriptions to commands and errors.
    pub(super) fn note_reserved<'a>(&self, filters: impl Iterator<Item = &'a str>) {
        *self.reserved.lock() = ListedFilters::of(filters);
    }

    /// Notes how many commands were sent and not acknowledged.
    pub(super) fn count_commands(&self, in_flight: usize) {
        self.commands_in_flight.store(in_flight, Ordering::Relaxed);
    }
}

impl ReadFigures for ClientFigures {
    fn figures(&self) -> Figures {
        let (reserved, others) = {
            let reserved = self.reserved.lock();
            (reserved.listed.clone(), reserved.total - reserved.listed.len())
        };
        let session = self.session.get().and_then(|session| session.figures(&reserved));
        let (queued, in_flight, mut subscriptions) = match session {
            Some(session) => (session.waiting, session.in_flight, session.filters),
            None => (0, 0, ListedFilters::of(reserved.iter().map(|filter| &**filter))),
        };
        subscriptions.total += others;
        let in_flight = in_flight + self.commands_in_flight.load(Ordering::Relaxed);
        Figures::Mqtt { subscriptions, queued, in_flight }
    }
}
