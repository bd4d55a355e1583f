//! The keys of the document's smaller objects.

use jiff::tz::TimeZone;
use serde_json::Value;

use super::{optional, required};
use crate::document::catalogue::{Key, KeyType, Section};

pub(in crate::document) static RESTART: Section = Section {
    name: "restart",
    path: "restart",
    doc: "The answer to errors that no route and no hook took.",
    keys: &[&RESTART_KEYS],
};

static RESTART_KEYS: [Key; 3] = [
    optional(
        "policy",
        KeyType::OneOf(&["on_failure", "never"]),
        Some("on_failure"),
        "`never` fails the job at the first such error.",
    ),
    optional("max_attempts", KeyType::Whole(1, 1_000_000), Some("10"), "Restarts before the job is failed."),
    optional(
        "backoff",
        KeyType::DurationRange,
        Some("1s..1m"),
        "The wait before a restart: the first, and the longest after doubling.",
    ),
];

pub(in crate::document) static CHECKPOINT: Section = Section {
    name: "checkpoint",
    path: "checkpoint",
    doc: "The epochs of a job that keeps state or is `exactly_once`.",
    keys: &[&CHECKPOINT_KEYS],
};

static CHECKPOINT_KEYS: [Key; 3] = [
    optional(
        "interval",
        KeyType::Duration,
        Some("1s"),
        "The time from the beginning of one epoch to the next, while there are records. An epoch ends sooner if a source waits for records to be finished.",
    ),
    optional(
        "timeout",
        KeyType::Duration,
        Some("120s"),
        "The job starts again from the last epoch if its instances do not come to the end of one in this time.",
    ),
    super::later("retain", "leave it out: a job goes on from its last epoch", "Epochs that are kept."),
];

pub(in crate::document) static RESUME_FROM: Section = Section {
    name: "resume_from",
    path: "resume_from",
    doc: "The earlier job that the job goes on from, with the state of its nodes, the positions of its sources and its event time. \
          Each source and each node with state needs one of the same type there, which for a source reads the same topic or file, and for an aggregate has windows of the same size.",
    keys: &[&RESUME_FROM_KEYS],
};

static RESUME_FROM_KEYS: [Key; 4] = [
    required("job", KeyType::Text, "Its id, or a name: the newest run of that name that has ended and has state."),
    optional(
        "checkpoint",
        KeyType::Any,
        Some("latest"),
        "The state as of the last epoch, which is the only one that is kept.",
    ),
    optional("map", KeyType::Labels, None, "The names that nodes had there, by their new ones: `{new: old}`."),
    optional(
        "on_missing",
        KeyType::OneOf(&["fail", "initialize"]),
        Some("fail"),
        "`initialize` lets nodes that have none there begin empty, and sources at their `start`; `fail` refuses the job.",
    ),
];

pub(in crate::document) static EVENT_TIME: Section = Section {
    name: "event_time",
    path: "sources.<name>.event_time",
    doc: "The times of a source's records, for nodes that work by time. They do not depend on when a record is read.",
    keys: &[&EVENT_TIME_KEYS],
};

pub(in crate::document) static WINDOW: Section = Section {
    name: "window",
    path: "transforms.<name>.window",
    doc: "The windows of an `aggregate`: parts of the records of a key, by their event times. They begin on the grid of 1970-01-01T00:00:00Z.",
    keys: &[&WINDOW_KEYS],
};

static WINDOW_KEYS: [Key; 9] = [
    optional("id", KeyType::Name, None, "A name for people."),
    required(
        "type",
        KeyType::OneOf(&["tumbling", "sliding", "session", "count", "global"]),
        "`tumbling` windows follow each other, `sliding` ones overlap, a `session` has records without a long pause, `count` so many records, `global` is one of all records.",
    ),
    optional(
        "size",
        KeyType::WindowSize,
        None,
        "The length of a tumbling or sliding window; its end is no part of it. The records of a `count` window. Weeks `w` (from Monday), months `mo` and years `y` are tumbling windows of the calendar.",
    ),
    optional(
        "timezone",
        KeyType::Checked(time_zone),
        None,
        "The time zone, such as `Europe/Berlin`, in which tumbling windows of `d`, `w`, `mo` or `y` begin at midnight; UTC if left out.",
    ),
    optional(
        "slide",
        KeyType::Extent,
        None,
        "The distance between the beginnings of two sliding windows, at most `size`; in records for `count`, and `size` if left out.",
    ),
    optional("gap", KeyType::Duration, None, "The longest pause within a session."),
    optional("offset", KeyType::Duration, Some("0s"), "Shifts the beginnings of tumbling and sliding windows."),
    optional(
        "allowed_lateness",
        KeyType::Duration,
        Some("0s"),
        "A window that has ended still takes records for so long, and is sent again with each; later ones count as `late`.",
    ),
    optional(
        "late_to",
        KeyType::Name,
        None,
        "The node that gets late records as they came in; it gets no others of this node, which need not stand in its `inputs`.",
    ),
];

