//! The model: every key of a document that does not belong to one connector.
//!
//! Checks, JSON Schema and the reference page are made from these tables; keys of a connector stand in its
//! [`NodeType`](super::NodeType).

mod node;
mod parts;

pub(super) use node::{SINK, SOURCE, TRANSFORM};
pub(super) use parts::{
    AGGREGATE, BATCH, CHECKPOINT, EVENT_TIME, HOOK, HOOK_POINTS, PARALLELISM, PARAMETER, PARAMETER_TYPES, RESOURCES,
    RESTART, RESUME_FROM, ROUTE, TEST, TRIGGER, USE, WINDOW,
};

use super::catalogue::{Key, KeyType, Section};

/// The longest `name` of a job or node, in characters.
pub(super) const NAME_MAX_CHARS: usize = 64;
/// The delivery promises.
pub(super) const DELIVERIES: [&str; 3] = ["at_least_once", "at_most_once", "exactly_once"];

/// A key with a default.
const fn optional(name: &'static str, value: KeyType, default: Option<&'static str>, doc: &'static str) -> Key {
    Key { name, value, is_required: false, default, doc }
}

const fn required(name: &'static str, value: KeyType, doc: &'static str) -> Key {
    Key { name, value, is_required: true, default: None, doc }
}

const fn later(name: &'static str, remedy: &'static str, doc: &'static str) -> Key {
    Key { name, value: KeyType::NotAvailable(remedy), is_required: false, default: None, doc }
}

pub(super) static JOB: Section = Section {
    name: "job",
    path: "",
    doc: "The document. Everything is checked before anything runs, and all faults are reported at once.",
    keys: &[&JOB_IDENTITY, &JOB_SETTINGS, &NODE_MAPS, &JOB_PARTS],
};

/// A bundle, which `use` merges into a document.
pub(super) static BUNDLE: Section = Section {
    name: "bundle",
    path: "",
    doc: "A bundle: nodes with their routes and hooks, for `use` in documents. `input` in its `inputs` and `edges` stands for \
          the inputs of the use; a whole text `:name` in a `config` stands for the value of a parameter.",
    keys: &[&BUNDLE_IDENTITY, &NODE_MAPS, &BUNDLE_PARTS],
};

static JOB_IDENTITY: [Key; 6] = [
    required("version", KeyType::Whole(1, 1), "The version of the format."),
    required("kind", KeyType::OneOf(&["Job"]), "The kind of document."),
    optional(
        "id",
        KeyType::Text,
        None,
        "Identity of the submission: the same id with the same content runs once. Made by the server if missing; up to 128 characters.",
    ),
    required("name", KeyType::Name, "Runs of one name are a history; one of them runs at a time."),
    optional("doc", KeyType::Text, None, "A sentence for people."),
    optional("labels", KeyType::Labels, None, "Stand on every log line and metric of the job."),
];

static JOB_SETTINGS: [Key; 7] = [
    optional(
        "mode",
        KeyType::OneOf(&["streaming", "batch"]),
        Some("streaming"),
        "`streaming` runs until it is stopped; `batch` completes when all sources have ended.",
    ),
    optional(
        "delivery",
        KeyType::OneOf(&DELIVERIES),
        Some("at_least_once"),
        "`at_least_once` loses nothing and may repeat after a crash; `at_most_once` repeats nothing and may lose; `exactly_once` does neither in state and in `stream` and `entities` sinks, whose records appear at the end of each epoch.",
    ),
    optional("restart", KeyType::Object(&RESTART), None, "The answer to errors that no route and no hook took."),
    optional(
        "exchange",
        KeyType::OneOfSoFar(&["fused", "queue"], &["topic"]),
        Some("fused"),
        "`fused` calls the next node directly where nothing forces a queue; `queue` puts a bounded queue on every edge.",
    ),
    optional("params", KeyType::Params, None, "Parameters `:name` of all nodes; weaker than those of a node."),
    optional(
        "checkpoint",
        KeyType::Object(&CHECKPOINT),
        None,
        "The epochs of a job that keeps state or is `exactly_once`: at the end of each, positions, state and results are committed together.",
    ),
    optional(
        "resume_from",
        KeyType::ResumeFrom,
        None,
        "The earlier job whose state and positions the job begins with, as of that job's last epoch.",
    ),
];

static NODE_MAPS: [Key; 3] = [
    optional("sources", KeyType::MapOf(&SOURCE), None, "The nodes that make records, by name."),
    optional("transforms", KeyType::MapOf(&TRANSFORM), None, "The nodes between sources and sinks, by name."),
    optional("sinks", KeyType::MapOf(&SINK), None, "The nodes at which records leave, by name."),
];

static JOB_PARTS: [Key; 6] = [
    optional(
        "use",
        KeyType::MapOf(&USE),
        None,
        "Bundles that are merged into the job, by the name that prefixes their nodes.",
    ),
    optional("edges", KeyType::Edges, None, "Edges besides `inputs`: `[[from, to], …]` or `{from: [to, …]}`."),
    optional(
        "routes",
        KeyType::ListOf(&ROUTE),
        None,
        "The choice of successors per record, in order; a node without routes sends to all.",
    ),
    optional("hooks", KeyType::ListOf(&HOOK), None, "Calls at points of an instance's life, in order."),
    optional("tests", KeyType::ListOf(&TEST), None, "Tests of the job, run by `millstream job test`."),
    optional("resources", KeyType::Object(&RESOURCES), None, "The job's part of the workers."),
];

static BUNDLE_IDENTITY: [Key; 5] = [
    required("version", KeyType::Whole(1, 1), "The version of the format."),
    required("kind", KeyType::OneOf(&["Bundle"]), "The kind of document."),
    optional(
        "name",
        KeyType::Name,
        None,
        "The name of the bundle, for people; `use` finds it by the name under which it is registered.",
    ),
    optional("doc", KeyType::Text, None, "A sentence for people."),
    optional("params", KeyType::MapOf(&PARAMETER), None, "The parameters that a use may give, by name."),
];

static BUNDLE_PARTS: [Key; 3] = [
    optional("edges", KeyType::Edges, None, "Edges besides `inputs`."),
    optional("routes", KeyType::ListOf(&ROUTE), None, "Routes of the bundle's nodes."),
    optional("hooks", KeyType::ListOf(&HOOK), None, "Hooks of the bundle's nodes."),
];
