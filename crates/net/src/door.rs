//! The way in to a listener: whom it admits, and what those are told whom it does not.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use millstream_types::{Grant, MemoryBudget};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::Shutdown;
use crate::connections::Connections;
use crate::limits::ConnectionLimits;
use crate::metrics::Metrics;
use crate::pending_login::{PendingLogin, PendingLogins, TooManyPending};
use crate::tls::{ClientCertificate, HandshakeEnd, TLS_CONNECTION_BYTES, TlsHandshake};
use crate::transport::TransportStream;

/// Refused connections that may be told why at the same time; more are closed without a word.
const TURNED_AWAY_MAX: usize = 64;

/// The results of a connection's TLS handshake; nothing without TLS.
#[derive(Debug, Clone, Default)]
pub struct TlsSession {
    /// The certificate that the client has shown.
    pub client_certificate: Option<Arc<ClientCertificate>>,
    /// The name of the cipher suite, as in `TLS_AES_256_GCM_SHA384`.
    pub cipher_suite: Option<&'static str>,
}

/// The rights that a connection has come in with.
#[derive(Debug)]
pub struct Admitted {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The memory of the connection; it may be enlarged.
    pub memory: Grant,
    /// Its TLS.
    pub tls: TlsSession,
    /// The login that is still to come: without [`PendingLogin::succeeded`] the connection is closed, and it may be refused then.
    /// The first request stands for it if nobody has to log in.
    pub login: PendingLogin,
    /// Begins when the connection shall end in order.
    pub shutdown: Shutdown,
}

/// The reason for which a connection may not come in.
#[derive(Debug, Clone)]
pub enum Refusal {
    /// There is no memory for another connection.
    NoMemory {
        /// Bytes that the connection needs.
        bytes: u64,
        /// The budget that does not have them.
        budget: MemoryBudget,
    },
    /// As many connections as may wait for their login do so.
    LoginsPending {
        /// The number of these.
        max: usize,
    },
    /// The client speaks without TLS on an address with TLS.
    NotTls,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory { bytes, budget } => {
                let (setting, limit) = (budget.setting(), budget.limit_bytes());
                write!(f, "{setting} = {limit} has no room for the {bytes} bytes of a connection")
            }
            Self::LoginsPending { max } => write!(f, "{max} connections wait for their login already; try again later"),
            Self::NotTls => f.write_str("this port takes TLS only; connect with TLS, or to the port without it"),
        }
    }
}

/// A protocol over streams of type `S`.
pub trait Protocol<S = TransportStream>: Send + Sync + 'static {
    /// Serves a connection to its end. It is called in the order in which connections are accepted, or in which their TLS
    /// handshakes end; the future runs in a task of its own and is dropped when the drain is over.
    fn serve(self: Arc<Self>, stream: S, admitted: Admitted) -> impl Future<Output = ()> + Send;

    /// Tells a client why it may not come in, if the protocol can, within a time of its own.
    fn turn_away(
        self: Arc<Self>,
        stream: S,
        peer: SocketAddr,
        shutdown: Shutdown,
        refusal: Refusal,
    ) -> impl Future<Output = ()> + Send;
}

/// The way in to a listener. A clone leads to the same one.
#[derive(Debug)]
pub struct Door<P>(Arc<Inside<P>>);

impl<P> Clone for Door<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
struct Inside<P> {
    name: &'static str,
    protocol: Arc<P>,
    limits: ConnectionLimits,
    connections: Arc<Connections>,
    turned_away: Arc<Semaphore>,
    pending_logins: Arc<PendingLogins>,
    shutdown: Shutdown,
}

impl<P> Door<P> {
    pub(crate) fn new(
        name: &'static str,
        protocol: Arc<P>,
        limits: ConnectionLimits,
        connections: Arc<Connections>,
        metrics: &Metrics,
        shutdown: Shutdown,
    ) -> Self {
        let pending_logins = Arc::new(PendingLogins::new(name, &limits, connections.clone(), metrics));
        Self(Arc::new(Inside {
            name,
            protocol,
            connections,
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
            pending_logins,
            limits,
            shutdown,
        }))
    }

    /// True until the listener begins to stop.
    pub fn is_open(&self) -> bool {
        !self.0.shutdown.has_begun()
    }

