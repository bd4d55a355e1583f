//! The storage of a view's values: its state, or the log, with references to them in the state.
//!
//! | | [`InState`] | [`ByReference`] |
//! | --- | --- | --- |
//! | state | every value; cloned once per append | a table shared by all clones, and the changes in flight |
//! | an append lands | the state after it is published | its changes move to the table, with their offsets |
//! | key of a record | 1, key of the view | the key as it is; it may not begin with 0 |
//! | checkpoint | the records themselves | entries that the view makes, without values |

use std::borrow::Cow;

use bytes::Bytes;
use millstream_types::{Offset, RecordView};

use super::{Encoded, View};
use crate::DecodeError;

/// A key with its value, or with a tombstone.
pub(crate) type StateRecord = (Bytes, Option<Bytes>);

/// Names and values of a record's headers.
pub type Headers = Vec<(Cow<'static, str>, Vec<u8>)>;

/// Storage of a view's values: [`InState`] or [`ByReference`].
pub trait Storage<V: View>: Sized + Send + Sync + 'static {
    /// First bytes of the keys of a view's records, before the view's own key.
    const KEY_PREFIX: &'static [u8];
    /// First bytes of the keys of source positions.
    const SOURCE_PREFIX: &'static [u8];

    /// The effects of an append in flight.
    type Held: Send + 'static;

    /// The headers of a change's record.
    fn headers(change: &V::Change) -> Headers;

    /// Keeps the effects of an append until it lands. `ahead` is the state after it.
    fn hold(ahead: &V::State, changes: Vec<V::Change>, records: &[StateRecord]) -> Self::Held;

    /// The records of an append in flight, with their headers, as they were encoded first.
    fn records(held: &Self::Held) -> Vec<(StateRecord, Headers)>;

    /// Completes an append whose first record is at `first`. Returns the state for readers, and what the checkpoint
    /// lacks. Appends land in order.
    fn land(
        held: Self::Held,
        landed: &V::State,
        ahead: &mut V::State,
        first: Option<Offset>,
    ) -> (V::State, Vec<StateRecord>);

    /// The state after the appends in flight.
    fn rewind<'a>(landed: &V::State, in_flight: impl Iterator<Item = &'a Self::Held>) -> V::State;

    /// Applies a record of the state topic, whose key without its
    /// prefix is `key`. Returns the value for the checkpoint.
    ///
    /// # Errors
    /// [`DecodeError`] for a record of a later version, or of another view.
    fn replay(state: &mut V::State, key: &[u8], record: &RecordView<'_>) -> Result<Option<Bytes>, DecodeError>;

    /// Applies an entry of the checkpoint.
    ///
    /// # Errors
    /// [`DecodeError`] for an entry of a later version, or of another view.
    fn restore(state: &mut V::State, key: &[u8], entry: &[u8]) -> Result<(), DecodeError>;
}

/// The state holds every value. Right for values that are read together and changed often.
#[derive(Debug)]
pub struct InState;

/// The effects of an append in flight of a view whose state holds the values.
#[derive(Debug, Default)]
pub struct HeldState<S> {
    /// The state after the append.
    state: S,
    records: Vec<StateRecord>,
}

impl<V: View> Storage<V> for InState {
    const KEY_PREFIX: &'static [u8] = &[1];
    const SOURCE_PREFIX: &'static [u8] = &[0];

    type Held = HeldState<V::State>;

    fn headers(_change: &V::Change) -> Headers {
        Headers::new()
    }

    fn hold(ahead: &V::State, _changes: Vec<V::Change>, records: &[StateRecord]) -> Self::Held {
        HeldState { state: ahead.clone(), records: records.to_vec() }
    }

    fn records(held: &Self::Held) -> Vec<(StateRecord, Headers)> {
        held.records.iter().map(|record| (record.clone(), Headers::new())).collect()
    }

    fn land(
        held: Self::Held,
        _landed: &V::State,
        _ahead: &mut V::State,
        _first: Option<Offset>,
    ) -> (V::State, Vec<StateRecord>) {
        (held.state, held.records)
    }

    fn rewind<'a>(landed: &V::State, in_flight: impl Iterator<Item = &'a Self::Held>) -> V::State {
        in_flight.last().map_or(landed, |held| &held.state).clone()
    }

    fn replay(state: &mut V::State, key: &[u8], record: &RecordView<'_>) -> Result<Option<Bytes>, DecodeError> {
        V::apply(state, &V::decode(key, record.value)?);
        Ok(record.value.map(Bytes::copy_from_slice))
    }

    fn restore(state: &mut V::State, key: &[u8], entry: &[u8]) -> Result<(), DecodeError> {
        V::apply(state, &V::decode(key, Some(entry))?);
        Ok(())
    }
}

