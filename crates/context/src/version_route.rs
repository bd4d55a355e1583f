//! `GET /version`: which program answers, under the key that clients of Orion look for.

use std::sync::Arc;

use axum::extract::State;
use millstream_http::{Content, Limits, Route, Routes};
use serde_json::json;

use crate::desk::{Ask, Desk};
use crate::routes::{Answered, READER, Shared, json_answer, scoped};

pub(crate) fn add(routes: Routes, desk: &Arc<Desk>, without_body: Limits) -> Routes {
    let version = scoped(Route::get("/version", READER, without_body, "Which program answers, and for how long"))
        .answers_with(200, "The version.", Content::json(json!({"type": "object"})));
    routes.route(version.to(version_of, desk.clone()))
}

async fn version_of(State(desk): Shared, ask: Ask) -> Answered {
    ask.parameters(&[], &[])?;
    let seconds = desk.clock.now().saturating_sub(desk.started).as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let version = env!("CARGO_PKG_VERSION");
    let about = json!({
        "orion": {"version": version, "uptime": format!("{days} d, {hours} h, {minutes} m, {} s", seconds % 60)},
        "millstream": {"version": version, "uptime_s": seconds},
    });
    Ok(json_answer(about.to_string()))
}
