//! One group with the protocol of KIP-848 as a state machine: it takes events and the time, and returns answers. No I/O, no
//! clock, no thread.
//!
//! Members speak to the server alone. Whatever changes who reads what begins a new epoch of the group. The server then assigns
//! all partitions anew, which is the target, and leads each member there by the answers to its heartbeats.
//!
//! Invariants
//! - No two members hold a partition at once: it goes to its new owner after the old one has reported that it gave it up,
//!   has left, or was removed.
//! - The epochs of the group, of its assignment and of a member never go back, and the assignment is never ahead of the group.
//! - An instance id belongs to one member.

mod assignor;
mod heartbeat;
mod member;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use millstream_types::TopicId;

#[cfg(test)]
pub(crate) use assignor::Candidate;
pub(crate) use assignor::{Assignor, PartitionSet, TopicSizes};
pub(crate) use heartbeat::{ConsumerHeartbeat, HeartbeatAnswer};
#[cfg(test)]
pub(crate) use member::MemberState;
pub(crate) use member::{AWAY_EPOCH, ConsumerMember, JOINING_EPOCH, LEAVING_EPOCH, Subscription};

use super::GroupConfig;
use super::machine::{MemberIdentity, Subscriptions};

/// Finds the topics that a subscription means now.
pub(crate) type FindTopics<'a> = &'a dyn Fn(&Subscription) -> TopicSizes;

/// The state of a consumer group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsumerGroupState {
    /// It has no members; perhaps it has positions.
    Empty,
    /// The next heartbeat assigns anew.
    Assigning,
    /// Some members do not have yet what they are to have.
    Reconciling,
    /// Every member has what it is to have.
    Stable,
    /// The group was deleted; look it up again.
    Dead,
}

impl ConsumerGroupState {
    /// The name that clients know.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// A group with the protocol of KIP-848.
#[derive(Debug, Clone)]
pub(crate) struct ConsumerGroup {
    config: GroupConfig,
    epoch: i32,
    /// The epoch of the group that the targets are of.
    assignment_epoch: i32,
    assignor: Assignor,
    members: BTreeMap<String, ConsumerMember>,
    /// The member id of each static instance.
    instances: BTreeMap<String, String>,
    /// The partitions that some member holds.
    held: HashSet<(TopicId, u32)>,
    is_dead: bool,
    /// Since when it has had no members.
    empty_since: Duration,
}

impl ConsumerGroup {
    pub(crate) fn new(config: GroupConfig, now: Duration) -> Self {
        Self {
            config,
            epoch: 0,
            assignment_epoch: 0,
            assignor: Assignor::Uniform,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            held: HashSet::new(),
            is_dead: false,
            empty_since: now,
        }
    }

    pub(crate) fn state(&self) -> ConsumerGroupState {
        let is_reconciled = |member: &ConsumerMember| member.is_reconciled(self.assignment_epoch);
        match () {
            () if self.is_dead => ConsumerGroupState::Dead,
            () if self.members.is_empty() => ConsumerGroupState::Empty,
            () if self.epoch > self.assignment_epoch => ConsumerGroupState::Assigning,
            () if self.members.values().all(is_reconciled) => ConsumerGroupState::Stable,
            () => ConsumerGroupState::Reconciling,
        }
    }

    /// Zero until it has had members.
    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(crate) fn assignment_epoch(&self) -> i32 {
        self.assignment_epoch
    }

    pub(crate) fn assignor(&self) -> Assignor {
        self.assignor
    }

    pub(crate) fn members(&self) -> &BTreeMap<String, ConsumerMember> {
        &self.members
    }

    /// The time since which the group has no members; `None` while it has some.
    pub(crate) fn empty_since(&self) -> Option<Duration> {
        (self.members.is_empty() && !self.is_dead).then_some(self.empty_since)
    }

