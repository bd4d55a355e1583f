//! The errors of jobs.

use millstream_types::{ErrorCode, TenantId};

use crate::document::Finding;

/// The reason why a request about jobs failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant explains its fields")]
pub enum Error {
    /// The document breaks rules, one or more.
    #[error("the document has {} fault{}: {}", .findings.len(), if .findings.len() == 1 { "" } else { "s" }, first(.findings))]
    Invalid { findings: Vec<Finding> },
    /// The job was submitted before, with another document.
    #[error(
        "job '{id}' was submitted with hash {stored}, and this document has hash {given}; send it under another id, or without one"
    )]
    HashDiffers { id: String, stored: String, given: String },
    /// A job of that name runs.
    #[error(
        "job '{id}' called '{name}' is still {state}; stop it first, submit this one with replace, or give it another name"
    )]
    NameTaken { id: String, name: String, state: &'static str },
    /// A source would read a topic under the group of a running job's.
    #[error(
        "source '{node}' would read topic '{topic}' under the group '{group}', as job '{id}' does, and after a restart each would skip what the other has read; give it another group, or stop that job first"
    )]
    GroupTaken { node: String, topic: String, group: String, id: String },
    /// The job that another was to go on from has just completed, or was just forgotten.
    #[error("the state of job '{id}' is gone with its end a moment ago; send the document again")]
    NoState { id: String },
    /// The running job has not stopped in time.
    #[error("job '{id}' goes on, and the new one is not run: {reason}")]
    NotReplaced { id: String, reason: String },
    #[error("job '{id}' does not exist; 'GET /api/jobs' lists those that do")]
    UnknownJob { id: String },
    /// No job ever had that name.
    #[error("no job is called '{name}'; 'GET /api/jobs' lists the jobs with their names")]
    UnknownName { name: String },
    /// The job has ended, or has not begun its first run.
    #[error("job '{id}' is {state}; records pass only the edges of a job that runs")]
    NotRunning { id: String, state: &'static str },
    /// No records pass between these nodes.
    #[error("job '{id}' has no edge '{edge}'; use one of {}", .edges.join(" "))]
    UnknownEdge { id: String, edge: String, edges: Vec<String> },
    /// The node keeps no state, or does not exist.
    #[error("job '{id}' has no node '{node}' with state; {}", listed(.nodes))]
    UnknownNode { id: String, node: String, nodes: Vec<String> },
    /// The job commits no epochs.
    #[error(
        "job '{id}' has no epochs, as it keeps no state and is not exactly_once; stop it with mode graceful, which stores how far it has read"
    )]
    NoEpochs { id: String },
    /// No node of the job has that name.
    #[error("job '{id}' has no node '{node}'; {}", meant(.nearest.as_deref(), .nodes))]
    NoNode { id: String, node: String, nearest: Option<String>, nodes: Vec<String> },
    /// No node of the job has a parallelism in its document, and none is named.
    #[error("no node of job '{id}' has a parallelism in its document; name the nodes, as in {{\"{example}\": 2}}")]
    NoParallelism { id: String, example: String },
    /// The job keeps its parallelism.
    #[error("job '{id}' keeps its parallelism: {reason}")]
    NotRescaled { id: String, reason: String },
    #[error("{open} taps are open, at most {limit} may be; close one, or try again later")]
    TapsFull { open: usize, limit: usize },
    /// The limit of running jobs is reached.
    #[error("{running} jobs run, flow.jobs_max = {limit}; stop one, or raise the limit")]
    JobsFull { running: usize, limit: usize },
    /// The limit of the tenant's running jobs is reached.
    #[error(
        "{running} jobs of tenant '{tenant}' run, flow.jobs_per_tenant_max = {limit}; stop one, or raise the limit"
    )]
    TenantJobsFull { running: usize, tenant: TenantId, limit: usize },
    /// The job has ended.
    #[error("job '{id}' is {state}, and only a paused job is resumed; submit its document again under another id")]
    NotPaused { id: String, state: &'static str },
    /// A checked document cannot be planned.
    #[error("{key} of node '{node}': {message}")]
    Plan { node: String, key: String, message: String },
    /// A source or sink cannot start or go on.
    #[error("node '{node}': {message}")]
    Connector { node: String, message: String },
    /// A sink cannot write a record, and never will.
    #[error("node '{node}', {record}: {message}")]
    Record { node: String, code: &'static str, row: u32, record: String, message: String },
    /// The state of jobs cannot be read or stored.
    #[error("the state of jobs cannot be kept")]
    State(#[from] millstream_view::Error),
    #[error(transparent)]
    Log(#[from] millstream_log::Error),
    /// A setting breaks a rule.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting { setting: &'static str, value: String, rule: &'static str },
    /// A thread cannot be started.
    #[error("a thread for jobs cannot be started")]
    Thread(#[source] std::io::Error),
    #[error("jobs have stopped, as the server is stopping; send the request again once it is back")]
    Stopped,
}

impl Error {
    pub(crate) fn plan(node: &str, key: &str, message: impl Into<String>) -> Self {
        Self::Plan { node: node.to_owned(), key: key.to_owned(), message: message.into() }
    }

    pub(crate) fn connector(node: &str, message: impl Into<String>) -> Self {
        Self::Connector { node: node.to_owned(), message: message.into() }
    }

    /// The class of the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid { .. }
            | Self::Plan { .. }
            | Self::UnknownEdge { .. }
            | Self::NoNode { .. }
            | Self::NoParallelism { .. }
            | Self::InvalidSetting { .. } => ErrorCode::Invalid,
            Self::HashDiffers { .. }
            | Self::NameTaken { .. }
            | Self::GroupTaken { .. }
            | Self::NotPaused { .. }
            | Self::NotReplaced { .. }
            | Self::NotRescaled { .. }
            | Self::NoEpochs { .. }
            | Self::NoState { .. } => ErrorCode::Conflict,
            Self::UnknownJob { .. } | Self::UnknownName { .. } | Self::NotRunning { .. } | Self::UnknownNode { .. } => {
                ErrorCode::NotFound
            }
            Self::JobsFull { .. } | Self::TenantJobsFull { .. } | Self::TapsFull { .. } => ErrorCode::Overloaded,
            Self::Connector { .. } | Self::Record { .. } | Self::Thread(_) => ErrorCode::Internal,
            Self::State(error) => error.code(),
            Self::Log(error) => error.code(),
            Self::Stopped => ErrorCode::Unavailable,
        }
    }
}

fn listed(nodes: &[String]) -> String {
    if nodes.is_empty() { "it keeps none".to_owned() } else { format!("use one of {}", nodes.join(" ")) }
}

fn meant(nearest: Option<&str>, nodes: &[String]) -> String {
    nearest.map_or_else(|| listed(nodes), |nearest| format!("did you mean '{nearest}'?"))
}

fn first(findings: &[Finding]) -> String {
    findings.first().map_or_else(String::new, |finding| {
        if finding.path.is_empty() { finding.message.clone() } else { format!("{}: {}", finding.path, finding.message) }
    })
}
