//! Jobs: stream processing as data.
//!
//! A job is a YAML or JSON document that names sources, transforms, sinks and the routes between them. It is checked as a
//! whole before anything runs, then planned and run on a few worker threads, over records of the log.
//!
//! Not here: HTTP paths and the command line (`server`), expressions (`columns`), how state is kept (`view`).

mod batch;
mod catalogue;
mod config;
mod connector;
mod delivery;
mod document;
mod entities;
mod error;
mod expression;
mod function;
mod hook;
mod jobs;
mod lookup;
mod memory;
mod object;
mod operator;
mod plan;
mod route;
mod runtime;
mod state;
mod template;
mod test_run;

pub use batch::{Batch, BatchWriter, Integers};
pub use catalogue::{catalogue, describe_type};
pub use config::FlowConfig;
pub use document::{
    Action, BatchSettings, Catalogue, Checkpoint, Delivery, Document, DocumentContext, EarlierJob, EarlierJobs,
    ErrorAnswer, EventTime, Exchange, Finding, Hook, HookPoint, JoinInput, JoinSetting, Key, KeyType, Mode,
    NoEarlierJob, Node, NodeId, NodeType, Parallelism, RestartPolicy, ResumeFrom, Role, Route, RouteTarget, Scheduler,
    Section, TestCase, TopicAccess, TriggerMode, TriggerOn, TriggerSetting, WindowKind, WindowSetting, duration_ms,
    json_schema, node_type_page, reference_page, size_bytes,
};
pub use entities::{EntityMatch, EntityQuery, EntityReader};
pub use error::Error;
pub use expression::{Params, RecordError};
pub use function::{FunctionOutput, Functions, NativeFunction};
pub use hook::{HookAnswer, HookBatch, HookCall, Hooks, NativeHook};
pub use jobs::{
    EVENT_TENANT_HEADER, FlowRuntime, JOB_STATES, JobFigure, JobState, Jobs, ParallelismChange, StopMode, Submission,
    Tap,
};
pub use runtime::TappedRecord;
pub use test_run::{Difference, DifferenceKind, TestReport, TestResult, TestRunner};
