//! Which files there are. Rebuilt at start from the compacted topic `_history`; changed by its one writer in one append
//! that names new files and how far the sources are in them, and takes away those that they replace.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use imbl::OrdMap;
use millstream_log::{AckLevel, Cleanup, Files, Log, Partition, TopicConfig, UpTo, Writers, reply};
use millstream_types::{BatchLimits, PartitionId, Record, ServicePaths, TopicId, TopicName, TopicPartition};
use parking_lot::Mutex;

use crate::Error;
use crate::catalog_record::{Erasure, FileRecord, Key, PositionRecord, Value};
use crate::file_reader::OpenFile;
use crate::layout::{self, EXTENSION};

const TOPIC: &str = "_history";
const READ_BYTES: usize = 1 << 20;

/// A file that is there. It is removed when it has been replaced and its last reader has left.
pub(crate) struct KeptFile {
    pub(crate) record: FileRecord,
    pub(crate) path: PathBuf,
    files: Arc<dyn Files>,
    replaced: AtomicBool,
    /// With its index, while that is remembered.
    pub(crate) open: Mutex<Option<Arc<OpenFile>>>,
}

impl KeptFile {
    /// Opens it and reads its index.
    pub(crate) fn read_index(&self) -> Result<Arc<OpenFile>, Error> {
        OpenFile::open(&*self.files, &self.path).map(Arc::new)
    }
}

impl std::fmt::Debug for KeptFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptFile({})", self.path.display())
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        if self.replaced.load(Ordering::Acquire)
            && let Err(error) = self.files.remove(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a file of history stays until the next start");
        }
    }
}

/// Tenant, type and day.
pub(crate) type Directory = (Arc<str>, Arc<str>, i32);
/// The files of a directory.
pub(crate) type Siblings = Arc<[Arc<KeptFile>]>;

/// All files at one moment, and what of them does not count. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    directories: OrdMap<Directory, Siblings>,
    pub(crate) erasures: Arc<[Erasure]>,
}

impl Table {
    /// All directories in the order of tenant, type and day.
    pub(crate) fn directories(&self) -> impl Iterator<Item = (&Directory, &Siblings)> {
        self.directories.iter()
    }

    /// The directories of a tenant.
    pub(crate) fn of_tenant(&self, tenant: &str) -> impl Iterator<Item = (&Directory, &Siblings)> {
        let from: Directory = (tenant.into(), "".into(), i32::MIN);
        let tenant = from.0.clone();
        self.directories
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(move |((of, _, _), _)| *of == tenant)
    }

    pub(crate) fn has_directory(&self, directory: &Directory) -> bool {
        self.directories.contains_key(directory)
    }

    pub(crate) fn siblings(&self, directory: &Directory) -> Option<&Siblings> {
        self.directories.get(directory)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<KeptFile>> {
        self.directories.iter().flat_map(|(_, siblings)| siblings.iter())
    }

    /// What was deleted of a file.
    pub(crate) fn erasures_of<'t>(&'t self, file: &'t FileRecord) -> impl Iterator<Item = &'t Erasure> {
        self.erasures.iter().filter(|erasure| erasure.may_concern(file))
    }

    fn add(&mut self, file: Arc<KeptFile>) {
        let record = &file.record;
        let directory: Directory = (record.tenant.as_str().into(), record.kind.as_str().into(), record.day);
        let before = self.directories.get(&directory).map(|siblings| siblings.to_vec()).unwrap_or_default();
        self.directories.insert(directory, before.into_iter().chain([file]).collect());
    }

    fn remove(&mut self, record: &FileRecord) {
        let directory: Directory = (record.tenant.as_str().into(), record.kind.as_str().into(), record.day);
        let Some(siblings) = self.directories.get(&directory) else { return };
        let left: Siblings = siblings.iter().filter(|file| file.record.number != record.number).cloned().collect();
        if left.is_empty() {
            self.directories.remove(&directory);
        } else {
            self.directories.insert(directory, left);
        }
    }
}

impl Erasure {
    fn may_concern(&self, file: &FileRecord) -> bool {
        self.number > file.number
            && self.tenant == file.tenant
            && self.kind.as_ref().is_none_or(|kind| *kind == file.kind)
            && self.id.as_ref().is_none_or(|id| (&file.ids.0..=&file.ids.1).contains(&id))
    }

