//! The waiting commands: a view of the state topic `_commands`, partitioned by device. It takes each command from its
//! stream once and keeps it until its outcome is known.

use std::sync::Arc;

use millstream_types::{Offset, TenantId, TopicPartition};
use millstream_view::{DecodeError, Draft, Encoded, InState, SourcePartition, View};

use super::command::{Arrived, Command};
use super::notice::notice;
use super::outcome::Outcome;
use super::state::{CommandChange, State};
use super::{CommandsConfig, record};

pub(crate) struct CommandView {
    pub(crate) limits: Limits,
    pub(crate) sink: Arc<dyn ChangeSink>,
}

/// Limits of the commands that wait for devices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    per_device: usize,
    /// The share of one partition in the limit of a tenant.
    bytes_per_tenant: usize,
    /// The setting that the partitions share equally.
    bytes_setting: usize,
    ttl_max_ms: u64,
}

impl Limits {
    pub(crate) fn of(config: &CommandsConfig) -> Self {
        let setting = config.waiting_max_bytes_per_tenant;
        Self {
            per_device: config.waiting_max_per_device,
            bytes_per_tenant: setting / (config.state_partitions as usize).max(1),
            bytes_setting: setting,
            ttl_max_ms: config.ttl_max_s * 1_000,
        }
    }
}

/// A record of a command stream and the destination of its notice.
pub(crate) struct StreamItem {
    pub(crate) arrived: Arrived,
    pub(crate) tell: TopicPartition,
}

/// A request to the partition owner.
pub(crate) enum Ask {
    Take {
        source: SourcePartition,
        next: Offset,
        items: Vec<(Offset, StreamItem)>,
    },
    /// Ends a command with this outcome.
    End {
        command: Arc<Command>,
        outcome: Outcome,
        tell: TopicPartition,
    },
}

/// A change that has become durable.
#[derive(Debug)]
pub(crate) enum DurableChange {
    Taken {
        waiting: Vec<Arc<Command>>,
        refused: Vec<(Arc<Command>, Outcome)>,
    },
    /// `None` if it had ended before.
    Ended(Option<(Arc<Command>, Outcome)>),
}

/// Takes the changes that have become durable.
pub(crate) trait ChangeSink: Send + Sync {
    /// Applies a change. The owner's thread calls it.
    fn landed(&self, change: &DurableChange);
}

impl View for CommandView {
    type State = State;
    type Storage = InState;
    type Change = CommandChange;
    type Command = Ask;
    type Answer = DurableChange;
    const NAME: &'static str = "commands";

    fn decide(&self, draft: &mut Draft<'_, Self>, ask: Ask) -> DurableChange {
        match ask {
            Ask::Take { source, next, items } => self.take(draft, source, next, items),
            Ask::End { command, outcome, tell } => end(draft, &command, outcome, tell),
        }
    }

    fn owned_bytes(ask: &Ask) -> usize {
        match ask {
            Ask::Take { items, .. } => items.iter().map(|(_, item)| item.arrived.command.size_bytes()).sum(),
            Ask::End { .. } => 0,
        }
    }

    fn landed(&self, answer: &mut DurableChange, _first: Option<Offset>) {
        self.sink.landed(answer);
    }

    fn apply(state: &mut State, change: &CommandChange) {
        state.apply(change);
    }

    fn encode(change: &CommandChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        record::encode(change, key, value)
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<CommandChange, DecodeError> {
        record::decode(key, value)
    }
}

impl CommandView {
    fn take(
        &self,
        draft: &mut Draft<'_, Self>,
        source: SourcePartition,
        next: Offset,
        items: Vec<(Offset, StreamItem)>,
    ) -> DurableChange {
        let applied = draft.applied(source);
        let (mut waiting, mut refused) = (Vec::new(), Vec::new());
        for (_, StreamItem { arrived, tell }) in items.into_iter().filter(|(offset, _)| *offset >= applied) {
            let Arrived { mut command, ttl_ms, fault } = arrived;
            command.received_ms = draft.now_ms();
            let ttl_ms = ttl_ms.map(|ttl_ms| ttl_ms.min(self.limits.ttl_max_ms));
            command.expires_ms = ttl_ms.map(|ttl_ms| command.received_ms.saturating_add_unsigned(ttl_ms));
            let fault = fault.or_else(|| self.limits.exceeded(draft.state(), &command));
            let command = Arc::new(command);
            match fault {
                None => {
                    draft.change(CommandChange::Waits(Arc::clone(&command)));
                    waiting.push(command);
                }
                Some(outcome) => {
                    tell_end(draft, &command, &outcome, tell);
                    refused.push((command, outcome));
                }
            }
        }
        draft.advance(source, next);
        DurableChange::Taken { waiting, refused }
    }
}

impl Limits {
    fn exceeded(&self, state: &State, command: &Command) -> Option<Outcome> {
        let count = state.count(&command.tenant, &command.device);
        if count >= self.per_device {
            let limit = self.per_device;
            let rule =
                format!("{count} commands wait for the device; connect.commands.waiting_max_per_device = {limit}");
            return Some(Outcome::rejected(429, rule));
        }
        let size_bytes = state.size_bytes(&command.tenant);
        if size_bytes + command.size_bytes() > self.bytes_per_tenant {
            let (part, setting) = (self.bytes_per_tenant, self.bytes_setting);
            let rule = format!(
                "commands of {size_bytes} bytes wait for devices of the tenant, and at most {part} in this part of \
                 connect.commands.waiting_max_bytes_per_tenant = {setting}"
            );
            return Some(Outcome::rejected(429, rule));
        }
        None
    }
}

fn end(
    draft: &mut Draft<'_, CommandView>,
    command: &Arc<Command>,
    outcome: Outcome,
    tell: TopicPartition,
) -> DurableChange {
    let (tenant, device, position): (&TenantId, _, _) = (&command.tenant, &command.device, command.position);
    if draft.state().get(tenant, device, position).is_none() {
        return DurableChange::Ended(None);
    }
    draft.change(CommandChange::Gone { tenant: tenant.clone(), device: Arc::clone(device), position });
    tell_end(draft, command, &outcome, tell);
    DurableChange::Ended(Some((Arc::clone(command), outcome)))
}

fn tell_end(draft: &mut Draft<'_, CommandView>, command: &Command, outcome: &Outcome, tell: TopicPartition) {
    if let Some(notice) = notice(command, outcome, draft.now_ms()) {
        draft.publish(tell, notice);
    }
}
