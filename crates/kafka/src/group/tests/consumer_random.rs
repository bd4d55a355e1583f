//! Random members of a group with the protocol of KIP-848, and what holds after each of their steps.

use std::collections::BTreeSet;

use millstream_types::TopicId;

use super::consumer_group::{ConsumerBench, beat, first};
use super::*;
use crate::group::consumer_group::{
    AWAY_EPOCH, Assignor, ConsumerGroupState, ConsumerHeartbeat, LEAVING_EPOCH, PartitionSet,
};

/// A client's own view. What it holds follows what it was last told, some steps later.
struct TestMember {
    id: String,
    instance: Option<String>,
    epoch: i32,
    names: BTreeSet<String>,
    assignor: Option<Assignor>,
    /// The partitions that it reads.
    holds: PartitionSet,
    /// The answer that it was given last.
    told: PartitionSet,
    /// It has not had an answer to its last heartbeat, and says everything with the next one.
    is_unsure: bool,
    /// A static member that is away.
    is_away: bool,
}

struct ConsumerWorld {
    bench: ConsumerBench,
    members: Vec<TestMember>,
    rng: fastrand::Rng,
    ids: usize,
    /// The epochs of members when they were last looked at.
    epochs: BTreeMap<String, i32>,
}

impl ConsumerWorld {
    fn step(&mut self) {
        let (epoch, assignment_epoch) = (self.bench.group.epoch(), self.bench.group.assignment_epoch());
        let count = self.members.len();
        let at = if count > 0 { self.rng.usize(0..count) } else { 0 };
        match self.rng.u32(0..100) {
            0..8 => self.newcomer(),
            _ if count == 0 => self.newcomer(),
            8..50 => self.heartbeat(at),
            50..75 => self.work(at),
            75..79 => self.leave(at),
            79..82 => self.subscribe(at),
            82..86 => self.go_and_come_back(at),
            // It hangs or is cut off, and is removed in time unless it is heard of.
            86..88 => drop(self.members.remove(at)),
            88..90 => self.grow(),
            _ => self.advance(),
        }
        self.check(epoch, assignment_epoch);
    }

    fn newcomer(&mut self) {
        if self.members.len() >= 6 {
            return;
        }
        self.ids += 1;
        let instance = self.rng.bool().then(|| format!("instance-{}", self.ids));
        let assignor = [None, Some(Assignor::Uniform), Some(Assignor::Range)][self.rng.usize(0..3)];
        let names = self.any_names();
        let member = TestMember {
            id: format!("member-{}", self.ids),
            instance,
            epoch: 0,
            names,
            assignor,
            holds: PartitionSet::new(),
            told: PartitionSet::new(),
            is_unsure: true,
            is_away: false,
        };
        self.members.push(member);
        self.heartbeat(self.members.len() - 1);
    }

    fn any_names(&mut self) -> BTreeSet<String> {
        let names = (0..self.bench.topics.len()).filter(|_| self.rng.u32(0..3) > 0);
        names.map(|number| number.to_string()).collect()
    }

    fn heartbeat(&mut self, at: usize) {
        let is_heard = self.rng.u32(0..10) > 0;
        let member = &mut self.members[at];
        if member.is_away {
            return;
        }
        let mut said = beat(&member.id, member.epoch, Some(member.holds.clone()));
        if member.epoch == 0 || member.is_unsure {
            let (names, instance) = (Some(member.names.clone()), member.instance.clone());
            let (epoch, owned) = (member.epoch, said.owned);
            let assignor = member.assignor;
            said = ConsumerHeartbeat { epoch, owned, names, instance, assignor, ..first(&member.id) };
        } else if self.rng.bool() {
            said.owned = None;
        }
        member.is_unsure = !is_heard;
        match self.bench.say(&said) {
            _ if !is_heard => {}
            Ok(answer) => {
                assert!(answer.epoch >= member.epoch, "an epoch never goes back");
                member.epoch = answer.epoch;
                member.told = answer.assignment.unwrap_or(std::mem::take(&mut member.told));
            }
            Err(ResponseError::UnknownMemberId | ResponseError::FencedMemberEpoch) => {
                // It gives all up and joins again.
                member.holds.clear();
                member.told.clear();
                (member.epoch, member.is_unsure) = (0, true);
            }
            // Those that hang take places; it tries again.
            Err(ResponseError::GroupMaxSizeReached) => member.is_unsure = true,
            Err(error) => panic!("{error:?} to {said:?}"),
        }
    }

    /// Gives up what it is to give up, and takes what it was given. It asks for the positions of what it takes first: that
    /// is refused if the group has gone on without it, as after an answer that was lost.
    fn work(&mut self, at: usize) {
        let member = &mut self.members[at];
        if member.is_away {
            return;
        }
        let TestMember { told, holds, .. } = member;
        holds.retain(|partition| told.contains(partition));
        let speaker = MemberIdentity { member_id: &member.id, instance: None, generation: member.epoch };
        if self.bench.group.check(speaker).is_ok() {
            member.holds.clone_from(&member.told);
        }
    }

    fn leave(&mut self, at: usize) {
        let member = self.members.remove(at);
        let said = ConsumerHeartbeat { instance: member.instance, ..beat(&member.id, LEAVING_EPOCH, None) };
        self.bench.say(&said).ok();
    }