pub(in crate::document) static TRIGGER: Section = Section {
    name: "trigger",
    path: "transforms.<name>.triggers[]",
    doc: "An event at which windows of an `aggregate` are sent. A window that goes is sent with what has come since it was sent last.",
    keys: &[&TRIGGER_KEYS],
};

static TRIGGER_KEYS: [Key; 9] = [
    optional("id", KeyType::Name, None, "A name; with several triggers it stands in the records, as `window.trigger`."),
    required(
        "on",
        KeyType::OneOf(&["watermark", "count", "interval", "punctuation", "percentile"]),
        "`watermark`: time has come to the end of the window; `count`: so many records of the key; `interval`: by the clock, windows that have changed; `punctuation`: a record on which `when` is true; `percentile`: a record is the first behind this part of the window.",
    ),
    optional("every", KeyType::Extent, None, "The records of `count`, or the time between two of `interval`."),
    optional("when", KeyType::Condition, None, "The condition of `punctuation`, on the record that comes in."),
    optional(
        "delay",
        KeyType::Duration,
        None,
        "The time that `watermark` waits behind the end of a window; `0s` if left out.",
    ),
    optional("at", KeyType::Checked(part), None, "The part of the window for `percentile`, such as 0.5 for its half."),
    optional(
        "fire",
        KeyType::OneOf(&["changed", "all"]),
        Some("changed"),
        "A record sends the windows that it is in, or `all` of its key.",
    ),
    optional(
        "mode",
        KeyType::OneOf(&["accumulating", "discarding", "retracting"]),
        Some("accumulating"),
        "A window that was sent keeps its records; or it is dropped, and begins anew; or it keeps them, and what was sent before is sent again with `op: retract`, before the new one with `op: insert`.",
    ),
    optional("emit", KeyType::Checked(is_emitted), None, "`true`, which may be left out: windows are sent as records."),
];

fn is_emitted(value: &Value) -> Result<(), String> {
    match value {
        Value::Bool(true) => Ok(()),
        _ => Err("a trigger sends windows as records; write true, or leave it out".to_owned()),
    }
}

/// The fault of the name of a time zone.
fn time_zone(value: &Value) -> Result<(), String> {
    let known = value.as_str().is_some_and(|name| TimeZone::get(name).is_ok());
    if known { Ok(()) } else { Err("write the name of a time zone, such as Europe/Berlin or UTC".to_owned()) }
}

/// The fault of a part of a window.
fn part(value: &Value) -> Result<(), String> {
    match value.as_f64() {
        Some(part) if (0.0..=1.0).contains(&part) => Ok(()),
        _ => Err("write a number from 0 to 1, such as 0.5".to_owned()),
    }
}

pub(in crate::document) static AGGREGATE: Section = Section {
    name: "aggregate",
    path: "transforms.<name>.aggregates[]",
    doc: "A value of an `aggregate`, in place of a function in a text: `{op: avg, field: temp, as: mean}` is `AVG(temp) AS mean`.",
    keys: &[&AGGREGATE_KEYS],
};

static AGGREGATE_KEYS: [Key; 4] = [
    required(
        "op",
        KeyType::OneOfSoFar(&AGGREGATE_OPS, &["collect_by", "collect_map"]),
        "`collect` is the list of the records or of the values of `field`, `distinct` that of its different values; the others are the functions of these names.",
    ),
    optional("field", KeyType::Text, None, "The expression over each record; only `count` and `collect` do without."),
    optional("as", KeyType::Name, None, "The name of the value in the record that is made."),
    optional("q", KeyType::Checked(part), None, "The rank of `quantile`, such as 0.99."),
];

