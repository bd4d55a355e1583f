//! The listener of Redis clients.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millstream_net::{
    Admitted, ConnectionLimits, Endpoints, ListenerFull, Metrics, PendingLogin, Protocol, Refusal, Shutdown,
    TransportStream,
};
use millstream_types::{Grant, MemoryBudget};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::resp::closed::ClosedFor;
use crate::resp::host::Host;
use crate::resp::session::{RespSession, SessionProgress};
use crate::resp::shared::Shared;

/// Memory that an idle connection counts for: its buffers and its state.
pub const CONNECTION_BYTES: u64 = 24 << 10;
/// Free room in the receive buffer before each read.
const READ_BYTES: usize = 16 << 10;
/// A buffer that has grown beyond this is let go once it is empty.
const KEPT_BUFFER_BYTES: usize = 64 << 10;

/// The part of the memory budget that messages may take: a quarter.
const MESSAGES_SHARE: u64 = 4;
/// The time between two looks for idle connections and slow subscribers.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of the listener for Redis clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Most bytes of requests that a connection may have sent without an answer; it is closed
    /// beyond. It also bounds `proto-max-bulk-len`.
    pub request_max_bytes: u64,
    /// The time for which a client may not read its replies before it is closed.
    pub write_timeout: Duration,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self { request_max_bytes: 512 << 20, write_timeout: Duration::from_secs(60) }
    }
}