    /// Whether it takes a series of a file that it concerns.
    pub(crate) fn takes(&self, id: &str, path: &str, attribute: &str) -> bool {
        let paths = self
            .paths
            .as_deref()
            .map_or_else(ServicePaths::default, |paths| ServicePaths::parse(paths).unwrap_or_default());
        self.id.as_ref().is_none_or(|named| named == id)
            && self.attribute.as_ref().is_none_or(|named| named == attribute)
            && paths.have(path)
    }
}

/// A change of the catalog: what one append says.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    pub(crate) added: Vec<FileRecord>,
    pub(crate) removed: Vec<Arc<KeptFile>>,
    pub(crate) positions: Vec<(TopicId, PartitionId, PositionRecord)>,
    /// Sources that are gone.
    pub(crate) ended: Vec<(TopicId, PartitionId)>,
    pub(crate) erased: Option<Erasure>,
    /// Erasures that no file needs any more.
    pub(crate) carried_out: Vec<u64>,
}

/// How far each source is in files.
pub(crate) type Sources = HashMap<(TopicId, PartitionId), PositionRecord>;

/// The one writer of `_history`.
pub(crate) struct Catalog {
    pub(crate) root: PathBuf,
    pub(crate) files: Arc<dyn Files>,
    partition: Arc<dyn Partition>,
    pub(crate) table: Table,
    pub(crate) sources: Sources,
    next_number: u64,
    /// Set once nobody knows whether an edit is durable: the next start will see.
    is_in_doubt: bool,
}

impl Catalog {
    /// Reads `_history`, and removes files below `root` that it does not name. Also tells which it names in vain.
    pub(crate) fn open(root: &Path, files: Arc<dyn Files>, log: &dyn Log) -> Result<(Self, Vec<PathBuf>), Error> {
        let name = TopicName::internal(TOPIC);
        if log.topic(&name).is_none() {
            let config = TopicConfig {
                partitions: 1,
                cleanup: Cleanup::Compact,
                writers: Writers::OwnersOnly,
                retention: None,
                ..TopicConfig::default()
            };
            log.create_topic(&name, &config)?;
        }
        let partition = log.partition(&TopicPartition::new(name, 0))?;
        let root = root.to_owned();
        let (table, sources) = (Table::default(), Sources::default());
        let mut catalog = Self { root, files, partition, table, sources, next_number: 1, is_in_doubt: false };
        let named = catalog.load()?;
        let missing = catalog.compare_with_disk(named)?;
        Ok((catalog, missing))
    }

    fn load(&mut self) -> Result<HashMap<u64, FileRecord>, Error> {
        let (mut named, mut erasures) = (HashMap::new(), HashMap::new());
        let mut next = self.partition.offsets().first;
        loop {
            let batches = self.partition.read(next, READ_BYTES, UpTo::Stable)?;
            let Some(last) = batches.last() else { break };
            next = last.next_offset();
            for batch in &batches {
                let unreadable = |error: millstream_types::BatchError| Error::Record { reason: error.to_string() };
                let batch = batch.inflated(&BatchLimits::default()).map_err(unreadable)?;
                for record in batch.records() {
                    let record = record.map_err(unreadable)?;
                    let key = Key::decode(record.key.unwrap_or_default())?;
                    let value = record.value.map(Value::decode).transpose()?;
                    self.apply(key, value, &mut named, &mut erasures);
                }
            }
        }
        let mut erasures: Vec<Erasure> = erasures.into_values().collect();
        erasures.sort_by_key(|erasure| erasure.number);
        self.table.erasures = erasures.into();
        Ok(named)
    }

    fn apply(
        &mut self,
        key: Key,
        value: Option<Value>,
        named: &mut HashMap<u64, FileRecord>,
        erasures: &mut HashMap<u64, Erasure>,
    ) {
        if let Key::File(number) | Key::Erasure(number) = key {
            self.next_number = self.next_number.max(number + 1);
        }
        match (key, value) {
            (Key::File(number), Some(Value::File(file))) => drop(named.insert(number, file)),
            (Key::File(number), _) => drop(named.remove(&number)),
            (Key::Position(topic, partition), Some(Value::Position(position))) => {
                self.sources.insert((topic, partition), position);
            }
            (Key::Position(topic, partition), _) => drop(self.sources.remove(&(topic, partition))),
            (Key::Erasure(number), Some(Value::Erasure(erasure))) => drop(erasures.insert(number, erasure)),
            (Key::Erasure(number), _) => drop(erasures.remove(&number)),
        }
    }

