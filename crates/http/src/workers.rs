//! A few named threads with a bounded queue, for work that would block the threads of the sockets.
//!
//! Tenants share the queue: one of them takes no more places than it leaves free, and they are served in turn. So a
//! tenant that floods the queue delays another's request by one of its own for each thread, and keeps none out.
//!
//! Background threads yield their core to any other thread, so that large reads do not delay writes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use millstream_types::TenantId;
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
    /// The jobs of each tenant that has some, from the one whose turn is next.
    tenants: VecDeque<TenantJobs>,
    waiting: usize,
    stopping: bool,
}

/// The waiting jobs of a tenant, or of operators; never empty.
struct TenantJobs {
    tenant: Option<TenantId>,
    jobs: VecDeque<Job>,
}

impl State {
    /// Queues a job, unless its tenant already has as many as it leaves free out of `max_waiting`.
    fn push(&mut self, tenant: Option<&TenantId>, job: Job, max_waiting: usize) -> Result<(), Full> {
        let known = self.tenants.iter_mut().find(|known| known.tenant.as_ref() == tenant);
        let waiting = known.as_ref().map_or(0, |known| known.jobs.len());
        if waiting >= max_waiting.saturating_sub(self.waiting) {
            return Err(Full { waiting, all: self.waiting, limit: max_waiting });
        }
        match known {
            Some(known) => known.jobs.push_back(job),
            None => self.tenants.push_back(TenantJobs { tenant: tenant.cloned(), jobs: [job].into() }),
        }
        self.waiting += 1;
        Ok(())
    }

    /// Takes the oldest job of the tenant whose turn it is.
    fn pop(&mut self) -> Option<Job> {
        let mut next = self.tenants.pop_front()?;
        let job = next.jobs.pop_front();
        if !next.jobs.is_empty() {
            self.tenants.push_back(next);
        }
        self.waiting -= usize::from(job.is_some());
        job
    }
}

/// The queue has no room for the tenant, and the work was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{waiting} requests of the tenant already wait for a thread, {all} of all tenants, out of {limit}; a tenant takes no \
     more places than it leaves free; send it again later"
)]
pub struct Full {
    /// Number of the tenant's waiting jobs.
    pub waiting: usize,
    /// Number of all waiting jobs.
    pub all: usize,
    /// Places for waiting jobs.
    pub limit: usize,
}

impl Workers {
    /// Starts `threads` threads (at least one) with a queue of at most `max_waiting` jobs.
    ///
    /// # Errors
    /// An I/O error if the system cannot start a thread.
    pub fn start(name: &str, threads: usize, max_waiting: usize, share: Share) -> std::io::Result<Self> {
        let state = Mutex::new(State { tenants: VecDeque::new(), waiting: 0, stopping: false });
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

    /// Queues `work` for a tenant, or for an operator. Dropping the receiver before its turn cancels it. The receiver
    /// fails if the work panics or the threads have stopped.
    ///
    /// # Errors
    /// [`Full`], if the queue has no room for the tenant.
    pub fn submit<T: Send + 'static>(
        &self,
        tenant: Option<&TenantId>,
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
        if !state.stopping {
            state.push(tenant, Box::new(job), self.queue.max_waiting)?;
            self.queue.changed.notify_one();
        }
        Ok(receiver)
    }

    /// Number of jobs that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.queue.state.lock().waiting
    }

    /// Stops the threads and drops the waiting jobs.
    pub fn stop(&self) {
        {
            let mut state = self.queue.state.lock();
            state.stopping = true;
            state.tenants.clear();
            state.waiting = 0;
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
            if let Some(job) = state.pop() {
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
    use std::sync::mpsc::{self, Sender};

    use super::*;

    fn tenant(name: &str) -> Option<TenantId> {
        Some(TenantId::new(name).unwrap())
    }

    /// Workers with one thread, which is busy until the sender is dropped.
    fn busy(max_waiting: usize) -> (Workers, Sender<()>, oneshot::Receiver<()>) {
        let workers = Workers::start("test", 1, max_waiting, Share::Background).unwrap();
        let (started, has_started) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let work = move || {
            started.send(()).unwrap();
            released.recv().ok();
        };
        let ended = workers.submit(None, work).unwrap();
        has_started.recv().unwrap();
        (workers, release, ended)
    }

    #[test]
    fn abandoned_work_is_skipped_and_a_panic_ends_no_thread() {
        let (workers, release, _ended) = busy(8);
        let abandoned = workers.submit(None, || panic!("nobody waits for this")).unwrap();
        let panicking = workers.submit(None, || panic!("a test's panic")).unwrap();
        drop(abandoned);
        assert_eq!(workers.waiting(), 2);
        drop(release);
        assert!(panicking.blocking_recv().is_err());
        assert_eq!(workers.submit(None, || 7).unwrap().blocking_recv(), Ok(7));
        workers.stop();
        assert!(workers.submit(None, || 7).unwrap().blocking_recv().is_err());
    }

    #[test]
    fn a_tenant_that_fills_the_queue_leaves_room_to_others_who_are_served_in_turn() {
        let (workers, release, _ended) = busy(8);
        let (done, order) = mpsc::channel();
        let submit = |tenant: &Option<TenantId>, name: &'static str| {
            let done = done.clone();
            workers.submit(tenant.as_ref(), move || done.send(name).unwrap())
        };
        let (mill, other) = (tenant("mill"), tenant("other"));
        let mut waiting: Vec<_> = ["m1", "m2", "m3", "m4"].map(|name| submit(&mill, name).unwrap()).into();
        assert_eq!(submit(&mill, "m5").unwrap_err(), Full { waiting: 4, all: 4, limit: 8 });
        waiting.extend(["o1", "o2"].map(|name| submit(&other, name).unwrap()));
        assert_eq!(submit(&other, "o3").unwrap_err(), Full { waiting: 2, all: 6, limit: 8 });
        waiting.push(submit(&None, "operator").unwrap());
        drop(release);
        let order: Vec<_> = order.iter().take(waiting.len()).collect();
        assert_eq!(order, ["m1", "o1", "operator", "m2", "o2", "m3", "m4"]);
    }
}