    /// Ends it, if it has no members.
    pub(crate) fn end(&mut self) -> Result<(), ResponseError> {
        if !self.members.is_empty() {
            return Err(ResponseError::NonEmptyGroup);
        }
        self.is_dead = true;
        Ok(())
    }

    /// The topics that members have subscribed to. A pattern may mean any topic.
    pub(crate) fn subscriptions(&self) -> Subscriptions {
        let subscriptions = || self.members.values().map(|member| &member.subscription);
        if subscriptions().any(|subscription| subscription.regex.is_some()) {
            return Subscriptions::Any;
        }
        let names = subscriptions().flat_map(|subscription| &subscription.names);
        Subscriptions::Topics(names.map(|name| name.clone().into()).collect())
    }

    /// A member joins, joins again, goes on or leaves.
    ///
    /// # Errors
    /// Kafka's for a member or instance that is unknown, fenced or not free yet, and for a member too many. Nothing changes.
    pub(crate) fn heartbeat(
        &mut self,
        now: Duration,
        beat: &ConsumerHeartbeat,
        find_topics: FindTopics<'_>,
    ) -> Result<HeartbeatAnswer, ResponseError> {
        if matches!(beat.epoch, LEAVING_EPOCH | AWAY_EPOCH) {
            return self.leave(now, beat);
        }
        if beat.size_bytes() > self.config.member_metadata_max_bytes {
            return Err(ResponseError::InvalidRequest);
        }
        let (mut member, is_new) = self.admit(now, beat)?;
        let assigned_before = member.assigned.clone();
        let is_other = member.update(beat);
        member.rebalance_timeout = member.rebalance_timeout.min(self.config.rebalance_timeout_max);
        let has_new_topics =
            self.look_for_topics(now, &mut member, is_other || beat.epoch == JOINING_EPOCH, find_topics);
        self.members.insert(beat.member_id.clone(), member);
        if is_new || is_other || has_new_topics {
            self.epoch = self.epoch.saturating_add(1);
        }
        if self.assignment_epoch < self.epoch {
            self.assign();
        }
        Ok(self.lead(now, beat, &assigned_before))
    }

    /// Takes the member out of the group, to be put back; begins it if it comes. True for one that is new to the assignment.
    fn admit(&mut self, now: Duration, beat: &ConsumerHeartbeat) -> Result<(ConsumerMember, bool), ResponseError> {
        let id = &beat.member_id;
        let holder = beat.instance.as_ref().and_then(|instance| self.instances.get(instance)).cloned();
        let is_joining = beat.epoch == JOINING_EPOCH;
        match &holder {
            Some(holder) if holder == id => {}
            // Its predecessor has to have gone, and its own id must be that of no other member.
            Some(holder) if is_joining => {
                let is_away = self.members.get(holder).is_none_or(|member| member.epoch == AWAY_EPOCH);
                if !is_away || self.members.contains_key(id) {
                    return Err(ResponseError::UnreleasedInstanceId);
                }
            }
            Some(_) => return Err(ResponseError::FencedInstanceId),
            None if beat.instance.is_some() && !is_joining => return Err(ResponseError::UnknownMemberId),
            None => {}
        }
        if let Some(member) = self.members.get(id).filter(|_| !is_joining) {
            check_epoch(member, beat)?;
        }
        let known = if is_joining { holder.as_ref().unwrap_or(id) } else { id };
        let is_full = self.members.len() >= self.config.group_members_max;
        let (mut member, is_new) = match self.members.remove(known) {
            Some(member) => (member, false),
            None if !is_joining => return Err(ResponseError::UnknownMemberId),
            None if is_full => return Err(ResponseError::GroupMaxSizeReached),
            None => (ConsumerMember::new(now), true),
        };
        if is_joining {
            self.name(&mut member, beat);
            member.held().for_each(|partition| {
                self.held.remove(partition);
            });
            member.start_anew();
            self.held.extend(member.held());
        }
        Ok((member, is_new))
    }

