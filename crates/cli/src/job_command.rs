//! `millstream job`: jobs from the terminal, over the HTTP API of a running server. Only tests run in this process.

use std::path::{Path, PathBuf};

use hyper::Method;
use millstream_flow::FlowConfig;
use serde_json::{Value, json};

use crate::client::{Server, encoded};
use crate::job_client::{count, path, rate, send_document};
use crate::job_events_command::{self, EventsArgs};
use crate::job_parallelism_command::{self, ParallelismArgs};
use crate::job_tap_command::{self, TapArgs};
use crate::job_test_command::{self, TestArgs};
use crate::terminal::{self, aligned, cell, show, show_lines, size};
use crate::{job_graph_command, job_new_command, job_run_command, job_validate_command, job_watch_command};

/// Arguments of `millstream job`.
#[derive(Debug, clap::Args)]
pub struct JobArgs {
    #[command(subcommand)]
    action: JobAction,
    #[command(flatten)]
    server: Server,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum JobAction {
    /// Print a document to start from, with comments and tests
    New {
        /// The name of the job [default: starter]
        name: Option<String>,
    },
    /// Submit a job and print its id
    Submit {
        /// The document, YAML or JSON; - reads standard input
        file: PathBuf,
        /// Take the place of the running job of the name, which is stopped; a refused document leaves it running
        #[arg(long)]
        replace: bool,
        /// The time for that job to stop, such as 30s; at most 2m
        #[arg(long, value_name = "TIME", default_value = "30s")]
        timeout: String,
        /// Submit the document with --replace, and again whenever the file changes, until Ctrl-C; the job goes on
        #[arg(long)]
        watch: bool,
    },
    /// Check a document and print all its faults; also without a server
    Validate {
        /// The document, YAML or JSON; - reads standard input
        file: PathBuf,
    },
    /// Run the tests of documents, without a server
    Test(TestArgs),
    /// Submit a job and follow it until it ends; Ctrl-C stops it. The exit status is 1 if it fails
    Run {
        /// The document, YAML or JSON; - reads standard input
        file: PathBuf,
    },
    /// List jobs, newest first
    List {
        /// Only jobs in this state
        #[arg(long, value_parser = ["starting", "running", "paused", "stopped", "completed", "killed", "failed"])]
        state: Option<String>,
        /// Only jobs of this name
        #[arg(long)]
        name: Option<String>,
        /// Only jobs with this label
        #[arg(long, value_name = "NAME=VALUE")]
        label: Option<String>,
    },
    /// Show a job: its state and the figures of its nodes
    #[command(visible_alias = "status")]
    Show {
        /// The job's id, or the name of its latest run
        job: String,
    },
    /// Show a job as a tree of its nodes, with the records of its edges
    Graph {
        /// The job's id, or the name of its latest run
        job: String,
    },
    /// List the open alarms of running jobs
    Alarms {
        /// A job's id or name [default: all jobs]
        job: Option<String>,
        /// The most alarms that are printed
        #[arg(long, default_value_t = 1000)]
        limit: usize,
    },
    /// Print what has happened to jobs, oldest first
    Events(EventsArgs),
    /// Print samples of the records that pass an edge of a running job, one JSON object a line
    Tap(TapArgs),
    /// Stop a job; what it has read is finished first
    Stop {
        /// The job's id, or the name of its latest run
        job: String,
        /// The way in which it stops
        #[arg(long, value_enum, default_value_t = StopMode::Graceful)]
        mode: StopMode,
        /// The same as --mode immediate
        #[arg(long, conflicts_with = "mode")]
        immediate: bool,
    },
    /// Change the parallelism of a running job, which goes on from its last epoch
    Parallelism(ParallelismArgs),
    /// Start a paused job again
    Resume {
        /// The job's id, or the name of its latest run
        job: String,
    },
    /// Kill a job at once and for good
    Kill {
        /// The job's id, or the name of its latest run
        job: String,
    },
    /// List the types of sources, transforms and sinks with their keys
    Connectors,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StopMode {
    /// Finish what was read, and commit an epoch with it, from which another job can go on
    Checkpoint,
    /// Finish what was read
    Graceful,
    /// Throw away what is in flight; a later run of the job reads it again
    Immediate,
}

impl StopMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Graceful => "graceful",
            Self::Immediate => "immediate",
        }
    }
}

