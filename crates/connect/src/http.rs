//! Devices over HTTP: telemetry and events, under Hono's routes.
//!
//! A request that says how long its device waits for a command (`hono-ttd`) is answered at once, without one; the
//! record tells applications how long. Not here: commands and their responses, limits of tenants and devices.

mod message;
mod send;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use millstream_http::{Access, Caller, Content, Cors, Limits, Origins, Path, Problem, Route, Routes, TraceContext};
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
    #[allow(dead_code, reason = "the adapter begins to listen")]
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

/// The routes, for the listener of devices: a group for each stream, as each allows other headers to pages.
pub(crate) fn routes(adapter: &Arc<HttpAdapter>) -> [Routes; 2] {
    [Stream::Telemetry, Stream::Event].map(|stream| {
        let (name, path, allowed_headers) = match stream {
            Stream::Telemetry => ("telemetry", "/telemetry", "authorization, content-type, hono-ttd, qos-level"),
            Stream::Event => ("events", "/event", "authorization, content-type, hono-ttd, hono-ttl"),
        };
        let cors = Cors {
            origins: adapter.origins.clone(),
            allowed_headers: HeaderValue::from_static(allowed_headers),
            exposed_headers: HeaderValue::from_static(""),
            max_age_s: 3_600,
        };
        of_stream(adapter, path, stream).into_iter().fold(Routes::new(name).cors(cors), Routes::route)
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

fn of_stream(adapter: &Arc<HttpAdapter>, path: &str, stream: Stream) -> [Route; 3] {
    let door: Door = (adapter.clone(), stream);
    let limits = adapter.limits();
    let documented = |draft: millstream_http::RouteDraft| {
        let draft = draft
            .takes(Content::bytes("application/octet-stream"))
            .header("Content-Type", "Type of the payload; required if the body is empty.")
            .header("hono-ttd", "Seconds that the device listens for a command; told to applications, the answer comes at once. Also as a query parameter.")
            .answers(202, "Accepted.")
            .answers(400, "A header is wrong, or type and payload do not fit.")
            .answers(404, "The device is unknown or disabled.")
            .answers(503, "Not accepted; Retry-After says when to try again.");
        match stream {
            Stream::Telemetry => draft.header("qos-level", "0: at most once (default); 1: at least once."),
            Stream::Event => draft.header("hono-ttl", "Seconds after which it is void; also as a query parameter."),
        }
    };
    let (own, named, gateway) = match stream {
        Stream::Telemetry => (
            "Send telemetry",
            "Send telemetry of a named device",
            "Send telemetry for a device of the gateway's tenant",
        ),
        Stream::Event => {
            ("Send an event", "Send an event of a named device", "Send an event for a device of the gateway's tenant")
        }
    };
    const TENANT: &str = "The tenant of the login.";
    const DEVICE: &str = "The device itself, or one that the logged-in gateway acts for.";
    [
        documented(Route::post(path, Access::Device, limits, own)).to(send_own, door.clone()),
        documented(Route::put(&format!("{path}/{{tenant}}/{{device}}"), Access::Device, limits, named))
            .param("tenant", TENANT)
            .param("device", DEVICE)
            .tenant_in("tenant")
            .to(send_named, door.clone()),
        documented(Route::put(&format!("{path}//{{device}}"), Access::Device, limits, gateway))
            .param("device", DEVICE)
            .to(send_for, door),
    ]
}

async fn send_own(
    State((adapter, stream)): State<Door>,
    caller: Caller,
    trace: TraceContext,
    request: Request,
) -> Result<StatusCode, Problem> {
    adapter.take(stream, Target::Caller, &caller, trace, request).await
}

async fn send_named(
    State((adapter, stream)): State<Door>,
    caller: Caller,
    Path((tenant, device)): Path<(String, String)>,
    trace: TraceContext,
    request: Request,
) -> Result<StatusCode, Problem> {
    adapter.take(stream, Target::Named { tenant: Some(&tenant), device: &device }, &caller, trace, request).await
}

async fn send_for(
    State((adapter, stream)): State<Door>,
    caller: Caller,
    Path(device): Path<String>,
    trace: TraceContext,
    request: Request,
) -> Result<StatusCode, Problem> {
    adapter.take(stream, Target::Named { tenant: None, device: &device }, &caller, trace, request).await
}
