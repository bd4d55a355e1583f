//! Random sequences of events, and what holds after each of them.

use super::*;

/// A client's own view: its membership may have ended long ago, or its generation may be over.
struct TestClient {
    id: String,
    generation: i32,
    join: Option<CallId>,
    sync: Option<CallId>,
    instance: Option<String>,
}

impl TestClient {
    fn speaker(&self) -> MemberIdentity<'_> {
        MemberIdentity { member_id: &self.id, instance: self.instance.as_deref(), generation: self.generation }
    }
}

struct GroupWorld {
    bench: Bench,
    clients: Vec<TestClient>,
    rng: fastrand::Rng,
    /// Number of rounds that found a stable generation.
    stable_rounds: usize,
}

impl GroupWorld {
    fn step(&mut self) {
        let before = self.bench.group.generation();
        match self.rng.u32(0..100) {
            0..12 => self.newcomer(),
            12..40 => self.rejoin(),
            40..70 => self.sync(),
            70..80 => self.heartbeat(),
            80..84 => self.leave(),
            84..88 => self.come_back(),
            _ => {
                let by = Duration::from_millis(self.rng.u64(0..4_000));
                self.bench.advance(by);
            }
        }
        self.hear();
        self.check(before);
    }

    fn newcomer(&mut self) {
        let number = self.clients.len();
        let instance = self.rng.bool().then(|| format!("instance-{number}"));
        let new_id = format!("member-{number}");
        let join = self.bench.join(JoinRequest { instance: instance.clone(), ..join_of("", &new_id) });
        self.clients.push(TestClient { id: new_id, generation: -1, join: Some(join), sync: None, instance });
    }

    /// A static member has restarted and forgotten its id.
    fn come_back(&mut self) {
        let Some(of) = self.any() else { return };
        let Some(instance) = self.clients[of].instance.clone() else { return };
        let new_id = format!("member-{}", self.clients.len());
        let join = self.bench.join(JoinRequest { instance: Some(instance.clone()), ..join_of("", &new_id) });
        let instance = Some(instance);
        self.clients.push(TestClient { id: new_id, generation: -1, join: Some(join), sync: None, instance });
    }

    fn any(&mut self) -> Option<usize> {
        // The last clients more often: most of the others left long ago.
        let count = self.clients.len();
        let recent = count.saturating_sub(8);
        (count > 0)
            .then(|| if self.rng.u32(0..10) == 0 { self.rng.usize(0..count) } else { self.rng.usize(recent..count) })
    }

    fn rejoin(&mut self) {
        let Some(of) = self.any() else { return };
        let client = &self.clients[of];
        let metadata = Bytes::copy_from_slice(&[self.rng.u8(0..2)]);
        let protocols = vec![("range".to_owned(), metadata)];
        let join = JoinRequest { protocols, instance: client.instance.clone(), ..join_of(&client.id, "") };
        self.clients[of].join = Some(self.bench.join(join));
    }

    fn sync(&mut self) {
        let Some(of) = self.any() else { return };
        let client = &self.clients[of];
        let plan = format!("generation {}", client.generation);
        let members: Vec<_> = self.bench.group.members().keys().cloned().collect();
        let plans: Vec<_> = members.iter().map(|id| (id.as_str(), plan.as_str())).collect();
        self.clients[of].sync = Some(self.bench.sync(client.speaker(), &plans));
    }

    fn heartbeat(&mut self) {
        let Some(of) = self.any() else { return };
        let now = self.bench.now;
        self.bench.group.heartbeat(now, self.clients[of].speaker()).ok();
    }

    fn leave(&mut self) {
        let Some(of) = self.any() else { return };
        let client = &self.clients[of];
        let (id, instance) = (client.id.clone(), client.instance.clone());
        self.bench.leave(&id, instance.as_deref()).ok();
    }

    /// Clients take note of their answers.
    fn hear(&mut self) {
        for client in &mut self.clients {
            if let Some(Ok(joined)) = client.join.and_then(|call_id| self.bench.joins.get(&call_id)) {
                client.generation = joined.generation;
                client.join = None;
            }
            if let Some(Ok(synced)) = client.sync.and_then(|call_id| self.bench.syncs.get(&call_id)) {
                let plan = std::str::from_utf8(&synced.assignment).unwrap();
                assert_eq!(plan, format!("generation {}", client.generation), "everybody has the same plan");
                client.sync = None;
            }
        }
    }

    fn check(&mut self, before: i32) {
        let group = &self.bench.group;
        let (state, current) = (group.state(), group.generation());
        assert!(current >= before, "a generation never comes back");
        match state {
            GroupState::Empty => assert!(group.members().is_empty()),
            GroupState::Stable => {
                self.stable_rounds += 1;
                assert!(group.members().contains_key(group.leader()));
                let plan = format!("generation {current}");
                for (id, member) in group.members() {
                    assert_eq!(member.assignment, plan.as_bytes(), "{id} of a stable generation has its assignment");
                    assert!(member.joining.is_none() && member.syncing.is_none(), "{id} waits in a stable generation");
                }
            }
            GroupState::CompletingRebalance => assert!(group.members().contains_key(group.leader())),
            GroupState::PreparingRebalance => assert!(!group.members().is_empty()),
            GroupState::Dead => panic!("nobody has ended it"),
        }
        let members: Vec<_> = group.members().keys().cloned().collect();
        let now = self.bench.now;
        // Only the last clients: most of the others left long ago.
        for client in self.clients.iter().rev().take(12) {
            let is_stale = client.generation != current || !members.contains(&client.id);
            // On a copy, because a commit extends the session.
            let mut copy = self.bench.group.clone();
            let may = copy.may_commit(now, client.speaker());
            assert!(
                !(is_stale && may.is_ok()),
                "{} of generation {} commits in {current}",
                client.id,
                client.generation
            );
            let misses = !is_stale && state == GroupState::Stable && may.is_err();
            assert!(!misses, "{} of the stable generation may not commit: {may:?}", client.id);
        }
    }
}

#[test]
fn at_most_one_generation_is_current_and_only_its_members_commit() {
    let mut stable_rounds = 0;
    for seed in 0..200 {
        let delay = Duration::from_millis(if seed % 2 == 0 { 0 } else { 100 });
        let config = GroupConfig { initial_rebalance_delay: delay, ..config() };
        let rng = fastrand::Rng::with_seed(seed);
        let mut world = GroupWorld { bench: Bench::new(config), clients: Vec::new(), rng, stable_rounds: 0 };
        (0..300).for_each(|_| world.step());
        stable_rounds += world.stable_rounds;

        // All clients fall silent: every call is answered, and no member remains.
        for _ in 0..40 {
            world.bench.advance(SESSION);
        }
        assert_eq!(world.bench.group.state(), GroupState::Empty, "seed {seed}");
        let answered = world.bench.joins.len() + world.bench.syncs.len();
        assert_eq!(answered as u64, world.bench.next, "seed {seed}: a call was never answered");
        assert_eq!(world.bench.group.next_due(), None, "seed {seed}");
    }
    assert!(stable_rounds > 1_000, "the sequences reach stable generations: {stable_rounds}");
}
