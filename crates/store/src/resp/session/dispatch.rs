//! From the arguments of a request to a command that may run.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use super::{ReplyMode, RespSession, UNIT_COMMANDS_MAX};
use crate::resp::codec::RespVersion;
use crate::resp::command::{CommandId, Flag, Registry, Run};
use crate::resp::context::shown;
use crate::resp::host::{ErrorReply, UserRole};

/// Bytes of the name of an unknown command, and of its arguments, that an error shows.
const SHOWN_BYTES: usize = 128;

/// A request that is refused before it runs.
struct Rejection {
    command: Option<CommandId>,
    text: Cow<'static, str>,
}

impl RespSession {
    /// Adds the request, the arguments of the unit from `first` on, to the unit, holds it for
    /// afterwards, queues or refuses it.
    pub(super) fn dispatch(&mut self, first: usize) {
        let command = match self.check(&self.unit.arguments[first..]) {
            Ok(command) => command,
            Err(Rejection { command, text }) => {
                self.unit.arguments.truncate(first);
                if command.is_some_and(|command| command.full_name() == "exec") {
                    return self.refuse_exec(command, &text);
                }
                if let Some(queue) = &mut self.queue {
                    queue.has_failed = true;
                }
                return self.refuse(command, text);
            }
        };
        self.client.last_command.store(command.index() + 1, Relaxed);
        if self.queue.is_some() && !runs_in_multi(command) {
            let arguments = self.unit.arguments.split_off(first);
            return self.enqueue(command, arguments);
        }
        if self.runs_in_unit(command, &self.unit.arguments[first..]) && self.reply_mode != ReplyMode::Skip {
            self.unit.push(command, first);
            self.unit_is_closed = self.unit.pending_count() >= UNIT_COMMANDS_MAX;
        } else {
            let arguments = self.unit.arguments.split_off(first);
            self.held = Some((command, arguments));
            self.unit_is_closed = self.unit.pending_count() > 0;
        }
    }

    /// An EXEC that is refused ends its transaction.
    fn refuse_exec(&mut self, command: Option<CommandId>, text: &str) {
        self.queue = None;
        self.watched.clear();
        self.show_queue();
        let why = text.strip_prefix("ERR ").unwrap_or(text);
        self.refuse(command, format!("EXECABORT Transaction discarded because of: {why}").into());
    }

    /// Notes an error, which is answered once the unit before it is.
    pub(super) fn refuse(&mut self, command: Option<CommandId>, text: Cow<'static, str>) {
        self.shared.statistics.rejected(command, text.as_bytes());
        self.refusal = Some(text);
        self.unit_is_closed = self.unit.pending_count() > 0;
    }

    fn check(&self, arguments: &[Bytes]) -> Result<CommandId, Rejection> {
        let rejection = |command, text| Err(Rejection { command, text });
        let Some(found) = Registry::find(&arguments[0]) else {
            return rejection(None, unknown(arguments).into());
        };
        let command = match (&found.command().run, arguments.get(1)) {
            (Run::Container(_), Some(name)) => match found.child(name) {
                Some(child) => child,
                None => return rejection(Some(found), unknown_subcommand(found, name).into()),
            },
            _ => found,
        };
        let (name, entry) = (command.full_name(), command.command());
        if !entry.takes(arguments.len()) {
            let text = format!("ERR wrong number of arguments for '{name}' command");
            return rejection(Some(command), text.into());
        }
        match &self.user {
            None if entry.has(Flag::NoAuth) => {}
            None => return rejection(Some(command), "NOAUTH Authentication required.".into()),
            Some(user) if user.role < required_role(command) && !entry.has(Flag::NoAuth) => {
                let text = format!("NOPERM this user has no permissions to run the '{name}' command");
                return rejection(Some(command), text.into());
            }
            Some(_) => {}
        }
        if self.queue.is_some() && entry.has(Flag::NoMulti) {
            return rejection(Some(command), "ERR Command not allowed inside a transaction".into());
        }
        // What is queued needs memory, too.
        let needs_memory = entry.has(Flag::DenyOom) || (self.queue.is_some() && !runs_in_multi(command));
        if needs_memory && let Some(ErrorReply(text)) = self.bucket.as_ref().ok().and_then(|bucket| bucket.is_full()) {
            return rejection(Some(command), text);
        }
        let only_messages = self.protocol == RespVersion::V2 && self.client.subscriptions.lock().count() > 0;
        if only_messages && !runs_while_subscribed(name) {
            let text = format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context"
            );
            return rejection(Some(command), text.into());
        }
        Ok(command)
    }
}

/// The least role that may run a command.
pub(super) fn required_role(command: CommandId) -> UserRole {
    let entry = command.command();
    if entry.has(Flag::Admin) {
        UserRole::Admin
    } else if entry.has(Flag::Write) || entry.name == "publish" {
        UserRole::Write
    } else {
        UserRole::Read
    }
}

/// `true` if a command is carried out although commands are queued.
fn runs_in_multi(command: CommandId) -> bool {
    matches!(command.full_name(), "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

fn runs_while_subscribed(name: &str) -> bool {
    matches!(name, "subscribe" | "psubscribe" | "unsubscribe" | "punsubscribe" | "ping" | "quit" | "reset")
}

fn cut(text: &[u8], most: usize) -> Cow<'_, str> {
    // A zero byte ends a text in an error of Redis.
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    shown(text.get(..most).unwrap_or(text))
}

fn unknown(arguments: &[Bytes]) -> String {
    let mut list = String::new();
    for argument in &arguments[1..] {
        if list.len() >= SHOWN_BYTES {
            break;
        }
        list.push_str(&format!("'{}' ", cut(argument, SHOWN_BYTES - list.len())));
    }
    format!("ERR unknown command '{}', with args beginning with: {list}", cut(&arguments[0], SHOWN_BYTES))
}

fn unknown_subcommand(container: CommandId, name: &[u8]) -> String {
    let container = container.full_name().to_ascii_uppercase();
    format!("ERR unknown subcommand '{}'. Try {container} HELP.", cut(name, SHOWN_BYTES))
}
