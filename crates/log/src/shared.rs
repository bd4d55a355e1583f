//! What the engine's threads and its partitions share: limits, clocks, files, the work to be done, and how it ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millstream_types::{BatchLimits, Epoch, MonotonicClock, WallClock};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::block::BLOCK_MAX_BYTES;
use crate::buffers::Buffers;
use crate::compaction::Compaction;
use crate::journal::Journal;
use crate::layout::Layout;
use crate::partition::PartitionLog;
use crate::room::Room;
use crate::round::Control;
use crate::space::Space;
use crate::stats::Counters;
use crate::syncer::SyncQueue;
use crate::writeback::FlushQueue;
use crate::{Error, Files, LogConfig};

/// How long the appender gathers records that nobody waits for, and those that somebody else is about to write.
const LINGER: Duration = Duration::from_millis(1);

/// See the module.
pub(crate) struct Shared {
    pub(crate) config: LogConfig,
    pub(crate) limits: BatchLimits,
    pub(crate) files: Arc<dyn Files>,
    /// For what readers get from segments.
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) layout: Layout,
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) epoch: Epoch,
    pub(crate) salt: u64,
    pub(crate) journal: Arc<Journal>,
    pub(crate) room: Room,
    pub(crate) space: Space,
    pub(crate) work: WorkQueue,
    pub(crate) sync: SyncQueue,
    pub(crate) flush: FlushQueue,
    pub(crate) compaction: Compaction,
    pub(crate) counters: Counters,
    /// Held while an atomic append enters its partitions and while the appender takes from all of them, so that a round
    /// has the whole of an atomic append or nothing of it. Taken before any partition's lock.
    gate: Mutex<()>,
    order: AtomicU64,
    closed: AtomicBool,
    ended: OnceLock<Error>,
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "called once, by open, which has just gathered these")]
    pub(crate) fn new(
        config: LogConfig,
        files: Arc<dyn Files>,
        layout: Layout,
        monotonic: Arc<dyn MonotonicClock>,
        wall: Arc<dyn WallClock>,
        epoch: Epoch,
        salt: u64,
        journal: Arc<Journal>,
    ) -> Self {
        let room = Room::of(&config);
        let space = Space::new(files.clone(), layout.dir().to_owned(), config.disk_free_min_bytes);
        let limits = BatchLimits { batch_max_bytes: 1 << 30, ..BatchLimits::default() };
        Self {
            config,
            limits,
            files,
            buffers: Buffers::of(BLOCK_MAX_BYTES),
            layout,
            monotonic,
            wall,
            epoch,
            salt,
            journal,
            room,
            space,
            work: WorkQueue::default(),
            sync: SyncQueue::default(),
            flush: FlushQueue::default(),
            compaction: Compaction::default(),
            counters: Counters::default(),
            gate: Mutex::new(()),
            order: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ended: OnceLock::new(),
        }
    }

    /// Whether appends are taken.
    ///
    /// # Errors
    /// [`Error::WritingEnded`], [`Error::Stopped`].
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if !self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.ended.get().cloned().unwrap_or(Error::Stopped))
    }

    /// No append is taken from now on, except by those who hold a partition's lock already.
    pub(crate) fn stop(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// A write or a sync failed: nothing is written from now on, and nothing retried.
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

    /// Why nothing is written any more, if that is so.
    pub(crate) fn ended(&self) -> Option<Error> {
        self.ended.get().cloned()
    }

    pub(crate) fn gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock()
    }

    /// The next place in the order of all that goes to the journal. Ask while holding the partition's lock.
    pub(crate) fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed)
    }
}

/// What the appender has to do. It is put down under whatever locks its order needs, and the appender told once they are
/// dropped: woken earlier it would only wait for them, and who holds them for it.
#[derive(Default)]
pub(crate) struct WorkQueue {
    work: Mutex<Work>,
    arrived: Condvar,
    urgent: AtomicBool,
    prompt: OnceLock<Prompt>,
}

