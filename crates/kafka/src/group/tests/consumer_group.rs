//! The state machine of a group with the protocol of KIP-848, event by event.

use std::collections::BTreeSet;

use millstream_types::TopicId;

use super::*;
use crate::group::consumer_group::{
    AWAY_EPOCH, Assignor, Candidate, ConsumerGroup, ConsumerGroupState, ConsumerHeartbeat, HeartbeatAnswer,
    LEAVING_EPOCH, MemberState, PartitionSet, Subscription, TopicSizes,
};
use ResponseError as E;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A group with a clock and topics `0`, `1`, … of so many partitions.
pub(super) struct ConsumerBench {
    pub(super) group: ConsumerGroup,
    pub(super) now: Duration,
    pub(super) topics: Vec<u32>,
}

pub(super) fn set(partitions: &[(u128, u32)]) -> PartitionSet {
    partitions.iter().map(|(topic, partition)| (TopicId(*topic), *partition)).collect()
}

fn names(topics: &[&str]) -> Option<BTreeSet<String>> {
    Some(topics.iter().map(|topic| (*topic).to_owned()).collect())
}

/// The first heartbeat of a member that subscribes to topic `0`.
pub(super) fn first(id: &str) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        member_id: id.to_owned(),
        rebalance_timeout: Some(TIMEOUT),
        names: names(&["0"]),
        owned: Some(PartitionSet::new()),
        ..ConsumerHeartbeat::default()
    }
}

pub(super) fn beat(id: &str, epoch: i32, owned: Option<PartitionSet>) -> ConsumerHeartbeat {
    ConsumerHeartbeat { member_id: id.to_owned(), epoch, owned, ..ConsumerHeartbeat::default() }
}

impl ConsumerBench {
    pub(super) fn new(topics: &[u32]) -> Self {
        let group = ConsumerGroup::new(config(), Duration::ZERO);
        Self { group, now: Duration::ZERO, topics: topics.to_vec() }
    }

    pub(super) fn say(&mut self, beat: &ConsumerHeartbeat) -> Result<HeartbeatAnswer, E> {
        let topics = &self.topics;
        let find = |subscription: &Subscription| -> TopicSizes {
            let known = |name: &String| {
                let number: usize = name.parse().ok()?;
                Some((TopicId(number as u128), *topics.get(number)?))
            };
            subscription.names.iter().filter_map(known).collect()
        };
        self.group.heartbeat(self.now, beat, &find)
    }

    fn ok(&mut self, beat: &ConsumerHeartbeat) -> (i32, Option<PartitionSet>) {
        let answer = self.say(beat).unwrap();
        (answer.epoch, answer.assignment)
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.now += by;
        self.group.tick(self.now);
    }

    fn state(&self) -> &'static str {
        self.group.state().name()
    }
}

fn speaker(member_id: &str, generation: i32) -> MemberIdentity<'_> {
    MemberIdentity { member_id, instance: None, generation }
}

