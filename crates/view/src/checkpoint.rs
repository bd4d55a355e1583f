//! The checkpoint: a copy of the state beside the log, so that a restart reads only the tail.
//!
//! One ordered store per process; a keyspace per view; keys begin with the partition. Written behind, a batch with the
//! position it reflects, never on the path of an answer. It holds nothing that is not in the log: a missing, older or
//! damaged one costs time, nothing else.
//!
//! | key | value |
//! | --- | --- |
//! | partition (4 bytes, big endian), `p` | version, topic id, epoch, next offset: what this partition's copy reflects |
//! | partition, `r`, key of the state record | value of the state record |

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, FilterPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use millstream_log::{Log, run_in_background};
use millstream_types::{Epoch, Offset, PartitionId, TopicId};
use parking_lot::Mutex;

use crate::Error;
use crate::checkpointer::Checkpointer;
use crate::dirty::Dirty;
use crate::failure::panic_text;
use crate::intact;
use crate::merge::Merging;
use crate::source::{decode_position, encode_position};

const POSITION: u8 = b'p';
const RECORD: u8 = b'r';

/// Bytes of changes that the store keeps in memory before it writes a table: what a start reads again, record by record.
const MEMTABLE_MAX_BYTES: u64 = 16 << 20;
/// Tables that are merged into the rest at a time. Among many entities each merge writes all of them again, so that the
/// more it takes in, the less a change costs; the store holds up its writers from 20 tables on.
const TABLES_PER_MERGE: u8 = 12;
/// Records are read and written in whole runs only: larger blocks cost less each.
const BLOCK_BYTES: u32 = 32 << 10;

/// Bytes of the journal beyond which a start would read too much again, and the least that the store can be told: it then
/// begins another and writes tables of all that the full one holds, keyspaces that hardly change included.
const JOURNAL_MAX_BYTES: u64 = 64 << 20;

/// A file that says that the store is damaged: the next start begins a new one.
const CONDEMNED: &str = "condemned";

/// The log line for a checkpoint that could not be written.
pub(crate) const NOT_WRITTEN: &str =
    "checkpoint not written; it stays as it is and the next start reads more of the log";

/// Room on the disk that a checkpoint needs beside its records while the disk is full.
const SPARE_BYTES: u64 = 64 << 20;

/// `true` if the disk has room for a checkpoint of `bytes` of changes. After a failed write the store accepts nothing before
/// a restart, so it is not tried on a full disk.
pub(crate) fn has_room(log: &dyn Log, bytes: usize) -> bool {
    log.check_disk().is_ok() || log.spare_bytes() >= SPARE_BYTES + 2 * bytes as u64
}

/// The checkpoint store of the process.
pub struct Checkpoints {
    path: PathBuf,
    database: Database,
    /// Writes the checkpoints of all views.
    checkpointer: Checkpointer,
}

impl std::fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checkpoints({})", self.path.display())
    }
}

impl Checkpoints {
    /// Opens the store in `path`. A store that cannot be read is replaced by an empty one: the log has everything.
    /// The caller owns the log's directory exclusively.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if another process uses it, or if even a new one cannot be made.
    pub fn open(path: &Path) -> Result<Arc<Self>, Error> {
        // A panic of the store's own is damage that it did not foresee.
        let store = || Database::builder(path).worker_threads(1).max_journaling_size(JOURNAL_MAX_BYTES);
        let open = || in_the_background(|| store().open());
        if path.join(CONDEMNED).exists() {
            begin_anew(path, &"it was found damaged");
        } else if let Err(damage) = intact::check(path) {
            begin_anew(path, &damage);
        }
        let opened = match open() {
            Ok(Err(fjall::Error::Locked)) => Err(fjall::Error::Locked),
            Ok(Ok(database)) => Ok(database),
            Ok(Err(damage)) => {
                begin_anew(path, &damage);
                open().unwrap_or_else(|panic| resume_unwind(panic))
            }
            Err(panic) => {
                begin_anew(path, &format!("it made the store panic: {}", panic_text(&*panic)));
                open().unwrap_or_else(|panic| resume_unwind(panic))
            }
        };
        match opened {
            Ok(database) => Ok(Arc::new(Self { path: path.to_owned(), database, checkpointer: Checkpointer::new() })),
            Err(source) => Err(Error::Checkpoint { path: path.to_owned(), source: Arc::new(source) }),
        }
    }

