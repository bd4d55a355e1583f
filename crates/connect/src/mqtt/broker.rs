//! The broker of one tenant: its stream of messages, the subscriptions and the queues of the sessions.
//!
//! ```text
//!   publish ─► append to mqtt.<tenant> ─► dispatch: one task a tenant, each message compared once with a trie of filters
//!                                             │ an offset and what the subscriptions say
//!                                             ▼
//!                                   session: a queue of offsets ─► connection (the message from memory, else from the log)
//! ```
//!
//! A message is delivered when the log has it. Each tenant has one lock. It is held for a few messages at a time and
//! never across an await point.

mod brokers;
pub(crate) mod config;
mod counts;
mod dispatch;
mod filters;
mod group;
mod ids;
mod keeping;
pub(crate) mod message;
mod orphans;
mod queue;
mod retained;
mod session;
mod session_view;
mod sharing;
mod state;
mod trie;

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Partition, UpTo};
use millstream_types::{MemoryBudget, MonotonicClock, Offset, RecordBatch, WallClock};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use brokers::{Brokers, BrokersParts};
pub(crate) use config::BrokerConfig;
pub(crate) use counts::{Counts, LimitReached};
use group::Share;
use ids::SessionId;
use message::MessageView;
pub(crate) use message::RetainedMap;
pub(crate) use queue::QueueEntry;
use queue::QueueLimits;
use session::Online;
pub(crate) use session::{Next, Session, SessionSubscription};
pub(crate) use session_view::SessionView;
use state::{Found, State};

use super::session_store::TenantStore;
use super::unknown_devices::UnknownDevices;
use crate::registry::Version;

/// Bytes that are read from the log at a time.
const READ_BYTES: usize = 256 << 10;

/// The broker of one tenant.
pub(crate) struct Broker {
    /// The version with which its tenant was created.
    born: Version,
    pub(crate) partition: Arc<dyn Partition>,
    /// The acknowledgement level of messages at QoS 1 and 2.
    pub(crate) level: AckLevel,
    config: BrokerConfig,
    room: MemoryBudget,
    /// Room for what waits in queues, the messages themselves aside.
    queues_room: MemoryBudget,
    subscriptions_room: MemoryBudget,
    counts: Arc<Counts>,
    /// Devices that the tenant's rules name and that are not registered.
    pub(super) unknown_devices: UnknownDevices,
    tenant_store: TenantStore,
    /// The stable offset of the stream when the process opened it.
    began: Offset,
    wall: Arc<dyn WallClock>,
    monotonic: Arc<dyn MonotonicClock>,
    state: Mutex<State>,
}

/// A CONNECT's request for a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) client: &'a Arc<str>,
    pub(crate) device: &'a str,
    pub(crate) clean_start: bool,
    pub(crate) expiry_s: u32,
    pub(crate) window: usize,
}

/// The reason for which a session is refused.
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
pub(crate) struct SessionLink {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client: Arc<str>,
    pub(crate) bell: Arc<Notify>,
    device: Box<str>,
    id: SessionId,
    turn: u64,
}

/// The session belongs to another connection now, or to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detached {
    /// The same client has connected again.
    TakenOver,
    /// The tenant's topic is gone.
    Gone,
    /// The memory budget has no room for its messages.
    NoRoom,
}

