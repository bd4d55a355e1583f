//! The listener: its addresses, a loop for each that accepts, and an end in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::with_room;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::connections::Connections;
use crate::door::{Door, Protocol, TlsSession};
use crate::endpoints::{BindError, BoundAddresses, Endpoints};
use crate::limits::ConnectionLimits;
use crate::tls::{ApplicationProtocol, ServerTls, TlsHandshake};
use crate::transport::TransportStream;
use crate::{Metrics, Shutdown};

/// The rest after a failed accept (no file descriptor left, for example).
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Connections that may wait for being accepted; the system allows `net.core.somaxconn` at most. A client that finds no
/// place is not refused but tries again after a second.
const BACKLOG: u32 = 8_192;

/// Bound addresses that are not served yet.
#[derive(Debug)]
pub struct Listener {
    name: &'static str,
    plain: Option<TcpListener>,
    tls: Option<(TcpListener, ServerTls)>,
    application: ApplicationProtocol,
    is_login: bool,
    addresses: BoundAddresses,
    stop: watch::Sender<bool>,
    shutdown: Shutdown,
}

impl Listener {
    /// Binds the addresses; port 0 takes any free port. `name` labels metrics and log lines.
    ///
    /// # Errors
    /// [`BindError`] for the first address that the system refuses.
    ///
    /// # Panics
    /// Outside of an async runtime, and without any address.
    pub fn bind(name: &'static str, endpoints: Endpoints) -> Result<Self, BindError> {
        let Endpoints { plain, tls, application, is_login } = endpoints;
        let bind = |address| bind(address).map_err(|source| BindError { address, source });
        let plain = plain.map(bind).transpose()?;
        let tls = tls.map(|(address, tls)| bind(address).map(|socket| (socket, tls))).transpose()?;
        let addresses = BoundAddresses {
            plain: plain.as_ref().map(|(_, address)| *address),
            tls: tls.as_ref().map(|((_, address), _)| *address),
        };
        assert!(addresses.plain.or(addresses.tls).is_some(), "a listener has an address");
        let (plain, tls) = (plain.map(|(socket, _)| socket), tls.map(|((socket, _), tls)| (socket, tls)));
        let (stop, shutdown) = Shutdown::channel();
        Ok(Self { name, plain, tls, application, is_login, addresses, stop, shutdown })
    }

    /// The plain address, or else the one with TLS, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.addresses.first()
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
        let Self { name, plain, tls, application, is_login, addresses, stop, shutdown } = self;
        let connections = Arc::new(Connections::new(name, metrics));
        let door = Door::new(name, protocol, limits, connections.clone(), metrics, shutdown.clone());
        tracing::info!(listener = name, plain = ?addresses.plain, tls = ?addresses.tls, "listening");
        let mut accepting = Vec::new();
        if let Some(socket) = plain {
            let door = door.clone();
            let admit =
                move |socket: TcpStream, peer| door.admit(TransportStream::from(socket), peer, TlsSession::default());
            accepting.push(tokio::spawn(accept(socket, admit, shutdown.clone())));
        }
        if let Some((socket, tls)) = tls {
            let (door, handshake) =
                (door.clone(), Arc::new(TlsHandshake::new(name, tls, application, is_login, metrics)));
            let admit = move |socket, peer| door.admit_tls(socket, peer, &handshake);
            accepting.push(tokio::spawn(accept(socket, admit, shutdown)));
        }
        (Serving { name, addresses, stop, connections, accepting }, door)
    }
}

/// Binds one address; returns it with its real port.
fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A port is free as soon as its listener has gone, though its connections still end.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let socket = socket.listen(BACKLOG)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

async fn accept(socket: TcpListener, admit: impl Fn(TcpStream, SocketAddr), shutdown: Shutdown) {
    let mut stopping = std::pin::pin!(shutdown.begun());
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopping.as_mut() => return,
            accepted = socket.accept() => accepted,
        };
        match accepted.and_then(|(socket, peer)| Ok((with_room(socket)?, peer))) {
            Ok((socket, peer)) => {
                // Without it small answers wait for the peer's delayed acknowledgement. A socket that refuses it is about to
                // fail.
                let _ = socket.set_nodelay(true);
                admit(socket, peer);
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
    addresses: BoundAddresses,
    stop: watch::Sender<bool>,
    connections: Arc<Connections>,
    accepting: Vec<JoinHandle<()>>,
}

impl Serving {
    /// The plain address, or else the one with TLS, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.addresses.first()
    }

    /// All addresses, with their real ports.
    pub fn addresses(&self) -> BoundAddresses {
        self.addresses
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.connections.count()
    }

    /// Accepts no more, gives the connections `drain` to end by themselves, then aborts those that are left.
    /// Returns how many these were.
    pub async fn shut_down(mut self, drain: Duration) -> usize {
        self.stop.send_replace(true);
        for accepting in self.accepting.drain(..) {
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
