//! The interface that a plane implements: decisions on commands, effects of changes, and their encoding.

mod storage;

use std::borrow::Cow;

use millstream_log::AckLevel;
use millstream_types::{Offset, TopicPartition};

pub(crate) use self::storage::StateRecord;
pub use self::storage::{ByReference, Headers, InState, Referenced, Storage};
use crate::source::decode_offset;
use crate::{DecodeError, SourcePartition, Sources};

/// The result of encoding a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoded {
    /// The change stores the encoded value.
    Value,
    /// The change removes the key.
    Tombstone,
}

/// A kind of state, kept per partition.
///
/// The state changes only through `apply`, in a running owner and during a replay, so both arrive at the same state.
/// A change carries the *full* new value of its key, as the state topic is compacted.
pub trait View: Send + Sync + Sized + 'static {
    /// The state of one partition. It is cloned once per append, so it should share its structure (`imbl`).
    type State: Clone + Default + Send + Sync + 'static;
    /// The storage of the values: [`InState`](crate::InState) or [`ByReference`](crate::ByReference).
    type Storage: Storage<Self>;
    /// A new value of one key, or its removal.
    type Change: Send + 'static;
    /// A request of a caller.
    type Command: Send + 'static;
    /// The reply to a command, sent once everything that it depends on is as durable as the state topic.
    type Answer: Send + 'static;

    /// Name of the checkpoint and of the threads; never changes.
    const NAME: &'static str;

    /// The name of this view's checkpoint, if there are several views of the kind. Default [`View::NAME`].
    fn checkpoint_name(&self) -> Cow<'static, str> {
        Cow::Borrowed(Self::NAME)
    }

    /// The level at which `command` is answered; `None` is that of the state topic. Commands that are appended together
    /// are answered at the highest of their levels. Needs [`millstream_log::Capabilities::level_per_append`].
    fn level(_command: &Self::Command) -> Option<AckLevel> {
        None
    }

    /// Checks `command` against the state *including changes in flight* and makes its changes. Runs on a shard
    /// thread: no I/O, no waiting.
    fn decide(&self, draft: &mut Draft<'_, Self>, command: Self::Command) -> Self::Answer;

    /// The approximate heap size of `command`, which bounds the waiting commands
    /// ([`crate::ViewsConfig::inbox_max_bytes`]). The default is 0.
    fn owned_bytes(_command: &Self::Command) -> usize {
        0
    }

    /// `true` if `command` only removes keys, or little more: it is taken while the disk is nearly full, because it makes
    /// room. The default is `false`.
    fn makes_room(_command: &Self::Command) -> bool {
        false
    }

    /// Called for each answer before it is sent, in the order of decisions, once everything that it depends on is as
    /// durable as the state topic. For planes that act on stored changes. Runs on a shard thread: no I/O, no waiting.
    ///
    /// `first` is the offset of the append's first record, if it has one; [`Draft::next_record`] tells the distance from it.
    fn landed(&self, _answer: &mut Self::Answer, _first: Option<Offset>) {}

    /// Applies a change. It cannot fail: `decide` has checked everything.
    fn apply(state: &mut Self::State, change: &Self::Change);

    /// Encodes a change as a state record. The value begins with a version byte of the view.
    fn encode(change: &Self::Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded;

    /// Decodes a state record; a value of `None` is a tombstone.
    ///
    /// # Errors
    /// [`DecodeError`] for a record of a later version, or of another view.
    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Self::Change, DecodeError>;
}

/// A record for another topic, appended together with the changes that it reports.
#[derive(Debug, Clone, Default)]
pub struct Publish {
    /// Event time, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
    /// The key, if the record has one.
    pub key: Option<Vec<u8>>,
    /// The payload; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Names and values of the headers.
    pub headers: Vec<(Cow<'static, str>, Vec<u8>)>,
}

/// The state and the effects of one command.
#[derive(Debug)]
pub struct Draft<'a, V: View> {
    pub(crate) state: &'a mut V::State,
    pub(crate) sources: &'a mut Sources,
    pub(crate) changes: &'a mut Vec<V::Change>,
    pub(crate) advanced: &'a mut Vec<(SourcePartition, Offset)>,
    pub(crate) published: &'a mut Vec<(TopicPartition, Publish)>,
    pub(crate) now_ms: i64,
}

impl<V: View> Draft<'_, V> {
    /// The state with all changes of this and earlier commands, durable or not.
    pub fn state(&self) -> &V::State {
        self.state
    }

    /// Wall time, milliseconds since 1970-01-01T00:00:00Z; the same for a whole batch of commands.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Makes a change, which later commands see.
    pub fn change(&mut self, change: V::Change) {
        V::apply(self.state, &change);
        self.changes.push(change);
    }

    /// The number of records of the append before the next change: its distance from the append's first record.
    pub fn next_record(&self) -> usize {
        self.changes.len()
    }

    /// Appends a record to another topic, in the same atomic append as the changes.
    pub fn publish(&mut self, to: TopicPartition, record: Publish) {
        self.published.push((to, record));
    }

    /// The first offset of `source` that the state does not reflect yet; skip records below it.
    pub fn applied(&self, source: SourcePartition) -> Offset {
        self.sources.get(&source).copied().unwrap_or_default()
    }

    /// Notes that the state reflects `source` up to `next` (exclusive). Stored together with the changes.
    pub fn advance(&mut self, source: SourcePartition, next: Offset) {
        if next > self.applied(source) {
            self.sources.insert(source, next);
            self.advanced.push((source, next));
        }
    }
}

/// The state of one partition at one moment, as durable as its topic promises. Cheap to hold; never changes.
#[derive(Debug)]
pub struct Snapshot<V: View> {
    /// The state of the partition.
    pub state: V::State,
    /// The positions in its sources.
    pub sources: Sources,
    /// The first offset of the state topic that it does not reflect.
    pub next: Offset,
}

impl<V: View> Snapshot<V> {
    /// Applies the record of a position in `source`.
    pub(crate) fn source(&mut self, source: SourcePartition, value: Option<&[u8]>) -> Result<(), DecodeError> {
        match value {
            Some(value) => drop(self.sources.insert(source, decode_offset(value)?)),
            None => drop(self.sources.remove(&source)),
        }
        Ok(())
    }
}
