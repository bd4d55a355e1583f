//! Devices over HTTP: telemetry, events and answers to commands, under Hono's routes.
//!
//! A request with `hono-ttd` waits for a command for that time. The answer carries the command, or is sent when the
//! time is over. The record tells applications how long the device waits.
//!
//! Not here: the routing of commands; which messages are taken, and as which records (`ingest`).

mod config;
mod message;
mod send;
mod sending;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use millstream_http::{Access, Content, Cors, Limits, Origins, Route, RouteDraft, Routes};
use send::PathForm;

pub use config::HttpAdapterConfig;

use crate::stream::Stream;
use crate::uplink::Uplink;

/// The shared state of the handlers.
pub(crate) struct HttpAdapter {
    pub(crate) uplink: Uplink,
    pub(crate) origins: Origins,
    pub(crate) config: HttpAdapterConfig,
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

impl HttpAdapter {
    /// The body and time limits of one request.
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
    let limits = adapter.limits();
    let documented = |draft: RouteDraft| {
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
    let (of_tenant, of_own_tenant) = (format!("{path}/{{tenant}}/{{device}}"), format!("{path}//{{device}}"));
    [
        (PathForm::Own, Route::post(path, Access::Device, limits, own)),
        (PathForm::TenantAndDevice, Route::put(&of_tenant, Access::Device, limits, named)),
        (PathForm::Device, Route::put(&of_own_tenant, Access::Device, limits, gateway)),
    ]
    .map(|(form, draft)| of_message(adapter, stream, form, documented(draft)))
}

/// Documents the path's parameters that name the device, and adds the handler.
fn of_message(adapter: &Arc<HttpAdapter>, stream: Stream, form: PathForm, draft: RouteDraft) -> Route {
    let draft = match form {
        PathForm::Own => draft,
        PathForm::Device => draft.param("device", DEVICE),
        PathForm::TenantAndDevice => draft.param("tenant", TENANT).param("device", DEVICE).tenant_in("tenant"),
    };
    let adapter = adapter.clone();
    draft.answered_by(move |request| adapter.take(stream, form, request))
}

fn of_replies(adapter: &Arc<HttpAdapter>) -> [Route; 3] {
    let limits = adapter.limits();
    let documented = |draft: RouteDraft| {
        draft
            .takes(Content::bytes("application/octet-stream"))
            .param("request", "The hono-cmd-req-id with which the command came.")
            .header("Content-Type", "Type of the payload.")
            .header("hono-cmd-status", "How it went: 200 to 299 or 400 to 599. Also as a query parameter.")
            .answers(202, "Accepted.")
            .answers(400, "The status or the request id is wrong.")
            .answers(404, "The device is unknown or disabled.")
            .answers(503, "Not accepted, and Retry-After says when to try again; or nobody waits for this answer.")
    };
    let (named, gateway) = ("/command/res/{tenant}/{device}/{request}", "/command/res//{device}/{request}");
    [
        (PathForm::Own, Route::post("/command/res/{request}", Access::Device, limits, "Answer a command")),
        (PathForm::TenantAndDevice, Route::put(named, Access::Device, limits, "Answer a command to a named device")),
        (
            PathForm::Device,
            Route::put(gateway, Access::Device, limits, "Answer a command to a device of the gateway's tenant"),
        ),
    ]
    .map(|(form, draft)| of_message(adapter, Stream::CommandResponse, form, documented(draft)))
}
