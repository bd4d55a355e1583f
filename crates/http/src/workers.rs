//! A few named threads with a bounded queue, for work that would block the threads of the sockets.
//!
//! Background threads yield their core to any other thread, so that large reads do not delay writes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads that ends when it is stopped or dropped.
pub struct Workers {
    queue: Arc<WorkerQueue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The CPU share of the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// The same as any thread.
    Equal,
    /// The threads use only idle CPU time.
    Background,
}

impl Share {
    /// Applies this share to the calling thread. `Background` is `SCHED_IDLE`: unlike a thread with a high nice value,
    /// such a thread gives up its core the moment another wakes.
    fn take(self) {
        if self == Self::Equal {
            return;
        }
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle) {
            tracing::warn!(?error, "a background thread cannot step back");
        }
    }
}

struct WorkerQueue {
    state: Mutex<State>,
    changed: Condvar,
    max_waiting: usize,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workers({} waiting)", self.waiting())
    }
}

struct State {
    jobs: VecDeque<Job>,
    stopping: bool,
}

/// The queue is full, and the work was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} requests already wait for a thread, which is the limit; send it again later")]
pub struct Full {
    /// Number of waiting jobs, which is the limit.
    pub waiting: usize,
}

impl Workers {
    /// Starts `threads` threads (at least one) with a queue of at most `max_waiting` jobs.
    ///
    /// # Errors
    /// An I/O error if the system cannot start a thread.
    pub fn start(name: &str, threads: usize, max_waiting: usize, share: Share) -> std::io::Result<Self> {
        let state = Mutex::new(State { jobs: VecDeque::new(), stopping: false });
        let queue = Arc::new(WorkerQueue { state, changed: Condvar::new(), max_waiting });
        let workers = Self { queue, threads: Mutex::new(Vec::new()) };
        for number in 0..threads.max(1) {
            let queue = workers.queue.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                share.take();
                queue.work();
            })?;
            workers.threads.lock().push(thread);
        }
        Ok(workers)
    }

    /// Queues `work`. Dropping the receiver before its turn cancels it. The receiver fails if the work panics
    /// or the threads have stopped.
    ///
    /// # Errors
    /// [`Full`], if the queue has no room.
    pub fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Full> {
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            if !sender.is_closed() {
                // The receiver may be dropped meanwhile.
                let _ = sender.send(work());
            }
        };
        let mut state = self.queue.state.lock();
        if state.jobs.len() >= self.queue.max_waiting {
            return Err(Full { waiting: state.jobs.len() });
        }
        if !state.stopping {
            state.jobs.push_back(Box::new(job));
            self.queue.changed.notify_one();
        }
        Ok(receiver)
    }

    /// Number of jobs that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.queue.state.lock().jobs.len()
    }

    /// Stops the threads and drops the waiting jobs.
    pub fn stop(&self) {
        {
            let mut state = self.queue.state.lock();
            state.stopping = true;
            state.jobs.clear();
        }
        self.queue.changed.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}

impl WorkerQueue {
    fn work(&self) {
        while let Some(job) = self.next() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("work of a request panicked; its request is answered as failed");
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            self.changed.wait(&mut state);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_full_queue_refuses_abandoned_work_is_skipped_and_a_panic_ends_no_thread() {
        let workers = Workers::start("test", 1, 2, Share::Background).unwrap();
        let (started, has_started) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let busy = workers.submit(move || {
            started.send(()).unwrap();
            released.recv().unwrap();
        });
        has_started.recv().unwrap();
        let abandoned = workers.submit(|| panic!("nobody waits for this")).unwrap();
        let panicking = workers.submit(|| panic!("a test's panic")).unwrap();
        drop(abandoned);
        assert_eq!(workers.submit(|| ()).unwrap_err(), Full { waiting: 2 });
        assert_eq!(workers.waiting(), 2);
        release.send(()).unwrap();
        busy.unwrap().blocking_recv().unwrap();
        assert!(panicking.blocking_recv().is_err());
        assert_eq!(workers.submit(|| 7).unwrap().blocking_recv(), Ok(7));
        workers.stop();
        assert!(workers.submit(|| 7).unwrap().blocking_recv().is_err());
    }
}