/// Why a listener cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Everybody in the network could do everything.
    #[error("{address} can be reached from the network and clients need not log in; use 127.0.0.1 or turn logins on")]
    OpenToTheNetwork {
        /// The address that was to be bound.
        address: SocketAddr,
    },
    /// The system refuses the address.
    #[error("cannot listen for Redis clients on {address}")]
    Bind {
        /// The address that was to be bound.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// Bound addresses that are not served yet.
#[derive(Debug)]
pub struct Listener {
    listener: millstream_net::Listener,
    shared: Arc<Shared>,
    config: ListenerConfig,
    memory: MemoryBudget,
}

impl Listener {
    /// Binds the addresses; port 0 takes any free port. Messages that wait for subscribers may take a quarter of `memory`.
    ///
    /// # Errors
    /// [`BindError`] if an address is refused or cannot be bound.
    pub fn bind(
        endpoints: Endpoints,
        host: Arc<dyn Host>,
        config: ListenerConfig,
        memory: &MemoryBudget,
    ) -> Result<Self, BindError> {
        if let Some(address) = endpoints.exposed().filter(|_| host.default_user().is_some()) {
            return Err(BindError::OpenToTheNetwork { address });
        }
        let bind = |millstream_net::BindError { address, source }| BindError::Bind { address, source };
        let listener = millstream_net::Listener::bind("redis", endpoints).map_err(bind)?;
        let messages = memory.share(memory.setting(), memory.limit_bytes() / MESSAGES_SHARE);
        let shared = Shared::with_limits(host, config.request_max_bytes, messages);
        Ok(Self { listener, shared, config, memory: memory.clone() })
    }

    /// The plain address, or else the one with TLS, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The state that the connections share: the engine tells it of keys that expire.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Starts to accept connections, within `limits`.
    ///
    /// # Panics
    /// If another listener for Redis clients counts into the same metrics.
    pub fn serve(self, limits: ConnectionLimits, metrics: &Metrics) -> millstream_net::Serving {
        let Self { listener, shared, config, memory } = self;
        tokio::spawn(close_idle_and_slow(Arc::downgrade(&shared)));
        show_closed(Arc::downgrade(&shared), metrics);
        listener.serve(Arc::new(RedisProtocol { shared, config, memory }), limits, metrics).0
    }
}

/// Registers the counters of clients that are closed for what they do.
fn show_closed(shared: Weak<Shared>, metrics: &Metrics) {
    let help = "Redis clients that were closed for what they did, by reason.";
    metrics.counters_fn("millstream_redis_clients_closed_total", help, "reason", move || {
        shared.upgrade().map(|shared| shared.closed.counts()).unwrap_or_default()
    });
}

/// Closes idle connections and slow subscribers until the listener is gone.
async fn close_idle_and_slow(shared: Weak<Shared>) {
    let mut ticks = tokio::time::interval(IDLE_CHECK_INTERVAL);
    loop {
        ticks.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        shared.close_idle_and_slow();
    }
}

/// Serves each connection that the listener admits.
struct RedisProtocol {
    shared: Arc<Shared>,
    config: ListenerConfig,
    memory: MemoryBudget,
}

impl Protocol for RedisProtocol {
    fn serve(self: Arc<Self>, socket: TransportStream, admitted: Admitted) -> impl Future<Output = ()> + Send {
        // Before the task begins, so that numbers of connections are in the order of their arrival. A connection without a
        // local address is closed already.
        let session = socket.local_addr().map(|local| RespSession::new(&self.shared, admitted.peer, local));
        async move {
            let Ok(session) = session else { return };
            let connection = RespConnection {
                socket,
                session,
                input: BytesMut::with_capacity(READ_BYTES),
                memory: ConnectionMemory { _connection: admitted.memory, buffers: self.memory.empty_grant() },
                budget: self.memory.clone(),
                login: Some(admitted.login),
                config: self.config,
            };
            match connection.serve(admitted.shutdown).await {
                Ok(()) => {}
                Err(CloseReason::Slow(limit)) => {
                    self.shared.closed.tell(admitted.peer, &ClosedFor::UnreadReplies(limit));
                }
                Err(full @ CloseReason::Full(_)) => {
                    self.shared.statistics.rejected_connections.fetch_add(1, Relaxed);
                    tracing::debug!(peer = %admitted.peer, why = %full, "redis: connection closed");
                }
                Err(end) => tracing::debug!(peer = %admitted.peer, why = %end, "redis: connection closed"),
            }
        }
    }

    async fn turn_away(self: Arc<Self>, mut socket: TransportStream, _: SocketAddr, _: Shutdown, refusal: Refusal) {
        self.shared.statistics.rejected_connections.fetch_add(1, Relaxed);
        // Clients know the text of the others. One that does not take it is closed all the same.
        let text = match refusal {
            Refusal::NotTls => format!("-ERR {refusal}\r\n"),
            Refusal::NoMemory { .. } | Refusal::LoginsPending { .. } => clients_reached(&refusal),
        };
        let _ = timeout(Duration::from_secs(1), socket.write_all(text.as_bytes())).await;
    }
}

/// The error of a client that there is no room for; clients know how it begins.
fn clients_reached(why: &impl std::fmt::Display) -> String {
    format!("-ERR max number of clients reached: {why}\r\n")
}

/// The reason why the server closes a connection.
#[derive(Debug, thiserror::Error)]
enum CloseReason {
    #[error("{0}")]
    Socket(#[from] std::io::Error),
    #[error(transparent)]
    Full(#[from] ListenerFull),
    #[error("the client did not read its replies for {} s", .0.as_secs())]
    Slow(Duration),
    #[error("the client was killed while it did not read")]
    Killed,
    #[error(
        "the client sent {bytes} bytes of requests without an answer; store.redis.request_max_bytes is {max_bytes}"
    )]
    RequestTooLong { bytes: usize, max_bytes: u64 },
    #[error(
        "there is no memory for {bytes} bytes of requests, replies and subscriptions, or its tenant has its share in use"
    )]
    NoMemory { bytes: u64 },
}

/// The memory of a connection.
struct ConnectionMemory {
    /// [`CONNECTION_BYTES`], from the listener.
    _connection: Grant,
    /// The bytes of buffers and subscriptions beyond it: from the client's tenant, once it has logged in.
    buffers: Grant,
}

impl ConnectionMemory {
    /// Takes memory for buffers and subscriptions of `bytes`, or gives it back.
    fn set(&mut self, bytes: u64) -> Result<(), CloseReason> {
        let fits = self.buffers.resize(bytes.saturating_sub(CONNECTION_BYTES));
        if fits { Ok(()) } else { Err(CloseReason::NoMemory { bytes }) }
    }

    /// Takes the memory from `budget` from now on.
    fn draw_on(&mut self, budget: &MemoryBudget) -> Result<(), CloseReason> {
        let bytes = self.buffers.bytes();
        self.buffers = budget.take(bytes).ok_or(CloseReason::NoMemory { bytes })?;
        Ok(())
    }
}

