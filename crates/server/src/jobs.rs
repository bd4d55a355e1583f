//! `/api/jobs`: stream jobs over HTTP. The crate `flow` checks, stores and runs them.

mod events;
mod metrics;
mod parallelism;
mod tap;

pub(crate) use self::metrics::show as show_metrics;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millstream_flow::{Error, Finding, JOB_STATES, Jobs, StopMode, catalogue};
use millstream_http::{Access, AuditedObject, Caller, Content, Limits, Path, Payload, Problem, Query, Route, Routes};
use millstream_types::{ErrorCode, MemoryBudget, Role};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::streams::{Streams, duration};

const BODY_MAX_SETTING: &str = "none: a job's document has at most 1 MiB";
const CHECK_LIMITS: Limits =
    Limits { body_max_bytes: 1 << 20, body_max_setting: BODY_MAX_SETTING, timeout: Duration::from_secs(30) };
/// Longest time for a running job to stop before it starts again, or another takes its place; the routes' texts mention it.
const STOP_MAX: Duration = Duration::from_secs(120);
const STOP_DEFAULT: Duration = Duration::from_secs(30);
const SUBMIT_LIMITS: Limits = Limits { timeout: Duration::from_secs(130), ..CHECK_LIMITS };
const LOOK_LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: Duration::from_secs(10) };
/// Longest wait for the end of a job; the route's text mentions it.
const WAIT_MAX: Duration = Duration::from_secs(3600);
const WAIT_LIMITS: Limits = Limits { timeout: Duration::from_secs(3610), ..LOOK_LIMITS };
const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// Time that a kill waits until it is stored.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// Pause before a submission or tap that a limit refused is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Largest batch of a test; the route's text mentions it.
const BATCH_MAX: u32 = 1_000_000;

/// Alarms of one answer, if the caller names no number, and at most.
const ALARMS_DEFAULT: usize = 1_000;
const ALARMS_MAX: usize = 10_000;

/// Keys of one answer, if the caller names no number, and at most.
const KEYS_DEFAULT: usize = 1_000;
const KEYS_MAX: usize = 10_000;

type AllJobs = Arc<Jobs>;

pub(crate) fn routes(jobs: &AllJobs, streams: &Arc<Streams>, memory: &MemoryBudget) -> Routes {
    let taps = tap::Taps { jobs: Arc::clone(jobs), memory: memory.clone() };
    let all = submit_routes(jobs).into_iter().chain(look_routes(jobs)).chain(end_routes(jobs));
    let others = [parallelism::route(Arc::clone(jobs)), events::route(streams), tap::route(Arc::new(taps))];
    all.chain(others).fold(Routes::new("jobs"), Routes::route)
}

fn object() -> Content {
    Content::json(json!({"type": "object"}))
}

fn submit_routes(jobs: &AllJobs) -> [Route; 3] {
    let writer = Access::Role(Role::Writer);
    [
        Route::post("/api/jobs", writer, SUBMIT_LIMITS, "Submit a job: a YAML or JSON document")
            .audited()
            .query("replace", "`true`: take the place of the running job of the name, if there is one, and go on from its last epoch.")
            .query("timeout", "The time for that job to stop, such as 30s (the default), at most 2m; then it goes on.")
            .takes(object())
            .takes(Content::text())
            .answers_with(201, "The job is stored and starts: its id, name and hash.", object())
            .answers_with(200, "The same document was submitted under this id before; nothing is done.", object())
            .answers(
                409,
                "The id is known with another document (code `incorrect_job_hash`), a job of that name runs (`job_name_taken`), or one that reads a topic under the group of a source (`job_group_taken`), or has not stopped in time (`job_not_replaced`).",
            )
            .answers(
                422,
                "The document breaks rules; `findings` has all faults with path, line, value, rule and remedy.",
            )
            .answers(503, "As many jobs run as `flow.jobs_max` or `flow.jobs_per_tenant_max` allows.")
            .to(submit, Arc::clone(jobs)),
        Route::post("/api/jobs/validate", Access::Role(Role::Reader), CHECK_LIMITS, "Check a job's document")
            .takes(object())
            .takes(Content::text())
            .answers_with(200, "The document keeps all rules: its name and hash.", object())
            .answers(422, "The document breaks rules; `findings` has all faults.")
            .to(validate, Arc::clone(jobs)),
        Route::post("/api/jobs/test", writer, CHECK_LIMITS, "Run the tests of a job's document")
            .query("batch", "Records of a batch, 1 to 1,000,000, in place of those of the document.")
            .takes(object())
            .takes(Content::text())
            .answers_with(200, "Each test with its line, and the differences from what it expects.", object())
            .answers(422, "The document breaks rules; `findings` has all faults.")
            .to(test, Arc::clone(jobs)),
    ]
}

