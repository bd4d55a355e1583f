//! The subscriptions of a session: how many there may be, and the memory that they take.

use millstream_types::MemoryBudget;

use super::counts::LimitReached;
use super::ids::SubscriberId;
use super::session::{Session, SessionSubscription};
use super::state::Subscriber;
use super::{Detached, SessionLink};
use crate::topic_filter::TopicFilter;

/// Approximate memory of a subscription beside its filter: it is in its session and in the trie.
const SUBSCRIPTION_BYTES: usize = 256;
/// Approximate memory of each filter level in the trie.
const LEVEL_BYTES: usize = 64;
/// Bytes of all filters of one session, so that they fit into the one record in which a kept session is stored.
const FILTERS_MAX_BYTES: usize = 128 << 10;

fn room_of(filter: &str) -> u64 {
    (SUBSCRIPTION_BYTES + 2 * filter.len() + LEVEL_BYTES * filter.split('/').count()) as u64
}

impl Session {
    /// Takes memory for a subscription; true if there was some.
    pub(super) fn take_filter_room(&mut self, filter: &str, room: &MemoryBudget) -> bool {
        if let Some(grant) = &mut self.filters_room {
            return grant.grow(room_of(filter));
        }
        self.filters_room = room.take(room_of(filter));
        self.filters_room.is_some()
    }

    fn give_filter_room(&mut self, filter: &str) {
        if let Some(grant) = &mut self.filters_room {
            grant.shrink(room_of(filter));
        }
    }

    /// Makes room for one more subscription.
    fn admit(&mut self, filter: &str, most: usize, room: &MemoryBudget) -> Result<(), LimitReached> {
        if self.filters.len() >= most {
            return Err(LimitReached { limit: "connect.mqtt.broker.subscriptions_max", value: most as u64 });
        }
        let bytes: usize = self.filters.keys().map(|known| known.len()).sum();
        if bytes + filter.len() > FILTERS_MAX_BYTES {
            return Err(LimitReached { limit: "bytes of one session's filters", value: FILTERS_MAX_BYTES as u64 });
        }
        if !self.take_filter_room(filter, room) {
            return Err(LimitReached { limit: room.setting(), value: room.limit_bytes() });
        }
        Ok(())
    }
}

impl SessionLink {
    /// Subscribes to `filter`; true if that is new. The inner error is the limit that is reached.
    pub(crate) fn subscribe(
        &self,
        filter: &str,
        mut what: SessionSubscription,
    ) -> Result<Result<bool, LimitReached>, Detached> {
        let most = self.broker.config.subscriptions_max;
        // It gets no message that was sent before, whether or not that has been dispatched.
        what.began = self.broker.partition.offsets().tail.0;
        let subscribed = self.with_state(|state, id| {
            let (Some(session), Some(parsed)) = (state.sessions.get_mut(&id), TopicFilter::parse(filter)) else {
                return None;
            };
            let known_since = session.filters.get(filter).map(|known| known.began);
            match known_since {
                Some(began) => what.began = began,
                None => {
                    if let Err(reached) = session.admit(filter, most, &self.broker.subscriptions_room) {
                        return Some(Err(reached));
                    }
                }
            }
            let is_new = known_since.is_none();
            session.filters.insert(filter.into(), what.clone());
            if parsed.group.is_some() {
                state.join(id, filter, &what, None);
                return Some(Ok(is_new));
            }
            let who = SubscriberId::Session(id);
            if !is_new {
                state.trie.remove(parsed.pattern, |known| known.who == who);
            }
            state.trie.insert(parsed.pattern, Subscriber { who, what });
            Some(Ok(is_new))
        })?;
        subscribed.ok_or(Detached::TakenOver)
    }

    /// Ends a subscription; true if there was one.
    pub(crate) fn unsubscribe(&self, filter: &str) -> Result<bool, Detached> {
        let (is_known, over) = self.with_state(|state, id| {
            let session = state.sessions.get_mut(&id);
            let is_known = session.is_some_and(|session| {
                let known = session.filters.remove(filter);
                if known.is_some() {
                    session.give_filter_room(filter);
                }
                known.is_some()
            });
            (is_known, state.forget_filter(id, filter))
        })?;
        self.broker.end_groups(over);
        Ok(is_known)
    }
}
