//! The health of the cluster as this process sees it, for the people who operate it.

use std::time::Duration;

use millstream_types::TopicPartition;

/// The health of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterHealth {
    /// The brokers, ordered by id.
    pub brokers: Vec<BrokerHealth>,
    /// The partitions and writers with which something is wrong.
    pub troubles: Vec<Trouble>,
    /// Findings about the whole cluster, each with the broker, the rule and the remedy.
    pub warnings: Vec<String>,
}

/// A broker that belongs to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerHealth {
    /// The id by which the cluster knows it.
    pub id: i32,
    /// The address by which clients reach it; `None` if it was away since this process began.
    pub address: Option<String>,
    /// The time for which it has not answered; `None` while it does.
    pub silence: Option<Duration>,
}

/// A partition or a writer with which something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The kind of it.
    pub kind: TroubleKind,
    /// The partition; `None` for a writer and for partitions of the brokers' own.
    pub partition: Option<TopicPartition>,
    /// The reason, and the remedy if there is one.
    pub why: String,
}

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TroubleKind {
    /// No broker leads the partition: nothing of it is read or stored.
    NoLeader,
    /// Too few replicas are in sync: nothing is stored.
    TooFewInSync,
    /// Records wait because they are not taken.
    NotTaken,
}

/// The findings of the last look at the replicas of all topics.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplicaReport {
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) warnings: Vec<String>,
}