pub(crate) fn run(
    arguments: &JobArgs,
    settings: impl FnOnce(&Path) -> anyhow::Result<FlowConfig>,
) -> anyhow::Result<()> {
    match &arguments.action {
        // It stops its job when it is interrupted.
        JobAction::Run { .. } => terminal::run_to_the_end(act(arguments, settings)),
        _ => terminal::run_until_interrupted(act(arguments, settings)),
    }
}

async fn act(arguments: &JobArgs, settings: impl FnOnce(&Path) -> anyhow::Result<FlowConfig>) -> anyhow::Result<()> {
    let (server, is_json) = (&arguments.server, arguments.json);
    match &arguments.action {
        JobAction::New { name } => job_new_command::run(name.as_deref()),
        JobAction::Run { file } => job_run_command::run(server, file, is_json).await,
        JobAction::Submit { file, replace, timeout, watch } => {
            let path = match *replace || *watch {
                true => format!("/api/jobs?replace=true&timeout={}", encoded(timeout)),
                false => "/api/jobs".to_owned(),
            };
            if *watch {
                return job_watch_command::run(server, &path, file, is_json).await;
            }
            let told = send_document(server, &path, file).await?;
            if is_json { show_lines([&told]) } else { show(&format!("{}\n", cell(&told["id"]))) }
        }
        JobAction::Validate { file } => job_validate_command::run(server, file, is_json).await,
        JobAction::Test(test) => job_test_command::run(test, settings, is_json),
        JobAction::List { state, name, label } => {
            let given = [("state", state), ("name", name), ("label", label)];
            let parts = given.iter().filter_map(|(key, value)| Some(format!("{key}={}", encoded(value.as_deref()?))));
            let path = format!("/api/jobs?{}", parts.collect::<Vec<_>>().join("&"));
            let jobs = server.ask(Method::GET, &path, String::new()).await?;
            let jobs = jobs.as_array().map(Vec::as_slice).unwrap_or_default();
            if is_json { show_lines(jobs) } else { show(&table(jobs)) }
        }
        JobAction::Show { job } => {
            let job = server.ask(Method::GET, &path(server, job, "").await?, String::new()).await?;
            if is_json { show_lines([&job]) } else { show(&described(&job)) }
        }
        JobAction::Graph { job } => {
            let graph = server.ask(Method::GET, &path(server, job, "/graph").await?, String::new()).await?;
            if is_json { show_lines([&graph]) } else { show(&job_graph_command::described(&graph)) }
        }
        JobAction::Alarms { job, limit } => {
            let job = job.as_ref().map_or_else(String::new, |job| format!("&job={}", encoded(job)));
            let path = format!("/api/jobs/alarms?limit={limit}{job}");
            let told = server.ask(Method::GET, &path, String::new()).await?;
            let alarms = told["alarms"].as_array().map(Vec::as_slice).unwrap_or_default();
            if is_json {
                return show_lines(alarms);
            }
            let more = told["open"].as_u64().unwrap_or_default().saturating_sub(alarms.len() as u64);
            let rest = if more > 0 { format!("and {more} more; see --limit\n") } else { String::new() };
            show(&format!("{}{rest}", alarm_table(alarms)))
        }
        JobAction::Events(events) => job_events_command::run(server, events, is_json).await,
        JobAction::Tap(tap) => job_tap_command::run(server, tap).await,
        JobAction::Stop { job, mode, immediate } => {
            let mode = if *immediate { StopMode::Immediate } else { *mode }.as_str();
            let path = path(server, job, "/stop").await?;
            server.answered(Method::POST, &path, json!({ "mode": mode }).to_string()).await?;
            show(&format!("job {job} stops\n"))
        }
        JobAction::Parallelism(change) => job_parallelism_command::run(server, change, is_json).await,
        JobAction::Resume { job } => {
            server.answered(Method::POST, &path(server, job, "/resume").await?, String::new()).await?;
            show(&format!("job {job} goes on\n"))
        }
        JobAction::Kill { job } => {
            server.answered(Method::DELETE, &path(server, job, "").await?, String::new()).await?;
            show(&format!("job {job} is killed\n"))
        }
        JobAction::Connectors => {
            let types = server.ask(Method::GET, "/api/jobs/connectors", String::new()).await?;
            let types = types.as_array().map(Vec::as_slice).unwrap_or_default();
            if is_json { show_lines(types) } else { show(&connectors(types)) }
        }
    }
}

