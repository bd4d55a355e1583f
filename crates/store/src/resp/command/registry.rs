//! Finding commands by name.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{RedisCommand, keys_and_values, serving};

/// Longest name of a command.
const NAME_MAX_BYTES: usize = 32;

/// A command of the registry, or a subcommand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CommandId(u16);

#[derive(Debug)]
struct RegisteredCommand {
    command: &'static RedisCommand,
    /// `client|list`; the name itself if it is no subcommand.
    full_name: String,
    children: HashMap<&'static [u8], CommandId, foldhash::fast::FixedState>,
}

/// The commands and subcommands of the tables, found by name or by id.
#[derive(Debug)]
pub(crate) struct Registry {
    entries: Vec<RegisteredCommand>,
    by_name: HashMap<&'static [u8], CommandId, foldhash::fast::FixedState>,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);

impl Registry {
    fn new() -> Self {
        let mut registry = Self { entries: Vec::new(), by_name: HashMap::default() };
        let tables = [keys_and_values::TABLES, serving::TABLES].concat();
        for command in tables.into_iter().flatten() {
            let id = registry.add(command, command.name.to_owned());
            for subcommand in command.subcommands() {
                let child = registry.add(subcommand, format!("{}|{}", command.name, subcommand.name));
                registry.entries[id.index()].children.insert(subcommand.name.as_bytes(), child);
            }
            registry.by_name.insert(command.name.as_bytes(), id);
        }
        registry
    }

    fn add(&mut self, command: &'static RedisCommand, full_name: String) -> CommandId {
        let id = CommandId(u16::try_from(self.entries.len()).unwrap_or(u16::MAX));
        self.entries.push(RegisteredCommand { command, full_name, children: HashMap::default() });
        id
    }

    /// The command called `name`, in letters of either case.
    pub(crate) fn find(name: &[u8]) -> Option<CommandId> {
        with_small_letters(name, |name| REGISTRY.by_name.get(name).copied())
    }

    /// The command or subcommand with a full name such as `client|list`.
    pub(crate) fn find_full(name: &[u8]) -> Option<CommandId> {
        match memchr::memchr(b'|', name) {
            None => Self::find(name),
            Some(bar) => Self::find(&name[..bar])?.child(&name[bar + 1..]),
        }
    }

    /// The commands, without their subcommands.
    pub(crate) fn commands() -> impl Iterator<Item = CommandId> {
        Self::all().filter(|id| !id.full_name().contains('|'))
    }

    /// The commands, each followed by its subcommands.
    pub(crate) fn all() -> impl Iterator<Item = CommandId> {
        (0..).map(CommandId).take(REGISTRY.entries.len())
    }
}

impl CommandId {
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }

    /// The command with an index.
    pub(crate) fn at(index: usize) -> Option<Self> {
        u16::try_from(index).ok().filter(|_| index < REGISTRY.entries.len()).map(Self)
    }

    pub(crate) fn command(self) -> &'static RedisCommand {
        REGISTRY.entries[self.index()].command
    }

    pub(crate) fn full_name(self) -> &'static str {
        &REGISTRY.entries[self.index()].full_name
    }

    /// The subcommand called `name`, in letters of either case.
    pub(crate) fn child(self, name: &[u8]) -> Option<CommandId> {
        with_small_letters(name, |name| REGISTRY.entries[self.index()].children.get(name).copied())
    }

    pub(crate) fn children(self) -> impl Iterator<Item = CommandId> {
        let first = self.0 + 1;
        (first..).map(CommandId).take(self.command().subcommands().len())
    }
}

fn with_small_letters<T>(name: &[u8], find: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let mut small = [0; NAME_MAX_BYTES];
    let small = small.get_mut(..name.len())?;
    small.copy_from_slice(name);
    small.make_ascii_lowercase();
    find(small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_letters_of_either_case() {
        assert_eq!(Registry::find(b"GeT").map(CommandId::full_name), Some("get"));
        assert_eq!(Registry::find_full(b"CLIENT|List").map(CommandId::full_name), Some("client|list"));
        for name in [&b"gett"[..], b"", &[b'a'; 99], b"client|", b"get|x"] {
            assert_eq!(Registry::find_full(name), None, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn the_table_is_consistent() {
        for id in Registry::all() {
            let (command, name) = (id.command(), id.full_name());
            assert_eq!(Registry::find_full(name.as_bytes()), Some(id), "{name} is there twice");
            assert_eq!(name.to_ascii_lowercase(), name);
            assert!(name.len() <= NAME_MAX_BYTES && command.arity != 0, "{name}");
            let (first, _, step) = command.keys;
            assert_eq!(first == 0, step == 0, "{name}");
            assert!(usize::from(first.unsigned_abs()) < command.arity.unsigned_abs().into(), "{name}");
        }
    }
}
