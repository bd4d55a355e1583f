//! The state that all connections share.

use std::sync::Arc;
use std::time::Duration;

use millstream_net::{Login, LoginThrottle, Logins};
use millstream_types::{MemoryBudget, Role, TenantId, TopicKind, TopicName, WallClock};

use super::AmqpConfig;
use super::address::StreamAddress;
use super::stream_queues::StreamQueues;
use crate::commands::Commands;
use crate::connection_table::ConnectionTable;
use crate::registry::Registry;
use crate::streams::Streams;

/// Bytes of a command's message beside its payload.
const MESSAGE_HEAD_MAX_BYTES: usize = 16 << 10;

/// The dependencies from which [`AmqpAdapter`] is built.
#[derive(Clone)]
pub(crate) struct AmqpParts {
    pub(crate) registry: Registry,
    pub(crate) streams: Arc<Streams>,
    pub(crate) throttle: Arc<LoginThrottle>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) queues: Arc<StreamQueues>,
    pub(crate) commands: Arc<Commands>,
    /// Largest payload of a command.
    pub(crate) payload_max_bytes: usize,
    pub(crate) config: AmqpConfig,
    pub(crate) connection_table: Arc<ConnectionTable>,
}

/// The state that all connections share.
pub(crate) struct AmqpAdapter {
    pub(super) registry: Registry,
    pub(super) streams: Arc<Streams>,
    pub(super) throttle: Arc<LoginThrottle>,
    pub(super) wall: Arc<dyn WallClock>,
    pub(super) logins: Arc<dyn Logins>,
    pub(super) config: AmqpConfig,
    pub(super) queues: Arc<StreamQueues>,
    pub(super) commands: Arc<Commands>,
    pub(super) payload_max_bytes: usize,
    pub(super) connection_table: Arc<ConnectionTable>,
    /// Room for frames that have arrived in part.
    pub(super) buffers: MemoryBudget,
}

impl AmqpAdapter {
    pub(crate) fn new(parts: AmqpParts, logins: Arc<dyn Logins>, memory: &MemoryBudget) -> Arc<Self> {
        let AmqpParts {
            registry,
            streams,
            throttle,
            wall,
            queues,
            commands,
            payload_max_bytes,
            config,
            connection_table,
        } = parts;
        let buffers = memory.share("connect.amqp.buffers_max_bytes", config.buffers_max_bytes as u64);
        Arc::new(Self {
            registry,
            streams,
            throttle,
            wall,
            logins,
            config,
            queues,
            commands,
            payload_max_bytes,
            connection_table,
            buffers,
        })
    }

    /// Time for a client to read what is sent to it.
    pub(super) fn write_limit(&self) -> Duration {
        Duration::from_millis(self.config.write_timeout_ms)
    }

    /// True if the tenant is registered.
    pub(super) fn knows(&self, tenant: &TenantId) -> bool {
        let snapshot = self.registry.snapshot(tenant);
        snapshot.state.tenant(tenant).is_some_and(|known| known.tenant.is_some())
    }

    /// True if the application may send commands to the tenant's devices.
    pub(super) fn may_command(&self, login: &Login, tenant: &TenantId) -> bool {
        let principal = &login.principal;
        let is_its_tenant = login.in_every_tenant || principal.tenant == *tenant;
        let topic = TopicName::reserved(TopicKind::Command, tenant).to_string();
        is_its_tenant && principal.roles.has(Role::Writer) && principal.scope.has_topic(&topic)
    }

    /// Bytes of the largest message with a command.
    pub(super) fn message_max_bytes(&self) -> usize {
        self.payload_max_bytes + MESSAGE_HEAD_MAX_BYTES
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
