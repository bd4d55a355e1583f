//! A small view for the tests: a shelf of counters, with everything that a plane does to its state.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use millstream_log::{Embedded, Log, LogConfig, SystemFiles, Topic};
use millstream_types::{Kind, Offset, PartitionId, RecordView, SystemClock, TenantId, TopicName, TopicPartition};
use millstream_view::{
    Checkpoints, DecodeError, Draft, Encoded, Follow, Ground, Publish, Shards, Source, View, Views, ViewsConfig,
};

/// Counts pieces per name; every change is told to the topic `moves`.
pub(crate) struct Shelf {
    pub(crate) moves: Option<TopicName>,
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
    /// Adds what records of another topic ask for.
    Derived {
        source: Source,
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
        if let Some(moves) = &self.moves {
            let record = Publish {
                key: Some(name.clone().into_bytes()),
                value: Some(pieces.to_string().into_bytes()),
                ..Publish::default()
            };
            draft.publish(TopicPartition::new(moves.clone(), 0), record);
        }
        draft.change(Change { name, pieces: Some(pieces) });
        Answer::Now(pieces)
    }
}

/// Reads `name` as the record's key and the pieces as its value's length.
pub(crate) struct Deliveries {
    pub(crate) views: Arc<Views<Shelf>>,
}

impl Follow<Shelf> for Deliveries {
    type Item = (String, i64);

    fn follows(&self, topic: &Topic) -> bool {
        topic.name.kind() == Kind::Telemetry
    }

    fn item(&self, _: &Topic, record: &RecordView<'_>) -> Option<(PartitionId, Self::Item)> {
        let name = record.key?;
        let pieces = record.value?.len() as i64;
        Some((self.views.partition_of(name), (String::from_utf8_lossy(name).into_owned(), pieces)))
    }

    fn command(&self, source: Source, next: Offset, items: Vec<(Offset, Self::Item)>) -> Command {
        Command::Derived { source, next, items }
    }
}

/// A process's worth of engine: opened, used, closed or dropped as in a crash.
pub(crate) struct World {
    pub(crate) log: Arc<Embedded>,
    pub(crate) ground: Ground,
}

impl World {
    pub(crate) fn open(dir: &Path) -> Self {
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone()).unwrap();
        let ground = Ground {
            log: log.clone() as Arc<dyn Log>,
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(2).unwrap(),
            wall: clock,
        };
        Self { log, ground }
    }

    pub(crate) fn shelf(&self) -> Arc<Views<Shelf>> {
        let config = ViewsConfig { partitions: 4, ..ViewsConfig::default() };
        Views::open(Shelf { moves: None }, &TopicName::internal("_shelf"), &config, &self.ground).unwrap()
    }

    pub(crate) fn close(self) {
        self.log.close().unwrap();
    }
}

pub(crate) fn telemetry() -> TopicName {
    TopicName::reserved(Kind::Telemetry, &TenantId::default())
}

/// Pieces of `name` in the published state.
pub(crate) fn pieces(views: &Views<Shelf>, name: &str) -> Option<i64> {
    views.snapshot(views.partition_of(name.as_bytes())).state.get(name).copied()
}
