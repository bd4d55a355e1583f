//! A checked document: names are resolved, values have their types, defaults are filled in.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use millstream_columns::CalendarStep;
use serde_json::{Map, Value};

/// A job document that keeps every rule.
#[derive(Debug, Clone)]
pub struct Document {
    /// The job's id; the server makes one if the document has none.
    pub id: Option<String>,
    /// Runs of one name are a history; one of them runs at a time.
    pub name: String,
    /// A description of the job for people; it has no effect.
    pub doc: Option<String>,
    /// Labels that stand on every log line and metric of the job.
    pub labels: BTreeMap<String, String>,
    /// The mode: the job ends by itself, or runs until it is stopped.
    pub mode: Mode,
    /// The promise for records after a crash.
    pub delivery: Delivery,
    /// The epochs; they have no effect on a job without state that is not `exactly_once`.
    pub checkpoint: Checkpoint,
    /// The earlier job that the job goes on from.
    pub resume_from: Option<ResumeFrom>,
    /// The answer to errors that nothing else took.
    pub restart: RestartPolicy,
    /// The default for all edges.
    pub exchange: Exchange,
    /// The job's part of the workers.
    pub scheduler: Scheduler,
    /// Sources, transforms and sinks, in this order and otherwise in that of the document.
    pub nodes: Vec<Node>,
    /// The routes, in the order in which they are evaluated.
    pub routes: Vec<Route>,
    /// The hooks, in the order in which they are called.
    pub hooks: Vec<Hook>,
    /// The tests of the job, for `millstream job test`.
    pub tests: Vec<TestCase>,
    /// SHA-256 over the canonical JSON (bundles merged, keys sorted, no white space), in hexadecimal.
    pub hash: String,
    /// The document as JSON, bundles merged, as it was written otherwise.
    pub json: Value,
}

/// The index of a node in [`Document::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// The way a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It runs until it is stopped.
    Streaming,
    /// It completes when all sources have ended.
    Batch,
}

/// The promise for records after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing repeats; a crash loses what is in flight.
    AtMostOnce,
    /// Nothing is lost; a crash may repeat records.
    AtLeastOnce,
    /// Nothing is lost or repeated in the job's state and in its `stream` and `entities` sinks; a crash may repeat records of
    /// other sinks.
    ExactlyOnce,
}

/// The epochs of a job that keeps state: at the end of each, positions, state and results are committed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// The time from the beginning of one epoch to the next, while there are records.
    pub interval: Duration,
    /// The time for all instances to come to the end of an epoch.
    pub timeout: Duration,
}

/// The earlier job that a job goes on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeFrom {
    /// The id of the job; `None` where nobody knows the earlier jobs.
    pub earlier: Option<String>,
    /// The names that nodes had there, by their new ones.
    pub map: BTreeMap<String, String>,
}

/// The way that records cross an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Records cross in the same call, unless keys or parallelism force a queue.
    Fused,
    /// Records cross every edge through a bounded queue.
    Queue,
}

/// The turns that a busy job gets beside others of its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// As many as each of them.
    Balanced,
    /// Most of the turns of the other jobs, too.
    Greedy,
}

/// The restarts after an error that no route and no hook took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    /// Restarts before the job is failed; 0 for `policy: never`.
    pub max_attempts: u32,
    /// The wait before the first restart; it doubles with each one.
    pub backoff_min_ms: u64,
    /// The longest wait before a restart.
    pub backoff_max_ms: u64,
}

/// The part of a node in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It has no inputs and makes records.
    Source,
    /// It has inputs and successors.
    Transform,
    /// It has inputs and no successors.
    Sink,
}

/// The three maps of nodes.
pub(crate) const NODE_MAPS: [(&str, Role); 3] =
    [("sources", Role::Source), ("transforms", Role::Transform), ("sinks", Role::Sink)];