/// The operations of aggregates that a document names in objects.
pub(in crate::document) const AGGREGATE_OPS: [&str; 12] = [
    "count",
    "count_distinct",
    "sum",
    "avg",
    "min",
    "max",
    "stddev",
    "first",
    "last",
    "quantile",
    "collect",
    "distinct",
];

static EVENT_TIME_KEYS: [Key; 3] = [
    optional(
        "field",
        KeyType::Expression,
        None,
        "The time of a record: milliseconds since 1970, or a text as in RFC 3339; null for a record without a time. Without this key it is `$timestamp`.",
    ),
    optional(
        "max_out_of_orderness",
        KeyType::Duration,
        Some("0s"),
        "Records may come so much later than younger ones of the same partition. Time is taken to be so far behind the latest record.",
    ),
    optional(
        "idle_timeout",
        KeyType::Duration,
        Some("10s"),
        "A partition that has nothing to be read for so long does not hold time back for the others.",
    ),
];

pub(in crate::document) static RESOURCES: Section = Section {
    name: "resources",
    path: "resources",
    doc: "The job's part of the workers. Busy tenants, and the busy jobs of a tenant, get equal parts of the time, unless a job is greedy.",
    keys: &[&RESOURCES_KEYS],
};

static RESOURCES_KEYS: [Key; 3] = [
    optional(
        "scheduler",
        KeyType::OneOfSoFar(&["balanced", "greedy"], &["percentage"]),
        Some("balanced"),
        "`greedy`: while the job has work, it also gets 15 of 16 turns of the tenant's other jobs; the oldest greedy job of a tenant does. Other tenants lose nothing.",
    ),
    optional(
        "placement",
        KeyType::OneOfSoFar(&["spread"], &["colocated"]),
        Some("spread"),
        "`spread`: instances run on all threads of the process.",
    ),
    super::later(
        "share",
        "leave it out: busy jobs get equal parts of the time, and scheduler: greedy puts one job first",
        "Share of the workers.",
    ),
];

pub(in crate::document) static BATCH: Section =
    Section { name: "batch", path: "*.batch", doc: "The batches on which an instance works.", keys: &[&BATCH_KEYS] };

static BATCH_KEYS: [Key; 2] = [
    optional(
        "size",
        KeyType::Whole(1, 1_000_000),
        Some("1024"),
        "Most records of a batch. Nodes other than sources take batches as they come if it is left out.",
    ),
    optional(
        "timeout",
        KeyType::Duration,
        Some("5ms"),
        "Longest wait of a source for a full batch, from the first record on. Other nodes never wait, and refuse it.",
    ),
];

pub(in crate::document) static PARALLELISM: Section = Section {
    name: "parallelism",
    path: "*.parallelism",
    doc: "Bounds of the number of instances, in place of a number.",
    keys: &[&PARALLELISM_KEYS],
};

static PARALLELISM_KEYS: [Key; 2] = [
    optional(
        "min",
        KeyType::Whole(1, 1024),
        Some("1"),
        "The fewest. Within the bounds, a job has as many instances as there are threads (`flow.threads`).",
    ),
    required("max", KeyType::Whole(1, 1024), "The most."),
];

pub(in crate::document) static ROUTE: Section = Section {
    name: "route",
    path: "routes[]",
    doc: "A rule about the successors of a record. All matching routes of a node are united; a node that has routes, none of \
          which matches, sends nothing. Routes with `on_error` are a class of their own.",
    keys: &[&ROUTE_KEYS],
};

static ROUTE_KEYS: [Key; 10] = [
    required("from", KeyType::Name, "A node, or `all`."),
    required("to", KeyType::Names, "Successors of the node, `all` or `none`."),
    optional(
        "when",
        KeyType::Condition,
        None,
        "The route matches records on which this is true; all records if missing.",
    ),
    optional(
        "stop",
        KeyType::Bool,
        Some("false"),
        "Later routes are not looked at. Such routes stand before the others of their class.",
    ),
    optional(
        "on_error",
        KeyType::Bool,
        Some("false"),
        "The route is for records on which the node failed; it must stop.",
    ),
    optional(
        "drop_fields",
        KeyType::Texts,
        None,
        "Fields that are removed before the record is sent on; `o.k` is one inside the member `o`.",
    ),
    optional("select", KeyType::SelectList, None, "On error routes: the record that is sent instead."),
    optional("predicate_errors_to", KeyType::Name, None, "The destination of records on which `when` fails."),
    optional(
        "action",
        KeyType::OneOf(&["retry", "drop", "dead_letter"]),
        None,
        "On error routes: `retry` reads the root again, `drop` ends the record, `dead_letter` sends and counts it.",
    ),
    optional("max_attempts", KeyType::Whole(1, 1_000_000), Some("3"), "Most readings of a root by `action: retry`."),
];