    /// Notes which member has which instance id.
    fn name(&mut self, member: &mut ConsumerMember, beat: &ConsumerHeartbeat) {
        if let Some(before) = member.instance.take() {
            self.instances.remove(&before);
        }
        if let Some(instance) = &beat.instance {
            self.instances.insert(instance.clone(), beat.member_id.clone());
        }
        member.instance.clone_from(&beat.instance);
    }

    /// Looks for the topics that the member has subscribed to, unless that was done a moment ago. True if they are others than
    /// before, or have other numbers of partitions.
    fn look_for_topics(
        &self,
        now: Duration,
        member: &mut ConsumerMember,
        at_once: bool,
        find_topics: FindTopics<'_>,
    ) -> bool {
        if !at_once && now < member.looked_for_topics + self.config.consumer_heartbeat_interval {
            return false;
        }
        member.looked_for_topics = now;
        let found = find_topics(&member.subscription);
        if *member.topics == found {
            return false;
        }
        // Most members of a group want the same: they share the list.
        let same = self.members.values().find(|other| *other.topics == found).map(|other| other.topics.clone());
        member.topics = same.unwrap_or_else(|| Arc::new(found));
        true
    }

    /// Gives every member a target.
    fn assign(&mut self) {
        self.assignor = self.preferred_assignor();
        let mut order: Vec<_> = self.members.iter_mut().collect();
        // Static members first: their ids outlast restarts, so an order by them is the same afterwards.
        let place = |member: &ConsumerMember, id: &str| {
            (member.instance.is_none(), member.instance.clone().unwrap_or_else(|| id.to_owned()))
        };
        order.sort_by_cached_key(|(id, member)| place(member, id));
        let candidates =
            order.iter().map(|(_, member)| assignor::Candidate { topics: &member.topics, target: &member.target });
        let targets = self.assignor.assign(&candidates.collect::<Vec<_>>());
        for ((_, member), target) in order.into_iter().zip(targets) {
            member.target = target;
        }
        self.assignment_epoch = self.epoch;
    }

    /// The assignor that most members ask for, the first one if none does.
    fn preferred_assignor(&self) -> Assignor {
        let votes =
            |assignor: &Assignor| self.members.values().filter(|member| member.assignor == Some(*assignor)).count();
        // The last of equals wins, so that the first comes last.
        Assignor::ALL.into_iter().rev().max_by_key(votes).unwrap_or(Assignor::Uniform)
    }

    /// Leads the member a step towards its target.
    fn lead(&mut self, now: Duration, beat: &ConsumerHeartbeat, assigned_before: &PartitionSet) -> HeartbeatAnswer {
        let Some(member) = self.members.get_mut(&beat.member_id) else {
            return HeartbeatAnswer { epoch: JOINING_EPOCH, assignment: None };
        };
        let held_before: Vec<_> = member.held().copied().collect();
        if member.reconcile(self.assignment_epoch, beat.owned.as_ref(), |partition| self.held.contains(partition)) {
            let is_revoking = !member.revoking.is_empty();
            member.must_revoke_by = is_revoking.then_some(now + member.rebalance_timeout);
            held_before.iter().for_each(|partition| {
                self.held.remove(partition);
            });
            for partition in member.held() {
                let was_free = self.held.insert(*partition);
                debug_assert!(was_free, "two members hold {partition:?}");
            }
        }
        member.expires = now + self.config.consumer_session_timeout;
        let must_say = beat.epoch == JOINING_EPOCH || beat.is_full() || member.assigned != *assigned_before;
        HeartbeatAnswer { epoch: member.epoch, assignment: must_say.then(|| member.assigned.clone()) }
    }

