//! Shared subscriptions: a group has a queue of its own, and each member with room takes messages from it. Messages that a member
//! has not acknowledged when it leaves return to the queue.

use std::collections::{BTreeSet, HashMap};

use super::ids::{GroupId, SessionId};
use super::queue::MessageQueue;
use super::session::{Session, SessionSubscription};

/// The sessions that share the messages of a filter.
#[derive(Debug, Default)]
pub(super) struct SharedGroup {
    /// The filter as it is subscribed to, with the group's name.
    pub(super) filter: Box<str>,
    pub(super) members: Vec<(SessionId, SessionSubscription)>,
    pub(super) queue: MessageQueue,
    /// The member that was told last of a message.
    pub(super) turn: usize,
    pub(super) from: u64,
    pub(super) done: BTreeSet<u64>,
    /// The position that was last stored; `None` if it has moved since.
    pub(super) kept_from: Option<u64>,
}

/// The next message that a session may take from its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    Taken,
    /// The message has to be read first.
    Unread(GroupId),
    Nothing,
}

impl SharedGroup {
    /// True if the message at `offset` is still to be delivered.
    pub(super) fn wants(&self, offset: u64) -> bool {
        offset >= self.from && !self.done.contains(&offset)
    }

    /// True if one of its members is connected.
    pub(super) fn is_heard(&self, sessions: &HashMap<SessionId, Session>) -> bool {
        self.members.iter().any(|(id, _)| sessions.get(id).is_some_and(|session| session.online.is_some()))
    }

    pub(super) fn is_done(&mut self, offset: u64) {
        self.done.insert(offset);
        self.kept_from = None;
    }

    /// The oldest offset that waits, or that one of its members has not acknowledged; at most `next`.
    pub(super) fn oldest(&self, id: GroupId, sessions: &HashMap<SessionId, Session>, next: u64) -> u64 {
        let members = self.members.iter().filter_map(|(member, _)| sessions.get(member));
        let waiting = self.queue.front().and_then(|entry| entry.offset);
        members.filter_map(|session| session.shares_from(id)).chain(waiting).min().unwrap_or(next).min(next)
    }

    /// Everything below `from` is done.
    pub(super) fn settle(&mut self, from: u64) {
        self.done = self.done.split_off(&from);
        self.from = from;
    }
}