#[test]
fn a_partition_goes_to_its_new_owner_after_the_old_one_has_given_it_up() {
    let mut bench = ConsumerBench::new(&[4]);
    assert_eq!(bench.state(), "Empty");
    let all = set(&[(0, 0), (0, 1), (0, 2), (0, 3)]);
    assert_eq!(bench.ok(&first("a")), (1, Some(all.clone())));
    assert_eq!(bench.ok(&beat("a", 1, None)), (1, None), "nothing has changed");
    assert_eq!(bench.state(), "Stable");

    assert_eq!(bench.ok(&first("b")), (2, Some(set(&[]))), "all are held");
    assert_eq!(bench.state(), "Reconciling");
    let (epoch, kept) = bench.ok(&beat("a", 1, Some(all)));
    let kept = kept.unwrap();
    assert_eq!((epoch, kept.len()), (1, 2), "it goes on in its epoch until it has given up two");
    assert_eq!(bench.ok(&beat("b", 2, None)), (2, None));
    assert_eq!(bench.ok(&beat("a", 1, None)), (1, None), "it has not said that it has given them up");
    assert_eq!(bench.ok(&beat("b", 2, None)), (2, None));
    assert_eq!(bench.ok(&beat("a", 1, Some(kept.clone()))), (2, None));
    let (epoch, got) = bench.ok(&beat("b", 2, None));
    let got = got.unwrap();
    assert_eq!((epoch, got.len()), (2, 2));
    assert!(got.is_disjoint(&kept));
    assert_eq!(bench.state(), "Stable");

    // What one leaves behind goes to the other at once.
    assert_eq!(bench.ok(&beat("b", LEAVING_EPOCH, None)), (LEAVING_EPOCH, None));
    assert_eq!(bench.state(), "Assigning");
    assert_eq!(bench.ok(&beat("a", 2, None)).1.unwrap().len(), 4);
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    let mut bench = ConsumerBench::new(&[4]);
    let (_, all) = bench.ok(&first("a"));
    assert_eq!(bench.ok(&first("a")), (1, all.clone()), "a join that was not answered");
    bench.ok(&first("b"));
    let (_, kept) = bench.ok(&beat("a", 1, all.clone()));
    let again = ConsumerHeartbeat { epoch: 1, owned: all, ..first("a") };
    assert_eq!(bench.ok(&again), (1, kept.clone()), "a full request is answered in full");
    assert_eq!(bench.ok(&beat("a", 1, kept.clone())).0, 2);
    assert_eq!(bench.ok(&beat("a", 1, kept.clone())).0, 2, "it has not heard of its new epoch");
    for (epoch, owned) in [(1, None), (1, Some(set(&[(0, 0), (0, 1), (0, 2), (0, 3)]))), (3, kept.clone()), (7, None)] {
        assert_eq!(bench.say(&beat("a", epoch, owned)), Err(E::FencedMemberEpoch), "{epoch}");
    }
    assert_eq!(bench.ok(&first("a")), (2, kept), "it joins again and has what it had");
}

#[test]
fn a_member_that_is_silent_or_gives_nothing_up_is_removed() {
    let mut bench = ConsumerBench::new(&[2]);
    let (_, all) = bench.ok(&first("a"));
    bench.ok(&first("b"));
    // It says that it is there, but gives nothing up.
    bench.ok(&beat("a", 1, all.clone()));
    for _ in 0..3 {
        bench.advance(Duration::from_secs(19));
        bench.ok(&beat("a", 1, all.clone()));
        bench.ok(&beat("b", 2, None));
    }
    bench.advance(Duration::from_secs(3));
    assert_eq!(bench.say(&beat("a", 1, all)), Err(E::UnknownMemberId));
    assert_eq!(bench.ok(&beat("b", 2, None)).1.unwrap().len(), 2);
    let epoch = bench.group.epoch();
    bench.advance(config().consumer_session_timeout - Duration::from_millis(1));
    assert_eq!(bench.state(), "Stable");
    assert_eq!(bench.group.empty_since(), None);
    bench.advance(Duration::from_millis(1));
    assert_eq!((bench.state(), bench.group.epoch()), ("Empty", epoch + 1));
    assert_eq!((bench.group.empty_since(), bench.group.next_due()), (Some(bench.now), None));
}

