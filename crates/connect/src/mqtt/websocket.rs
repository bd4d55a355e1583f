//! MQTT over WebSocket: `GET /mqtt` on the listener of devices over HTTP. The packets are binary messages, cut in any way;
//! the connection is served by the MQTT listener, as any other.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use millstream_http::{Access, Limits, Peer, Problem, Reason, Route, Routes, Tls};
use millstream_net::Door;
use millstream_types::ErrorCode;
use parking_lot::Mutex;
use tungstenite::handshake::derive_accept_key;

use super::protocol::Mqtt;
use super::websocket_stream::WebSocketStream;

/// Names of the protocol that clients ask for.
const PROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// The way from the HTTP listener to the MQTT listener. Open while that listens.
#[derive(Clone, Default)]
pub(crate) struct Guests(Arc<Mutex<Option<Door<Mqtt>>>>);

impl Guests {
    /// Leads to the MQTT listener from now on.
    pub(super) fn open(&self, door: Door<Mqtt>) {
        *self.0.lock() = Some(door);
    }

    /// Leads nowhere from now on.
    pub(super) fn close(&self) {
        *self.0.lock() = None;
    }

    fn door(&self) -> Option<Door<Mqtt>> {
        self.0.lock().clone().filter(Door::is_open)
    }
}

/// The route on the HTTP listener for devices. Clients log in with CONNECT.
pub(crate) fn routes(guests: &Guests, limits: Limits) -> Routes {
    let route = Route::get("/mqtt", Access::Public, limits, "Speak MQTT over a WebSocket")
        .header("Sec-WebSocket-Protocol", "mqtt")
        .answers(101, "The WebSocket is open; the client sends its CONNECT.")
        .answers(400, "The request is no upgrade to a WebSocket of the protocol mqtt.")
        .answers(503, "Nobody takes MQTT connections: its listener is off.")
        .to(open, guests.clone());
    Routes::new("mqtt").route(route)
}

async fn open(
    State(guests): State<Guests>,
    Peer(peer): Peer,
    Tls(tls): Tls,
    RawUpgrade(raw): RawUpgrade,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let refuse = |why: String| {
        Problem::invalid(why)
            .value("upgrade")
            .rule("RFC 6455, with the subprotocol mqtt")
            .remedy("use an MQTT client that speaks WebSocket, with the path /mqtt")
    };
    let upgrade = upgrade.map_err(|refusal| refuse(refusal.body_text()))?;
    let upgrade = upgrade.protocols(PROTOCOLS);
    let Some(protocol) = upgrade.selected_protocol().cloned() else {
        return Err(refuse("the client asks for no protocol that is spoken here".to_owned()));
    };
    let Some((on_upgrade, accept)) = raw else {
        return Err(refuse("the connection cannot be upgraded".to_owned()));
    };
    let Some(door) = guests.door() else {
        return Err(Problem::new(Reason::Code(ErrorCode::Unavailable), "nobody takes MQTT connections")
            .value("/mqtt")
            .rule("the listener of devices over MQTT is on (listen.devices_mqtt)")
            .remedy("turn it on, and try again"));
    };
    tokio::spawn(async move {
        // A client that is gone before the upgrade needs no answer.
        if let Ok(socket) = on_upgrade.await {
            door.admit(WebSocketStream::new(TokioIo::new(socket)), peer, tls);
        }
    });
    let headers = [
        (CONNECTION, HeaderValue::from_static("upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accept),
        (SEC_WEBSOCKET_PROTOCOL, protocol),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

/// The connection behind a request for an upgrade, and the answer to the client's key. Nothing if the request is none.
struct RawUpgrade(Option<(OnUpgrade, HeaderValue)>);

impl<S: Sync> FromRequestParts<S> for RawUpgrade {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let on_upgrade = parts.extensions.get::<OnUpgrade>().cloned();
        let accept = parts
            .headers
            .get(SEC_WEBSOCKET_KEY)
            .and_then(|key| HeaderValue::try_from(derive_accept_key(key.as_bytes())).ok());
        Ok(Self(on_upgrade.zip(accept)))
    }
}
