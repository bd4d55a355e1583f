//! The words of a member in a heartbeat, and the answer to it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::assignor::{Assignor, PartitionSet};

/// A heartbeat of a member. What is `None` is as in the heartbeat before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConsumerHeartbeat {
    pub(crate) member_id: String,
    /// Its epoch, or one of the numbers by which members come and go.
    pub(crate) epoch: i32,
    pub(crate) instance: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout: Option<Duration>,
    pub(crate) names: Option<BTreeSet<String>>,
    /// A pattern that compiles; empty for none.
    pub(crate) regex: Option<String>,
    pub(crate) assignor: Option<Assignor>,
    /// The partitions that it has.
    pub(crate) owned: Option<PartitionSet>,
}

impl ConsumerHeartbeat {
    /// True if the member says all there is to say, as it does after an answer that has not come.
    pub(crate) fn is_full(&self) -> bool {
        let is_subscribed = self.names.is_some() || self.regex.is_some();
        self.rebalance_timeout.is_some() && is_subscribed && self.owned.is_some()
    }

    /// The bytes that its member keeps, about.
    pub(crate) fn size_bytes(&self) -> usize {
        let texts = [&self.instance, &self.rack, &self.regex].into_iter().flatten().chain(self.names.iter().flatten());
        self.member_id.len() + texts.map(String::len).sum::<usize>()
    }
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeartbeatAnswer {
    pub(crate) epoch: i32,
    /// The partitions that the member may use; `None` if they are as they were.
    pub(crate) assignment: Option<PartitionSet>,
}
