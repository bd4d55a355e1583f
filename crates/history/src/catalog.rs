//! The catalog of files. It is rebuilt at start from the compacted topic `_history` and has one writer. One append adds
//! new files with the source positions that they cover, and removes the files that they replace.
//!
//! The change topics cannot replace it: retention ends them, and deletions and sampling are recorded here alone. So
//! each edit goes to `_history_copy` in the same append, and a topic that is missing is filled from the other one.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_log::{
    AckLevel, Appended, AtomicAppend, DerivedTopic, Files, Log, Partition, Reply, TopicConfig, Writer, reply,
};
use millstream_types::{PartitionId, ServicePaths, StateTopic, TopicId, TopicName};

use crate::Error;
use crate::catalog_content::{CatalogContent, EncodedRecord, borrowed};
use crate::catalog_record::{CatalogKey, CatalogValue, Erasure, FileRecord, PositionRecord};
use crate::file_copies::FileCopies;
use crate::file_period::FilePeriod;
use crate::file_table::{DataFile, FileTable};
use crate::layout::{self, EXTENSION};
use crate::replaced_files::ReplacedFiles;
use crate::topics::open_topic;

/// The name of the only writer of both.
const WRITER: &str = "history";
/// Pause before the log is asked again that could not answer.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Reads both topics and makes them equal. A topic that was created anew has nothing or, after a crash, a part of the
/// other one. Otherwise `_history` counts: earlier versions do not write the copy.
fn one_content(partitions: &[Arc<dyn Partition>; 2]) -> Result<CatalogContent, Error> {
    let [content, copy] = [CatalogContent::read(&*partitions[0])?, CatalogContent::read(&*partitions[1])?];
    let next_number = content.next_number.max(copy.next_number);
    let complete = if content.is_part_of(&copy) {
        content.make_equal(&*partitions[0], &copy)?;
        copy
    } else {
        copy.make_equal(&*partitions[1], &content)?;
        content
    };
    Ok(CatalogContent { next_number, ..complete })
}

impl Erasure {
    pub(crate) fn may_concern(&self, file: &FileRecord) -> bool {
        self.number > file.number
            && self.tenant == file.tenant
            && self.kind.as_ref().is_none_or(|kind| *kind == file.kind)
            && self.id.as_ref().is_none_or(|id| (&file.ids.0..=&file.ids.1).contains(&id))
    }

    /// Tells if the erasure covers this series of a file that it applies to.
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

/// A change of the catalog, committed in one append.
#[derive(Debug, Default)]
pub(crate) struct CatalogEdit {
    pub(crate) added: Vec<FileRecord>,
    pub(crate) removed: Vec<Arc<DataFile>>,
    /// Named files that get a copy.
    pub(crate) copied: Vec<FileRecord>,
    pub(crate) positions: Vec<(TopicId, PartitionId, PositionRecord)>,
    /// Sources whose topics were deleted.
    pub(crate) ended: Vec<(TopicId, PartitionId)>,
    pub(crate) erased: Option<Erasure>,
    /// Erasures that no file needs any more.
    pub(crate) carried_out: Vec<u64>,
}

/// The position of each source that files cover.
pub(crate) type SourcePositions = HashMap<(TopicId, PartitionId), PositionRecord>;

/// The topics of the catalog. Each can be rebuilt from the other.
pub(crate) fn derived_topics() -> [DerivedTopic; 2] {
    [(StateTopic::History, StateTopic::HistoryCopy), (StateTopic::HistoryCopy, StateTopic::History)].map(
        |(name, source)| DerivedTopic {
            name: TopicName::internal(name),
            source: Some(TopicName::internal(source)),
            loses: "nothing: another topic has the same records",
        },
    )
}

/// The only writer of `_history` and `_history_copy`.
pub(crate) struct FileCatalog {
    pub(crate) root: PathBuf,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) replaced_files: Arc<ReplacedFiles>,
    log: Arc<dyn Log>,
    writer: Arc<dyn Writer>,
    /// Those of the two topics.
    partitions: [Arc<dyn Partition>; 2],
    pub(crate) table: FileTable,
    pub(crate) sources: SourcePositions,
    next_number: u64,
    /// The copies of files, if the log is on other machines.
    copies: Option<Arc<FileCopies>>,
    /// Set once the writer can do no more, and its name has to be taken again.
    is_writer_over: bool,
    /// Set when an edit may or may not be durable, and only a restart can tell.
    is_in_doubt: bool,
    /// Set once history stops: nothing waits for the log then.
    pub(crate) is_stopping: Arc<AtomicBool>,
}

