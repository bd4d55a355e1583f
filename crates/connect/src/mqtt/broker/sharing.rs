//! The groups of a broker: members join and leave, take messages in turn and return those that they have not acknowledged.

use super::group::{Share, SharedGroup};
use super::ids::{GroupId, SessionId, SubscriberId};
use super::queue::QueueEntry;
use super::session::{DONE_MAX, Session, SessionSubscription};
use super::state::{State, Subscriber};
use crate::mqtt::session_store::Progress;
use crate::topic_filter::TopicFilter;
use millstream_mqtt::Qos;

impl State {
    /// Makes `id` a member of the group that shares `filter`, which begins at `from` if it is new.
    pub(super) fn join(
        &mut self,
        id: SessionId,
        filter: &str,
        what: &SessionSubscription,
        progress: Option<&Progress>,
    ) {
        let Some(pattern) = TopicFilter::parse(filter).map(|parsed| parsed.pattern) else { return };
        let known = self.groups.iter().find(|(_, group)| *group.filter == *filter).map(|(group, _)| *group);
        let group_id = known.unwrap_or_else(|| {
            self.last += 1;
            let from = progress.map_or(what.began, |progress| progress.from);
            let done = progress.into_iter().flat_map(|progress| progress.done.iter().copied()).collect();
            let group = SharedGroup { filter: filter.into(), from, done, ..SharedGroup::default() };
            let group_id = GroupId(self.last);
            self.groups.insert(group_id, group);
            // The group decides what it wants; a member may have joined later.
            let all = SessionSubscription {
                qos: Qos::ExactlyOnce,
                no_local: false,
                retain_as_published: true,
                id: 0,
                began: from,
            };
            self.trie.insert(pattern, Subscriber { who: SubscriberId::Group(group_id), what: all });
            group_id
        });
        if let Some(group) = self.groups.get_mut(&group_id) {
            group.members.retain(|(member, _)| *member != id);
            group.members.push((id, what.clone()));
        }
        if let Some(session) = self.sessions.get_mut(&id)
            && !session.groups.contains(&group_id)
        {
            session.groups.push(group_id);
        }
    }

    /// Ends a membership. The filter of the group, if nobody is left in it.
    pub(super) fn leave(&mut self, id: SessionId, filter: &str) -> Option<Box<str>> {
        let (group_id, group) = self.groups.iter_mut().find(|(_, group)| *group.filter == *filter)?;
        let group_id = *group_id;
        group.members.retain(|(member, _)| *member != id);
        let is_empty = group.members.is_empty();
        if let Some(session) = self.sessions.get_mut(&id) {
            session.groups.retain(|known| *known != group_id);
        }
        if !is_empty {
            return None;
        }
        let group = self.groups.remove(&group_id)?;
        if let Some(parsed) = TopicFilter::parse(&group.filter) {
            self.trie.remove(parsed.pattern, |subscriber| subscriber.who == SubscriberId::Group(group_id));
        }
        Some(group.filter)
    }

    /// Tells one member with room, in turn, that there is something to take.
    pub(super) fn ring(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        let count = group.members.len();
        for step in 1..=count {
            let at = (group.turn + step) % count;
            let Some(session) = self.sessions.get(&group.members[at].0).filter(|session| session.has_room()) else {
                continue;
            };
            group.turn = at;
            return session.ring();
        }
    }

    /// Gives a session the next message of one of its groups.
    pub(super) fn share(&mut self, id: SessionId) -> Share {
        let groups = self.sessions.get(&id).filter(|session| session.has_room()).map(|session| session.groups.clone());
        for group_id in groups.into_iter().flatten() {
            self.settle(group_id);
            let (Some(session), Some(group)) = (self.sessions.get_mut(&id), self.groups.get_mut(&group_id)) else {
                continue;
            };
            let Some(what) = group.members.iter().find(|(member, _)| *member == id).map(|(_, what)| what) else {
                continue;
            };
            let Some(front) = group.queue.front() else { continue };
            // The oldest, for whose sake the others are remembered, goes out all the same.
            if group.done.len() >= DONE_MAX && front.offset > group.done.first().copied() {
                continue;
            }
            if front.message.is_none() {
                return Share::Unread(group_id);
            }
            let Some(mut entry) = group.queue.pop() else { continue };
            entry.qos = entry.qos.min(what.qos);
            entry.retain &= what.retain_as_published;
            entry.ids = if what.id == 0 { Box::default() } else { Box::new([what.id]) };
            if entry.qos == Qos::AtMostOnce {
                entry.offset.into_iter().for_each(|offset| group.is_done(offset));
            } else {
                entry.group = Some(group_id);
            }
            session.adopt(entry);
            return Share::Taken;
        }
        Share::Nothing
    }

