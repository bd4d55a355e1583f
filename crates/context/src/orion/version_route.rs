//! `GET /version`: the program's version, under the key that Orion's clients read.

use std::sync::Arc;

use axum::extract::State;
use millstream_http::{Content, Limits, Route, Routes};
use millstream_types::iso_time;
use serde_json::{Map, Value, json};

use crate::requests::handler::{HandlerResult, READER, json_answer, scoped};
use crate::requests::service::{NgsiRequest, Service};

const UNKNOWN: &str = "unknown";

/// The build of the program; the binary supplies it.
#[derive(Debug, Clone, Copy)]
pub struct Build {
    /// The commit that it was built from, or `unknown`.
    pub git_hash: &'static str,
    /// Build time in seconds since 1970, or `unknown`.
    pub built_at_s: &'static str,
    /// The compiler and its version, or `unknown`.
    pub compiler: &'static str,
    /// Names of libraries and their versions.
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

struct VersionState {
    service: Arc<Service>,
    build: Build,
}

pub(crate) fn add(routes: Routes, service: &Arc<Service>, build: Build, limits: Limits) -> Routes {
    let version = scoped(Route::get("/version", READER, limits, "Which program answers, and for how long"))
        .answers_with(200, "The version.", Content::json(json!({"type": "object"})));
    routes.route(version.to(version_of, Arc::new(VersionState { service: service.clone(), build })))
}

async fn version_of(State(asked): State<Arc<VersionState>>, ask: NgsiRequest) -> HandlerResult {
    ask.parameters(&[], &[])?;
    let VersionState { service, build } = &*asked;
    let seconds = service.clock.now().saturating_sub(service.started).as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let version = env!("CARGO_PKG_VERSION");
    let about = json!({
        "orion": {
            "version": version,
            "uptime": format!("{days} d, {hours} h, {minutes} m, {} s", seconds % 60),
            "git_hash": build.git_hash,
            "compile_time": build.time(),
            // A reproducible build knows neither user nor host.
            "compiled_by": UNKNOWN,
            "compiled_in": UNKNOWN,
            "release_date": build.time(),
            "doc": env!("CARGO_PKG_REPOSITORY"),
            "machine": std::env::consts::ARCH,
            "libversions": build.libraries(),
        },
        "millstream": {"version": version, "uptime_s": seconds},
    });
    Ok(json_answer(about.to_string()))
}