impl Broker {
    /// A session for a connection, and whether it was there before.
    pub(crate) async fn attach(self: &Arc<Self>, claim: &Claim<'_>) -> Result<(SessionLink, bool), NoSession> {
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

    fn take_up(self: &Arc<Self>, claim: &Claim<'_>) -> Result<(SessionLink, bool, Option<Session>), NoSession> {
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
        // The client has reconnected within the will delay.
        session.will = None;
        session.begin(state.next);
        let bell = Arc::new(Notify::new());
        session.attach(Online { turn, bell: Arc::clone(&bell), window: claim.window });
        let (done, back) = session.take_shared();
        state.take_back(done, back);
        state.clients.insert(Arc::clone(claim.client), id);
        let (broker, client) = (Arc::clone(self), Arc::clone(claim.client));
        let link = SessionLink { broker, client, bell, device: claim.device.into(), id, turn };
        Ok((link, kept.is_some(), ended))
    }

    /// True if `device` is connected with this client id.
    pub(crate) fn is_connected(&self, client: &str, device: &str) -> bool {
        let state = self.state.lock();
        let session = state.clients.get(client).and_then(|id| state.sessions.get(id));
        session.is_some_and(|session| session.online.is_some() && *session.device == *device)
    }

    /// Messages that lie at `offsets`, which ascend, as far as one read finds them; `None` are no more. Nothing if the log
    /// cannot be read now.
    async fn load(&self, offsets: &[u64]) -> Result<Vec<Found>, Detached> {
        let Some(first) = offsets.first() else { return Ok(Vec::new()) };
        let batches = match read(&self.partition, Offset(*first)).await {
            Ok(batches) => batches,
            Err(millstream_log::Error::Trimmed { .. }) => {
                let begin = self.partition.offsets().first.0;
                return Ok(offsets.iter().filter(|offset| **offset < begin).map(|offset| (*offset, None)).collect());
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "messages of the private space cannot be read now");
                return Ok(Vec::new());
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
                let message = MessageView::read(&record).map(|lying| lying.keep(&self.room));
                if matches!(message, Some(None)) {
                    // The messages read so far go first, and give room.
                    return if found.is_empty() { Err(Detached::NoRoom) } else { Ok(found) };
                }
                found.push((record.offset.0, message.flatten()));
            }
        }
        Ok(if found.is_empty() { vec![(*first, None)] } else { found })
    }
}

/// Batches from `from` on, as far as one read goes.
async fn read(partition: &Arc<dyn Partition>, from: Offset) -> Result<Vec<RecordBatch>, millstream_log::Error> {
    if let Some(known) = partition.read_from_memory(from, READ_BYTES, UpTo::Tail)? {
        return Ok(known);
    }
    let partition = Arc::clone(partition);
    let read = tokio::task::spawn_blocking(move || partition.read(from, READ_BYTES, UpTo::Tail));
    read.await.unwrap_or(Err(millstream_log::Error::Stopped))
}

impl SessionLink {
    /// Does something with the session, if it is still this connection's.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Session) -> R) -> Result<R, Detached> {
        self.with_state(|state, id| {
            let session = state.sessions.get_mut(&id)?;
            let result = work(session);
            let (done, back) = session.take_shared();
            state.take_back(done, back);
            Some(result)
        })?
        .ok_or(Detached::TakenOver)
    }

    fn with_state<R>(&self, work: impl FnOnce(&mut State, SessionId) -> R) -> Result<R, Detached> {
        let mut state = self.broker.state.lock();
        if state.is_gone {
            return Err(Detached::Gone);
        }
        let online = state.sessions.get(&self.id).and_then(|session| session.online.as_ref());
        if online.is_none_or(|online| online.turn != self.turn) {
            return Err(Detached::TakenOver);
        }
        Ok(work(&mut state, self.id))
    }

    /// Hands out the packets to send until `take` has enough; true if messages have to be read first.
    pub(crate) fn each(&self, mut take: impl FnMut(&mut Session, Next) -> bool) -> Result<bool, Detached> {
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

    /// Reads the next messages from the log; `false` if it cannot be read now.
    pub(crate) async fn load(&self) -> Result<bool, Detached> {
        let (group, offsets) = self.with_state(State::missing)?;
        let found = self.broker.load(&offsets).await?;
        let lost = self.with_state(|state, id| state.fill(id, group, &found))?;
        self.broker.counts.dropped.inc_by(lost as u64);
        Ok(offsets.is_empty() || !found.is_empty())
    }

    /// Rings the bell after `wait`.
    pub(crate) fn ring_after(&self, wait: Duration) {
        let bell = Arc::clone(&self.bell);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            bell.notify_one();
        });
    }

    /// Counts what a connection was handed, and what of it it could not send.
    pub(crate) fn count(&self, delivered: u64, dropped: u64) {
        self.broker.counts.delivered.inc_by(delivered);
        self.broker.counts.dropped.inc_by(dropped);
    }
}

impl Broker {
    fn limits(&self) -> QueueLimits {
        QueueLimits {
            messages: self.config.queue_max_messages,
            bytes: self.config.queue_max_bytes,
            live: self.config.live_max_messages,
            room: self.queues_room.clone(),
        }
    }
}
