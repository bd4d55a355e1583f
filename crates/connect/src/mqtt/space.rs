//! The private space of a tenant: a stream of messages, who wants which of them, and what waits for whom.
//!
//! ```text
//!   publish ─► append to mqtt.<tenant> ─► dispatch: one task a tenant, each message compared once with a trie of filters
//!                                             │ an offset and what the subscriptions say
//!                                             ▼
//!                                   session: a queue of offsets ─► connection (the message from memory, else from the log)
//! ```
//!
//! A message is delivered when the log has it. One lock a tenant, held for a few messages at a time and never while
//! anybody waits.

pub(crate) mod config;
mod dispatch;
mod group;
mod keeping;
pub(crate) mod message;
mod orphans;
mod queue;
mod retained;
mod session;
mod spaces;
mod trie;

use std::collections::HashMap;
use std::sync::Arc;

use millstream_http::{Counter, Metrics};
use millstream_log::{AckLevel, Partition, UpTo};
use millstream_types::{MemoryBudget, MonotonicClock, Offset, RecordBatch, WallClock};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use config::BrokerConfig;
use group::{Group, GroupId, Share};
use message::{Lying, Message};
pub(crate) use queue::Entry;
use queue::QueueLimits;
pub(crate) use retained::RetainedMap;
use session::Online;
pub(crate) use session::{Next, Session, Subscription};
pub(crate) use spaces::{Spaces, SpacesParts};
use trie::Trie;

use super::kept::Keeper;
use super::packet::Qos;
use crate::registry::Version;
use crate::topic_filter::Filter;

/// Messages that are read from the log for one client at a time.
const LOADED_MAX: usize = 64;
/// How much is read from the log at a time, bytes.
const READ_BYTES: usize = 256 << 10;

/// Names a session within its tenant, as long as the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionId(u64);

/// One subscription, as the trie knows it.
#[derive(Debug)]
struct Subscriber {
    who: Who,
    what: Subscription,
}

/// Who gets the messages of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Session(SessionId),
    Group(GroupId),
}

/// What is counted of all spaces.
pub(crate) struct Counts {
    delivered: Counter,
    dropped: Counter,
}

impl Counts {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counter = |name, help| metrics.counter(name, help, &[]);
        Self {
            delivered: counter("connect_mqtt_delivered_total", "Messages of private spaces that were sent to clients."),
            dropped: counter(
                "connect_mqtt_dropped_total",
                "Messages of private spaces that a client wanted and did not get: no room, too large for it, void or \
                 trimmed.",
            ),
        }
    }
}

/// The private space of one tenant.
pub(crate) struct Space {
    /// The version with which its tenant was created.
    born: Version,
    pub(crate) partition: Arc<dyn Partition>,
    /// What publishing at least once waits for.
    pub(crate) level: AckLevel,
    config: BrokerConfig,
    room: MemoryBudget,
    /// Room for what waits in queues, the messages themselves aside.
    queues_room: MemoryBudget,
    counts: Arc<Counts>,
    keeper: Keeper,
    /// Where the stream was settled when the process began with it.
    began: Offset,
    wall: Arc<dyn WallClock>,
    monotonic: Arc<dyn MonotonicClock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    trie: Trie<Subscriber>,
    sessions: HashMap<SessionId, Session>,
    clients: HashMap<Arc<str>, SessionId>,
    last: u64,
    /// What lies below has been dispatched.
    next: u64,
    /// The topic is gone; everybody has to go.
    is_gone: bool,
    groups: HashMap<GroupId, Group>,
    hits: Vec<(Who, Subscription)>,
}

/// Who wants a session, and which.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) client: &'a Arc<str>,
    pub(crate) device: &'a str,
    pub(crate) clean_start: bool,
    pub(crate) expiry_s: u32,
    pub(crate) window: usize,
}

/// Why a session is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSession {
    /// Another device has made it.
    OfAnother,
    /// The tenant has as many as it may.
    TooMany,
    /// The tenant's topic is gone.
    Gone,
    /// It could not be written down.
    NotKept,
}

