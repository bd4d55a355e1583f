//! The listener of applications while the start waits for Kafka: `/healthz` and `/readyz` answer, all else is refused with 503.
//!
//! A process that stands by can be told from one that is gone, and says for whom it waits. It takes no address from others:
//! if one is in use, the process waits without a listener.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::Method;
use millstream_http::{
    Access, Api, Authenticator, Claim, Limits, Listener, Metrics, Problem, Reason, Route, Routes, Serving, Verdict,
};
use millstream_types::ErrorCode;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::health::{self, Readiness};
use crate::listen::ListenerEndpoints;
use crate::planes::Planes;

/// Bodies are not read.
const LIMITS: Limits = Limits { body_max_bytes: u64::MAX, body_max_setting: "none", timeout: Duration::from_secs(5) };
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Returns the planes once they are open. While their log waits, the listener of applications tells the reason.
pub(crate) async fn until_open(
    mut opening: JoinHandle<anyhow::Result<Planes>>,
    mut waits: watch::Receiver<Option<String>>,
    config: &Config,
    endpoints: &ListenerEndpoints,
) -> anyhow::Result<Planes> {
    let mut listening = None;
    let opened = loop {
        tokio::select! {
            opened = &mut opening => break opened,
            Ok(()) = waits.changed(), if listening.is_none() => {
                if waits.borrow_and_update().is_some() {
                    listening = listen(&waits, config, endpoints).await;
                }
            }
        }
    };
    if let Some(listening) = listening {
        listening.shut_down(Duration::ZERO).await;
    }
    opened?
}

async fn listen(
    waits: &watch::Receiver<Option<String>>,
    config: &Config,
    endpoints: &ListenerEndpoints,
) -> Option<Serving> {
    if endpoints.applications.is_empty() {
        return None;
    }
    let waits = waits.clone();
    let why = move || waits.borrow().clone().unwrap_or_else(|| "starts: state is read from the topics".to_owned());
    let readiness: Readiness = Arc::new(move || Err(why()));
    // Those of the server come with its own listener.
    let metrics = Metrics::default();
    let api = Api::builder("waiting", "Millstream", env!("CARGO_PKG_VERSION"))
        .with(health::routes(&metrics, readiness.clone()))
        .with(refusals(&readiness))
        .build(&metrics);
    let bound =
        Listener::bind("waiting", endpoints.applications.clone(), Arc::new(NoCallers), config.http.clone()).await;
    match (api, bound) {
        (Ok(api), Ok(listener)) => Some(listener.serve(Arc::new(api), &metrics)),
        (Err(error), _) | (_, Err(error)) => {
            tracing::info!(%error, "this process waits without a listener");
            None
        }
    }
}

/// Routes for everything that only a process that works answers.
fn refusals(readiness: &Readiness) -> Routes {
    let mut routes = Routes::new("waiting");
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        for path in ["/", "/{*path}"] {
            let draft = Route::on(method.clone(), path, Access::Public, LIMITS, "Refuse, as another process works");
            let draft = if path == "/" { draft } else { draft.param("path", "Any path") };
            routes = routes.route(draft.answers(503, "This process does not work.").to(refuse, readiness.clone()));
        }
    }
    routes
}

async fn refuse(State(readiness): State<Readiness>) -> Problem {
    let why = readiness().err().unwrap_or_default();
    Problem::new(Reason::Code(ErrorCode::Unavailable), why)
        .remedy("send the request to the process that works, by an address that follows /readyz")
        .retry_after(RETRY_AFTER)
}

/// Lets nobody in: no route of a process that waits needs a login.
struct NoCallers;

impl Authenticator for NoCallers {
    fn authenticate<'a>(&'a self, _: Claim<'a>) -> Verdict<'a> {
        Verdict::Now(Err(Problem::new(Reason::Code(ErrorCode::Unavailable), "this process does not work yet")))
    }

    fn open_remedy(&self) -> Option<&'static str> {
        None
    }
}
