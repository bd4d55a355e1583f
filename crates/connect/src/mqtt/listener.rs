//! The listener: an address, how many may come in, and an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::with_room;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::adapter::MqttAdapter;
use super::connection::{Signals, serve};
use crate::Error;

/// After a failed accept (no file descriptor left, for example) the listener rests this long.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Connections beyond the limit that may be told so at the same time; still more are closed without a word.
const TURNED_AWAY_MAX: usize = 64;

/// The listener of devices over MQTT, at work.
#[derive(Debug)]
pub struct MqttServing {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    drain: oneshot::Sender<Duration>,
    accepting: JoinHandle<usize>,
}

impl MqttServing {
    /// Binds `address` (port 0 takes any free port) and starts to serve. Devices log in unless their tenant itself says that they
    /// need not, so any address may be listened on.
    pub(crate) async fn start(address: SocketAddr, adapter: Arc<MqttAdapter>) -> Result<Self, Error> {
        let bind = |source| Error::Bind { address, source: Arc::new(source) };
        let socket = millstream_http::listen(address).map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        let (stop, stopping) = watch::channel(false);
        let (drain, drained_for) = oneshot::channel();
        let (changed, registry) = watch::channel(0);
        tokio::spawn(Arc::clone(&adapter).watch_registry(changed));
        tracing::info!(listener = "devices-mqtt", %address, "listening");
        let signals = Signals { stopping, registry };
        tokio::spawn(Arc::clone(&adapter).sweep(signals.clone()));
        let accepting = tokio::spawn(accept(socket, adapter, signals, drained_for));
        Ok(Self { address, stop, drain, accepting })
    }

    /// The address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more, tells all clients that the server ends, and closes what is left after `drain`. Returns how many
    /// connections had to be cut off.
    pub async fn shut_down(self, drain: Duration) -> usize {
        self.stop.send_replace(true);
        // The accepting task waits for it: it can only have ended by a panic, which has been reported.
        let _ = self.drain.send(drain);
        let cut_off = self.accepting.await.unwrap_or_default();
        tracing::info!(listener = "devices-mqtt", cut_off, "listener closed");
        cut_off
    }
}

async fn accept(
    socket: TcpListener,
    adapter: Arc<MqttAdapter>,
    signals: Signals,
    mut drain: oneshot::Receiver<Duration>,
) -> usize {
    let mut connections = JoinSet::new();
    let mut guests = adapter.guests.open();
    let drain = loop {
        tokio::select! {
            biased;
            drain = &mut drain => break drain.unwrap_or_default(),
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            Some((socket, peer)) = guests.recv() => begin(socket, peer, &adapter, &signals, &mut connections),
            accepted = socket.accept() => match accepted.and_then(with_room) {
                Ok((socket, peer)) => {
                    // Without it small answers wait for the peer's delayed acknowledgement. A socket that refuses it is
                    // about to fail.
                    let _ = socket.set_nodelay(true);
                    begin(socket, peer, &adapter, &signals, &mut connections);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_REST).await;
                }
            },
        }
    };
    drop((socket, guests));
    adapter.guests.close();
    let ended = timeout(drain, async { while connections.join_next().await.is_some() {} }).await;
    let cut_off = if ended.is_ok() { 0 } else { connections.len() };
    connections.shutdown().await;
    cut_off
}

fn begin<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    socket: S,
    peer: SocketAddr,
    adapter: &Arc<MqttAdapter>,
    signals: &Signals,
    connections: &mut JoinSet<()>,
) {
    let limit = adapter.config.connections_max;
    if connections.len() >= limit + TURNED_AWAY_MAX {
        return;
    }
    let is_full = connections.len() >= limit;
    connections.spawn(serve(socket, peer, Arc::clone(adapter), signals.clone(), is_full));
}
