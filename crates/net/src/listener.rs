//! The listener: an address, a loop that accepts, and an end in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::with_room;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::connections::{ConnectionLimits, Connections, Door, Protocol};
use crate::{Metrics, Shutdown};

/// The rest after a failed accept (no file descriptor left, for example).
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Connections that may wait for being accepted; the system allows `net.core.somaxconn` at most. A client that finds no
/// place is not refused but tries again after a second.
const BACKLOG: u32 = 8_192;

/// A bound address that does not serve yet.
#[derive(Debug)]
pub struct Listener {
    name: &'static str,
    socket: TcpListener,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    shutdown: Shutdown,
}

impl Listener {
    /// Binds `address`; port 0 takes any free port. `name` labels metrics and log lines.
    ///
    /// # Errors
    /// The error of the system, if it refuses the address.
    ///
    /// # Panics
    /// Outside of an async runtime.
    pub fn bind(name: &'static str, address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A port is free as soon as its listener has gone, though its connections still end.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let socket = socket.listen(BACKLOG)?;
        let address = socket.local_addr()?;
        let (stop, shutdown) = Shutdown::channel();
        Ok(Self { name, socket, address, stop, shutdown })
    }

    /// The address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The signal that every connection of this listener gets.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Starts to accept connections for `protocol`. The door lets in those that come another way.
    ///
    /// # Panics
    /// If a listener of the same name counts into the same metrics.
    pub fn serve<P: Protocol>(
        self,
        protocol: Arc<P>,
        limits: ConnectionLimits,
        metrics: &Metrics,
    ) -> (Serving, Door<P>) {
        let Self { name, socket, address, stop, shutdown } = self;
        let connections = Arc::new(Connections::new(name, metrics));
        let door = Door::new(name, protocol, limits, connections.clone(), shutdown.clone());
        tracing::info!(listener = name, %address, "listening");
        let accepting = tokio::spawn(accept(socket, door.clone(), shutdown));
        (Serving { name, address, stop, connections, accepting: Some(accepting) }, door)
    }
}

async fn accept<P: Protocol>(socket: TcpListener, door: Door<P>, shutdown: Shutdown) {
    let mut stopping = std::pin::pin!(shutdown.begun());
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopping.as_mut() => return,
            accepted = socket.accept() => accepted,
        };
        match accepted.and_then(with_room) {
            Ok((socket, peer)) => {
                // Without it small answers wait for the peer's delayed acknowledgement. A socket that refuses it is about to
                // fail.
                let _ = socket.set_nodelay(true);
                door.admit(socket, peer);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// A listener at work. Dropping it aborts its connections; [`Serving::shut_down`] ends them in order.
#[derive(Debug)]
pub struct Serving {
    name: &'static str,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    connections: Arc<Connections>,
    accepting: Option<JoinHandle<()>>,
}

impl Serving {
    /// The address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.connections.count()
    }

    /// Accepts no more, gives the connections `drain` to end by themselves, then aborts those that are left.
    /// Returns how many these were.
    pub async fn shut_down(mut self, drain: Duration) -> usize {
        self.stop.send_replace(true);
        if let Some(accepting) = self.accepting.take() {
            // The task ends by itself at this signal; it could only fail by a panic, which has been reported.
            let _ = accepting.await;
        }
        let drained = timeout(drain, self.connections.none_left()).await;
        let aborted = if drained.is_ok() { 0 } else { self.connections.count() };
        self.connections.abort();
        self.connections.none_left().await;
        tracing::info!(listener = self.name, cut_off = aborted, "listener closed");
        aborted
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.connections.abort();
    }
}