/// A source, transform or sink.
#[derive(Debug, Clone)]
pub struct Node {
    /// The node's name, unique in the job.
    pub name: String,
    /// The map of the document in which it stands.
    pub role: Role,
    /// The name of its [`NodeType`](super::NodeType).
    pub kind: String,
    /// It keeps a value for each key.
    pub keeps_state: bool,
    /// A description of the node for people; it has no effect.
    pub doc: Option<String>,
    /// Labels that stand on the node's log lines and metrics, beside those of the job.
    pub labels: BTreeMap<String, String>,
    /// The direct predecessors, without duplicates.
    pub inputs: Vec<NodeId>,
    /// Checked against the keys of the node's type; defaults are filled in.
    pub config: Map<String, Value>,
    /// A condition; records on which it is not true are dropped before `function` and `select`.
    pub filter: Option<String>,
    /// A select list, applied after `function`.
    pub select: Option<String>,
    /// The name of a registered function.
    pub function: Option<String>,
    /// The function takes a whole batch and returns a list of the same length.
    pub is_batch_function: bool,
    /// The values of parameters: those of the process configuration override those of the document.
    pub params: BTreeMap<String, Value>,
    /// Expressions; records of one key go to one instance.
    pub key_by: Vec<String>,
    /// The windows of an `aggregate`.
    pub window: Option<WindowSetting>,
    /// The values of an `aggregate`: a list of aggregates with names.
    pub aggregates: Option<String>,
    /// The events at which windows are sent; none for time alone.
    pub triggers: Vec<TriggerSetting>,
    /// The inputs of a `join`; `key_by` has the key of the left one.
    pub join: Option<JoinSetting>,
    /// The number of its instances.
    pub parallelism: Parallelism,
    /// The batches it works on.
    pub batch: BatchSettings,
    /// Sources: records read and not yet finished.
    pub max_in_flight: u32,
    /// Sources: time until the oldest record is read again if it is not finished; 0 for no limit.
    pub ack_timeout_ms: u64,
    /// Sources: the times of the records.
    pub event_time: EventTime,
}

/// The windows of an `aggregate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowSetting {
    /// The way that records are put together.
    pub kind: WindowKind,
    /// The beginning of one of the windows, milliseconds since 1970.
    pub offset_ms: i64,
    /// The time for which a window that has ended still takes records.
    pub allowed_lateness_ms: i64,
    /// The node that gets records that are too late; `None` drops them.
    pub late_to: Option<NodeId>,
}

/// An event at which windows are sent.
#[derive(Debug, Clone, PartialEq)]
pub struct TriggerSetting {
    /// The name that its records have.
    pub id: Option<String>,
    /// The event.
    pub on: TriggerOn,
    /// A record sends all windows of its key, and not only those that it is in.
    pub fires_all: bool,
    /// The effect on a window that is sent.
    pub mode: TriggerMode,
}

/// The kinds of events at which windows are sent.
#[derive(Debug, Clone, PartialEq)]
pub enum TriggerOn {
    /// Time has passed the end of the window.
    Watermark {
        /// By so many milliseconds.
        delay_ms: i64,
    },
    /// So many records of the key.
    Count {
        /// The number, above 0.
        every: u64,
    },
    /// The clock, for windows that have changed.
    Interval {
        /// The time between two, in milliseconds, above 0.
        every_ms: i64,
    },
    /// A record on which the condition is true.
    Punctuation {
        /// The condition.
        when: String,
    },
    /// The first record whose time is at this part of the window or later.
    Percentile {
        /// From 0 to 1.
        at: f64,
    },
}

/// `true` if windows are given once time has come to their end, and keep their records or have none after that, as without triggers.
pub(crate) fn gives_by_time_alone(triggers: &[TriggerSetting], allowed_lateness_ms: i64) -> bool {
    match triggers {
        [] => true,
        [TriggerSetting { on: TriggerOn::Watermark { delay_ms: 0 }, mode, .. }] => match mode {
            TriggerMode::Accumulating => true,
            TriggerMode::Discarding => allowed_lateness_ms == 0,
            TriggerMode::Retracting => false,
        },
        _ => false,
    }
}

/// The effect on a window that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerMode {
    /// It keeps its records.
    Accumulating,
    /// It is dropped, and begins anew with the next record.
    Discarding,
    /// It keeps its records; the result that was sent before is sent again as taken back.
    Retracting,
}

/// The way that records are put together in windows; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowKind {
    /// Windows of a size that begin at equal distances; tumbling ones follow each other.
    Sliding {
        /// The size of each.
        size_ms: i64,
        /// The distance between the beginnings of two.
        slide_ms: i64,
    },
    /// Windows of the calendar that follow each other.
    Calendar {
        /// The length of each.
        step: CalendarStep,
        /// The zone in which they begin at midnight.
        zone: TimeZone,
    },
    /// Records without a longer pause between them.
    Session {
        /// The longest pause.
        gap_ms: i64,
    },
    /// So many records of a key, in the order in which they come.
    Count {
        /// The records of each.
        size: u32,
        /// The records from the beginning of one to that of the next, at most `size`.
        slide: u32,
    },
    /// All records.
    Global,
}

/// The inputs of a `join`, and the distance of records that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinSetting {
    /// The left input.
    pub left: JoinInput,
    /// The right input.
    pub right: JoinInput,
    /// The time by which a right record may be older than the left one, in milliseconds; below 0 it must be younger.
    pub before_ms: i64,
    /// The time by which a right record may be younger than the left one, in milliseconds; below 0 it must be older.
    pub after_ms: i64,
}

