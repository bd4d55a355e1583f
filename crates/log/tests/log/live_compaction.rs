//! Topics that are compacted by live bytes: segments that mostly live stay as they are, and yet nothing that was deleted
//! comes back, nothing that lives is lost, and readers that go on in time miss no deletion.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use millstream_log::{Error, Files, Log, TopicConfig, UpTo};
use millstream_testkit::conformance::{ReadRecord, read_all};
use millstream_testkit::sim::PowerLoss;
use millstream_types::{Offset, Position, WallClock};
use proptest::prelude::*;

use crate::support::compaction::{Bench, HOUR, compacted, state};
use crate::support::{name, open, partitions};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn by_live_bytes() -> TopicConfig {
    TopicConfig { compaction_live_percent: Some(50), ..compacted() }
}

impl Bench {
    fn has(&self, offset: Offset) -> bool {
        self.partition.read_one(offset, UpTo::Stable).unwrap().is_some()
    }

    /// `true` if the first segment is still the one that was appended to.
    fn has_first_segment(&self) -> bool {
        let dir = Path::new("/data/log/topics").join(self.partition.topic().id.to_string()).join("0");
        self.files.list(&dir).unwrap().contains(&format!("{:020}.segment", 0))
    }

    /// Changes other keys until `reached`. At no moment a reader finds `gone`.
    fn churn_until(&self, what: &str, reached: impl Fn() -> bool) {
        self.until(what, || {
            self.churn(4);
            assert!(!state(&self.read()).contains_key(&b"gone"[..]), "{what}: a deleted key came back");
            reached()
        });
    }

    /// Passes that have time for all they may do.
    fn churn_on(&self) {
        for _ in 0..3 {
            let churned = self.partition.offsets().stable;
            self.churn_until("a further pass", || !self.has(churned));
        }
    }

    /// The same partition after a loss of power.
    fn crashed(self, loss: PowerLoss, seed: u64) -> Self {
        let files = self.files.crash(seed, loss);
        drop(self.log.close());
        let log = open(&files, &self.clock).unwrap();
        let partition = partitions(&log, "t").swap_remove(0);
        Self { files, log, partition, ..self }
    }

    fn alter(&self, compaction_live_percent: Option<u8>) {
        let config = TopicConfig { compaction_live_percent, ..TopicConfig::clone(&self.partition.topic().config) };
        self.log.alter_topic(&name("t"), &config).unwrap();
    }
}

#[test]
fn a_segment_is_rewritten_once_less_than_the_share_of_its_bytes_lives() {
    let bench = Bench::new(by_live_bytes());
    let image = "i".repeat(1_300);
    bench.put("image", Some(&image));
    let counters: Vec<_> = (0..4).map(|_| bench.put("counter", Some("superseded soon")).first).collect();
    bench.churn(40);
    bench.churn_on();
    bench.until("segments of dead records are rewritten", || bench.read().len() < 60);
    assert!(bench.has_first_segment() && bench.has(counters[0]), "this one lives by four fifths");
    let kept = state(&bench.read());
    assert_eq!((kept.len(), kept[&b"image"[..]].len()), (7, image.len()));

    bench.put("image", Some("smaller"));
    bench.churn_until("the segment is rewritten", || !bench.has_first_segment());
    assert!(!bench.has(Offset(0)) && !bench.has(counters[0]) && bench.has(counters[3]));
    assert_eq!(state(&bench.read())[&b"image"[..]], b"smaller");
    bench.log.close().unwrap();
}

#[test]
fn a_tombstone_stays_while_a_segment_that_lives_on_holds_a_record_of_its_key() {
    let mut bench = Bench::new(by_live_bytes());
    bench.put("image", Some(&"i".repeat(1_300)));
    let value = bench.put("gone", Some("value")).first;
    bench.churn(4);
    let before = bench.put("other", Some("value"));
    let behind = Position { topic: bench.partition.topic().id, epoch: before.epoch, offset: before.last };
    let tombstone = bench.put("gone", None).first;
    for _ in 0..3 {
        bench.churn_on();
        bench.clock.advance(2 * HOUR);
        bench.churn_on();
        assert!(bench.has(value), "its segment lives by four fifths");
        assert!(bench.has(tombstone), "a tombstone is gone before the record that it hides");
        // After a start, passes find again what is superseded.
        bench = bench.crashed(PowerLoss::DropAll, 1);
    }
    bench.put("image", Some("smaller"));
    bench.churn_until("the value goes", || !bench.has(value));
    bench.churn_on();
    assert!(bench.has(tombstone), "a tombstone is gone although a reader may just have seen the value");
    bench = bench.crashed(PowerLoss::DropAll, 2);
    bench.churn_on();
    assert!(bench.has(tombstone), "its age began anew, also for the next start");
    assert_eq!(bench.partition.resume(behind).unwrap(), before.last);

    bench.clock.advance(2 * HOUR);
    bench.churn_until("the tombstone goes", || !bench.has(tombstone));
    assert!(matches!(bench.partition.resume(behind), Err(Error::PositionLost { .. })));
    bench.log.close().unwrap();
}