fn look_routes(jobs: &AllJobs) -> [Route; 12] {
    let reader = Access::Role(Role::Reader);
    let (id, unknown) = ("The job's id.", "No job has that id.");
    let list = || Content::json(json!({"type": "array"}));
    [
        Route::get("/api/jobs", reader, LOOK_LIMITS, "List the tenant's jobs, newest first")
            .query("state", "Only jobs in this state: starting, running, paused, stopped, completed, killed, failed.")
            .query("name", "Only jobs of this name.")
            .query("label", "Only jobs with this label, as NAME=VALUE.")
            .answers_with(200, "The jobs with state, times, rates, and the reason why one waits or failed.", list())
            .to(list_jobs, Arc::clone(jobs)),
        Route::get("/api/jobs/connectors", reader, LOOK_LIMITS, "List the types of sources, transforms and sinks")
            .answers_with(200, "Each with its role and the keys of its `config`.", list())
            .to(connectors, ()),
        Route::get("/api/jobs/alarms", reader, LOOK_LIMITS, "List the open alarms of running jobs")
            .query("job", "Only alarms of the job with this id, or of jobs of this name.")
            .query("limit", "The most alarms in the answer, 1 to 10,000; 1,000 if it is not given.")
            .answers_with(200, "The number of open alarms, and each with its job, node, key, state and time.", object())
            .to(alarms, Arc::clone(jobs)),
        Route::get("/api/jobs/schema", reader, LOOK_LIMITS, "Describe the documents of jobs to editors and forms")
            .answers_with(200, "The JSON Schema (draft 2020-12) of a document.", object())
            .to(schema, Arc::clone(jobs)),
        Route::get("/api/jobs/by-name/{name}", reader, LOOK_LIMITS, "List the runs of a name, newest first")
            .param("name", "The name in the document.")
            .answers_with(200, "The jobs of that name.", list())
            .answers(404, "No job ever had that name.")
            .to(by_name, Arc::clone(jobs)),
        Route::get("/api/jobs/{id}", reader, LOOK_LIMITS, "Describe a job")
            .param("id", id)
            .answers_with(200, "Document, hash, state, times, and the figures of each node.", object())
            .answers(404, unknown)
            .to(look, Arc::clone(jobs)),
        Route::get("/api/jobs/{id}/status", reader, LOOK_LIMITS, "Describe a job without its document")
            .param("id", id)
            .answers_with(200, "State, times, and the figures of each node.", object())
            .answers(404, unknown)
            .to(status, Arc::clone(jobs)),
        Route::get("/api/jobs/{id}/graph", reader, LOOK_LIMITS, "Describe the nodes and edges of a job")
            .param("id", id)
            .answers_with(
                200,
                "Nodes and edges, with figures as far as the server has run the job since its start.",
                object(),
            )
            .answers(404, unknown)
            .to(graph, Arc::clone(jobs)),
        Route::get("/api/jobs/{id}/errors", reader, LOOK_LIMITS, "List the latest errors of a job, oldest first")
            .param("id", id)
            .answers_with(200, "Errors with node, instance, stage, record and text.", list())
            .answers(404, unknown)
            .to(errors, Arc::clone(jobs)),
        Route::get("/api/jobs/{id}/checkpoints", reader, LOOK_LIMITS, "List the last epochs of a job, newest first")
            .param("id", id)
            .answers_with(
                200,
                "The nodes that keep state; up to 100 epochs of the present run with number, time, duration and bytes, else number and time of the last.",
                object(),
            )
            .answers(404, unknown)
            .to(checkpoints, Arc::clone(jobs)),
        Route::get("/api/jobs/{id}/state", reader, LOOK_LIMITS, "List the keys of a node that have state")
            .param("id", id)
            .query("node", "The node.")
            .query("key", "Only this key, as text or JSON.")
            .query("limit", "The most keys in the answer, 1 to 10,000; 1,000 if it is not given.")
            .answers_with(
                200,
                "The first keys in the order of their bytes, with their values and the sizes of these, as of the last epoch; `more` if there are others.",
                object(),
            )
            .answers(404, "No job has that id, or the node keeps no state.")
            .to(state, Arc::clone(jobs)),
        Route::get("/api/jobs/{id}/wait", reader, WAIT_LIMITS, "Wait until a job has ended")
            .param("id", id)
            .query("timeout", "Longest wait, such as 30s (the default), at most 1h.")
            .answers_with(200, "The job: completed, stopped, killed, failed, or still running.", object())
            .answers(404, unknown)
            .to(wait, Arc::clone(jobs)),
    ]
}