    fn subscribe(&mut self, at: usize) {
        let names = self.any_names();
        let member = &mut self.members[at];
        (member.names, member.is_unsure) = (names, true);
    }

    fn go_and_come_back(&mut self, at: usize) {
        let member = &mut self.members[at];
        if member.instance.is_none() {
            return;
        }
        if member.is_away {
            member.is_away = false;
            self.ids += 1;
            member.id = format!("member-{}", self.ids);
            (member.epoch, member.is_unsure) = (0, true);
            return self.heartbeat(at);
        }
        let said = ConsumerHeartbeat { instance: member.instance.clone(), ..beat(&member.id, AWAY_EPOCH, None) };
        member.holds.clear();
        member.told.clear();
        match self.bench.say(&said) {
            Ok(_) => member.is_away = true,
            // The group has removed it.
            Err(_) => (member.epoch, member.is_unsure) = (0, true),
        }
    }

    fn grow(&mut self) {
        let topic = self.rng.usize(0..self.bench.topics.len());
        if self.bench.topics[topic] < 9 {
            self.bench.topics[topic] += 1;
        }
    }

    fn advance(&mut self) {
        let by = Duration::from_millis(self.rng.u64(0..8_000));
        self.bench.advance(by);
    }

    fn check(&mut self, epoch: i32, assignment_epoch: i32) {
        let group = &self.bench.group;
        assert!(group.epoch() >= epoch && group.assignment_epoch() >= assignment_epoch, "epochs only grow");
        assert!(group.assignment_epoch() <= group.epoch());
        let mut held = BTreeMap::new();
        for (id, member) in group.members() {
            for partition in member.held() {
                assert_eq!(held.insert(*partition, id), None, "{partition:?} belongs to two members");
            }
            // A member that is away, or comes back, begins anew.
            let before = self.epochs.insert(id.clone(), member.epoch).unwrap_or(0);
            assert!(member.epoch >= before || member.epoch == AWAY_EPOCH, "{id}: {} after {before}", member.epoch);
            assert!(member.epoch <= group.assignment_epoch());
        }
        // What members really read, as far as the group counts them as members.
        let mut read = BTreeMap::new();
        for member in self.members.iter().filter(|member| group.members().contains_key(&member.id)) {
            for partition in &member.holds {
                assert_eq!(read.insert(*partition, &member.id), None, "{partition:?} is read by two members");
            }
        }
    }

    /// All that are there say what they have and do what they are told, until nothing changes.
    fn come_to_rest(&mut self) {
        // Those that hang are removed, and those that are away come back.
        for at in 0..self.members.len() {
            if self.members[at].is_away {
                self.go_and_come_back(at);
            }
        }
        for _ in 0..40 {
            self.bench.advance(Duration::from_secs(6));
            for at in 0..self.members.len() {
                self.heartbeat(at);
                self.work(at);
                self.check(0, 0);
            }
        }
    }

    fn check_rest(&self, seed: u64) {
        let group = &self.bench.group;
        let expected = if self.members.is_empty() { ConsumerGroupState::Empty } else { ConsumerGroupState::Stable };
        assert_eq!(group.state(), expected, "seed {seed}");
        assert_eq!(group.members().len(), self.members.len(), "seed {seed}");
        let mut owners: BTreeMap<(TopicId, u32), &TestMember> = BTreeMap::new();
        for member in &self.members {
            assert_eq!(member.epoch, group.assignment_epoch(), "seed {seed}");
            owners.extend(member.holds.iter().map(|partition| (*partition, member)));
        }
        let wanted = (0..)
            .zip(&self.bench.topics)
            .filter(|(topic, _)| self.members.iter().any(|member| member.names.contains(&u128::to_string(topic))));
        let wanted: Vec<_> =
            wanted.flat_map(|(topic, count)| (0..*count).map(move |number| (TopicId(topic), number))).collect();
        assert_eq!(owners.keys().copied().collect::<Vec<_>>(), wanted, "seed {seed}: every partition has an owner");
        for ((topic, _), member) in owners {
            assert!(member.names.contains(&topic.0.to_string()), "seed {seed}: it has not subscribed");
        }
        let counts = self.members.iter().map(|member| member.holds.len());
        let is_alike = self.members.windows(2).all(|two| two[0].names == two[1].names);
        if is_alike && group.assignor() == Assignor::Uniform && !self.members.is_empty() {
            let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
            assert!(most - least <= 1, "seed {seed}: from {least} to {most}");
        }
    }
}

#[test]
fn no_two_members_hold_a_partition_and_at_rest_each_has_one_owner() {
    let mut most_members = 0;
    for seed in 0..300 {
        let bench = ConsumerBench::new(&[3, 5, 1]);
        let rng = fastrand::Rng::with_seed(seed);
        let mut world = ConsumerWorld { bench, members: Vec::new(), rng, ids: 0, epochs: BTreeMap::new() };
        for _ in 0..3 {
            (0..200).for_each(|_| world.step());
            world.come_to_rest();
            world.check_rest(seed);
            most_members = most_members.max(world.members.len());
        }
        world.members.clear();
        world.bench.advance(Duration::from_secs(100));
        assert_eq!(world.bench.group.state(), ConsumerGroupState::Empty);
        assert_eq!(world.bench.group.next_due(), None, "seed {seed}");
    }
    assert!(most_members > 4, "groups have several members: {most_members}");
}
