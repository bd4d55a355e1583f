//! The queue of the appender.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::group_commit::ControlEntry;
use crate::partition::PartitionLog;

/// The appender collects records that nobody waits for, and records that another thread is about
/// to write, for this long.
const LINGER: Duration = Duration::from_millis(1);

/// Work for the appender. Callers add it under the locks that its order needs, and wake the appender after dropping
/// them: otherwise it would wake up only to wait for the same locks.
#[derive(Default)]
pub(crate) struct WorkQueue {
    work: Mutex<Work>,
    arrived: Condvar,
    urgent: AtomicBool,
    prompt: OnceLock<Prompt>,
}

/// Asks a writing thread to write soon; `false` if the calling thread has none to ask.
pub(crate) type Prompt = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
struct Work {
    dirty: Vec<Arc<PartitionLog>>,
    controls: Vec<ControlEntry>,
    /// Appends that were taken are still to be written.
    is_left: bool,
    /// The appender is lingering and will look at the queue by itself.
    is_gathering: bool,
    stop: bool,
}

impl Work {
    fn is_done(&self) -> bool {
        self.dirty.is_empty() && self.controls.is_empty() && !self.is_left
    }
}

impl WorkQueue {
    /// Adds a partition; it is in the queue at most once. `true` if the caller
    /// must call [`WorkQueue::wake`] or [`WorkQueue::urge`].
    pub(crate) fn push_dirty(&self, partition: Arc<PartitionLog>) -> bool {
        let mut work = self.work.lock();
        work.dirty.push(partition);
        work.dirty.len() == 1 && !work.is_gathering
    }

    /// Sets the callback that asks a writing thread to write. The first one stays.
    pub(crate) fn prompt_with(&self, prompt: Prompt) {
        drop(self.prompt.set(prompt));
    }

    /// Asks for a write, since a caller waits. `true` if a thread will write soon.
    pub(crate) fn prompt(&self) -> bool {
        self.prompt.get().is_some_and(|prompt| prompt())
    }

    /// Leaves taken appends to the appender; call [`WorkQueue::urge`] afterwards.
    pub(crate) fn leave(&self) {
        self.work.lock().is_left = true;
    }

    /// Adds an entry; call [`WorkQueue::urge`] afterwards. After [`WorkQueue::stop`] the entry is dropped, as the
    /// appender may have ended; its channel closes, and the waiting caller gets [`crate::Error::Stopped`].
    pub(crate) fn push_control(&self, control: ControlEntry) {
        let mut work = self.work.lock();
        if !work.stop {
            work.controls.push(control);
        }
    }

    /// Wakes the appender for records that nobody waits for.
    pub(crate) fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Wakes the appender at once, since a caller waits.
    pub(crate) fn urge(&self) {
        if !self.urgent.swap(true, Ordering::AcqRel) {
            // Take the lock once: the appender sees the flag at its next check, or is waiting already.
            drop(self.work.lock());
        }
        self.arrived.notify_one();
    }

    /// Makes the appender end after the queued work.
    pub(crate) fn stop(&self) {
        self.work.lock().stop = true;
        self.arrived.notify_one();
    }

    /// Waits for work. `false` once the queue is stopped and empty.
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

    /// `true` if there is work, for a caller that does not wait for it.
    pub(crate) fn has_work(&self) -> bool {
        !self.work.lock().is_done()
    }

    /// Takes all queued work. Call it with the gate held.
    pub(crate) fn take(&self) -> (Vec<Arc<PartitionLog>>, Vec<ControlEntry>) {
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
    use crate::ack::{AckReply, AckWaiter};
    use crate::group_commit::{JournalEntry, JournalItem};

    #[test]
    fn a_caller_after_the_end_is_not_kept_waiting() {
        let queue = WorkQueue::default();
        queue.stop();
        let (sender, receiver) = sync_channel(1);
        let entry =
            JournalEntry { order: 0, item: JournalItem::Parts { encoded: Vec::new(), count: 0, effects: Vec::new() } };
        let waiter = Some(AckWaiter { level: AckLevel::Synced, answer: AckReply::Thread(sender) });
        queue.push_control(ControlEntry { entry, waiter, pending_bytes: 0 });
        queue.urge();
        assert!(!queue.wait(), "the appender ends");
        assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Disconnected);
    }
}
