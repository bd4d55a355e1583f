//! A client's session: its filters, its queue and its messages in flight.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use millstream_mqtt::Qos;
use millstream_types::Grant;
use tokio::sync::Notify;

use super::ids::GroupId;
use super::message::Message;
use super::queue::{MessageQueue, QueueEntry, QueueLimits};
use crate::mqtt::session_store::{Progress, SessionRecord, StoredFilter, StoredReserved};
use crate::mqtt::will::PendingWill;

/// Messages that are remembered as done while an older one is not. With as many nothing more is sent before that one is.
pub(super) const DONE_MAX: usize = 4096;

/// A connection's claim on a session: the next one ends it.
#[derive(Debug, Clone)]
pub(crate) struct Online {
    pub(crate) turn: u64,
    /// Rung when there is something to be sent, and when the claim has ended.
    pub(crate) bell: Arc<Notify>,
    /// Messages that may be on their way and not acknowledged.
    pub(crate) window: usize,
}

/// One subscription of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionSubscription {
    pub(crate) qos: Qos,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    /// 0 if there is none.
    pub(crate) id: u32,
    /// The first offset that it may bring.
    pub(crate) began: u64,
}

/// The delivery state of a message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Sent; its acknowledgement is awaited.
    Sent,
    /// Exactly once: the client has it, and may be told to forget its id once that is durable.
    Received,
    /// Exactly once: the client was told so.
    Released,
}

/// A message on its way to the client.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) id: u16,
    pub(crate) stage: Stage,
    pub(crate) entry: QueueEntry,
}

/// The session of one client, connected or away.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) client: Arc<str>,
    /// The device that has made it.
    pub(crate) device: Box<str>,
    pub(crate) online: Option<Online>,
    /// Seconds that it outlives its connection: 0 ends it with that, [`u32::MAX`] never.
    pub(crate) expiry_s: u32,
    pub(crate) filters: HashMap<Box<str>, SessionSubscription>,
    /// Memory that the filters take.
    pub(super) filters_room: Option<Grant>,
    /// Subscriptions to commands and errors, which its connections make again; the latest is last.
    pub(crate) reserved: Vec<(Box<str>, Qos)>,
    queue: MessageQueue,
    flights: VecDeque<Flight>,
    /// Messages that were in flight when the last connection ended.
    repeats: VecDeque<Flight>,
    /// Ids of messages exactly once that the client has sent and not forgotten.
    pub(crate) arrived: HashSet<u16>,
    last_free: u16,
    /// Ids of messages on their way that are not of the private space.
    lent: Vec<u16>,
    /// The offset below which all messages are done, and the done ones above it.
    from: u64,
    done: BTreeSet<u64>,
    /// The groups that it is a member of; then the offsets it has done for them, and the entries that it returns to them.
    pub(super) groups: Vec<GroupId>,
    shared_done: Vec<(GroupId, u64)>,
    shared_back: Vec<QueueEntry>,
    /// Filters of groups that have ended with it.
    pub(super) groups_over: Vec<Box<str>>,
    /// Retained messages that a subscription has brought.
    standing: VecDeque<QueueEntry>,
    /// When its connection ended, milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) ended_ms: Option<i64>,
    /// The will and the monotonic time at which it is published, unless the session is taken up before.
    pub(crate) will: Option<(Duration, PendingWill)>,
    /// The position that was last stored; `None` if it has moved since.
    kept_from: Option<u64>,
}

/// The next packet to send to the client.
#[derive(Debug)]
pub(crate) enum Next {
    /// A message; 0 is no id.
    Message { id: u16, dup: bool, entry: QueueEntry, message: Arc<Message> },
    /// The client may forget this id.
    Release(u16),
    /// Messages have to be read first.
    Missing,
    /// Nothing until something is acknowledged or published.
    Nothing,
}

/// The id of a message that lies in the stream: the same whenever it is sent, unless an older one has it.
fn id_of(offset: u64) -> u16 {
    (1 + offset % 65_535) as u16
}

impl Session {
    pub(crate) fn new(client: &Arc<str>, device: &str) -> Self {
        Self { client: Arc::clone(client), device: device.into(), ..Self::default() }
    }

    /// Has its next connections subscribe to commands or errors as well.
    pub(crate) fn reserve(&mut self, filter: &str, qos: Qos) {
        self.unreserve(filter);
        self.reserved.push((filter.into(), qos));
    }

