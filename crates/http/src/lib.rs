//! The HTTP layer that all planes share: routes with roles and limits, authentication,
//! problem details, deadlines and listeners.
//!
//! A plane declares [`Routes`]; `server` combines the routes of all planes on one port into an [`Api`] and gives it to
//! a [`Listener`]. Every route declares its callers, limits, documentation and handler.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use millstream_http::{Access, Api, Caller, Content, Limits, Listener, ListenerLimits, LoopbackApplications};
//! use millstream_http::{Metrics, Path, Payload, Problem, Route, Routes};
//! use millstream_types::Role;
//!
//! async fn put(caller: Caller, Path(key): Path<String>, Payload(body): Payload) -> Result<String, Problem> {
//!     if body.is_empty() {
//!         return Err(Problem::invalid("a value has at least one byte").value(key).remedy("send a body"));
//!     }
//!     Ok(format!("{} bytes for {key} of {}", body.len(), caller.tenant))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), millstream_http::Error> {
//! let limits = Limits { body_max_bytes: 2048, body_max_setting: "things.body_max_bytes", timeout: Duration::from_secs(5) };
//! let put_route = Route::put("/things/{key}", Access::Role(Role::Writer), limits, "Keep a thing")
//!     .param("key", "Its name.")
//!     .takes(Content::bytes("application/octet-stream"))
//!     .answers(200, "Kept.")
//!     .to(put, ());
//! let metrics = Metrics::default();
//! let api = Api::builder("things", "Things", "1.0").with(Routes::new("things").route(put_route)).build(&metrics)?;
//! let address = "127.0.0.1:0".parse().unwrap();
//! let everybody = Arc::new(LoopbackApplications::default());
//! let listener = Listener::bind("things", address, everybody, ListenerLimits::default()).await?;
//! println!("listening on {}", listener.address());
//! let serving = listener.serve(Arc::new(api), &metrics);
//! serving.shut_down(Duration::from_secs(1)).await;
//! # Ok(()) }
//! ```
//!
//! Handlers are async functions of extractors: those here ([`Caller`], [`Path`], [`Query`], [`Json`], [`Payload`],
//! [`Deadline`], [`MoreTime`], [`TraceContext`], [`Shutdown`], [`Peer`], [`Tls`], [`AnswerMemory`]) and
//! axum's `State`, `Method`, `HeaderMap`, `Uri` and such.
//! axum's own `Path` and `MatchedPath` are empty, because this crate matches routes itself. A route that is called very
//! often has a function from [`Request`] to [`Answer`] instead, which also the fast head can call. Problems of handlers and of
//! the pipeline are rendered in the style of their group.
//!
//! A handler is dropped at its next `.await` when its client leaves or its deadline passes. Work that must not stop
//! half way belongs to another owner, to which the handler hands it.
//!
//! This crate does not contain: the meaning of routes (the planes), device credentials (`connect`), TLS.

mod access;
mod activity;
mod api;
mod audit;
mod authenticator;
mod body_stream;
mod browser_guard;
mod connection;
mod context;
mod cors;
mod date;
mod error;
mod exchange;
mod extract;
mod fast_head;
mod head;
mod hyper_head;
mod jwt;
mod limits;
mod listener;
mod memory;
mod observer;
mod openapi;
mod path_params;
mod pipeline;
mod pipeline_answers;
mod problem;
mod request;
mod request_body;
mod response_body;
mod route;
mod route_metrics;
mod sandbox;
mod socket;
mod sse;
mod tenant;
mod tokens;
mod trace;
mod wildcard;
mod workers;

pub use millstream_net::{Counter, Endpoints, Gauge, Histogram, Labels, Metrics, Serving};

pub use access::Access;
pub use api::{Api, ApiBuilder};
pub use audit::{AuditedObject, AuditedTenant};
pub use authenticator::{Authenticator, Claim, Identity, LaterVerdict, LoopbackApplications, Reach, Verdict};
pub use body_stream::BodyStream;
pub use browser_guard::check_origin;
pub use context::{Caller, Deadline, MoreTime, Peer, REQUEST_TIMEOUT_HEADER, Shutdown, Tls};
pub use cors::{Cors, Origins};
pub use error::Error;
pub use extract::{FromPath, Json, Params, Path, Payload, Query, check_json_type, json_fault, parse_json};
pub use head::Headers;
pub use jwt::{JsonWebToken, JwtError, KeyKind, SignatureAlgorithm};
pub use limits::{Limits, ListenerLimits};
pub use listener::Listener;
pub use memory::{AnswerMemory, CONNECTION_BYTES};
pub use observer::{Begun, Ended, Mark, Observer};
pub use openapi::Content;
pub use path_params::PATH_PARAMS_MAX;
pub use problem::{ErrorStyle, PROBLEM_JSON, Problem, Reason, deadline_passed};
pub use request::{Answer, LaterAnswer, Request, StreamHandler, Unread};
pub use route::{HandlerFuture, Route, RouteDraft, Routes};
pub use sandbox::sandbox;
pub use sse::{Event, EventSender, EventStream, KEEP_ALIVE, NotSent, event_stream, finished_event_stream};
pub use tenant::TENANT_HEADERS;
pub use tokens::{
    ApiToken, ApiTokens, EVERY_TENANT, IssuedToken, IssuedVerdict, RegisteredToken, RoleName, TOKEN_MIN_CHARS,
    TokenCheck, TokenIssuer,
};
pub use trace::{TRACEPARENT_BYTES, TraceContext, UUID_BYTES};
pub use wildcard::Wildcard;
pub use workers::{Full, Share, Workers};