#[test]
fn a_topic_that_is_compacted_by_live_bytes_no_more_loses_what_was_left() {
    let bench = Bench::new(by_live_bytes());
    bench.put("image", Some(&"i".repeat(1_300)));
    let value = bench.put("gone", Some("value")).first;
    bench.churn(4);
    let tombstone = bench.put("gone", None).first;
    bench.churn_on();
    bench.clock.advance(2 * HOUR);
    bench.churn_on();
    assert!(bench.has(value));
    bench.alter(None);
    bench.churn_until("the value goes", || !bench.has(value));
    assert!(bench.has(tombstone), "both go at once");
    bench.alter(Some(50));
    bench.churn_on();
    assert!(bench.has(tombstone));
    bench.clock.advance(2 * HOUR);
    bench.churn_until("the tombstone goes", || !bench.has(tombstone));
    assert_eq!(state(&bench.read()).len(), 6);
    bench.log.close().unwrap();
}

#[test]
fn passes_that_leave_dead_records_come_to_rest() {
    let bench = Bench::new(by_live_bytes());
    bench.put("image", Some(&"i".repeat(1_300)));
    for _ in 0..4 {
        bench.put("counter", Some("superseded soon"));
    }
    bench.churn(40);
    bench.until("few records", || bench.read().len() < 60);
    let rests = || {
        let before = bench.files.bytes_read();
        (0..1_000).for_each(|_| bench.log.flush().unwrap());
        bench.files.bytes_read() == before
    };
    assert!((0..10).any(|_| rests()), "passes do not come to rest");
    bench.log.close().unwrap();
}

/// A reader without a hold that has stopped somewhere.
struct SlowReader {
    state: State,
    next: Offset,
    began_ms: i64,
}

fn apply(to: &mut State, records: &[ReadRecord]) {
    for record in records {
        match &record.value {
            Some(value) => drop(to.insert(record.key.clone().unwrap(), value.clone())),
            None => drop(to.remove(record.key.as_ref().unwrap())),
        }
    }
}

impl SlowReader {
    fn begin(bench: &Bench, percent: usize) -> Self {
        let all = bench.read();
        let seen = &all[..all.len() * percent / 100];
        let next = seen.last().map_or(bench.partition.offsets().first, |last| last.offset.next());
        let mut state = State::new();
        apply(&mut state, seen);
        Self { state, next, began_ms: bench.clock.now_ms() }
    }

    /// Reads the rest; the state that it ends up with, unless it took so long that it may have missed a deletion.
    fn end(mut self, bench: &Bench) -> Option<State> {
        let rest = read_all(&*bench.partition, self.next, UpTo::Stable).unwrap();
        apply(&mut self.state, &rest);
        (bench.clock.now_ms() == self.began_ms).then_some(self.state)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, Option<usize>),
    Flush,
    Advance,
    Alter(Option<u8>),
    /// The power goes after so many changes to the disk, at the latest after some turns of the writeback thread.
    Crash(u64, PowerLoss),
    BeginReading(usize),
    EndReading,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![4 => 0_usize..40, 1 => 600_usize..1_400];
    let percent = prop_oneof![1 => Just(None), 3 => (1_u8..=100).prop_map(Some)];
    let loss = prop_oneof![Just(PowerLoss::DropAll), Just(PowerLoss::Torn)];
    let step = prop_oneof![
        30 => (0_u8..14, prop::option::weighted(0.7, length)).prop_map(|(key, value)| Step::Put(key, value)),
        8 => Just(Step::Flush),
        4 => Just(Step::Advance),
        1 => percent.prop_map(Step::Alter),
        1 => (1_u64..60, loss).prop_map(|(changes, loss)| Step::Crash(changes, loss)),
        3 => (0_usize..100).prop_map(Step::BeginReading),
        3 => Just(Step::EndReading),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn nothing_deleted_comes_back_and_nothing_live_is_lost_over_crashes(steps in steps(), seed in any::<u64>()) {
        let delete_retention = Duration::from_secs(20);
        let mut bench = Bench::new(TopicConfig { delete_retention, ..by_live_bytes() });
        let (mut model, mut reader) = (State::new(), None);
        for (number, step) in (0_u64..).zip(steps) {
            match step {
                Step::Put(key, length) => {
                    let key = key.to_string();
                    let value = length.map(|length| format!("{number} {}", "x".repeat(length)));
                    bench.put(&key, value.as_deref());
                    match value {
                        Some(value) => drop(model.insert(key.into_bytes(), value.into_bytes())),
                        None => drop(model.remove(key.as_bytes())),
                    }
                }
                Step::Flush => bench.log.flush().unwrap(),
                Step::Advance => bench.clock.advance(Duration::from_secs(3)),
                Step::Alter(percent) => bench.alter(percent),
                Step::Crash(changes, loss) => {
                    bench.files.crash_after(changes);
                    (0..20).take_while(|_| bench.log.flush().is_ok()).for_each(drop);
                    bench = bench.crashed(loss, seed ^ number);
                    prop_assert_eq!(&state(&bench.read()), &model, "after a crash");
                }
                Step::BeginReading(percent) => reader = Some(SlowReader::begin(&bench, percent)),
                Step::EndReading => {
                    if let Some(found) = reader.take().and_then(|reader: SlowReader| reader.end(&bench)) {
                        prop_assert_eq!(&found, &model, "by a slow reader");
                    }
                    prop_assert_eq!(&state(&bench.read()), &model);
                }
            }
        }
        bench = bench.crashed(PowerLoss::DropAll, seed);
        prop_assert_eq!(&state(&bench.read()), &model);
        bench.log.close().unwrap();
    }
}
