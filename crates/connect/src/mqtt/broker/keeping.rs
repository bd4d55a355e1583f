//! Stores and restores the sessions of a broker, expires sessions and publishes delayed wills.

use std::sync::Arc;
use std::time::Duration;

use millstream_types::{MemoryBudget, Offset, TenantId};

use super::ids::{SessionId, SubscriberId};
use super::session::Session;
use super::state::{State, Subscriber};
use super::{Broker, Detached, SessionLink};
use crate::mqtt::session_store::{Keep, SessionCommand, StoreReply, StoredPublish, TenantSessions};
use crate::mqtt::will::PendingWill;
use crate::topic_filter::TopicFilter;
use crate::usage::Moment;

/// Messages of others after which it is kept anew that an idle session has passed them.
const PASSED_MAX: u64 = 65_536;

impl State {
    /// The state of a tenant's space as it was kept, before the stream is read from the offset that is answered.
    pub(super) fn restored(
        kept: Option<&TenantSessions>,
        room: &MemoryBudget,
        now_ms: i64,
        next: u64,
    ) -> (Self, Offset) {
        let mut state = Self::default();
        let mut from = next;
        for (client, record) in kept.into_iter().flat_map(|kept| &kept.sessions) {
            let progress = kept.and_then(|kept| kept.progress.get(client));
            let mut session = Session::restored(client, record, progress.map(|progress| &**progress), next);
            // It was connected when the process ended.
            session.ended_ms.get_or_insert(now_ms);
            from = from.min(session.begins_at());
            state.last += 1;
            let id = SessionId(state.last);
            let filters = session.filters.clone();
            for filter in filters.keys() {
                // It was granted before; a budget that has become smaller takes nothing away.
                session.take_filter_room(filter, room);
            }
            state.clients.insert(Arc::clone(client), id);
            state.sessions.insert(id, session);
            for (filter, what) in &filters {
                match TopicFilter::parse(filter) {
                    Some(parsed) if parsed.group.is_some() => {
                        let progress = kept.and_then(|kept| kept.groups.get(&**filter)).map(|progress| &**progress);
                        from = from.min(progress.map_or(what.began, |progress| progress.from));
                        state.join(id, filter, what, progress);
                    }
                    Some(parsed) => {
                        let subscriber = Subscriber { who: SubscriberId::Session(id), what: what.clone() };
                        state.trie.insert(parsed.pattern, subscriber);
                    }
                    None => {}
                }
            }
        }
        state.next = from;
        (state, Offset(from))
    }
}

impl Broker {
    /// Stores changed sessions, ends sessions that have expired, and publishes wills that are due.
    pub(super) fn tick(self: &Arc<Self>) {
        let (now_ms, now) = (self.wall.now_ms(), self.monotonic.now());
        let mut state = self.state.lock();
        let next = state.next;
        let over: Vec<SessionId> =
            state.sessions.iter().filter(|(_, session)| session.is_over(now_ms)).map(|(id, _)| *id).collect();
        let ended: Vec<_> = over.into_iter().filter_map(|id| state.remove(id)).collect();
        let (mut moved, mut wills) = (Vec::new(), Vec::new());
        for session in state.sessions.values_mut() {
            if session.has_come_further(next, PASSED_MAX) {
                let keep = Keep { progress: Some(session.progress(next)), ..Keep::default() };
                moved.push((Arc::clone(&session.client), keep));
            }
            if let Some((_, will)) = session.will.take_if(|(due, _)| *due <= now) {
                wills.push((Arc::clone(&session.client), session.device.clone(), will));
            }
        }
        let groups = state.moved_groups(PASSED_MAX);
        drop(state);
        for (filter, progress) in groups {
            let group = filter.into();
            self.keep_in_passing(|tenant| SessionCommand::KeepGroup { tenant, group, progress: Some(progress) });
        }
        for (client, keep) in moved {
            self.keep_in_passing(|tenant| SessionCommand::Keep { tenant, client, keep });
        }
        for session in ended {
            self.end(session);
        }
        for (client, device, will) in wills {
            self.publish_will(&client, &device, &will);
        }
    }

