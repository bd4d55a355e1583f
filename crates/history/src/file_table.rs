//! The files that the catalog names, by directory.

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use imbl::OrdMap;
use parking_lot::Mutex;

use crate::Error;
use crate::catalog_record::{Erasure, FileRecord};
use crate::file_copies::FileCopies;
use crate::file_period::{FileDirectory, FilePeriod, Span};
use crate::file_reader::OpenFile;
use crate::replaced_files::ReplacedFiles;

/// A named file. It is removed once it is replaced and its last reader is done.
pub(crate) struct DataFile {
    pub(crate) record: FileRecord,
    pub(crate) path: PathBuf,
    replaced_files: Arc<ReplacedFiles>,
    replaced: AtomicBool,
    /// Set once the file is known to be missing or damaged; merges leave it alone then.
    damaged: AtomicBool,
    /// The place of its copy.
    copies: Option<Arc<FileCopies>>,
    /// Set if the file was missing at start and has a copy.
    is_elsewhere: AtomicBool,
    /// `true` once the copy was fetched, which is done once.
    fetched: Mutex<bool>,
    /// The open file with its index, while the cache holds it.
    pub(crate) open: Mutex<Option<Arc<OpenFile>>>,
}

impl DataFile {
    /// A file that is there.
    pub(crate) fn new(
        record: FileRecord,
        path: PathBuf,
        replaced_files: Arc<ReplacedFiles>,
        copies: Option<Arc<FileCopies>>,
    ) -> Self {
        let (replaced, damaged, is_elsewhere, fetched, open) = Default::default();
        Self { record, path, replaced_files, replaced, damaged, copies, is_elsewhere, fetched, open }
    }

    /// Reads all of the file.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        self.read_index()?.verify()
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
        self.is_elsewhere.store(false, Ordering::Relaxed);
    }

    /// Notes that no file is there: it is damaged, or has to be fetched.
    pub(crate) fn mark_missing(&self) {
        let mark = if self.has_copy() { &self.is_elsewhere } else { &self.damaged };
        mark.store(true, Ordering::Relaxed);
    }

    /// Removes the file once its last reader is done.
    pub(crate) fn mark_replaced(&self) {
        self.replaced.store(true, Ordering::Release);
    }

    /// Opens the file and reads its index; fetches it first if it is missing or damaged and has a copy.
    pub(crate) fn read_index(&self) -> Result<Arc<OpenFile>, Error> {
        match self.open_here() {
            Err(error @ Error::File { .. }) => {
                if self.fetch()? {
                    self.open_here()
                } else {
                    Err(error)
                }
            }
            opened => opened,
        }
    }

    fn open_here(&self) -> Result<Arc<OpenFile>, Error> {
        OpenFile::open(self.replaced_files.files(), &self.path, &self.record).map(Arc::new)
    }

    pub(crate) fn has_copy(&self) -> bool {
        self.copies.is_some() && self.record.copy.is_some()
    }

    /// `true` if the file was missing at start and can be fetched.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.is_elsewhere.load(Ordering::Relaxed)
    }

    /// `true` if the file has a copy that was not fetched yet.
    pub(crate) fn can_be_fetched(&self) -> bool {
        self.has_copy() && !*self.fetched.lock()
    }

    /// Fetches the file, once in its life; `false` if it has no copy.
    pub(crate) fn fetch(&self) -> Result<bool, Error> {
        let Some(copies) = self.copies.as_ref().filter(|_| self.has_copy()) else { return Ok(false) };
        let mut fetched = self.fetched.lock();
        if !*fetched {
            let done = copies.fetch(&self.record, &self.path);
            // A copy that is incomplete stays so.
            *fetched = matches!(done, Ok(()) | Err(Error::File { .. }));
            done?;
            self.is_elsewhere.store(false, Ordering::Relaxed);
            self.damaged.store(false, Ordering::Relaxed);
            *self.open.lock() = None;
        }
        Ok(true)
    }
}

impl std::fmt::Debug for DataFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DataFile({})", self.path.display())
    }
}

impl Drop for DataFile {
    fn drop(&mut self) {
        if self.replaced.load(Ordering::Acquire) {
            self.replaced_files.remove(std::mem::take(&mut self.path));
        }
    }
}

/// The files of one directory.
pub(crate) type Siblings = Arc<[Arc<DataFile>]>;

/// All files and erasures at one moment; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileTable {
    directories: OrdMap<FileDirectory, Siblings>,
    pub(crate) erasures: Arc<[Erasure]>,
}

impl FileTable {
    /// Iterates all directories, ordered by tenant, type and period.
    pub(crate) fn directories(&self) -> impl Iterator<Item = (&FileDirectory, &Siblings)> {
        self.directories.iter()
    }

    /// Iterates the directories of a tenant.
    pub(crate) fn of_tenant(&self, tenant: &str) -> impl Iterator<Item = (&FileDirectory, &Siblings)> {
        let first = FilePeriod { first_day: i32::MIN, span: Span::Day };
        let from: FileDirectory = (tenant.into(), "".into(), first);
        let tenant = from.0.clone();
        self.directories
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(move |((of, _, _), _)| *of == tenant)
    }

    pub(crate) fn siblings(&self, directory: &FileDirectory) -> Option<&Siblings> {
        self.directories.get(directory)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<DataFile>> {
        self.directories.iter().flat_map(|(_, siblings)| siblings.iter())
    }

    /// Returns the erasures that apply to a file.
    pub(crate) fn erasures_of<'t>(&'t self, file: &'t FileRecord) -> impl Iterator<Item = &'t Erasure> {
        self.erasures.iter().filter(|erasure| erasure.may_concern(file))
    }

    pub(crate) fn add(&mut self, file: Arc<DataFile>) {
        let directory = file.record.directory();
        let before = self.directories.get(&directory).map(|siblings| siblings.to_vec()).unwrap_or_default();
        self.directories.insert(directory, before.into_iter().chain([file]).collect());
    }

    pub(crate) fn remove(&mut self, record: &FileRecord) {
        let directory = record.directory();
        let Some(siblings) = self.directories.get(&directory) else { return };
        let left: Siblings = siblings.iter().filter(|file| file.record.number != record.number).cloned().collect();
        if left.is_empty() {
            self.directories.remove(&directory);
        } else {
            self.directories.insert(directory, left);
        }
    }
}