/// A connection's session; given up when dropped.
pub(crate) struct Link {
    pub(crate) space: Arc<Space>,
    pub(crate) client: Arc<str>,
    pub(crate) bell: Arc<Notify>,
    device: Box<str>,
    id: SessionId,
    turn: u64,
}

/// The session belongs to another connection now, or to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The same client has connected again.
    TakenOver,
    /// The tenant's topic is gone.
    Gone,
    /// The memory budget has no room for its messages.
    NoRoom,
}

impl Space {
    /// A session for a connection, and whether it was there before.
    pub(crate) async fn attach(self: &Arc<Self>, claim: &Claim<'_>) -> Result<(Link, bool), NoSession> {
        let (link, is_present, ended) = self.take_up(claim)?;
        if let Some(ended) = ended {
            self.end(ended);
        }
        link.keep_beginning().await.map_err(|error| {
            tracing::warn!(%error, "a session could not be written down");
            NoSession::NotKept
        })?;
        Ok((link, is_present))
    }

    fn take_up(self: &Arc<Self>, claim: &Claim<'_>) -> Result<(Link, bool, Option<Session>), NoSession> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.is_gone {
            return Err(NoSession::Gone);
        }
        let known = state.clients.get(claim.client).copied();
        if let Some(session) = known.and_then(|id| state.sessions.get(&id))
            && *session.device != *claim.device
        {
            return Err(NoSession::OfAnother);
        }
        let now_ms = self.wall.now_ms();
        let goes_on = |session: &Session| session.is_durable() && !session.is_over(now_ms);
        let is_kept = |id: &SessionId| state.sessions.get(id).is_some_and(goes_on);
        let kept = known.filter(|id| !claim.clean_start && is_kept(id));
        let ended = known.filter(|_| kept.is_none()).and_then(|id| state.remove(id));
        if kept.is_none() && state.sessions.len() >= self.config.sessions_max {
            return Err(NoSession::TooMany);
        }
        state.last += 1;
        let turn = state.last;
        let id = kept.unwrap_or(SessionId(turn));
        let session = state.sessions.entry(id).or_insert_with(|| Session::new(claim.client, claim.device));
        session.expiry_s = claim.expiry_s.min(self.config.session_expiry_max_s);
        session.ended_ms = None;
        // Whoever comes back in time is not dead.
        session.will = None;
        session.begin(state.next);
        let bell = Arc::new(Notify::new());
        session.attach(Online { turn, bell: Arc::clone(&bell), window: claim.window });
        let (done, back) = session.take_shared();
        state.take_back(done, back);
        state.clients.insert(Arc::clone(claim.client), id);
        let (space, client) = (Arc::clone(self), Arc::clone(claim.client));
        let link = Link { space, client, bell, device: claim.device.into(), id, turn };
        Ok((link, kept.is_some(), ended))
    }

    /// Whether `device` is connected with this client id.
    pub(crate) fn is_connected(&self, client: &str, device: &str) -> bool {
        let state = self.state.lock();
        let session = state.clients.get(client).and_then(|id| state.sessions.get(id));
        session.is_some_and(|session| session.online.is_some() && *session.device == *device)
    }

    /// Messages that lie at `offsets`, which ascend, as far as one read finds them; `None` are no more.
    async fn load(&self, offsets: &[u64]) -> Result<Vec<Found>, Lost> {
        let Some(first) = offsets.first() else { return Ok(Vec::new()) };
        let batches = match read(&self.partition, Offset(*first)).await {
            Ok(batches) => batches,
            Err(millstream_log::Error::Trimmed { .. }) => {
                let begin = self.partition.offsets().first.0;
                return Ok(offsets.iter().filter(|offset| **offset < begin).map(|offset| (*offset, None)).collect());
            }
            Err(error) => {
                tracing::error!(%error, "messages of the private space cannot be read");
                return Ok(vec![(*first, None)]);
            }
        };
        let mut wanted = offsets.iter().copied().peekable();
        let mut found = Vec::with_capacity(offsets.len());
        for record in batches.iter().flat_map(RecordBatch::records).map_while(Result::ok) {
            while let Some(gone) = wanted.next_if(|offset| *offset < record.offset.0) {
                found.push((gone, None));
            }
            if wanted.next_if_eq(&record.offset.0).is_some() {
                let message = Lying::read(&record).map(|lying| lying.keep(&self.room));
                if matches!(message, Some(None)) {
                    // What was read so far goes first, and gives room.
                    return if found.is_empty() { Err(Lost::NoRoom) } else { Ok(found) };
                }
                found.push((record.offset.0, message.flatten()));
            }
        }
        Ok(if found.is_empty() { vec![(*first, None)] } else { found })
    }
}

