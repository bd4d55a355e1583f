//! The work of one life until the power goes.

use std::collections::VecDeque;

use millstream_log::{AckLevel, Done, Log};
use millstream_testkit::CheckpointStores;
use millstream_testkit::sim::Rng;
use millstream_types::{Offset, Record, TenantId, TopicName, TopicPartition};
use millstream_view::Views;
use parking_lot::Mutex;

use super::oracle::{Oracle, Sent};
use crate::common::{Answer, Command, Shelf, ask, submit, telemetry};

/// Counters that several threads share.
pub(crate) const PARTS: u64 = 6;
/// Values that one thread sets and removes in turn.
pub(crate) const SLOTS: u64 = 8;
/// Counters of derived pieces; as many as there are telemetry partitions.
pub(crate) const BINS: u32 = 3;
pub(crate) const MOVES: &str = "moves";

/// Commands that each thread keeps in flight.
const IN_FLIGHT: usize = 24;
const COMMANDS: u64 = 250;
const RECORDS: u64 = 400;

pub(crate) fn moves() -> TopicName {
    TopicName::user(MOVES, &TenantId::default()).unwrap()
}

/// Runs until everything is done or the log ends.
pub(crate) fn run(
    views: &Views<Shelf>,
    log: &dyn Log,
    oracle: &Mutex<Oracle>,
    stores: &mut CheckpointStores,
    rng: &mut Rng,
) {
    std::thread::scope(|threads| {
        for _ in 0..2 {
            let rng = rng.fork();
            threads.spawn(move || count(views, oracle, rng));
        }
        let slots = rng.fork();
        threads.spawn(move || set_and_remove(views, oracle, slots));
        for partition in 0..BINS {
            let rng = rng.fork();
            threads.spawn(move || send(log, partition, oracle, rng));
        }
        stores.keep_copy();
    });
}

/// Adds to parts that others add to as well.
fn count(views: &Views<Shelf>, oracle: &Mutex<Oracle>, mut rng: Rng) {
    let mut flights = VecDeque::new();
    for _ in 0..COMMANDS {
        let name = format!("part-{}", rng.below(PARTS));
        *oracle.lock().submitted.entry(name.clone()).or_default() += 1;
        match submit(views, Command::Add { name: name.clone(), pieces: 1 }) {
            Ok(answer) => flights.push_back((name, answer)),
            Err(_) => break,
        }
        if flights.len() >= IN_FLIGHT && !land(&mut flights, oracle) {
            break;
        }
    }
    while !flights.is_empty() {
        land(&mut flights, oracle);
    }
}

type Flights = VecDeque<(String, millstream_view::Answer<Shelf>)>;

/// Waits for the oldest answer; whether there was one.
fn land(flights: &mut Flights, oracle: &Mutex<Oracle>) -> bool {
    let (name, answer) = flights.pop_front().unwrap();
    match answer.blocking_recv().expect("every command is answered") {
        Ok(Answer::Now(count)) => {
            oracle.lock().answers.entry(name).or_default().push(count);
            true
        }
        Ok(other) => panic!("{other:?}"),
        Err(failure) => {
            assert!(failure.may_have_applied(), "{failure}");
            false
        }
    }
}

/// One command at a time; each leaves a value or nothing.
fn set_and_remove(views: &Views<Shelf>, oracle: &Mutex<Oracle>, mut rng: Rng) {
    for _ in 0..COMMANDS / 4 {
        let (command, change) = SlotChange::choose(oracle, &mut rng);
        match ask(views, command) {
            Ok(answer) => change.answered(&answer, oracle),
            Err(_) => return,
        }
    }
}

/// The change of a slot by a command that is under way.
pub(crate) struct SlotChange {
    name: String,
    then: Option<i64>,
}

impl SlotChange {
    /// Chooses a command that sets or removes the value of some slot, and notes what it may leave.
    pub(crate) fn choose(oracle: &Mutex<Oracle>, rng: &mut Rng) -> (Command, Self) {
        let name = format!("slot-{}", rng.below(SLOTS));
        let mut oracle = oracle.lock();
        let slot = oracle.slots.entry(name.clone()).or_default();
        let (command, then) = if rng.chance(40) {
            (Command::Remove { name: name.clone() }, None)
        } else {
            let pieces = rng.below(1_000) as i64;
            let expected = slot.answered.unwrap_or(0);
            (Command::Swap { name: name.clone(), expected, pieces }, Some(pieces))
        };
        slot.perhaps = Some(then);
        (command, Self { name, then })
    }

    /// Checks the answer to the command, and notes that the slot is as it says.
    pub(crate) fn answered(self, answer: &Answer, oracle: &Mutex<Oracle>) {
        let mut oracle = oracle.lock();
        let slot = oracle.slots.entry(self.name).or_default();
        assert_eq!(*answer, self.then.map_or(Answer::Gone, Answer::Now), "{slot:?}");
        (slot.answered, slot.perhaps) = (self.then, None);
    }
}

/// The only producer of its partition, so that it knows the offset of each record.
fn send(log: &dyn Log, partition: u32, oracle: &Mutex<Oracle>, mut rng: Rng) {
    let id = TopicPartition::new(telemetry(), partition);
    let handle = log.partition(&id).unwrap();
    let mut next = handle.offsets().tail;
    for _ in 0..RECORDS {
        let count = 1 + rng.below(4);
        let batch: Vec<(String, Vec<u8>)> =
            (0..count).map(|_| (bins(&mut rng), vec![b'x'; 1 + rng.below(7) as usize])).collect();
        let records: Vec<Record<'_>> = batch
            .iter()
            .map(|(bins, pieces)| Record { key: Some(bins.as_bytes()), value: Some(pieces), ..Record::default() })
            .collect();
        // Before they are appended, as the follower may be faster than this thread.
        let sent = (next.0..).zip(&batch).flat_map(|(offset, (bins, pieces))| {
            bins.split('+').map(move |bin| Sent {
                partition,
                offset: Offset(offset),
                key: bins.clone(),
                bin: bin.to_owned(),
                pieces: pieces.len() as i64,
            })
        });
        let mut known = oracle.lock();
        if handle.append(&records, AckLevel::Written, Done::ignore()).is_err() {
            return;
        }
        known.sent.extend(sent);
        drop(known);
        next = next.advance(count);
    }
}

/// The key of a record: one bin, or two that most often have different owners.
fn bins(rng: &mut Rng) -> String {
    let bin = rng.below(9);
    if rng.chance(30) { format!("bin-{bin}+bin-{}", (bin + 1 + rng.below(8)) % 9) } else { format!("bin-{bin}") }
}