    pub(crate) fn keyspace(self: &Arc<Self>, view: &str) -> Result<Checkpoint, Error> {
        let leveled = Arc::new(Leveled::default().with_l0_threshold(TABLES_PER_MERGE));
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_MAX_BYTES)
                .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
                // A start looks up only a position or two.
                .filter_policy(FilterPolicy::disabled())
                .compaction_strategy(leveled.clone())
        };
        let keyspace = self.database.keyspace(view, options).map_err(|e| self.error(e))?;
        let merging = Mutex::new(Merging::new(keyspace.clone()));
        Ok(Checkpoint { merging, store: Arc::clone(self), keyspace })
    }

    /// Removes the checkpoint of a view that is gone.
    ///
    /// # Errors
    /// [`Error::Checkpoint`], if the store cannot remove it.
    pub fn remove(&self, view: &str) -> Result<(), Error> {
        if !self.database.keyspace_exists(view) {
            return Ok(());
        }
        let keyspace = self.database.keyspace(view, KeyspaceCreateOptions::default).map_err(|e| self.error(e))?;
        self.database.delete_keyspace(keyspace).map_err(|e| self.error(e))
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// [`Error::Checkpoint`], if the store cannot sync.
    pub fn sync(&self) -> Result<(), Error> {
        self.database.persist(PersistMode::SyncAll).map_err(|e| self.error(e))
    }

    fn error(&self, source: fjall::Error) -> Error {
        Error::Checkpoint { path: self.path.clone(), source: Arc::new(source) }
    }
}

/// Does `start` on a thread that stands back. Threads share cores as those do that start them, and the store's own
/// works for seconds on end.
fn in_the_background<T: Send>(start: impl FnOnce() -> T + Send) -> std::thread::Result<T> {
    std::thread::scope(|scope| {
        let work = || {
            run_in_background();
            start()
        };
        scope.spawn(work).join()
    })
}

fn begin_anew(path: &Path, damage: &dyn std::fmt::Display) {
    tracing::warn!(path = %path.display(), error = %damage, "checkpoint store is unusable; rebuilding it from the log");
    if let Err(e) = std::fs::remove_dir_all(path) {
        tracing::warn!(path = %path.display(), error = %e, "cannot remove the unusable checkpoint store");
    }
}

/// One view's part of the store.
pub(crate) struct Checkpoint {
    // Dropped first: a merge needs the store open.
    merging: Mutex<Merging>,
    store: Arc<Checkpoints>,
    keyspace: Keyspace,
}

/// The part of its partition's state topic that a checkpoint reflects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reflected {
    pub(crate) topic: TopicId,
    pub(crate) epoch: Epoch,
    pub(crate) next: Offset,
}

impl Checkpoint {
    /// Writes the checkpoints of all views of the store.
    pub(crate) fn checkpointer(&self) -> &Checkpointer {
        &self.store.checkpointer
    }

    /// Returns the position that the copy of `partition` reflects; `None` if there is no copy.
    pub(crate) fn reflected(&self, partition: PartitionId) -> Result<Option<Reflected>, Error> {
        let stored = self.keyspace.get(key(partition, POSITION, &[])).map_err(|e| self.store.error(e))?;
        Ok(stored.and_then(|bytes| decode_position(&bytes)).map(|(topic, epoch, next)| Reflected {
            topic,
            epoch,
            next,
        }))
    }

    /// Walks all state records of the copy of `partition`.
    pub(crate) fn load(
        &self,
        partition: PartitionId,
        mut record: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let prefix = key(partition, RECORD, &[]);
        for entry in self.keyspace.prefix(&prefix) {
            let (stored, value) = entry.into_inner().map_err(|e| self.store.error(e))?;
            record(&stored[prefix.len()..], &value)?;
        }
        Ok(())
    }

