//! The keys of a durable bucket as a view of its topic: a table of places, and the writes that are on their way.

mod owner_transaction;

use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use bytes::Bytes;
use millstream_log::AckLevel;
use millstream_types::{Offset, PartitionId, RecordView};
use millstream_view::{ByReference, DecodeError, Draft, Encoded, Headers, Referenced, View};

pub(crate) use self::owner_transaction::VALUE_MAX_BYTES;
use self::owner_transaction::Write;
pub use self::owner_transaction::{Loaded, OwnerTransaction};
use crate::read_cache::ReadCache;
use crate::record::{Listed, StoredValue, is_own};
use crate::table::{Place, Table, Totals, TotalsDelta};
use crate::{Interrupted, Quotas, WriteRefusal};

/// The view of a bucket's topic.
pub(crate) struct Keys {
    /// The rendered name of the topic.
    pub(crate) name: String,
    pub(crate) quotas: ArcSwap<Quotas>,
    pub(crate) key_max_bytes: usize,
    pub(crate) cache: Arc<ReadCache>,
    /// The tables of all partitions, once they are loaded.
    pub(crate) tables: OnceLock<Box<[Arc<Table>]>>,
}

/// A write of one key. `None` deletes it.
#[derive(Debug, Clone)]
pub(crate) struct KeyChange {
    pub(crate) key: Bytes,
    pub(crate) stored: Option<StoredValue>,
}

/// The newest write of a key that is on its way to the log.
#[derive(Debug, Clone)]
pub(crate) struct OnItsWay {
    pub(crate) stored: Option<StoredValue>,
    /// Writes of the key that are on their way.
    writes: u32,
}

/// The keys of one partition. All clones share the table.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyIndex {
    pub(crate) table: Arc<Table>,
    pub(crate) on_their_way: imbl::HashMap<Bytes, OnItsWay>,
    /// The difference that the writes on their way make to the table's totals.
    pub(crate) to_come: TotalsDelta,
}

impl KeyIndex {
    /// The place of `key` after all writes; its version is that in the table, if the newest write has not landed.
    pub(crate) fn place(&self, key: &[u8]) -> Option<Place> {
        match self.on_their_way.get(key) {
            Some(newest) => newest.stored.as_ref().map(|stored| stored.place(key, u64::MAX)),
            None => self.table.get(self.table.fingerprint(key)),
        }
    }
}

/// The work of a transaction; it may run several times.
pub(crate) type Work = Box<dyn FnMut(&mut OwnerTransaction<'_, '_>) -> Result<Box<dyn Any + Send>, Interrupted> + Send>;

/// A transaction for the owner of a partition.
pub(crate) struct TransactionCommand {
    pub(crate) partition: PartitionId,
    pub(crate) work: Work,
    /// Values that the work has asked for.
    pub(crate) loaded: Vec<Loaded>,
    pub(crate) level: Option<AckLevel>,
    /// Approximate size of what the work holds.
    pub(crate) size_bytes: usize,
    /// The work only removes keys, or little more.
    pub(crate) makes_room: bool,
}

/// The outcome of a transaction.
pub(crate) enum TransactionAnswer {
    /// The transaction has taken effect.
    Done {
        partition: PartitionId,
        output: Box<dyn Any + Send>,
        /// Distance of the first write from the first record of the append, then the offset of that write.
        first: u64,
        /// The values that were written, in order.
        written: Vec<KeyChange>,
    },
    /// A limit refuses it. The command can be asked again.
    Refused { command: TransactionCommand, refusal: WriteRefusal },
    /// Values must be read first: their keys and offsets.
    NotLoaded { command: TransactionCommand, missing: Vec<(Bytes, u64)> },
}

impl View for Keys {
    type State = KeyIndex;
    type Storage = ByReference;
    type Change = KeyChange;
    type Command = TransactionCommand;
    type Answer = TransactionAnswer;
    const NAME: &'static str = "kv";