impl FileCatalog {
    /// Reads the catalog and removes files below `root` that it does not name. Named files that are missing are
    /// marked as damaged.
    pub(crate) fn open(root: &Path, files: Arc<dyn Files>, log: &Arc<dyn Log>) -> Result<Self, Error> {
        let writer = log.writer(WRITER)?;
        let open = |topic| open_topic(&**log, topic, TopicConfig::default().compression);
        let partitions = [open(StateTopic::History)?, open(StateTopic::HistoryCopy)?];
        let content = one_content(&partitions)?;
        let root = root.to_owned();
        let (table, sources, next_number) = (FileTable::default(), SourcePositions::default(), content.next_number);
        let copies = FileCopies::open(log, &files, &root)?;
        let replaced_files = ReplacedFiles::new(files.clone());
        let mut catalog = Self {
            root,
            files,
            replaced_files,
            log: Arc::clone(log),
            writer,
            partitions,
            table,
            sources,
            next_number,
            copies,
            is_writer_over: false,
            is_in_doubt: false,
            is_stopping: Arc::default(),
        };
        let named = catalog.take_content(content);
        catalog.compare_with_disk(named)?;
        Ok(catalog)
    }

    /// Takes over positions and erasures; returns the named files by number.
    fn take_content(&mut self, content: CatalogContent) -> HashMap<u64, FileRecord> {
        let (mut named, mut erasures) = (HashMap::new(), Vec::new());
        for (key, value) in content.values {
            match (key, value) {
                (CatalogKey::File(number), CatalogValue::File(mut file)) => {
                    file.copy =
                        file.copy.filter(|copy| self.copies.as_ref().is_some_and(|copies| copies.may_have(*copy)));
                    named.insert(number, file);
                }
                (CatalogKey::Position(topic, partition), CatalogValue::Position(position)) => {
                    self.sources.insert((topic, partition), position);
                }
                // In the order of their numbers, as keys are.
                (CatalogKey::Erasure(_), CatalogValue::Erasure(erasure)) => erasures.push(erasure),
                _ => {}
            }
        }
        self.table.erasures = erasures.into();
        named
    }