#[test]
fn a_static_member_that_comes_back_in_time_has_its_partitions_again() {
    let mut bench = ConsumerBench::new(&[4]);
    let with = |id: &str, instance: &str| ConsumerHeartbeat { instance: Some(instance.to_owned()), ..first(id) };
    bench.ok(&with("a", "one"));
    bench.ok(&with("b", "two"));
    let (_, kept) = bench.ok(&beat("a", 1, Some(set(&[]))));
    let (epoch, of_b) = bench.ok(&beat("b", 2, None));
    assert_eq!((epoch, kept.as_ref().unwrap().len(), of_b.as_ref().unwrap().len()), (2, 2, 2));
    assert_eq!(bench.say(&with("c", "one")), Err(E::UnreleasedInstanceId));
    let other = |epoch| ConsumerHeartbeat { epoch, ..with("c", "one") };
    for epoch in [2, LEAVING_EPOCH, AWAY_EPOCH] {
        assert_eq!(bench.say(&other(epoch)), Err(E::FencedInstanceId), "{epoch}");
    }
    let nobody = ConsumerHeartbeat { epoch: AWAY_EPOCH, ..with("a", "three") };
    assert_eq!(bench.say(&nobody), Err(E::UnknownMemberId));

    let goes = ConsumerHeartbeat { instance: Some("one".to_owned()), ..beat("a", AWAY_EPOCH, None) };
    assert_eq!(bench.ok(&goes), (AWAY_EPOCH, None));
    assert_eq!(bench.say(&beat("a", 2, None)), Err(E::FencedMemberEpoch), "it has gone");
    assert_eq!(bench.ok(&beat("b", 2, None)), (2, None), "nobody else gets them");
    assert_eq!(bench.ok(&with("c", "one")), (2, kept), "no new assignment was made");
    assert_eq!(bench.say(&beat("a", 2, None)), Err(E::UnknownMemberId));
    assert_eq!(bench.state(), "Stable");

    // It goes again, and does not come back.
    let goes = ConsumerHeartbeat { instance: Some("one".to_owned()), ..beat("c", AWAY_EPOCH, None) };
    bench.ok(&goes);
    bench.advance(config().consumer_session_timeout - Duration::from_secs(1));
    bench.ok(&beat("b", 2, None));
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.ok(&beat("b", 2, None)).1.unwrap().len(), 4);
    bench.ok(&with("d", "one"));
}

#[test]
fn new_topics_partitions_and_subscriptions_are_assigned() {
    let mut bench = ConsumerBench::new(&[1]);
    let both = ConsumerHeartbeat { names: names(&["0", "1"]), ..first("a") };
    assert_eq!(bench.ok(&both), (1, Some(set(&[(0, 0)]))), "topic 1 does not exist yet");
    bench.topics = vec![2, 1];
    assert_eq!(bench.ok(&beat("a", 1, None)), (1, None), "it was looked for a moment ago");
    bench.advance(config().consumer_heartbeat_interval);
    let (epoch, assigned) = bench.ok(&beat("a", 1, None));
    assert_eq!((epoch, assigned), (2, Some(set(&[(0, 0), (0, 1), (1, 0)]))));
    let less = ConsumerHeartbeat { names: names(&["1"]), ..beat("a", 2, None) };
    assert_eq!(bench.ok(&less), (2, Some(set(&[(1, 0)]))));
    assert_eq!(bench.ok(&beat("a", 2, Some(set(&[(1, 0)])))), (3, None));
    bench.topics = vec![2];
    bench.advance(config().consumer_heartbeat_interval);
    assert_eq!(bench.ok(&beat("a", 3, Some(set(&[])))), (4, Some(set(&[]))), "the topic is gone");
    assert_eq!(bench.state(), "Stable");
}

#[test]
fn only_members_in_their_present_epoch_commit() {
    let mut bench = ConsumerBench::new(&[2]);
    assert_eq!(bench.group.may_commit(speaker("", -1)), Ok(()), "nobody is a member");
    bench.ok(&first("a"));
    for (who, plain, in_transaction) in [
        (speaker("a", 1), Ok(()), Ok(())),
        (speaker("a", 0), Err(E::StaleMemberEpoch), Err(E::IllegalGeneration)),
        (speaker("a", 2), Err(E::StaleMemberEpoch), Err(E::IllegalGeneration)),
        (speaker("b", 1), Err(E::UnknownMemberId), Err(E::UnknownMemberId)),
        (speaker("", -1), Err(E::UnknownMemberId), Ok(())),
    ] {
        assert_eq!(bench.group.may_commit(who), plain, "{who:?}");
        assert_eq!(bench.group.may_commit_in_transaction(who), in_transaction, "{who:?}");
    }
    assert_eq!(bench.group.end(), Err(E::NonEmptyGroup));
    bench.ok(&beat("a", LEAVING_EPOCH, None));
    assert_eq!(bench.group.end(), Ok(()));
    assert_eq!(bench.group.state(), ConsumerGroupState::Dead);
    assert!(bench.group.may_commit(speaker("", -1)).is_err());
}

