//! The figures of a connection, for the table of connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::session::Session;
use crate::connection_table::{Figures, ReadFigures};

/// The counts of an engine, as of the last time that its connection had nothing to do.
#[derive(Debug, Default)]
pub(super) struct ConnectionFigures {
    sessions: AtomicUsize,
    links: AtomicUsize,
    unsettled: AtomicUsize,
}

/// The counts of an engine at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct EngineCounts {
    pub(super) sessions: usize,
    pub(super) links: usize,
    pub(super) unsettled: usize,
}

impl EngineCounts {
    pub(super) fn of(sessions: &HashMap<u16, Session>) -> Self {
        let links = sessions.values().map(Session::link_count).sum();
        Self { sessions: sessions.len(), links, unsettled: sessions.values().map(Session::unsettled).sum() }
    }
}

impl ConnectionFigures {
    pub(super) fn store(&self, counts: EngineCounts) {
        self.sessions.store(counts.sessions, Ordering::Relaxed);
        self.links.store(counts.links, Ordering::Relaxed);
        self.unsettled.store(counts.unsettled, Ordering::Relaxed);
    }
}

impl ReadFigures for ConnectionFigures {
    fn figures(&self) -> Figures {
        Figures::Amqp {
            sessions: self.sessions.load(Ordering::Relaxed),
            links: self.links.load(Ordering::Relaxed),
            in_flight: self.unsettled.load(Ordering::Relaxed),
        }
    }
}