    /// Calls `visit` with each state record of `partition` from the key `start` on, in order, until it breaks.
    pub(crate) fn list(
        &self,
        partition: PartitionId,
        start: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let prefix = key(partition, RECORD, &[]);
        let (first, end) = (key(partition, RECORD, start), key(partition, RECORD + 1, &[]));
        for entry in self.keyspace.range(first..end) {
            let (stored, value) = entry.into_inner().map_err(|e| self.store.error(e))?;
            if visit(&stored[prefix.len()..], &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Forgets the copy of `partition`.
    pub(crate) fn clear(&self, partition: PartitionId) -> Result<(), Error> {
        let mut batch = self.store.database.batch();
        for entry in self.keyspace.prefix(partition.0.to_be_bytes()) {
            let (stored, _) = entry.into_inner().map_err(|e| self.store.error(e))?;
            batch.remove(&self.keyspace, stored);
        }
        batch.commit().map_err(|e| self.store.error(e))
    }

    /// Lets the next start begin a new store instead of this one.
    pub(crate) fn condemn(&self) {
        let path = self.store.path.join(CONDEMNED);
        if let Err(e) = std::fs::write(&path, []) {
            tracing::error!(path = %path.display(), error = %e, "cannot mark the damaged checkpoint store; delete its directory");
        }
    }

    /// Writes what `dirty` holds, all or nothing.
    pub(crate) fn write_dirty(&self, partition: PartitionId, topic: TopicId, dirty: &Dirty) -> Result<(), Error> {
        let Some((epoch, next)) = dirty.reflected else { return Ok(()) };
        self.write(partition, dirty.records.iter(), Reflected { topic, epoch, next })
    }

    /// Writes changed records and the position they lead to, all or nothing.
    pub(crate) fn write<'a>(
        &self,
        partition: PartitionId,
        records: impl Iterator<Item = (&'a Bytes, &'a Option<Bytes>)>,
        reflected: Reflected,
    ) -> Result<(), Error> {
        let mut batch = self.store.database.batch();
        for (record_key, value) in records {
            let stored = key(partition, RECORD, record_key);
            match value {
                Some(value) => batch.insert(&self.keyspace, stored, value.as_ref()),
                None => batch.remove(&self.keyspace, stored),
            }
        }
        let position = encode_position(reflected.epoch, reflected.next, reflected.topic);
        batch.insert(&self.keyspace, key(partition, POSITION, &[]), position);
        batch.commit().and_then(|()| self.keep_small()).map_err(|e| self.store.error(e))
    }

    /// Sees to it that the store's files do not outgrow what is in them.
    fn keep_small(&self) -> Result<(), fjall::Error> {
        let database = &self.store.database;
        // The store looks at its journal only when a keyspace has a whole table of changes.
        if database.journal_count() == 1 && database.journal_disk_space()? > JOURNAL_MAX_BYTES {
            self.keyspace.rotate_memtable()?;
        }
        self.merging.lock().step();
        Ok(())
    }
}

fn key(partition: PartitionId, kind: u8, record: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(5 + record.len());
    key.extend_from_slice(&partition.0.to_be_bytes());
    key.push(kind);
    key.extend_from_slice(record);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirty::Behind;
    use crate::intact::tests::lists;
    use crate::view::StateRecord;

    const TOPIC: TopicId = TopicId(0x0102);

    fn dirty(records: &[(&'static str, Option<&'static str>)], next: u64) -> Dirty {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let records: Vec<StateRecord> = records.iter().map(|(key, value)| (bytes(key), value.map(bytes))).collect();
        let mut dirty = Dirty::default();
        dirty.take(records, Epoch(3), Offset(next));
        dirty
    }

    fn loaded(checkpoint: &Checkpoint, partition: u32) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let take = |key: &[u8], value: &[u8]| {
            all.push((text(key), text(value)));
            Ok(())
        };
        checkpoint.load(PartitionId(partition), take).unwrap();
        all
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_checkpoint_survives_a_restart_and_keeps_partitions_apart() {
        let dir = tempfile::tempdir().unwrap();
        {
            let checkpoint = Checkpoints::open(dir.path()).unwrap().keyspace("tally").unwrap();
            let (one, two) = (PartitionId(1), PartitionId(2));
            checkpoint.write_dirty(one, TOPIC, &dirty(&[("a", Some("1")), ("b", Some("2"))], 7)).unwrap();
            checkpoint.write_dirty(two, TOPIC, &dirty(&[("a", Some("3"))], 8)).unwrap();
            checkpoint.write_dirty(one, TOPIC, &dirty(&[("a", None), ("c", Some(""))], 9)).unwrap();
            checkpoint.write_dirty(one, TOPIC, &Dirty::default()).unwrap();
        }
        let checkpoint = Checkpoints::open(dir.path()).unwrap().keyspace("tally").unwrap();
        assert_eq!(loaded(&checkpoint, 1), pairs(&[("b", "2"), ("c", "")]));
        assert_eq!(loaded(&checkpoint, 2), pairs(&[("a", "3")]));
        let reflected = |number| checkpoint.reflected(PartitionId(number)).unwrap();
        let at = |next| Some(Reflected { topic: TOPIC, epoch: Epoch(3), next: Offset(next) });
        assert_eq!((reflected(0), reflected(1), reflected(2)), (None, at(9), at(8)));
        checkpoint.clear(PartitionId(1)).unwrap();
        assert_eq!((reflected(1), reflected(2)), (None, at(8)));
        assert_eq!((loaded(&checkpoint, 1).len(), loaded(&checkpoint, 2).len()), (0, 1));
    }

    #[test]
    fn keys_of_version_1_are_written_byte_for_byte() {
        assert_eq!(key(PartitionId(0x0a), POSITION, &[]), b"\0\0\0\x0ap");
        assert_eq!(key(PartitionId(0x0a), RECORD, b"\x01bolt"), b"\0\0\0\x0ar\x01bolt");
    }

    #[test]
    fn after_a_failed_write_nothing_newer_is_written() {
        let mut dirty = dirty(&[("a", Some("1"))], 7);
        let failed = dirty.drain();
        assert_eq!((failed.records.len(), dirty.records.len()), (1, 0));
        dirty.fall_behind(Behind::ForGood);
        dirty.take(vec![(Bytes::from_static(b"b"), None)], Epoch(3), Offset(8));
        let after = dirty.drain();
        assert!(after.reflected.is_none() && after.records.is_empty() && after.held_bytes() == 0);
        dirty.take(vec![(Bytes::from_static(b"c"), None)], Epoch(3), Offset(9));
        assert!(dirty.reflected.is_none(), "for as long as the owner lives");
    }

    #[test]
    fn a_store_that_panics_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        {
            let checkpoint = Checkpoints::open(dir.path()).unwrap().keyspace("tally").unwrap();
            checkpoint.write_dirty(PartitionId(1), TOPIC, &dirty(&[("a", Some("1"))], 7)).unwrap();
        }
        let journal = dir.path().join("0.jnl");
        std::fs::remove_file(&journal).unwrap();
        std::fs::create_dir(&journal).unwrap();
        let checkpoint = Checkpoints::open(dir.path()).unwrap().keyspace("tally").unwrap();
        assert_eq!(checkpoint.reflected(PartitionId(1)).unwrap(), None);
    }

    #[test]
    fn a_store_with_a_damaged_list_of_tables_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        {
            let checkpoint = Checkpoints::open(dir.path()).unwrap().keyspace("tally").unwrap();
            checkpoint.write_dirty(PartitionId(1), TOPIC, &dirty(&[("a", Some("1"))], 7)).unwrap();
            checkpoint.keyspace.rotate_memtable_and_wait().unwrap();
        }
        let mut damaged = 0;
        for list in lists(dir.path()) {
            let mut bytes = std::fs::read(&list).unwrap();
            // An entry of the file's contents: position (8 bytes), length (8), length of the name (2), name.
            let name = bytes.windows(6).rposition(|six| six == b"tables").unwrap();
            let tables = bytes[name - 18] as usize;
            // The number of levels: with none the store itself finds no tables, and says nothing.
            assert_ne!(std::mem::replace(&mut bytes[tables], 0), 0, "{}", list.display());
            std::fs::write(list, bytes).unwrap();
            damaged += 1;
        }
        assert!(damaged > 0);
        let checkpoint = Checkpoints::open(dir.path()).unwrap().keyspace("tally").unwrap();
        assert_eq!(checkpoint.reflected(PartitionId(1)).unwrap(), None);
        checkpoint.write_dirty(PartitionId(1), TOPIC, &dirty(&[("b", Some("2"))], 8)).unwrap();
        assert_eq!(loaded(&checkpoint, 1), pairs(&[("b", "2")]));
    }

    #[test]
    fn a_condemned_store_is_begun_anew_by_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        {
            let checkpoint = Checkpoints::open(dir.path()).unwrap().keyspace("tally").unwrap();
            checkpoint.write_dirty(PartitionId(1), TOPIC, &dirty(&[("a", Some("1"))], 7)).unwrap();
            checkpoint.condemn();
        }
        for _ in 0..2 {
            let checkpoint = Checkpoints::open(dir.path()).unwrap().keyspace("tally").unwrap();
            assert_eq!(checkpoint.reflected(PartitionId(1)).unwrap(), None);
        }
    }
}
