//! The figures of a connection's session, for somebody who asks beside the connection.

use std::sync::Arc;

use super::ids::SessionId;
use super::{Broker, SessionLink};
use crate::connection_table::ListedFilters;

/// A connection's session, as others may look at it. It does not keep the session.
pub(crate) struct SessionView {
    broker: Arc<Broker>,
    id: SessionId,
    turn: u64,
}

/// Figures of a session at one moment.
pub(crate) struct SessionFigures {
    /// Messages that wait to be sent.
    pub(crate) waiting: usize,
    /// Messages that were sent and not acknowledged.
    pub(crate) in_flight: usize,
    pub(crate) filters: ListedFilters,
}

impl SessionLink {
    pub(crate) fn view(&self) -> SessionView {
        SessionView { broker: Arc::clone(&self.broker), id: self.id, turn: self.turn }
    }
}

impl SessionView {
    /// Reads the figures; `None` if the session is no longer this connection's. The filters are listed together with `others`.
    pub(crate) fn figures(&self, others: &[Box<str>]) -> Option<SessionFigures> {
        let state = self.broker.state.lock();
        let session = state.sessions.get(&self.id)?;
        session.online.as_ref().filter(|online| online.turn == self.turn)?;
        let filters = ListedFilters::of(session.filters.keys().chain(others).map(|filter| &**filter));
        Some(SessionFigures { waiting: session.waiting(), in_flight: session.in_flight(), filters })
    }
}
