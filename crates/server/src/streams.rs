//! `/api/streams`: topics and their records over HTTP. A thin door: what is kept, and how, stands in crate `log`.
//!
//! ```text
//!  POST …/records ──► parsed and checked whole ──► one atomic append ──► first and last offset by partition
//!  GET  …         ◄── page, SSE or WebSocket ◄── bounded steps ◄── reader (a plain thread reads up to stable)
//! ```
//!
//! Always true
//! - A request's records are stored all or none.
//! - A tail owes its client at most one step of records; while the client does not take them nothing is read.
//! - A position handed out names, for every partition that is read, the next offset: going on there misses nothing and
//!   repeats nothing.

mod append;
mod filter;
mod place;
mod reader;
mod received;
mod render;
mod settings;
mod tail;
mod topics;
mod units;

pub(crate) use self::reader::PARTITIONS_MAX as TAIL_PARTITIONS_MAX;
pub(crate) use self::tail::check_origin;
pub(crate) use self::units::duration;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use axum::http::StatusCode;
use millstream_http::{Access, Content, Limits, Problem, Reason, Route, Routes, Share, Workers};
use millstream_log::{Embedded, Error, Log, Topic};
use millstream_types::{ErrorCode, Kind, MemoryBudget, Quotas, Role, TenantId, TopicName, WallClock};
use serde_json::json;
use tokio::sync::{Semaphore, oneshot};

/// Threads that parse large appends and read for tails.
const THREADS: usize = 2;
/// Steps and appends that may wait for one of them.
const WAITING_MAX: usize = 1024;
/// Tails that may be open at a time.
const TAILS_MAX: usize = 512;

const NO_SETTING: &str = "none: send the records in several requests";
const APPEND_LIMITS: Limits =
    Limits { body_max_bytes: 8 << 20, body_max_setting: NO_SETTING, timeout: Duration::from_secs(30) };
const LOOK_LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: Duration::from_secs(30) };
const CHANGE_LIMITS: Limits = Limits {
    body_max_bytes: 16 << 10,
    body_max_setting: "none: a topic's configuration has at most 16 KiB",
    timeout: Duration::from_secs(30),
};

/// What the handlers share.
pub(crate) struct Streams {
    log: Arc<Embedded>,
    wall: Arc<dyn WallClock>,
    memory: MemoryBudget,
    quotas: Arc<Quotas>,
    workers: Workers,
    tails: Arc<Semaphore>,
    /// Where the next request's records without a key begin.
    turn: AtomicU32,
}

impl Streams {
    pub(crate) fn start(
        log: Arc<Embedded>,
        wall: Arc<dyn WallClock>,
        memory: &MemoryBudget,
        quotas: Arc<Quotas>,
    ) -> std::io::Result<Arc<Self>> {
        let workers = Workers::start("streams", THREADS, WAITING_MAX, Share::Equal)?;
        let (memory, tails, turn) = (memory.clone(), Arc::new(Semaphore::new(TAILS_MAX)), AtomicU32::new(0));
        Ok(Arc::new(Self { log, wall, memory, quotas, workers, tails, turn }))
    }

    /// Ends the threads; tails that are still open end with them.
    pub(crate) fn stop(&self) {
        self.workers.stop();
    }

    /// The topic that a path names, if the caller's tenant has it.
    fn topic(&self, rendered: &str, tenant: &TenantId) -> Result<Arc<Topic>, Problem> {
        let name = self.name(rendered, tenant)?;
        self.log.topic(&name).ok_or_else(|| unknown(&name))
    }

    /// The name in a path, if callers of `tenant` may know of it.
    fn name(&self, rendered: &str, tenant: &TenantId) -> Result<TopicName, Problem> {
        let name = TopicName::parse(rendered, tenant)?;
        if name.kind() == Kind::Internal {
            return Err(Problem::forbidden(format!("topic '{name}' is Millstream's own"))
                .value(&name)
                .rule("topics that begin with '_' hold state of all tenants; nobody reads or writes them from outside")
                .remedy("see 'GET /api/streams' for the topics there are"));
        }
        if name.tenant() != tenant {
            return Err(Problem::forbidden(format!("topic '{name}' is of tenant '{}'", name.tenant()))
                .value(&name)
                .rule(format!("this request acts in tenant '{tenant}'"))
                .remedy(format!(
                    "send the header 'Fiware-Service: {}' with credentials of that tenant",
                    name.tenant()
                )));
        }
        Ok(name)
    }

    /// Runs `work` on one of the plain threads.
    async fn on_thread<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        self.submit(work)?.await.map_err(|_| problem(&Error::Stopped))
    }

    /// Queues `work` for one of the plain threads.
    fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Problem> {
        self.workers.submit(work).map_err(|full| {
            Problem::from_error(ErrorCode::Overloaded, &full)
                .value(full.waiting)
                .rule(format!("at most {WAITING_MAX} wait"))
                .remedy("send the request again a little later")
        })
    }
}

/// A refusal of the log.
fn problem(error: &Error) -> Problem {
    Problem::from_error(error.code(), error)
}

fn unknown(name: &TopicName) -> Problem {
    Problem::new(Reason::Code(ErrorCode::NotFound), format!("topic '{name}' does not exist"))
        .value(name)
        .rule("a topic is created before it is used")
        .remedy(format!("'PUT /api/streams/{name}' or 'millstream topic create {name}' creates it"))
}

