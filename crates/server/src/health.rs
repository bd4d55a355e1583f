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

/// The answer of a process that can serve.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// A line that says what it works with.
    pub(crate) facts: Option<String>,
    /// A line for each thing that an operator should look at.
    pub(crate) warnings: Vec<String>,
}

/// Tells what `/readyz` answers: `Err` has the reason while the process cannot serve.
pub(crate) type Readiness = Arc<dyn Fn() -> Result<Ready, String> + Send + Sync>;

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
                    "It can. Lines that begin with `degraded:` name what an operator should look at; one that begins with `log:` says which engine keeps the log, unless it is the built-in one.",
                    Content::text(),
                )
                .answers_with(
                    503,
                    "The process cannot serve requests; the text says why. One that stands by says for which process it waits.",
                    Content::text(),
                )
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
        Ok(Ready { facts, warnings }) => {
            let facts: String = facts.iter().map(|fact| format!("{fact}\n")).collect();
            let warnings: String = warnings.iter().map(|warning| format!("degraded: {warning}\n")).collect();
            format!("ready\n{facts}{warnings}").into_response()
        }
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn counters(State(metrics): State<Metrics>) -> Response {
    ([(CONTENT_TYPE, PROMETHEUS_TEXT)], metrics.text()).into_response()
}
