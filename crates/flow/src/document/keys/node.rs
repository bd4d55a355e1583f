//! The keys of nodes.

use super::parts::{BATCH, EVENT_TIME, TRIGGER, WINDOW};
use super::{later, optional, required};
use crate::document::catalogue::{Key, KeyType, Section};

pub(in crate::document) static SOURCE: Section = Section {
    name: "source",
    path: "sources.<name>",
    doc: "A node that makes records.",
    keys: &[&TYPE, &WORK, &INSTANCES, &SOURCE_ONLY, &WINDOWED_LATER, &LATER],
};

pub(in crate::document) static TRANSFORM: Section = Section {
    name: "transform",
    path: "transforms.<name>",
    doc: "A node between sources and sinks. `filter` needs `where`, `map` needs `select`, `function` needs `fn`.",
    keys: &[&TYPE, &INPUTS, &WORK, &WINDOWED, &INSTANCES, &LATER],
};

pub(in crate::document) static SINK: Section = Section {
    name: "sink",
    path: "sinks.<name>",
    doc: "A node at which records leave the job. The keys of work are applied before writing.",
    keys: &[&TYPE, &INPUTS, &WORK, &INSTANCES, &WINDOWED_LATER, &LATER],
};

static TYPE: [Key; 4] = [
    required("type", KeyType::Text, "The connector or operator."),
    optional("doc", KeyType::Text, None, "A sentence for people."),
    optional("labels", KeyType::Labels, None, "Stand on log lines and metrics of the node, beside those of the job."),
    optional("config", KeyType::Config, None, "The keys of the type."),
];

static INPUTS: [Key; 1] = [optional("inputs", KeyType::Names, None, "The nodes whose records come in.")];

static WORK: [Key; 6] = [
    optional(
        "where",
        KeyType::Condition,
        None,
        "Records on which it is not true are dropped, before `fn` and `select`.",
    ),
    optional("fn", KeyType::Name, None, "A registered function from a record to records; it runs before `select`."),
    optional(
        "batch_fn",
        KeyType::Bool,
        Some("false"),
        "The function takes a whole batch and returns a list of the same length.",
    ),
    optional("select", KeyType::SelectList, None, "The fields of the records that go on; `*` keeps all."),
    optional(
        "params",
        KeyType::Params,
        None,
        "Parameters of the function, and `:name` in expressions. Those of the process configuration win.",
    ),
    optional("key_by", KeyType::Expressions, None, "All records with one value of the key go to one instance."),
];

static WINDOWED: [Key; 3] = [
    optional("window", KeyType::Object(&WINDOW), None, "The windows of an `aggregate`."),
    optional(
        "aggregates",
        KeyType::Aggregates,
        None,
        "The values of an `aggregate`, such as `AVG(temp) AS mean, COUNT(*) AS n`, over the records of each key and window.",
    ),
    optional(
        "triggers",
        KeyType::ListOf(&TRIGGER),
        None,
        "The events at which windows are sent; without them, once time has come to their end.",
    ),
];

static WINDOWED_LATER: [Key; 3] = [
    later("window", "move it to an aggregate behind this node", "Windows."),
    later("aggregates", "move them to an aggregate behind this node", "Values over the records of a window."),
    later("triggers", "move them to an aggregate behind this node", "The events at which windows are sent."),
];

static INSTANCES: [Key; 2] = [
    optional(
        "parallelism",
        KeyType::Parallelism,
        Some("1"),
        "The number of instances: fixed, or between `min` and `max`.",
    ),
    optional(
        "batch",
        KeyType::Object(&BATCH),
        None,
        "An instance works on at most `size` records at a time; a source waits up to `timeout` until so many are there.",
    ),
];

static SOURCE_ONLY: [Key; 3] = [
    optional(
        "event_time",
        KeyType::Object(&EVENT_TIME),
        None,
        "The times of the records, for nodes that work by time.",
    ),
    optional(
        "max_in_flight",
        KeyType::Whole(1, 10_000_000),
        Some("10000"),
        "Records that an instance has read and that are not finished yet.",
    ),
    optional(
        "ack_timeout",
        KeyType::Duration,
        Some("60s"),
        "The job starts again, and reads from its position, if no record of the source is written for so long while some are in flight. `0s` sets no limit; it has no effect with `at_most_once`, and in a job with epochs, where `checkpoint.timeout` takes its place.",
    ),
];

static LATER: [Key; 6] = [
    later("schema", "leave it out, and use CAST where a type matters", "Types of fields."),
    later("windows", "write an aggregate for each window", "Several windows of a node."),
    later("udf", "use a registered function by `fn`", "A function in Python or WASM."),
    later("share", "leave it out: jobs share the workers evenly", "Share of the workers."),
    later("requires", "leave it out: every process may run every node", "Tags of the processes that may run the node."),
    later("on_worker_loss", "leave it out: workers are threads of one process", "The answer to the loss of a worker."),
];