    fn checkpoint_name(&self) -> Cow<'static, str> {
        Cow::Owned(self.name.clone())
    }

    fn level(command: &TransactionCommand) -> Option<AckLevel> {
        command.level
    }

    fn owned_bytes(command: &TransactionCommand) -> usize {
        command.size_bytes
    }

    fn makes_room(command: &TransactionCommand) -> bool {
        command.makes_room
    }

    fn decide(&self, draft: &mut Draft<'_, Self>, mut command: TransactionCommand) -> TransactionAnswer {
        let now_ms = draft.now_ms();
        let mut transaction = OwnerTransaction::new(self, command.partition, draft.state(), &command.loaded, now_ms);
        match (command.work)(&mut transaction) {
            Ok(output) => {
                let writes = transaction.into_writes();
                let first = draft.next_record() as u64;
                let mut written = Vec::new();
                for Write { key, stored } in writes {
                    let change = KeyChange { key, stored };
                    if self.cache.takes_writes_of(change.stored.as_ref()) {
                        written.push(change.clone());
                    } else {
                        written.push(KeyChange { key: Bytes::new(), stored: None });
                    }
                    draft.change(change);
                }
                TransactionAnswer::Done { partition: command.partition, output, first, written }
            }
            Err(Interrupted::NotLoaded) => {
                let missing = transaction.into_missing();
                TransactionAnswer::NotLoaded { command, missing }
            }
            Err(Interrupted::Refused(refusal)) => TransactionAnswer::Refused { command, refusal },
        }
    }

    fn landed(&self, answer: &mut TransactionAnswer, at: Option<Offset>) {
        let (TransactionAnswer::Done { partition, first, written, .. }, Some(at)) = (answer, at) else { return };
        *first += at.0;
        for (offset, change) in (*first..).zip(written) {
            if let Some(stored) = change.stored.take() {
                self.cache.insert(*partition, offset, &change.key, &stored);
            }
        }
    }

    fn apply(state: &mut KeyIndex, change: &KeyChange) {
        let before = state.place(&change.key);
        let after = change.stored.as_ref().map(|stored| stored.place(&change.key, 0));
        state.to_come += TotalsDelta::between(&change.key, before, after);
        let writes = state.on_their_way.get(&change.key).map_or(0, |newest| newest.writes) + 1;
        let newest = OnItsWay { stored: change.stored.clone(), writes };
        state.on_their_way.insert(change.key.clone(), newest);
    }

    fn encode(change: &KeyChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        key.extend_from_slice(&change.key);
        let Some(stored) = &change.stored else { return Encoded::Tombstone };
        value.extend_from_slice(&stored.value.bytes);
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<KeyChange, DecodeError> {
        // A replay needs the length of the value, not its bytes.
        let bytes = |value: &[u8]| Bytes::copy_from_slice(value);
        let stored =
            value.map(|value| StoredValue { value: crate::Value::of(bytes(value)), large: None, written_ms: 0 });
        Ok(KeyChange { key: Bytes::copy_from_slice(key), stored })
    }
}

impl Referenced for Keys {
    fn headers(change: &KeyChange) -> Headers {
        change.stored.as_ref().map(StoredValue::headers).unwrap_or_default()
    }

    fn with_headers(mut change: KeyChange, record: &RecordView<'_>) -> Result<KeyChange, DecodeError> {
        if let Some(stored) = change.stored.take() {
            change.stored = Some(StoredValue::read(record, stored.value.bytes)?);
        }
        Ok(change)
    }

    fn land(state: &mut KeyIndex, change: &KeyChange, offset: Offset) {
        let before = state.table.get(state.table.fingerprint(&change.key));
        let after = change.stored.as_ref().map(|stored| stored.place(&change.key, offset.0));
        state.to_come -= TotalsDelta::between(&change.key, before, after);
        if let Some(stored) = &change.stored {
            state.table.note_time(stored.written_ms);
        }
        match after {
            Some(place) => state.table.insert(&change.key, place),
            None => state.table.remove(&change.key),
        }
        match state.on_their_way.get_mut(&change.key) {
            Some(newest) if newest.writes > 1 => newest.writes -= 1,
            _ => drop(state.on_their_way.remove(&change.key)),
        }
    }

    fn entry(change: &KeyChange, offset: Offset) -> Option<Vec<u8>> {
        change.stored.as_ref().map(|stored| Listed::of(stored, offset.0).encode())
    }

    fn key(change: &KeyChange) -> &[u8] {
        &change.key
    }

    fn restore(state: &mut KeyIndex, key: &[u8], entry: &[u8]) -> Result<(), DecodeError> {
        let listed = Listed::decode(entry)?;
        state.table.note_time(listed.written_ms);
        state.table.insert(key, listed.place(key));
        Ok(())
    }
}

impl Keys {
    /// Keys and bytes of the bucket as far as they have landed.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for table in self.tables.get().map(|tables| &tables[..]).unwrap_or_default() {
            let part = table.totals();
            totals.keys += part.keys;
            totals.bytes += part.bytes;
        }
        totals
    }

    /// Checks a key of a client.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), WriteRefusal> {
        let (length, max_bytes) = (key.len(), self.key_max_bytes);
        if length == 0 || length > max_bytes || is_own(key) {
            return Err(WriteRefusal::Key { length, max_bytes });
        }
        Ok(())
    }
}
