//! The threads that run the owners of all views.
//!
//! A task is queued at most once, so a shard's queue is never longer than its number of tasks.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_log::{SeededScheduler, TaskId, run_as_batch};
use parking_lot::Mutex;

/// Delay before a task runs again that could not continue (the log's queue was full).
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Most turns of other tasks before such a retry.
const RETRY_AFTER_TURNS: u32 = 64;

/// The result of a turn of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    /// Wait until the task is scheduled again.
    Rest,
    /// Run again after a short delay.
    Retry,
}

/// The owner of a partition, as its shard sees it.
pub(crate) trait ShardTask: Send + Sync {
    fn run(&self) -> TurnOutcome;
}

/// The queue of a shard.
pub(crate) type ShardQueue = Sender<Arc<dyn ShardTask>>;

/// The threads that run owners. Each thread serves its own partitions.
#[derive(Debug)]
pub struct Shards {
    queues: Vec<ShardQueue>,
    workers: ShardWorkers,
}

#[derive(Debug)]
enum ShardWorkers {
    Threads(Mutex<Vec<JoinHandle<()>>>),
    ByHand(Arc<SeededScheduler>, Vec<TaskId>),
}

impl Shards {
    /// Starts `count` threads (at least one) with batch scheduling: commands that arrive while others have
    /// the core are decided together.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(count: usize) -> std::io::Result<Arc<Self>> {
        let mut queues = Vec::new();
        let mut threads = Vec::new();
        for shard in 0..count.max(1) {
            let (queue, tasks) = channel();
            queues.push(queue);
            let work = move || {
                run_as_batch();
                run(&tasks);
            };
            threads.push(std::thread::Builder::new().name(format!("shard-{shard}")).spawn(work)?);
        }
        Ok(Arc::new(Self { queues, workers: ShardWorkers::Threads(Mutex::new(threads)) }))
    }

    /// Adds `count` tasks (at least one) to `scheduler` in the place of threads. For tests: nobody who takes the turns may
    /// wait for a view without taking them.
    pub fn by_hand(count: usize, scheduler: &Arc<SeededScheduler>) -> Arc<Self> {
        let mut queues = Vec::new();
        let mut ids = Vec::new();
        for _ in 0..count.max(1) {
            let (queue, tasks) = channel();
            queues.push(queue);
            let mut retries = Vec::new();
            ids.push(scheduler.add("shard", move || turn_if_due(&tasks, &mut retries)));
        }
        Arc::new(Self { queues, workers: ShardWorkers::ByHand(Arc::clone(scheduler), ids) })
    }

    /// The queue of the shard that serves `partition`.
    pub(crate) fn queue(&self, partition: usize) -> ShardQueue {
        self.queues[partition % self.queues.len()].clone()
    }

    /// Waits for the threads to end. They end once every view on them has been stopped and dropped.
    pub fn join(self: Arc<Self>) {
        if let Ok(shards) = Arc::try_unwrap(self) {
            drop(shards.queues);
            match shards.workers {
                ShardWorkers::Threads(threads) => {
                    for thread in threads.into_inner() {
                        if thread.join().is_err() {
                            tracing::error!("a shard thread panicked");
                        }
                    }
                }
                ShardWorkers::ByHand(scheduler, ids) => ids.into_iter().for_each(|id| scheduler.remove(id)),
            }
        }
    }
}

fn run(tasks: &Receiver<Arc<dyn ShardTask>>) {
    let mut retries: Vec<Arc<dyn ShardTask>> = Vec::new();
    let mut turns = 0;
    loop {
        let next = if retries.is_empty() {
            tasks.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            tasks.recv_timeout(RETRY_AFTER)
        };
        match next {
            Ok(task) => {
                turn(&task, &mut retries);
                turns += 1;
            }
            Err(RecvTimeoutError::Timeout) => turns = RETRY_AFTER_TURNS,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if turns >= RETRY_AFTER_TURNS {
            turns = 0;
            for task in std::mem::take(&mut retries) {
                turn(&task, &mut retries);
            }
        }
    }
}

/// Runs the next task, or those that could not continue. `true` if there was one.
fn turn_if_due(tasks: &Receiver<Arc<dyn ShardTask>>, retries: &mut Vec<Arc<dyn ShardTask>>) -> bool {
    if let Ok(task) = tasks.try_recv() {
        turn(&task, retries);
        return true;
    }
    let again = std::mem::take(retries);
    let is_due = !again.is_empty();
    for task in again {
        turn(&task, retries);
    }
    is_due
}

fn turn(task: &Arc<dyn ShardTask>, retries: &mut Vec<Arc<dyn ShardTask>>) {
    let wants = task.run();
    if wants == TurnOutcome::Retry && !retries.iter().any(|queued| Arc::ptr_eq(queued, task)) {
        retries.push(Arc::clone(task));
    }
}