    /// Removes files that nobody names: leftovers of a crash.
    fn compare_with_disk(&mut self, mut named: HashMap<u64, FileRecord>) -> Result<Vec<PathBuf>, Error> {
        self.files.create_dir_all(&self.root).map_err(|error| Error::io("create", &self.root, error))?;
        let mut found = Vec::new();
        self.list(&self.root, 3, &mut found)?;
        for path in found {
            let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(EXTENSION)?.parse().ok());
            match number.and_then(|number: u64| named.remove_entry(&number)) {
                Some((_, record)) if self.path(&record) == path => self.add(record),
                other => {
                    if let Some((number, record)) = other {
                        named.insert(number, record);
                    }
                    tracing::info!(path = %path.display(), "removing a file of history that was not finished");
                    self.files.remove(&path).map_err(|error| Error::io("remove", &path, error))?;
                }
            }
        }
        Ok(named.into_values().map(|record| self.path(&record)).collect())
    }

    /// The files `depth` directories below `directory`.
    fn list(&self, directory: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Error> {
        let names = self.files.list(directory).map_err(|error| Error::io("list", directory, error))?;
        for name in names {
            let path = directory.join(&name);
            if depth == 0 {
                found.push(path);
            } else if name.contains('=') {
                self.list(&path, depth - 1, found)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, record: FileRecord) {
        let path = self.path(&record);
        let (files, replaced) = (self.files.clone(), AtomicBool::new(false));
        self.table.add(Arc::new(KeptFile { record, path, files, replaced, open: Mutex::default() }));
    }

    /// Where a file lies.
    pub(crate) fn path(&self, record: &FileRecord) -> PathBuf {
        self.path_of(&record.tenant, &record.kind, record.day, record.number)
    }

    pub(crate) fn path_of(&self, tenant: &str, kind: &str, day: i32, number: u64) -> PathBuf {
        layout::directory(&self.root, tenant, kind, day).join(format!("{number:012}{EXTENSION}"))
    }

    /// A number that no file and no erasure has had.
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Makes an edit: durable when it returns. Once one has failed that may yet be there after the next start, there are
    /// no further ones: the same points would be in two files.
    pub(crate) fn commit(&mut self, edit: Edit) -> Result<(), Error> {
        if self.is_in_doubt {
            return Err(Error::Stopped);
        }
        let records = edit.records();
        let records: Vec<Record<'_>> = records
            .iter()
            .map(|(key, value)| Record {
                key: Some(key.as_bytes()),
                value: value.as_ref().map(String::as_bytes),
                ..Record::default()
            })
            .collect();
        let (done, answer) = reply();
        if let Err(error) = self.partition.append(&records, AckLevel::Synced, done) {
            self.discard(&edit.added);
            return Err(error.into());
        }
        self.is_in_doubt = true;
        answer.wait()?;
        self.is_in_doubt = false;
        self.take(edit);
        Ok(())
    }

    /// Removes files that are not to be named.
    pub(crate) fn discard(&self, written: &[FileRecord]) {
        for record in written {
            // If one cannot be removed, the next start does it.
            let _ = self.files.remove(&self.path(record));
        }
    }

    fn take(&mut self, edit: Edit) {
        for file in &edit.removed {
            self.table.remove(&file.record);
            file.replaced.store(true, Ordering::Release);
        }
        edit.added.into_iter().for_each(|record| self.add(record));
        for (topic, partition, position) in edit.positions {
            self.sources.insert((topic, partition), position);
        }
        for ended in edit.ended {
            self.sources.remove(&ended);
        }
        let left = self.table.erasures.iter().filter(|erasure| !edit.carried_out.contains(&erasure.number)).cloned();
        self.table.erasures = left.chain(edit.erased).collect();
    }
}

impl Edit {
    fn records(&self) -> Vec<(String, Option<String>)> {
        let ended = |key: Key| (key.encode(), None);
        let added = self.added.iter().map(|file| (Key::File(file.number), Value::File(file.clone())));
        let positions = self
            .positions
            .iter()
            .map(|(topic, partition, position)| (Key::Position(*topic, *partition), Value::Position(position.clone())));
        let erased = self.erased.iter().map(|erasure| (Key::Erasure(erasure.number), Value::Erasure(erasure.clone())));
        let set = added.chain(positions).chain(erased).map(|(key, value)| (key.encode(), Some(value.encode())));
        let removed = self.removed.iter().map(|file| ended(Key::File(file.record.number)));
        let gone = self.ended.iter().map(|(topic, partition)| ended(Key::Position(*topic, *partition)));
        let carried_out = self.carried_out.iter().map(|number| ended(Key::Erasure(*number)));
        set.chain(removed).chain(gone).chain(carried_out).collect()
    }
}