/// The log holds the values; the state knows the offset of each. Right for many values that are read one by one.
#[derive(Debug)]
pub struct ByReference;

/// A view whose values stay in the log.
///
/// All clones of its state share one table, which [`Referenced::land`] changes in place. Beside it, each clone has the
/// changes that [`View::apply`] made and that have not landed.
pub trait Referenced: View<Storage = ByReference> {
    /// The headers of a change's record.
    fn headers(change: &Self::Change) -> Headers;

    /// Adds the contents of a record's headers to the change that [`View::decode`] made of its key and value.
    ///
    /// # Errors
    /// [`DecodeError`] for headers of a later version.
    fn with_headers(change: Self::Change, record: &RecordView<'_>) -> Result<Self::Change, DecodeError>;

    /// Moves the oldest change in flight of its key to the table. `change` is at `offset`.
    fn land(state: &mut Self::State, change: &Self::Change, offset: Offset);

    /// The checkpoint's entry for a change at `offset`; `None` removes the key's entry.
    fn entry(change: &Self::Change, offset: Offset) -> Option<Vec<u8>>;

    /// The key of a change.
    fn key(change: &Self::Change) -> &[u8];

    /// Puts an entry of the checkpoint into the table.
    ///
    /// # Errors
    /// [`DecodeError`] for an entry of a later version.
    fn restore(state: &mut Self::State, key: &[u8], entry: &[u8]) -> Result<(), DecodeError>;
}

/// The effects of an append in flight of a view whose values stay in the log.
#[derive(Debug)]
pub struct HeldChanges<C> {
    changes: Vec<C>,
    /// The records of source positions, which stand behind those of the changes.
    sources: Vec<StateRecord>,
}

impl<V: Referenced> Storage<V> for ByReference {
    const KEY_PREFIX: &'static [u8] = &[];
    const SOURCE_PREFIX: &'static [u8] = b"\0s";

    type Held = HeldChanges<V::Change>;

    fn headers(change: &V::Change) -> Headers {
        V::headers(change)
    }

    fn hold(_ahead: &V::State, changes: Vec<V::Change>, records: &[StateRecord]) -> Self::Held {
        // Copies, as a slice would hold the values of all records.
        let copied = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let sources = records[changes.len()..].iter().map(|(key, value)| (copied(key), value.as_ref().map(copied)));
        let sources = sources.collect();
        HeldChanges { changes, sources }
    }

    fn records(held: &Self::Held) -> Vec<(StateRecord, Headers)> {
        let of_change = |change: &V::Change| {
            let (mut key, mut value) = (<Self as Storage<V>>::KEY_PREFIX.to_vec(), Vec::new());
            let is_value = V::encode(change, &mut key, &mut value) == Encoded::Value;
            ((Bytes::from(key), is_value.then(|| Bytes::from(value))), V::headers(change))
        };
        let of_sources = held.sources.iter().map(|record| (record.clone(), Headers::new()));
        held.changes.iter().map(of_change).chain(of_sources).collect()
    }

    fn land(
        held: Self::Held,
        landed: &V::State,
        ahead: &mut V::State,
        first: Option<Offset>,
    ) -> (V::State, Vec<StateRecord>) {
        let HeldChanges { changes, sources } = held;
        let mut entries = Vec::with_capacity(changes.len() + sources.len());
        let offsets = first.into_iter().flat_map(|first| (first.0..).map(Offset));
        for (change, offset) in changes.iter().zip(offsets) {
            V::land(ahead, change, offset);
            entries.push((Bytes::copy_from_slice(V::key(change)), V::entry(change, offset).map(Bytes::from)));
        }
        entries.extend(sources);
        (landed.clone(), entries)
    }

    fn rewind<'a>(landed: &V::State, in_flight: impl Iterator<Item = &'a Self::Held>) -> V::State {
        let mut state = landed.clone();
        in_flight.flat_map(|held| &held.changes).for_each(|change| V::apply(&mut state, change));
        state
    }

    fn replay(state: &mut V::State, key: &[u8], record: &RecordView<'_>) -> Result<Option<Bytes>, DecodeError> {
        let change = V::with_headers(V::decode(key, record.value)?, record)?;
        V::apply(state, &change);
        V::land(state, &change, record.offset);
        Ok(V::entry(&change, record.offset).map(Bytes::from))
    }

    fn restore(state: &mut V::State, key: &[u8], entry: &[u8]) -> Result<(), DecodeError> {
        V::restore(state, key, entry)
    }
}
