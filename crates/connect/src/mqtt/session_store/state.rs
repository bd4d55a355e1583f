//! The stored private spaces of the tenants of one partition. Everything is shared between versions. Records may be
//! applied in any order of their keys.

use std::sync::Arc;

use millstream_types::TenantId;
use serde::{Deserialize, Serialize};

use crate::mqtt::broker::RetainedMap;
use crate::mqtt::broker::message::Message;
use crate::registry::Version;

/// All tenants of a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tenants: imbl::HashMap<TenantId, TenantSessions>,
}

/// The sessions, retained messages and groups of one tenant.
#[derive(Debug, Clone, Default)]
pub(crate) struct TenantSessions {
    /// The last message of each topic that was to be retained.
    pub(crate) retained: RetainedMap,
    pub(crate) retained_bytes: u64,
    pub(crate) sessions: imbl::OrdMap<Arc<str>, Arc<SessionRecord>>,
    pub(crate) progress: imbl::OrdMap<Arc<str>, Arc<Progress>>,
    /// The progress of groups that share a filter.
    pub(crate) groups: imbl::OrdMap<Arc<str>, Arc<Progress>>,
    /// Ids of messages exactly once that a client has sent and not forgotten.
    pub(crate) arrived: imbl::OrdSet<(Arc<str>, u16)>,
    /// The tenant that all of it is of: another one may get its name later.
    pub(crate) born: Option<Version>,
}

/// A session, but for how far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) device: Box<str>,
    pub(crate) expiry_s: u32,
    /// When its connection ended, if it has: milliseconds since 1970-01-01T00:00:00Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_ms: Option<i64>,
    pub(crate) filters: Vec<StoredFilter>,
    /// In the order in which they were subscribed to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reserved: Vec<StoredReserved>,
}

/// A subscription of a session to commands or errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredReserved {
    pub(crate) filter: Box<str>,
    pub(crate) qos: u8,
}

/// A subscription of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredFilter {
    pub(crate) filter: Box<str>,
    pub(crate) qos: u8,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) id: u32,
    /// The first offset that it may bring.
    pub(crate) began: u64,
}

/// The progress of a session or group in the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// All messages below this offset are done.
    pub(crate) from: u64,
    /// Offsets above `from` that are done.
    pub(crate) done: Vec<u64>,
    /// Messages exactly once that the client has, but for its last word.
    pub(crate) released: Vec<u64>,
}

/// A key's new value; `None` removes it.
#[derive(Debug, Clone)]
pub(crate) enum SessionChange {
    Retained(TenantId, Arc<str>, Option<Arc<Message>>),
    Session(TenantId, Arc<str>, Option<Arc<SessionRecord>>),
    Progress(TenantId, Arc<str>, Option<Arc<Progress>>),
    Arrived(TenantId, Arc<str>, u16, bool),
    Group(TenantId, Arc<str>, Option<Arc<Progress>>),
    Born(TenantId, Option<Version>),
}

impl State {
    /// The stored state of `tenant`, if there is any.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Option<&TenantSessions> {
        self.tenants.get(tenant)
    }

    /// All tenants of which something is kept, in no order.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = (&TenantId, &TenantSessions)> {
        self.tenants.iter()
    }

    pub(crate) fn apply(&mut self, change: &SessionChange) {
        let (SessionChange::Retained(tenant, ..)
        | SessionChange::Session(tenant, ..)
        | SessionChange::Progress(tenant, ..)
        | SessionChange::Group(tenant, ..)
        | SessionChange::Arrived(tenant, ..)
        | SessionChange::Born(tenant, ..)) = change;
        let known = self.tenants.entry(tenant.clone()).or_default();
        known.apply(change);
        if known.is_empty() {
            self.tenants.remove(tenant);
        }
    }
}

impl TenantSessions {
    fn is_empty(&self) -> bool {
        self.born.is_none() && self.has_nothing()
    }

    /// True if nothing is stored apart from `born`.
    fn has_nothing(&self) -> bool {
        self.retained.is_empty()
            && self.sessions.is_empty()
            && self.progress.is_empty()
            && self.arrived.is_empty()
            && self.groups.is_empty()
    }

    fn apply(&mut self, change: &SessionChange) {
        match change {
            SessionChange::Retained(_, topic, message) => {
                let before = match message {
                    Some(message) => self.retained.insert(Arc::clone(topic), Arc::clone(message)),
                    None => self.retained.remove(topic),
                };
                let size = |message: Option<&Arc<Message>>| message.map_or(0, |message| message.size_bytes() as u64);
                self.retained_bytes = self.retained_bytes + size(message.as_ref()) - size(before.as_ref());
            }
            SessionChange::Session(_, client, value) => set(&mut self.sessions, client, value.as_ref()),
            SessionChange::Group(_, group, value) => set(&mut self.groups, group, value.as_ref()),
            SessionChange::Progress(_, client, value) => set(&mut self.progress, client, value.as_ref()),
            SessionChange::Arrived(_, client, id, true) => drop(self.arrived.insert((Arc::clone(client), *id))),
            SessionChange::Arrived(_, client, id, false) => drop(self.arrived.remove(&(Arc::clone(client), *id))),
            SessionChange::Born(_, born) => self.born = *born,
        }
    }

