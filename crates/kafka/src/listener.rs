//! The listener: an address, how many may come in, and an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::Log;
use millstream_types::{Epoch, MemoryBudget, Quotas, with_room};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::login::Logins;
use crate::node::{Node, Shared};
use crate::{Error, KafkaConfig, connection};

/// After a failed accept (no file descriptor left, for example) the listener rests this long.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// What a connection counts as while it sends little: its read buffer and its state.
const CONNECTION_BYTES: u64 = 24 << 10;

/// A bound address that does not serve yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    config: KafkaConfig,
    shared: Shared,
}

impl Listener {
    /// Binds `address`, where everybody may do everything; port 0 takes any free port.
    ///
    /// # Errors
    /// As [`Listener::bind_with`]; [`Error::OpenToTheNetwork`] if the address is not loopback.
    pub async fn bind(address: SocketAddr, config: KafkaConfig) -> Result<Self, Error> {
        Self::bind_with(address, config, None).await
    }

    /// Binds `address`, where clients log in by SASL/PLAIN if there are `logins`, and each request takes a role.
    ///
    /// # Errors
    /// [`Error::OpenToTheNetwork`] if the address is not loopback and there are no logins; [`Error::InvalidSetting`]; [`Error::Bind`] if the
    /// system refuses.
    pub async fn bind_with(
        address: SocketAddr,
        config: KafkaConfig,
        logins: Option<Arc<dyn Logins>>,
    ) -> Result<Self, Error> {
        config.validate()?;
        if logins.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(Error::OpenToTheNetwork { address });
        }
        let bind = |source| Error::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        Ok(Self { socket, address, config, shared: Shared { logins, ..Shared::default() } })
    }

    /// The address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counts what clients write and read for `quotas`; else there are no limits.
    #[must_use]
    pub fn limited_by(self, quotas: Arc<Quotas>) -> Self {
        Self { shared: Shared { quotas, ..self.shared }, ..self }
    }

    /// Lets connections and what is fetched take from `memory`; else there is no limit. The requests themselves,
    /// `kafka.requests_max_bytes`, are for the caller to set aside.
    #[must_use]
    pub fn drawing_on(self, memory: &MemoryBudget) -> Self {
        Self { shared: Shared { memory: memory.clone(), ..self.shared }, ..self }
    }

    /// Starts to serve `log`, whose present epoch is `epoch`: producer ids are made of it.
    pub fn serve(self, log: Arc<dyn Log>, epoch: Epoch) -> Serving {
        let Self { socket, address, config, shared } = self;
        let (stop, stopping) = watch::channel(false);
        let (drain, drained_for) = oneshot::channel();
        let node = Node::new(log, epoch, config, shared, stopping);
        tracing::info!(listener = "kafka", %address, "listening");
        let accepting = tokio::spawn(accept(socket, node, drained_for));
        Serving { address, stop, drain, accepting }
    }
}

/// A listener at work.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    drain: oneshot::Sender<Duration>,
    accepting: JoinHandle<usize>,
}

impl Serving {
    /// The address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more and takes no more requests, lets those under way finish for at most `drain`, then closes what is
    /// left. Returns how many connections had to be cut off.
    pub async fn shut_down(self, drain: Duration) -> usize {
        self.stop.send_replace(true);
        // The accepting task waits for it: it can only have ended by a panic, which has been reported.
        let _ = self.drain.send(drain);
        let cut_off = self.accepting.await.unwrap_or_default();
        tracing::info!(listener = "kafka", cut_off, "listener closed");
        cut_off
    }
}

async fn accept(socket: TcpListener, node: Arc<Node>, mut drain: oneshot::Receiver<Duration>) -> usize {
    let mut connections = JoinSet::new();
    let group_timer = tokio::spawn(Arc::clone(&node.groups).run());
    node.transactions.load().await;
    let transaction_timer = tokio::spawn(Arc::clone(&node.transactions).run());
    let drain = loop {
        tokio::select! {
            biased;
            drain = &mut drain => break drain.unwrap_or_default(),
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = socket.accept() => match accepted.and_then(with_room) {
                Ok((socket, peer)) => admit(socket, peer, &node, &mut connections),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_REST).await;
                }
            },
        }
    };
    drop(socket);
    // Whoever waits for a rebalance would wait out the drain.
    node.groups.stop();
    let ended = timeout(drain, async { while connections.join_next().await.is_some() {} }).await;
    let cut_off = if ended.is_ok() { 0 } else { connections.len() };
    connections.shutdown().await;
    group_timer.abort();
    transaction_timer.abort();
    cut_off
}

fn admit(socket: TcpStream, peer: SocketAddr, node: &Arc<Node>, connections: &mut JoinSet<()>) {
    let limit = node.config.connections_max;
    if connections.len() >= limit {
        tracing::warn!(%peer, "kafka: closed at once, as there are kafka.connections_max = {limit} connections already");
        return;
    }
    let Some(memory) = node.memory.take(CONNECTION_BYTES) else {
        let (setting, limit) = (node.memory.setting(), node.memory.limit_bytes());
        tracing::warn!(%peer, "kafka: closed at once, as {setting} = {limit} has no room for a connection");
        return;
    };
    let node = Arc::clone(node);
    connections.spawn(async move {
        if let Err(fault) = connection::serve(socket, node, memory).await {
            tracing::warn!(%peer, why = %fault, "kafka: connection closed");
        }
    });
}
