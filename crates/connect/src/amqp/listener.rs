//! The listener of AMQP 1.0.

use std::net::SocketAddr;
use std::sync::Arc;

use millstream_net::{
    Admitted, BindError, ConnectionLimits, Endpoints, Listener, LoginTimeout, Metrics, Protocol, Refusal, Serving,
    Shutdown,
};
use millstream_types::MemoryBudget;
use tokio::io::{AsyncRead, AsyncWrite};

use super::adapter::AmqpAdapter;
use super::connection::serve;
use crate::Error;

/// Memory that an idle connection counts for: its state without sessions.
const CONNECTION_BYTES: u64 = 4 << 10;

/// Binds the addresses (port 0 takes any free port) and starts to serve.
pub(crate) fn listen(
    endpoints: Endpoints,
    adapter: Arc<AmqpAdapter>,
    memory: &MemoryBudget,
    metrics: &Metrics,
) -> Result<Serving, Error> {
    if let Some(address) = endpoints.exposed().filter(|_| adapter.logins.open_access().is_some()) {
        return Err(Error::OpenToTheNetwork { address });
    }
    let bind = |BindError { address, source }| Error::Bind { listener: "amqp", address, source: Arc::new(source) };
    let listener = Listener::bind("amqp", endpoints).map_err(bind)?;
    let limits = ConnectionLimits {
        connections_max: adapter.config.connections_max,
        setting: "connect.amqp.connections_max",
        connection_bytes: CONNECTION_BYTES,
        memory: memory.clone(),
        login_timeout: LoginTimeout {
            setting: "connect.amqp.login_timeout_ms",
            limit_ms: adapter.config.login_timeout_ms,
        },
    };
    let (serving, _) = listener.serve(Arc::new(Amqp { adapter }), limits, metrics);
    Ok(serving)
}

/// AMQP over any stream of bytes.
struct Amqp {
    adapter: Arc<AmqpAdapter>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Protocol<S> for Amqp {
    async fn serve(self: Arc<Self>, stream: S, Admitted { peer, shutdown, memory, login, .. }: Admitted) {
        serve(stream, peer, Arc::clone(&self.adapter), shutdown, login).await;
        drop(memory);
    }

    /// Closes the connection: a client is told nothing before it has logged in.
    async fn turn_away(self: Arc<Self>, _: S, peer: SocketAddr, _: Shutdown, refusal: Refusal) {
        tracing::warn!(%peer, why = %refusal, "amqp: closed at once");
    }
}
