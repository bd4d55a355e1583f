//! The state machine, event by event.

use super::*;
use ResponseError as E;

fn join_static(member_id: &str, new_id: &str, instance: &str) -> JoinRequest {
    JoinRequest { instance: Some(instance.to_owned()), ..join_of(member_id, new_id) }
}

#[test]
fn three_members_come_together_and_each_gets_its_assignment() {
    let mut bench = Bench::stable(&["a", "b", "c"]);
    assert_eq!((bench.group.members().len(), bench.group.leader()), (3, "a"));
    let generation = bench.group.generation();
    for name in ["a", "b", "c"] {
        assert_eq!(bench.heartbeat(name, generation), Ok(()));
        assert_eq!(bench.commit(name, generation), Ok(()));
    }
}

#[test]
fn only_the_leader_hears_of_all_members() {
    let mut bench = Bench::stable(&["a", "b"]);
    let (b, a) = (bench.join(JoinRequest { protocols: changed(), ..join_of("b", "") }), bench.join(join_of("a", "")));
    let told: Vec<_> = bench.joined(a).members.iter().map(|(id, _, metadata)| (id.as_str(), &metadata[..])).collect();
    assert_eq!(told, [("a", &b"topics"[..]), ("b", b"other topics")]);
    assert!(bench.joined(b).members.is_empty());
}

fn changed() -> Vec<(String, Bytes)> {
    vec![("range".to_owned(), Bytes::from_static(b"other topics"))]
}

#[test]
fn a_new_member_has_to_come_back_with_its_id_when_its_version_can() {
    let mut bench = Bench::new(config());
    let first = bench.join(JoinRequest { must_come_back: true, ..join_of("", "a") });
    assert_eq!(bench.joins[&first], Err(JoinError { error: E::MemberIdRequired, member_id: "a".to_owned() }));
    assert_eq!(bench.group.state(), GroupState::Empty);
    let second = bench.join(JoinRequest { must_come_back: true, ..join_of("a", "") });
    assert_eq!((bench.joined(second).leader.as_str(), bench.joined(second).generation), ("a", 1));
}

#[test]
fn a_member_id_that_no_join_uses_expires() {
    let mut bench = Bench::new(config());
    bench.join(JoinRequest { must_come_back: true, ..join_of("", "a") });
    bench.advance(SESSION);
    let late = bench.join(join_of("a", ""));
    assert_eq!(bench.join_error(late), E::UnknownMemberId);
}

#[test]
fn the_group_rebalances_when_a_member_leaves() {
    let mut bench = Bench::stable(&["a", "b", "c"]);
    let before = bench.group.generation();
    assert_eq!(bench.leave("c", None), Ok(()));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    for name in ["a", "b"] {
        assert_eq!(bench.heartbeat(name, before), Err(E::RebalanceInProgress));
        bench.join(join_of(name, ""));
    }
    assert_eq!(bench.group.generation(), before + 1);
    bench.settle(&["a", "b"]);
    assert_eq!(bench.leave("c", None), Err(E::UnknownMemberId));
}

#[test]
fn the_group_rebalances_when_a_members_session_times_out() {
    let mut bench = Bench::stable(&["a", "b", "c"]);
    let before = bench.group.generation();
    bench.advance(SESSION - Duration::from_millis(1));
    assert_eq!((bench.heartbeat("a", before), bench.heartbeat("b", before)), (Ok(()), Ok(())));
    assert_eq!(bench.group.state(), GroupState::Stable, "nobody is dead yet");
    bench.advance(Duration::from_millis(1));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    for name in ["a", "b"] {
        bench.join(join_of(name, ""));
    }
    bench.settle(&["a", "b"]);
    assert_eq!(bench.heartbeat("c", before), Err(E::UnknownMemberId));
    assert_eq!(bench.commit("c", before), Err(E::UnknownMemberId));
}

#[test]
fn a_stale_generation_is_fenced() {
    let mut bench = Bench::stable(&["a", "b"]);
    let stale = bench.group.generation();
    let (_, last) = (bench.join(join_of("a", "")), bench.join(join_of("b", "")));
    let current = bench.joined(last).generation;
    assert_eq!(current, stale + 1);
    assert_eq!(bench.heartbeat("b", stale), Err(E::IllegalGeneration));
    assert_eq!(bench.commit("b", stale), Err(E::IllegalGeneration));
    let sync = bench.sync(speaker("b", stale), &[]);
    assert_eq!(bench.assigned(sync), Err(E::IllegalGeneration));
    assert_eq!(bench.commit("b", current), Err(E::RebalanceInProgress), "it has no assignment yet");
    bench.settle(&["a", "b"]);
    assert_eq!(bench.commit("b", current), Ok(()));
}