    /// Groups that nobody is in any more have ended.
    pub(super) fn end_groups(&self, filters: impl IntoIterator<Item = Box<str>>) {
        for filter in filters {
            let group = filter.into();
            self.keep_in_passing(|tenant| SessionCommand::KeepGroup { tenant, group, progress: None });
        }
    }

    /// A session has ended: nothing of it is kept, and its will is published.
    pub(super) fn end(self: &Arc<Self>, mut session: Session) {
        if let Some((_, will)) = session.will.take() {
            self.publish_will(&session.client, &session.device, &will);
        }
        self.end_groups(std::mem::take(&mut session.groups_over));
        if session.is_durable() {
            let client = Arc::clone(&session.client);
            self.keep_in_passing(|tenant| SessionCommand::End { tenant, client });
        }
    }

    /// Publishes a will if its device may send as much; nobody is left to be told if not, or if it fails.
    pub(super) fn publish_will(self: &Arc<Self>, client: &Arc<str>, device: &str, left: &PendingWill) {
        let now_ms = self.wall.now_ms();
        let now = Moment { wall_ms: now_ms, monotonic: self.monotonic.now() };
        let passed = left.pass(now, &self.unknown_devices, |upstream| {
            let expires = left.will.expires(now_ms);
            let draft = left.will.draft(client, device, &expires, upstream.is_some());
            let retain = draft.retain.then(|| Arc::new(draft.to_message()));
            let one = StoredPublish { record: draft.to_publish(now_ms), upstream, retain, once: None };
            let (client, stream) = (Arc::clone(client), self.tenant_store.stream.clone());
            self.keep_in_passing(|tenant| SessionCommand::Publish { tenant, client, stream, messages: vec![one] })
        });
        if let Err(problem) = passed {
            tracing::debug!(%client, device, why = problem.text(), "mqtt: a will is not published");
        }
    }

    /// Hands over a command that nobody waits for; true if it was taken.
    fn keep_in_passing(&self, command: impl FnOnce(TenantId) -> SessionCommand) -> bool {
        let submitted = self.tenant_store.submit(command);
        match submitted {
            // A receiver that is dropped would withdraw it.
            Ok(answer) => drop(tokio::spawn(answer)),
            Err(error) => {
                tracing::warn!(%error, "what a private space keeps could not be written");
                return false;
            }
        }
        true
    }
}

impl SessionLink {
    /// Stores the filters of a durable session, and asks for the retained messages.
    pub(crate) fn keep_filters(&self) -> Result<Option<StoreReply>, Detached> {
        let session = self.with(|session| session.is_durable().then(|| session.record()))?;
        if session.is_none() {
            return Ok(None);
        }
        let keep = Keep { session, ..Keep::default() };
        Ok(Some(self.ask(|tenant, client| SessionCommand::Keep { tenant, client, keep })))
    }

    /// Asks for the tenant's retained messages.
    pub(crate) fn retained(&self) -> StoreReply {
        self.ask(|tenant, _| SessionCommand::Retained { tenant })
    }

    /// Stores the progress of a durable session, and forgets the ids.
    pub(crate) fn keep_progress(&self, forgotten: &[u16]) -> Result<Option<StoreReply>, Detached> {
        let progress = self.with_state(|state, id| {
            let next = state.next;
            state.sessions.get_mut(&id).filter(|session| session.is_durable()).map(|session| session.progress(next))
        })?;
        let Some(progress) = progress else { return Ok(None) };
        let keep = Keep { progress: Some(progress), forgotten: forgotten.to_vec(), session: None };
        Ok(Some(self.ask(|tenant, client| SessionCommand::Keep { tenant, client, keep })))
    }

