//! Devices over HTTP: telemetry, events and answers to commands, under Hono's routes.
//!
//! A request that says how long its device waits for a command (`hono-ttd`) is answered with that, or once the time is
//! over; the record tells applications how long. Not here: which command goes to whom, limits of tenants and devices.

mod message;
mod plain;
mod send;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderValue;
use axum::http::request::Parts;
use axum::response::Response;
use message::{QOS_LEVEL, What};
use millstream_http::{
    Access, Caller, Content, Cors, Limits, MoreTime, Origins, Path, Problem, Route, Routes, TraceContext,
};
use millstream_types::{MonotonicClock, WallClock};

use crate::commands::Commands;
use crate::meter::{Meters, Totals};
use crate::registry::Registry;
use crate::sender::Target;
use crate::streams::{Stream, Streams};
use crate::{Error, HttpAdapterConfig};

/// The adapter's type, in tenants' settings and in records.
pub(crate) const ADAPTER: &str = "hono-http";

/// What the handlers work with.
pub(crate) struct HttpAdapter {
    pub(crate) registry: Registry,
    pub(crate) streams: Arc<Streams>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    pub(crate) origins: Origins,
    pub(crate) config: HttpAdapterConfig,
}

/// The adapter, and the stream that a route is for.
type Door = (Arc<HttpAdapter>, Stream);

/// Who sends a message, and how long it may take to answer.
pub(crate) struct Asked {
    caller: Caller,
    trace: TraceContext,
    more_time: MoreTime,
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self {
            caller: Caller::from_request_parts(parts, state).await?,
            trace: TraceContext::from_request_parts(parts, state).await?,
            more_time: MoreTime::from_request_parts(parts, state).await?,
        })
    }
}

/// The routes, for the listener of devices: a group for each stream, as each allows other headers to pages.
pub(crate) fn routes(adapter: &Arc<HttpAdapter>) -> [Routes; 3] {
    const COMMAND: &str = "hono-command, hono-cmd-req-id, hono-cmd-target-device";
    [Stream::Telemetry, Stream::Event, Stream::CommandResponse].map(|stream| {
        let (name, allowed_headers, exposed_headers) = match stream {
            Stream::Telemetry => ("telemetry", "authorization, content-type, hono-ttd, qos-level", COMMAND),
            Stream::Event => ("events", "authorization, content-type, hono-ttd, hono-ttl", COMMAND),
            Stream::CommandResponse => ("command-responses", "authorization, content-type, hono-cmd-status", ""),
        };
        let routes = match stream {
            Stream::Telemetry => of_stream(adapter, "/telemetry", stream),
            Stream::Event => of_stream(adapter, "/event", stream),
            Stream::CommandResponse => of_replies(adapter),
        };
        let cors = Cors {
            origins: adapter.origins.clone(),
            allowed_headers: HeaderValue::from_static(allowed_headers),
            exposed_headers: HeaderValue::from_static(exposed_headers),
            max_age_s: 3_600,
        };
        routes.into_iter().fold(Routes::new(name).cors(cors), Routes::route)
    })
}

/// The origins that the configuration allows.
pub(crate) fn origins(config: &HttpAdapterConfig) -> Result<Origins, Error> {
    match config.cors_allowed_origin.as_str() {
        "*" => Ok(Origins::Any),
        origin => match HeaderValue::from_str(origin) {
            Ok(origin) => Ok(Origins::Of(vec![origin])),
            Err(_) => Err(Error::InvalidSetting {
                setting: "connect.http.cors_allowed_origin",
                value: origin.to_owned(),
                rule: "use * or scheme://host:port",
            }),
        },
    }
}

impl HttpAdapter {
    /// What one request may cost.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            body_max_bytes: self.config.payload_max_bytes,
            body_max_setting: "connect.http.payload_max_bytes",
            timeout: Duration::from_millis(self.config.request_timeout_ms),
        }
    }
}

const TENANT: &str = "The tenant of the login.";
const DEVICE: &str = "The device itself, or one that the logged-in gateway acts for.";

