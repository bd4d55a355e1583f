//! The listener of Kafka clients, and the timers of groups and transactions, which run as long as it does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::KafkaLog;
use millstream_net::{
    Admitted, BindError, BoundAddresses, ConnectionLimits, Endpoints, LoginTimeout, Metrics, Protocol, Refusal,
    Shutdown, TransportStream,
};
use millstream_net::{LoginThrottle, Logins};
use millstream_types::{AuditTrail, MemoryBudget, Quotas};
use tokio::task::JoinSet;

use crate::broker::{Broker, SharedResources};
use crate::dispatch::ApiTable;
use crate::request_context::{ClientConnection, ReachedAddress};
use crate::{Error, KafkaConfig, connection};

/// Memory that an idle connection counts for: its read buffer and its state.
const CONNECTION_BYTES: u64 = 24 << 10;

/// Bound addresses that are not served yet.
#[derive(Debug)]
pub struct Listener {
    listener: millstream_net::Listener,
    config: KafkaConfig,
    resources: SharedResources,
}

impl Listener {
    /// Binds the addresses without logins: every client may do everything. Port 0 takes any free port.
    ///
    /// # Errors
    /// As [`Listener::bind_with`]; [`Error::OpenToTheNetwork`] if an address is not loopback.
    pub async fn bind(endpoints: Endpoints, config: KafkaConfig) -> Result<Self, Error> {
        Self::bind_with(endpoints, config, None).await
    }

    /// Binds the addresses, where clients log in by SASL if `logins` are required, and each request takes a role.
    ///
    /// # Errors
    /// [`Error::OpenToTheNetwork`] if an address is not loopback and no logins are required; [`Error::InvalidSetting`];
    /// [`Error::Bind`] if the system refuses.
    pub async fn bind_with(
        endpoints: Endpoints,
        config: KafkaConfig,
        logins: Option<Arc<dyn Logins>>,
    ) -> Result<Self, Error> {
        config.validate()?;
        let is_open = logins.as_ref().is_none_or(|logins| logins.open_access().is_some());
        if let Some(address) = endpoints.exposed().filter(|_| is_open) {
            return Err(Error::OpenToTheNetwork { address });
        }
        let bind = |BindError { address, source }| Error::Bind { address, source };
        let listener = millstream_net::Listener::bind("kafka", endpoints).map_err(bind)?;
        Ok(Self { listener, config, resources: SharedResources { logins, ..SharedResources::default() } })
    }

    /// The plain address, or else the one with TLS, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Counts what clients write and read for `quotas`; else there are no limits.
    #[must_use]
    pub fn limited_by(self, quotas: Arc<Quotas>) -> Self {
        Self { resources: SharedResources { quotas, ..self.resources }, ..self }
    }

    /// Counts failed logins in `throttle`, which limits those of each client address; without it there is no limit.
    #[must_use]
    pub fn throttled_by(self, throttle: Arc<LoginThrottle>) -> Self {
        Self { resources: SharedResources { throttle, ..self.resources }, ..self }
    }

    /// Keeps changes of topics in `trail`.
    #[must_use]
    pub fn audited_by(self, trail: Arc<dyn AuditTrail>) -> Self {
        Self { resources: SharedResources { audit: Some(trail), ..self.resources }, ..self }
    }

    /// Takes memory for connections and fetched records from `memory`; without it there is no limit. The caller reserves the
    /// memory of the requests themselves, `kafka.requests_max_bytes`.
    #[must_use]
    pub fn drawing_on(self, memory: &MemoryBudget) -> Self {
        Self { resources: SharedResources { memory: memory.clone(), ..self.resources }, ..self }
    }

    /// Starts to serve `log`. Connections are accepted once the log's transactions are loaded.
    ///
    /// # Panics
    /// If another listener for Kafka counts into the same metrics.
    pub async fn serve(self, log: Arc<dyn KafkaLog>, metrics: &Metrics) -> Serving {
        let Self { listener, config, resources } = self;
        let limits = ConnectionLimits {
            connections_max: config.connections_max,
            setting: "kafka.connections_max",
            connection_bytes: CONNECTION_BYTES,
            memory: resources.memory.clone(),
            login_timeout: LoginTimeout { setting: "kafka.login_timeout_ms", limit_ms: config.login_timeout_ms },
        };
        let shutdown = listener.shutdown().clone();
        let apis = Arc::new(ApiTable::new());
        let broker = Broker::new(log, config, resources, apis.supported(), shutdown.clone());
        broker.transactions.load().await;
        let mut timers = JoinSet::new();
        timers.spawn(Arc::clone(&broker.groups).run());
        timers.spawn(Arc::clone(&broker.transactions).run());
        let groups = Arc::clone(&broker.groups);
        timers.spawn(async move {
            shutdown.begun().await;
            // Clients that wait for a rebalance would wait until the drain is over.
            groups.stop();
        });
        let (serving, _) = listener.serve(Arc::new(KafkaProtocol { broker, apis }), limits, metrics);
        Serving { serving, _timers: timers }
    }
}

/// A listener that accepts connections. Dropping it aborts them.
#[derive(Debug)]
pub struct Serving {
    serving: millstream_net::Serving,
    _timers: JoinSet<()>,
}

impl Serving {
    /// The plain address, or else the one with TLS, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// All addresses, with their real ports.
    pub fn addresses(&self) -> BoundAddresses {
        self.serving.addresses()
    }

    /// Stops accepting connections and requests, lets running requests finish for at most `drain`, then aborts the remaining
    /// connections. Returns the number of connections that were aborted.
    pub async fn shut_down(self, drain: Duration) -> usize {
        self.serving.shut_down(drain).await
    }
}

/// Serves each connection that the listener admits.
struct KafkaProtocol {
    broker: Arc<Broker>,
    apis: Arc<ApiTable>,
}

impl Protocol for KafkaProtocol {
    fn serve(
        self: Arc<Self>,
        socket: TransportStream,
        Admitted { peer, memory, login, .. }: Admitted,
    ) -> impl Future<Output = ()> + Send {
        // A connection without a local address is closed already.
        let connection = socket.local_addr().map(|local| {
            let server_name = socket.server_name().map(str::to_owned);
            let reached = ReachedAddress { address: local, is_tls: socket.is_tls(), server_name };
            Arc::new(ClientConnection::new(peer, reached, login, &self.broker))
        });
        async move {
            let Ok(connection) = connection else { return };
            let (broker, apis) = (Arc::clone(&self.broker), Arc::clone(&self.apis));
            if let Err(fault) = connection::serve(socket, connection, broker, apis, memory).await {
                tracing::warn!(%peer, why = %fault, "kafka: connection closed");
            }
        }
    }

    /// Closes the connection: Kafka's protocol has no answer without a request.
    async fn turn_away(self: Arc<Self>, _: TransportStream, peer: SocketAddr, _: Shutdown, refusal: Refusal) {
        tracing::warn!(%peer, why = %refusal, "kafka: closed at once");
    }
}
