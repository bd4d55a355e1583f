//! Joins of records that are cut, stored and made anew.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::batch::{Batch, RowTime, SourceBatch};
use crate::document::NodeId;
use crate::operator::keyed::KeyedRows;

/// The bounds of a join.
#[derive(Clone, Copy)]
struct Within {
    before_ms: i64,
    after_ms: i64,
}

impl Within {
    const fn new(before_ms: i64, after_ms: i64) -> Self {
        Self { before_ms, after_ms }
    }
}

const START_MS: i64 = 1_000_000;

fn join(within: Within, kind: &str) -> Join {
    let Within { before_ms, after_ms } = within;
    let input = |number, name: &str| JoinInput {
        node: NodeId(number),
        key: vec!["k".to_owned()],
        member: name.to_owned(),
        gives_unmatched: kind == name || kind == "full",
    };
    let setting = JoinSetting { left: input(0, "left"), right: input(1, "right"), before_ms, after_ms };
    Join {
        setting,
        records: KeyedState::new(StateMemory::unbounded("pairs")),
        keys: HashMap::new(),
        timers: BTreeMap::new(),
        time_ms: NO_TIME,
        given: 0,
    }
}

/// A record: its side, its key, which is NULL if it is 0, and its time.
type Reading = (bool, u8, i64);

fn key_of(key: u8) -> String {
    if key == 0 { "null\n".to_owned() } else { format!("\"{key}\"\n") }
}

/// Records of one side with their numbers from `first` on, and the watermark in front of each.
fn batch(readings: &[Reading], first: usize, watermarks: &[i64]) -> (Batch, KeyedRows) {
    let (mut source, mut rows) = (SourceBatch::default(), KeyedRows::default());
    for (row, (_, key, time_ms)) in (0..).zip(readings) {
        let payload = format!("{{\"n\":{}}}", first + row as usize);
        source.push(u64::from(row), None, *time_ms, |out| out.extend_from_slice(payload.as_bytes()));
        rows.push(row, key_of(*key).as_bytes());
    }
    let timed = source.finish().with_times(|row| RowTime { time_ms: readings[row].2, watermark_ms: watermarks[row] });
    (timed, rows)
}

/// A result: the numbers of its records, its key and its time.
type Joined = (Option<u64>, Option<u64>, String, i64);

