//! The tests of consumer groups, and the bench that drives a group in them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod consumer_group;
mod consumer_random;
mod coordinator;
mod limits;
mod machine;
mod random;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::GroupConfig;
use super::machine::{CallResult, ClassicGroup, GroupState, JoinError, JoinResult, MemberIdentity, SyncResult};
use super::member::{CallId, JoinRequest};

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(30);

/// A group with a clock, and the answers that it has given.
struct Bench {
    group: ClassicGroup,
    now: Duration,
    next: CallId,
    joins: BTreeMap<CallId, Result<JoinResult, JoinError>>,
    syncs: BTreeMap<CallId, Result<SyncResult, ResponseError>>,
}

fn config() -> GroupConfig {
    GroupConfig {
        initial_rebalance_delay: Duration::ZERO,
        group_members_max: 8,
        return_window: Duration::ZERO,
        return_delay: Duration::ZERO,
        ..GroupConfig::default()
    }
}

fn join_of(member_id: &str, new_id: &str) -> JoinRequest {
    JoinRequest {
        member_id: member_id.to_owned(),
        new_id: new_id.to_owned(),
        instance: None,
        client_id: "client".to_owned(),
        client_host: "127.0.0.1".to_owned(),
        session_timeout: SESSION,
        rebalance_timeout: REBALANCE,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"topics"))],
        must_come_back: false,
        may_skip_assignment: false,
    }
}

fn speaker(member_id: &str, generation: i32) -> MemberIdentity<'_> {
    MemberIdentity { member_id, instance: None, generation }
}

impl Bench {
    fn new(config: GroupConfig) -> Self {
        let (joins, syncs) = (BTreeMap::new(), BTreeMap::new());
        Self { group: ClassicGroup::new(config, Duration::ZERO), now: Duration::ZERO, next: 0, joins, syncs }
    }

    fn take(&mut self, out: Vec<CallResult>) {
        for answer in out {
            let was_unanswered = match answer {
                CallResult::Join(call_id, result) => self.joins.insert(call_id, result).is_none(),
                CallResult::Sync(call_id, result) => self.syncs.insert(call_id, result).is_none(),
            };
            assert!(was_unanswered, "a call was answered twice");
        }
    }

    fn call_id(&mut self) -> CallId {
        self.next += 1;
        self.next
    }

    fn join(&mut self, join: JoinRequest) -> CallId {
        let (call_id, mut out) = (self.call_id(), Vec::new());
        self.group.join(self.now, call_id, join, &mut out);
        self.take(out);
        call_id
    }

    fn sync(&mut self, speaker: MemberIdentity<'_>, assignments: &[(&str, &str)]) -> CallId {
        let (call_id, mut out) = (self.call_id(), Vec::new());
        let owned = |(id, plan): &(&str, &str)| ((*id).to_owned(), Bytes::copy_from_slice(plan.as_bytes()));
        let assignments = assignments.iter().map(owned).collect();
        self.group.sync(self.now, call_id, speaker, (None, None), assignments, &mut out);
        self.take(out);
        call_id
    }

    fn leave(&mut self, member_id: &str, instance: Option<&str>) -> Result<(), ResponseError> {
        let mut out = Vec::new();
        let leaving = [(member_id.to_owned(), instance.map(str::to_owned))];
        let mut results = self.group.leave(self.now, &leaving, &mut out);
        self.take(out);
        results.remove(0)
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        let mut out = Vec::new();
        self.group.tick(self.now, &mut out);
        self.take(out);
    }

    fn heartbeat(&mut self, member_id: &str, generation: i32) -> Result<(), ResponseError> {
        self.group.heartbeat(self.now, speaker(member_id, generation))
    }

    fn commit(&mut self, member_id: &str, generation: i32) -> Result<(), ResponseError> {
        self.group.may_commit(self.now, speaker(member_id, generation))
    }

    fn joined(&self, call_id: CallId) -> &JoinResult {
        self.joins.get(&call_id).expect("the join is answered").as_ref().expect("the join succeeds")
    }

    fn join_error(&self, call_id: CallId) -> ResponseError {
        self.joins.get(&call_id).expect("the join is answered").as_ref().expect_err("the join is refused").error
    }

    fn assigned(&self, call_id: CallId) -> Result<&str, ResponseError> {
        let answer = self.syncs.get(&call_id).expect("the sync is answered").as_ref();
        answer.map(|synced| std::str::from_utf8(&synced.assignment).unwrap()).map_err(|error| *error)
    }

    /// A stable group of members `a`, `b`, …, each of which is assigned its own name; `a` leads.
    fn stable(names: &[&str]) -> Self {
        let mut bench = Self::new(config());
        bench.join(join_of("", names[0]));
        for name in &names[1..] {
            bench.join(join_of("", name));
        }
        if names.len() > 1 {
            bench.join(join_of(names[0], ""));
            // Members that had come meanwhile were gathered by the first rebalance, or join again now.
            for name in &names[1..] {
                if bench.group.state() == GroupState::PreparingRebalance {
                    bench.join(join_of(name, ""));
                }
            }
        }
        assert_eq!(bench.group.state(), GroupState::CompletingRebalance);
        bench.settle(names);
        bench
    }

    /// All sync in the current generation, the leader last.
    fn settle(&mut self, names: &[&str]) {
        let generation = self.group.generation();
        let plan: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
        let leader = self.group.leader().to_owned();
        let followers = names.iter().filter(|name| **name != leader);
        let mut tickets: Vec<_> = followers.map(|name| (*name, self.sync(speaker(name, generation), &[]))).collect();
        tickets.push((&leader, self.sync(speaker(&leader, generation), &plan)));
        assert_eq!(self.group.state(), GroupState::Stable);
        for (name, call_id) in tickets {
            assert_eq!(self.assigned(call_id), Ok(name));
        }
    }
}