    /// Begins to serve a connection in a task of its own, or turns it away. A listener that stops closes it. The client
    /// has come here by the TLS `tls`.
    pub fn admit<S>(&self, stream: S, peer: SocketAddr, tls: TlsSession)
    where
        S: Send + 'static,
        P: Protocol<S>,
    {
        let inside = self.0.clone();
        let refused = self.enter(stream, peer, self.0.limits.connection_bytes, |stream, mut admitted| {
            admitted.tls = tls;
            inside.protocol.clone().serve(stream, admitted)
        });
        if let Err((stream, refusal)) = refused {
            self.turn_away(peer, refusal, |protocol, shutdown, refusal| {
                protocol.turn_away(stream, peer, shutdown, refusal)
            });
        }
    }

    /// The same for a connection that begins with a TLS handshake. It counts and takes memory from the handshake on.
    pub(crate) fn admit_tls(&self, socket: TcpStream, peer: SocketAddr, handshake: &Arc<TlsHandshake>)
    where
        P: Protocol,
    {
        let (inside, shaking) = (self.0.clone(), handshake.clone());
        let bytes = self.0.limits.connection_bytes + TLS_CONNECTION_BYTES;
        let refused = self.enter(socket, peer, bytes, move |socket, mut admitted| async move {
            match shaking.run(socket, peer, &admitted.shutdown, Some(&admitted.login)).await {
                HandshakeEnd::Secured(stream, client_certificate) => {
                    admitted.login.restart();
                    admitted.tls = TlsSession { client_certificate, cipher_suite: stream.cipher_suite() };
                    inside.protocol.clone().serve(stream, admitted).await;
                }
                HandshakeEnd::NotTls(socket) => {
                    let door = Self(inside);
                    door.turn_away(peer, Refusal::NotTls, |protocol, shutdown, refusal| {
                        protocol.turn_away(TransportStream::from(socket), peer, shutdown, refusal)
                    });
                }
                HandshakeEnd::Failed => {}
            }
        });
        if let Err((socket, refusal)) = refused {
            let shaking = handshake.clone();
            self.turn_away(peer, refusal, |protocol, shutdown, refusal| async move {
                if let HandshakeEnd::Secured(stream, _) = shaking.run(socket, peer, &shutdown, None).await {
                    protocol.turn_away(stream, peer, shutdown, refusal).await;
                }
            });
        }
    }

    /// Takes `bytes` of memory and a place among the connections, and serves in a task; gives the stream back with the
    /// reason if there is no room. A listener that stops drops it.
    fn enter<S, F>(
        &self,
        stream: S,
        peer: SocketAddr,
        bytes: u64,
        serve: impl FnOnce(S, Admitted) -> F,
    ) -> Result<(), (S, Refusal)>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if !self.is_open() {
            return Ok(());
        }
        let limits = &self.0.limits;
        let Some(memory) = limits.memory.take(bytes) else {
            return Err((stream, Refusal::NoMemory { bytes, budget: limits.memory.clone() }));
        };
        if let Err(TooManyPending { max }) = self.0.pending_logins.make_room(peer.ip()) {
            return Err((stream, Refusal::LoginsPending { max }));
        }
        let place = self.0.connections.place();
        let pending = self.0.pending_logins.begin(peer.ip(), place.id);
        let (shutdown, login) = (self.0.shutdown.clone(), pending.login());
        let admitted = Admitted { peer, memory, shutdown, login, tls: TlsSession::default() };
        // Futures that hold each other by value would keep several places for the connection.
        let serving = Box::pin(serve(stream, admitted));
        place.spawn(pending.serve(peer, serving));
        Ok(())
    }

    /// Counts a refusal, and has `tell` tell the client if few others are being told.
    fn turn_away<F>(&self, peer: SocketAddr, refusal: Refusal, tell: impl FnOnce(Arc<P>, Shutdown, Refusal) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let inside = &self.0;
        inside.connections.count_refused();
        tracing::debug!(listener = inside.name, %peer, why = %refusal, "a connection is refused");
        if let Ok(permit) = inside.turned_away.clone().try_acquire_owned() {
            let telling = tell(inside.protocol.clone(), inside.shutdown.clone(), refusal);
            tokio::spawn(async move {
                telling.await;
                drop(permit);
            });
        }
    }
}
