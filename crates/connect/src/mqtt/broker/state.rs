//! The state of a broker under its lock: it gives each message to the sessions and groups that subscribe to it.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_mqtt::Qos;
use millstream_types::MemoryBudget;

use super::group::{Share, SharedGroup};
use super::ids::{GroupId, SessionId, SubscriberId};
use super::message::{Message, MessageView};
use super::queue::{QueueEntry, QueueLimits};
use super::session::{Session, SessionSubscription};
use super::trie::Trie;
use crate::topic_filter::TopicFilter;

/// Messages that are read from the log for one client at a time.
const LOADED_MAX: usize = 64;
/// The sessions, groups and subscriptions of a broker.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) trie: Trie<Subscriber>,
    pub(super) sessions: HashMap<SessionId, Session>,
    pub(super) clients: HashMap<Arc<str>, SessionId>,
    pub(super) last: u64,
    /// The next offset to dispatch.
    pub(super) next: u64,
    /// The topic is gone; everybody has to go.
    pub(super) is_gone: bool,
    pub(super) groups: HashMap<GroupId, SharedGroup>,
    hits: Vec<(SubscriberId, SessionSubscription)>,
}

/// One subscription, as the trie knows it.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) who: SubscriberId,
    pub(super) what: SessionSubscription,
}

/// A message that was looked for, and itself if it is still there.
pub(super) type Found = (u64, Option<Arc<Message>>);

impl State {
    pub(super) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let mut session = self.sessions.remove(&id)?;
        session.detach();
        self.clients.remove(&session.client);
        let over: Vec<_> = session.filters.keys().filter_map(|filter| self.forget_filter(id, filter)).collect();
        session.groups_over = over;
        let (done, back) = session.take_shared();
        self.take_back(done, back);
        Some(session)
    }

    /// Ends a subscription. The filter of its group, if nobody is left in that.
    pub(super) fn forget_filter(&mut self, id: SessionId, filter: &str) -> Option<Box<str>> {
        let parsed = TopicFilter::parse(filter)?;
        if parsed.group.is_some() {
            return self.leave(id, filter);
        }
        self.trie.remove(parsed.pattern, |subscriber| subscriber.who == SubscriberId::Session(id));
        None
    }

    /// Offsets of the next messages to read for a session, and their group if they are not in its own queue.
    pub(super) fn missing(&mut self, id: SessionId) -> (Option<GroupId>, Vec<u64>) {
        let own = self.sessions.get(&id).map(|session| session.missing(LOADED_MAX)).unwrap_or_default();
        match self.share(id) {
            Share::Unread(group) if own.is_empty() => {
                let missing = self.groups.get(&group).map(|group| group.queue.missing(LOADED_MAX));
                (Some(group), missing.unwrap_or_default())
            }
            _ => (None, own),
        }
    }

    /// Hands over the messages read; returns how many are lost because they are no more.
    pub(super) fn fill(&mut self, id: SessionId, group: Option<GroupId>, found: &[Found]) -> usize {
        let mut lost = 0;
        for (offset, message) in found {
            let is_lost = match group.map(|group| self.groups.get_mut(&group)) {
                Some(group) => {
                    group.is_some_and(|group| group.queue.fill(*offset, message.as_ref()) && message.is_none())
                }
                None => self.sessions.get_mut(&id).is_some_and(|session| session.fill(*offset, message.as_ref())),
            };
            lost += usize::from(is_lost);
        }
        lost
    }

    /// Gives a message to all matching subscribers; returns how many messages are lost.
    pub(super) fn deliver(
        &mut self,
        offset: u64,
        message: &MessageView<'_>,
        keep: &mut SharedCopy<'_>,
        limits: &QueueLimits,
    ) -> u64 {
        let mut hits = std::mem::take(&mut self.hits);
        self.trie.each(message.topic, |subscriber| {
            if offset >= subscriber.what.began {
                hits.push((subscriber.who, subscriber.what.clone()));
            }
        });
        hits.sort_unstable_by_key(|(who, _)| *who);
        let mut lost = 0;
        for same in hits.chunk_by(|(a, _), (b, _)| a == b) {
            match same[0].0 {
                SubscriberId::Session(id) => {
                    let Some(session) = self.sessions.get_mut(&id).filter(|session| session.wants(offset)) else {
                        continue;
                    };
                    if let Some(entry) = entry(offset, message, same, &session.client, keep) {
                        lost += session.offer(entry, limits);
                    }
                }
                SubscriberId::Group(id) => {
                    let Some(group) = self.groups.get_mut(&id).filter(|group| group.wants(offset)) else { continue };
                    // A message at most once is not kept for later.
                    if message.qos == Qos::AtMostOnce && !group.is_heard(&self.sessions) {
                        continue;
                    }
                    if let Some(entry) = entry(offset, message, same, "", keep) {
                        lost += group.queue.push(entry, limits);
                        self.ring(id);
                    }
                }
            }
        }
        hits.clear();
        self.hits = hits;
        lost
    }
}

/// A message's copy, made when the first wants it.
pub(super) struct SharedCopy<'a> {
    room: &'a MemoryBudget,
    copy: Option<Option<Arc<Message>>>,
    /// It may have been given before the process began.
    is_again: bool,
}

impl<'a> SharedCopy<'a> {
    pub(super) fn new(room: &'a MemoryBudget, is_again: bool) -> Self {
        Self { room, copy: None, is_again }
    }

    fn of(&mut self, message: &MessageView<'_>) -> Option<Arc<Message>> {
        self.copy.get_or_insert_with(|| message.keep(self.room)).clone()
    }
}

/// The queue entry for the subscriptions of a client that match; `None` if the message is its own and not wanted back.
fn entry(
    offset: u64,
    message: &MessageView<'_>,
    subscriptions: &[(SubscriberId, SessionSubscription)],
    client: &str,
    kept: &mut SharedCopy<'_>,
) -> Option<QueueEntry> {
    let is_own = message.client == client;
    let wanted = || subscriptions.iter().map(|(_, what)| what).filter(|what| !(what.no_local && is_own));
    let qos = wanted().map(|what| what.qos).max()?.min(message.qos);
    Some(QueueEntry {
        offset: Some(offset),
        qos,
        group: None,
        dup: kept.is_again,
        retain: message.retain && wanted().any(|what| what.retain_as_published),
        ids: wanted().map(|what| what.id).filter(|id| *id != 0).collect(),
        size_bytes: u32::try_from(message.size_bytes()).unwrap_or(u32::MAX),
        message: kept.of(message),
    })
}