fn end_routes(jobs: &AllJobs) -> [Route; 3] {
    let writer = Access::Role(Role::Writer);
    let (id, unknown) = ("The job's id.", "No job has that id.");
    [
        Route::post("/api/jobs/{id}/stop", writer, CHECK_LIMITS, "Stop a job")
            .audited()
            .param("id", id)
            .takes(Content::json(
                json!({"type": "object", "properties": {"mode": {"enum": ["checkpoint", "graceful", "immediate"]}}}),
            ))
            .answers(
                202,
                "The job stops: at once (`immediate`), once what was read is finished (`graceful`, the default), or once an epoch with it is committed (`checkpoint`). The request is stored and outlives the server.",
            )
            .answers(404, unknown)
            .answers(409, "The job has no epochs that `checkpoint` could commit (code `job_without_epochs`); it goes on.")
            .to(stop, Arc::clone(jobs)),
        Route::post("/api/jobs/{id}/resume", writer, LOOK_LIMITS, "Start a paused job again")
            .audited()
            .param("id", id)
            .answers(204, "The job starts, or runs already.")
            .answers(404, unknown)
            .answers(409, "The job has ended (code `job_not_paused`).")
            .to(resume, Arc::clone(jobs)),
        Route::delete("/api/jobs/{id}", writer, LOOK_LIMITS, "Kill a job for good")
            .audited()
            .param("id", id)
            .answers(204, "The job is killed; the same document under this id is never run again.")
            .answers(404, unknown)
            .to(kill, Arc::clone(jobs)),
    ]
}

/// Converts an error of jobs.
fn problem(error: Error) -> Problem {
    let problem = Problem::from_error(error.code(), &error);
    match error {
        Error::Invalid { findings } => refusal(problem, &findings),
        Error::Plan { .. } => problem.with_status(StatusCode::UNPROCESSABLE_ENTITY),
        Error::HashDiffers { stored, given, .. } => {
            problem.member("code", "incorrect_job_hash").member("stored_hash", stored).member("given_hash", given)
        }
        Error::NameTaken { id, .. } => problem.member("code", "job_name_taken").member("job", id),
        Error::GroupTaken { id, .. } => problem.member("code", "job_group_taken").member("job", id),
        Error::NotReplaced { id, .. } => problem.member("code", "job_not_replaced").member("job", id),
        Error::NotPaused { .. } => problem.member("code", "job_not_paused"),
        Error::NoEpochs { .. } => problem.member("code", "job_without_epochs"),
        Error::NotRescaled { .. } => problem.member("code", "job_not_rescaled"),
        Error::NoParallelism { .. } => problem.with_status(StatusCode::UNPROCESSABLE_ENTITY),
        Error::NoNode { nodes, nearest, .. } => {
            let problem = problem.with_status(StatusCode::UNPROCESSABLE_ENTITY).member("nodes", nodes);
            match nearest {
                Some(nearest) => problem.member("nearest", nearest),
                None => problem,
            }
        }
        Error::JobsFull { .. } | Error::TenantJobsFull { .. } | Error::TapsFull { .. } => {
            problem.retry_after(RETRY_AFTER)
        }
        Error::UnknownEdge { edges, .. } => {
            problem.with_status(StatusCode::UNPROCESSABLE_ENTITY).member("edges", edges)
        }
        _ => problem,
    }
}

fn refusal(problem: Problem, findings: &[Finding]) -> Problem {
    problem.with_status(StatusCode::UNPROCESSABLE_ENTITY).member("findings", json!(findings))
}

