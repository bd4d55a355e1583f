//! `/stats/{category}` and `/top`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use millstream_http::{Access, Caller, Content, Limits, Path, Problem, Route, Routes};
use millstream_types::Role;
use serde_json::json;

use super::answer::named;
use super::{Scope, Statistics};

const LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: Duration::from_secs(30) };

/// The routes of the statistics. `/stats?categories=` is answered by [`answer`](super::answer::answer).
pub fn routes(statistics: &Arc<Statistics>) -> Routes {
    let (reader, object) = (Access::Role(Role::Reader), || Content::json(json!({"type": "object"})));
    Routes::new("stats")
        .route(
            Route::get("/stats/{category}", reader, LIMITS, "Show statistics of a category or provider")
                .param("category", "`all`, `cache`, `io`, `commands`, `io_histograms`, `backend`, `stats`, `procfs`, `top`, or the name of a provider.")
                .answers_with(200, "A tree of figures.", object())
                .answers(404, "There is no such category or provider; the body lists those there are.")
                .to(category, Arc::clone(statistics)),
        )
        .route(
            Route::get("/top", reader, LIMITS, "Show the hottest keys")
                .answers_with(200, "The keys with the most traffic.", object())
                .to(top, Arc::clone(statistics)),
        )
}

async fn category(
    State(statistics): State<Arc<Statistics>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    named(&statistics, &name, &Scope::of(&caller), &headers).await
}

async fn top(
    State(statistics): State<Arc<Statistics>>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    named(&statistics, "top", &Scope::of(&caller), &headers).await
}
