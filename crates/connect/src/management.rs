//! The registry's management API, version 1: tenants, devices and credentials over HTTP.
//!
//! Every change is answered when it is durable and visible to all adapters. `If-Match` makes it conditional on the
//! version that the client has seen.

mod auth_id;
mod condition;
mod credentials;
mod devices;
mod etag;
mod material;
mod refusal;
mod request;
mod search;
mod tenants;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ETAG, LOCATION};
use axum::response::{IntoResponse, Response};
use millstream_http::{Content, Json, Limits, Problem, Routes, Workers};
use serde_json::json;

use crate::ConnectConfig;
use crate::connections::Connections;
use crate::password::PasswordHashing;
use crate::registry::{ExtRules, Registry, Version};
use crate::streams::Streams;
use etag::entity_tag;

/// Largest body of a request to the registry, bytes.
pub(crate) const BODY_MAX_BYTES: u64 = 16_000;

const LIMITS: Limits = Limits {
    body_max_bytes: BODY_MAX_BYTES,
    body_max_setting: "what a request to the registry takes, which is no setting,",
    timeout: Duration::from_secs(30),
};
const NO_BODY: Limits = Limits { body_max_bytes: 0, ..LIMITS };

/// The shared state of the handlers.
#[derive(Clone)]
pub(crate) struct Management(Arc<ManagementParts>);

/// The state of a handler.
type Shared = State<Management>;

/// The result of a handler.
type Answered = Result<Response, Problem>;

struct ManagementParts {
    registry: Registry,
    ext_rules: Arc<dyn ExtRules>,
    streams: Arc<Streams>,
    connections: Arc<Connections>,
    config: ConnectConfig,
    hashing: PasswordHashing,
    hashers: Workers,
    /// The threads for searches over many resources.
    background: Workers,
}

impl Management {
    pub(crate) fn new(
        registry: Registry,
        ext_rules: Arc<dyn ExtRules>,
        streams: Arc<Streams>,
        config: &ConnectConfig,
        hashing: PasswordHashing,
        [hashers, background]: [Workers; 2],
        connections: Arc<Connections>,
    ) -> Self {
        let config = config.clone();
        Self(Arc::new(ManagementParts {
            registry,
            ext_rules,
            streams,
            connections,
            config,
            hashing,
            hashers,
            background,
        }))
    }

    /// The routes, for the listener of applications.
    pub(crate) fn routes(&self) -> Routes {
        let routes = Routes::new("registry");
        let routes = match self.0.config.registry_cors().ok().flatten() {
            Some(cors) => routes.cors(cors),
            None => routes,
        };
        let all = [tenants::routes(self), devices::routes(self), credentials::routes(self)];
        all.into_iter().flatten().fold(routes, Routes::route)
    }

    /// Ends the threads that hash passwords and search.
    pub(crate) fn stop(&self) {
        self.0.hashers.stop();
        self.0.background.stop();
    }
}

fn created(location: &str, id: &str, version: Version) -> Response {
    let headers = [(LOCATION, location.to_owned()), (ETAG, entity_tag(version))];
    (StatusCode::CREATED, headers, Json(json!({"id": id}))).into_response()
}

fn replaced(version: Version) -> Response {
    (StatusCode::NO_CONTENT, [(ETAG, entity_tag(version))]).into_response()
}

fn shown(version: Version, value: serde_json::Value) -> Response {
    ([(ETAG, entity_tag(version))], Json(value)).into_response()
}

fn id_schema() -> Content {
    Content::json(json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}))
}

fn list_schema() -> Content {
    let result = json!({"type": "array", "items": {"type": "object"}});
    Content::json(json!({"type": "object", "properties": {"total": {"type": "integer"}, "result": result}}))
}

fn object_schema() -> Content {
    Content::json(json!({"type": "object"}))
}
