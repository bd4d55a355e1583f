//! The form of the records of a topic that Millstream makes by itself.

/// The fate of the records of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutability {
    /// A later record of a key replaces the earlier one; a tombstone removes it.
    Replaced,
    /// A record stays as it is, until retention removes it.
    Kept,
}

/// The form of the records of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicForm {
    /// Its name; of a topic of one tenant with a place for that.
    pub name: &'static str,
    /// The crate that defines its records.
    pub owner: &'static str,
    /// The writer of the records.
    pub writer: &'static str,
    /// The key; integers are big endian, and 0 is a byte between texts.
    pub key: &'static str,
    /// The value.
    pub value: &'static str,
    /// The version that is written, where values have one. Every earlier version stays readable.
    pub version: Option<u8>,
    /// The fate of the records.
    pub mutability: Mutability,
}

/// The form of the records in the topic of a job's state; each job has one of its own.
pub const JOB_STATE: TopicForm = TopicForm {
    name: "_millstream_job_state.JOB",
    owner: "flow",
    writer: "the job's run",
    key: "0: the epoch; 1, node, 0, key group (2), key: a value",
    value: "version; of the epoch JSON, of a value that of the operator",
    version: Some(1),
    mutability: Mutability::Replaced,
};

/// The form of the records in the catalogue of topics, where the log is Apache Kafka.
pub const TOPICS: TopicForm = TopicForm {
    name: "_millstream_topics",
    owner: "log-kafka",
    writer: "any process",
    key: "name of the topic in Kafka",
    value: "version, tenant, name and configuration, as in the embedded log's `meta`",
    version: Some(4),
    mutability: Mutability::Replaced,
};

/// The form of the records of a migration from the built-in log, where the log is Apache Kafka.
pub const MIGRATION: TopicForm = TopicForm {
    name: "_millstream_migration",
    owner: "log-kafka",
    writer: "`millstream migrate`",
    key: "`state`; `o`, topic id in Kafka (16), partition (4), piece (4)",
    value: "JSON of the state; version, topic id (16), pieces (4), epochs and offsets",
    version: Some(1),
    mutability: Mutability::Replaced,
};

/// The form of the records by which one process of several works, where the log is Apache Kafka.
pub const ACTIVE: TopicForm = TopicForm {
    name: "_millstream_active",
    owner: "log-kafka",
    writer: "the process that works, and one that takes over",
    key: "`active`, or `beat`",
    value: "JSON of the process; or the 16 bytes of its run",
    version: None,
    mutability: Mutability::Replaced,
};

/// The form of the records with the positions of groups, where the log is Apache Kafka.
pub const POSITIONS: TopicForm = TopicForm {
    name: "_millstream_positions",
    owner: "log-kafka",
    writer: "the writer whose transaction commits it",
    key: "group, 0, name of the topic in Kafka, 0, partition",
    value: "version, topic id (16), epoch (4), offset (8), milliseconds since 1970 (8), metadata",
    version: Some(1),
    mutability: Mutability::Replaced,
};
