//! The HTTP listener, its limits, and its answer to a connection over the limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_net::{
    Admitted, ApplicationProtocol, BindError, ConnectionLimits, Endpoints, LoginTimeout, Metrics, Protocol, Refusal,
    Serving, TransportStream,
};
use millstream_types::{AuditTrail, ErrorCode, MemoryBudget};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::audit::ListenerAudit;
use crate::context::{ConnectionPeer, Shutdown};
use crate::memory::{CONNECTION_BYTES, no_memory};
use crate::pipeline::Pipeline;
use crate::{Api, Authenticator, Error, ListenerLimits, Problem, Reason, connection};

/// Time that a refused client has to read the refusal.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Bound addresses that do not accept connections yet.
pub struct Listener {
    listener: millstream_net::Listener,
    authenticator: Arc<dyn Authenticator>,
    limits: ListenerLimits,
    memory: Option<MemoryBudget>,
    audit: Option<ListenerAudit>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.listener.fmt(f)
    }
}

impl Listener {
    /// Binds the addresses; port 0 takes any free port.
    ///
    /// # Errors
    /// [`Error::OpenToTheNetwork`] if callers need not prove who they are and an address is not loopback;
    /// [`Error::Bind`] if the system refuses.
    pub async fn bind(
        name: &'static str,
        endpoints: Endpoints,
        authenticator: Arc<dyn Authenticator>,
        limits: ListenerLimits,
    ) -> Result<Self, Error> {
        let endpoints = endpoints.speaking(ApplicationProtocol::Http1);
        if let Some((remedy, address)) = authenticator.open_remedy().zip(endpoints.exposed()) {
            return Err(Error::OpenToTheNetwork { listener: name, address, remedy });
        }
        let bind = |BindError { address, source }| Error::Bind { listener: name, address, source };
        let listener = millstream_net::Listener::bind(name, endpoints).map_err(bind)?;
        Ok(Self { listener, authenticator, limits, memory: None, audit: None })
    }

    /// The plain address, or else the one with TLS, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Takes the memory of connections, bodies and large answers from `memory` while they last; a request that does not
    /// fit is answered 503. A body of unknown length counts as its route's limit.
    #[must_use]
    pub fn drawing_on(mut self, memory: &MemoryBudget) -> Self {
        self.memory = Some(memory.clone());
        self
    }

    /// Keeps requests of administration in `trail`, as those of the listener `name`.
    #[must_use]
    pub fn audited_by(mut self, name: &'static str, trail: Arc<dyn AuditTrail>) -> Self {
        self.audit = Some(ListenerAudit { trail, listener: name });
        self
    }

    /// Starts to accept connections on the bound address.
    ///
    /// # Panics
    /// If a listener of the same name counts into the same metrics.
    pub fn serve(self, api: Arc<Api>, metrics: &Metrics) -> Serving {
        let Self { listener, authenticator, limits, memory, audit } = self;
        let budget = memory.clone().unwrap_or_else(|| MemoryBudget::new("memory.budget_bytes", u64::MAX));
        let connection_limits = ConnectionLimits {
            connections_max: limits.connections_max,
            setting: "http.connections_max",
            connection_bytes: CONNECTION_BYTES,
            memory: budget,
            login_timeout: LoginTimeout { setting: "http.head_timeout_ms", limit_ms: limits.head_timeout_ms },
        };
        let shutdown = Shutdown::of_listener(listener.shutdown().clone());
        let pipeline = Pipeline { api, authenticator, limits, memory, audit, shutdown };
        listener.serve(Arc::new(pipeline), connection_limits, metrics).0
    }
}

impl Protocol for Pipeline {
    async fn serve(self: Arc<Self>, socket: TransportStream, admitted: Admitted) {
        let Admitted { peer, memory, tls, login, .. } = admitted;
        connection::serve(socket, ConnectionPeer { peer, tls, login }, self).await;
        drop(memory);
    }

    async fn turn_away(
        self: Arc<Self>,
        socket: TransportStream,
        _: SocketAddr,
        _: millstream_net::Shutdown,
        refusal: Refusal,
    ) {
        let problem = match refusal {
            Refusal::LoginsPending { max } => Problem::new(
                Reason::Code(ErrorCode::Overloaded),
                "too many connections have not made a request yet",
            )
            .value(max)
            .rule("a quarter of http.connections_max, and one for each 512 KiB of memory.budget_bytes, at the most")
            .remedy("try again later, or raise the limit"),
            Refusal::NoMemory { bytes, budget } => no_memory("a connection", bytes, &budget),
            Refusal::NotTls => Problem::invalid("the request came without TLS")
                .value("http")
                .rule("this port takes HTTPS only")
                .remedy("use https:// in the URL"),
        };
        // A peer that does not read in time loses the text.
        let _ = timeout(FAREWELL_TIMEOUT, refuse(socket, &problem)).await;
    }
}

/// Sends the refusal, then reads until the peer has closed. Closing first could reset the connection before
/// the peer reads the text.
async fn refuse(mut socket: TransportStream, problem: &Problem) -> std::io::Result<()> {
    socket.write_all(problem.closing_answer().as_bytes()).await?;
    socket.shutdown().await?;
    let mut rest = [0; 4096];
    while socket.read(&mut rest).await? > 0 {}
    Ok(())
}
