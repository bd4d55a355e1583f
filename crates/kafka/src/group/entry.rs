//! One group in memory, with the calls that wait in it.

use std::collections::HashMap;

use kafka_protocol::error::ResponseError;
use tokio::sync::oneshot;

use super::machine::{CallResult, JoinError, JoinResult, SyncResult};
use super::member::CallId;
use super::protocol::Group;

enum WaitingCall {
    Join(oneshot::Sender<Result<JoinResult, JoinError>>),
    Sync(oneshot::Sender<Result<SyncResult, ResponseError>>),
}

/// A group and the calls that wait in it.
pub(crate) struct GroupEntry {
    pub(crate) group: Group,
    /// Its last commit, in milliseconds since 1970-01-01T00:00:00Z; `i64::MIN` if it has none.
    pub(crate) committed_ms: i64,
    waiting: HashMap<CallId, WaitingCall>,
}

impl GroupEntry {
    pub(crate) fn new(group: Group, committed_ms: i64) -> Self {
        Self { group, committed_ms, waiting: HashMap::new() }
    }

    /// A join will be answered under `call_id`.
    pub(crate) fn await_join(&mut self, call_id: CallId) -> oneshot::Receiver<Result<JoinResult, JoinError>> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(call_id, WaitingCall::Join(sender));
        receiver
    }

    /// A sync will be answered under `call_id`.
    pub(crate) fn await_sync(&mut self, call_id: CallId) -> oneshot::Receiver<Result<SyncResult, ResponseError>> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(call_id, WaitingCall::Sync(sender));
        receiver
    }

    /// A client that no longer listens will miss its heartbeats.
    pub(crate) fn answer(&mut self, answers: Vec<CallResult>) {
        for answer in answers {
            match answer {
                CallResult::Join(call_id, result) => {
                    if let Some(WaitingCall::Join(sender)) = self.waiting.remove(&call_id) {
                        sender.send(result).ok();
                    }
                }
                CallResult::Sync(call_id, result) => {
                    if let Some(WaitingCall::Sync(sender)) = self.waiting.remove(&call_id) {
                        sender.send(result).ok();
                    }
                }
            }
        }
    }

    /// Ends all calls that wait; their clients are told that the coordinator is not available.
    pub(crate) fn end_calls(&mut self) {
        self.waiting.clear();
    }
}
