//! The requests that wait for the checkpointer's thread.

use std::sync::Arc;

use millstream_log::Bell;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::live::LiveQuery;
use crate::{Error, QueryId};

pub(crate) type FirstCheckpoint = (Arc<LiveQuery>, oneshot::Sender<Result<(), Error>>);

/// The requests to the checkpointer's thread.
#[derive(Default)]
pub(crate) struct CheckpointerInbox {
    asked: Mutex<CheckpointRequests>,
    pub(crate) bell: Bell,
}

#[derive(Default)]
pub(crate) struct CheckpointRequests {
    /// Queries to be stored for the first time, and the callers to be told.
    pub(crate) begun: Vec<FirstCheckpoint>,
    /// Queries to be removed from the store.
    pub(crate) forgotten: Vec<QueryId>,
    pub(crate) stop: bool,
    /// The thread has ended: nobody answers requests.
    pub(crate) closed: bool,
}

impl CheckpointerInbox {
    /// Stores a query for the first time; it is durable when this returns.
    pub(crate) async fn begin(&self, query: &Arc<LiveQuery>) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        self.ask(|asked| asked.begun.push((query.clone(), sender)));
        receiver.await.unwrap_or(Err(Error::Stopped))
    }

    /// Removes a query from the store.
    pub(crate) fn forget(&self, id: QueryId) {
        self.ask(|asked| asked.forgotten.push(id));
    }

    /// Stores all queries once more, and ends the thread.
    pub(crate) fn stop(&self) {
        self.ask(|asked| asked.stop = true);
    }

    pub(crate) fn take(&self) -> CheckpointRequests {
        std::mem::take(&mut *self.asked.lock())
    }

    /// Refuses all waiting and later requests.
    pub(crate) fn close(&self) {
        *self.asked.lock() = CheckpointRequests { closed: true, ..CheckpointRequests::default() };
    }

    fn ask(&self, ask: impl FnOnce(&mut CheckpointRequests)) {
        let mut asked = self.asked.lock();
        if !asked.closed {
            ask(&mut asked);
        }
        drop(asked);
        self.bell.ring();
    }
}