/// A message that was looked for, and itself if it is still there.
type Found = (u64, Option<Arc<Message>>);

/// Batches from `from` on, as far as one read goes.
async fn read(partition: &Arc<dyn Partition>, from: Offset) -> Result<Vec<RecordBatch>, millstream_log::Error> {
    if partition.reads_from_memory(from) {
        return partition.read(from, READ_BYTES, UpTo::Tail);
    }
    let partition = Arc::clone(partition);
    let read = tokio::task::spawn_blocking(move || partition.read(from, READ_BYTES, UpTo::Tail));
    read.await.unwrap_or(Err(millstream_log::Error::Stopped))
}

impl Link {
    /// Does something with the session, if it is still this connection's.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Session) -> R) -> Result<R, Lost> {
        self.with_state(|state, id| {
            let session = state.sessions.get_mut(&id)?;
            let result = work(session);
            let (done, back) = session.take_shared();
            state.take_back(done, back);
            Some(result)
        })?
        .ok_or(Lost::TakenOver)
    }

    fn with_state<R>(&self, work: impl FnOnce(&mut State, SessionId) -> R) -> Result<R, Lost> {
        let mut state = self.space.state.lock();
        if state.is_gone {
            return Err(Lost::Gone);
        }
        let online = state.sessions.get(&self.id).and_then(|session| session.online.as_ref());
        if online.is_none_or(|online| online.turn != self.turn) {
            return Err(Lost::TakenOver);
        }
        Ok(work(&mut state, self.id))
    }

    /// Subscribes to `filter`; whether that is new. `None` if there are as many as there may be.
    pub(crate) fn subscribe(&self, filter: &str, mut what: Subscription) -> Result<Option<bool>, Lost> {
        let most = self.space.config.subscriptions_max;
        // What was sent before is none of its business, whether or not it has been dispatched.
        what.began = self.space.partition.offsets().tail.0;
        self.with_state(|state, id| {
            let session = state.sessions.get_mut(&id)?;
            let known = session.filters.get(filter);
            if known.is_none() && session.filters.len() >= most {
                return None;
            }
            if let Some(known) = known {
                what.began = known.began;
            }
            let is_new = session.filters.insert(filter.into(), what.clone()).is_none();
            let parsed = Filter::parse(filter)?;
            if parsed.group.is_some() {
                state.join(id, filter, &what, None);
                return Some(is_new);
            }
            let who = Who::Session(id);
            if !is_new {
                state.trie.remove(parsed.pattern, |known| known.who == who);
            }
            state.trie.insert(parsed.pattern, Subscriber { who, what });
            Some(is_new)
        })
    }

    /// Ends a subscription; whether there was one.
    pub(crate) fn unsubscribe(&self, filter: &str) -> Result<bool, Lost> {
        let (is_known, over) = self.with_state(|state, id| {
            let known = state.sessions.get_mut(&id).and_then(|session| session.filters.remove(filter));
            (known.is_some(), state.forget_filter(id, filter))
        })?;
        self.space.end_groups(over);
        Ok(is_known)
    }

    /// Hands out what is to be sent, one after the other, until `take` has enough. Whether messages have to be read.
    pub(crate) fn each(&self, mut take: impl FnMut(&mut Session, Next) -> bool) -> Result<bool, Lost> {
        self.with_state(|state, id| {
            loop {
                let Some(session) = state.sessions.get_mut(&id) else { return false };
                match session.next() {
                    Next::Missing => return true,
                    Next::Nothing => match state.share(id) {
                        Share::Taken => {}
                        Share::Unread(_) => return true,
                        Share::Nothing => return false,
                    },
                    next => {
                        if !take(session, next) {
                            return false;
                        }
                    }
                }
            }
        })
    }

    /// Reads the next messages from the log.
    pub(crate) async fn load(&self) -> Result<(), Lost> {
        let (group, offsets) = self.with_state(State::missing)?;
        let found = self.space.load(&offsets).await?;
        let lost = self.with_state(|state, id| state.fill(id, group, &found))?;
        self.space.counts.dropped.inc_by(lost as u64);
        Ok(())
    }

    /// Counts what a connection was handed, and what of it it could not send.
    pub(crate) fn count(&self, delivered: u64, dropped: u64) {
        self.space.counts.delivered.inc_by(delivered);
        self.space.counts.dropped.inc_by(dropped);
    }
}

