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

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use millstream_types::{Epoch, Offset, PartitionId, TopicId};

use crate::Error;
use crate::dirty::Dirty;
use crate::source::{decode_position, encode_position};

const POSITION: u8 = b'p';
const RECORD: u8 = b'r';

/// A file that says that the store is damaged: the next start begins a new one.
const CONDEMNED: &str = "condemned";

/// What is logged when a checkpoint could not be written.
pub(crate) const NOT_WRITTEN: &str =
    "checkpoint not written; it stays as it is and the next start reads more of the log";

/// The process's checkpoint store.
pub struct Checkpoints {
    path: PathBuf,
    database: Database,
}

impl std::fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checkpoints({})", self.path.display())
    }
}

impl Checkpoints {
    /// Opens the store in `path`. One that cannot be read is removed and begun anew: the log has everything.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if another process uses it, or if even a new one cannot be made.
    pub fn open(path: &Path) -> Result<Arc<Self>, Error> {
        let open = || Database::builder(path).worker_threads(1).open();
        if path.join(CONDEMNED).exists() {
            begin_anew(path, &"it was found damaged");
        }
        let database = open().or_else(|failure| match failure {
            fjall::Error::Locked => Err(failure),
            damage => {
                begin_anew(path, &damage);
                open()
            }
        });
        match database {
            Ok(database) => Ok(Arc::new(Self { path: path.to_owned(), database })),
            Err(source) => Err(Error::Checkpoint { path: path.to_owned(), source: Arc::new(source) }),
        }
    }

    pub(crate) fn keyspace(self: &Arc<Self>, view: &str) -> Result<Checkpoint, Error> {
        let keyspace = self.database.keyspace(view, KeyspaceCreateOptions::default).map_err(|e| self.error(e))?;
        Ok(Checkpoint { store: Arc::clone(self), keyspace })
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// [`Error::Checkpoint`].
    pub fn sync(&self) -> Result<(), Error> {
        self.database.persist(PersistMode::SyncAll).map_err(|e| self.error(e))
    }

    fn error(&self, source: fjall::Error) -> Error {
        Error::Checkpoint { path: self.path.clone(), source: Arc::new(source) }
    }
}

fn begin_anew(path: &Path, damage: &dyn std::fmt::Display) {
    tracing::warn!(path = %path.display(), error = %damage, "checkpoint store is unusable; rebuilding it from the log");
    if let Err(e) = std::fs::remove_dir_all(path) {
        tracing::warn!(path = %path.display(), error = %e, "cannot remove the unusable checkpoint store");
    }
}

/// One view's part of the store.
pub(crate) struct Checkpoint {
    store: Arc<Checkpoints>,
    keyspace: Keyspace,
}

/// What a checkpoint reflects of its partition's state topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reflected {
    pub(crate) topic: TopicId,
    pub(crate) epoch: Epoch,
    pub(crate) next: Offset,
}

impl Checkpoint {
    /// What the copy of `partition` reflects; `None` if there is no copy.
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
    fn write<'a>(
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
        batch.commit().map_err(|e| self.store.error(e))
    }
}

fn key(partition: PartitionId, kind: u8, record: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(5 + record.len());
    key.extend_from_slice(&partition.0.to_be_bytes());
    key.push(kind);
    key.extend_from_slice(record);
    key
}
