//! What waits, as a view of the state topic `_commands`, whose partitions go by device: taken from the streams, each once,
//! and kept until it is known how it ends.

use std::sync::Arc;

use millstream_types::{Offset, TenantId, TopicPartition};
use millstream_view::{DecodeError, Draft, Encoded, Source, View};

use super::command::{Arrived, Command};
use super::hub::Hub;
use super::notice::notice;
use super::outcome::Outcome;
use super::state::{Change, State};
use super::{CommandsConfig, record};

/// See the module.
pub(crate) struct CommandView {
    pub(crate) limits: Limits,
    pub(crate) hub: Arc<Hub>,
}

/// What may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    per_device: usize,
    /// In one partition.
    bytes_per_tenant: usize,
    /// The setting that is an equal part of.
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

/// A record of a stream of commands, and where its notice would go.
pub(crate) struct Item {
    pub(crate) arrived: Arrived,
    pub(crate) tell: TopicPartition,
}

/// What is asked of an owner.
pub(crate) enum Ask {
    /// Take these records.
    Take { source: Source, next: Offset, items: Vec<(Offset, Item)> },
    /// The command ends so.
    End { command: Arc<Command>, outcome: Outcome, tell: TopicPartition },
}

/// What has become durable.
#[derive(Debug)]
pub(crate) enum Answer {
    Taken {
        waiting: Vec<Arc<Command>>,
        refused: Vec<(Arc<Command>, Outcome)>,
    },
    /// `None` if it had ended before.
    Ended(Option<(Arc<Command>, Outcome)>),
}

impl View for CommandView {
    type State = State;
    type Change = Change;
    type Command = Ask;
    type Answer = Answer;
    const NAME: &'static str = "commands";

    fn decide(&self, draft: &mut Draft<'_, Self>, ask: Ask) -> Answer {
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

    fn landed(&self, answer: &Answer) {
        self.hub.landed(answer);
    }

    fn apply(state: &mut State, change: &Change) {
        state.apply(change);
    }

    fn encode(change: &Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        record::encode(change, key, value)
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Change, DecodeError> {
        record::decode(key, value)
    }
}

impl CommandView {
    fn take(&self, draft: &mut Draft<'_, Self>, source: Source, next: Offset, items: Vec<(Offset, Item)>) -> Answer {
        let applied = draft.applied(source);
        let (mut waiting, mut refused) = (Vec::new(), Vec::new());
        for (_, Item { arrived, tell }) in items.into_iter().filter(|(offset, _)| *offset >= applied) {
            let Arrived { mut command, ttl_ms, fault } = arrived;
            command.received_ms = draft.now_ms();
            let ttl_ms = ttl_ms.map(|ttl_ms| ttl_ms.min(self.limits.ttl_max_ms));
            command.expires_ms = ttl_ms.map(|ttl_ms| command.received_ms.saturating_add_unsigned(ttl_ms));
            let fault = fault.or_else(|| self.limits.exceeded(draft.state(), &command));
            let command = Arc::new(command);
            match fault {
                None => {
                    draft.change(Change::Waits(Arc::clone(&command)));
                    waiting.push(command);
                }
                Some(outcome) => {
                    tell_end(draft, &command, &outcome, tell);
                    refused.push((command, outcome));
                }
            }
        }
        draft.advance(source, next);
        Answer::Taken { waiting, refused }
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

fn end(draft: &mut Draft<'_, CommandView>, command: &Arc<Command>, outcome: Outcome, tell: TopicPartition) -> Answer {
    let (tenant, device, place): (&TenantId, _, _) = (&command.tenant, &command.device, command.place);
    if draft.state().get(tenant, device, place).is_none() {
        return Answer::Ended(None);
    }
    draft.change(Change::Gone { tenant: tenant.clone(), device: Arc::clone(device), place });
    tell_end(draft, command, &outcome, tell);
    Answer::Ended(Some((Arc::clone(command), outcome)))
}

fn tell_end(draft: &mut Draft<'_, CommandView>, command: &Command, outcome: &Outcome, tell: TopicPartition) {
    if let Some(notice) = notice(command, outcome, draft.now_ms()) {
        draft.publish(tell, notice);
    }
}