fn table(jobs: &[Value]) -> String {
    let head = ["ID", "NAME", "STATE", "SUBMITTED", "IN", "OUT", "REASON"].map(str::to_owned);
    let row = |job: &Value| {
        let reason = job["reason"].as_str().map(crate::query_command::printable).unwrap_or_default();
        let [id, name, state, submitted] = ["id", "name", "state", "submitted"].map(|key| cell(&job[key]));
        [id, name, state, submitted, rate(&job["rate_in"]), rate(&job["rate_out"]), reason]
    };
    aligned(&std::iter::once(head).chain(jobs.iter().map(row)).collect::<Vec<_>>())
}

fn alarm_table(alarms: &[Value]) -> String {
    let head = ["JOB", "NODE", "KEY", "STATE", "SINCE", "SEVERITY"].map(str::to_owned);
    let row = |alarm: &Value| {
        ["name", "node", "key", "state", "since", "severity"]
            .map(|key| crate::query_command::printable(&cell(&alarm[key])))
    };
    aligned(&std::iter::once(head).chain(alarms.iter().map(row)).collect::<Vec<_>>())
}

fn described(job: &Value) -> String {
    let lines = [
        "id",
        "name",
        "state",
        "reason",
        "submitted",
        "submitted_by",
        "resumed_from",
        "ended",
        "restarts",
        "parallelism",
        "hash",
    ];
    let rows = lines.iter().filter(|key| !job[**key].is_null()).map(|key| [(*key).to_owned(), cell(&job[*key])]);
    let mut rows: Vec<_> = rows.collect();
    if let Some(epoch) = job["checkpoint"]["epoch"].as_u64() {
        rows.push(["checkpoint".to_owned(), format!("epoch {epoch} at {}", cell(&job["checkpoint"]["at"]))]);
    }
    if let Some(bytes) = job["state_bytes"].as_u64() {
        rows.push(["memory".to_owned(), format!("{} of state", size(bytes))]);
    }
    let mut text = aligned(&rows);
    let head = ["NODE", "TYPE", "IN", "OUT", "RATE IN", "RATE OUT", "ERRORS", "UNROUTED"].map(str::to_owned);
    let row = |node: &Value| {
        let [name, kind] = ["name", "type"].map(|key| cell(&node[key]));
        let [read, written, errors, unrouted] =
            ["records_in", "records_out", "errors", "unrouted"].map(|key| count(&node[key]));
        [name, kind, read, written, rate(&node["rate_in"]), rate(&node["rate_out"]), errors, unrouted]
    };
    if let Some(nodes) = job["nodes"].as_array() {
        text.push('\n');
        text.push_str(&aligned(&std::iter::once(head).chain(nodes.iter().map(row)).collect::<Vec<_>>()));
    }
    text
}

fn connectors(types: &[Value]) -> String {
    let mut text = String::new();
    for kind in types {
        text.push_str(&format!("{} {}: {}\n", cell(&kind["role"]), cell(&kind["name"]), cell(&kind["summary"])));
        let rows = kind["keys"].as_array().into_iter().flatten().map(|key| {
            let default = key["default"].as_str().map_or_else(String::new, |default| format!(" Default {default}."));
            let need = if key["required"] == true { "required" } else { "" };
            [format!("  {}", cell(&key["name"])), need.to_owned(), format!("{}{default}", cell(&key["doc"]))]
        });
        text.push_str(&aligned(&rows.collect::<Vec<_>>()));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::described;

    #[test]
    fn the_state_of_a_job_is_told_in_units_for_people() {
        let shown = described(&json!({"id": "j1", "state_bytes": 65_536}));
        assert_eq!(shown, "id      j1\nmemory  64 KiB of state\n");
    }
}
