//! Every topic that Millstream makes by itself: what its records are, and who writes them.
//!
//! One place tells the names and the versions of all of them. Each plane has the code that reads and writes its records, and
//! their fixtures. The table in ARCHITECTURE.md is made from this one.

use crate::{Mutability, TopicForm};

/// A topic with the state of a plane, for all tenants. Its name begins with `_`; nobody outside reads or writes it, but for
/// [`StateTopic::Audit`], which admins read; of [`StateTopic::JobEvents`] a tenant's readers get its own events by a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateTopic {
    /// Logins, refusals and changes, with their callers.
    Audit,
    /// The settings of buckets.
    Buckets,
    /// Commands that wait for their devices.
    Commands,
    /// Entities, and how far their indexes have come.
    Context,
    /// The positions of queues of events, from which applications receive.
    EventQueues,
    /// The files of the history, and what they cover.
    History,
    /// The same edits as in [`StateTopic::History`]: each of the two is filled from the other one if it is missing.
    HistoryCopy,
    /// The files of the history, in pieces, if the log is on other machines.
    HistoryFiles,
    /// The events of jobs, in order.
    JobEvents,
    /// Jobs: their documents, and what becomes of them.
    Jobs,
    /// Times of the last messages of devices.
    LastSeen,
    /// Retained messages, sessions and shared subscriptions of MQTT.
    Mqtt,
    /// Devices that listen for commands.
    Presence,
    /// Queries that outlive the process.
    Queries,
    /// Registrations of context providers.
    Registrations,
    /// Tenants, devices and credentials.
    Registry,
    /// Subscriptions, their counters and queues.
    Subscriptions,
    /// API tokens, without their secrets.
    Tokens,
    /// Transactional ids of Kafka's producers.
    Transactions,
    /// The use that tenants have made of their volumes.
    Usage,
}

impl StateTopic {
    /// All of them, by name.
    pub const ALL: [Self; 20] = [
        Self::Audit,
        Self::Buckets,
        Self::Commands,
        Self::Context,
        Self::EventQueues,
        Self::History,
        Self::HistoryCopy,
        Self::HistoryFiles,
        Self::JobEvents,
        Self::Jobs,
        Self::LastSeen,
        Self::Mqtt,
        Self::Presence,
        Self::Queries,
        Self::Registrations,
        Self::Registry,
        Self::Subscriptions,
        Self::Tokens,
        Self::Transactions,
        Self::Usage,
    ];

    /// The name of the topic.
    pub const fn name(self) -> &'static str {
        self.form().name
    }

    /// The version of the values that are written.
    ///
    /// # Panics
    /// If they have none, which is a mistake in the program.
    pub const fn version(self) -> u8 {
        self.form().version.expect("its values have a version")
    }

    /// The form of its records.
    pub const fn form(self) -> TopicForm {
        use Mutability::{Kept, Replaced};
        const OWNERS: &str = "owner of the partition";
        let (name, owner, writer, key, value, version, mutability) = match self {
            Self::Audit => ("_audit", "server", "one task", "none", "JSON of the event", None, Kept),
            Self::Buckets => {
                ("_buckets", "store", OWNERS, "tenant, 0, bucket", "version, JSON of the settings", Some(1), Replaced)
            }
            Self::Commands => (
                "_commands",
                "connect",
                OWNERS,
                "tenant, 0, device, 0, id of the stream (16), partition (4), offset (8)",
                "version, length (4) of JSON, JSON, payload",
                Some(1),
                Replaced,
            ),
            Self::Context => (
                "_context",
                "context",
                OWNERS,
                "tenant, 0, id, 0, type, 0, service path; of an index: tenant, 0, 0, attribute",
                "version, times, attributes with metadata; of an index: version 2, progress",
                Some(3),
                Replaced,
            ),
            Self::EventQueues => (
                "_event_queues",
                "connect",
                OWNERS,
                "tenant, 0, subscription, 0, partition (4)",
                "version, topic (16), time (8), next offset (8), records that are not settled (9 each)",
                Some(1),
                Replaced,
            ),
            Self::History => (
                "_history",
                "history",
                "one writer",
                "`file/NUMBER`, `position/TOPIC/PARTITION` or `erasure/NUMBER`",
                "JSON with its version; 2 of a file of more than a day",
                Some(1),
                Replaced,
            ),
            Self::HistoryCopy => {
                ("_history_copy", "history", "one writer", "as in `_history`", "as in `_history`", Some(1), Replaced)
            }
            Self::HistoryFiles => {
                ("_history_files", "history", "one writer", "`NUMBER/PIECE`", "bytes of the file", None, Replaced)
            }
            Self::JobEvents => {
                ("_job_events", "flow", OWNERS, "id of the job", "JSON of the event; tenant in a header", None, Kept)
            }
            Self::Jobs => (
                "_jobs",
                "flow",
                OWNERS,
                "tenant, 0, id",
                "version, JSON of document, state and errors",
                Some(1),
                Replaced,
            ),
            Self::LastSeen => (
                "_millstream_last_seen",
                "connect",
                OWNERS,
                "tenant, 0, device",
                "version, milliseconds since 1970 (8)",
                Some(1),
                Replaced,
            ),
            Self::Mqtt => (
                "_mqtt",
                "connect",
                OWNERS,
                "kind (1 to 6), tenant, 0, topic, client or filter",
                "version; message or JSON",
                Some(1),
                Replaced,
            ),
            Self::Presence => ("_presence", "connect", OWNERS, "tenant, 0, device", "version", Some(1), Replaced),
            Self::Queries => (
                "_queries",
                "query",
                "one writer",
                "`q`, id; or `life`",
                "version, JSON of request, aggregates and positions; of `life` the number of the process's life",
                Some(1),
                Replaced,
            ),
            Self::Registrations => (
                "_registrations",
                "context",
                OWNERS,
                "tenant, 0, id",
                "version, JSON of path and document",
                Some(1),
                Replaced,
            ),
            Self::Registry => (
                "_registry",
                "connect",
                OWNERS,
                "kind (1 tenant, 2 device, 3 credentials), tenant, 0, device",
                "version, JSON with its version and times",
                Some(1),
                Replaced,
            ),
            Self::Subscriptions => (
                "_subscriptions",
                "context",
                OWNERS,
                "tenant, 0, id, 0, and `s`, `p`, `h` or `q` with the position of a change",
                "version, JSON: definition, counters, notification",
                Some(1),
                Replaced,
            ),
            Self::Tokens => {
                ("_tokens", "server", OWNERS, "name", "version, JSON with hash and keys, no secret", Some(1), Replaced)
            }
            Self::Transactions => (
                "_transactions",
                "kafka",
                "coordinator",
                "`TENANT/ID`",
                "version, JSON of the transaction",
                Some(1),
                Replaced,
            ),
            Self::Usage => ("_usage", "connect", OWNERS, "tenant", "version, JSON of the note", Some(1), Replaced),
        };
        TopicForm { name, owner, writer, key, value, version, mutability }
    }
}

impl From<StateTopic> for &'static str {
    fn from(topic: StateTopic) -> Self {
        topic.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_none_is_there_twice() {
        assert!(StateTopic::ALL.windows(2).all(|pair| pair[0].name() < pair[1].name()));
    }
}
