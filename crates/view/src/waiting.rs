//! The commands that wait for an owner, bounded by their number and by bytes.

use std::collections::VecDeque;

use millstream_types::{Grant, TopicPartition};
use tokio::sync::oneshot;

use crate::view::View;
use crate::{Error, ViewsConfig};

/// Receives the answer of a command.
pub(crate) type Reply<V> = oneshot::Sender<Result<<V as View>::Answer, Error>>;

/// A command with the place for its answer.
pub(crate) struct Envelope<V: View> {
    pub(crate) command: V::Command,
    pub(crate) reply: Reply<V>,
    pub(crate) size_bytes: usize,
}

/// The waiting commands of one owner, in order.
pub(crate) struct WaitingCommands<V: View> {
    commands: VecDeque<Envelope<V>>,
    bytes: usize,
    /// Memory of the commands that wait or are being decided.
    memory: Grant,
}

impl<V: View> WaitingCommands<V> {
    pub(crate) fn new(config: &ViewsConfig) -> Self {
        Self { commands: VecDeque::new(), bytes: 0, memory: config.inbox_memory.empty_grant() }
    }

    /// Adds a command, or returns it with the limit that refuses it.
    pub(crate) fn push(
        &mut self,
        command: V::Command,
        reply: Reply<V>,
        config: &ViewsConfig,
        partition: &TopicPartition,
    ) -> Result<(), (Error, V::Command)> {
        let memory = &config.inbox_memory;
        let most_bytes = usize::try_from(memory.limit_bytes()).unwrap_or(usize::MAX);
        let size_bytes = (size_of::<Envelope<V>>() + V::owned_bytes(&command)).min(most_bytes);
        let (waiting, limit) = (self.commands.len(), config.inbox_max_commands);
        if waiting >= limit {
            return Err((Error::Overloaded { partition: partition.clone(), waiting, limit }, command));
        }
        let (waiting_bytes, limit_bytes) = (self.bytes, config.inbox_max_bytes);
        if waiting > 0 && waiting_bytes + size_bytes > limit_bytes {
            let (partition, setting) = (partition.clone(), config.inbox_setting);
            return Err((Error::InboxFull { partition, waiting_bytes, limit_bytes, setting }, command));
        }
        if !self.memory.grow(size_bytes as u64) {
            let (partition, setting) = (partition.clone(), memory.setting());
            let (used_bytes, limit_bytes) = (memory.used_bytes(), memory.limit_bytes());
            return Err((Error::NoMemory { partition, size_bytes, used_bytes, limit_bytes, setting }, command));
        }
        self.bytes += size_bytes;
        self.commands.push_back(Envelope { command, reply, size_bytes });
        Ok(())
    }

    /// Takes at most `count` commands. They keep their memory.
    pub(crate) fn take(&mut self, count: usize) -> VecDeque<Envelope<V>> {
        let count = self.commands.len().min(count);
        let taken: VecDeque<_> = self.commands.drain(..count).collect();
        self.bytes -= taken.iter().map(|envelope| envelope.size_bytes).sum::<usize>();
        debug_assert!(!self.commands.is_empty() || self.bytes == 0, "no bytes wait without a command");
        taken
    }

    /// Puts commands that were taken back at the front, and returns the memory of the others, which were decided.
    pub(crate) fn put_back(&mut self, mut commands: VecDeque<Envelope<V>>, decided_bytes: usize) {
        self.memory.shrink(decided_bytes as u64);
        self.bytes += commands.iter().map(|envelope| envelope.size_bytes).sum::<usize>();
        commands.append(&mut self.commands);
        self.commands = commands;
    }

    /// Takes all commands, which will not be decided.
    pub(crate) fn take_all(&mut self) -> VecDeque<Envelope<V>> {
        self.bytes = 0;
        self.memory.shrink(u64::MAX);
        std::mem::take(&mut self.commands)
    }
}
