//! The rim that all HTTP shares: routes with roles and limits, authentication, problem details, deadlines, listeners.
//!
//! A plane declares [`Routes`]; `server` puts those of all planes that share a door into one [`Api`] and gives it to a
//! [`Listener`]. A route cannot be declared without saying who may call it, what it may cost and what it does.
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
//! [`Deadline`], [`MoreTime`], [`TraceContext`], [`Shutdown`], [`Peer`], [`AnswerMemory`]) and axum's `State`, `Method`,
//! `HeaderMap`, `Uri` and such.
//! (axum's own `Path` and `MatchedPath` find nothing: routes are found here.) A [`Problem`] that a handler returns and
//! one that the rim makes look alike, in the style of their group.
//!
//! A request in a handler is dropped, at its next `.await`, when its client leaves or its deadline passes: work that
//! must not stop half way belongs to an owner elsewhere, to whom the handler hands it.
//!
//! Not here: what any route means (the planes), credentials of devices (`connect`), TLS.

mod answer;
mod api;
mod arriving;
mod authenticator;
mod connection;
mod context;
mod cors;
mod error;
mod extract;
mod listener;
mod memory;
mod metrics;
mod observer;
mod openapi;
mod plain;
mod problem;
mod rim;
mod route;
mod sparing;
mod sse;
mod tokens;
mod trace;
mod wildcard;
mod workers;

pub use api::{Api, ApiBuilder};
pub use authenticator::{
    Authenticator, Claim, Identity, LaterVerdict, LoopbackApplications, Reach, TENANT_HEADERS, Verdict,
};
pub use context::{Caller, Deadline, MoreTime, Peer, REQUEST_TIMEOUT_HEADER, Shutdown};
pub use cors::{Cors, Origins};
pub use error::Error;
pub use extract::{FromPath, Json, Params, Path, Payload, Query, check_json_type, json_fault, parse_json};
pub use listener::{Listener, ListenerLimits, Serving, listen};
pub use memory::{AnswerMemory, CONNECTION_BYTES};
pub use metrics::{Counter, Gauge, Histogram, Labels, Metrics};
pub use observer::{Begun, Ended, Mark, Observer};
pub use openapi::Content;
pub use plain::{PlainAnswer, PlainClaim, PlainRequest, PlainVerdict};
pub use problem::{ErrorStyle, PROBLEM_JSON, Problem, Reason};
pub use rim::deadline_passed;
pub use route::{Access, HandlerFuture, Limits, PATH_PARAMS_MAX, Route, RouteDraft, Routes};
pub use sse::{Event, EventSender, EventStream, KEEP_ALIVE, NotSent, event_stream};
pub use tokens::{ApiToken, ApiTokens, EVERY_TENANT, RoleName, TOKEN_MIN_CHARS};
pub use trace::{TRACEPARENT_BYTES, TraceContext, UUID_BYTES};
pub use wildcard::Wildcard;
pub use workers::{Full, Share, Workers};
