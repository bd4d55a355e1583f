//! A small view for the tests: a shelf of counters, with everything that a plane does to its state.

use std::path::Path;
use std::sync::Arc;

use millstream_log::{Embedded, Error as LogError, Files, Log, LogConfig, SystemFiles, Topic};
use millstream_testkit::{MemoryLog, TestLog};
use millstream_types::{Offset, PartitionId, SystemClock, TenantId, TopicKind, TopicName, TopicPartition, WallClock};
use millstream_view::{
    Checkpoints, DecodeError, Draft, Encoded, Error, Follow, InState, Publish, Shards, Slots, SourcePartition,
    SourceRecord, View, ViewRuntime, Views, ViewsConfig,
};
use parking_lot::Mutex;

/// Counts pieces per name; every change is told to the topic `moves`.
pub(crate) struct Shelf {
    pub(crate) moves: Option<TopicName>,
    /// The changes that have become durable.
    heard: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug)]
pub(crate) enum Command {
    Add {
        name: String,
        pieces: i64,
    },
    /// Sets the count only if it is `expected`.
    Swap {
        name: String,
        expected: i64,
        pieces: i64,
    },
    Remove {
        name: String,
    },
    /// Adds one piece of each.
    Stock {
        names: Vec<String>,
    },
    /// Tells `moves` of it and changes nothing.
    Tell {
        name: String,
    },
    /// A mistake in the program: changes something, then panics.
    Break {
        name: String,
    },
    /// Adds what records of another topic ask for.
    Derived {
        source: SourcePartition,
        next: Offset,
        items: Vec<(Offset, (String, i64))>,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Now(i64),
    Refused { actual: i64 },
    Gone,
}

pub(crate) struct Change {
    name: String,
    pieces: Option<i64>,
}

impl View for Shelf {
    type State = imbl::OrdMap<String, i64>;
    type Storage = InState;
    type Change = Change;
    type Command = Command;
    type Answer = Answer;
    const NAME: &'static str = "shelf";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: Command) -> Answer {
        match command {
            Command::Add { name, pieces } => {
                let pieces = draft.state().get(&name).copied().unwrap_or_default() + pieces;
                self.set(draft, name, pieces)
            }
            Command::Swap { name, expected, pieces } => {
                let actual = draft.state().get(&name).copied().unwrap_or_default();
                if actual == expected { self.set(draft, name, pieces) } else { Answer::Refused { actual } }
            }
            Command::Remove { name } => {
                draft.change(Change { name, pieces: None });
                Answer::Gone
            }
            Command::Stock { names } => {
                for name in names {
                    let pieces = draft.state().get(&name).copied().unwrap_or_default() + 1;
                    self.set(draft, name, pieces);
                }
                Answer::Gone
            }
            Command::Tell { name } => {
                self.tell(draft, &name, 0);
                Answer::Gone
            }
            Command::Break { name } => {
                self.set(draft, name, 1_000_000);
                panic!("broken on purpose")
            }
            Command::Derived { source, next, items } => {
                let applied = draft.applied(source);
                for (_, (name, pieces)) in items.into_iter().filter(|(offset, _)| *offset >= applied) {
                    let pieces = draft.state().get(&name).copied().unwrap_or_default() + pieces;
                    self.set(draft, name, pieces);
                }
                draft.advance(source, next);
                Answer::Gone
            }
        }
    }

    fn owned_bytes(command: &Command) -> usize {
        match command {
            Command::Add { name, .. } => name.len(),
            _ => 0,
        }
    }

    fn landed(&self, answer: &mut Answer, _first: Option<Offset>) {
        self.heard.lock().push(format!("{answer:?}"));
    }

    fn apply(state: &mut Self::State, change: &Change) {
        match change.pieces {
            Some(pieces) => drop(state.insert(change.name.clone(), pieces)),
            None => drop(state.remove(&change.name)),
        }
    }

    fn encode(change: &Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        key.extend_from_slice(change.name.as_bytes());
        let Some(pieces) = change.pieces else { return Encoded::Tombstone };
        value.extend_from_slice(&pieces.to_be_bytes());
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Change, DecodeError> {
        let name = String::from_utf8_lossy(key).into_owned();
        let pieces = match value {
            Some(value) => {
                let bytes = value.try_into().map_err(|_| DecodeError::new(format!("{} bytes", value.len())))?;
                Some(i64::from_be_bytes(bytes))
            }
            None => None,
        };
        Ok(Change { name, pieces })
    }
}

impl Shelf {
    fn set(&self, draft: &mut Draft<'_, Self>, name: String, pieces: i64) -> Answer {
        self.tell(draft, &name, pieces);
        draft.change(Change { name, pieces: Some(pieces) });
        Answer::Now(pieces)
    }

