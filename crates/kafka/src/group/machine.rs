//! One group as a state machine: it takes events and the time, and returns answers. No I/O, no clock, no thread.
//!
//! ```text
//!             first join                all have joined, or time is up          the leader has assigned
//!    Empty ───────────────► Preparing ─────────────────────────────► Completing ───────────────► Stable
//!      ▲                     ▲   │ nobody is left                        │ somebody came, left, died   │
//!      └─────────────────────┼───┘                                      │                             │
//!                            └───────────────────────────────────────────┴─────────────────────────────┘
//! ```
//!
//! Invariants
//! - A generation ends when a rebalance has gathered its members; a request that names an earlier generation is refused.
//! - Only members of `Completing` and `Stable` have a leader and a protocol that all of them support.
//! - A waiting call has a call id, which is answered exactly once.

mod rebalance;
mod result;
mod subscription;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

pub(crate) use result::{CallResult, JoinError, JoinResult, SyncResult};
pub(crate) use subscription::Subscriptions;

use super::GroupConfig;
use super::member::{CallId, JoinRequest, Member};

/// The state of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupState {
    /// It has no members; perhaps it has positions.
    Empty,
    /// Waits until its members have joined.
    PreparingRebalance,
    /// Waits for what the leader assigns.
    CompletingRebalance,
    /// Every member has, or can ask for, its assignment.
    Stable,
    /// The group was deleted; look it up again.
    Dead,
}

impl GroupState {
    /// The name that clients know.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// The member id, instance id and generation that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemberIdentity<'a> {
    pub(crate) member_id: &'a str,
    pub(crate) instance: Option<&'a str>,
    pub(crate) generation: i32,
}

/// A group with the classic protocol. See the module for its states.
#[derive(Debug, Clone)]
pub(crate) struct ClassicGroup {
    config: GroupConfig,
    state: GroupState,
    generation: i32,
    protocol_type: String,
    protocol: String,
    leader: String,
    members: BTreeMap<String, Member>,
    /// The member id of each static instance.
    instances: BTreeMap<String, String>,
    /// Ids that were handed out, and the times at which they lapse unless a member joins with them.
    pending: BTreeMap<String, Duration>,
    /// When the rebalance is over, or those are removed that have not asked for their assignment.
    deadline: Option<Duration>,
    /// While an empty group waits for further members: until when at the latest.
    initial_until: Option<Duration>,
    /// Since when it has had no members.
    empty_since: Duration,
}

