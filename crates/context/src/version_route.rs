//! `GET /version`: which program answers, under the key that clients of Orion look for.

use std::sync::Arc;

use axum::extract::State;
use millstream_http::{Content, Limits, Route, Routes};
use millstream_types::iso_time;
use serde_json::{Map, Value, json};

use crate::desk::{Ask, Desk};
use crate::routes::{Answered, READER, json_answer, scoped};

/// What is told where nobody knows.
const UNKNOWN: &str = "unknown";

/// What is known of the program's build; whoever links it knows.
#[derive(Debug, Clone, Copy)]
pub struct Build {
    /// The commit that it was built from, or `unknown`.
    pub git_hash: &'static str,
    /// When, as seconds since 1970, or `unknown`.
    pub built_at_s: &'static str,
    /// The compiler and its version, or `unknown`.
    pub compiler: &'static str,
    /// Libraries and their versions.
    pub libraries: &'static [(&'static str, &'static str)],
}

impl Default for Build {
    fn default() -> Self {
        Self { git_hash: UNKNOWN, built_at_s: UNKNOWN, compiler: UNKNOWN, libraries: &[] }
    }
}

impl Build {
    fn time(&self) -> String {
        let at_ms = self.built_at_s.parse::<i64>().ok().and_then(|at_s| at_s.checked_mul(1_000));
        at_ms.map_or_else(|| UNKNOWN.to_owned(), iso_time)
    }

    fn libraries(&self) -> Map<String, Value> {
        let all = self.libraries.iter().copied().chain(std::iter::once(("rustc", self.compiler)));
        all.map(|(name, version)| (name.to_owned(), version.into())).collect()
    }
}

/// What the route looks at.
struct Version {
    desk: Arc<Desk>,
    build: Build,
}

pub(crate) fn add(routes: Routes, desk: &Arc<Desk>, build: Build, limits: Limits) -> Routes {
    let version = scoped(Route::get("/version", READER, limits, "Which program answers, and for how long"))
        .answers_with(200, "The version.", Content::json(json!({"type": "object"})));
    routes.route(version.to(version_of, Arc::new(Version { desk: desk.clone(), build })))
}

async fn version_of(State(asked): State<Arc<Version>>, ask: Ask) -> Answered {
    ask.parameters(&[], &[])?;
    let Version { desk, build } = &*asked;
    let seconds = desk.clock.now().saturating_sub(desk.started).as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let version = env!("CARGO_PKG_VERSION");
    let about = json!({
        "orion": {
            "version": version,
            "uptime": format!("{days} d, {hours} h, {minutes} m, {} s", seconds % 60),
            "git_hash": build.git_hash,
            "compile_time": build.time(),
            "machine": std::env::consts::ARCH,
            "libversions": build.libraries(),
        },
        "millstream": {"version": version, "uptime_s": seconds},
    });
    Ok(json_answer(about.to_string()))
}