struct RespConnection {
    socket: TransportStream,
    session: RespSession,
    input: BytesMut,
    memory: ConnectionMemory,
    budget: MemoryBudget,
    /// The login that is still to come.
    login: Option<PendingLogin>,
    config: ListenerConfig,
}

impl RespConnection {
    async fn serve(mut self, shutdown: Shutdown) -> Result<(), CloseReason> {
        let mut stopping = std::pin::pin!(shutdown.begun());
        let mut has_heard = false;
        loop {
            // Where nobody has to log in, the first request stands for it.
            if has_heard {
                self.enter().await?;
            }
            let progress = self.session.process(&mut self.input).await;
            if has_heard {
                self.enter().await?;
            }
            let long = self.session.take_messages();
            self.write(long).await?;
            match progress {
                SessionProgress::Close => {
                    // The client may still be sending: it shall read the last reply before it learns of the end.
                    return Ok(self.socket.shutdown().await?);
                }
                _ if !self.session.is_alive() => return Ok(()),
                SessionProgress::Write => continue,
                SessionProgress::Read => {}
            }
            self.make_room()?;
            let woken = self.session.woken();
            tokio::select! {
                biased;
                () = stopping.as_mut() => return Ok(()),
                // Before messages: a client that is sent one after the other is heard, too.
                read = self.socket.read_buf(&mut self.input) => match read? {
                    0 => return Ok(()),
                    bytes => {
                        has_heard = true;
                        self.session.count_bytes(bytes, 0);
                    }
                },
                () = woken => {}
            }
        }
    }

    /// Counts the connection for the tenant of its user. One that the listener has no room for is told so, behind the replies to
    /// what it has asked already, and closed.
    async fn enter(&mut self) -> Result<(), CloseReason> {
        let (Some(login), Some(tenant)) = (&self.login, self.session.tenant()) else { return Ok(()) };
        let Err(full) = login.succeeded(&tenant) else {
            self.login = None;
            return self.memory.draw_on(&self.budget.for_tenant(&tenant));
        };
        self.session.output().extend_from_slice(clients_reached(&full).as_bytes());
        self.write(None).await?;
        self.socket.shutdown().await?;
        Err(full.into())
    }

    /// Sends the output of the session, and a long payload behind it.
    async fn write(&mut self, long: Option<Bytes>) -> Result<(), CloseReason> {
        if self.session.output().is_empty() {
            return Ok(());
        }
        let output = std::mem::take(self.session.output());
        self.memory.set((self.input.capacity() + output.capacity() + self.session.held_bytes()) as u64)?;
        self.send(&output).await?;
        if let Some(payload) = long {
            self.send(&payload).await?;
        }
        if output.capacity() <= KEPT_BUFFER_BYTES && self.session.output().is_empty() {
            let mut output = output;
            output.clear();
            *self.session.output() = output;
        }
        Ok(())
    }

    /// Sends bytes. A client that is killed meanwhile is not waited for.
    async fn send(&mut self, bytes: &[u8]) -> Result<(), CloseReason> {
        let limit = self.config.write_timeout;
        let killed = self.session.killed();
        tokio::select! {
            biased;
            sent = timeout(limit, self.socket.write_all(bytes)) => sent.map_err(|_| CloseReason::Slow(limit))??,
            () = killed => return Err(CloseReason::Killed),
        }
        self.session.count_bytes(0, bytes.len());
        Ok(())
    }

    /// Makes room for the next read, within what a connection may take.
    fn make_room(&mut self) -> Result<(), CloseReason> {
        let max_bytes = self.config.request_max_bytes.saturating_add(READ_BYTES as u64);
        if self.input.len() as u64 > max_bytes {
            return Err(CloseReason::RequestTooLong {
                bytes: self.input.len(),
                max_bytes: self.config.request_max_bytes,
            });
        }
        if self.input.is_empty() && self.input.capacity() > KEPT_BUFFER_BYTES {
            self.input = BytesMut::new();
        }
        self.input.reserve(READ_BYTES);
        let held = self.session.held_bytes();
        self.memory.set((self.input.capacity() + self.session.output().capacity() + held) as u64)
    }
}
