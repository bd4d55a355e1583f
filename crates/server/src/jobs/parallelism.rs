//! `PATCH /api/jobs/{id}/parallelism`: another number of instances for the nodes of a running job.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use millstream_flow::ParallelismChange;
use millstream_http::{Access, Caller, Content, Path, Payload, Problem, Query, Route};
use millstream_types::Role;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AllJobs, STOP_DEFAULT, STOP_MAX, SUBMIT_LIMITS, object, problem, time};

pub(super) fn route(jobs: AllJobs) -> Route {
    let writer = Access::Role(Role::Writer);
    let body = json!({
        "oneOf": [
            {"type": "integer", "minimum": 1, "maximum": 1024},
            {"type": "object", "additionalProperties": {"type": ["integer", "object", "null"]}},
            {"type": "null"},
        ],
    });
    Route::patch("/api/jobs/{id}/parallelism", writer, SUBMIT_LIMITS, "Change the parallelism of a running job")
        .audited()
        .param("id", "The job's id.")
        .query("timeout", "The time for the job to finish what it has read, such as 30s (the default), at most 2m; then it goes on as before.")
        .takes(Content::json(body))
        .answers_with(
            200,
            "The job has stopped at the end of an epoch and goes on with the new parallelism, which a restart keeps: its status.",
            object(),
        )
        .answers(400, "The body is no number, object by node, or null.")
        .answers(404, "No job has that id.")
        .answers(409, "The job has ended, or has not stopped in time (code `job_not_rescaled`); it keeps its parallelism.")
        .answers(
            422,
            "The job has no node of that name (`nodes` has all, `nearest` the nearest), or its document could not have that parallelism (`findings`).",
        )
        .to(change, jobs)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    timeout: Option<String>,
}

async fn change(
    State(jobs): State<AllJobs>,
    caller: Caller,
    Path(id): Path<String>,
    Query(Change { timeout }): Query<Change>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let time = time(timeout.as_deref(), STOP_DEFAULT)?.min(STOP_MAX);
    let change = match millstream_http::parse_json(&body)? {
        Value::Object(nodes) => ParallelismChange::Nodes(nodes.into_iter().collect()),
        value @ (Value::Number(_) | Value::Null) => ParallelismChange::All(value),
        other => {
            return Err(Problem::invalid("the body is no parallelism")
                .value(other)
                .rule("the body is a number for all nodes that have a parallelism, an object with a member for each node, or null")
                .remedy("send {\"NODE\": 3}"));
        }
    };
    let job = jobs.set_parallelism(&caller.tenant, &id, change, time).await.map_err(problem)?;
    Ok(axum::Json(job).into_response())
}
