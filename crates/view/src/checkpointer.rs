//! The thread that writes the checkpoints of all views of a store, behind their owners.
//!
//! It writes one partition of one view at a time: each in turn once per interval of its view, and at once those of a view that
//! has rung. So a view with many partitions does not keep others waiting.
//!
//! Invariants
//! - A view that was removed is not written any more: the caller of [`Checkpointer::remove`] writes it for the last time.
//! - The thread runs while there is a view.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream_log::{Bell, Board, run_in_background};
use parking_lot::Mutex;

use crate::failure::panic_text;

/// Shortest time from one look at the clock to the next, so that thousands of views are written a few at a time.
const TICK: Duration = Duration::from_millis(5);
/// Longest time without a look, and from one partition to the next.
const IDLE: Duration = Duration::from_secs(3600);

/// A view, as its checkpoint is written.
pub(crate) trait CheckpointJob: Send + Sync {
    /// The number of its partitions; at least one.
    fn partitions(&self) -> usize;

    /// Writes the changes of a partition since the last time.
    fn write(&self, partition: usize);

    /// The time from one partition to the next.
    fn pause(&self) -> Duration;
}

/// A view that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct JobId(u64);

struct Entry {
    job: Arc<dyn CheckpointJob>,
    /// Held while a partition is written.
    has_ended: Mutex<bool>,
}

impl Entry {
    fn write(&self, partition: usize) {
        let has_ended = self.has_ended.lock();
        if *has_ended {
            return;
        }
        // A mistake in one view must not stop the checkpoints of the others.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.job.write(partition))) {
            tracing::error!(error = panic_text(&*panic), "writing a checkpoint panicked; it is tried again");
        }
    }
}

#[derive(Default)]
struct Entries {
    by_id: HashMap<JobId, Arc<Entry>>,
    /// Those that the thread has not seen.
    added: Vec<JobId>,
    next_id: u64,
    has_stopped: bool,
}

struct CheckpointerShared {
    bell: Arc<Bell>,
    board: Arc<Board<JobId>>,
    entries: Mutex<Entries>,
}

/// The views of a store and the thread that writes their checkpoints.
pub(crate) struct Checkpointer {
    shared: Arc<CheckpointerShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Checkpointer {
    pub(crate) fn new() -> Self {
        let bell = Arc::new(Bell::default());
        let board = Board::new(Arc::clone(&bell));
        let shared = Arc::new(CheckpointerShared { bell, board, entries: Mutex::default() });
        Self { shared, thread: Mutex::new(None) }
    }

    /// Adds a view. A ring of the bell has all its partitions written at once.
    ///
    /// # Errors
    /// If the system cannot start the thread.
    pub(crate) fn add(&self, job: Arc<dyn CheckpointJob>) -> std::io::Result<(JobId, Arc<Bell>)> {
        let mut thread = self.thread.lock();
        let id = {
            let mut entries = self.shared.entries.lock();
            let id = JobId(entries.next_id);
            entries.next_id += 1;
            entries.by_id.insert(id, Arc::new(Entry { job, has_ended: Mutex::new(false) }));
            entries.added.push(id);
            entries.has_stopped = false;
            id
        };
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let work = move || {
                run_in_background();
                CheckpointTurns::default().run(&shared);
            };
            let started = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(work);
            *thread = Some(started.inspect_err(|_| self.shared.entries.lock().by_id.clear())?);
        }
        self.shared.bell.ring();
        Ok((id, self.shared.board.hang(id)))
    }

    /// Removes a view; it is not written any more on return.
    pub(crate) fn remove(&self, id: JobId) {
        let mut thread = self.thread.lock();
        let (entry, is_last) = {
            let mut entries = self.shared.entries.lock();
            let entry = entries.by_id.remove(&id);
            entries.has_stopped = entries.by_id.is_empty();
            (entry, entries.has_stopped)
        };
        if let Some(entry) = entry {
            *entry.has_ended.lock() = true;
        }
        if is_last && let Some(thread) = thread.take() {
            self.shared.bell.ring();
            if thread.join().is_err() {
                tracing::error!("the checkpoint thread panicked");
            }
        }
    }
}

/// The views in the order in which they are written.
#[derive(Default)]
struct CheckpointTurns {
    /// When each view has its next partition written.
    due: BTreeSet<(Instant, JobId)>,
    /// The partition that is next.
    next: HashMap<JobId, usize>,
    /// Views that have rung, and the number of partitions that are left.
    rung: VecDeque<(JobId, usize)>,
}

