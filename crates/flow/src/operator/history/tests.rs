//! Maps that look back over readings that are cut, stored and read again.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::batch::{RowTime, SourceBatch};
use crate::document::{Document, DocumentContext, JoinSide};
use crate::expression::KeyExpressions;
use crate::function::Functions;
use crate::operator::{KeyedNode, Operator, Output, keyed};

/// A map by the key `k`.
struct Steps {
    node: Node,
    operator: Operator,
    key: KeyExpressions,
    keyed: KeyedNode,
    stored: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Steps {
    fn new(select: &str, config: Value) -> Self {
        let document = json!({
            "version": 1, "kind": "Job", "name": "steps",
            "sources": {"in": {"type": "list", "config": {"records": []}}},
            "transforms": {
                "steps": {"type": "map", "inputs": ["in"], "key_by": "k", "select": select, "config": config},
            },
            "sinks": {"out": {"type": "blackhole", "inputs": ["steps"]}},
        });
        let context = DocumentContext { catalogue: crate::catalogue(), ..DocumentContext::default() };
        let document = Document::read(&document.to_string(), &context).unwrap();
        let node = document.nodes.into_iter().find(|node| node.name == "steps").unwrap();
        let operator = Operator::compile(&node, &Functions::default()).unwrap();
        let key = KeyExpressions::parse(&node.key_by, &node.params).unwrap();
        Self { keyed: new_keyed(&node), node, operator, key, stored: BTreeMap::new() }
    }

    fn apply(&mut self, batch: &Batch) -> Output {
        self.operator.apply(batch, 0, None, Some((&self.key, &mut self.keyed)), 0).unwrap()
    }

    fn advance(&mut self, time_ms: i64) {
        let mut made = MadeRows::default();
        assert!(self.keyed.operator.advance(time_ms, &mut made).unwrap() && made.is_empty());
    }

    fn restart(&mut self) {
        let stored = &mut self.stored;
        self.keyed.operator.take_changes(&mut |key, value| match value {
            Some(value) => drop(stored.insert(key.to_vec(), value.to_vec())),
            None => drop(stored.remove(key)),
        });
        self.keyed = new_keyed(&self.node);
        stored.iter().for_each(|(key, value)| self.keyed.operator.restore(key, value).unwrap());
    }
}

fn new_keyed(node: &Node) -> KeyedNode {
    keyed(node, StateMemory::unbounded("steps"), &Arc::default()).unwrap().unwrap()
}

fn texts(batch: &Batch) -> Vec<String> {
    let text = |row| batch.payload(row).map_or("nothing".to_owned(), |payload| String::from_utf8_lossy(payload).into());
    (0..batch.len()).map(text).collect()
}

/// A batch of payloads, all at one time.
fn batch_of(payloads: &[&str]) -> Batch {
    let mut source = SourceBatch::default();
    for (number, payload) in (0..).zip(payloads) {
        source.push(number, None, 0, |out| out.extend_from_slice(payload.as_bytes()));
    }
    source.finish_unchecked()
}

#[test]
fn results_are_members_of_the_select_list_and_no_others_pass() {
    let mut steps = Steps::new("*, v - LAG(v) AS step, LAG(v), LAG(v) AS again", json!({}));
    let output = steps.apply(&batch_of(&[r#"{"k":1,"v":3}"#, r#"{"k":2,"v":5}"#, r#"{"k":1,"v":9,"step":0}"#]));
    let expected = [
        r#"{"k":1,"v":3,"step":null,"LAG(v)":null,"again":null}"#,
        r#"{"k":2,"v":5,"step":null,"LAG(v)":null,"again":null}"#,
        r#"{"k":1,"v":9,"step":6,"LAG(v)":3,"again":3}"#,
    ];
    assert_eq!(texts(&output.batch), expected);
    let mut steps = Steps::new("LAG(o)['a'] + 1 AS a, CHANGED(v) AND v > 1 AS b", json!({}));
    let output = steps.apply(&batch_of(&[r#"{"o":{"a":1},"v":1}"#, r#"{"o":null,"v":2}"#, r#"{"v":2}"#]));
    assert_eq!(texts(&output.batch), [r#"{"a":null,"b":false}"#, r#"{"a":2,"b":true}"#, r#"{"a":null,"b":false}"#]);
}

#[test]
fn a_record_whose_argument_fails_is_none_of_its_key_and_one_without_a_value_stays_one() {
    let mut steps = Steps::new("v, LAG(10 / v) AS before, RUNNING_COUNT(k) AS n", json!({}));
    let batch = batch_of(&[r#"{"k":1,"v":5}"#, r#"{"k":1,"v":0}"#, "no object", r#"{"k":1,"v":1}"#]);
    let output = steps.apply(&batch);
    let expected = [r#"{"v":5,"before":null,"n":1}"#, r#"{"v":1,"before":2,"n":2}"#];
    assert_eq!((texts(&output.batch), &output.inputs), (expected.map(str::to_owned).to_vec(), &Some(vec![0, 3])));
    let failed: Vec<_> = output.failed.iter().map(|error| (error.row, error.code, error.message.as_str())).collect();
    let divided = "'LAG(10 / v)' has no value: it divides by zero; v is 0";
    assert_eq!(failed[1], (1, "division_by_zero", divided));
    assert_eq!((failed.len(), failed[0].0, failed[0].1), (2, 2, "invalid_json"));

    let mut with_null = batch_of(&[r#"{"v":5}"#, "{}", r#"{"v":6}"#]).rewrite();
    for (row, text) in [Some(r#"{"v":5}"#), None, Some(r#"{"v":6}"#)].into_iter().enumerate() {
        match text {
            Some(text) => with_null
                .push(row, |out| serde_json::from_str::<Value>(text).map(|_| out.extend(text.bytes())))
                .unwrap(),
            None => with_null.push_null(row),
        }
    }
    let output = Steps::new("*, LAG(v) AS before", json!({})).apply(&with_null.finish());
    assert_eq!(output.failed, []);
    assert_eq!(texts(&output.batch), [r#"{"v":5,"before":null}"#, "nothing", r#"{"v":6,"before":5}"#]);
}

#[test]
fn values_keep_their_digits_and_errors_name_the_earlier_value() {
    let mut steps = Steps::new("LAG(v) AS before, CHANGED(v) AS is_new", json!({}));
    let batch = batch_of(&[r#"{"v":18446744073709551615}"#, r#"{"v":18446744073709551614}"#, r#"{"v":1.50}"#, "{}"]);
    let expected = [
        r#"{"before":null,"is_new":true}"#,
        r#"{"before":18446744073709551615,"is_new":true}"#,
        r#"{"before":18446744073709551614,"is_new":true}"#,
        r#"{"before":1.5,"is_new":true}"#,
    ];
    assert_eq!(texts(&steps.apply(&batch).batch), expected);
    let output = Steps::new("v - LAG(v) AS step", json!({})).apply(&batch_of(&[r#"{"v":"x"}"#, r#"{"v":1}"#]));
    let message = "'v - LAG(v)' has no value: it calculates with a value that is no number; CAST it, or test it with \
                   TYPEOF; v is 1; LAG(v) is \"x\"";
    assert_eq!(output.failed.last().unwrap().message, message);
}

#[test]
fn large_texts_end_a_part_and_the_rest_goes_on() {
    let large = format!(r#"{{"v":"{}"}}"#, "x".repeat(300_000));
    let mut payloads = vec![large.as_str()];
    payloads.resize(12, r#"{"v":"a"}"#);
    let (batch, mut steps) = (batch_of(&payloads), Steps::new("RUNNING_COUNT(v) AS n, RUNNING_MAX(v) AS x", json!({})));
    let (mut start, mut parts, mut seen) = (0, 0, Vec::new());
    loop {
        let output = steps.apply(&batch.select(start..batch.len() as u32));
        seen.extend(texts(&output.batch).iter().map(|text| text[..text.find(',').unwrap()].to_owned()));
        parts += 1;
        let Some(rest) = output.rest else { break };
        start += rest.row;
    }
    assert_eq!(seen, (1..=12).map(|n| format!("{{\"n\":{n}")).collect::<Vec<_>>());
    assert_eq!(parts, 3);
    let inputs = [0, 0, 1, 1];
    let input =
        KeyedInput { batch: &batch, rows: &Default::default(), inputs: Some(&inputs), now_ms: 0, side: JoinSide::Left };
    assert_eq!([0, 1, 2, 3].map(|row| input.may_begin(row)), [true, false, true, false]);
}

#[test]
fn forgotten_keys_leave_no_memory_and_a_stored_value_of_other_calls_is_refused() {
    let mut steps = Steps::new("LAG(v) AS before", json!({"ttl": "1s"}));
    let mut latest_ms = NO_TIME;
    let timed = timed(&[(1, 0, Some(1)), (2, 500, Some(1)), (1, 900, Some(2))], &mut latest_ms);
    steps.apply(&timed);
    assert_eq!((steps.keyed.operator.keys(), steps.keyed.operator.next_time_ms()), (2, Some(1_000)));
    steps.advance(1_499);
    assert_eq!((steps.keyed.operator.keys(), steps.keyed.operator.next_time_ms()), (2, Some(1_500)));
    steps.restart();
    steps.advance(1_500);
    assert_eq!((steps.keyed.operator.keys(), steps.keyed.operator.next_time_ms()), (1, Some(1_900)));
    steps.advance(1_900);
    assert_eq!((steps.keyed.operator.keys(), steps.keyed.operator.next_time_ms()), (0, None));
    steps.restart();
    assert_eq!(steps.stored, BTreeMap::new());

    let mut other = Steps::new("CHANGED(v) AS is_new", json!({}));
    other.apply(&batch_of(&["{}"]));
    let mut count = 0;
    other.keyed.operator.take_changes(&mut |key, value| {
        count += 1;
        let refused = steps.keyed.operator.restore(key, value.unwrap()).unwrap_err().to_string();
        assert!(refused.contains("steps") && refused.contains("a stored value cannot be read"), "{refused}");
    });
    assert_eq!(count, 1);
}

#[test]
fn the_state_of_a_key_is_stored_byte_for_byte() {
    let mut steps = Steps::new("LAG(v) AS before, CHANGED(v) AS is_new", json!({}));
    steps.apply(&timed(&[(1, 0x0102, Some(7))], &mut 0));
    steps.restart();
    let expected = b"\0\0\0\0\0\0\x01\x02\x00\x01\x01\x03\0\0\0\0\0\0\0\x07\x01\x01\x03\0\0\0\0\0\0\0\x07".to_vec();
    assert_eq!(steps.stored, BTreeMap::from([(b"1\n".to_vec(), expected)]));
}

/// A record: key, time and value.
type Reading = (u8, i64, Option<i64>);

/// A batch of readings behind others, of which the latest has this time.
fn timed(readings: &[Reading], latest_ms: &mut i64) -> Batch {
    let (mut source, mut watermarks) = (SourceBatch::default(), Vec::new());
    for (number, (key, time_ms, value)) in (0..).zip(readings) {
        let payload = json!({"k": key, "t": time_ms, "v": value}).to_string();
        source.push(number, None, *time_ms, |out| out.extend_from_slice(payload.as_bytes()));
        watermarks.push(*latest_ms);
        *latest_ms = (*latest_ms).max(*time_ms);
    }
    source.finish().with_times(|row| RowTime { time_ms: readings[row].1, watermark_ms: watermarks[row] })
}

const SELECT: &str = "LAG(v) AS a, LAG(v, 3) AS b, CHANGED(v) AS c, SINCE_CHANGE(v) AS d, RUNNING_COUNT(v) AS e, \
                      RUNNING_SUM(v) AS f, RUNNING_MIN(v) AS g, RUNNING_MAX(v) AS h";

/// The results of the readings, cut before these, at some of which the state is stored and read again.
fn results(config: &Value, readings: &[Reading], cuts: &[(usize, bool)]) -> Vec<String> {
    let (mut steps, mut found, mut latest_ms, mut start) = (Steps::new(SELECT, config.clone()), Vec::new(), NO_TIME, 0);
    for (end, is_restart) in cuts.iter().copied().chain([(readings.len(), false)]) {
        let output = steps.apply(&timed(&readings[start..end], &mut latest_ms));
        assert_eq!((&output.failed, output.rest.is_none()), (&Vec::new(), true));
        found.extend(texts(&output.batch));
        steps.advance(latest_ms);
        start = end;
        if is_restart {
            steps.restart();
        }
    }
    found
}

/// The same, found anew for each reading from all that came before it.
fn expected(ttl_ms: Option<i64>, readings: &[Reading]) -> Vec<String> {
    let mut of_key: BTreeMap<u8, Vec<(i64, Option<i64>)>> = BTreeMap::new();
    let mut watermark_ms = NO_TIME;
    let mut result = |(key, time_ms, value): &Reading| {
        let seen = of_key.entry(*key).or_default();
        let last_ms = seen.iter().map(|(time_ms, _)| *time_ms).max();
        let reached_ms = watermark_ms.max(*time_ms);
        if last_ms.zip(ttl_ms).is_some_and(|(last_ms, ttl_ms)| reached_ms - last_ms >= ttl_ms) {
            seen.clear();
        }
        watermark_ms = watermark_ms.max(*time_ms);
        seen.push((*time_ms, *value));
        let back = |n: usize| seen.len().checked_sub(n + 1).and_then(|at| seen[at].1);
        let before = seen.len().checked_sub(2).map(|at| seen[at].1);
        let same = seen.iter().rev().take_while(|(_, other)| other == value).last().unwrap();
        let numbers = || seen.iter().filter_map(|(_, value)| *value);
        let count = numbers().count();
        let sum = (count > 0).then(|| numbers().sum::<i64>());
        json!({
            "a": back(1), "b": back(3), "c": before != Some(*value), "d": (time_ms - same.0).max(0), "e": count,
            "f": sum, "g": numbers().min(), "h": numbers().max(),
        })
    };
    readings.iter().map(|reading| result(reading).to_string()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn results_are_those_of_all_earlier_records_however_input_is_cut_and_stored(
        readings in prop::collection::vec((0..3_u8, 0..3_000_i64, prop::option::of(0..4_i64)), 0..60),
        cuts in prop::collection::vec((0..60_usize, any::<bool>()), 0..12),
        ttl in 0..4_i64, is_sorted in any::<bool>(),
    ) {
        let ttl_ms = (ttl > 0).then_some(ttl * 150);
        let config = ttl_ms.map_or_else(|| json!({}), |ttl_ms| json!({"ttl": format!("{ttl_ms}ms")}));
        let mut readings = readings;
        if is_sorted {
            readings.sort_by_key(|reading| reading.1);
        }
        let mut cuts: Vec<(usize, bool)> = cuts.into_iter().filter(|(at, _)| *at <= readings.len()).collect();
        cuts.sort_unstable();
        let expected = expected(ttl_ms, &readings);
        prop_assert_eq!(&results(&config, &readings, &[]), &expected);
        prop_assert_eq!(&results(&config, &readings, &cuts), &expected);
        for size in [1, 2, 7] {
            let each: Vec<(usize, bool)> = (0..readings.len()).step_by(size).map(|at| (at, at % 2 == 0)).collect();
            prop_assert_eq!(&results(&config, &readings, &each), &expected);
        }
    }
}
