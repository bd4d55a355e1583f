//! `/api/mapping-errors`: the devices whose measurements, or a part of them, became no entity, and why.
//!
//! The context plane keeps the last error of each device in memory, so the list begins anew with the process.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use millstream_context::MappingError;
use millstream_http::{Access, Caller, Content, Problem, Query, Route, Routes};
use millstream_types::{Role, TenantId};
use serde::Deserialize;
use serde_json::json;

use crate::schema::LOOK_LIMITS;

/// Most devices that one answer lists.
const LISTED_MAX: usize = 100;

/// Returns the errors of a tenant's devices, or of one of them.
pub(crate) type FindErrors = Arc<dyn Fn(&TenantId, Option<&str>) -> Vec<MappingError> + Send + Sync>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorsOf {
    device: Option<String>,
}

pub(crate) fn routes(find: FindErrors) -> Routes {
    let error = json!({"type": "object", "properties": {
        "device": {"type": "string"}, "at": {"type": "string"}, "what": {"type": "string"}, "count": {"type": "integer"}}});
    let found = json!({"type": "object", "required": ["total", "devices"], "properties": {
        "total": {"type": "integer"}, "devices": {"type": "array", "items": error}}});
    let route = Route::get(
        "/api/mapping-errors",
        Access::Role(Role::Reader),
        LOOK_LIMITS,
        "List the devices whose measurements become no entity",
    );
    Routes::new("mapping_errors").route(
        route
            .query("device", "Only this device.")
            .answers_with(
                200,
                "The last error of each device and how many it has had since the server started; the newest 100.",
                Content::json(found),
            )
            .to(list, find),
    )
}

async fn list(
    State(find): State<FindErrors>,
    caller: Caller,
    Query(asked): Query<ErrorsOf>,
) -> Result<Response, Problem> {
    let mut devices = find(&caller.tenant, asked.device.as_deref());
    let total = devices.len();
    devices.truncate(LISTED_MAX);
    Ok(axum::Json(json!({"total": total, "devices": devices})).into_response())
}