#[test]
fn a_member_too_many_or_too_large_is_refused_and_nothing_changes() {
    let mut bench = ConsumerBench::new(&[2]);
    for number in 0..config().group_members_max {
        bench.ok(&first(&format!("member-{number}")));
    }
    let epoch = bench.group.epoch();
    assert_eq!(bench.say(&first("one-more")), Err(E::GroupMaxSizeReached));
    let large = "t".repeat(config().member_metadata_max_bytes);
    let large = ConsumerHeartbeat { names: names(&[&large]), ..first("member-0") };
    assert_eq!(bench.say(&large), Err(E::InvalidRequest));
    assert_eq!(bench.say(&beat("one-more", 1, None)), Err(E::UnknownMemberId));
    assert_eq!(bench.group.epoch(), epoch);
    assert_eq!(bench.group.members().len(), config().group_members_max);
    assert!(bench.group.members().values().any(|member| member.state != MemberState::Stable));
}

#[test]
fn most_members_choose_the_assignor() {
    let mut bench = ConsumerBench::new(&[4]);
    let wants = |id: &str, assignor| ConsumerHeartbeat { assignor, ..first(id) };
    bench.ok(&wants("a", None));
    assert_eq!(bench.group.assignor(), Assignor::Uniform);
    bench.ok(&wants("b", Some(Assignor::Range)));
    assert_eq!(bench.group.assignor(), Assignor::Range);
    bench.ok(&wants("c", Some(Assignor::Uniform)));
    assert_eq!(bench.group.assignor(), Assignor::Uniform, "of equally many votes");
}

/// The topics that a member subscribes to, and its target so far.
type TestCandidate<'a> = (&'a [u128], &'a [(u128, u32)]);

/// The partitions of each of these members.
fn assigned(assignor: Assignor, sizes: &[u32], members: &[TestCandidate<'_>]) -> Vec<PartitionSet> {
    let size = |topic: &u128| (TopicId(*topic), sizes[*topic as usize]);
    let topics: Vec<TopicSizes> = members.iter().map(|(topics, _)| topics.iter().map(size).collect()).collect();
    let targets: Vec<_> = members.iter().map(|(_, target)| set(target)).collect();
    let candidates = topics.iter().zip(&targets).map(|(topics, target)| Candidate { topics, target });
    assignor.assign(&candidates.collect::<Vec<_>>())
}

#[test]
fn ranges_are_consecutive_and_the_same_in_topics_of_one_size() {
    let both: TestCandidate<'_> = (&[0, 1], &[]);
    let spread = assigned(Assignor::Range, &[3, 3, 2], &[both, both, (&[2], &[])]);
    assert_eq!(spread[0], set(&[(0, 0), (0, 1), (1, 0), (1, 1)]));
    assert_eq!(spread[1], set(&[(0, 2), (1, 2)]));
    assert_eq!(spread[2], set(&[(2, 0), (2, 1)]));
}

#[test]
fn uniform_is_balanced_and_moves_no_more_than_that_needs() {
    let nothing: &[(u128, u32)] = &[];
    // A third member comes: it gets two of six, and nothing else moves.
    let (a, b) = (&[(0, 0), (0, 1), (0, 2)][..], &[(0, 3), (0, 4), (0, 5)][..]);
    let spread = assigned(Assignor::Uniform, &[6], &[(&[0], a), (&[0], b), (&[0], nothing)]);
    assert_eq!(spread.iter().map(PartitionSet::len).collect::<Vec<_>>(), [2, 2, 2]);
    assert!(spread[0].is_subset(&set(a)) && spread[1].is_subset(&set(b)));
    // One has gone, and another wants something else: what they had is dealt out.
    let spread = assigned(Assignor::Uniform, &[4, 2], &[(&[0], &[(0, 0), (0, 1)]), (&[1], &[(0, 2)])]);
    assert_eq!(spread, [set(&[(0, 0), (0, 1), (0, 2), (0, 3)]), set(&[(1, 0), (1, 1)])]);
    // Different subscriptions: the one with a choice takes what the other cannot.
    let spread = assigned(Assignor::Uniform, &[2, 2], &[(&[0, 1], nothing), (&[0], nothing)]);
    assert_eq!(spread, [set(&[(1, 0), (1, 1)]), set(&[(0, 0), (0, 1)])]);
}