    /// Changes that remove all of it; whose it was goes last.
    pub(crate) fn removals(&self, tenant: &TenantId) -> impl Iterator<Item = SessionChange> {
        let retained =
            self.retained.keys().map(|topic| SessionChange::Retained(tenant.clone(), Arc::clone(topic), None));
        let sessions =
            self.sessions.keys().map(|client| SessionChange::Session(tenant.clone(), Arc::clone(client), None));
        let progress =
            self.progress.keys().map(|client| SessionChange::Progress(tenant.clone(), Arc::clone(client), None));
        let groups = self.groups.keys().map(|group| SessionChange::Group(tenant.clone(), Arc::clone(group), None));
        let arrived = self
            .arrived
            .iter()
            .map(|(client, id)| SessionChange::Arrived(tenant.clone(), Arc::clone(client), *id, false));
        let born = self.born.map(|_| SessionChange::Born(tenant.clone(), None));
        retained.chain(sessions).chain(progress).chain(groups).chain(arrived).chain(born)
    }

    /// True if `client` has sent a message exactly once with this id, and not forgotten it.
    pub(crate) fn has_arrived(&self, client: &Arc<str>, id: u16) -> bool {
        self.arrived.contains(&(Arc::clone(client), id))
    }

    /// Ids of messages exactly once that `client` has sent and not forgotten.
    pub(crate) fn arrived(&self, client: &Arc<str>) -> impl Iterator<Item = u16> {
        self.arrived.range((Arc::clone(client), 0)..=(Arc::clone(client), u16::MAX)).map(|(_, id)| *id)
    }
}

fn set<T>(map: &mut imbl::OrdMap<Arc<str>, Arc<T>>, key: &Arc<str>, value: Option<&Arc<T>>) {
    match value {
        Some(value) => drop(map.insert(Arc::clone(key), Arc::clone(value))),
        None => drop(map.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use millstream_mqtt::Qos;
    use proptest::prelude::*;

    use super::*;
    use crate::mqtt::session_store::record::encode;

    fn change() -> impl Strategy<Value = SessionChange> {
        let name = prop::sample::select(vec!["a", "b/c"]);
        (0..6_u8, 0..2_u8, name, prop::option::of(0..40_u64)).prop_map(|(kind, tenant, name, value)| {
            let tenant = TenantId::new(["acme", "other"][usize::from(tenant)]).unwrap();
            let name = Arc::from(name);
            let progress = |from| Arc::new(Progress { from, done: vec![from + 2], released: Vec::new() });
            match kind {
                0 => SessionChange::Retained(tenant, Arc::clone(&name), value.map(|size| retained(&name, size))),
                1 => SessionChange::Session(tenant, name, value.map(session)),
                2 => SessionChange::Progress(tenant, name, value.map(progress)),
                3 => SessionChange::Group(tenant, name, value.map(progress)),
                4 => SessionChange::Born(tenant, value.and_then(|born| Version::parse(&format!("{born:016x}")))),
                _ => SessionChange::Arrived(tenant, name, 7, value.is_some()),
            }
        })
    }

    fn retained(topic: &str, size: u64) -> Arc<Message> {
        Arc::new(Message {
            topic: topic.into(),
            payload: vec![b'x'; size as usize + 1].into(),
            qos: Qos::AtLeastOnce,
            properties: Box::default(),
            expires_ms: None,
            _room: None,
        })
    }

    fn session(began: u64) -> Arc<SessionRecord> {
        let (filter, qos) = ("a/#".into(), 1);
        let filter = StoredFilter { filter, qos, no_local: false, retain_as_published: true, id: 0, began };
        Arc::new(SessionRecord {
            device: "d".into(),
            expiry_s: 9,
            ended_ms: None,
            filters: vec![filter],
            reserved: Vec::new(),
        })
    }

    fn state<'a>(changes: impl IntoIterator<Item = &'a SessionChange>) -> State {
        let mut state = State::default();
        changes.into_iter().for_each(|change| state.apply(change));
        state
    }

    /// Everything that a state holds.
    fn told(state: &State) -> String {
        let tenants: BTreeMap<_, _> =
            state.tenants.iter().map(|(id, known)| (id.as_str(), format!("{known:?}"))).collect();
        format!("{tenants:?}")
    }

    proptest! {
        #[test]
        fn compaction_and_the_order_of_keys_change_nothing(changes in prop::collection::vec(change(), 0..60)) {
            let all = state(&changes);
            let mut last = BTreeMap::new();
            for change in &changes {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                encode(change, &mut key, &mut value);
                last.insert(key, change);
            }
            prop_assert_eq!(told(&state(last.values().copied())), told(&all));
            prop_assert_eq!(told(&state(last.values().rev().copied())), told(&all));
            for known in all.tenants.values() {
                let sum: u64 = known.retained.values().map(|message| message.size_bytes() as u64).sum();
                prop_assert_eq!(known.retained_bytes, sum);
            }
        }
    }
}
