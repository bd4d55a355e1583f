//! A few named threads on which all owners take turns.
//!
//! A task is queued at most once at a time, so a shard's queue is never longer than its number of tasks.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_log::give_way;
use parking_lot::Mutex;

/// How long a shard waits before it runs a task again that could not go on (the log's queue was full).
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// How many turns of others it waits at most.
const RETRY_AFTER_TURNS: u32 = 64;

/// What a task wants after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing until it is scheduled again.
    Rest,
    /// Another turn after a moment.
    Retry,
}

/// One partition's owner, as its shard sees it.
pub(crate) trait Task: Send + Sync {
    fn run(&self) -> Turn;
}

/// Where a task asks for a turn.
pub(crate) type ShardQueue = Sender<Arc<dyn Task>>;

/// The threads that run owners: as many as cores, each with its own partitions.
#[derive(Debug)]
pub struct Shards {
    queues: Vec<ShardQueue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Shards {
    /// Starts `count` threads (at least one). They give way: what comes while others have the core is decided at once.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(count: usize) -> std::io::Result<Arc<Self>> {
        let mut queues = Vec::new();
        let mut threads = Vec::new();
        for shard in 0..count.max(1) {
            let (queue, tasks) = channel();
            queues.push(queue);
            let work = move || {
                give_way();
                run(&tasks);
            };
            threads.push(std::thread::Builder::new().name(format!("shard-{shard}")).spawn(work)?);
        }
        Ok(Arc::new(Self { queues, threads: Mutex::new(threads) }))
    }

    /// The queue of the shard that serves `partition`.
    pub(crate) fn queue(&self, partition: usize) -> ShardQueue {
        self.queues[partition % self.queues.len()].clone()
    }

    /// Waits for the threads to end, which they do once every view on them has been stopped and dropped.
    pub fn join(self: Arc<Self>) {
        if let Ok(shards) = Arc::try_unwrap(self) {
            drop(shards.queues);
            for thread in shards.threads.into_inner() {
                if thread.join().is_err() {
                    tracing::error!("a shard thread panicked");
                }
            }
        }
    }
}

fn run(tasks: &Receiver<Arc<dyn Task>>) {
    let mut retries: Vec<Arc<dyn Task>> = Vec::new();
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

fn turn(task: &Arc<dyn Task>, retries: &mut Vec<Arc<dyn Task>>) {
    let wants = task.run();
    if wants == Turn::Retry && !retries.iter().any(|queued| Arc::ptr_eq(queued, task)) {
        retries.push(Arc::clone(task));
    }
}