    /// A member leaves, or a static one goes and will be back.
    fn leave(&mut self, now: Duration, beat: &ConsumerHeartbeat) -> Result<HeartbeatAnswer, ResponseError> {
        let holder = beat.instance.as_ref().map(|instance| self.instances.get(instance));
        match holder {
            Some(None) => return Err(ResponseError::UnknownMemberId),
            Some(Some(holder)) if *holder != beat.member_id => return Err(ResponseError::FencedInstanceId),
            _ => {}
        }
        let member = self.members.get_mut(&beat.member_id).ok_or(ResponseError::UnknownMemberId)?;
        if beat.epoch == AWAY_EPOCH {
            member.held().for_each(|partition| {
                self.held.remove(partition);
            });
            member.go_away();
            self.held.extend(member.held());
        } else {
            self.remove(now, std::slice::from_ref(&beat.member_id));
        }
        Ok(HeartbeatAnswer { epoch: beat.epoch, assignment: None })
    }

    /// Removes members; what they hold is free.
    fn remove(&mut self, now: Duration, ids: &[String]) {
        for id in ids {
            let Some(member) = self.members.remove(id) else { continue };
            member.held().for_each(|partition| {
                self.held.remove(partition);
            });
            if let Some(instance) = &member.instance {
                self.instances.remove(instance);
            }
            self.epoch = self.epoch.saturating_add(1);
        }
        if self.members.is_empty() {
            self.empty_since = now;
        }
    }

    /// Checks that the client may commit positions now. A client outside the group may, while the group has no members.
    pub(crate) fn may_commit(&self, speaker: MemberIdentity<'_>) -> Result<(), ResponseError> {
        if speaker.generation < 0 && self.members.is_empty() && !self.is_dead {
            return Ok(());
        }
        self.check(speaker)
    }

    /// As [`ConsumerGroup::may_commit`], in a transaction, which may also come from outside the group.
    pub(crate) fn may_commit_in_transaction(&self, speaker: MemberIdentity<'_>) -> Result<(), ResponseError> {
        if self.is_dead {
            return Err(ResponseError::CoordinatorNotAvailable);
        }
        let is_anonymous = speaker.member_id.is_empty() && speaker.instance.is_none();
        if speaker.generation < 0 && is_anonymous {
            return Ok(());
        }
        // Transactional clients know this error.
        self.may_commit(speaker).map_err(|error| match error {
            ResponseError::StaleMemberEpoch => ResponseError::IllegalGeneration,
            error => error,
        })
    }

    /// Checks that the request comes from a member in its present epoch.
    pub(crate) fn check(&self, speaker: MemberIdentity<'_>) -> Result<(), ResponseError> {
        let member = self.members.get(speaker.member_id).ok_or(ResponseError::UnknownMemberId)?;
        match member.epoch == speaker.generation {
            true => Ok(()),
            false => Err(ResponseError::StaleMemberEpoch),
        }
    }

    /// Runs the timers that are due by `now`.
    pub(crate) fn tick(&mut self, now: Duration) {
        let is_due =
            |member: &ConsumerMember| member.expires <= now || member.must_revoke_by.is_some_and(|by| by <= now);
        let due: Vec<_> = self.members.iter().filter(|(_, member)| is_due(member)).map(|(id, _)| id.clone()).collect();
        if !due.is_empty() {
            self.remove(now, &due);
        }
    }

    /// When [`ConsumerGroup::tick`] has something to do next.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.members
            .values()
            .map(|member| member.must_revoke_by.map_or(member.expires, |by| by.min(member.expires)))
            .min()
    }
}

/// Checks the epoch that a member names. It may be the one before, if the answer with the new one has not come: then it has no
/// other partitions than it was given.
fn check_epoch(member: &ConsumerMember, beat: &ConsumerHeartbeat) -> Result<(), ResponseError> {
    let missed_answer = || {
        let owned = beat.owned.as_ref();
        beat.epoch == member.previous_epoch && owned.is_some_and(|owned| owned.is_subset(&member.assigned))
    };
    if beat.epoch == member.epoch || beat.epoch < member.epoch && missed_answer() {
        return Ok(());
    }
    Err(ResponseError::FencedMemberEpoch)
}
