//! What a plane says about its state: how commands are decided, how changes are applied and written.

use std::borrow::Cow;

use millstream_types::{Offset, TopicPartition};

use crate::{DecodeError, Source, Sources};

/// Whether a change stores a value or removes its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoded {
    /// The value was written.
    Value,
    /// The key is gone.
    Tombstone,
}

/// A kind of state, kept per partition.
///
/// `apply` is the only way in which state changes, in a running owner and while replaying alike, so both end up with
/// the same state. A change carries the *full* new value of its key: the state topic is compacted.
pub trait View: Send + Sync + Sized + 'static {
    /// The state of one partition. Cloned once per append, so it should share its structure (`imbl`).
    type State: Clone + Default + Send + Sync + 'static;
    /// One key's new value, or its removal.
    type Change: Send + 'static;
    /// What callers ask for.
    type Command: Send + 'static;
    /// What they get, once everything that the answer rests on is as durable as the state topic.
    type Answer: Send + 'static;

    /// Names the checkpoint and the threads; fixed for ever.
    const NAME: &'static str;

    /// Checks `command` against the state *including changes in flight* and makes the changes it wants.
    /// Runs on a shard thread: no I/O, no waiting.
    fn decide(&self, draft: &mut Draft<'_, Self>, command: Self::Command) -> Self::Answer;

    /// Bytes that `command` owns beside itself, about: what bounds those that wait ([`crate::ViewsConfig::inbox_max_bytes`]).
    /// None unless a view says so.
    fn owned_bytes(_command: &Self::Command) -> usize {
        0
    }

    /// Hears of an answer once everything that it rests on is as durable as the state topic, in the order of decisions,
    /// and before it is given: for a plane that acts on what is stored. Runs on a shard thread: no I/O, no waiting.
    fn landed(&self, _answer: &Self::Answer) {}

    /// Changes the state. Never fails: what could be wrong has been checked by `decide`.
    fn apply(state: &mut Self::State, change: &Self::Change);

    /// Writes a change as a state record. The value begins with a version byte of the view's own.
    fn encode(change: &Self::Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded;

    /// Reads a state record back; `None` is a tombstone.
    ///
    /// # Errors
    /// [`DecodeError`] for a record of a later version or none of this view's.
    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Self::Change, DecodeError>;
}

/// A record for another topic, appended together with the changes it tells of.
#[derive(Debug, Clone, Default)]
pub struct Publish {
    /// Event time, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
    /// The record's key.
    pub key: Option<Vec<u8>>,
    /// The record's payload.
    pub value: Option<Vec<u8>>,
    /// Names and values of its headers.
    pub headers: Vec<(Cow<'static, str>, Vec<u8>)>,
}

/// What one command sees and does.
#[derive(Debug)]
pub struct Draft<'a, V: View> {
    pub(crate) state: &'a mut V::State,
    pub(crate) sources: &'a mut Sources,
    pub(crate) changes: &'a mut Vec<V::Change>,
    pub(crate) advanced: &'a mut Vec<(Source, Offset)>,
    pub(crate) published: &'a mut Vec<(TopicPartition, Publish)>,
    pub(crate) now_ms: i64,
}

impl<V: View> Draft<'_, V> {
    /// The state with everything that this and earlier commands have changed, durable or not yet.
    pub fn state(&self) -> &V::State {
        self.state
    }

    /// Wall time, milliseconds since 1970-01-01T00:00:00Z; the same for a whole batch of commands.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Makes a change; later commands see it.
    pub fn change(&mut self, change: V::Change) {
        V::apply(self.state, &change);
        self.changes.push(change);
    }

    /// Appends a record to another topic, in the same atomic append as the changes.
    pub fn publish(&mut self, to: TopicPartition, record: Publish) {
        self.published.push((to, record));
    }

    /// The first offset of `source` that the state does not reflect yet: what lies below has been applied, skip it.
    pub fn applied(&self, source: Source) -> Offset {
        self.sources.get(&source).copied().unwrap_or_default()
    }

    /// Notes that the state reflects `source` up to `next` (exclusive); stored with the changes, all or nothing.
    pub fn advance(&mut self, source: Source, next: Offset) {
        if next > self.applied(source) {
            self.sources.insert(source, next);
            self.advanced.push((source, next));
        }
    }
}

/// The state of one partition at one moment, as durable as its topic promises. Cheap to hold, never changes.
#[derive(Debug)]
pub struct Snapshot<V: View> {
    /// The state.
    pub state: V::State,
    /// What it reflects of other topics.
    pub sources: Sources,
    /// The first offset of the state topic that it does not reflect.
    pub next: Offset,
}
