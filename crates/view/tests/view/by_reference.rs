//! A view whose values stay in the log, against a plain map: conditions, restarts, lost checkpoints, refused commands.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use millstream_log::{Log, LogConfig, SystemFiles, UpTo};
use millstream_testkit::{MemoryLog, TestLog};
use millstream_types::{BatchLimits, Offset, PartitionId, RecordView, SystemClock, TopicName, TopicPartition};
use millstream_view::{
    ByReference, Checkpoints, DecodeError, Draft, Encoded, Error, Headers, Referenced, Shards, View, ViewRuntime,
    Views, ViewsConfig,
};
use parking_lot::RwLock;
use proptest::prelude::*;

/// Keys with values of any size; a write may depend on the version.
struct Vault;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    label: String,
}

/// The place of a value in the log, and its label.
type Entry = (Offset, String);

/// The keys whose values are in the log, and the changes that are on their way there.
#[derive(Clone, Default)]
struct Index {
    landed: Arc<RwLock<HashMap<Vec<u8>, Entry>>>,
    /// The newest change of a key, and the number of its changes.
    in_flight: imbl::HashMap<Vec<u8>, (bool, usize)>,
}

enum Command {
    Put {
        key: Vec<u8>,
        value: Option<Vec<u8>>,
        label: String,
    },
    /// Writes only if the key is not there.
    Create {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// Changes a key, then panics.
    Break {
        key: Vec<u8>,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The offset, or at first the distance from the first record of the append.
    Written(Offset),
    Exists,
}

impl View for Vault {
    type State = Index;
    type Storage = ByReference;
    type Change = Change;
    type Command = Command;
    type Answer = Answer;
    const NAME: &'static str = "vault";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: Command) -> Answer {
        let change = match command {
            Command::Put { key, value, label } => Change { key, value, label },
            Command::Create { key, .. } if draft.state().contains(&key) => return Answer::Exists,
            Command::Create { key, value } => Change { key, value: Some(value), label: String::new() },
            Command::Break { key } => {
                draft.change(Change { key, value: None, label: String::new() });
                panic!("broken on purpose")
            }
        };
        let place = draft.next_record();
        draft.change(change);
        Answer::Written(Offset(place as u64))
    }

    fn landed(&self, answer: &mut Answer, first: Option<Offset>) {
        if let (Answer::Written(place), Some(first)) = (answer, first) {
            *place = Offset(first.0 + place.0);
        }
    }

    fn apply(state: &mut Index, change: &Change) {
        let before = state.in_flight.get(&change.key).map_or(0, |(_, count)| *count);
        state.in_flight.insert(change.key.clone(), (change.value.is_some(), before + 1));
    }

    fn encode(change: &Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        key.extend_from_slice(&change.key);
        let Some(bytes) = &change.value else { return Encoded::Tombstone };
        value.extend_from_slice(bytes);
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Change, DecodeError> {
        Ok(Change { key: key.to_vec(), value: value.map(<[u8]>::to_vec), label: String::new() })
    }
}

impl Referenced for Vault {
    fn headers(change: &Change) -> Headers {
        if change.label.is_empty() {
            return Headers::new();
        }
        vec![(Cow::Borrowed("label"), change.label.clone().into_bytes())]
    }

    fn with_headers(mut change: Change, record: &RecordView<'_>) -> Result<Change, DecodeError> {
        for header in record.headers() {
            change.label = String::from_utf8_lossy(header.value.unwrap_or_default()).into_owned();
        }
        Ok(change)
    }

    fn land(state: &mut Index, change: &Change, offset: Offset) {
        match change.value {
            Some(_) => drop(state.landed.write().insert(change.key.clone(), (offset, change.label.clone()))),
            None => drop(state.landed.write().remove(&change.key)),
        }
        match state.in_flight.get_mut(&change.key) {
            Some((_, count)) if *count > 1 => *count -= 1,
            _ => drop(state.in_flight.remove(&change.key)),
        }
    }

    fn entry(change: &Change, offset: Offset) -> Option<Vec<u8>> {
        change.value.as_ref().map(|_| [&offset.0.to_be_bytes(), change.label.as_bytes()].concat())
    }

    fn key(change: &Change) -> &[u8] {
        &change.key
    }

    fn restore(state: &mut Index, key: &[u8], entry: &[u8]) -> Result<(), DecodeError> {
        let (offset, label) = entry.split_first_chunk().ok_or_else(|| DecodeError::new("a short entry"))?;
        let label = String::from_utf8_lossy(label).into_owned();
        state.landed.write().insert(key.to_vec(), (Offset(u64::from_be_bytes(*offset)), label));
        Ok(())
    }
}

impl Index {
    fn contains(&self, key: &[u8]) -> bool {
        self.in_flight.get(key).map_or_else(|| self.landed.read().contains_key(key), |(is_there, _)| *is_there)
    }
}

/// A process with a vault of two partitions.
struct World {
    log: Arc<dyn Log>,
    /// `None` over a log in memory.
    engine: Option<TestLog>,
    ground: ViewRuntime,
    vault: Arc<Views<Vault>>,
}

fn topic() -> TopicName {
    TopicName::internal("_millstream-vault")
}

impl World {
    fn open(dir: &Path) -> Self {
        let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let engine = TestLog::open(config, Arc::new(SystemFiles)).unwrap();
        let log = engine.log();
        Self { engine: Some(engine), ..Self::over(log, dir) }
    }

    /// The view over a log that nobody opens again, its checkpoint in `dir`.
    fn over(log: Arc<dyn Log>, dir: &Path) -> Self {
        let ground = ViewRuntime {
            log: log.clone(),
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(1).unwrap(),
            wall: Arc::new(SystemClock::default()),
        };
        let config = ViewsConfig { partitions: 2, ..ViewsConfig::default() };
        let vault = Views::open(Vault, &topic(), &config, &ground).unwrap();
        Self { log, engine: None, ground, vault }
    }

    fn close(self) {
        self.vault.stop();
        drop(self.vault);
        self.engine.map_or(Ok(()), |engine| engine.close()).unwrap();
        self.ground.shards.join();
    }

    fn submit(&self, command: Command) -> millstream_view::Answer<Vault> {
        let (Command::Put { key, .. } | Command::Create { key, .. } | Command::Break { key }) = &command;
        let owner = self.vault.partition_of(key);
        self.vault.submit(owner, command).unwrap()
    }

    /// Every key with its value and label, each read where the index says that it is.
    fn read(&self) -> BTreeMap<Vec<u8>, (Vec<u8>, String)> {
        let mut all = BTreeMap::new();
        for number in 0..2 {
            let partition = self.log.partition(&TopicPartition::new(topic(), number)).unwrap();
            let state = &self.vault.snapshot(PartitionId(number)).state;
            for (key, (offset, label)) in state.landed.read().iter() {
                let batches = partition.read(*offset, 1, UpTo::Stable).unwrap();
                let batch = batches[0].inflated(&BatchLimits::default()).unwrap();
                let found = batch.records().map(Result::unwrap).find(|record| record.offset == *offset).unwrap();
                assert_eq!(found.key, Some(&key[..]));
                all.insert(key.clone(), (found.value.unwrap().to_vec(), label.clone()));
            }
        }
        all
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, Option<u8>),
    Create(u8, u8),
    Break(u8),
    Restart,
    LoseCheckpoint,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..6_u8, proptest::option::weighted(0.8, any::<u8>())).prop_map(|(key, value)| Step::Put(key, value)),
        8 => (0..6_u8, any::<u8>()).prop_map(|(key, value)| Step::Create(key, value)),
        1 => (0..6_u8).prop_map(Step::Break),
        1 => Just(Step::Restart),
        1 => Just(Step::LoseCheckpoint),
    ]
}

