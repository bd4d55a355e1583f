//! A group with one of the two protocols. A group without members becomes one of the other protocol when a member with that
//! comes.

use std::time::Duration;

use kafka_protocol::error::ResponseError;

use super::GroupConfig;
use super::consumer_group::ConsumerGroup;
use super::machine::{CallResult, ClassicGroup, GroupState, MemberIdentity, Subscriptions};

/// The protocol type of groups whose members read topics.
const CONSUMER: &str = "consumer";

/// A group of either protocol.
#[derive(Debug, Clone)]
pub(crate) enum Group {
    /// The leading member assigns (JoinGroup, SyncGroup). Groups that have positions only are of this kind.
    Classic(ClassicGroup),
    /// The server assigns (ConsumerGroupHeartbeat).
    Consumer(ConsumerGroup),
}

impl Group {
    /// The name of its protocol, as ListGroups tells it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Classic(_) => "classic",
            Self::Consumer(_) => "consumer",
        }
    }

    pub(crate) fn state_name(&self) -> &'static str {
        match self {
            Self::Classic(group) => group.state().name(),
            Self::Consumer(group) => group.state().name(),
        }
    }

    pub(crate) fn protocol_type(&self) -> &str {
        match self {
            Self::Classic(group) => group.protocol_type(),
            Self::Consumer(_) => CONSUMER,
        }
    }

    /// True if it was ended; look it up again.
    pub(crate) fn is_dead(&self) -> bool {
        match self {
            Self::Classic(group) => group.state() == GroupState::Dead,
            Self::Consumer(group) => group.state() == super::consumer_group::ConsumerGroupState::Dead,
        }
    }

    /// True once it has had members.
    pub(crate) fn has_begun(&self) -> bool {
        match self {
            Self::Classic(group) => group.generation() > 0,
            Self::Consumer(group) => group.epoch() > 0,
        }
    }

    /// The time since which the group has no members; `None` while it has members or a member is about to join.
    pub(crate) fn empty_since(&self) -> Option<Duration> {
        match self {
            Self::Classic(group) => group.empty_since(),
            Self::Consumer(group) => group.empty_since(),
        }
    }

    /// Ends it, if it has no members.
    pub(crate) fn end(&mut self) -> Result<(), ResponseError> {
        match self {
            Self::Classic(group) => group.end(),
            Self::Consumer(group) => group.end(),
        }
    }

    /// The topics that members have subscribed to.
    pub(crate) fn subscriptions(&self) -> Subscriptions {
        match self {
            Self::Classic(group) => group.subscriptions(),
            Self::Consumer(group) => group.subscriptions(),
        }
    }

    /// Runs the timers that are due by `now`.
    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<CallResult>) {
        match self {
            Self::Classic(group) => group.tick(now, out),
            Self::Consumer(group) => group.tick(now),
        }
    }

    /// When [`Group::tick`] has something to do next.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        match self {
            Self::Classic(group) => group.next_due(),
            Self::Consumer(group) => group.next_due(),
        }
    }

    /// Checks that the client may commit positions now. A client outside the group may, while the group has no members.
    pub(crate) fn may_commit(&mut self, now: Duration, speaker: MemberIdentity<'_>) -> Result<(), ResponseError> {
        match self {
            Self::Classic(group) => group.may_commit(now, speaker),
            Self::Consumer(group) => group.may_commit(speaker),
        }
    }

    /// As [`Group::may_commit`], in a transaction, which may also come from outside the group.
    pub(crate) fn may_commit_in_transaction(
        &mut self,
        now: Duration,
        speaker: MemberIdentity<'_>,
    ) -> Result<(), ResponseError> {
        match self {
            Self::Classic(group) => group.may_commit_in_transaction(now, speaker),
            Self::Consumer(group) => group.may_commit_in_transaction(speaker),
        }
    }

    /// The group, if it is a classic one: no other has classic members.
    ///
    /// # Errors
    /// [`ResponseError::UnknownMemberId`].
    pub(crate) fn classic(&mut self) -> Result<&mut ClassicGroup, ResponseError> {
        match self {
            Self::Classic(group) => Ok(group),
            Self::Consumer(_) => Err(ResponseError::UnknownMemberId),
        }
    }

    /// The group for a classic member that joins.
    ///
    /// # Errors
    /// [`ResponseError::InconsistentGroupProtocol`] if it has members of the other protocol.
    pub(crate) fn become_classic(
        &mut self,
        config: &GroupConfig,
        now: Duration,
    ) -> Result<&mut ClassicGroup, ResponseError> {
        if let Self::Consumer(group) = self {
            let since = group.empty_since().ok_or(ResponseError::InconsistentGroupProtocol)?;
            *self = Self::Classic(ClassicGroup::new(config.clone(), since.min(now)));
        }
        self.classic()
    }

    /// The group for a member that sends its first ConsumerGroupHeartbeat.
    ///
    /// # Errors
    /// [`ResponseError::GroupIdNotFound`] if it has classic members, or one is about to join.
    pub(crate) fn become_consumer(
        &mut self,
        config: &GroupConfig,
        now: Duration,
    ) -> Result<&mut ConsumerGroup, ResponseError> {
        if let Self::Classic(group) = self {
            let since = group.empty_since().ok_or(ResponseError::GroupIdNotFound)?;
            *self = Self::Consumer(ConsumerGroup::new(config.clone(), since.min(now)));
        }
        self.consumer()
    }

    /// The group for a member that sends a later ConsumerGroupHeartbeat.
    ///
    /// # Errors
    /// [`ResponseError::GroupIdNotFound`] if it has classic members, as Kafka has it; [`ResponseError::UnknownMemberId`] if it
    /// has none, so that its members from before a start join again.
    pub(crate) fn consumer(&mut self) -> Result<&mut ConsumerGroup, ResponseError> {
        match self {
            Self::Consumer(group) => Ok(group),
            Self::Classic(group) if group.empty_since().is_some() => Err(ResponseError::UnknownMemberId),
            Self::Classic(_) => Err(ResponseError::GroupIdNotFound),
        }
    }
}
