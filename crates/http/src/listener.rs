//! A listener: an address, who may come in, how many, and an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_types::{ErrorCode, Grant, MemoryBudget, with_room};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::context::{Shutdown, Stage};
use crate::memory::{CONNECTION_BYTES, no_memory};
use crate::metrics::{Counter, Gauge, Metrics};
use crate::rim::Rim;
use crate::{Api, Authenticator, Error, Problem, Reason, connection};

/// How many refused connections at most are told why before they are closed; more are just closed.
const FAREWELLS_MAX: usize = 64;
/// How long a refused connection may take to read that.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// After a failed accept (no file descriptor left, for example) the listener rests this long.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Connections that may wait for being accepted.
const WAITING_MAX: u32 = 8_192;

/// What a listener's connections may cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerLimits {
    /// Connections at a time; more are answered 503 and closed. Default 20,000.
    pub connections_max: usize,
    /// Time for a request's head to arrive, and for a peer that reads nothing of its answer, ms. Default 10,000.
    pub head_timeout_ms: u64,
    /// Time a connection may rest between requests, ms. Default 75,000.
    pub idle_timeout_ms: u64,
    /// Largest sum of header names and values of a request. Default 16 KiB.
    pub head_max_bytes: usize,
    /// Longest request target. Default 8 KiB.
    pub uri_max_bytes: usize,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            head_timeout_ms: 10_000,
            idle_timeout_ms: 75_000,
            head_max_bytes: 16 * 1024,
            uri_max_bytes: 8 * 1024,
        }
    }
}

impl ListenerLimits {
    pub(crate) fn head_timeout(&self) -> Duration {
        Duration::from_millis(self.head_timeout_ms.max(1))
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms.max(1))
    }

    /// Room for a head that is a little over its limits, so that the refusal can say by how much; beyond it the
    /// connection is refused without a body (431).
    pub(crate) fn buffer_max_bytes(&self) -> usize {
        (2 * (self.head_max_bytes + self.uri_max_bytes)).max(64 * 1024)
    }
}

/// Listens on `address`; port 0 takes any free port. Thousands that come at once find room to wait for being accepted (as
/// many as the system allows, `net.core.somaxconn`); whoever finds none is not refused but tries again after a second.
///
/// # Errors
/// Those of the system.
///
/// # Panics
/// Outside of an async runtime.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A port is free as soon as its listener has gone, whatever its connections are still about.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
}

/// A bound address that does not serve yet.
pub struct Listener {
    name: &'static str,
    socket: TcpListener,
    address: SocketAddr,
    authenticator: Arc<dyn Authenticator>,
    limits: ListenerLimits,
    memory: Option<MemoryBudget>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({} on {})", self.name, self.address)
    }
}

impl Listener {
    /// Binds `address`; port 0 takes any free port.
    ///
    /// # Errors
    /// [`Error::OpenToTheNetwork`] if callers need not prove who they are and the address is not loopback;
    /// [`Error::Bind`] if the system refuses.
    pub async fn bind(
        name: &'static str,
        address: SocketAddr,
        authenticator: Arc<dyn Authenticator>,
        limits: ListenerLimits,
    ) -> Result<Self, Error> {
        if let Some(remedy) = authenticator.open_remedy().filter(|_| !address.ip().to_canonical().is_loopback()) {
            return Err(Error::OpenToTheNetwork { listener: name, address, remedy });
        }
        let bind = |source| Error::Bind { listener: name, address, source };
        let socket = listen(address).map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        Ok(Self { name, socket, address, authenticator, limits, memory: None })
    }

    /// The address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes from `memory` what connections, bodies and large answers need, as long as they need it; one that does not
    /// fit is answered 503. A body that does not announce its length counts as much as its route allows.
    #[must_use]
    pub fn drawing_on(mut self, memory: &MemoryBudget) -> Self {
        self.memory = Some(memory.clone());
        self
    }

    /// Starts to serve.
    ///
    /// # Panics
    /// If a listener of the same name counts into the same metrics.
    pub fn serve(self, api: Arc<Api>, metrics: &Metrics) -> Serving {
        let (stage, stages) = watch::channel(Stage::Serving);
        let labels = [("listener", self.name)];
        let connections = Arc::new(Connections {
            live: AtomicUsize::new(0),
            ended: Notify::new(),
            gauge: metrics.gauge("millstream_http_connections", "Open connections.", &labels),
            refused: metrics.counter(
                "millstream_http_connections_refused_total",
                "Connections for which there was no room.",
                &labels,
            ),
            farewells: Arc::new(Semaphore::new(FAREWELLS_MAX)),
        });
        let Self { name, socket, address, authenticator, limits, memory } = self;
        let rim = Arc::new(Rim { api, authenticator, limits, memory, shutdown: Shutdown(stages.clone()) });
        tracing::info!(listener = name, %address, "listening");
        let accepting = tokio::spawn(accept(socket, rim, connections.clone(), stages));
        Serving { name, address, stage, connections, accepting }
    }
}