    /// True if the client's message exactly once with this id is taken, durably, and not forgotten.
    pub(crate) fn has_arrived(&self, id: u16) -> bool {
        let tenant_store = &self.broker.tenant_store;
        let snapshot = tenant_store.snapshot();
        snapshot.state.tenant(&tenant_store.tenant).is_some_and(|known| known.has_arrived(&self.client, id))
    }

    /// Publishes messages, and stores their retained values and ids in the same append.
    pub(crate) fn publish(&self, messages: Vec<StoredPublish>) -> StoreReply {
        let stream = self.broker.tenant_store.stream.clone();
        self.ask(|tenant, client| SessionCommand::Publish { tenant, client, stream, messages })
    }

    fn ask(&self, command: impl FnOnce(TenantId, Arc<str>) -> SessionCommand) -> StoreReply {
        StoreReply::of(self.broker.tenant_store.submit(|tenant| command(tenant, Arc::clone(&self.client))))
    }

    /// Writes down that the session begins, or goes on.
    pub(super) async fn keep_beginning(&self) -> Result<(), millstream_view::Error> {
        let kept = self.with_state(|state, id| {
            let next = state.next;
            let session = state.sessions.get_mut(&id).filter(|session| session.is_durable())?;
            Some((session.record(), session.progress(next)))
        });
        // Another connection has taken it over: that is found out soon enough.
        let Ok(Some((session, progress))) = kept else { return Ok(()) };
        let keep = Keep { session: Some(session), progress: Some(progress), forgotten: Vec::new() };
        let client = Arc::clone(&self.client);
        let answer = self.broker.tenant_store.submit(|tenant| SessionCommand::Keep { tenant, client, keep })?;
        answer.await.unwrap_or(Err(millstream_view::Error::Stopped)).map(drop)
    }

    /// Sets the will that is published once the session has been left alone for `delay_s`, or has ended.
    pub(crate) fn leave_will(&self, left: PendingWill) {
        let (now, asked_s) = (self.broker.monotonic.now(), left.will.delay_s);
        let mut will = Some(left);
        let left = self.with(|session| {
            let delay_s = session.expiry_s.min(asked_s);
            if delay_s > 0 {
                session.will = will.take().map(|will| (now + Duration::from_secs(delay_s.into()), will));
            }
        });
        // A connection that takes the session over within the delay cancels the will.
        let goes_on = left.is_err() && asked_s > 0 && self.broker.state.lock().sessions.contains_key(&self.id);
        if let Some(will) = will.filter(|_| !goes_on) {
            self.broker.publish_will(&self.client, &self.device, &will);
        }
    }

    /// Sets how long the session outlives its connection.
    pub(crate) fn set_expiry(&self, expiry_s: u32) {
        let most = self.broker.config.session_expiry_max_s;
        let was_durable = self.with(|session| {
            let was = session.is_durable();
            session.expiry_s = expiry_s.min(most);
            was
        });
        if was_durable == Ok(true) && expiry_s == 0 {
            let client = Arc::clone(&self.client);
            self.broker.keep_in_passing(|tenant| SessionCommand::End { tenant, client });
        }
    }
}

impl Drop for SessionLink {
    fn drop(&mut self) {
        let now_ms = self.broker.wall.now_ms();
        // Another connection has it already, or nobody can.
        let left = self.with_state(|state, id| {
            let next = state.next;
            let session = state.sessions.get_mut(&id)?;
            session.detach();
            session.ended_ms = Some(now_ms);
            if session.is_durable() {
                let progress = Some(session.progress(next));
                let keep = Keep { session: Some(session.record()), progress, forgotten: Vec::new() };
                let (done, back) = session.take_shared();
                state.take_back(done, back);
                Some(Ok(keep))
            } else {
                state.remove(id).map(Err)
            }
        });
        match left {
            Ok(Some(Ok(keep))) => {
                let client = Arc::clone(&self.client);
                self.broker.keep_in_passing(|tenant| SessionCommand::Keep { tenant, client, keep });
            }
            Ok(Some(Err(session))) => self.broker.end(session),
            Ok(None) | Err(_) => {}
        }
    }
}
