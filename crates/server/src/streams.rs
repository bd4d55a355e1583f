//! `/api/streams`: topics and their records over HTTP. The crate `log` stores them.
//!
//! ```text
//!  POST …/records ──► parsed and checked whole ──► one atomic append ──► first and last offset by partition
//!  GET  …         ◄── page, SSE or WebSocket ◄── bounded steps ◄── reader (a plain thread reads up to stable)
//! ```
//!
//! Invariants
//! - The records of a request are stored all or none.
//! - A tail buffers at most one step of records, and reads no more until its client takes them.
//! - A returned position has the next offset of every partition that is read; a reader that continues
//!   there misses and repeats nothing.

mod append;
mod filter;
mod reader;
mod received;
mod render;
mod settings;
mod tail;
mod topics;
mod units;

pub(crate) use self::render::RecordJson;
pub(crate) use self::tail::OwnTopicRead;
pub(crate) use self::units::duration;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use axum::http::StatusCode;
use millstream_http::{Access, Content, Limits, Problem, Reason, Route, Routes, Share, Workers};
use millstream_log::{Error, LogFigures, RenewedWriter, Topic, TopicConfig};
use millstream_types::{
    ErrorCode, MemoryBudget, Principal, Quotas, Role, StateTopic, TenantId, TopicKind, TopicName, WallClock,
};
use serde_json::json;
use tokio::sync::{Semaphore, oneshot};

use crate::kept_log::KeptLog;

/// Threads that parse large appends and read for tails.
const THREADS: usize = 2;
/// Limit of steps and appends that wait for one of these threads.
const WAITING_MAX: usize = 2_048;
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

/// The state that all handlers share.
pub(crate) struct Streams {
    log: Arc<dyn LogFigures>,
    /// The log consists of segments of this process.
    has_segments: bool,
    writer: RenewedWriter,
    wall: Arc<dyn WallClock>,
    memory: MemoryBudget,
    quotas: Arc<Quotas>,
    workers: Workers,
    tails: Arc<Semaphore>,
    /// The partition at which the next request's keyless records start.
    turn: AtomicU32,
}

impl Streams {
    pub(crate) fn start(
        kept: &KeptLog,
        wall: Arc<dyn WallClock>,
        memory: &MemoryBudget,
        quotas: Arc<Quotas>,
    ) -> anyhow::Result<Arc<Self>> {
        let (log, has_segments) = (kept.figures(), kept.embedded().is_some());
        let writer = RenewedWriter::begin(log.clone(), "streams")?;
        let workers = Workers::start("streams", THREADS, WAITING_MAX, Share::Equal)?;
        let (memory, tails, turn) = (memory.clone(), Arc::new(Semaphore::new(TAILS_MAX)), AtomicU32::new(0));
        Ok(Arc::new(Self { log, has_segments, writer, wall, memory, quotas, workers, tails, turn }))
    }

    /// Stops the threads, which also ends open tails.
    pub(crate) fn stop(&self) {
        self.workers.stop();
    }

    /// Returns the topic in a path, if the caller may use it.
    fn topic(&self, rendered: &str, caller: &Principal) -> Result<Arc<Topic>, Problem> {
        let name = self.name(rendered, caller)?;
        self.log.topic(&name).ok_or_else(|| unknown(&name))
    }

    /// Returns the topic in a path for an append, which creates the topic of the tenant's entity updates.
    async fn topic_to_append(&self, rendered: &str, caller: &Principal) -> Result<Arc<Topic>, Problem> {
        let name = self.name(rendered, caller)?;
        match self.log.topic(&name) {
            Some(topic) => Ok(topic),
            None if name.kind() == TopicKind::ContextUpdate => {
                let log = self.log.clone();
                blocking(move || log.create_topic(&name, &TopicConfig::default())).await
            }
            None => Err(unknown(&name)),
        }
    }