    /// Adds the named files to the table, and removes others, which a crash left behind.
    fn compare_with_disk(&mut self, mut named: HashMap<u64, FileRecord>) -> Result<(), Error> {
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
                    tracing::info!(path = %path.display(), "removing an unfinished history file");
                    self.files.remove(&path).map_err(|error| Error::io("remove", &path, error))?;
                }
            }
        }
        let missing: HashSet<u64> = named.keys().copied().collect();
        named.into_values().for_each(|record| self.add(record));
        self.table.files().filter(|file| missing.contains(&file.record.number)).for_each(|file| file.mark_missing());
        Ok(())
    }

    /// Lists the files that are `depth` directories below `directory`.
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
        let (replaced_files, copies) = (self.replaced_files.clone(), self.copies.clone());
        self.table.add(Arc::new(DataFile::new(record, path, replaced_files, copies)));
    }

    /// `true` if files have copies in the log.
    pub(crate) fn keeps_copies(&self) -> bool {
        self.copies.is_some()
    }

    /// Returns the path of a file.
    pub(crate) fn path(&self, record: &FileRecord) -> PathBuf {
        self.path_of(&record.tenant, &record.kind, record.period(), record.number)
    }

    pub(crate) fn path_of(&self, tenant: &str, kind: &str, period: FilePeriod, number: u64) -> PathBuf {
        layout::directory(&self.root, tenant, kind, period).join(format!("{number:012}{EXTENSION}"))
    }

    /// Returns a number that no file and no erasure has used.
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Commits an edit; it is durable on return. If the log does not say whether it was stored, this finds out, and waits for
    /// the log as long as that takes. After a failure that leaves an edit in doubt, further edits are refused, because the same
    /// points could end up in two files.
    pub(crate) fn commit(&mut self, mut edit: CatalogEdit) -> Result<(), Error> {
        if self.is_in_doubt {
            return Err(Error::Stopped);
        }
        let (records, answer) = match self.accept(&mut edit) {
            Ok(accepted) => accepted,
            Err(error) => {
                // Without the writer there is nothing to abort.
                let _ = self.writer.abort();
                self.is_writer_over = matches!(&error, Error::Log(error) if error.needs_writer());
                self.discard(&edit.added);
                return Err(error);
            }
        };
        self.is_in_doubt = true;
        match answer.wait() {
            Ok(_) => {}
            Err(error) if error.needs_writer() => {
                tracing::warn!(%error, "an edit of the catalog is looked for");
                if !self.was_stored(&records)? {
                    self.is_in_doubt = false;
                    self.discard(&edit.added);
                    return Err(error.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.is_in_doubt = false;
        self.take(edit);
        Ok(())
    }

    /// Hands an edit to the log, with the copies of its files; returns the records of the catalog, and the answer to come.
    fn accept(&mut self, edit: &mut CatalogEdit) -> Result<(Vec<EncodedRecord>, Reply<Vec<Appended>>), Error> {
        if std::mem::take(&mut self.is_writer_over) {
            self.writer = self.log.writer(WRITER)?;
        }
        if let Some(copies) = self.copies.clone() {
            for record in edit.added.iter_mut().chain(&mut edit.copied) {
                let path = self.path(record);
                record.copy = Some(copies.append(&*self.writer, record, &path, &self.is_stopping)?.0);
            }
        }
        let (records, gone) = (edit.records(), edit.gone_copies());
        let of_catalog = self.partitions.iter().map(|partition| (partition.id().clone(), borrowed(&records)));
        let of_copies = self.copies.iter().map(|copies| (copies.partition().clone(), borrowed(&gone)));
        let of_copies = of_copies.filter(|(_, records)| !records.is_empty());
        let append = AtomicAppend { records: of_catalog.chain(of_copies).collect(), positions: Vec::new() };
        let (done, answer) = reply();
        self.writer.commit(&append, AckLevel::Synced, done)?;
        Ok((records, answer))
    }

    /// Takes the writer again, which decides the edit in doubt; `true` if these records are stored.
    fn was_stored(&mut self, records: &[EncodedRecord]) -> Result<bool, Error> {
        loop {
            let taken = self.log.writer(WRITER).map_err(Error::from).and_then(|writer| {
                self.writer = writer;
                CatalogContent::read(&*self.partitions[0])
            });
            match taken {
                Ok(content) => return content.has(records),
                Err(Error::Log(error)) if error.is_retryable() && !self.is_stopping.load(Ordering::Acquire) => {
                    std::thread::sleep(RETRY_AFTER);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes files that will not be named.
    pub(crate) fn discard(&self, written: &[FileRecord]) {
        for record in written {
            // The next start removes leftovers.
            let _ = self.files.remove(&self.path(record));
        }
    }

    fn take(&mut self, edit: CatalogEdit) {
        for file in &edit.removed {
            self.table.remove(&file.record);
            file.mark_replaced();
        }
        for record in edit.copied {
            self.table.remove(&record);
            self.add(record);
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

impl CatalogEdit {
    fn records(&self) -> Vec<EncodedRecord> {
        let ended = |key: CatalogKey| (key.encode(), None);
        let named = self.added.iter().chain(&self.copied);
        let added = named.map(|file| (CatalogKey::File(file.number), CatalogValue::File(file.clone())));
        let positions = self.positions.iter().map(|(topic, partition, position)| {
            (CatalogKey::Position(*topic, *partition), CatalogValue::Position(position.clone()))
        });
        let erased = self
            .erased
            .iter()
            .map(|erasure| (CatalogKey::Erasure(erasure.number), CatalogValue::Erasure(erasure.clone())));
        let set = added.chain(positions).chain(erased).map(|(key, value)| (key.encode(), Some(value.encode())));
        let removed = self.removed.iter().map(|file| ended(CatalogKey::File(file.record.number)));
        let gone = self.ended.iter().map(|(topic, partition)| ended(CatalogKey::Position(*topic, *partition)));
        let carried_out = self.carried_out.iter().map(|number| ended(CatalogKey::Erasure(*number)));
        set.chain(removed).chain(gone).chain(carried_out).collect()
    }

    /// Tombstones for the copies of removed files.
    fn gone_copies(&self) -> Vec<EncodedRecord> {
        self.removed.iter().flat_map(|file| FileCopies::keys(&file.record)).map(|key| (key, None)).collect()
    }
}

#[cfg(test)]
mod tests {
    use millstream_log::Error as LogError;
    use millstream_testkit::MemoryLog;
    use millstream_types::SystemClock;

    use super::*;

    fn position(offset: u64) -> (TopicId, PartitionId, PositionRecord) {
        (TopicId(7), PartitionId(0), PositionRecord { topic: "changes".to_owned(), epoch: 1, offset })
    }

    fn covered(catalog: &FileCatalog) -> Option<u64> {
        catalog.sources.get(&(TopicId(7), PartitionId(0))).map(|position| position.offset)
    }

    #[test]
    fn an_edit_in_doubt_is_taken_if_it_is_stored_and_else_refused() {
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryLog::open(Arc::new(SystemClock::default()));
        let open = |log: Arc<MemoryLog>| {
            FileCatalog::open(dir.path(), Arc::new(millstream_log::SystemFiles), &(log as Arc<dyn Log>)).unwrap()
        };
        let mut catalog = open(Arc::clone(&memory));
        let move_to = |catalog: &mut FileCatalog, offset: u64| {
            catalog.commit(CatalogEdit { positions: vec![position(offset)], ..CatalogEdit::default() })
        };
        move_to(&mut catalog, 1).unwrap();
        memory.lose_next_answer(WRITER, true);
        move_to(&mut catalog, 2).unwrap();
        assert_eq!(covered(&catalog), Some(2));

        memory.lose_next_answer(WRITER, false);
        assert!(matches!(move_to(&mut catalog, 3), Err(Error::Log(LogError::OutcomeUnknown { .. }))));
        let unreachable = LogError::Unreachable { brokers: "kafka-1:9092".to_owned(), why: "no answer".to_owned() };
        memory.fail_next_commit(WRITER, unreachable);
        assert!(matches!(move_to(&mut catalog, 3), Err(Error::Log(LogError::Unreachable { .. }))));
        assert_eq!(covered(&catalog), Some(2));
        assert_eq!(covered(&open(memory.reopened())), Some(2));

        let mut catalog = open(memory.reopened());
        move_to(&mut catalog, 3).unwrap();
        assert_eq!(covered(&catalog), Some(3));
    }

    #[test]
    fn an_edit_in_doubt_that_removes_is_told_by_what_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryLog::open(Arc::new(SystemClock::default()));
        let log: Arc<dyn Log> = memory.clone();
        let mut catalog = FileCatalog::open(dir.path(), Arc::new(millstream_log::SystemFiles), &log).unwrap();
        catalog.commit(CatalogEdit { positions: vec![position(1)], ..CatalogEdit::default() }).unwrap();
        let end = || CatalogEdit { ended: vec![(TopicId(7), PartitionId(0))], ..CatalogEdit::default() };
        memory.lose_next_answer(WRITER, false);
        catalog.commit(end()).unwrap_err();
        assert_eq!(covered(&catalog), Some(1));
        memory.lose_next_answer(WRITER, true);
        catalog.commit(end()).unwrap();
        assert_eq!(covered(&catalog), None);
    }
}
