//! The state that all connections share.

use std::sync::Arc;
use std::time::Duration;

use millstream_net::{Login, LoginThrottle, Logins};
use millstream_types::{MemoryBudget, Role, TopicKind, WallClock};

use super::AmqpConfig;
use super::address::StreamAddress;
use super::stream_queues::StreamQueues;
use crate::registry::Registry;
use crate::streams::Streams;

/// The dependencies from which [`AmqpAdapter`] is built.
#[derive(Clone)]
pub(crate) struct AmqpParts {
    pub(crate) registry: Registry,
    pub(crate) streams: Arc<Streams>,
    pub(crate) throttle: Arc<LoginThrottle>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) config: AmqpConfig,
}

/// The state that all connections share.
pub(crate) struct AmqpAdapter {
    pub(super) registry: Registry,
    pub(super) streams: Arc<Streams>,
    pub(super) throttle: Arc<LoginThrottle>,
    pub(super) wall: Arc<dyn WallClock>,
    pub(super) logins: Arc<dyn Logins>,
    pub(super) config: AmqpConfig,
    pub(super) queues: StreamQueues,
    /// Room for frames that have arrived in part.
    pub(super) buffers: MemoryBudget,
}

impl AmqpAdapter {
    pub(crate) fn new(parts: AmqpParts, logins: Arc<dyn Logins>, memory: &MemoryBudget) -> Arc<Self> {
        let AmqpParts { registry, streams, throttle, wall, config } = parts;
        let buffers = memory.share("connect.amqp.buffers_max_bytes", config.buffers_max_bytes as u64);
        Arc::new(Self { registry, streams, throttle, wall, logins, config, queues: StreamQueues::default(), buffers })
    }

    /// Time for a client to read what is sent to it.
    pub(super) fn write_limit(&self) -> Duration {
        Duration::from_millis(self.config.write_timeout_ms)
    }

    /// True if the tenant is registered.
    pub(super) fn knows(&self, address: &StreamAddress) -> bool {
        let snapshot = self.registry.snapshot(&address.tenant);
        snapshot.state.tenant(&address.tenant).is_some_and(|known| known.tenant.is_some())
    }

    /// True if the application may receive the stream.
    pub(super) fn may_receive(&self, login: &Login, address: &StreamAddress) -> bool {
        let principal = &login.principal;
        let is_its_tenant = login.in_every_tenant || principal.tenant == address.tenant;
        let is_public = matches!(address.kind, TopicKind::Telemetry | TopicKind::Event | TopicKind::CommandResponse);
        let topic = address.topic().to_string();
        is_public && is_its_tenant && principal.roles.has(Role::Reader) && principal.scope.has_topic(&topic)
    }
}