fn key(number: u8) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn a_view_by_reference_equals_a_map_over_restarts(steps in proptest::collection::vec(step(), 1..50)) {
        let dir = tempfile::tempdir().unwrap();
        let mut world = World::open(dir.path());
        let mut model: BTreeMap<Vec<u8>, (Vec<u8>, String)> = BTreeMap::new();
        // Answers are awaited at the end of a life, so that many commands share an append.
        let mut expected = Vec::new();
        let settle = |expected: &mut Vec<(millstream_view::Answer<Vault>, Option<bool>)>| {
            for (answer, is_written) in expected.drain(..) {
                match (answer.blocking_recv().unwrap(), is_written) {
                    (Ok(Answer::Written(_)), Some(true)) | (Ok(Answer::Exists), Some(false)) => {}
                    (Err(Error::Panicked { .. }), None) => {}
                    (answer, is_written) => panic!("{answer:?}, expected {is_written:?}"),
                }
            }
        };
        for step in steps {
            match step {
                Step::Put(number, value) => {
                    let (value, label) = (value.map(|byte| vec![byte; 300]), format!("label {number}"));
                    let command = Command::Put { key: key(number), value: value.clone(), label: label.clone() };
                    expected.push((world.submit(command), Some(true)));
                    match value {
                        Some(value) => drop(model.insert(key(number), (value, label))),
                        None => drop(model.remove(&key(number))),
                    }
                }
                Step::Create(number, value) => {
                    let value = vec![value; 3];
                    let command = Command::Create { key: key(number), value: value.clone() };
                    let is_new = !model.contains_key(&key(number));
                    expected.push((world.submit(command), Some(is_new)));
                    if is_new {
                        model.insert(key(number), (value, String::new()));
                    }
                }
                Step::Break(number) => expected.push((world.submit(Command::Break { key: key(number) }), None)),
                Step::Restart | Step::LoseCheckpoint => {
                    settle(&mut expected);
                    prop_assert_eq!(world.read(), model.clone());
                    world.close();
                    if matches!(step, Step::LoseCheckpoint) {
                        std::fs::remove_dir_all(dir.path().join("views")).unwrap();
                    }
                    world = World::open(dir.path());
                    prop_assert_eq!(world.read(), model.clone());
                }
            }
        }
        settle(&mut expected);
        prop_assert_eq!(world.read(), model);
        for number in 0..2 {
            let landed = world.vault.snapshot(PartitionId(number));
            prop_assert!(landed.state.in_flight.is_empty(), "nothing is in flight for readers");
        }
        world.close();
    }
}

