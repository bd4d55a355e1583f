//! Runs planned jobs on a few threads that all jobs share.
//!
//! ```text
//!  Run (a job) ── tasks: copies of its chains ──► Workers: turns, the same number for each busy job
//!                   │  InstanceTask, Instance: source, inbox ► OperatorChain: operators ► sinks by calls
//!                   ├─ Inbox: bounded queue between chains, a lane for each sender; a full one stops its sender
//!                   ├─ TableFeed: fills the table of a lookup, which its instances share
//!                   ├─ Epochs: barriers, state and results that are committed together
//!                   ├─ RunProgress: records in flight, lag, watermarks
//!                   └─ JobMetrics: counters of nodes and edges, and the taps of edges
//! ```
//!
//! Always true
//! - A task that has nothing to do takes no turn until it is woken.
//! - No turn waits for a disk, a socket or another task.

mod boundary;
mod counters;
mod epoch_keeper;
mod epoch_part;
mod epochs;
mod event_time;
mod inbox;
mod instance;
mod instance_task;
mod instance_time;
mod latency;
mod metrics;
mod neighbours;
mod node_reasons;
mod readable_state;
mod reading;
mod restored_state;
mod retry_queue;
mod run;
mod run_failure;
mod run_progress;
mod started_nodes;
mod stored_state;
mod takeover;
mod tap;
mod time_shares;
mod wait;
mod work_queue;
mod workers;
mod writing_sink;

pub(crate) use self::epoch_keeper::state_topic;
pub(crate) use self::metrics::{JobMetrics, NodeMetrics, TAPS_PER_JOB_MAX, TapRefusal};
pub(crate) use self::readable_state::check_readable;
pub(crate) use self::restored_state::last_epoch;
pub(crate) use self::run::{JobSetting, Observer, Run, RunOutcome};
pub(crate) use self::run_failure::RunFailure;
pub(crate) use self::stored_state::{StateRequest, stored_state};
pub(crate) use self::takeover::Takeover;
pub use self::tap::TappedRecord;
pub(crate) use self::tap::{TAP_MAX_BYTES, TapReader};
pub(crate) use self::workers::{TurnStep, Workers};