    /// Parses the topic name in a path, if the caller may use the topic.
    fn name(&self, rendered: &str, caller: &Principal) -> Result<TopicName, Problem> {
        let tenant = &caller.tenant;
        let name = TopicName::parse(rendered, tenant)?;
        if is_audit(&name) && caller.administers_tenant() {
            return Ok(name);
        }
        if name.kind() == TopicKind::Internal {
            return Err(Problem::forbidden(format!("topic '{name}' is Millstream's own"))
                .value(&name)
                .rule("it holds state of all tenants; nobody reads or writes it from outside")
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
        if caller.scope.is_limited() && !caller.scope.has_topic(&name.to_string()) {
            let rule = match caller.scope.topics() {
                [] => "it is good for no topic".to_owned(),
                topics => format!("it is good for topics that begin with {}", topics.join(" or ")),
            };
            return Err(Problem::forbidden(format!("token '{}' is limited to other topics", caller.name))
                .value(&name)
                .rule(rule)
                .remedy("name such a topic, or use a token without this limit"));
        }
        Ok(name)
    }

    /// Runs `work` for a tenant on one of the blocking threads.
    async fn on_thread<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.submit(tenant, work)?.await.map_err(|_| problem(&Error::Stopped))
    }

    /// Queues `work` of a tenant for one of the blocking threads.
    fn submit<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Problem> {
        self.workers.submit(Some(tenant), work).map_err(|full| {
            Problem::from_error(ErrorCode::Overloaded, &full)
                .value(full.waiting)
                .rule(format!("at most {WAITING_MAX} wait, and a tenant takes no more places than it leaves free"))
                .remedy("send the request again a little later")
        })
    }
}

/// `true` for the audit trail, which administrators of a whole tenant read.
fn is_audit(name: &TopicName) -> bool {
    *name == TopicName::internal(StateTopic::Audit)
}

/// Converts an error of the log.
fn problem(error: &Error) -> Problem {
    Problem::from_error(error.code(), error)
}

fn unknown(name: &TopicName) -> Problem {
    let unknown = Problem::new(Reason::Code(ErrorCode::NotFound), format!("topic '{name}' does not exist")).value(name);
    match name.kind() {
        TopicKind::ContextUpdate => unknown
            .rule("it is created with its first record")
            .remedy(format!("append one: 'POST /api/streams/{name}/records'")),
        _ => unknown
            .rule("a topic is created before it is used")
            .remedy(format!("'PUT /api/streams/{name}' or 'millstream topic create {name}' creates it")),
    }
}

/// Refuses an invalid query parameter.
fn bad_parameter(name: &str, value: &str, rule: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    Problem::new(Reason::MalformedParameter, format!("parameter '{name}' cannot be taken")).value(value).rule(rule)
}

/// Runs a topic change, which waits for the disk, on a blocking thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Stopped)).map_err(|error| problem(&error))
}

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
    .keeps_to_scope()
    .param("stream", STREAM)
    .query("ack", "`memory`, `written` or `synced`; the default is the topic's level.")
    .query("format", "`records` (the default), or `values`: each element is the value of a record without key.")
    .takes(Content::ndjson(record.clone()))
    .takes(Content::json(json!({"type": "array", "items": record})))
    .answers_with(200, "Stored: first and last offset by partition.", Content::json(json!({"type": "object"})))
    .answers(400, "An element is not a valid record; `line` or `element` has its position. Nothing is stored.")
    .answers(404, "The topic does not exist.")
    .answers(429, "A limit of `quota.*` is reached; retry after `Retry-After`. Nothing is stored.")
    .to(append::append, Arc::clone(streams))
}

fn tail_route(streams: &Arc<Streams>) -> Route {
    let reader = Access::Role(Role::Reader);
    Route::get("/api/streams/{stream}", reader, LOOK_LIMITS, "Read records: a page, SSE, or a WebSocket")
        .keeps_to_scope()
        .param("stream", STREAM)
        .query("from", "`earliest`, `latest`, an ISO time, or a position such as `0:17,1:4`. A page begins at `earliest`, else `latest`.")
        .query("until", "`latest` (the current end) or a position at which the read ends; without it a tail continues.")
        .query("partition", "Partitions to read, such as `0`, `0,2` or `0-127`; all if left out.")
        .query("limit", "Ends after so many records. A page has 100, at most 1000.")
        .query("key", "Pattern for the keys of records: `*` stands for any characters, `?` for one.")
        .query("contains", "Text that the value has in it, as it is stored; upper and lower case differ.")
        .query("header.NAME", "Pattern for the header NAME of records. All conditions must match.")
        .header("Last-Event-ID", "The `id` of the last received event; the read continues after it.")
        .answers_with(200, "One page, and `next`, the position of the following page.", Content::json(json!({"type": "object"})))
        .answers_with(
            200,
            "With `Accept: text/event-stream`: events `record`, `gap` (records are gone), `position` (many records were skipped), `end`, `failed`.",
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
            .keeps_to_scope()
            .answers_with(
                200,
                "Each with its configuration and its partitions.",
                Content::json(json!({"type": "array"})),
            )
            .to(topics::list, Arc::clone(streams)),
        Route::get("/api/streams/{stream}/info", reader, LOOK_LIMITS, "Describe a topic")
            .keeps_to_scope()
            .param("stream", STREAM)
            .answers_with(200, "Its configuration, its partitions, and how far groups have read them.", described())
            .answers(404, "The topic does not exist.")
            .to(topics::describe, Arc::clone(streams)),
        Route::put("/api/streams/{stream}", admin, CHANGE_LIMITS, "Create a topic")
            .keeps_to_scope()
            .param("stream", STREAM)
            .takes(described())
            .answers_with(201, "Created.", described())
            .answers_with(200, "The topic exists with this configuration.", described())
            .answers(409, "The topic exists with another configuration.")
            .answers(409, "Or the tenant's topics have as many partitions as `log.partitions_per_tenant_max` allows.")
            .to(topics::create, Arc::clone(streams)),
        Route::patch("/api/streams/{stream}", admin, CHANGE_LIMITS, "Change a topic's configuration")
            .keeps_to_scope()
            .param("stream", STREAM)
            .takes(described())
            .answers_with(200, "Changed. `partitions` stands alone in its request.", described())
            .answers(400, "A setting is invalid or cannot be changed.")
            .answers(404, "The topic does not exist.")
            .answers(409, "The tenant's topics have as many partitions as `log.partitions_per_tenant_max` allows.")
            .to(topics::alter, Arc::clone(streams)),
        Route::delete("/api/streams/{stream}", admin, LOOK_LIMITS, "Delete a topic and its records")
            .keeps_to_scope()
            .param("stream", STREAM)
            .answers(StatusCode::NO_CONTENT.as_u16(), "Deleted.")
            .answers(404, "The topic does not exist.")
            .to(topics::delete, Arc::clone(streams)),
    ]
}
