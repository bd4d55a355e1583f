//! `/admin/log`: how much is logged, changed while the server runs. With it what Orion has of its own internals, which is
//! taken and has nothing to tell.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millstream_http::{Access, Content, Limits, Route, Routes};
use millstream_types::Role;
use parking_lot::Mutex;
use serde_json::json;
use tracing::level_filters::LevelFilter;

use crate::desk::{Ask, Desk};
use crate::refusal::Refusal;
use crate::request::Parameters;
use crate::routes::{Answered, json_answer, scoped};

const LOG: &str = "/admin/log";
const SEMAPHORES: &str = "/admin/sem";
const TRACE: &str = "/log/trace";
const TRACE_LEVELS: &str = "/log/trace/{levels}";
/// What Orion shows of a message before anybody has said anything else, bytes.
const PAYLOAD_DEFAULT_BYTES: u64 = 5 << 10;
const LINE_DEFAULT_BYTES: u64 = 32 << 10;
/// Orion's names of levels.
const LEVELS: [(&str, LevelFilter); 6] = [
    ("NONE", LevelFilter::OFF),
    ("FATAL", LevelFilter::ERROR),
    ("ERROR", LevelFilter::ERROR),
    ("WARN", LevelFilter::WARN),
    ("INFO", LevelFilter::INFO),
    ("DEBUG", LevelFilter::DEBUG),
];

/// How much is logged, which an operator may change while the server runs.
pub trait LogLevel: Send + Sync {
    /// The level up to which anything is logged.
    fn level(&self) -> LevelFilter;

    /// Logs everything up to `level`, and no more, from now on.
    fn set_level(&self, level: LevelFilter);
}

/// The level of a log that nobody writes.
impl LogLevel for Mutex<LevelFilter> {
    fn level(&self) -> LevelFilter {
        *self.lock()
    }

    fn set_level(&self, level: LevelFilter) {
        *self.lock() = level;
    }
}

/// What the routes look at and change.
pub(crate) struct LogSettings {
    level: Arc<dyn LogLevel>,
    desk: Arc<Desk>,
    sizes: Mutex<Sizes>,
}

/// Kept and shown for clients of Orion: our lines have no bodies of messages and are not cut.
#[derive(Clone, Copy)]
struct Sizes {
    payload: u64,
    line: u64,
}

type Shared = State<Arc<LogSettings>>;

pub(crate) fn add(routes: Routes, desk: &Arc<Desk>, level: Arc<dyn LogLevel>, limits: Limits) -> Routes {
    let sizes = Sizes { payload: PAYLOAD_DEFAULT_BYTES, line: LINE_DEFAULT_BYTES };
    let settings = Arc::new(LogSettings { level, desk: desk.clone(), sizes: Mutex::new(sizes) });
    let admin = Access::Operator(Role::Admin);
    let object = || Content::json(json!({"type": "object", "additionalProperties": true}));
    let get = |path, summary| scoped(Route::get(path, admin, limits, summary)).answers_with(200, "It.", object());
    let put = scoped(Route::put(LOG, admin, limits, "Change how much is logged"))
        .query("level", "NONE, FATAL, ERROR, WARN, INFO or DEBUG.")
        .query("infoPayloadMaxSize", "Bytes; kept and shown.")
        .query("lineMaxSize", "Bytes; kept and shown.")
        .query("deprecate", "true: whoever uses what is deprecated is named in a line.")
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

async fn show(State(settings): Shared, ask: Ask) -> Answered {
    ask.parameters(&[], &[])?;
    let Sizes { payload, line } = *settings.sizes.lock();
    let deprecate = settings.desk.deprecations.are_logged();
    let level = settings.name();
    let shown = json!({"level": level, "infoPayloadMaxSize": payload, "lineMaxSize": line, "deprecate": deprecate});
    Ok(json_answer(shown.to_string()))
}

async fn change(State(settings): Shared, ask: Ask) -> Answered {
    const NAMES: [&str; 4] = ["level", "infoPayloadMaxSize", "lineMaxSize", "deprecate"];
    let given = ask.parameters(&NAMES, &[])?;
    if NAMES.iter().all(|name| given.value(name).is_none()) {
        return Err(Refusal::bad(format!("nothing is to be changed: name at least one of {}", NAMES.join(", "))).into());
    }
    // All of it is read before anything is changed.
    let level = given.value("level").map(level_of).transpose()?;
    let deprecate = given.value("deprecate").map(flag).transpose()?;
    let (payload, line) = (size(&given, "infoPayloadMaxSize")?, size(&given, "lineMaxSize")?);
    if let Some(level) = level {
        settings.level.set_level(level);
    }
    if let Some(deprecate) = deprecate {
        settings.desk.deprecations.log(deprecate);
    }
    let mut sizes = settings.sizes.lock();
    sizes.payload = payload.unwrap_or(sizes.payload);
    sizes.line = line.unwrap_or(sizes.line);
    Ok(StatusCode::OK.into_response())
}

async fn nothing() -> Answered {
    Ok(json_answer("{}".to_owned()))
}

async fn no_traces() -> Answered {
    Ok(json_answer(json!({"tracelevels": "empty"}).to_string()))
}

impl LogSettings {
    /// Orion's name of the level.
    fn name(&self) -> &'static str {
        let level = self.level.level();
        // FATAL is ERROR here.
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

fn size(given: &Parameters, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(text) = given.value(name) else { return Ok(None) };
    match text.parse::<u64>().ok().filter(|bytes| *bytes > 0) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(Refusal::bad(format!("{name} = '{text}': it must be a number of bytes above 0; correct it"))),
    }
}
