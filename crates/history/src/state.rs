//! The state that the follower, the compactor and the readers share.
//!
//! A reader takes one snapshot of the file table and of the memtables that are not flushed yet, so it sees each point
//! exactly once. A replaced file is removed once its last reader is done.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_log::Bell;
use millstream_types::{Offset, PartitionId, TopicId};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{oneshot, watch};

use crate::Error;
use crate::catalog_record::Erasure;
use crate::file_table::FileTable;
use crate::memtable::Memtable;

/// A partition of a change topic.
pub(crate) type SourcePartition = (TopicId, PartitionId);

#[derive(Debug)]
pub(crate) struct HistoryState {
    /// The memtable that takes new points; the lock is held while points are added, so a memtable
    /// is sealed between two batches.
    pub(crate) current: Mutex<Arc<Memtable>>,
    shown: RwLock<HistorySnapshot>,
    /// The next offset to read into memtables, per source.
    applied: Mutex<HashMap<SourcePartition, Offset>>,
    /// Wakes waiting reads when an offset in `applied` advances.
    moved: watch::Sender<()>,
    /// The first offset of each source that is not in files.
    pub(crate) in_files: Mutex<HashMap<SourcePartition, Offset>>,
    /// Failures that last until they are repaired, by the partition or task that they concern.
    failures: Mutex<BTreeMap<String, String>>,
    /// Warnings with which history goes on, by the task that they concern.
    warnings: Mutex<BTreeMap<String, String>>,
    /// Missing and damaged files, and why.
    damaged: Mutex<BTreeMap<String, String>>,
    pub(crate) follower_bell: Arc<Bell>,
    pub(crate) compactor_bell: Arc<Bell>,
    pub(crate) erasures: Mutex<Vec<ErasureRequest>>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) counters: HistoryCounters,
}

/// A deletion whose caller waits for the answer.
#[derive(Debug)]
pub(crate) struct ErasureRequest {
    /// The erasure; its number is assigned when it is committed.
    pub(crate) erasure: Erasure,
    pub(crate) answer: oneshot::Sender<Result<(), Error>>,
}

/// A consistent set of files and memtables; each point is in it exactly once.
#[derive(Debug, Clone, Default)]
pub(crate) struct HistorySnapshot {
    pub(crate) files: FileTable,
    /// The memtables, the oldest one first.
    pub(crate) memtables: Vec<Arc<Memtable>>,
}

#[derive(Debug, Default)]
pub(crate) struct HistoryCounters {
    pub(crate) points: AtomicU64,
    /// Records that are unreadable or were trimmed.
    pub(crate) passed_over: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) sampled_out: AtomicU64,
}

impl HistoryState {
    pub(crate) fn new(files: FileTable) -> Self {
        let first = Arc::new(Memtable::default());
        let shown = HistorySnapshot { files, memtables: vec![first.clone()] };
        Self {
            current: Mutex::new(first),
            shown: RwLock::new(shown),
            applied: Mutex::default(),
            moved: watch::Sender::new(()),
            in_files: Mutex::default(),
            failures: Mutex::default(),
            warnings: Mutex::default(),
            damaged: Mutex::default(),
            follower_bell: Arc::default(),
            compactor_bell: Arc::default(),
            erasures: Mutex::default(),
            stopping: Arc::default(),
            counters: HistoryCounters::default(),
        }
    }

    pub(crate) fn snapshot(&self) -> HistorySnapshot {
        self.shown.read().clone()
    }

    pub(crate) fn files(&self) -> FileTable {
        self.shown.read().files.clone()
    }

    /// Starts a new memtable and returns the previous one, which takes no more points.
    pub(crate) fn seal_memtable(&self) -> Arc<Memtable> {
        let mut current = self.current.lock();
        let next = Arc::new(Memtable::default());
        self.shown.write().memtables.push(next.clone());
        std::mem::replace(&mut *current, next)
    }

    /// Publishes `files`, which now contain the points of `written`, and drops that memtable.
    pub(crate) fn show(&self, files: FileTable, written: Option<&Arc<Memtable>>) {
        let mut shown = self.shown.write();
        shown.files = files;
        shown.memtables.retain(|memtable| written.is_none_or(|written| !Arc::ptr_eq(memtable, written)));
    }

    pub(crate) fn applied(&self, source: SourcePartition, next: Offset) {
        self.applied.lock().insert(source, next);
        self.moved.send_replace(());
    }

    /// Returns the next offset to read of a source.
    pub(crate) fn next_of(&self, source: SourcePartition) -> Option<Offset> {
        self.applied.lock().get(&source).copied()
    }

    /// Waits until the memtables cover all of `ends`.
    pub(crate) async fn reached(&self, ends: &[(SourcePartition, Offset)]) {
        let mut moved = self.moved.subscribe();
        loop {
            let is_there = {
                let applied = self.applied.lock();
                ends.iter().all(|(source, end)| applied.get(source).is_some_and(|next| next >= end))
            };
            if is_there || moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns bytes and points that are not in files yet.
    pub(crate) fn recent(&self) -> (usize, usize) {
        let memtables = self.shown.read().memtables.clone();
        let sizes = memtables.iter().map(|memtable| memtable.read(|content| (content.bytes, content.points)));
        sizes.fold((0, 0), |(bytes, points), (more_bytes, more_points)| (bytes + more_bytes, points + more_points))
    }

    /// Tells that something fails, in the log when that begins: `/readyz` says the newest reason, which may name another file each time.
    pub(crate) fn fail(&self, what: &str, reason: &str) {
        if self.failures.lock().insert(what.to_owned(), reason.to_owned()).is_none() {
            tracing::error!(reason, "history: {what}");
        }
    }

    /// Tells the operator that a file is missing or damaged; other files are read as ever.
    pub(crate) fn damaged(&self, path: &Path, reason: &str) {
        let before = self.damaged.lock().insert(path.display().to_string(), reason.to_owned());
        if before.is_none() {
            tracing::error!(path = %path.display(), reason, "history: a file is missing or damaged");
        }
    }

    /// Does so if the error says it.
    pub(crate) fn unreadable(&self, error: &Error) {
        if let Error::File { path, reason } = error {
            self.damaged(path, reason);
        }
    }

    /// Takes back that a file is missing or damaged.
    pub(crate) fn mended(&self, path: &Path) {
        self.damaged.lock().remove(&path.display().to_string());
    }

    pub(crate) fn is_known_damaged(&self, path: &Path) -> bool {
        self.damaged.lock().contains_key(&path.display().to_string())
    }

    pub(crate) fn damaged_files(&self) -> usize {
        self.damaged.lock().len()
    }

    pub(crate) fn recover(&self, what: &str) {
        self.failures.lock().remove(what);
    }

    pub(crate) fn failure(&self, what: &str) -> Option<String> {
        self.failures.lock().get(what).map(|reason| format!("history: {what}: {reason}"))
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().iter().map(|(what, reason)| format!("history: {what}: {reason}")).collect()
    }

    pub(crate) fn warn(&self, what: &str, reason: &str) {
        if self.warnings.lock().insert(what.to_owned(), reason.to_owned()).is_none() {
            tracing::warn!(reason, "history: {what}");
        }
    }

    pub(crate) fn calm(&self, what: &str) {
        self.warnings.lock().remove(what);
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let (warnings, damaged) = (self.warnings.lock(), self.damaged.lock());
        warnings.iter().chain(damaged.iter()).map(|(what, reason)| format!("history: {what}: {reason}")).collect()
    }

    pub(crate) fn pass_over(&self, count: u64) {
        self.counters.passed_over.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