pub(in crate::document) static HOOK: Section = Section {
    name: "hook",
    path: "hooks[]",
    doc: "A call at a point of an instance's life. Hooks of one point are called in the order of the list.",
    keys: &[&HOOK_KEYS],
};

/// The points in the words of the document; the order is that of [`HookPoint`](crate::document::HookPoint).
pub(in crate::document) const HOOK_POINTS: [&str; 8] =
    ["ready?", "start", "before_batch", "after_read", "after_fn", "after_batch", "stop", "error"];

static HOOK_KEYS: [Key; 5] = [
    required("task", KeyType::Name, "A node, or `all`."),
    required("on", KeyType::OneOf(&HOOK_POINTS), "The point."),
    optional("call", KeyType::Name, None, "The name of a registered hook."),
    optional("params", KeyType::Params, None, "Handed to the hook as they stand."),
    optional(
        "answer",
        KeyType::OneOf(&["restart", "kill", "defer"]),
        None,
        "On `error`, in place of `call`: start the instance again from its positions (the whole job if queues lead to or from its nodes, or if it has files), kill the job, or let the next hook answer.",
    ),
];

pub(in crate::document) static TEST: Section = Section {
    name: "test",
    path: "tests[]",
    doc: "A test: records that enter nodes, and records that must come out. One thread runs it, with lists in place of connectors.",
    keys: &[&TEST_KEYS],
};

static TEST_KEYS: [Key; 7] = [
    required("name", KeyType::Text, "A sentence that states what is expected; unique among the tests."),
    optional(
        "inject",
        KeyType::RecordsByNode,
        None,
        "Records that enter each node; those of a source are what its connector reads. Without this key, `list` sources run with their own records; all other sources are empty.",
    ),
    optional(
        "expect",
        KeyType::RecordsByNode,
        None,
        "Records that each node must have made, or a sink written: all of them, with the fields that are named. null stands for a missing field, too.",
    ),
    optional(
        "tables",
        KeyType::RecordsByNode,
        None,
        "Rows of the table of each lookup: of a topic or bucket, records with their key in `$key` and a value that is no object in `$value`; of a file, records with its column; of entities, the entities with their `id`. A lookup without rows has an empty table.",
    ),
    optional("params", KeyType::ParamsByNode, None, "Parameters by node, as the process configuration would set them."),
    optional(
        "trace",
        KeyType::TextsByName,
        None,
        "Lines that each hook must have written, in order, by its name in `call`; a run of lines that repeats at once counts once.",
    ),
    optional(
        "tick",
        KeyType::Duration,
        None,
        "Time that passes after the last record, before the sources end: for silence that an `alarm` notices.",
    ),
];

pub(in crate::document) static USE: Section = Section {
    name: "use",
    path: "use.<name>",
    doc: "A bundle that is merged into the job. Its nodes are called `<name>.<node>`.",
    keys: &[&USE_KEYS],
};

static USE_KEYS: [Key; 3] = [
    required("bundle", KeyType::Name, "The name under which the bundle is registered."),
    optional("inputs", KeyType::Names, None, "The nodes that `input` stands for inside the bundle."),
    optional("params", KeyType::Params, None, "Values of the bundle's parameters."),
];

pub(in crate::document) static PARAMETER: Section =
    Section { name: "parameter", path: "params.<name>", doc: "A parameter of a bundle.", keys: &[&PARAMETER_KEYS] };

/// The types that a bundle may give its parameters.
pub(in crate::document) const PARAMETER_TYPES: [&str; 6] = ["text", "number", "whole", "boolean", "list", "object"];

static PARAMETER_KEYS: [Key; 4] = [
    required("type", KeyType::OneOf(&PARAMETER_TYPES), "The form of the value."),
    optional("required", KeyType::Bool, Some("false"), "A use must give it."),
    optional("default", KeyType::Any, None, "The value if a use gives none."),
    optional("doc", KeyType::Text, None, "A sentence for people."),
];