impl State {
    fn remove(&mut self, id: SessionId) -> Option<Session> {
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
    fn forget_filter(&mut self, id: SessionId, filter: &str) -> Option<Box<str>> {
        let parsed = Filter::parse(filter)?;
        if parsed.group.is_some() {
            return self.leave(id, filter);
        }
        self.trie.remove(parsed.pattern, |subscriber| subscriber.who == Who::Session(id));
        None
    }

    /// Where the next messages lie that have to be read for a session, and in which group if not in its own queue.
    fn missing(&mut self, id: SessionId) -> (Option<GroupId>, Vec<u64>) {
        let own = self.sessions.get(&id).map(|session| session.missing(LOADED_MAX)).unwrap_or_default();
        match self.share(id) {
            Share::Unread(group) if own.is_empty() => {
                let missing = self.groups.get(&group).map(|group| group.queue.missing(LOADED_MAX));
                (Some(group), missing.unwrap_or_default())
            }
            _ => (None, own),
        }
    }

    /// Hands over what was read; how many messages are lost, as they are no more.
    fn fill(&mut self, id: SessionId, group: Option<GroupId>, found: &[Found]) -> usize {
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

    /// Gives a message to all who want it; how many of them lose one.
    fn deliver(&mut self, offset: u64, message: &Lying<'_>, keep: &mut Kept<'_>, limits: &QueueLimits) -> u64 {
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
                Who::Session(id) => {
                    let Some(session) = self.sessions.get_mut(&id).filter(|session| session.wants(offset)) else {
                        continue;
                    };
                    if let Some(entry) = entry(offset, message, same, &session.client, keep) {
                        lost += session.offer(entry, limits);
                    }
                }
                Who::Group(id) => {
                    let Some(group) = self.groups.get_mut(&id).filter(|group| group.wants(offset)) else { continue };
                    // What is promised at most once is not for later.
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
struct Kept<'a> {
    room: &'a MemoryBudget,
    copy: Option<Option<Arc<Message>>>,
    /// It may have been given before the process began.
    is_again: bool,
}

impl<'a> Kept<'a> {
    fn new(room: &'a MemoryBudget, is_again: bool) -> Self {
        Self { room, copy: None, is_again }
    }

    fn of(&mut self, message: &Lying<'_>) -> Option<Arc<Message>> {
        self.copy.get_or_insert_with(|| message.keep(self.room)).clone()
    }
}

/// What a client gets of a message by its subscriptions that match; `None` if it is its own and not wanted back.
fn entry(
    offset: u64,
    message: &Lying<'_>,
    subscriptions: &[(Who, Subscription)],
    client: &str,
    kept: &mut Kept<'_>,
) -> Option<Entry> {
    let is_own = message.client == client;
    let wanted = || subscriptions.iter().map(|(_, what)| what).filter(|what| !(what.no_local && is_own));
    let qos = wanted().map(|what| what.qos).max()?.min(message.qos);
    Some(Entry {
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

impl Space {
    fn limits(&self) -> QueueLimits {
        QueueLimits {
            messages: self.config.queue_max_messages,
            bytes: self.config.queue_max_bytes,
            live: self.config.live_max_messages,
            room: self.queues_room.clone(),
        }
    }
}
