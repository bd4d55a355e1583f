//! State that the engine's threads and its partitions share: limits, clocks, files, and the final error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, OnceLock};

use millstream_types::{BatchLimits, Epoch, MonotonicClock, WallClock};
use parking_lot::{Mutex, MutexGuard};

use crate::backpressure::Backpressure;
use crate::block::BLOCK_MAX_BYTES;
use crate::buffers::Buffers;
use crate::host::Host;
use crate::image_holds::ImageHolds;
use crate::journal::Journal;
use crate::layout::Layout;
use crate::segment_cache::SegmentCache;
use crate::space::DiskSpace;
use crate::stats::LogCounters;
use crate::{Error, Files, LogConfig, SeededScheduler};

/// The shared state of one open log.
pub(crate) struct EngineShared {
    pub(crate) config: LogConfig,
    pub(crate) limits: BatchLimits,
    pub(crate) files: Arc<dyn Files>,
    /// Buffers for reads from segments.
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) segment_cache: Arc<SegmentCache>,
    pub(crate) layout: Layout,
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) epoch: Epoch,
    pub(crate) salt: u64,
    pub(crate) journal: Arc<Journal>,
    /// Takes the turns of the engine's tasks; `None` if these have threads.
    pub(crate) scheduler: Option<Arc<SeededScheduler>>,
    pub(crate) backpressure: Backpressure,
    pub(crate) space: DiskSpace,
    pub(crate) counters: LogCounters,
    pub(crate) images: ImageHolds,
    /// Held while an atomic append enters its partitions, and while the appender collects from all of them, so that a
    /// round has all of an atomic append or nothing. Lock order: before any partition.
    gate: Mutex<()>,
    order: AtomicU64,
    closed: AtomicBool,
    ended: OnceLock<Error>,
}

impl EngineShared {
    pub(crate) fn new(
        config: LogConfig,
        host: Host,
        layout: Layout,
        epoch: Epoch,
        salt: u64,
        journal: Arc<Journal>,
    ) -> Self {
        let Host { files, monotonic, wall, scheduler } = host;
        let backpressure = Backpressure::of(&config);
        let space = DiskSpace::new(files.clone(), layout.dir().to_owned(), config.disk_free_min_bytes);
        let limits = BatchLimits { batch_max_bytes: 1 << 30, ..BatchLimits::default() };
        Self {
            config,
            limits,
            files,
            buffers: Buffers::of(BLOCK_MAX_BYTES),
            segment_cache: SegmentCache::new(),
            layout,
            monotonic,
            wall,
            epoch,
            salt,
            journal,
            scheduler,
            backpressure,
            space,
            counters: LogCounters::default(),
            images: ImageHolds::default(),
            gate: Mutex::new(()),
            order: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ended: OnceLock::new(),
        }
    }

    /// Checks that the log accepts appends.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if !self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.ended.get().cloned().unwrap_or(Error::Stopped))
    }

    /// Waits for the engine's answer.
    ///
    /// # Errors
    /// The answer's error; [`Error::Stopped`] if nobody answers any more.
    pub(crate) fn answer<T>(&self, answer: &Receiver<Result<T, Error>>) -> Result<T, Error> {
        let Some(scheduler) = &self.scheduler else {
            return answer.recv().unwrap_or(Err(Error::Stopped));
        };
        scheduler.until(|| match answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::Stopped)),
        })
    }

    /// Refuses appends from now on. A thread that holds a partition's lock may still finish one.
    pub(crate) fn stop(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Ends writing after a failed write or sync. Nothing is retried.
    pub(crate) fn end(&self, cause: &Error) -> Error {
        let source = match cause {
            Error::Io { source, .. } | Error::WritingEnded { source, .. } => source.clone(),
            other => Arc::new(std::io::Error::other(other.to_string())),
        };
        let error = Error::WritingEnded { path: self.layout.dir().to_owned(), source };
        if self.ended.set(error.clone()).is_ok() {
            let cause: &dyn std::error::Error = cause;
            tracing::error!(dir = %self.layout.dir().display(), error = cause, "writing to the log has ended");
        }
        self.closed.store(true, Ordering::Release);
        self.journal.wake();
        self.ended.get().cloned().unwrap_or(error)
    }

    /// The error that ended writing, if one did.
    pub(crate) fn ended(&self) -> Option<Error> {
        self.ended.get().cloned()
    }

    pub(crate) fn gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock()
    }

    /// The next order number of the journal. Call it with the partition's lock held.
    pub(crate) fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed)
    }
}