    fn tell(&self, draft: &mut Draft<'_, Self>, name: &str, pieces: i64) {
        if let Some(moves) = &self.moves {
            let record = Publish {
                key: Some(name.as_bytes().to_vec()),
                value: Some(pieces.to_string().into_bytes()),
                ..Publish::default()
            };
            draft.publish(TopicPartition::new(moves.clone(), 0), record);
        }
    }
}

/// Adds the owner of each name in the record's key, separated by plus signs, with its pieces: the value's length.
fn deliver(
    source: SourceRecord<'_>,
    found: &mut Vec<(PartitionId, (String, i64))>,
    owner: impl Fn(&[u8]) -> PartitionId,
) {
    let (Some(names), Some(value)) = (source.record.key, source.record.value) else { return };
    for name in names.split(|byte| *byte == b'+') {
        found.push((owner(name), (String::from_utf8_lossy(name).into_owned(), value.len() as i64)));
    }
}

/// Deliveries of telemetry to a shelf.
pub(crate) struct Deliveries {
    pub(crate) views: Arc<Views<Shelf>>,
}

/// The same to a shelf that may be elsewhere.
pub(crate) struct SlotDeliveries {
    pub(crate) slots: Arc<Slots<Shelf>>,
}

impl Follow<Shelf> for SlotDeliveries {
    type Item = (String, i64);

    fn follows(&self, topic: &Topic) -> bool {
        topic.name.kind() == TopicKind::Telemetry
    }

    fn items(&self, source: SourceRecord<'_>, found: &mut Vec<(PartitionId, Self::Item)>) {
        deliver(source, found, |name| self.slots.partition_of(name));
    }

    fn command(&self, source: SourcePartition, next: Offset, items: Vec<(Offset, Self::Item)>) -> Command {
        Command::Derived { source, next, items }
    }
}

impl Follow<Shelf> for Deliveries {
    type Item = (String, i64);

    fn follows(&self, topic: &Topic) -> bool {
        topic.name.kind() == TopicKind::Telemetry
    }

    fn items(&self, source: SourceRecord<'_>, found: &mut Vec<(PartitionId, Self::Item)>) {
        deliver(source, found, |name| self.views.partition_of(name));
    }

    fn command(&self, source: SourcePartition, next: Offset, items: Vec<(Offset, Self::Item)>) -> Command {
        Command::Derived { source, next, items }
    }
}

/// The engine of the log under the views.
pub(crate) enum Engine {
    /// The one that the environment asks for.
    Chosen(TestLog),
    Embedded(Arc<Embedded>),
    InMemory(Arc<MemoryLog>),
}

/// A process's worth of engine: opened, used, closed or dropped as in a crash.
pub(crate) struct World {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) engine: Engine,
    pub(crate) ground: ViewRuntime,
    /// The changes that its shelves have heard of.
    pub(crate) heard: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub(crate) fn open(dir: &Path) -> Self {
        let log = TestLog::open(config_in(dir), Arc::new(SystemFiles)).unwrap();
        let (shards, clock) = (Shards::start(2).unwrap(), Arc::new(SystemClock::default()));
        Self::with(Engine::Chosen(log), shards, clock, &dir.join("views"))
    }

    /// For tests that look at the files of the log.
    pub(crate) fn embedded(dir: &Path) -> Self {
        Self::on(Arc::new(SystemFiles), config_in(dir), &dir.join("views")).unwrap()
    }

    /// The built-in log on `files`, the checkpoints in a directory of the machine's own.
    pub(crate) fn on(files: Arc<dyn Files>, config: LogConfig, checkpoints: &Path) -> Result<Self, LogError> {
        let clock = Arc::new(SystemClock::default());
        let log = Embedded::open(config, files, clock.clone(), clock.clone())?;
        Ok(Self::with(Engine::Embedded(log), Shards::start(2).unwrap(), clock, checkpoints))
    }

    /// For tests that neither open the log again nor look at its files.
    pub(crate) fn in_memory(dir: &Path) -> Self {
        Self::over(MemoryLog::open(Arc::new(SystemClock::default())), dir)
    }

