//! What the threads of history and its readers share.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_log::Bell;
use millstream_types::{Offset, PartitionId, TopicId};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{oneshot, watch};

use crate::Error;
use crate::catalog::Table;
use crate::catalog_record::Erasure;
use crate::generation::Generation;

/// Which partition of which topic.
pub(crate) type Source = (TopicId, PartitionId);

/// Shared by the thread that follows, the thread that keeps files, and readers.
#[derive(Debug)]
pub(crate) struct Shared {
    /// What is written to; locked while points are added, so that a generation ends between two batches.
    pub(crate) current: Mutex<Arc<Generation>>,
    shown: RwLock<Snapshot>,
    /// How far each source has been read into generations.
    applied: Mutex<HashMap<Source, Offset>>,
    /// Changes whenever one of these does.
    moved: watch::Sender<()>,
    /// How far each source is in files.
    pub(crate) in_files: Mutex<HashMap<Source, Offset>>,
    /// What does not come right by itself, by what it concerns.
    failures: Mutex<BTreeMap<String, String>>,
    pub(crate) follower_bell: Arc<Bell>,
    pub(crate) keeper_bell: Arc<Bell>,
    pub(crate) erasures: Mutex<Vec<ErasureAsked>>,
    pub(crate) stopping: AtomicBool,
    pub(crate) counters: Counters,
}

/// A deletion that somebody waits for.
#[derive(Debug)]
pub(crate) struct ErasureAsked {
    /// Its number is given when it is carried out.
    pub(crate) erasure: Erasure,
    pub(crate) answer: oneshot::Sender<Result<(), Error>>,
}

/// Everything at one moment: each point is in it once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) files: Table,
    /// Oldest first.
    pub(crate) generations: Vec<Arc<Generation>>,
}

/// Counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) points: AtomicU64,
    /// Records that could not be read or were trimmed, and points for which there was no file.
    pub(crate) passed_over: AtomicU64,
    pub(crate) merges: AtomicU64,
    /// Points that sampling has left out.
    pub(crate) sampled_out: AtomicU64,
}

impl Shared {
    pub(crate) fn new(files: Table) -> Self {
        let first = Arc::new(Generation::default());
        let shown = Snapshot { files, generations: vec![first.clone()] };
        Self {
            current: Mutex::new(first),
            shown: RwLock::new(shown),
            applied: Mutex::default(),
            moved: watch::Sender::new(()),
            in_files: Mutex::default(),
            failures: Mutex::default(),
            follower_bell: Arc::default(),
            keeper_bell: Arc::default(),
            erasures: Mutex::default(),
            stopping: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.shown.read().clone()
    }

    pub(crate) fn files(&self) -> Table {
        self.shown.read().files.clone()
    }

    /// Begins a new generation; the one before is only read from now on.
    pub(crate) fn end_generation(&self) -> Arc<Generation> {
        let mut current = self.current.lock();
        let next = Arc::new(Generation::default());
        self.shown.write().generations.push(next.clone());
        std::mem::replace(&mut *current, next)
    }

    /// Shows `files`, which hold the points of `written`.
    pub(crate) fn show(&self, files: Table, written: Option<&Arc<Generation>>) {
        let mut shown = self.shown.write();
        shown.files = files;
        shown.generations.retain(|generation| written.is_none_or(|written| !Arc::ptr_eq(generation, written)));
    }

    pub(crate) fn applied(&self, source: Source, next: Offset) {
        self.applied.lock().insert(source, next);
        self.moved.send_replace(());
    }

    /// How far a source has been read.
    pub(crate) fn next_of(&self, source: Source) -> Option<Offset> {
        self.applied.lock().get(&source).copied()
    }

    /// Waits until all of `ends` are in generations.
    pub(crate) async fn reached(&self, ends: &[(Source, Offset)]) {
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

    /// Bytes and points that are in no file yet.
    pub(crate) fn recent(&self) -> (usize, usize) {
        let generations = self.shown.read().generations.clone();
        let sizes = generations.iter().map(|generation| generation.read(|content| (content.bytes, content.points)));
        sizes.fold((0, 0), |(bytes, points), (more_bytes, more_points)| (bytes + more_bytes, points + more_points))
    }

    pub(crate) fn fail(&self, what: &str, reason: &str) {
        let before = self.failures.lock().insert(what.to_owned(), reason.to_owned());
        if before.as_deref() != Some(reason) {
            tracing::error!(reason, "history: {what}");
        }
    }

    /// Notes a file that is not what was written, or not there.
    pub(crate) fn unreadable(&self, error: &Error) {
        match error {
            Error::File { path, reason } => self.fail(&path.display().to_string(), reason),
            Error::Io { path, source, .. }
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) =>
            {
                self.fail(&path.display().to_string(), &source.to_string());
            }
            _ => {}
        }
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

    pub(crate) fn pass_over(&self, count: u64) {
        self.counters.passed_over.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