/// The results of readings, and the number of those that came late.
struct Run {
    operator: Join,
    found: Vec<Joined>,
    late: u64,
    stored: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Run {
    fn new(operator: Join) -> Self {
        Self { operator, found: Vec::new(), late: 0, stored: BTreeMap::new() }
    }

    fn take(&mut self, made: MadeRows) {
        let (batch, _) = made.finish(&"pairs".into(), None);
        for row in 0..batch.len() {
            assert!(batch.time_ms(row) >= batch.watermark_ms(row), "a result is late itself");
            let value: Value = serde_json::from_slice(batch.payload(row).unwrap()).unwrap();
            let (left, right) = (value["left"]["n"].as_u64(), value["right"]["n"].as_u64());
            let key = String::from_utf8(batch.key(row).unwrap().to_vec()).unwrap();
            self.found.push((left, right, key, batch.time_ms(row)));
        }
    }

    /// Works on records of one side.
    fn apply(&mut self, readings: &[Reading], first: usize, watermarks: &[i64]) {
        let (mut timed, mut rows) = batch(readings, first, watermarks);
        let side = if readings[0].0 { JoinSide::Right } else { JoinSide::Left };
        loop {
            let input = KeyedInput { batch: &timed, rows: &rows, inputs: None, now_ms: 0, side };
            let KeyedOutput::Made(made) = self.operator.apply(&input).unwrap() else { unreachable!() };
            assert_eq!(made.failed, []);
            assert!(made.rows.len() <= MADE_MAX, "{} results of one call", made.rows.len());
            self.late += made.late.len() as u64;
            self.take(made.rows);
            let Some(rest) = made.rest else { break };
            let mut left = KeyedRows::default();
            rows.iter().filter(|(row, _)| *row >= rest).for_each(|(row, key)| left.push(row - rest, key));
            (timed, rows) = (timed.select(rest..timed.len() as u32), left);
        }
    }

    fn give(&mut self, mut call: impl FnMut(&mut Join, &mut MadeRows) -> bool) {
        loop {
            let mut made = MadeRows::default();
            let all_done = call(&mut self.operator, &mut made);
            self.take(made);
            if all_done {
                return;
            }
        }
    }

    fn advance(&mut self, time_ms: i64) {
        self.give(|operator, made| operator.advance(time_ms, made).unwrap());
    }

    fn finish(&mut self) {
        self.give(|operator, made| operator.finish(made).unwrap());
    }

    /// Stores what has changed.
    fn store(&mut self) {
        let stored = &mut self.stored;
        self.operator.take_changes(&mut |key, value| match value {
            Some(value) => drop(stored.insert(key.to_vec(), value.to_vec())),
            None => drop(stored.remove(key)),
        });
    }

    /// Goes on with another operator, which is made of what is stored.
    fn make_anew(&mut self, mut operator: Join, time_ms: i64) {
        self.store();
        let keys = self.operator.keys();
        self.stored.iter().for_each(|(key, value)| operator.restore(key, value).unwrap());
        self.operator = operator;
        assert_eq!(self.operator.keys(), keys);
        let found = self.found.len();
        self.advance(time_ms);
        assert_eq!(self.found.len(), found, "nothing is due twice");
    }
}

/// All pairs, and the records without one, by looking at each pair of records.
fn nested_loop(readings: &[Reading], within: Within, kind: &str) -> Vec<Joined> {
    let Within { before_ms, after_ms } = within;
    let mut joined = Vec::new();
    let mut matched = vec![false; readings.len()];
    let name = |key: u8| if key == 0 { "null".to_owned() } else { key.to_string() };
    for (left, (_, key, left_ms)) in readings.iter().enumerate().filter(|(_, reading)| !reading.0) {
        for (right, (_, other, right_ms)) in readings.iter().enumerate().filter(|(_, reading)| reading.0) {
            if key == other && *key != 0 && (left_ms - before_ms..=left_ms + after_ms).contains(right_ms) {
                (matched[left], matched[right]) = (true, true);
                joined.push((Some(left as u64), Some(right as u64), name(*key), *left_ms.max(right_ms)));
            }
        }
    }
    for (number, (is_right, key, time_ms)) in readings.iter().enumerate().filter(|(number, _)| !matched[*number]) {
        let alone = Some(number as u64);
        match is_right {
            false if matches!(kind, "left" | "full") => joined.push((alone, None, name(*key), *time_ms)),
            true if matches!(kind, "right" | "full") => joined.push((None, alone, name(*key), *time_ms)),
            _ => {}
        }
    }
    joined.sort();
    joined
}

/// The highest watermark in front of each record behind which none is late, less a lag.
fn watermarks(readings: &[Reading], lag_ms: i64) -> Vec<i64> {
    let mut least_ms = i64::MAX;
    let mut found: Vec<i64> = readings
        .iter()
        .rev()
        .map(|(_, _, time_ms)| {
            least_ms = least_ms.min(*time_ms);
            least_ms - lag_ms
        })
        .collect();
    found.reverse();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn results_are_those_of_all_records_however_they_are_cut_stored_and_made_anew(
        readings in prop::collection::vec((any::<bool>(), 0..4_u8, 0..60_i64), 0..80),
        before_ms in -15..20_i64,
        length_ms in 0..25_i64,
        kind in prop::sample::select(&["inner", "left", "right", "full"]),
        lag_ms in prop::sample::select(&[0_i64, 7]),
        cuts in prop::collection::vec(prop::sample::select(&["", "", "cut", "advance", "anew"]), 80),
    ) {
        let within = Within::new(before_ms, length_ms - before_ms);
        let readings: Vec<Reading> =
            readings.into_iter().map(|(side, key, time_ms)| (side, key, START_MS + time_ms)).collect();
        let watermarks = watermarks(&readings, lag_ms);
        let mut run = Run::new(join(within, kind));
        let mut start = 0;
        for end in 1..=readings.len() {
            let is_end = end == readings.len() || readings[end].0 != readings[start].0 || !cuts[end - 1].is_empty();
            if !is_end {
                continue;
            }
            run.apply(&readings[start..end], start, &watermarks[start..end]);
            start = end;
            let next_ms = watermarks.get(end).or(watermarks.last()).copied().unwrap();
            match cuts[end - 1] {
                "advance" => run.advance(next_ms),
                "anew" => {
                    run.advance(next_ms);
                    run.make_anew(join(within, kind), next_ms);
                }
                _ => {}
            }
        }
        run.finish();
        run.found.sort();
        prop_assert_eq!(&run.found, &nested_loop(&readings, within, kind));
        prop_assert_eq!((run.late, run.operator.keys(), run.operator.timers.len()), (0, 0, 0));
        run.store();
        prop_assert_eq!(run.stored.len(), 0, "all that was kept is dropped");
    }
}

#[test]
fn a_record_is_kept_until_no_partner_can_come_and_no_longer() {
    let mut run = Run::new(join(Within::new(5, 10), "left"));
    run.apply(&[(false, 1, START_MS)], 0, &[NO_TIME]);
    assert_eq!(run.operator.timers.len(), 1);
    run.advance(START_MS + 10);
    assert_eq!((run.operator.keys(), run.found.len()), (1, 0));
    run.advance(START_MS + 11);
    assert_eq!(run.found, [(Some(0), None, "1".to_owned(), START_MS)]);
    assert_eq!((run.operator.keys(), run.operator.timers.len()), (0, 0));
}

#[test]
fn a_late_record_is_joined_with_partners_that_are_still_there_and_counts_as_late_without_any() {
    let mut run = Run::new(join(Within::new(20, 5), "full"));
    run.apply(&[(true, 1, START_MS)], 0, &[START_MS]);
    let now_ms = START_MS + 12;
    // A right record waits for left ones for 20 ms, a left one for right ones for 5 ms.
    run.apply(&[(false, 1, START_MS + 2), (false, 2, START_MS + 2), (false, 2, START_MS + 8)], 1, &[now_ms; 3]);
    assert_eq!(run.found, [(Some(1), Some(0), "1".to_owned(), START_MS + 2)]);
    assert_eq!((run.late, run.operator.keys()), (1, 2));
    run.found.clear();
    run.finish();
    assert_eq!(run.found, [(Some(3), None, "2".to_owned(), START_MS + 8)]);
}

#[test]
fn a_record_with_many_partners_makes_them_in_several_calls() {
    let many = 3 * MADE_MAX + 7;
    let lefts = vec![(false, 1, START_MS); many];
    let mut run = Run::new(join(Within::new(0, 0), "full"));
    run.apply(&lefts, 0, &vec![NO_TIME; many]);
    run.apply(&[(true, 1, START_MS), (true, 1, START_MS + 1), (true, 1, START_MS)], many, &[NO_TIME; 3]);
    let mut found: Vec<_> = run.found.iter().map(|(left, right, ..)| (right.unwrap(), left.unwrap())).collect();
    found.sort_unstable();
    let expected: Vec<_> =
        [many, many + 2].into_iter().flat_map(|right| (0..many).map(move |left| (right as u64, left as u64))).collect();
    assert_eq!(found, expected);
    run.found.clear();
    run.finish();
    assert_eq!(run.found, [(None, Some(many as u64 + 1), "1".to_owned(), START_MS + 1)]);
}

#[test]
fn a_record_that_cannot_be_joined_fails_and_one_without_a_value_is_passed_over() {
    let (mut source, mut rows) = (SourceBatch::default(), KeyedRows::default());
    let large = format!("{{\"n\":\"{}\"}}", "x".repeat(1 << 20));
    for (row, payload) in (0..).zip(["{}", "[]", "{}", &large]) {
        source.push(u64::from(row), None, START_MS, |out| out.extend_from_slice(payload.as_bytes()));
        rows.push(row, b"1\n");
    }
    let times = [NO_TIME, START_MS, START_MS, START_MS];
    let batch = source.finish_unchecked().with_times(|row| RowTime { time_ms: times[row], watermark_ms: NO_TIME });
    let mut operator = join(Within::new(0, 0), "inner");
    let mut apply = |batch: &Batch| {
        let input = KeyedInput { batch, rows: &rows, inputs: None, now_ms: 0, side: JoinSide::Left };
        let KeyedOutput::Made(made) = operator.apply(&input).unwrap() else { unreachable!() };
        (made.failed.iter().map(|error| (error.row, error.code)).collect::<Vec<_>>(), operator.keys())
    };
    let failed = vec![(0, "no_event_time"), (1, "invalid_json"), (3, "record_too_large")];
    assert_eq!(apply(&batch), (failed, 1));
    let mut none = batch.rewrite();
    (0..4).for_each(|row| none.push_null(row));
    assert_eq!(apply(&none.finish()), (vec![], 1));
}

#[test]
fn results_have_the_records_as_they_are_under_their_names() {
    let mut operator = join(Within::new(0, 0), "full");
    operator.setting.left.member = "an \"order\"".to_owned();
    let record = SeenRecord { side: JoinSide::Left, key: b"\"a\"\n7\n", time_ms: 5, payload: b"{\"n\": 1.50}" };
    let mut made = MadeRows::default();
    operator.setting.send(&record, None, Cause { input: 0, watermark_ms: 5 }, &mut made);
    let (batch, _) = made.finish(&"pairs".into(), None);
    assert_eq!(batch.payload(0), Some(&br#"{"an \"order\"":{"n": 1.50},"right":null}"#[..]));
    assert_eq!(batch.key(0), Some(&br#"["a",7]"#[..]));
}

#[test]
fn the_memory_of_kept_records_is_counted_and_given_back() {
    let mut run = Run::new(join(Within::new(0, 10), "inner"));
    run.apply(&[(false, 1, START_MS), (false, 2, START_MS + 5)], 0, &[NO_TIME; 2]);
    let kept = run.operator.records.get(&entry_key(b"\"1\"\n", JoinSide::Left, 0)).unwrap();
    let (payload, key) = (br#"{"n":0}"#.len() as u64, b"\"1\"\n".len() as u64);
    assert!(crate::state::StateValue::heap_bytes(kept) >= payload + key + 200);
    run.finish();
    assert_eq!((run.operator.records.len(), run.operator.keys()), (0, 0));
}
