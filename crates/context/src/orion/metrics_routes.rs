//! `/admin/metrics`: counts of requests and notifications by tenant and service path.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millstream_http::{Access, Caller, Content, Limits, Reach, Route, Routes};
use millstream_types::{Role, TenantId};
use serde_json::json;

use crate::refusal::Refusal;
use crate::requests::handler::{HandlerResult, json_answer, scoped};
use crate::requests::service::NgsiRequest;
use crate::statistics::traffic::{Reading, ServiceTraffic};

const METRICS: &str = "/admin/metrics";

pub(crate) fn add(routes: Routes, traffic: &Arc<ServiceTraffic>, limits: Limits) -> Routes {
    let admin = Access::Role(Role::Admin);
    let get = scoped(Route::get(METRICS, admin, limits, "What was asked and sent, by tenant and service path"))
        .query("reset", "true: counts begin anew with this answer.")
        .answers_with(200, "Counts.", Content::json(json!({"type": "object", "additionalProperties": true})));
    let delete = scoped(Route::delete(METRICS, admin, limits, "Begin to count anew")).answers(204, "Done.");
    routes.route(get.to(show, traffic.clone())).route(delete.to(reset, traffic.clone()))
}

async fn show(State(traffic): State<Arc<ServiceTraffic>>, caller: Caller, ask: NgsiRequest) -> HandlerResult {
    let given = ask.parameters(&["reset"], &[])?;
    let reading = match given.value("reset") {
        None | Some("false") => Reading::Keeping,
        Some("true") => Reading::Resetting,
        Some(other) => {
            return Err(Refusal::bad(format!("reset = '{other}': it must be true or false; correct it")).into());
        }
    };
    Ok(json_answer(traffic.shown(only(&caller), reading).to_string()))
}

async fn reset(State(traffic): State<Arc<ServiceTraffic>>, caller: Caller, ask: NgsiRequest) -> HandlerResult {
    ask.parameters(&[], &[])?;
    traffic.shown(only(&caller), Reading::Resetting);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The only tenant that the caller may see; `None` for all.
fn only(caller: &Caller) -> Option<&TenantId> {
    (caller.reach() == Reach::OneTenant).then_some(&caller.tenant)
}