    /// Removes a subscription that [`Session::reserve`] has added.
    pub(crate) fn unreserve(&mut self, filter: &str) {
        self.reserved.retain(|(known, _)| **known != *filter);
    }

    /// True if the session outlives its connection.
    pub(crate) fn is_durable(&self) -> bool {
        self.expiry_s > 0
    }

    /// A session without subscriptions and messages begins at `next`.
    pub(crate) fn begin(&mut self, next: u64) {
        if self.filters.is_empty() && self.queue.is_empty() && self.flights.is_empty() && self.repeats.is_empty() {
            self.from = next;
        }
    }

    /// True if the message at `offset` is still to be delivered.
    pub(crate) fn wants(&self, offset: u64) -> bool {
        offset >= self.from && !self.done.contains(&offset)
    }

    /// Takes a message; returns how many are lost by it.
    pub(crate) fn offer(&mut self, mut entry: QueueEntry, limits: &QueueLimits) -> u64 {
        match &self.online {
            Some(online) => online.bell.notify_one(),
            None if entry.qos == Qos::AtMostOnce => return 0,
            None => entry.message = None,
        }
        self.queue.push(entry, limits)
    }

    /// A connection takes the session; the one before, if there is one, is told.
    pub(crate) fn attach(&mut self, online: Online) {
        self.detach();
        online.bell.notify_one();
        self.online = Some(online);
    }

    /// The connection is gone: what was on its way waits to be sent again.
    pub(crate) fn detach(&mut self) {
        if let Some(online) = self.online.take() {
            online.bell.notify_one();
        }
        self.lent.clear();
        self.shared_back.extend(self.queue.take_shared());
        self.queue.rest();
        let again = self.flights.drain(..).chain(self.repeats.drain(..));
        let (shared, own): (VecDeque<_>, _) = again.partition(|flight| flight.entry.group.is_some());
        self.shared_back.extend(shared.into_iter().map(|flight| QueueEntry { message: None, ..flight.entry }));
        self.repeats = own;
        for flight in &mut self.repeats {
            // A message that was handed over by value cannot be found again.
            if flight.entry.offset.is_some() {
                flight.entry.message = None;
            }
            if flight.stage == Stage::Received {
                flight.stage = Stage::Sent;
            }
        }
    }

    /// The next packet to send to the client.
    pub(crate) fn next(&mut self) -> Next {
        let has_window = self.has_window();
        if let Some(flight) = self.repeats.front() {
            if !has_window {
                return Next::Nothing;
            }
            if flight.stage == Stage::Sent && flight.entry.message.is_none() {
                return Next::Missing;
            }
            return self.repeat().unwrap_or(Next::Nothing);
        }
        let Some(front) = self.standing.front().or(self.queue.front()) else { return Next::Nothing };
        if front.qos == Qos::AtMostOnce {
            return self.take(0).unwrap_or(Next::Nothing);
        }
        if !has_window || self.done.len() >= DONE_MAX {
            return Next::Nothing;
        }
        let (is_missing, qos) = (front.message.is_none(), front.qos);
        let id = match front.offset.map(id_of) {
            Some(id) if !self.is_flying(id) => id,
            // After a crash it is known to the client by the id that its offset gives, and so waits for that.
            Some(_) if qos == Qos::ExactlyOnce && self.is_durable() => return Next::Nothing,
            Some(_) | None => self.free_id(),
        };
        if is_missing { Next::Missing } else { self.take(id).unwrap_or(Next::Nothing) }
    }

    fn repeat(&mut self) -> Option<Next> {
        let mut flight = self.repeats.pop_front()?;
        let next = match flight.stage {
            Stage::Released => Next::Release(flight.id),
            Stage::Sent | Stage::Received => {
                let message = match flight.entry.offset {
                    Some(_) => flight.entry.message.take()?,
                    None => Arc::clone(flight.entry.message.as_ref()?),
                };
                Next::Message { id: flight.id, dup: true, entry: flight.entry.clone(), message }
            }
        };
        self.flights.push_back(flight);
        Some(next)
    }

    fn take(&mut self, id: u16) -> Option<Next> {
        let mut entry = self.standing.pop_front().or_else(|| self.queue.pop())?;
        let message = match entry.offset {
            Some(_) => entry.message.take()?,
            None => Arc::clone(entry.message.as_ref()?),
        };
        if id != 0 {
            self.flights.push_back(Flight { id, stage: Stage::Sent, entry: entry.clone() });
        }
        Some(Next::Message { id, dup: entry.dup && id != 0, entry, message })
    }