#[test]
fn an_answer_names_the_offset_of_its_change() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::over(MemoryLog::open(Arc::new(SystemClock::default())), dir.path());
    let answers: Vec<_> = (0..20).map(|value| world.submit(put(value))).collect();
    assert_eq!(answers.into_iter().map(offset).collect::<Vec<_>>(), (0..20).collect::<Vec<u64>>());
    world.close();
}

fn put(value: u8) -> Command {
    Command::Put { key: key(1), value: Some(vec![value]), label: format!("label {value}") }
}

fn offset(answer: millstream_view::Answer<Vault>) -> u64 {
    match answer.blocking_recv().unwrap().unwrap() {
        Answer::Written(offset) => offset.0,
        Answer::Exists => panic!("every put writes"),
    }
}

#[test]
fn a_change_of_unknown_outcome_is_where_its_answer_says() {
    for stored in [true, false] {
        let (dir, log) = (tempfile::tempdir().unwrap(), MemoryLog::open(Arc::new(SystemClock::default())));
        let world = World::over(log.clone(), dir.path());
        let partition = TopicPartition { topic: topic(), partition: world.vault.partition_of(&key(1)) };
        for value in 0..5 {
            log.lose_next_answer(&format!("view/{partition}"), stored);
            assert_eq!(offset(world.submit(put(value))), u64::from(value), "{stored}");
            assert_eq!(world.read(), [(key(1), (vec![value], format!("label {value}")))].into(), "{stored}");
        }
        assert_eq!(world.log.partition(&partition).unwrap().offsets().tail, Offset(5));
        world.close();
    }
}

#[test]
fn a_stopped_view_lets_go_of_the_checkpoint_store() {
    let dir = tempfile::tempdir().unwrap();
    let log: Arc<dyn Log> = MemoryLog::open(Arc::new(SystemClock::default()));
    let World { ground: ViewRuntime { checkpoints, shards, .. }, vault, .. } = World::over(log, dir.path());
    vault.stop();
    drop(checkpoints);
    Checkpoints::open(&dir.path().join("views")).unwrap();
    assert!(matches!(vault.list(PartitionId(0), b"", |_, _| ControlFlow::Continue(())), Err(Error::Stopped)));
    drop(vault);
    shards.join();
}
