//! One member of a consumer group, and the steps in which it comes from the partitions that it has to those it is to have.
//!
//! ```text
//!            has to give up partitions              has reported that it has given them up
//!   Stable ─────────────────────────► Unrevoked ──────────────────────┬──► Stable
//!     ▲ │                                                             │
//!     │ └──────────── others still hold what it is to get ──► Unreleased
//!     └──────────────── they have given it up ─────────────────────┘
//! ```
//!
//! A member takes on the epoch of the assignment once it has given up whatever it does not have in it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::TopicId;

use super::assignor::{Assignor, PartitionSet, TopicSizes};
use super::heartbeat::ConsumerHeartbeat;

/// The epoch of a member that has just come.
pub(crate) const JOINING_EPOCH: i32 = 0;
/// The epoch by which a member says that it leaves.
pub(crate) const LEAVING_EPOCH: i32 = -1;
/// The epoch by which a static member says that it will be back; also its epoch while it is away.
pub(crate) const AWAY_EPOCH: i32 = -2;

/// The topics that a member wants to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) names: BTreeSet<String>,
    /// A pattern for whole names of topics.
    pub(crate) regex: Option<String>,
}

/// The progress of a member towards its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It has what it is to have, as of its epoch.
    Stable,
    /// It has not reported yet that it has given up what it is to give up.
    Unrevoked,
    /// Others have not given up yet what it is to get.
    Unreleased,
}

/// The state of a member.
#[derive(Debug, Clone)]
pub(crate) struct ConsumerMember {
    pub(crate) instance: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout: Duration,
    pub(crate) subscription: Subscription,
    /// The assignor that it asks for.
    pub(crate) assignor: Option<Assignor>,
    /// The topics that its subscription meant when they were last looked for.
    pub(crate) topics: Arc<TopicSizes>,
    pub(crate) looked_for_topics: Duration,
    pub(crate) epoch: i32,
    pub(crate) previous_epoch: i32,
    pub(crate) state: MemberState,
    /// The partitions that it may use.
    pub(crate) assigned: PartitionSet,
    /// The partitions that it is to give up. Nobody else gets them before.
    pub(crate) revoking: PartitionSet,
    /// The partitions that it is to have.
    pub(crate) target: PartitionSet,
    /// When it counts as dead, unless it is heard of before.
    pub(crate) expires: Duration,
    /// When it is removed, unless it has given up by then what it is to give up.
    pub(crate) must_revoke_by: Option<Duration>,
}

impl ConsumerMember {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            instance: None,
            rack: None,
            client_id: String::new(),
            client_host: String::new(),
            rebalance_timeout: Duration::ZERO,
            subscription: Subscription::default(),
            assignor: None,
            topics: Arc::default(),
            looked_for_topics: now,
            epoch: JOINING_EPOCH,
            previous_epoch: JOINING_EPOCH,
            state: MemberState::Stable,
            assigned: PartitionSet::new(),
            revoking: PartitionSet::new(),
            target: PartitionSet::new(),
            expires: now,
            must_revoke_by: None,
        }
    }

    /// Takes over what the member tells of itself. True if it wants other topics or another assignor than before.
    pub(crate) fn update(&mut self, beat: &ConsumerHeartbeat) -> bool {
        self.client_id.clone_from(&beat.client_id);
        self.client_host.clone_from(&beat.client_host);
        if beat.rack.is_some() {
            self.rack.clone_from(&beat.rack);
        }
        if let Some(timeout) = beat.rebalance_timeout {
            self.rebalance_timeout = timeout;
        }
        let before = (self.subscription.clone(), self.assignor);
        if let Some(names) = &beat.names {
            self.subscription.names.clone_from(names);
        }
        if let Some(regex) = &beat.regex {
            self.subscription.regex = (!regex.is_empty()).then(|| regex.clone());
        }
        self.assignor = beat.assignor.or(self.assignor);
        before != (self.subscription.clone(), self.assignor)
    }

    /// It starts anew and has no partitions: what it was to give up is free.
    pub(crate) fn start_anew(&mut self) {
        self.epoch = JOINING_EPOCH;
        self.previous_epoch = JOINING_EPOCH;
        self.state = MemberState::Stable;
        self.revoking.clear();
    }

    /// A static member goes and will be back: nobody else gets its partitions, but for those it was to give up.
    pub(crate) fn go_away(&mut self) {
        self.start_anew();
        self.epoch = AWAY_EPOCH;
        self.must_revoke_by = None;
    }

    /// The partitions that nobody else may have.
    pub(crate) fn held(&self) -> impl Iterator<Item = &(TopicId, u32)> {
        self.assigned.iter().chain(&self.revoking)
    }

    /// True if it has what it is to have in the assignment of that epoch.
    pub(crate) fn is_reconciled(&self, assignment_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == assignment_epoch
    }

    /// Takes the next step towards the target of `assignment_epoch`; true if it has taken one. `owned` is what the member says it
    /// has, if it says so; `is_held` tells whether a partition belongs to anybody.
    pub(crate) fn reconcile(
        &mut self,
        assignment_epoch: i32,
        owned: Option<&PartitionSet>,
        is_held: impl Fn(&(TopicId, u32)) -> bool,
    ) -> bool {
        let has_given_up = |revoking: &PartitionSet| owned.is_some_and(|owned| owned.is_disjoint(revoking));
        let epoch = match self.state {
            MemberState::Stable if self.epoch == assignment_epoch => return false,
            MemberState::Stable | MemberState::Unreleased => self.epoch,
            MemberState::Unrevoked if !has_given_up(&self.revoking) => return false,
            MemberState::Unrevoked => self.epoch + 1,
        };
        let revoking: PartitionSet = self.assigned.difference(&self.target).copied().collect();
        let own = std::mem::take(&mut self.revoking);
        self.assigned.retain(|partition| self.target.contains(partition));
        if !revoking.is_empty() && !has_given_up(&revoking) {
            self.revoking = revoking;
            self.state = MemberState::Unrevoked;
            self.take_on(epoch);
            return true;
        }
        let is_free = |partition: &(_, _)| !is_held(partition) || own.contains(partition);
        let (mut gets, mut waits) = (Vec::new(), false);
        for partition in self.target.difference(&self.assigned) {
            if is_free(partition) { gets.push(*partition) } else { waits = true }
        }
        self.assigned.extend(gets);
        self.state = if waits { MemberState::Unreleased } else { MemberState::Stable };
        self.take_on(assignment_epoch);
        true
    }

    fn take_on(&mut self, epoch: i32) {
        if epoch != self.epoch {
            self.previous_epoch = self.epoch;
            self.epoch = epoch;
        }
    }
}