    fn is_flying(&self, id: u16) -> bool {
        self.flights.iter().any(|flight| flight.id == id) || self.lent.contains(&id)
    }

    /// An id for a message that is not of the private space; `None` if as many are on their way as may.
    pub(crate) fn lend_id(&mut self) -> Option<u16> {
        if !self.has_window() {
            return None;
        }
        let mut id = self.free_id();
        while self.repeats.iter().any(|flight| flight.id == id) {
            id = self.free_id();
        }
        self.lent.push(id);
        Some(id)
    }

    /// Takes an id back from [`Session::lend_id`].
    pub(crate) fn return_id(&mut self, id: u16) {
        self.lent.retain(|lent| *lent != id);
    }

    fn free_id(&mut self) -> u16 {
        loop {
            self.last_free = if self.last_free <= 1 { u16::MAX } else { self.last_free - 1 };
            if !self.is_flying(self.last_free) {
                return self.last_free;
            }
        }
    }

    /// Offsets of the next messages that have to be read, at most `most` of them.
    pub(crate) fn missing(&self, most: usize) -> Vec<u64> {
        let repeats = self.repeats.iter().take(most);
        let is_missing = |flight: &&Flight| flight.stage == Stage::Sent && flight.entry.message.is_none();
        let first: Vec<u64> = repeats.filter(is_missing).filter_map(|flight| flight.entry.offset).collect();
        if first.is_empty() { self.queue.missing(most) } else { first }
    }

    /// Takes a message that was read, or drops one that is no more; true if one was lost.
    pub(crate) fn fill(&mut self, offset: u64, message: Option<&Arc<Message>>) -> bool {
        let is_it = |flight: &Flight| flight.entry.offset == Some(offset) && flight.stage == Stage::Sent;
        if let Some(at) = self.repeats.iter().position(is_it) {
            match message {
                Some(message) => self.repeats[at].entry.message = Some(Arc::clone(message)),
                None => drop(self.repeats.remove(at)),
            }
            return message.is_none();
        }
        self.queue.fill(offset, message) && message.is_none()
    }

    /// The client has a message, and forgets its id by itself; true if that was awaited.
    pub(crate) fn acknowledged(&mut self, id: u16) -> bool {
        self.end(id, |flight| flight.stage == Stage::Sent && flight.entry.qos == Qos::AtLeastOnce)
    }

    /// The client has a message that is sent exactly once; true if its id is known.
    pub(crate) fn received(&mut self, id: u16) -> bool {
        let known = self.flights.iter_mut().find(|flight| flight.id == id && flight.entry.qos == Qos::ExactlyOnce);
        let Some(flight) = known else { return false };
        if flight.stage == Stage::Sent {
            flight.stage = Stage::Received;
        }
        true
    }