/// An input of a `join`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinInput {
    /// The node whose records come in.
    pub node: NodeId,
    /// Expressions; records with equal values belong together.
    pub key: Vec<String>,
    /// The member of the results that has its records.
    pub member: String,
    /// A record without a partner gives a result of its own.
    pub gives_unmatched: bool,
}

/// A side of a `join`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinSide {
    Left,
    Right,
}

/// The times of a source's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTime {
    /// An expression; `None` takes the time in the topic.
    pub field: Option<String>,
    /// The time by which a record may come behind a younger one.
    pub max_out_of_orderness_ms: i64,
    /// The time without news after which a partition does not hold time back.
    pub idle_timeout: Duration,
}

/// Instances that the nodes of a job have together, at most.
pub(crate) const INSTANCES_MAX: u64 = 8_192;

/// Bounds of the number of instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    /// The least number of instances, also if there are fewer workers.
    pub min: u32,
    /// The most instances that the job ever has of the node.
    pub max: u32,
}

/// An instance works when `size` records are there or `timeout_ms` has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSettings {
    /// Most records of a batch; larger ones are cut.
    pub size: u32,
    /// Sources: longest wait for a full batch.
    pub timeout_ms: u64,
}

/// A rule about where the output of a node goes.
#[derive(Debug, Clone)]
pub struct Route {
    /// `None` for `from: all`.
    pub from: Option<NodeId>,
    /// The nodes that get the record.
    pub to: RouteTarget,
    /// A condition; `None` is always true.
    pub when: Option<String>,
    /// No later route of the same class is evaluated once this one matches.
    pub stop: bool,
    /// The route is for records on which the node failed, and for no others.
    pub on_error: bool,
    /// Fields that are removed before the record is sent on; `o.k` is one inside the member `o`.
    pub drop_fields: Vec<String>,
    /// Error routes: the select list of the record that is sent instead.
    pub select: Option<String>,
    /// The node that gets a record on which `when` fails.
    pub predicate_errors_to: Option<NodeId>,
    /// An action besides sending; error routes only.
    pub action: Option<Action>,
}

/// The destinations of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteTarget {
    /// The successors of the node, all of them.
    All,
    /// No successor: the record ends here.
    None,
    /// The successors that the route names.
    Nodes(Vec<NodeId>),
}

/// An error route's action besides sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The record's root is read again, this many times at most.
    Retry {
        /// Readings of the root besides the first.
        max_attempts: u32,
    },
    /// The record ends here, and counts as dropped.
    Drop,
    /// The record goes to the destinations, and counts as a dead letter.
    DeadLetter,
}

/// A call at a point in an instance's life.
#[derive(Debug, Clone)]
pub struct Hook {
    /// `None` for `task: all`.
    pub task: Option<NodeId>,
    /// The point at which it is called.
    pub on: HookPoint,
    /// The name of a registered hook; empty for a fixed answer.
    pub call: String,
    /// Parameters that are handed to the hook as they stand.
    pub params: BTreeMap<String, Value>,
    /// `on: error` without `call`: a fixed answer.
    pub answer: Option<ErrorAnswer>,
}

/// A point in an instance's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    /// `ready?`: before the start; false = ask again later.
    Ready,
    /// `start`: before the first batch; returned values become parameters.
    Start,
    /// `before_batch`.
    BeforeBatch,
    /// `after_read`: the batch is there.
    AfterRead,
    /// `after_fn`: condition, function and select list are done.
    AfterFunction,
    /// `after_batch`.
    AfterBatch,
    /// `stop`: after the last batch, always.
    Stop,
    /// `error`: the node failed and no error route took it.
    Error,
}

/// The answer of an error hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorAnswer {
    /// The instance starts again, or the whole job if others have records of it, however often.
    Restart,
    /// The job is killed and not restarted.
    Kill,
    /// The hook leaves the answer to the next hook.
    Defer,
}

/// One entry of the document's `tests`.
#[derive(Debug, Clone)]
pub struct TestCase {
    /// The name, unique among the tests of the document.
    pub name: String,
    /// The line of the document in which it begins.
    pub line: usize,
    /// Records that enter each node.
    pub inject: BTreeMap<String, Vec<Value>>,
    /// Time that passes after the last record.
    pub tick: Duration,
    /// Records that each node must have put out or taken in, with some of their fields.
    pub expect: BTreeMap<String, Vec<Value>>,
    /// Rows of the tables of lookups, by node.
    pub tables: BTreeMap<String, Vec<Value>>,
    /// Parameters by node name, as the process would set them.
    pub params: BTreeMap<String, BTreeMap<String, Value>>,
    /// The lines that each hook must have written, in order, by the
    /// name in `call`. A run of lines that repeats at once counts once.
    pub trace: BTreeMap<String, Vec<String>>,
}
