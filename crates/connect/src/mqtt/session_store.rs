//! Stores the private spaces of all tenants beyond a restart, as a view of the state topic `_mqtt`, whose partitions go
//! by tenant. Retained messages are stored by value, sessions by their filters and their progress in the stream.
//!
//! A message that is retained, or sent exactly once into a session that is kept, is appended to the stream together with
//! what is kept of it: both or none.

mod command;
mod record;
mod state;
mod verdict;

use std::sync::Arc;

use millstream_types::{StateTopic, TenantId, TopicName, TopicPartition};
use millstream_view::{DecodeError, Draft, Encoded, Failure, InState, Snapshot, View, ViewRuntime, Views, ViewsConfig};

pub(crate) use command::{Keep, PublishOutcome, SessionCommand, StoreAnswer, StoredPublish, Upstream};
pub(crate) use state::{Progress, SessionChange, SessionRecord, State, StoredFilter, StoredReserved, TenantSessions};
pub(crate) use verdict::StoreReply;

use super::broker::BrokerConfig;

/// Messages and records decided in one append.
const BATCH_MAX_COMMANDS: usize = 64;
/// Bytes of one append. A retained message is stored twice, so that this is room for what one read brings: a packet of the
/// default `connect.mqtt.packet_max_bytes` and some messages more.
const APPEND_MAX_BYTES: usize = 4 << 20;

pub(crate) struct SessionView {
    /// Bytes of retained messages that one tenant may have.
    retained_max_bytes: u64,
}

impl View for SessionView {
    type State = State;
    type Storage = InState;
    type Change = SessionChange;
    type Command = SessionCommand;
    type Answer = StoreAnswer;
    const NAME: &'static str = "mqtt";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: SessionCommand) -> StoreAnswer {
        command::decide(draft, command, self.retained_max_bytes)
    }

    fn owned_bytes(command: &SessionCommand) -> usize {
        command.owned_bytes()
    }

    fn apply(state: &mut State, change: &SessionChange) {
        state.apply(change);
    }

    fn encode(change: &SessionChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        record::encode(change, key, value)
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<SessionChange, DecodeError> {
        record::decode(key, value)
    }
}

/// The store of sessions and retained messages of all tenants.
#[derive(Clone)]
pub(crate) struct SessionStore(Arc<Views<SessionView>>);

/// The store, bound to one tenant.
#[derive(Clone)]
pub(crate) struct TenantStore {
    store: SessionStore,
    pub(crate) tenant: TenantId,
    /// The stream of the tenant's messages.
    pub(crate) stream: TopicPartition,
}

impl SessionStore {
    /// Opens the view and rebuilds its state.
    pub(crate) fn open(runtime: &ViewRuntime, config: &BrokerConfig) -> Result<Self, millstream_view::Error> {
        let views = ViewsConfig {
            partitions: config.state_partitions,
            batch_max_commands: BATCH_MAX_COMMANDS,
            append_max_bytes: APPEND_MAX_BYTES,
            dirty_max_bytes: config.state_dirty_max_bytes,
            inbox_max_bytes: config.state_inbox_max_bytes,
            inbox_setting: "connect.mqtt.broker.state_inbox_max_bytes",
            ..ViewsConfig::default()
        };
        let view = SessionView { retained_max_bytes: config.retained_max_bytes };
        Views::open(view, &TopicName::internal(StateTopic::Mqtt), &views, runtime).map(Self)
    }

    /// The store of `tenant`, whose stream is `stream`.
    pub(crate) fn of(&self, tenant: &TenantId, stream: &TopicPartition) -> TenantStore {
        TenantStore { store: self.clone(), tenant: tenant.clone(), stream: stream.clone() }
    }

    /// The states of all owners, as they are now.
    pub(crate) fn snapshots(&self) -> Vec<Arc<Snapshot<SessionView>>> {
        self.0.snapshots()
    }

    /// Hands a command to the owner of `tenant` and waits until it is durable.
    pub(crate) async fn ask(
        &self,
        tenant: &TenantId,
        command: SessionCommand,
    ) -> Result<StoreAnswer, millstream_view::Error> {
        self.0.ask(self.0.partition_of(tenant.as_str().as_bytes()), command).await
    }

    /// Failures of the view that last until a restart.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.0.failures()
    }

    /// Takes no more, answers what was taken, writes the checkpoint.
    pub(crate) fn stop(&self) {
        self.0.stop();
    }
}

impl TenantStore {
    /// Hands a command to the tenant's owner; the answer comes once it is durable.
    pub(crate) fn submit(
        &self,
        command: impl FnOnce(TenantId) -> SessionCommand,
    ) -> Result<millstream_view::Answer<SessionView>, millstream_view::Error> {
        self.store.0.submit(self.store.0.partition_of(self.tenant.as_str().as_bytes()), command(self.tenant.clone()))
    }

    /// The state that the tenant is part of, as it is now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot<SessionView>> {
        self.store.0.snapshot(self.store.0.partition_of(self.tenant.as_str().as_bytes()))
    }
}