    /// It is durable that the client has it.
    pub(crate) fn released(&mut self, id: u16) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) {
            flight.stage = Stage::Released;
        }
    }

    /// The client has forgotten the id; true if that was awaited.
    pub(crate) fn completed(&mut self, id: u16) -> bool {
        self.end(id, |flight| flight.stage == Stage::Released)
    }

    /// The client does not want a message that is sent exactly once.
    pub(crate) fn rejected(&mut self, id: u16) -> bool {
        self.end(id, |flight| flight.stage == Stage::Sent)
    }

    /// The message cannot be sent to this client.
    pub(crate) fn discard(&mut self, id: u16) {
        self.end(id, |_| true);
    }

    fn end(&mut self, id: u16, is_right: impl Fn(&Flight) -> bool) -> bool {
        let Some(at) = self.flights.iter().position(|flight| flight.id == id && is_right(flight)) else { return false };
        let Some(entry) = self.flights.remove(at).map(|flight| flight.entry) else { return false };
        match (entry.group, entry.offset) {
            (Some(group), Some(offset)) => self.shared_done.push((group, offset)),
            (None, Some(offset)) if self.is_durable() => {
                self.done.insert(offset);
                self.kept_from = None;
                if self.done.len() >= DONE_MAX {
                    self.settle(self.done.last().map_or(0, |last| last + 1));
                }
            }
            _ => {}
        }
        true
    }

    /// True if a message can be sent at once.
    pub(super) fn has_room(&self) -> bool {
        let is_idle = self.repeats.is_empty() && self.standing.is_empty() && self.queue.is_empty();
        is_idle && self.has_window()
    }

    fn has_window(&self) -> bool {
        self.online.as_ref().is_some_and(|online| self.flights.len() + self.lent.len() < online.window)
    }

    /// Number of its own messages that wait to be sent, for the first time or again.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + self.standing.len() + self.repeats.len()
    }

    /// Number of its messages that were sent and not acknowledged.
    pub(super) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Tells its connection to look again.
    pub(super) fn ring(&self) {
        if let Some(online) = &self.online {
            online.bell.notify_one();
        }
    }

    /// Takes a message from one of its groups.
    pub(super) fn adopt(&mut self, entry: QueueEntry) {
        self.queue.put_back(entry);
    }

    /// The first offset of what is on its way to it from a group.
    pub(super) fn shares_from(&self, group: GroupId) -> Option<u64> {
        let own = self.flights.iter().map(|flight| &flight.entry).chain(self.queue.front());
        own.filter(|entry| entry.group == Some(group)).filter_map(|entry| entry.offset).min()
    }

    /// Takes the messages that it has done for its groups, and those that return to them.
    pub(super) fn take_shared(&mut self) -> (Vec<(GroupId, u64)>, Vec<QueueEntry>) {
        (std::mem::take(&mut self.shared_done), std::mem::take(&mut self.shared_back))
    }

    /// Takes the retained messages for a subscription; returns how many are lost because more wait than may.
    pub(crate) fn stand(&mut self, entries: impl Iterator<Item = QueueEntry>, limits: &QueueLimits) -> u64 {
        let room = limits.messages.saturating_sub(self.standing.len());
        let mut lost = 0;
        for (at, entry) in entries.enumerate() {
            if at < room { self.standing.push_back(entry) } else { lost += 1 }
        }
        if let Some(online) = &self.online {
            online.bell.notify_one();
        }
        lost
    }

    /// Forgets what is done below all that waits or is on its way, where everything below `next` has been offered to it.
    fn settle(&mut self, next: u64) {
        let own = self.flights.iter().chain(&self.repeats).filter(|flight| flight.entry.group.is_none());
        let offsets = own.map(|flight| flight.entry.offset).chain([self.queue.front().and_then(|entry| entry.offset)]);
        self.from = offsets.flatten().min().unwrap_or(next).min(next);
        self.done = self.done.split_off(&self.from);
    }

    /// The progress to store, if everything below `next` has been offered to it.
    pub(crate) fn progress(&mut self, next: u64) -> Progress {
        self.settle(next);
        let from = self.from;
        let flying = self.flights.iter().chain(&self.repeats);
        let released = flying.filter(|flight| flight.stage != Stage::Sent).filter_map(|flight| flight.entry.offset);
        let released = released.collect();
        self.kept_from = Some(from);
        Progress { from, done: self.done.iter().copied().collect(), released }
    }

    /// True if its progress has moved since it was stored. With an empty queue, that counts only from more than `least`
    /// messages that were not for this session.
    pub(crate) fn has_come_further(&self, next: u64, least: u64) -> bool {
        self.is_durable() && self.kept_from.is_none_or(|from| self.queue.is_empty() && next > from + least)
    }

    /// The stored record of the session, without its progress.
    pub(crate) fn record(&self) -> SessionRecord {
        let filters = self.filters.iter().map(|(filter, what)| StoredFilter {
            filter: filter.clone(),
            qos: what.qos as u8,
            no_local: what.no_local,
            retain_as_published: what.retain_as_published,
            id: what.id,
            began: what.began,
        });
        let reserved =
            self.reserved.iter().map(|(filter, qos)| StoredReserved { filter: filter.clone(), qos: *qos as u8 });
        SessionRecord {
            device: self.device.clone(),
            expiry_s: self.expiry_s,
            ended_ms: self.ended_ms,
            filters: filters.collect(),
            reserved: reserved.collect(),
        }
    }

    /// A session as it was stored; its waiting messages are in the stream from [`Session::begins_at`] on.
    pub(crate) fn restored(client: &Arc<str>, record: &SessionRecord, progress: Option<&Progress>, next: u64) -> Self {
        let mut session = Self::new(client, &record.device);
        session.expiry_s = record.expiry_s;
        session.ended_ms = record.ended_ms;
        for known in &record.filters {
            let what = SessionSubscription {
                qos: Qos::of(known.qos).unwrap_or(Qos::AtMostOnce),
                no_local: known.no_local,
                retain_as_published: known.retain_as_published,
                id: known.id,
                began: known.began,
            };
            session.filters.insert(known.filter.clone(), what);
        }
        for known in &record.reserved {
            session.reserve(&known.filter, Qos::of(known.qos).unwrap_or(Qos::AtMostOnce));
        }
        session.from = progress.map_or(next, |progress| progress.from);
        if let Some(progress) = progress {
            session.done = progress.done.iter().chain(&progress.released).copied().collect();
            session.repeats = progress.released.iter().map(|offset| Flight::released(*offset)).collect();
        }
        session
    }

    /// The first offset that it may still want.
    pub(crate) fn begins_at(&self) -> u64 {
        self.from
    }

    /// True if it has outlived its connection for as long as it may.
    pub(crate) fn is_over(&self, now_ms: i64) -> bool {
        let Some(ended_ms) = self.ended_ms.filter(|_| self.online.is_none()) else { return false };
        now_ms.saturating_sub(ended_ms) >= i64::from(self.expiry_s) * 1_000
    }
}