/// A parameter of the query that is none.
fn bad_parameter(name: &str, value: &str, rule: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    Problem::new(Reason::MalformedParameter, format!("parameter '{name}' cannot be taken")).value(value).rule(rule)
}

/// All of the log's work that waits for a disk and changes topics.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Stopped)).map_err(|error| problem(&error))
}

/// The routes.
pub(crate) fn routes(streams: &Arc<Streams>) -> Routes {
    let routes = Routes::new("streams").route(append_route(streams)).route(tail_route(streams));
    topic_routes(streams).into_iter().fold(routes, Routes::route)
}

const STREAM: &str = "The topic's name, such as `telemetry.default` or one of your own.";

fn append_route(streams: &Arc<Streams>) -> Route {
    let record = json!({
        "type": "object",
        "properties": {
            "key": {"type": ["string", "null"]}, "key_base64": {"type": "string"},
            "value": {}, "value_text": {"type": "string"}, "value_base64": {"type": "string"},
            "headers": {"type": "object"}, "timestamp": {"type": ["string", "integer"]},
            "partition": {"type": "integer"},
        },
    });
    Route::post(
        "/api/streams/{stream}/records",
        Access::Role(Role::Writer),
        APPEND_LIMITS,
        "Append records, all or none",
    )
    .param("stream", STREAM)
    .query("ack", "`memory`, `written` or `synced`; else the topic's level.")
    .query("format", "`records` (the default), or `values`: each element is itself the value of a record without key.")
    .takes(Content::ndjson(record.clone()))
    .takes(Content::json(json!({"type": "array", "items": record})))
    .answers_with(200, "Stored: first and last offset by partition.", Content::json(json!({"type": "object"})))
    .answers(400, "One of them is no record: `line` or `element` says which. Nothing is stored.")
    .answers(404, "The topic does not exist.")
    .answers(429, "A limit of `quota.*` is used up; `Retry-After` says for how long. Nothing is stored.")
    .to(append::append, Arc::clone(streams))
}

fn tail_route(streams: &Arc<Streams>) -> Route {
    let reader = Access::Role(Role::Reader);
    Route::get("/api/streams/{stream}", reader, LOOK_LIMITS, "Read records: a page, SSE, or a WebSocket")
        .param("stream", STREAM)
        .query("from", "`earliest`, `latest`, an ISO time, or a position such as `0:17,1:4`. A page begins at `earliest`, else `latest`.")
        .query("until", "`latest` (what there is now) or a position: ends there. Else it goes on.")
        .query("partition", "Reads these only, such as `0`, `0,2` or `0-127`.")
        .query("limit", "Ends after so many records. A page has 100, at most 1000.")
        .query("key", "Only records whose key is like this: `*` stands for any characters, `?` for one.")
        .query("header.NAME", "Only records that have the header NAME with a value like this. All conditions must match.")
        .header("Last-Event-ID", "The `id` of the last event that was taken; goes on right behind it.")
        .answers_with(200, "One page, and `next`, where the following one begins.", Content::json(json!({"type": "object"})))
        .answers_with(
            200,
            "With `Accept: text/event-stream`: events `record`, `gap` (records are gone), `position` (nothing was wanted for long), `end`, `failed`.",
            Content::events(json!({"type": "object"})),
        )
        .answers(101, "A WebSocket: the same as JSON text, with `event` and `position` in each message.")
        .answers(400, "No such position, partition or limit.")
        .answers(404, "The topic does not exist.")
        .to(tail::tail, Arc::clone(streams))
}

fn topic_routes(streams: &Arc<Streams>) -> [Route; 5] {
    let (reader, admin) = (Access::Role(Role::Reader), Access::Role(Role::Admin));
    let described = || Content::json(json!({"type": "object"}));
    [
        Route::get("/api/streams", reader, LOOK_LIMITS, "List the tenant's topics")
            .answers_with(
                200,
                "Each with its configuration and its partitions.",
                Content::json(json!({"type": "array"})),
            )
            .to(topics::list, Arc::clone(streams)),
        Route::get("/api/streams/{stream}/info", reader, LOOK_LIMITS, "Describe a topic")
            .param("stream", STREAM)
            .answers_with(200, "Its configuration, its partitions, and how far groups have read them.", described())
            .answers(404, "The topic does not exist.")
            .to(topics::describe, Arc::clone(streams)),
        Route::put("/api/streams/{stream}", admin, CHANGE_LIMITS, "Create a topic")
            .param("stream", STREAM)
            .takes(described())
            .answers_with(201, "Created.", described())
            .answers_with(200, "It was there with this configuration.", described())
            .answers(409, "It is there with another configuration.")
            .to(topics::create, Arc::clone(streams)),
        Route::patch("/api/streams/{stream}", admin, CHANGE_LIMITS, "Change a topic's configuration")
            .param("stream", STREAM)
            .takes(described())
            .answers_with(200, "Changed.", described())
            .answers(400, "A setting that cannot be, or cannot be changed.")
            .answers(404, "The topic does not exist.")
            .to(topics::alter, Arc::clone(streams)),
        Route::delete("/api/streams/{stream}", admin, LOOK_LIMITS, "Delete a topic and its records")
            .param("stream", STREAM)
            .answers(StatusCode::NO_CONTENT.as_u16(), "Deleted.")
            .answers(404, "The topic does not exist.")
            .to(topics::delete, Arc::clone(streams)),
    ]
}