    /// The views over a log in memory, their checkpoints in `dir`.
    pub(crate) fn over(log: Arc<MemoryLog>, dir: &Path) -> Self {
        let (shards, clock) = (Shards::start(2).unwrap(), Arc::new(SystemClock::default()));
        Self::with(Engine::InMemory(log), shards, clock, &dir.join("views"))
    }

    /// The views over an engine that is open.
    pub(crate) fn with(engine: Engine, shards: Arc<Shards>, wall: Arc<dyn WallClock>, checkpoints: &Path) -> Self {
        let log: Arc<dyn Log> = match &engine {
            Engine::Chosen(log) => log.log(),
            Engine::Embedded(log) => log.clone(),
            Engine::InMemory(log) => log.clone(),
        };
        let ground =
            ViewRuntime { log: Arc::clone(&log), checkpoints: Checkpoints::open(checkpoints).unwrap(), shards, wall };
        Self { log, engine, ground, heard: Arc::default() }
    }

    /// Closes the log alone.
    pub(crate) fn close_log(&self) -> Result<(), LogError> {
        match &self.engine {
            Engine::Chosen(log) => log.close(),
            Engine::Embedded(log) => log.close(),
            Engine::InMemory(log) => {
                log.close();
                Ok(())
            }
        }
    }

    pub(crate) fn shelf(&self) -> Arc<Views<Shelf>> {
        self.shelf_with(None, &ViewsConfig { partitions: 4, ..ViewsConfig::default() }).unwrap()
    }

    /// A shelf that tells nobody of its moves.
    pub(crate) fn plain_shelf(&self) -> Shelf {
        Shelf { moves: None, heard: self.heard.clone() }
    }

    pub(crate) fn shelf_with(
        &self,
        moves: Option<TopicName>,
        config: &ViewsConfig,
    ) -> Result<Arc<Views<Shelf>>, Error> {
        Views::open(Shelf { moves, heard: self.heard.clone() }, &shelf_topic(), config, &self.ground)
    }

    /// Ends everything in good order.
    pub(crate) fn close(self, views: Arc<Views<Shelf>>) {
        assert!(self.end(views).is_ok(), "the log closes");
    }

    /// Ends every thread, whatever has become of the log.
    pub(crate) fn end(self, views: Arc<Views<Shelf>>) -> Result<(), LogError> {
        views.stop();
        assert!(Arc::into_inner(views).is_some(), "nobody else holds the views");
        let closed = self.close_log();
        let ViewRuntime { shards, .. } = self.ground;
        shards.join();
        closed
    }
}

fn config_in(dir: &Path) -> LogConfig {
    LogConfig { dir: dir.join("log"), ..LogConfig::default() }
}

pub(crate) fn shelf_topic() -> TopicName {
    TopicName::internal("_millstream-shelf")
}

/// Hands over a command that concerns one name.
pub(crate) fn submit(views: &Views<Shelf>, command: Command) -> Result<millstream_view::Answer<Shelf>, Error> {
    let name = match &command {
        Command::Add { name, .. } | Command::Swap { name, .. } => name,
        Command::Remove { name } | Command::Tell { name } | Command::Break { name } => name,
        Command::Stock { names } => &names[0],
        Command::Derived { .. } => panic!("it concerns more than a name"),
    };
    views.submit(views.partition_of(name.as_bytes()), command)
}

pub(crate) fn ask(views: &Views<Shelf>, command: Command) -> Result<Answer, Error> {
    submit(views, command)?.blocking_recv().expect("every command is answered")
}

pub(crate) fn add(views: &Views<Shelf>, name: &str, pieces: i64) -> Answer {
    ask(views, Command::Add { name: name.into(), pieces }).unwrap()
}

/// The state of all partitions as one sorted list.
pub(crate) fn whole(views: &Views<Shelf>) -> Vec<(String, i64)> {
    let mut all: Vec<_> = views
        .snapshots()
        .iter()
        .flat_map(|snapshot| snapshot.state.iter().map(|(name, pieces)| (name.clone(), *pieces)).collect::<Vec<_>>())
        .collect();
    all.sort();
    all
}

pub(crate) fn telemetry() -> TopicName {
    TopicName::reserved(TopicKind::Telemetry, &TenantId::default())
}

/// Pieces of `name` in the published state.
pub(crate) fn pieces(views: &Views<Shelf>, name: &str) -> Option<i64> {
    views.snapshot(views.partition_of(name.as_bytes())).state.get(name).copied()
}