fn of_stream(adapter: &Arc<HttpAdapter>, path: &str, stream: Stream) -> [Route; 3] {
    let door: Door = (adapter.clone(), stream);
    let limits = adapter.limits();
    let documented = |draft: millstream_http::RouteDraft| {
        let draft = draft
            .takes(Content::bytes("application/octet-stream"))
            .header("Content-Type", "Type of the payload; required if the body is empty.")
            .header("hono-ttd", "Seconds that the device waits for a command, which is then the answer; told to applications. Also as a query parameter.")
            .answers_with(200, "Accepted; the body is a command, hono-command its name, hono-cmd-req-id where to answer it.", Content::bytes("application/octet-stream"))
            .answers(202, "Accepted.")
            .answers(400, "A header is wrong, or type and payload do not fit.")
            .answers(404, "The device is unknown or disabled.")
            .answers(503, "Not accepted; Retry-After says when to try again.");
        match stream {
            Stream::Telemetry => draft.header("qos-level", "0: at most once (default); 1: at least once."),
            _ => draft.header("hono-ttl", "Seconds after which it is void; also as a query parameter."),
        }
    };
    let (own, named, gateway) = match stream {
        Stream::Telemetry => (
            "Send telemetry",
            "Send telemetry of a named device",
            "Send telemetry for a device of the gateway's tenant",
        ),
        _ => ("Send an event", "Send an event of a named device", "Send an event for a device of the gateway's tenant"),
    };
    let (to_own, to_named) = (adapter.clone(), adapter.clone());
    [
        documented(Route::post(path, Access::Device, limits, own))
            .to(send_own, door.clone())
            .plain(&[QOS_LEVEL], move |request| to_own.take_plain(stream, Target::Caller, request)),
        documented(Route::put(&format!("{path}/{{tenant}}/{{device}}"), Access::Device, limits, named))
            .param("tenant", TENANT)
            .param("device", DEVICE)
            .tenant_in("tenant")
            .to(send_named, door.clone())
            .plain(&[QOS_LEVEL], move |request| {
                let target = Target::Named { tenant: Some(request.param(0)), device: request.param(1) };
                to_named.take_plain(stream, target, request)
            }),
        documented(Route::put(&format!("{path}//{{device}}"), Access::Device, limits, gateway))
            .param("device", DEVICE)
            .to(send_for, door),
    ]
}

fn of_replies(adapter: &Arc<HttpAdapter>) -> [Route; 3] {
    let limits = adapter.limits();
    let documented = |draft: millstream_http::RouteDraft| {
        draft
            .takes(Content::bytes("application/octet-stream"))
            .param("request", "The hono-cmd-req-id with which the command came.")
            .header("Content-Type", "Type of the payload.")
            .header("hono-cmd-status", "How it went: 200 to 299 or 400 to 599. Also as a query parameter.")
            .answers(202, "Accepted.")
            .answers(400, "The status or the request id is wrong.")
            .answers(404, "The device is unknown or disabled.")
            .answers(503, "Not accepted; Retry-After says when to try again.")
    };
    let (named, gateway) = ("/command/res/{tenant}/{device}/{request}", "/command/res//{device}/{request}");
    [
        documented(Route::post("/command/res/{request}", Access::Device, limits, "Answer a command"))
            .to(reply_own, adapter.clone()),
        documented(Route::put(named, Access::Device, limits, "Answer a command to a named device"))
            .param("tenant", TENANT)
            .param("device", DEVICE)
            .tenant_in("tenant")
            .to(reply_named, adapter.clone()),
        documented(Route::put(gateway, Access::Device, limits, "Answer a command to a device of the gateway's tenant"))
            .param("device", DEVICE)
            .to(reply_for, adapter.clone()),
    ]
}

async fn send_own(State((adapter, stream)): State<Door>, asked: Asked, request: Request) -> Result<Response, Problem> {
    adapter.take(What::Message(stream), Target::Caller, asked, request).await
}

async fn send_named(
    State((adapter, stream)): State<Door>,
    Path((tenant, device)): Path<(String, String)>,
    asked: Asked,
    request: Request,
) -> Result<Response, Problem> {
    let target = Target::Named { tenant: Some(&tenant), device: &device };
    adapter.take(What::Message(stream), target, asked, request).await
}

async fn send_for(
    State((adapter, stream)): State<Door>,
    Path(device): Path<String>,
    asked: Asked,
    request: Request,
) -> Result<Response, Problem> {
    let target = Target::Named { tenant: None, device: &device };
    adapter.take(What::Message(stream), target, asked, request).await
}

async fn reply_own(
    State(adapter): State<Arc<HttpAdapter>>,
    Path(request_id): Path<String>,
    asked: Asked,
    request: Request,
) -> Result<Response, Problem> {
    adapter.take(What::Reply(&request_id), Target::Caller, asked, request).await
}

async fn reply_named(
    State(adapter): State<Arc<HttpAdapter>>,
    Path((tenant, device, request_id)): Path<(String, String, String)>,
    asked: Asked,
    request: Request,
) -> Result<Response, Problem> {
    let target = Target::Named { tenant: Some(&tenant), device: &device };
    adapter.take(What::Reply(&request_id), target, asked, request).await
}

async fn reply_for(
    State(adapter): State<Arc<HttpAdapter>>,
    Path((device, request_id)): Path<(String, String)>,
    asked: Asked,
    request: Request,
) -> Result<Response, Problem> {
    let target = Target::Named { tenant: None, device: &device };
    adapter.take(What::Reply(&request_id), target, asked, request).await
}