impl Flight {
    fn released(offset: u64) -> Self {
        let entry = QueueEntry {
            offset: Some(offset),
            qos: Qos::ExactlyOnce,
            group: None,
            dup: true,
            retain: false,
            ids: Box::default(),
            size_bytes: 0,
            message: None,
        };
        Self { id: id_of(offset), stage: Stage::Released, entry }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::tests::{entry, limits};
    use super::*;

    fn online(session: &mut Session) {
        session.attach(Online { turn: 1, bell: Arc::default(), window: 4 });
    }

    /// Publishes from `offset` on until nothing more is sent to a client that acknowledges all but `kept`.
    fn flood(session: &mut Session, mut offset: u64, kept: u16) -> u64 {
        loop {
            session.offer(entry(offset, Qos::AtLeastOnce, 1), &limits());
            match session.next() {
                Next::Message { id, .. } if id == kept => {}
                Next::Message { id, .. } => assert!(session.acknowledged(id)),
                _ => return offset,
            }
            offset += 1;
        }
    }

    #[test]
    fn an_unacknowledged_message_does_not_block_one_that_would_reuse_its_id() {
        for (qos, expiry_s, waits) in [
            (Qos::AtLeastOnce, 0, false),
            (Qos::AtLeastOnce, 60, false),
            (Qos::ExactlyOnce, 0, false),
            (Qos::ExactlyOnce, 60, true),
        ] {
            let mut session = Session { expiry_s, ..Session::default() };
            online(&mut session);
            for offset in [0, 65_535, 65_536] {
                session.offer(entry(offset, qos, 1), &limits());
            }
            let ids: Vec<u16> = std::iter::from_fn(|| match session.next() {
                Next::Message { id, .. } => Some(id),
                _ => None,
            })
            .collect();
            assert_eq!(id_of(0), id_of(65_535));
            let expected = if waits { vec![1] } else { vec![1, u16::MAX, 2] };
            assert_eq!(ids, expected, "{qos:?}, {expiry_s} s");
        }
    }

    #[test]
    fn delivery_behind_an_unacknowledged_message_is_bounded_and_resumes_after_it() {
        let mut session = Session { expiry_s: 60, ..Session::default() };
        online(&mut session);
        let stuck = flood(&mut session, 0, id_of(0));
        assert_eq!((stuck, session.done.len()), (DONE_MAX as u64 + 1, DONE_MAX));

        online(&mut session);
        session.fill(0, entry(0, Qos::AtLeastOnce, 1).message.as_ref());
        let Next::Message { id, dup: true, .. } = session.next() else { panic!("the first one is sent again") };
        assert_eq!(id, id_of(0));
        assert!(matches!(session.next(), Next::Nothing), "still nothing beside it");
        assert!(session.acknowledged(id));
        assert_eq!((session.from, session.done.len()), (stuck, 0));
        session.fill(stuck, entry(stuck, Qos::AtLeastOnce, 1).message.as_ref());
        let Next::Message { id, .. } = session.next() else { panic!("the next one is sent") };
        assert_eq!(id, id_of(stuck));
    }
}
