//! Liveness, readiness and metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Content, Limits, Metrics, Route, Routes, Shutdown};
use millstream_types::Role;

const LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: these routes take no body", timeout: Duration::from_secs(5) };
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns warnings, or `Err` with the reason while the process cannot serve.
pub(crate) type Readiness = Arc<dyn Fn() -> Result<Vec<String>, String> + Send + Sync>;

/// Builds the routes `/healthz`, `/readyz` and `/metrics`.
pub(crate) fn routes(metrics: &Metrics, readiness: Readiness) -> Routes {
    Routes::new("health")
        .route(
            Route::get("/healthz", Access::Public, LIMITS, "Check that the process is alive")
                .answers_with(200, "It does.", Content::text())
                .to(alive, ()),
        )
        .route(
            Route::get("/readyz", Access::Public, LIMITS, "Check that the process can serve requests")
                .answers_with(
                    200,
                    "It can. Lines that begin with `degraded:` name what an operator should look at.",
                    Content::text(),
                )
                .answers_with(503, "The process cannot serve requests; the text says why.", Content::text())
                .to(ready, readiness),
        )
        .route(
            // The metrics name topics and groups of all tenants.
            Route::get("/metrics", Access::Operator(Role::Reader), LIMITS, "Counters in Prometheus' text format")
                .answers_with(200, "All counters.", Content::text())
                .to(counters, metrics.clone()),
        )
}

async fn alive() -> &'static str {
    "alive\n"
}

async fn ready(State(readiness): State<Readiness>, shutdown: Shutdown) -> Response {
    if shutdown.has_begun() {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response();
    }
    match readiness() {
        Ok(warnings) => {
            let warnings: String = warnings.iter().map(|warning| format!("degraded: {warning}\n")).collect();
            format!("ready\n{warnings}").into_response()
        }
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn counters(State(metrics): State<Metrics>) -> Response {
    ([(CONTENT_TYPE, PROMETHEUS_TEXT)], metrics.text()).into_response()
}