/// A listener at work. Dropping it ends its connections at once; [`Serving::shut_down`] does so in order.
#[derive(Debug)]
pub struct Serving {
    name: &'static str,
    address: SocketAddr,
    stage: watch::Sender<Stage>,
    connections: Arc<Connections>,
    accepting: JoinHandle<()>,
}

impl Serving {
    /// The address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.connections.live.load(Ordering::Relaxed)
    }

    /// Accepts no more, lets running requests finish for at most `drain`, then closes what is left.
    /// Returns how many connections had to be cut off.
    pub async fn shut_down(self, drain: Duration) -> usize {
        self.stage.send_replace(Stage::Draining);
        // The task ends by itself at this stage; it could only fail by a panic, which has been reported.
        let _ = self.accepting.await;
        let drained = timeout_at(Instant::now() + drain, self.connections.none_left()).await;
        let cut_off = if drained.is_ok() { 0 } else { self.connections.live.load(Ordering::Relaxed) };
        self.stage.send_replace(Stage::Closing);
        self.connections.none_left().await;
        tracing::info!(listener = self.name, cut_off, "listener closed");
        cut_off
    }
}

/// All connections of a listener.
#[derive(Debug)]
struct Connections {
    live: AtomicUsize,
    ended: Notify,
    gauge: Gauge,
    refused: Counter,
    farewells: Arc<Semaphore>,
}

impl Connections {
    /// Counts one more; `None` at the limit. Only the accepting task calls this.
    fn enter(self: &Arc<Self>, limit: usize) -> Option<Presence> {
        if self.live.load(Ordering::Relaxed) >= limit {
            return None;
        }
        self.live.fetch_add(1, Ordering::Relaxed);
        self.gauge.inc();
        Some(Presence(self.clone()))
    }

    async fn none_left(&self) {
        loop {
            let ended = self.ended.notified();
            if self.live.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// One connection that counts; ends with its task, however that ends.
struct Presence(Arc<Connections>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.gauge.dec();
        if self.0.live.fetch_sub(1, Ordering::Release) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

async fn accept(socket: TcpListener, rim: Arc<Rim>, connections: Arc<Connections>, stages: watch::Receiver<Stage>) {
    let mut stopping = std::pin::pin!(rim.shutdown.clone().begun());
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopping.as_mut() => return,
            accepted = socket.accept() => accepted,
        };
        match accepted.and_then(with_room) {
            Ok((socket, peer)) => admit(socket, peer, &rim, &connections, &stages),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_REST).await;
            }
        }
    }
}

fn admit(
    socket: TcpStream,
    peer: SocketAddr,
    rim: &Arc<Rim>,
    connections: &Arc<Connections>,
    stages: &watch::Receiver<Stage>,
) {
    let (presence, memory) = match enter(rim, connections) {
        Ok(entered) => entered,
        Err(problem) => return dismiss(socket, problem, connections),
    };
    // Without it small answers wait for the peer's delayed acknowledgement. A socket that refuses it is about to fail.
    let _ = socket.set_nodelay(true);
    let (rim, stages) = (rim.clone(), stages.clone());
    tokio::spawn(async move {
        connection::serve(socket, peer, rim, stages).await;
        drop((presence, memory));
    });
}

/// Counts a connection, and takes the memory that it needs whatever it does.
fn enter(rim: &Rim, connections: &Arc<Connections>) -> Result<(Presence, Option<Grant>), Problem> {
    let limit = rim.limits.connections_max;
    let presence = connections.enter(limit).ok_or_else(|| {
        Problem::new(Reason::Code(ErrorCode::Overloaded), "this listener has no room for another connection")
            .value(limit)
            .rule(format!("http.connections_max = {limit}"))
            .remedy("try again later, or raise the limit")
    })?;
    let Some(memory) = &rim.memory else { return Ok((presence, None)) };
    let grant = memory.take(CONNECTION_BYTES).ok_or_else(|| no_memory("a connection", CONNECTION_BYTES, memory))?;
    Ok((presence, Some(grant)))
}

/// Closes a connection that cannot be, and says why if not too many others hear so.
fn dismiss(socket: TcpStream, problem: Problem, connections: &Connections) {
    connections.refused.inc();
    if let Ok(permit) = connections.farewells.clone().try_acquire_owned() {
        tokio::spawn(async move {
            // Whether the refused peer reads it is its own affair.
            let _ = timeout(FAREWELL_TIMEOUT, refuse(socket, &problem)).await;
            drop(permit);
        });
    }
}

/// Says why, then reads until the peer has closed: closing first could reset the connection before the text is read.
async fn refuse(mut socket: TcpStream, problem: &Problem) -> std::io::Result<()> {
    socket.write_all(farewell(problem).as_bytes()).await?;
    socket.shutdown().await?;
    let mut rest = [0; 4096];
    while socket.read(&mut rest).await? > 0 {}
    Ok(())
}

/// A whole answer 503 that ends its connection.
pub(crate) fn farewell(problem: &Problem) -> String {
    let body = problem.json();
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\nconnection: close";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