#[test]
fn positions_of_the_last_generation_are_taken_while_a_rebalance_gathers_members() {
    let mut bench = Bench::stable(&["a", "b"]);
    let generation = bench.group.generation();
    bench.join(join_of("", "c"));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    assert_eq!(bench.heartbeat("b", generation), Err(E::RebalanceInProgress));
    assert_eq!(bench.commit("b", generation), Ok(()));
}

#[test]
fn a_member_that_does_not_rejoin_in_time_is_removed() {
    let mut bench = Bench::stable(&["a", "b"]);
    let generation = bench.group.generation();
    let c = bench.join(join_of("", "c"));
    bench.join(join_of("a", ""));
    for _ in 0..6 {
        bench.advance(REBALANCE / 6);
        // It is alive, but does not come.
        bench.heartbeat("b", generation).ok();
    }
    assert_eq!(bench.joined(c).generation, generation + 1);
    bench.settle(&["a", "c"]);
    assert_eq!(bench.heartbeat("b", generation), Err(E::UnknownMemberId));
}

#[test]
fn another_leads_when_the_leader_dies_before_it_assigns() {
    let mut bench = Bench::stable(&["a", "b"]);
    let (_, b) = (bench.join(join_of("a", "")), bench.join(join_of("b", "")));
    let generation = bench.joined(b).generation;
    let waits = bench.sync(speaker("b", generation), &[]);
    assert!(!bench.syncs.contains_key(&waits));
    bench.advance(SESSION);
    assert_eq!(bench.assigned(waits), Err(E::RebalanceInProgress));
    let again = bench.join(join_of("b", ""));
    assert_eq!((bench.joined(again).leader.as_str(), bench.joined(again).generation), ("b", generation + 1));
    bench.settle(&["b"]);
}

#[test]
fn a_member_that_lives_but_never_asks_for_its_assignment_is_removed() {
    let mut bench = Bench::stable(&["a", "b"]);
    let (_, b) = (bench.join(join_of("a", "")), bench.join(join_of("b", "")));
    let generation = bench.joined(b).generation;
    bench.sync(speaker("a", generation), &[("a", "a"), ("b", "b")]);
    for _ in 0..6 {
        bench.advance(REBALANCE / 6);
        bench.heartbeat("a", generation).ok();
        bench.heartbeat("b", generation).ok();
    }
    assert_eq!(bench.heartbeat("b", generation), Err(E::UnknownMemberId));
    bench.join(join_of("a", ""));
    bench.settle(&["a"]);
}

#[test]
fn a_late_sync_gets_the_leaders_assignment() {
    let mut bench = Bench::stable(&["a", "b"]);
    let (_, b) = (bench.join(join_of("a", "")), bench.join(join_of("b", "")));
    let generation = bench.joined(b).generation;
    bench.sync(speaker("a", generation), &[("a", "0"), ("b", "1")]);
    let late = bench.sync(speaker("b", generation), &[]);
    assert_eq!(bench.assigned(late), Ok("1"));
}

#[test]
fn a_static_member_that_restarts_keeps_its_place_without_a_rebalance() {
    let mut bench = Bench::new(config());
    bench.join(join_static("", "one-1", "one"));
    bench.settle(&["one-1"]);
    bench.join(join_static("", "two-1", "two"));
    bench.join(join_static("one-1", "", "one"));
    bench.settle(&["one-1", "two-1"]);
    let generation = bench.group.generation();

    let back = bench.join(join_static("", "two-2", "two"));
    assert_eq!((bench.joined(back).generation, bench.group.state()), (generation, GroupState::Stable));
    let sync = bench.sync(MemberIdentity { instance: Some("two"), ..speaker("two-2", generation) }, &[]);
    assert_eq!(bench.assigned(sync), Ok("two-1"), "the assignment stays as it was made");
    let old = MemberIdentity { instance: Some("two"), ..speaker("two-1", generation) };
    assert_eq!(bench.group.heartbeat(bench.now, old), Err(E::FencedInstanceId));
    assert_eq!(bench.group.may_commit(bench.now, old), Err(E::FencedInstanceId));

    // A leader that restarts is told not to assign: by a flag, or by the name of its predecessor.
    let leader = bench.join(JoinRequest { may_skip_assignment: true, ..join_static("", "one-2", "one") });
    assert!(bench.joined(leader).skip_assignment);
    assert_eq!((bench.joined(leader).leader.as_str(), bench.joined(leader).members.len()), ("one-2", 2));
    let leader = bench.join(join_static("", "one-3", "one"));
    assert_eq!((bench.joined(leader).leader.as_str(), bench.joined(leader).members.len()), ("one-2", 0));
    assert_eq!((bench.group.leader(), bench.group.generation()), ("one-3", generation));
}