impl ClassicGroup {
    pub(crate) fn new(config: GroupConfig, now: Duration) -> Self {
        Self {
            config,
            state: GroupState::Empty,
            generation: 0,
            protocol_type: String::new(),
            protocol: String::new(),
            leader: String::new(),
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            deadline: None,
            initial_until: None,
            empty_since: now,
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        self.state
    }

    /// Zero until it has had members.
    pub(crate) fn generation(&self) -> i32 {
        self.generation
    }

    /// True if `member_id` is a member or was handed out to become one.
    pub(crate) fn knows(&self, member_id: &str) -> bool {
        self.members.contains_key(member_id) || self.pending.contains_key(member_id)
    }

    pub(crate) fn has_instance(&self, instance: &str) -> bool {
        self.instances.contains_key(instance)
    }

    /// Members from before a start come back one after the other: its first rebalance waits so long for each.
    pub(crate) fn wait_for_returning(&mut self, delay: Duration) {
        if self.generation == 0 {
            self.config.initial_rebalance_delay = delay;
        }
    }

    pub(crate) fn protocol_type(&self) -> &str {
        &self.protocol_type
    }

    /// The protocol that its members have agreed on, once they have.
    pub(crate) fn protocol(&self) -> &str {
        &self.protocol
    }

    pub(crate) fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    #[cfg(test)]
    pub(crate) fn leader(&self) -> &str {
        &self.leader
    }

    /// The time since which the group has no members; `None` while it has members or a member is about to join.
    pub(crate) fn empty_since(&self) -> Option<Duration> {
        (self.state == GroupState::Empty && self.pending.is_empty()).then_some(self.empty_since)
    }

    /// Ends it, if it has no members.
    pub(crate) fn end(&mut self) -> Result<(), ResponseError> {
        match self.empty_since() {
            Some(_) => self.state = GroupState::Dead,
            None if self.state == GroupState::Dead => {}
            None => return Err(ResponseError::NonEmptyGroup),
        }
        Ok(())
    }

    /// A member joins, or joins again. It is answered at once, or when the rebalance is over.
    pub(crate) fn join(&mut self, now: Duration, call_id: CallId, mut join: JoinRequest, out: &mut Vec<CallResult>) {
        join.rebalance_timeout = join.rebalance_timeout.min(self.config.rebalance_timeout_max);
        if let Err(error) = self.check_join(&join) {
            let member_id = join.member_id;
            out.push(CallResult::Join(call_id, Err(JoinError { error, member_id })));
            return;
        }
        let known = match (&join.instance, join.member_id.is_empty()) {
            (Some(instance), true) => self.instances.get(instance).cloned(),
            _ => None,
        };
        if let Some(old_id) = known {
            return self.return_static(now, call_id, join, &old_id, out);
        }
        if self.members.contains_key(&join.member_id) {
            return self.rejoin(now, call_id, join, out);
        }
        if join.member_id.is_empty() && join.must_come_back && join.instance.is_none() {
            self.pending.insert(join.new_id.clone(), now + join.session_timeout);
            let refused = JoinError { error: ResponseError::MemberIdRequired, member_id: join.new_id };
            out.push(CallResult::Join(call_id, Err(refused)));
            return;
        }
        self.add(now, call_id, join, out);
    }

    fn check_join(&self, join: &JoinRequest) -> Result<(), ResponseError> {
        let sizes = join.protocols.iter().map(|(name, metadata)| name.len() + metadata.len());
        let has_id = !join.member_id.is_empty();
        let is_member = self.members.contains_key(&join.member_id);
        if !(self.config.session_timeout_min..=self.config.session_timeout_max).contains(&join.session_timeout) {
            return Err(ResponseError::InvalidSessionTimeout);
        }
        if join.protocols.is_empty() || join.protocol_type.is_empty() {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        if sizes.sum::<usize>() > self.config.member_metadata_max_bytes {
            return Err(ResponseError::InvalidRequest);
        }
        if has_id {
            self.check_instance(&join.member_id, join.instance.as_deref())?;
            if !is_member && !self.pending.contains_key(&join.member_id) {
                return Err(ResponseError::UnknownMemberId);
            }
        }
        let returns = join.instance.as_ref().filter(|_| !has_id).and_then(|instance| self.instances.get(instance));
        let own = if has_id { &join.member_id } else { returns.map_or("", |id| id) };
        if !self.fits(join, own) {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        let taken = self.members.len() + self.pending.len();
        if !has_id && returns.is_none() && taken >= self.config.group_members_max {
            return Err(ResponseError::GroupMaxSizeReached);
        }
        Ok(())
    }

    /// True if the members other than `own` can agree with the joining member on a protocol.
    fn fits(&self, join: &JoinRequest, own: &str) -> bool {
        let mut others = self.members.iter().filter(|(id, _)| *id != own).map(|(_, member)| member).peekable();
        if others.peek().is_none() {
            return true;
        }
        let others: Vec<_> = others.collect();
        join.protocol_type == self.protocol_type
            && join.protocols.iter().any(|(name, _)| others.iter().all(|other| other.speaks(name)))
    }

    /// Checks that `member_id` is the current member of `instance`, if the request names one.
    fn check_instance(&self, member_id: &str, instance: Option<&str>) -> Result<(), ResponseError> {
        let Some(instance) = instance else { return Ok(()) };
        match self.instances.get(instance) {
            None => Err(ResponseError::UnknownMemberId),
            Some(id) if id != member_id => Err(ResponseError::FencedInstanceId),
            Some(_) => Ok(()),
        }
    }

    /// Checks that the request comes from a member of the current generation.
    fn check(&self, speaker: MemberIdentity<'_>) -> Result<(), ResponseError> {
        if self.state == GroupState::Dead {
            return Err(ResponseError::UnknownMemberId);
        }
        self.check_instance(speaker.member_id, speaker.instance)?;
        if !self.members.contains_key(speaker.member_id) {
            return Err(ResponseError::UnknownMemberId);
        }
        if speaker.generation != self.generation {
            return Err(ResponseError::IllegalGeneration);
        }
        Ok(())
    }

    fn add(&mut self, now: Duration, call_id: CallId, join: JoinRequest, out: &mut Vec<CallResult>) {
        let id = if join.member_id.is_empty() { join.new_id.clone() } else { join.member_id.clone() };
        self.pending.remove(&id);
        if self.members.is_empty() {
            self.protocol_type.clone_from(&join.protocol_type);
        }
        if let Some(instance) = &join.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        let mut member = Member::new(join, now);
        member.joining = Some(call_id);
        self.members.insert(id, member);
        match self.initial_until {
            // One came while an empty group was waiting for more: perhaps there are more still.
            Some(until) => self.deadline = Some((now + self.config.initial_rebalance_delay).min(until)),
            None => self.prepare(now, out),
        }
        self.try_complete(now, out);
    }

    /// The instance has started anew and has forgotten its id: it gets another, and its predecessor is fenced.
    fn return_static(
        &mut self,
        now: Duration,
        call_id: CallId,
        join: JoinRequest,
        old_id: &str,
        out: &mut Vec<CallResult>,
    ) {
        let Some(mut member) = self.members.remove(old_id) else { return };
        answer_for(&mut member, old_id, ResponseError::FencedInstanceId, out);
        let (id, skips) = (join.new_id.clone(), join.may_skip_assignment);
        self.instances.extend(join.instance.iter().map(|instance| (instance.clone(), id.clone())));
        let before = member.metadata(&self.protocol);
        member.update(join, now);
        let is_unchanged = member.speaks(&self.protocol) && member.metadata(&self.protocol) == before;
        let led = self.leader == old_id;
        if led {
            self.leader.clone_from(&id);
        }
        self.members.insert(id.clone(), member);
        if self.state != GroupState::Stable || !is_unchanged {
            return self.rejoin_rebalance(now, call_id, &id, out);
        }
        let mut joined = self.joined(&id);
        if led && skips {
            joined.skip_assignment = true;
        } else if led {
            // An older client would assign if it were told that it leads: it hears of its predecessor instead.
            joined.leader = old_id.to_owned();
            joined.members.clear();
        }
        out.push(CallResult::Join(call_id, Ok(joined)));
    }

    fn rejoin(&mut self, now: Duration, call_id: CallId, join: JoinRequest, out: &mut Vec<CallResult>) {
        let id = join.member_id.clone();
        let Some(member) = self.members.get_mut(&id) else { return };
        let is_unchanged = member.protocols == join.protocols;
        member.update(join, now);
        match self.state {
            GroupState::CompletingRebalance if is_unchanged => {
                out.push(CallResult::Join(call_id, Ok(self.joined(&id))));
            }
            // A leader that joins again wants to assign again.
            GroupState::Stable if is_unchanged && self.leader != id => {
                out.push(CallResult::Join(call_id, Ok(self.joined(&id))));
            }
            _ => self.rejoin_rebalance(now, call_id, &id, out),
        }
    }

    fn rejoin_rebalance(&mut self, now: Duration, call_id: CallId, id: &str, out: &mut Vec<CallResult>) {
        self.prepare(now, out);
        if let Some(earlier) = self.members.get_mut(id).and_then(|member| member.joining.replace(call_id)) {
            let refused = JoinError { error: ResponseError::RebalanceInProgress, member_id: id.to_owned() };
            out.push(CallResult::Join(earlier, Err(refused)));
        }
        self.try_complete(now, out);
    }

    /// A member asks for its assignment; the leader sends the assignments of all members.
    pub(crate) fn sync(
        &mut self,
        now: Duration,
        call_id: CallId,
        speaker: MemberIdentity<'_>,
        named: (Option<&str>, Option<&str>),
        assignments: Vec<(String, Bytes)>,
        out: &mut Vec<CallResult>,
    ) {
        let differs = |named: Option<&str>, own: &str| named.is_some_and(|named| named != own);
        let refusal = match self.check(speaker) {
            Err(error) => Some(error),
            Ok(()) if self.state == GroupState::PreparingRebalance => Some(ResponseError::RebalanceInProgress),
            Ok(()) if differs(named.0, &self.protocol_type) || differs(named.1, &self.protocol) => {
                Some(ResponseError::InconsistentGroupProtocol)
            }
            Ok(()) => None,
        };
        if let Some(error) = refusal {
            out.push(CallResult::Sync(call_id, Err(error)));
            return;
        }
        if let Some(member) = self.members.get_mut(speaker.member_id) {
            member.heard_of(now);
            member.has_synced = true;
            if let Some(earlier) = member.syncing.replace(call_id) {
                out.push(CallResult::Sync(earlier, Err(ResponseError::RebalanceInProgress)));
            }
        }
        if self.state == GroupState::CompletingRebalance && self.leader == speaker.member_id {
            for (id, assignment) in assignments {
                if let Some(member) = self.members.get_mut(&id) {
                    member.assignment = assignment;
                }
            }
            self.state = GroupState::Stable;
        }
        if self.state == GroupState::Stable {
            self.hand_out(now, out);
        }
    }

    /// Extends the session of a member.
    pub(crate) fn heartbeat(&mut self, now: Duration, speaker: MemberIdentity<'_>) -> Result<(), ResponseError> {
        self.check(speaker)?;
        self.members.get_mut(speaker.member_id).into_iter().for_each(|member| member.heard_of(now));
        match self.state {
            GroupState::PreparingRebalance => Err(ResponseError::RebalanceInProgress),
            _ => Ok(()),
        }
    }

    /// Members leave, or an operator removes an instance by its name alone. One result for each.
    pub(crate) fn leave(
        &mut self,
        now: Duration,
        leaving: &[(String, Option<String>)],
        out: &mut Vec<CallResult>,
    ) -> Vec<Result<(), ResponseError>> {
        let mut results = Vec::new();
        let before = self.members.len();
        for (member_id, instance) in leaving {
            let id = match (instance, member_id.is_empty()) {
                (Some(instance), true) => self.instances.get(instance).cloned().unwrap_or_default(),
                _ => member_id.clone(),
            };
            let result = match self.check_instance(&id, instance.as_deref()) {
                Err(error) => Err(error),
                Ok(()) if self.pending.remove(&id).is_some() => Ok(()),
                Ok(()) if self.members.contains_key(&id) => {
                    self.remove(&id, out);
                    Ok(())
                }
                Ok(()) => Err(ResponseError::UnknownMemberId),
            };
            results.push(result);
        }
        self.settle(now, self.members.len() < before, out);
        results
    }

    /// Checks that the client may commit positions now. A client outside the group may, while the group has no members.
    pub(crate) fn may_commit(&mut self, now: Duration, speaker: MemberIdentity<'_>) -> Result<(), ResponseError> {
        if speaker.generation < 0 && speaker.member_id.is_empty() && self.state == GroupState::Empty {
            return Ok(());
        }
        self.check(speaker)?;
        self.members.get_mut(speaker.member_id).into_iter().for_each(|member| member.heard_of(now));
        match self.state {
            GroupState::CompletingRebalance => Err(ResponseError::RebalanceInProgress),
            _ => Ok(()),
        }
    }

    /// As [`ClassicGroup::may_commit`], in a transaction, which may also come from outside the group. A rebalance waits until the
    /// transaction ends, so that it finds nothing half done.
    pub(crate) fn may_commit_in_transaction(
        &mut self,
        now: Duration,
        speaker: MemberIdentity<'_>,
    ) -> Result<(), ResponseError> {
        if self.state == GroupState::Dead {
            return Err(ResponseError::CoordinatorNotAvailable);
        }
        let is_anonymous = speaker.member_id.is_empty() && speaker.instance.is_none();
        if speaker.generation < 0 && (is_anonymous || self.state == GroupState::Empty) {
            return Ok(());
        }
        self.check(speaker)?;
        self.members.get_mut(speaker.member_id).into_iter().for_each(|member| member.heard_of(now));
        Ok(())
    }

    fn remove(&mut self, id: &str, out: &mut Vec<CallResult>) {
        let Some(mut member) = self.members.remove(id) else { return };
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        answer_for(&mut member, id, ResponseError::UnknownMemberId, out);
    }

    /// Begins the rebalance that removed members require, or completes one that waited for them.
    fn settle(&mut self, now: Duration, has_lost: bool, out: &mut Vec<CallResult>) {
        if has_lost && matches!(self.state, GroupState::Stable | GroupState::CompletingRebalance) {
            self.prepare(now, out);
        }
        self.try_complete(now, out);
    }

    /// Runs the timers that are due by `now`.
    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<CallResult>) {
        self.pending.retain(|_, lapses| *lapses > now);
        let is_dead = |member: &Member| !member.is_waiting() && member.expires <= now;
        let dead: Vec<_> = self.members.iter().filter(|(_, m)| is_dead(m)).map(|(id, _)| id.clone()).collect();
        dead.iter().for_each(|id| self.remove(id, out));
        self.settle(now, !dead.is_empty(), out);
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        match self.state {
            GroupState::PreparingRebalance => self.complete(now, out),
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.deadline = None;
                let silent = self.members.iter().filter(|(_, member)| !member.has_synced);
                let silent: Vec<_> = silent.map(|(id, _)| id.clone()).collect();
                silent.iter().for_each(|id| self.remove(id, out));
                self.settle(now, !silent.is_empty(), out);
            }
            GroupState::Empty | GroupState::Dead => self.deadline = None,
        }
    }

    /// When [`ClassicGroup::tick`] has something to do next.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let sessions = self.members.values().filter(|member| !member.is_waiting()).map(|member| member.expires);
        sessions.chain(self.pending.values().copied()).chain(self.deadline).min()
    }
}

/// Answers the calls that wait in the member's name.
fn answer_for(member: &mut Member, id: &str, error: ResponseError, out: &mut Vec<CallResult>) {
    let refused = JoinError { error, member_id: id.to_owned() };
    out.extend(member.joining.take().map(|call_id| CallResult::Join(call_id, Err(refused))));
    out.extend(member.syncing.take().map(|call_id| CallResult::Sync(call_id, Err(error))));
}
