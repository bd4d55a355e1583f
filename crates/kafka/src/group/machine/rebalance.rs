//! A rebalance: it gathers the members, elects protocol and leader, and hands out the assignments.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::{CallResult, ClassicGroup, GroupState, JoinResult, SyncResult};
use crate::group::member::Member;

impl ClassicGroup {
    /// Begins a rebalance, unless one is being prepared.
    pub(super) fn prepare(&mut self, now: Duration, out: &mut Vec<CallResult>) {
        if self.state == GroupState::PreparingRebalance {
            return;
        }
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
            member.has_synced = false;
            if let Some(call_id) = member.syncing.take() {
                member.heard_of(now);
                out.push(CallResult::Sync(call_id, Err(ResponseError::RebalanceInProgress)));
            }
        }
        let latest = now + self.rebalance_timeout();
        let delay = self.config.initial_rebalance_delay;
        self.initial_until = (self.state == GroupState::Empty && !delay.is_zero()).then_some(latest);
        self.deadline = Some(if self.initial_until.is_some() { latest.min(now + delay) } else { latest });
        self.state = GroupState::PreparingRebalance;
    }

    fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }

    /// Completes the rebalance if it waits for nobody.
    pub(super) fn try_complete(&mut self, now: Duration, out: &mut Vec<CallResult>) {
        let have_joined = self.members.values().all(|member| member.joining.is_some()) && self.pending.is_empty();
        let waits_for_more = self.initial_until.is_some() && !self.members.is_empty();
        if self.state == GroupState::PreparingRebalance && have_joined && !waits_for_more {
            self.complete(now, out);
        }
    }

    /// Begins the next generation with the joined members, and with static members that may return.
    pub(super) fn complete(&mut self, now: Duration, out: &mut Vec<CallResult>) {
        self.members.retain(|_, member| member.joining.is_some() || member.instance.is_some());
        self.initial_until = None;
        if !self.members.is_empty() && self.members.values().all(|member| member.joining.is_none()) {
            self.deadline = Some(now + self.rebalance_timeout().max(self.config.session_timeout_min));
            return;
        }
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        if self.members.is_empty() {
            return self.become_empty(now);
        }
        self.protocol = self.elect_protocol();
        if self.members.get(&self.leader).is_none_or(|leader| leader.joining.is_none()) {
            let joined = self.members.iter().find(|(_, member)| member.joining.is_some());
            self.leader = joined.map(|(id, _)| id.clone()).unwrap_or_default();
        }
        self.state = GroupState::CompletingRebalance;
        self.deadline = Some(now + self.rebalance_timeout());
        let mut tickets = Vec::new();
        for (id, member) in &mut self.members {
            if let Some(call_id) = member.joining.take() {
                member.heard_of(now);
                tickets.push((id.clone(), call_id));
            }
        }
        out.extend(tickets.into_iter().map(|(id, call_id)| CallResult::Join(call_id, Ok(self.joined(&id)))));
    }

    fn become_empty(&mut self, now: Duration) {
        self.state = GroupState::Empty;
        self.protocol.clear();
        self.leader.clear();
        self.instances.clear();
        self.deadline = None;
        self.empty_since = now;
    }

    /// The protocol that most members prefer among those that all members support.
    fn elect_protocol(&self) -> String {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        let is_common = |name: &str| self.members.values().all(|member| member.speaks(name));
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| is_common(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(name, _)| name.to_owned()).unwrap_or_default()
    }

    pub(super) fn joined(&self, id: &str) -> JoinResult {
        let described =
            |(id, member): (&String, &Member)| (id.clone(), member.instance.clone(), member.metadata(&self.protocol));
        JoinResult {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            member_id: id.to_owned(),
            skip_assignment: false,
            members: if self.leader == id { self.members.iter().map(described).collect() } else { Vec::new() },
        }
    }

    /// Answers the members that have asked for their assignment.
    pub(super) fn hand_out(&mut self, now: Duration, out: &mut Vec<CallResult>) {
        for member in self.members.values_mut() {
            if let Some(call_id) = member.syncing.take() {
                member.heard_of(now);
                let (protocol_type, protocol) = (self.protocol_type.clone(), self.protocol.clone());
                let synced = SyncResult { protocol_type, protocol, assignment: member.assignment.clone() };
                out.push(CallResult::Sync(call_id, Ok(synced)));
            }
        }
        if self.members.values().all(|member| member.has_synced) {
            self.deadline = None;
        }
    }
}
