//! Alarms over readings that are cut, stored and made anew.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::batch::{Batch, RowTime, SourceBatch};
use crate::document::{BatchSettings, EventTime, JoinSide, Parallelism};
use crate::operator::keyed::KeyedRows;

fn node(config: Value) -> Node {
    Node {
        name: "hot".to_owned(),
        role: Role::Transform,
        kind: ALARM.name.to_owned(),
        keeps_state: true,
        doc: None,
        labels: BTreeMap::new(),
        inputs: Vec::new(),
        config: config.as_object().unwrap().clone(),
        filter: None,
        select: None,
        function: None,
        is_batch_function: false,
        params: BTreeMap::new(),
        key_by: vec!["k".to_owned()],
        window: None,
        aggregates: None,
        triggers: Vec::new(),
        join: None,
        parallelism: Parallelism { min: 1, max: 1 },
        batch: BatchSettings { size: 1, timeout_ms: 0 },
        max_in_flight: 1,
        ack_timeout_ms: 0,
        event_time: EventTime { field: None, max_out_of_orderness_ms: 0, idle_timeout: std::time::Duration::ZERO },
    }
}

fn alarm(config: &Value) -> Alarm {
    Alarm::new(&node(config.clone()), StateMemory::unbounded("hot"), Arc::default()).unwrap()
}

/// A record: key, time and value.
type Reading = (u8, i64, Option<i64>);

fn batch(readings: &[Reading], latest_ms: &mut i64) -> (Batch, KeyedRows) {
    let (mut source, mut rows) = (SourceBatch::default(), KeyedRows::default());
    let mut watermarks = Vec::new();
    for (number, (key, time_ms, value)) in (0..).zip(readings) {
        let payload = value.map_or_else(|| "{}".to_owned(), |value| format!("{{\"v\":{value}}}"));
        source.push(number, None, *time_ms, |out| out.extend_from_slice(payload.as_bytes()));
        rows.push(number as u32, format!("\"{key}\"\n").as_bytes());
        watermarks.push(*latest_ms);
        *latest_ms = (*latest_ms).max(*time_ms);
    }
    let batch = source.finish();
    let timed = batch.with_times(|row| RowTime { time_ms: readings[row].1, watermark_ms: watermarks[row] });
    (timed, rows)
}

/// The events of the readings, cut before these, at some of which the alarm is stored and made anew.
fn events(config: &Value, readings: &[Reading], cuts: &[(usize, bool)]) -> Vec<String> {
    let (mut found, mut latest_ms, mut start) = (Vec::new(), NO_TIME, 0);
    let (mut operator, mut stored) = (alarm(config), BTreeMap::new());
    let mut take = |made: MadeRows| {
        let (batch, _) = made.finish(&"hot".into(), None);
        found.extend((0..batch.len()).map(|row| String::from_utf8(batch.payload(row).unwrap().to_vec()).unwrap()));
    };
    for (end, is_restart) in cuts.iter().copied().chain([(readings.len(), false)]) {
        let (mut timed, mut rows) = batch(&readings[start..end], &mut latest_ms);
        loop {
            let input = KeyedInput { batch: &timed, rows: &rows, inputs: None, now_ms: 0, side: JoinSide::Left };
            let KeyedOutput::Made(made) = operator.apply(&input).unwrap() else { unreachable!() };
            assert_eq!(made.failed, []);
            take(made.rows);
            let Some(rest) = made.rest else { break };
            let mut left = KeyedRows::default();
            rows.iter().filter(|(row, _)| *row >= rest).for_each(|(row, key)| left.push(row - rest, key));
            (timed, rows) = (timed.select(rest..timed.len() as u32), left);
        }
        let mut made = MadeRows::default();
        while !operator.advance(latest_ms, &mut made).unwrap() {
            take(std::mem::take(&mut made));
        }
        take(made);
        start = end;
        if is_restart {
            operator.take_changes(&mut |key, value| match value {
                Some(value) => drop(stored.insert(key.to_vec(), value.to_vec())),
                None => drop(stored.remove(key)),
            });
            operator = alarm(config);
            stored.iter().for_each(|(key, value)| operator.restore(key, value).unwrap());
            let mut made = MadeRows::default();
            assert!(operator.advance(latest_ms, &mut made).unwrap() && made.is_empty(), "nothing is due twice");
        }
    }
    found
}

fn words(events: &[String]) -> Vec<String> {
    let word = |event: &String| {
        let event: Value = serde_json::from_str(event).unwrap();
        format!("{} {}", event["key"].as_str().unwrap(), event["event"].as_str().unwrap())
    };
    events.iter().map(word).collect()
}

#[test]
fn a_silent_key_is_forgotten_with_its_alarm_and_comes_back_as_a_new_one() {
    let config = json!({"raise": "v > 5", "absent_after": "1s", "forget_after": "3s"});
    let readings = [(1, 0, Some(9)), (2, 500, Some(1)), (2, 5_000, Some(1)), (1, 5_500, Some(9))];
    let expected = ["1 raised", "2 absent", "2 forgotten", "1 absent", "1 forgotten", "1 raised"];
    assert_eq!(words(&events(&config, &readings, &[])), expected);
}

#[test]
fn a_record_beyond_the_calendar_and_times_beyond_all_bounds_do_no_harm() {
    let config = json!({"raise": "v > 5", "for": "1s", "absent_after": "366d", "forget_after": "366d"});
    let readings = [(1, i64::MAX, Some(9)), (2, i64::MIN + 1, Some(9)), (1, i64::MAX, Some(1))];
    assert_eq!(words(&events(&config, &readings, &[])).len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn events_do_not_depend_on_how_input_is_cut_or_when_the_alarm_is_stored(
        readings in prop::collection::vec((0..4_u8, 0..3_000_i64, prop::option::of(0..10_i64)), 0..60),
        cuts in prop::collection::vec((0..60_usize, any::<bool>()), 0..12),
        hold in 0..3_u32, clear in 0..3_u32, absent in 0..3_u32, forget in any::<bool>(), is_sorted in any::<bool>(),
    ) {
        let mut config = json!({
            "raise": "v > 5", "clear": "v < 4", "for": format!("{}ms", hold * 200),
            "clear_for": format!("{}ms", clear * 150), "severity": "v / 8",
        });
        if absent > 0 {
            config["absent_after"] = format!("{}ms", absent * 300).into();
        }
        if forget {
            config["forget_after"] = "1s".into();
        }
        let mut readings = readings;
        if is_sorted {
            readings.sort_by_key(|reading| reading.1);
        }
        let mut cuts: Vec<(usize, bool)> = cuts.into_iter().filter(|(at, _)| *at <= readings.len()).collect();
        cuts.sort_unstable();
        let each: Vec<(usize, bool)> = (0..readings.len()).map(|at| (at, false)).collect();
        let whole = events(&config, &readings, &[]);
        prop_assert_eq!(&events(&config, &readings, &each), &whole);
        prop_assert_eq!(&events(&config, &readings, &cuts), &whole);
    }
}