/// Tells whoever writes in the appender's place that somebody waits; `false` if the calling thread has nobody to tell.
pub(crate) type Prompt = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
struct Work {
    dirty: Vec<Arc<PartitionLog>>,
    controls: Vec<Control>,
    /// Something that was taken is still to be written.
    is_left: bool,
    /// The appender knows that something comes, and looks when it has given it time to become more.
    is_gathering: bool,
    stop: bool,
}

impl Work {
    fn is_done(&self) -> bool {
        self.dirty.is_empty() && self.controls.is_empty() && !self.is_left
    }
}

impl WorkQueue {
    /// `partition` has something to be written; called once until it has been taken. Whether the appender has to be told,
    /// by [`WorkQueue::wake`] or [`WorkQueue::urge`].
    pub(crate) fn push_dirty(&self, partition: Arc<PartitionLog>) -> bool {
        let mut work = self.work.lock();
        work.dirty.push(partition);
        work.dirty.len() == 1 && !work.is_gathering
    }

    /// Has `prompt` told, from now on, when somebody waits for what a thread has appended.
    pub(crate) fn prompt_with(&self, prompt: Prompt) {
        // The first one stays.
        drop(self.prompt.set(prompt));
    }

    /// Somebody waits. Whether the calling thread is one that has the journal written soon.
    pub(crate) fn prompt(&self) -> bool {
        self.prompt.get().is_some_and(|prompt| prompt())
    }

    /// What was taken is left to the appender; goes with [`WorkQueue::urge`].
    pub(crate) fn leave(&self) {
        self.work.lock().is_left = true;
    }

    /// Goes with [`WorkQueue::urge`]. What comes after [`WorkQueue::stop`] is dropped: the appender may have ended, and a
    /// thread that waits for an answer hears [`crate::Error::Stopped`] by the loss of its channel.
    pub(crate) fn push_control(&self, control: Control) {
        let mut work = self.work.lock();
        if !work.stop {
            work.controls.push(control);
        }
    }

    /// There is something to do that nobody waits for.
    pub(crate) fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Somebody waits: do not linger.
    pub(crate) fn urge(&self) {
        if !self.urgent.swap(true, Ordering::AcqRel) {
            // The appender sees it when it looks, or waits already.
            drop(self.work.lock());
        }
        self.arrived.notify_one();
    }

    /// The appender takes what is there and ends.
    pub(crate) fn stop(&self) {
        self.work.lock().stop = true;
        self.arrived.notify_one();
    }

    /// Waits for something to do. `false` when there is nothing left and no more to come.
    pub(crate) fn wait(&self) -> bool {
        let mut work = self.work.lock();
        while work.is_done() {
            if work.stop {
                return false;
            }
            self.arrived.wait(&mut work);
        }
        if !self.urgent.load(Ordering::Acquire) && !work.stop {
            work.is_gathering = true;
            self.arrived.wait_for(&mut work, LINGER);
            work.is_gathering = false;
        }
        true
    }

    /// Takes all of it. Call with the gate held.
    pub(crate) fn take(&self) -> (Vec<Arc<PartitionLog>>, Vec<Control>) {
        let mut work = self.work.lock();
        self.urgent.store(false, Ordering::Release);
        work.is_left = false;
        (std::mem::take(&mut work.dirty), std::mem::take(&mut work.controls))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{TryRecvError, sync_channel};

    use super::*;
    use crate::AckLevel;
    use crate::round::{Answer, Entry, Item, Waiter};

    #[test]
    fn who_comes_after_the_end_is_not_kept_waiting() {
        let queue = WorkQueue::default();
        queue.stop();
        let (sender, receiver) = sync_channel(1);
        let entry = Entry { order: 0, item: Item::Parts { encoded: Vec::new(), count: 0, effects: Vec::new() } };
        let waiter = Some(Waiter { level: AckLevel::Synced, answer: Answer::Thread(sender) });
        queue.push_control(Control { entry, waiter, pending_bytes: 0 });
        queue.urge();
        assert!(!queue.wait(), "the appender ends");
        assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Disconnected);
    }
}