impl CheckpointTurns {
    /// Runs until the last view is removed.
    fn run(mut self, shared: &CheckpointerShared) {
        loop {
            {
                let mut entries = shared.entries.lock();
                if entries.has_stopped {
                    return;
                }
                for id in std::mem::take(&mut entries.added) {
                    if let Some(entry) = entries.by_id.get(&id) {
                        self.due.insert((Instant::now() + entry.job.pause().min(IDLE), id));
                    }
                }
            }
            for id in shared.board.take() {
                self.rung.retain(|(rung, _)| *rung != id);
                let entry = shared.entries.lock().by_id.get(&id).cloned();
                self.rung.extend(entry.map(|entry| (id, entry.job.partitions())));
            }
            if let Some((id, left)) = self.rung.pop_front() {
                if self.write_next(shared, id).is_some() && left > 1 {
                    self.rung.push_back((id, left - 1));
                }
                continue;
            }
            let now = Instant::now();
            if let Some((at, id)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
                self.due.remove(&(at, id));
                let pause = self.write_next(shared, id);
                self.due.extend(pause.map(|pause| (now + pause.clamp(TICK, IDLE), id)));
                continue;
            }
            let wait = self.due.first().map_or(IDLE, |(at, _)| at.saturating_duration_since(now).max(TICK));
            shared.bell.wait(wait);
        }
    }

    /// Writes the next partition of a view. The pause until the one after it; `None` if the view has gone.
    fn write_next(&mut self, shared: &CheckpointerShared, id: JobId) -> Option<Duration> {
        let Some(entry) = shared.entries.lock().by_id.get(&id).cloned() else {
            self.next.remove(&id);
            return None;
        };
        let next = self.next.entry(id).or_default();
        let partition = *next;
        *next = (partition + 1) % entry.job.partitions().max(1);
        entry.write(partition);
        Some(entry.job.pause())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use millstream_testkit::eventually;

    use super::*;

    struct Counted {
        written: Vec<AtomicUsize>,
        pause: Duration,
        panics: bool,
    }

    impl Counted {
        fn new(partitions: usize, pause: Duration, panics: bool) -> Arc<Self> {
            Arc::new(Self { written: (0..partitions).map(|_| AtomicUsize::new(0)).collect(), pause, panics })
        }

        fn written(&self) -> Vec<usize> {
            self.written.iter().map(|count| count.load(Ordering::Acquire)).collect()
        }
    }

    impl CheckpointJob for Counted {
        fn partitions(&self) -> usize {
            self.written.len()
        }

        fn write(&self, partition: usize) {
            self.written[partition].fetch_add(1, Ordering::AcqRel);
            assert!(!self.panics, "a mistake in a view");
        }

        fn pause(&self) -> Duration {
            self.pause
        }
    }

    #[test]
    fn views_are_written_in_turn_and_at_once_when_they_ring() {
        let checkpointer = Checkpointer::new();
        let often = Counted::new(3, Duration::from_millis(1), false);
        let seldom = Counted::new(2, IDLE, false);
        let broken = Counted::new(1, Duration::from_millis(1), true);
        let ids = [Arc::clone(&often), Arc::clone(&seldom), broken.clone()].map(|job| checkpointer.add(job).unwrap());
        eventually("each partition in turn", || often.written().iter().all(|count| *count > 2));
        eventually("a view that panics is tried again", || broken.written()[0] > 2);
        assert_eq!(seldom.written(), [0, 0]);
        ids[1].1.ring();
        eventually("all partitions of the one that rang", || seldom.written() == [1, 1]);
        checkpointer.remove(ids[0].0);
        let then = often.written();
        ids[0].1.ring();
        ids[1].1.ring();
        eventually("the others go on", || seldom.written() == [2, 2]);
        assert_eq!(often.written(), then, "a view that was removed is not written");
        checkpointer.remove(ids[1].0);
        checkpointer.remove(ids[2].0);
        assert!(checkpointer.thread.lock().is_none(), "without a view there is no thread");
        let again = Counted::new(1, Duration::from_millis(1), false);
        let (id, _) = checkpointer.add(again.clone()).unwrap();
        eventually("a view that comes later", || again.written()[0] > 0);
        checkpointer.remove(id);
    }
}
