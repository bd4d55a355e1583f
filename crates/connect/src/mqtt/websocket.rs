//! MQTT over WebSocket: `GET /mqtt` on the listener of devices over HTTP. The packets are binary messages, cut in any way;
//! the connection is served by the MQTT listener, as any other.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Sink, Stream};
use millstream_http::{Access, Limits, Peer, Problem, Reason, Route, Routes, ShownCertificate};
use millstream_net::Door;
use millstream_types::ErrorCode;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::protocol::Mqtt;

/// Names of the protocol that clients ask for.
const PROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];
/// The bytes that one read asks for.
const READ_BYTES: usize = 4 << 10;

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

#[derive(Clone)]
struct WebSocketRoute {
    guests: Guests,
    packet_max_bytes: usize,
}

/// The route on the HTTP listener for devices. Clients log in with CONNECT.
pub(crate) fn routes(guests: &Guests, packet_max_bytes: usize, limits: Limits) -> Routes {
    let state = Arc::new(WebSocketRoute { guests: guests.clone(), packet_max_bytes });
    let route = Route::get("/mqtt", Access::Public, limits, "Speak MQTT over a WebSocket")
        .header("Sec-WebSocket-Protocol", "mqtt")
        .answers(101, "The WebSocket is open; the client sends its CONNECT.")
        .answers(400, "The request is no upgrade to a WebSocket of the protocol mqtt.")
        .answers(503, "Nobody takes MQTT connections: its listener is off.")
        .to(open, state);
    Routes::new("mqtt").route(route)
}

async fn open(
    State(state): State<Arc<WebSocketRoute>>,
    Peer(peer): Peer,
    ShownCertificate(certificate): ShownCertificate,
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
    if upgrade.selected_protocol().is_none() {
        return Err(refuse("the client asks for no protocol that is spoken here".to_owned()));
    }
    let Some(door) = state.guests.door() else {
        return Err(Problem::new(Reason::Code(ErrorCode::Unavailable), "nobody takes MQTT connections")
            .value("/mqtt")
            .rule("the listener of devices over MQTT is on (listen.devices_mqtt)")
            .remedy("turn it on, and try again"));
    };
    let most = state.packet_max_bytes;
    let upgrade = upgrade.max_message_size(most).max_frame_size(most).read_buffer_size(READ_BYTES).write_buffer_size(0);
    Ok(upgrade.on_upgrade(async move |socket| {
        door.admit(WebSocketStream { socket, rest: Bytes::new() }, peer, certificate);
    }))
}

/// A WebSocket as the stream of bytes that it carries.
pub(super) struct WebSocketStream {
    socket: WebSocket,
    /// The unread rest of the last message.
    rest: Bytes,
}

impl AsyncRead for WebSocketStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => self.rest = bytes,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Text(_))) => {
                    let why = "MQTT packets come in binary messages of a WebSocket, not in text";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let taken = self.rest.len().min(into.remaining());
        into.put_slice(&self.rest.split_to(taken));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WebSocketStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(io::Error::other)?;
        let message = Message::Binary(Bytes::copy_from_slice(bytes));
        Pin::new(&mut self.socket).start_send(message).map_err(io::Error::other)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(io::Error::other)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(cx).map_err(io::Error::other)
    }
}