/// The text of a document.
fn text(body: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(body).map_err(|fault| {
        Problem::from_error(ErrorCode::Invalid, &fault)
            .rule("a job's document is UTF-8 text: YAML or JSON")
            .remedy("store the file as UTF-8")
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Submit {
    #[serde(default)]
    replace: bool,
    timeout: Option<String>,
}

async fn submit(
    State(jobs): State<AllJobs>,
    caller: Caller,
    Query(Submit { replace, timeout }): Query<Submit>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let time = time(timeout.as_deref(), STOP_DEFAULT)?.min(STOP_MAX);
    let (principal, text) = (Arc::clone(caller.principal()), text(&body)?.to_owned());
    // A caller who goes away leaves no job behind that is stored and not started.
    let submitted = tokio::spawn(async move {
        match replace {
            true => jobs.replace(&principal, &text, time).await,
            false => jobs.submit(&principal, &text).await,
        }
    });
    let submission = submitted.await.map_err(|_| problem(Error::Stopped))?.map_err(problem)?;
    let status = if submission.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut told = json!({
        "id": submission.id,
        "name": submission.name,
        "hash": submission.hash,
        "state": submission.state.as_str(),
    });
    if let Some(replaced) = submission.replaced {
        told["replaced"] = replaced.into();
    }
    let made = Extension(AuditedObject(format!("/api/jobs/{}", submission.id)));
    Ok((status, made, axum::Json(told)).into_response())
}

async fn validate(State(jobs): State<AllJobs>, caller: Caller, Payload(body): Payload) -> Result<Response, Problem> {
    let checked = jobs.validate(&caller.tenant, text(&body)?);
    let document = checked.map_err(|findings| problem(Error::Invalid { findings }))?;
    Ok(axum::Json(json!({"name": document.name, "hash": document.hash})).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    batch: Option<u32>,
}

async fn test(
    State(jobs): State<AllJobs>,
    _: Caller,
    Query(Test { batch }): Query<Test>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    if let Some(batch) = batch.filter(|batch| !(1..=BATCH_MAX).contains(batch)) {
        let rule = format!("a batch has 1 to {BATCH_MAX} records");
        return Err(Problem::invalid(format!("batch={batch} is out of range")).value(batch).rule(rule));
    }
    let text = text(&body)?.to_owned();
    let tested = tokio::task::spawn_blocking(move || jobs.test(&text, batch)).await;
    let tested = tested.map_err(|_| problem(Error::Stopped))?;
    let report = tested.map_err(|findings| problem(Error::Invalid { findings }))?;
    let told = json!({"job": report.job, "passed": report.passed(), "tests": report.tests});
    Ok(axum::Json(told).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobFilter {
    state: Option<String>,
    name: Option<String>,
    label: Option<String>,
}

async fn list_jobs(
    State(jobs): State<AllJobs>,
    caller: Caller,
    Query(filter): Query<JobFilter>,
) -> Result<Response, Problem> {
    if let Some(state) = filter.state.as_deref().filter(|state| !JOB_STATES.contains(state)) {
        let rule = format!("a state is one of: {}", JOB_STATES.join(", "));
        return Err(Problem::invalid(format!("state={state} is no state of a job")).value(state).rule(rule));
    }
    let label = filter.label.as_deref().map(|label| {
        let rule = "a label is NAME=VALUE";
        label
            .split_once('=')
            .ok_or_else(|| Problem::invalid(format!("label '{label}' has no =")).value(label).rule(rule))
    });
    let label = label.transpose()?;
    let is_wanted = |job: &Value| {
        filter.state.as_deref().is_none_or(|state| job["state"] == state)
            && filter.name.as_deref().is_none_or(|name| job["name"] == name)
            && label.is_none_or(|(name, value)| job["labels"][name] == value)
    };
    let found: Vec<Value> = jobs.list(&caller.tenant).into_iter().filter(is_wanted).collect();
    Ok(axum::Json(found).into_response())
}

async fn connectors(State(()): State<()>, _: Caller) -> Result<Response, Problem> {
    let described: Vec<Value> = catalogue().iter().map(millstream_flow::describe_type).collect();
    Ok(axum::Json(described).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlarmFilter {
    job: Option<String>,
    limit: Option<usize>,
}

async fn alarms(
    State(jobs): State<AllJobs>,
    caller: Caller,
    Query(AlarmFilter { job, limit }): Query<AlarmFilter>,
) -> Result<Response, Problem> {
    let limit = limit.unwrap_or(ALARMS_DEFAULT);
    if !(1..=ALARMS_MAX).contains(&limit) {
        let rule = format!("an answer has 1 to {ALARMS_MAX} alarms");
        return Err(Problem::invalid(format!("limit={limit} is out of range")).value(limit).rule(rule));
    }
    Ok(axum::Json(jobs.alarms(&caller.tenant, job.as_deref(), limit)).into_response())
}

async fn schema(State(jobs): State<AllJobs>, _: Caller) -> Result<Response, Problem> {
    Ok(axum::Json(jobs.schema()).into_response())
}

async fn by_name(State(jobs): State<AllJobs>, caller: Caller, Path(name): Path<String>) -> Result<Response, Problem> {
    Ok(axum::Json(jobs.by_name(&caller.tenant, &name).map_err(problem)?).into_response())
}

async fn look(State(jobs): State<AllJobs>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(axum::Json(jobs.get(&caller.tenant, &id).map_err(problem)?).into_response())
}

async fn status(State(jobs): State<AllJobs>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(axum::Json(jobs.status(&caller.tenant, &id).map_err(problem)?).into_response())
}

async fn graph(State(jobs): State<AllJobs>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(axum::Json(jobs.graph(&caller.tenant, &id).map_err(problem)?).into_response())
}

async fn errors(State(jobs): State<AllJobs>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(axum::Json(jobs.errors(&caller.tenant, &id).map_err(problem)?).into_response())
}

async fn checkpoints(State(jobs): State<AllJobs>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    let tenant = caller.tenant.clone();
    let read = tokio::task::spawn_blocking(move || jobs.checkpoints(&tenant, &id)).await;
    Ok(axum::Json(read.map_err(|_| problem(Error::Stopped))?.map_err(problem)?).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFilter {
    node: String,
    key: Option<String>,
    limit: Option<usize>,
}

async fn state(
    State(jobs): State<AllJobs>,
    caller: Caller,
    Path(id): Path<String>,
    Query(StateFilter { node, key, limit }): Query<StateFilter>,
) -> Result<Response, Problem> {
    let limit = limit.unwrap_or(KEYS_DEFAULT);
    if !(1..=KEYS_MAX).contains(&limit) {
        let rule = format!("an answer has 1 to {KEYS_MAX} keys");
        return Err(Problem::invalid(format!("limit={limit} is out of range")).value(limit).rule(rule));
    }
    let tenant = caller.tenant.clone();
    let read = tokio::task::spawn_blocking(move || jobs.state(&tenant, &id, &node, key.as_deref(), limit)).await;
    Ok(axum::Json(read.map_err(|_| problem(Error::Stopped))?.map_err(problem)?).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    timeout: Option<String>,
}

async fn wait(
    State(jobs): State<AllJobs>,
    caller: Caller,
    Path(id): Path<String>,
    Query(Wait { timeout }): Query<Wait>,
) -> Result<Response, Problem> {
    let timeout = time(timeout.as_deref(), WAIT_DEFAULT)?;
    let job = jobs.wait(&caller.tenant, &id, timeout.min(WAIT_MAX)).await.map_err(problem)?;
    Ok(axum::Json(job).into_response())
}

/// The time that a query names.
fn time(given: Option<&str>, default: Duration) -> Result<Duration, Problem> {
    let Some(text) = given else { return Ok(default) };
    duration(&json!(text))
        .map_err(|rule| Problem::invalid(format!("timeout={text} is no duration")).value(text).rule(rule))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    #[serde(default)]
    mode: Mode,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Checkpoint,
    #[default]
    Graceful,
    Immediate,
}

async fn stop(
    State(jobs): State<AllJobs>,
    caller: Caller,
    Path(id): Path<String>,
    Payload(body): Payload,
) -> Result<StatusCode, Problem> {
    let Stop { mode } = if body.is_empty() { Stop::default() } else { millstream_http::parse_json(&body)? };
    let mode = match mode {
        Mode::Checkpoint => StopMode::Checkpoint,
        Mode::Graceful => StopMode::Graceful,
        Mode::Immediate => StopMode::Immediate,
    };
    jobs.stop(&caller.tenant, &id, mode).await.map_err(problem)?;
    Ok(StatusCode::ACCEPTED)
}

async fn resume(State(jobs): State<AllJobs>, caller: Caller, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    jobs.resume(&caller.tenant, &id).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn kill(State(jobs): State<AllJobs>, caller: Caller, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    jobs.kill(&caller.tenant, &id).await.map_err(problem)?;
    jobs.wait(&caller.tenant, &id, KILL_WAIT).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT)
}
