//! `/admin/log`: reads and sets the log level at run time. Routes for Orion's trace levels and
//! semaphores are accepted without effect.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millstream_http::{Access, Content, Limits, Route, Routes};
use millstream_types::Role;
use parking_lot::Mutex;
use serde_json::json;
use tracing::level_filters::LevelFilter;

use crate::refusal::Refusal;
use crate::requests::handler::{HandlerResult, json_answer, scoped};
use crate::requests::parameters::RequestParameters;
use crate::requests::service::{NgsiRequest, Service};

const LOG: &str = "/admin/log";
const SEMAPHORES: &str = "/admin/sem";
const TRACE: &str = "/log/trace";
const TRACE_LEVELS: &str = "/log/trace/{levels}";
/// Orion's default limit of a logged payload, in bytes.
const PAYLOAD_DEFAULT_BYTES: u64 = 5 << 10;
const LINE_DEFAULT_BYTES: u64 = 32 << 10;
const LEVELS: [(&str, LevelFilter); 7] = [
    ("NONE", LevelFilter::OFF),
    ("FATAL", LevelFilter::ERROR),
    ("ERROR", LevelFilter::ERROR),
    ("WARNING", LevelFilter::WARN),
    ("WARN", LevelFilter::WARN),
    ("INFO", LevelFilter::INFO),
    ("DEBUG", LevelFilter::DEBUG),
];

/// The log level, which an operator may change while the server runs.
pub trait LogLevel: Send + Sync {
    /// Returns the log level in force.
    fn level(&self) -> LevelFilter;

    /// Sets the log level from now on.
    fn set_level(&self, level: LevelFilter);
}

/// Stands for a log without output.
impl LogLevel for Mutex<LevelFilter> {
    fn level(&self) -> LevelFilter {
        *self.lock()
    }

    fn set_level(&self, level: LevelFilter) {
        *self.lock() = level;
    }
}

pub(crate) struct LogSettings {
    level: Arc<dyn LogLevel>,
    service: Arc<Service>,
    sizes: Mutex<Sizes>,
}

/// Kept and shown for Orion's clients without effect: Millstream logs no message bodies and cuts no lines.
#[derive(Clone, Copy)]
struct Sizes {
    payload: u64,
    line: u64,
}

type Shared = State<Arc<LogSettings>>;

pub(crate) fn add(routes: Routes, service: &Arc<Service>, level: Arc<dyn LogLevel>, limits: Limits) -> Routes {
    let sizes = Sizes { payload: PAYLOAD_DEFAULT_BYTES, line: LINE_DEFAULT_BYTES };
    let settings = Arc::new(LogSettings { level, service: service.clone(), sizes: Mutex::new(sizes) });
    let admin = Access::Operator(Role::Admin);
    let object = || Content::json(json!({"type": "object", "additionalProperties": true}));
    let get = |path, summary| scoped(Route::get(path, admin, limits, summary)).answers_with(200, "It.", object());
    let put = scoped(Route::put(LOG, admin, limits, "Change how much is logged"))
        .query("level", "NONE, FATAL, ERROR, WARN, INFO or DEBUG.")
        .query("infoPayloadMaxSize", "Bytes; kept and shown.")
        .query("lineMaxSize", "Bytes; kept and shown.")
        .query("deprecate", "true: the log names each use of a deprecated feature.")
        .answers(200, "Changed.");
    let routes = routes
        .route(get(LOG, "How much is logged").to(show, settings.clone()))
        .route(put.to(change, settings))
        .route(get(SEMAPHORES, "Orion's locks, of which there are none here").to(nothing, ()));
    let trace = |path: &'static str, route: millstream_http::RouteDraft| {
        let route = scoped(route).answers_with(200, "Taken.", object());
        if path == TRACE { route } else { route.param("levels", "Orion's numbers of levels.") }
    };
    [TRACE, TRACE_LEVELS].into_iter().fold(routes, |routes, path| {
        let get = trace(path, Route::get(path, admin, limits, "Orion's trace levels, of which there are none here"));
        let put = trace(path, Route::put(path, admin, limits, "Taken, without effect"));
        let delete = trace(path, Route::delete(path, admin, limits, "Taken, without effect"));
        routes.route(get.to(no_traces, ())).route(put.to(nothing, ())).route(delete.to(nothing, ()))
    })
}

async fn show(State(settings): Shared, ask: NgsiRequest) -> HandlerResult {
    ask.parameters(&[], &[])?;
    let Sizes { payload, line } = *settings.sizes.lock();
    let deprecate = settings.service.deprecations.are_logged();
    let level = settings.name();
    let shown = json!({"level": level, "infoPayloadMaxSize": payload, "lineMaxSize": line, "deprecate": deprecate});
    Ok(json_answer(shown.to_string()))
}

async fn change(State(settings): Shared, ask: NgsiRequest) -> HandlerResult {
    const NAMES: [&str; 4] = ["level", "infoPayloadMaxSize", "lineMaxSize", "deprecate"];
    let given = ask.parameters(&NAMES, &[])?;
    if NAMES.iter().all(|name| given.value(name).is_none()) {
        return Err(Refusal::bad(format!("nothing is to be changed: name at least one of {}", NAMES.join(", "))).into());
    }
    // Reads all parameters before any change.
    let level = given.value("level").map(level_of).transpose()?;
    let deprecate = given.value("deprecate").map(flag).transpose()?;
    let (payload, line) = (size(&given, "infoPayloadMaxSize")?, size(&given, "lineMaxSize")?);
    if let Some(level) = level {
        settings.level.set_level(level);
    }
    if let Some(deprecate) = deprecate {
        settings.service.deprecations.log(deprecate);
    }
    let mut sizes = settings.sizes.lock();
    sizes.payload = payload.unwrap_or(sizes.payload);
    sizes.line = line.unwrap_or(sizes.line);
    Ok(StatusCode::OK.into_response())
}

async fn nothing() -> HandlerResult {
    Ok(json_answer("{}".to_owned()))
}

async fn no_traces() -> HandlerResult {
    Ok(json_answer(json!({"tracelevels": "empty"}).to_string()))
}

impl LogSettings {
    fn name(&self) -> &'static str {
        let level = self.level.level();
        // Orion's FATAL is ERROR here.
        let known = LEVELS.into_iter().rev().find(|(_, known)| *known <= level);
        known.map_or("NONE", |(name, _)| name)
    }
}

fn level_of(name: &str) -> Result<LevelFilter, Refusal> {
    LEVELS.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, level)| level).ok_or_else(|| {
        Refusal::bad(format!("level = '{name}': use NONE, FATAL, ERROR, WARN, INFO or DEBUG; correct it"))
    })
}

fn flag(text: &str) -> Result<bool, Refusal> {
    text.parse().map_err(|_| Refusal::bad(format!("deprecate = '{text}': it must be true or false; correct it")))
}

fn size(given: &RequestParameters, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(text) = given.value(name) else { return Ok(None) };
    match text.parse::<u64>().ok().filter(|bytes| *bytes > 0) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(Refusal::bad(format!("{name} = '{text}': it must be a number of bytes above 0; correct it"))),
    }
}