#[test]
fn a_static_member_is_removed_by_the_name_of_its_instance() {
    let mut bench = Bench::new(config());
    bench.join(join_static("", "one-1", "one"));
    bench.settle(&["one-1"]);
    assert_eq!(bench.leave("", Some("two")), Err(E::UnknownMemberId));
    assert_eq!(bench.leave("somebody", Some("one")), Err(E::FencedInstanceId));
    assert_eq!(bench.leave("", Some("one")), Ok(()));
    assert_eq!(bench.group.state(), GroupState::Empty);
}

#[test]
fn the_first_rebalance_waits_for_further_members() {
    let delay = Duration::from_millis(100);
    let mut bench = Bench::new(GroupConfig { initial_rebalance_delay: delay, ..config() });
    let a = bench.join(join_of("", "a"));
    bench.advance(delay - Duration::from_millis(1));
    let b = bench.join(join_of("", "b"));
    bench.advance(delay - Duration::from_millis(1));
    assert!(bench.joins.is_empty(), "the second has extended the wait");
    bench.advance(Duration::from_millis(1));
    assert_eq!((bench.joined(a).generation, bench.joined(b).generation), (1, 1));
    bench.settle(&["a", "b"]);
}

#[test]
fn the_group_uses_the_protocol_that_all_members_support_and_most_prefer() {
    let speaks = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Bytes::new())).collect::<Vec<_>>();
    let mut bench = Bench::new(GroupConfig { initial_rebalance_delay: Duration::from_secs(1), ..config() });
    let a = bench.join(JoinRequest { protocols: speaks(&["sticky", "range", "robin"]), ..join_of("", "a") });
    bench.join(JoinRequest { protocols: speaks(&["robin", "range"]), ..join_of("", "b") });
    bench.join(JoinRequest { protocols: speaks(&["robin", "range"]), ..join_of("", "c") });
    let none = bench.join(JoinRequest { protocols: speaks(&["sticky"]), ..join_of("", "d") });
    let other = bench.join(JoinRequest { protocol_type: "connect".to_owned(), ..join_of("", "e") });
    assert_eq!(bench.join_error(none), E::InconsistentGroupProtocol);
    assert_eq!(bench.join_error(other), E::InconsistentGroupProtocol);
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.joined(a).protocol, "robin");
}

#[test]
fn limits_are_kept() {
    let mut bench = Bench::stable(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    let refused = [
        (join_of("", "i"), E::GroupMaxSizeReached),
        (join_of("stranger", ""), E::UnknownMemberId),
        (JoinRequest { session_timeout: Duration::ZERO, ..join_of("a", "") }, E::InvalidSessionTimeout),
        (JoinRequest { session_timeout: Duration::from_secs(1 << 20), ..join_of("a", "") }, E::InvalidSessionTimeout),
        (JoinRequest { protocols: Vec::new(), ..join_of("a", "") }, E::InconsistentGroupProtocol),
        (
            JoinRequest { protocols: vec![("range".to_owned(), Bytes::from(vec![0; 1 << 20]))], ..join_of("a", "") },
            E::InvalidRequest,
        ),
    ];
    for (join, error) in refused {
        let call_id = bench.join(join);
        assert_eq!(bench.join_error(call_id), error);
    }
    assert_eq!((bench.group.state(), bench.group.members().len()), (GroupState::Stable, 8));
}

#[test]
fn a_client_outside_the_group_commits_only_while_the_group_is_empty() {
    let mut bench = Bench::new(config());
    assert_eq!(bench.commit("", -1), Ok(()));
    assert_eq!(bench.commit("a", 1), Err(E::UnknownMemberId));
    bench.join(join_of("", "a"));
    bench.settle(&["a"]);
    assert_eq!(bench.commit("", -1), Err(E::UnknownMemberId));
    bench.leave("a", None).unwrap();
    assert_eq!(bench.commit("", -1), Ok(()));
}

#[test]
fn only_a_group_without_members_can_be_ended() {
    let mut bench = Bench::stable(&["a"]);
    assert_eq!(bench.group.end(), Err(E::NonEmptyGroup));
    bench.leave("a", None).unwrap();
    assert_eq!(bench.group.end(), Ok(()));
    assert_eq!(bench.group.state(), GroupState::Dead);
}
