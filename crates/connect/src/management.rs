//! The management API, version 1, over HTTP: tenants, devices and credentials of the registry, and connected clients.
//!
//! Every change is answered when it is durable and visible to all adapters. `If-Match` makes it conditional on the
//! version that the client has seen.

mod auth_id;
mod condition;
mod connections;
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
use millstream_http::{Content, Json, Limits, Problem, Route, Routes, Workers};
use serde_json::json;

use crate::ConnectConfig;
use crate::connection_table::ConnectionTable;
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

/// The dependencies from which [`Management`] is built.
pub(crate) struct ManagementParts {
    pub(crate) registry: Registry,
    pub(crate) ext_rules: Arc<dyn ExtRules>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) connection_table: Arc<ConnectionTable>,
    pub(crate) config: ConnectConfig,
    pub(crate) hashing: PasswordHashing,
    pub(crate) hashers: Workers,
    /// The threads for searches over many resources.
    pub(crate) background: Workers,
}

impl Management {
    pub(crate) fn new(parts: ManagementParts) -> Self {
        Self(Arc::new(parts))
    }

    /// The routes of the registry and of connected clients, for the listener of applications.
    pub(crate) fn routes(&self) -> [Routes; 2] {
        let registry = [tenants::routes(self), devices::routes(self), credentials::routes(self)];
        [
            self.group("registry", registry.into_iter().flatten()),
            self.group("connections", connections::routes(self).into_iter()),
        ]
    }

    fn group(&self, name: &'static str, routes: impl Iterator<Item = Route>) -> Routes {
        let group = Routes::new(name);
        let group = match self.0.config.registry_cors().ok().flatten() {
            Some(cors) => group.cors(cors),
            None => group,
        };
        routes.fold(group, Routes::route)
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
