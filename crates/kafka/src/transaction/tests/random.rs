//! Random requests of producers that come, go and linger, and what holds after each of them.

use std::collections::BTreeSet;

use super::*;

struct TransactionWorld {
    of: Transaction,
    now_ms: i64,
    /// All that was ever answered to a take-over or the end of an epoch, the last one the current owner's.
    producers: Vec<ProducerIdAndEpoch>,
    /// Markers that the log was given: each fences the older epochs.
    fenced: Vec<ProducerIdAndEpoch>,
    next_id: i64,
    rng: fastrand::Rng,
    ended: usize,
    refused: usize,
}

impl TransactionWorld {
    fn step(&mut self) {
        let who = if self.rng.u8(0..4) == 0 { *self.rng.choice(&self.producers).unwrap() } else { self.owner() };
        let number = self.rng.u32(0..6);
        let outcome = match self.rng.u8(0..20) {
            0..6 => self.of.add_partitions(who, [partition(number)], LIMITS, self.now_ms).map(|next| next.map(plain)),
            6..8 => self.of.add_group(who, "g", LIMITS, self.now_ms).map(|next| next.map(plain)),
            8..11 => {
                let at = position("g", number, self.rng.u64(0..9));
                self.of.add_positions(who, "g", [at], LIMITS, None).map(|next| next.map(plain))
            }
            11..14 => self.of.end(who, self.rng.bool(), self.now_ms),
            14..16 => return self.end_epoch(who),
            16..18 => return self.take_over(who),
            _ => {
                self.now_ms += self.rng.i64(0..600);
                Ok(self.of.time_out(self.now_ms))
            }
        };
        self.hear(who, outcome);
    }

    fn owner(&self) -> ProducerIdAndEpoch {
        *self.producers.last().unwrap()
    }

    fn hear(&mut self, who: ProducerIdAndEpoch, outcome: Result<Option<Transition>, ResponseError>) {
        match outcome {
            Ok(Some(step)) => {
                let timed_out = step.next.producer != self.of.producer;
                assert!(timed_out || who == self.of.producer, "{who:?} changed what {:?} has", self.of.producer);
                self.follow(step);
            }
            Ok(None) => {}
            Err(_) => self.refused += 1,
        }
    }

    fn take_over(&mut self, who: ProducerIdAndEpoch) {
        let given = self.rng.bool().then_some(who);
        let next_id = self.next_id + 1;
        match self.of.take_over(given, TIMEOUT_MS, self.now_ms, || Some(next_id)) {
            Ok(Some(step)) => {
                let producer = step.next.producer;
                assert!(!self.producers.contains(&producer), "{producer:?} is handed out twice");
                assert!(!self.fenced.contains(&producer), "{producer:?} was used for fencing");
                self.next_id = self.next_id.max(producer.id);
                self.follow(step);
                self.producers.push(producer);
            }
            Ok(None) => assert_eq!(self.of.producer, self.owner(), "only who owns it is told so again"),
            Err(_) => self.refused += 1,
        }
    }

    fn end_epoch(&mut self, who: ProducerIdAndEpoch) {
        let (next_id, before) = (self.next_id + 1, self.of.producer);
        match self.of.end_epoch(who, self.rng.bool(), self.now_ms, || Some(next_id)) {
            Ok(Some(step)) => {
                let producer = step.next.producer;
                assert_eq!(who, before, "{who:?} ended the epoch of {before:?}");
                assert!(!self.producers.contains(&producer), "{producer:?} is handed out twice");
                assert!(!self.fenced.contains(&producer), "{producer:?} was used for fencing");
                self.next_id = self.next_id.max(producer.id);
                self.follow(step);
                self.producers.push(producer);
            }
            Ok(None) => assert_eq!(self.of.producer, self.owner(), "only who owns it is told so again"),
            Err(_) => self.refused += 1,
        }
    }

    fn follow(&mut self, step: Transition) {
        if let Some(ending) = &step.ending {
            self.ended += 1;
            assert_eq!(self.of.stage, TransactionState::Ongoing);
            assert_eq!(ending.partitions, self.of.partitions);
            let pending: Vec<_> = self.of.positions().cloned().collect();
            assert_eq!(ending.positions, if ending.commit { pending } else { Vec::new() });
            let is_own = ending.producer == self.of.producer || step.next.previous == Some(self.of.producer);
            assert!(!ending.commit || is_own, "only its producer commits it");
            if ending.producer != self.of.producer && ending.producer != step.next.producer {
                self.fenced.push(ending.producer);
            }
        } else {
            let kept =
                self.of.partitions.is_subset(&step.next.partitions) || self.of.stage != TransactionState::Ongoing;
            assert!(kept, "an open transaction loses nothing before its end");
        }
        self.of = step.next;
        let is_open = self.of.stage == TransactionState::Ongoing;
        assert!(is_open || (self.of.partitions.is_empty() && self.of.groups.is_empty()));
        assert!(
            self.of.partitions.len() <= LIMITS.partitions_max && self.of.positions().count() <= LIMITS.partitions_max
        );
        let stale: BTreeSet<_> =
            self.producers.iter().filter(|old| **old != self.of.producer).map(|old| old.epoch).collect();
        for epoch in stale {
            let old = ProducerIdAndEpoch { epoch, ..self.of.producer };
            let may = self.of.may_produce(old, &partition(0));
            assert!(old == self.of.producer || may.is_err(), "{old:?} produces while {:?} owns it", self.of.producer);
        }
    }
}

fn plain(next: Transaction) -> Transition {
    Transition { next, ending: None }
}

#[test]
fn only_its_producer_changes_a_transaction_and_no_epoch_is_reused() {
    let (mut ended, mut refused) = (0, 0);
    for seed in 0..200 {
        let rng = fastrand::Rng::with_seed(seed);
        // Some begin where epochs are nearly used up.
        let epoch = if seed % 3 == 0 { i16::MAX - 8 } else { 0 };
        let first = ProducerIdAndEpoch { id: 7, epoch };
        let of = Transaction { producer: first, ..fresh() };
        let (producers, fenced) = (vec![first], Vec::new());
        let mut world = TransactionWorld { of, now_ms: 0, producers, fenced, next_id: 7, rng, ended: 0, refused: 0 };
        (0..300).for_each(|_| world.step());
        (ended, refused) = (ended + world.ended, refused + world.refused);
    }
    assert!(ended > 1_000 && refused > 1_000, "{ended} ended, {refused} refused");
}