    /// Takes back what a member has not acknowledged, and notes what one has.
    pub(super) fn take_back(&mut self, done: Vec<(GroupId, u64)>, back: Vec<QueueEntry>) {
        for (group_id, offset) in done {
            if let Some(group) = self.groups.get_mut(&group_id) {
                group.is_done(offset);
            }
        }
        for mut entry in back {
            let Some(group_id) = entry.group.take() else { continue };
            if let Some(group) = self.groups.get_mut(&group_id) {
                // To another member it is sent for the first time (MQTT 5.0, section 3.3.1.1).
                entry.dup = false;
                group.queue.put_back(entry);
                self.ring(group_id);
            }
        }
    }

    /// Forgets what a group has done below all that waits or is on its way, once that is much.
    fn settle(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get_mut(&group_id).filter(|group| group.done.len() >= DONE_MAX) else { return };
        group.settle(group.oldest(group_id, &self.sessions, self.next));
    }

    /// The progress of groups that outlive the process, if it has moved since it was last stored.
    pub(super) fn moved_groups(&mut self, least: u64) -> Vec<(Box<str>, Progress)> {
        let (next, sessions) = (self.next, &self.sessions);
        let moved = self.groups.iter_mut().filter_map(|(group_id, group)| {
            let mut members = group.members.iter().filter_map(|(member, _)| sessions.get(member));
            let is_further = group.kept_from.is_none_or(|from| group.queue.is_empty() && next > from + least);
            if !is_further || !members.any(Session::is_durable) {
                return None;
            }
            let from = group.oldest(*group_id, sessions, next);
            group.settle(from);
            group.kept_from = Some(from);
            let progress = Progress { from, done: group.done.iter().copied().collect(), released: Vec::new() };
            Some((group.filter.clone(), progress))
        });
        moved.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::queue::tests::{entry, limits};
    use super::super::session::{Next, Online};
    use super::*;

    const FILTER: &str = "$share/g/a";
    const ONE: SessionId = SessionId(1);

    /// A group with one member, whose session is not kept.
    fn shared() -> (State, GroupId) {
        let (mut state, qos) = (State::default(), Qos::AtLeastOnce);
        let mut session = Session::new(&Arc::from("c"), "d");
        session.attach(Online { turn: 1, bell: Arc::default(), window: 4 });
        state.sessions.insert(ONE, session);
        let what = SessionSubscription { qos, no_local: false, retain_as_published: false, id: 0, began: 0 };
        state.join(ONE, FILTER, &what, None);
        let group_id = *state.groups.keys().next().unwrap();
        (state, group_id)
    }

    /// Publishes from `offset` on until the member gets nothing more, who acknowledges all but `kept`.
    fn flood(state: &mut State, group_id: GroupId, offsets: std::ops::Range<u64>, kept: Option<u64>) -> u64 {
        for offset in offsets.clone() {
            state.next = offset + 1;
            state.groups.get_mut(&group_id).unwrap().queue.push(entry(offset, Qos::AtLeastOnce, 1), &limits());
            if state.share(ONE) != Share::Taken {
                return offset;
            }
            let session = state.sessions.get_mut(&ONE).unwrap();
            let Next::Message { id, entry, .. } = session.next() else { panic!("{offset} is sent") };
            assert_eq!(entry.offset, Some(offset));
            if kept != Some(offset) {
                assert!(session.acknowledged(id));
                let (done, back) = session.take_shared();
                state.take_back(done, back);
            }
        }
        offsets.end
    }

    #[test]
    fn a_group_remembers_no_more_than_it_may_also_if_no_session_of_it_is_kept() {
        let (mut state, group_id) = shared();
        let many = 3 * DONE_MAX as u64;
        assert_eq!(flood(&mut state, group_id, 0..many, None), many);
        assert!(state.groups[&group_id].done.len() <= DONE_MAX);
    }

    #[test]
    fn beside_an_unacknowledged_message_a_group_waits_and_goes_on_once_it_is_acknowledged() {
        let (mut state, group_id) = shared();
        let stuck = flood(&mut state, group_id, 0..3 * DONE_MAX as u64, Some(0));
        assert_eq!((stuck, state.groups[&group_id].done.len()), (DONE_MAX as u64 + 1, DONE_MAX));
        let session = state.sessions.get_mut(&ONE).unwrap();
        assert!(session.acknowledged(1));
        let (done, back) = session.take_shared();
        state.take_back(done, back);
        assert_eq!(state.share(ONE), Share::Taken);
        assert_eq!(state.groups[&group_id].done.len(), 0);
    }
}
