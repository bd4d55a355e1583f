//! Commands on a key take effect one after another, and readers see time go one way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_view::{Views, ViewsConfig};
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::common::{self, Answer, Command, Shelf, World, submit};

/// The command of a thread for a key.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Add(i64),
    Swap(i64, i64),
    Remove,
}

/// A wish, the moments between which it took effect, and its answer.
#[derive(Debug, Clone, Copy)]
struct Event {
    asked: u64,
    answered: u64,
    wish: Wish,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Now(i64),
    Refused(i64),
    Gone,
}

/// Returns the answer of `wish` at `value`, and the value that it leaves.
fn step(value: i64, wish: Wish) -> (Outcome, i64) {
    match wish {
        Wish::Add(pieces) => (Outcome::Now(value + pieces), value + pieces),
        Wish::Swap(expected, pieces) if expected == value => (Outcome::Now(pieces), pieces),
        Wish::Swap(..) => (Outcome::Refused(value), value),
        Wish::Remove => (Outcome::Gone, 0),
    }
}

/// Returns `true` if some order of `events`, in which none stands before one that was answered before it was asked,
/// gives these very answers when it is carried out one by one. Searches from all orders at once, remembering dead
/// ends.
fn is_sequential(events: &[Event], end: i64) -> bool {
    let mut dead = BTreeSet::new();
    search(events, 0, 0, end, &mut dead)
}

fn search(events: &[Event], done: u64, value: i64, end: i64, dead: &mut BTreeSet<(u64, i64)>) -> bool {
    if done.count_ones() as usize == events.len() {
        return value == end;
    }
    if dead.contains(&(done, value)) {
        return false;
    }
    let open = || events.iter().enumerate().filter(|(i, _)| done & (1 << i) == 0);
    let first_answer = open().map(|(_, event)| event.answered).min().unwrap_or(u64::MAX);
    let found = open().filter(|(_, event)| event.asked <= first_answer).any(|(i, event)| {
        let (outcome, next) = step(value, event.wish);
        outcome == event.outcome && search(events, done | 1 << i, next, end, dead)
    });
    if !found {
        dead.insert((done, value));
    }
    found
}

fn key(number: u8) -> String {
    format!("key-{number}")
}

/// One thread: asks, with up to `in_flight` answers outstanding, and notes what it hears.
fn ask_all(
    views: &Views<Shelf>,
    wishes: &[(u8, Wish)],
    in_flight: usize,
    clock: &AtomicU64,
    events: &Mutex<BTreeMap<u8, Vec<Event>>>,
) {
    for wishes in wishes.chunks(in_flight) {
        let asked: Vec<_> = wishes
            .iter()
            .map(|(number, wish)| {
                let name = key(*number);
                let command = match *wish {
                    Wish::Add(pieces) => Command::Add { name, pieces },
                    Wish::Swap(expected, pieces) => Command::Swap { name, expected, pieces },
                    Wish::Remove => Command::Remove { name },
                };
                let asked = clock.fetch_add(1, Ordering::SeqCst);
                (number, wish, asked, submit(views, command).unwrap())
            })
            .collect();
        for (number, wish, asked, answer) in asked {
            let outcome = match answer.blocking_recv().unwrap().unwrap() {
                Answer::Now(value) => Outcome::Now(value),
                Answer::Refused { actual } => Outcome::Refused(actual),
                Answer::Gone => Outcome::Gone,
            };
            let answered = clock.fetch_add(1, Ordering::SeqCst);
            let event = Event { asked, answered, wish: *wish, outcome };
            events.lock().entry(*number).or_default().push(event);
        }
    }
}

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        3 => (1..4_i64).prop_map(Wish::Add),
        4 => (0..5_i64, 0..5_i64).prop_map(|(expected, pieces)| Wish::Swap(expected, pieces)),
        1 => Just(Wish::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_answers_of_each_key_are_those_of_some_sequence(
        threads in prop::collection::vec(prop::collection::vec((0..3_u8, wish()), 1..14), 2..5),
        in_flight in 1..4_usize,
        batch_max_commands in 1..5_usize,
        flights_max in 1..4_usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let world = World::open(dir.path());
        let config = ViewsConfig { partitions: 4, batch_max_commands, flights_max, ..ViewsConfig::default() };
        let views = world.shelf_with(None, &config).unwrap();
        let (clock, events) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
        std::thread::scope(|scope| {
            for wishes in &threads {
                let (views, clock, events) = (&views, &clock, &events);
                scope.spawn(move || ask_all(views, wishes, in_flight, clock, events));
            }
        });
        for (number, events) in events.into_inner() {
            let end = common::pieces(&views, &key(number)).unwrap_or(0);
            prop_assert!(is_sequential(&events, end), "{}: {events:?} do not lead to {end}", key(number));
        }
        world.close(views);
    }
}

#[test]
fn an_impossible_order_is_told_from_a_possible_one() {
    let event = |asked, answered, wish, outcome| Event { asked, answered, wish, outcome };
    let one = event(0, 1, Wish::Add(1), Outcome::Now(1));
    let table = [
        (vec![one, event(2, 3, Wish::Add(1), Outcome::Now(2))], 2, true),
        (vec![one, event(2, 3, Wish::Add(1), Outcome::Now(1))], 1, false),
        (vec![event(0, 3, Wish::Add(1), Outcome::Now(2)), event(1, 2, Wish::Add(1), Outcome::Now(1))], 2, true),
        (vec![event(0, 1, Wish::Add(1), Outcome::Now(2)), event(2, 3, Wish::Add(1), Outcome::Now(1))], 2, false),
        (vec![one, event(2, 3, Wish::Swap(0, 4), Outcome::Refused(0))], 1, false),
        (vec![one], 0, false),
    ];
    for (events, end, expected) in table {
        assert_eq!(is_sequential(&events, end), expected, "{events:?}");
    }
}

#[test]
fn a_reader_never_sees_a_value_or_an_offset_go_back() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let views = world.shelf();
    let names: Vec<String> = (0..8).map(|n| format!("part-{n}")).collect();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = vec![(millstream_types::Offset::ZERO, BTreeMap::<String, i64>::new()); 4];
                    let mut looks = 0_u64;
                    while !ended.load(Ordering::Acquire) || looks == 0 {
                        for (snapshot, (next, values)) in views.snapshots().iter().zip(&mut seen) {
                            assert!(snapshot.next >= *next, "{} after {next}", snapshot.next);
                            *next = snapshot.next;
                            for (name, value) in &snapshot.state {
                                let before = values.insert(name.clone(), *value).unwrap_or(0);
                                assert!(*value >= before, "{name} was {before} and is {value}");
                            }
                        }
                        looks += 1;
                    }
                })
            })
            .collect();
        for round in 1..=400 {
            let add = |name: &String| submit(&views, Command::Add { name: name.clone(), pieces: 1 }).unwrap();
            let answers: Vec<_> = names.iter().map(add).collect();
            for answer in answers {
                assert_eq!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(round));
            }
        }
        ended.store(true, Ordering::Release);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    world.close(views);
}
