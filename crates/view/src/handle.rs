//! The handle on all partitions of a view: it accepts commands and returns snapshots.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_log::{Bell, Cleanup, Log, Partition, TopicConfig, Writers, run_in_background};
use millstream_types::{PartitionId, TopicName, TopicPartition, WallClock, partition_of_key};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::checkpoint::Checkpoint;
use crate::failure::{Failure, Failures};
use crate::owner::{Owner, OwnerParts};
use crate::{Checkpoints, Error, Shards, Snapshot, View, ViewsConfig};

/// A running view with one owner per partition.
pub struct Views<V: View> {
    owners: Vec<Arc<Owner<V>>>,
    /// `None` once the view has stopped, as another process may open the store then.
    checkpoint: Mutex<Option<Arc<Checkpoint>>>,
    checkpointer: Mutex<Option<JoinHandle<()>>>,
    checkpoint_due: Arc<Bell>,
    stopped: Arc<AtomicBool>,
    failures: Arc<Failures>,
}

impl<V: View> std::fmt::Debug for Views<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Views({}, {} partitions)", V::NAME, self.owners.len())
    }
}

/// The pending answer of a command.
pub type Answer<V> = oneshot::Receiver<Result<<V as View>::Answer, Error>>;

/// The services that a view runs on.
#[derive(Clone)]
pub struct ViewRuntime {
    /// The log that holds the state topic.
    pub log: Arc<dyn Log>,
    /// The checkpoint store of the process.
    pub checkpoints: Arc<Checkpoints>,
    /// The threads that run the owners.
    pub shards: Arc<Shards>,
    /// The wall clock for records and decisions.
    pub wall: Arc<dyn WallClock>,
}

impl<V: View> Views<V> {
    /// Opens the view over the state topic `topic`, which is created if it does not exist. Rebuilds the state from
    /// the checkpoint and then from the tail of the log. The view accepts commands on return.
    ///
    /// # Errors
    /// [`Error::Partitions`] if the topic has another number of partitions; [`Error::StateRecord`],
    /// [`Error::Checkpoint`] and [`Error::Log`] if the state cannot be rebuilt.
    pub fn open(view: V, topic: &TopicName, config: &ViewsConfig, ground: &ViewRuntime) -> Result<Arc<Self>, Error> {
        Self::open_shared(Arc::new(view), topic, config, ground)
    }

    /// As [`Views::open`], for a view that its plane looks at, too.
    ///
    /// # Errors
    /// The same as those of [`Views::open`].
    pub fn open_shared(
        view: Arc<V>,
        topic: &TopicName,
        config: &ViewsConfig,
        ground: &ViewRuntime,
    ) -> Result<Arc<Self>, Error> {
        let partitions = open_topic(topic, config, &*ground.log)?;
        let checkpoint = Arc::new(ground.checkpoints.keyspace(&view.checkpoint_name())?);
        let checkpoint_due = Arc::new(Bell::default());
        let part = |bytes: usize| bytes / partitions.len().max(1);
        let (inbox_max_bytes, dirty_max_bytes) = (part(config.inbox_max_bytes), part(config.dirty_max_bytes));
        let failures = Arc::new(Failures::default());
        let load = |(index, partition): (usize, Arc<dyn Partition>)| {
            // Before the state is read: nothing is added to it by another any more.
            let writer = ground.log.writer(&format!("view/{}", partition.id()))?;
            let parts = OwnerParts {
                writer,
                view: Arc::clone(&view),
                log: Arc::clone(&ground.log),
                partition,
                wall: Arc::clone(&ground.wall),
                config: ViewsConfig { inbox_max_bytes, dirty_max_bytes, ..config.clone() },
                queue: ground.shards.queue(index),
                checkpoint_due: Arc::clone(&checkpoint_due),
                failures: Arc::clone(&failures),
            };
            Owner::load(parts, &checkpoint)
        };
        let owners = std::thread::scope(|threads| {
            let loads: Vec<_> = partitions.into_iter().enumerate().map(|part| threads.spawn(|| load(part))).collect();
            loads.into_iter().map(|load| load.join().unwrap_or(Err(Error::Stopped))).collect::<Result<Vec<_>, _>>()
        })?;
        let stopped = Arc::new(AtomicBool::new(false));
        let checkpointer = Checkpointer {
            owners: owners.clone(),
            checkpoint: Arc::clone(&checkpoint),
            due: Arc::clone(&checkpoint_due),
            stopped: Arc::clone(&stopped),
            interval: config.checkpoint_interval,
        };
        let thread = std::thread::Builder::new()
            .name(format!("checkpoint-{}", V::NAME))
            .spawn(move || {
                run_in_background();
                checkpointer.run();
            })
            .map_err(|_| Error::Stopped)?;
        let (checkpoint, checkpointer) = (Mutex::new(Some(checkpoint)), Mutex::new(Some(thread)));
        Ok(Arc::new(Self { owners, checkpoint, checkpointer, checkpoint_due, stopped, failures }))
    }

    /// The number of partitions of the view.
    pub fn partitions(&self) -> u32 {
        self.owners.len() as u32
    }

    /// The partition that owns `key`.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        partition_of_key(key, self.partitions())
    }

    /// Passes a command to the owner of `partition` and returns at once; the receiver gets the answer. Dropping the
    /// receiver before the decision withdraws the command.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::Stopped`]: the command was not accepted.
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn submit(&self, partition: PartitionId, command: V::Command) -> Result<Answer<V>, Error> {
        self.offer(partition, command).map_err(|(refusal, _)| refusal)
    }

    /// Like [`Views::submit`], but a refusal returns the command.
    ///
    /// # Errors
    /// Those of [`Views::submit`], with the command.
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn offer(&self, partition: PartitionId, command: V::Command) -> Result<Answer<V>, (Error, V::Command)> {
        let (reply, answer) = oneshot::channel();
        self.owners[partition.0 as usize].offer(command, reply)?;
        Ok(answer)
    }

    /// Passes a command to the owner of `partition` and waits for the answer.
    ///
    /// # Errors
    /// Those of [`Views::submit`]; [`Error::OwnerEnded`] if the outcome of the change is unknown.
    pub async fn ask(&self, partition: PartitionId, command: V::Command) -> Result<V::Answer, Error> {
        self.submit(partition, command)?.await.unwrap_or(Err(Error::Stopped))
    }

    /// The current state of `partition`; it includes every answered command. Never waits.
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn snapshot(&self, partition: PartitionId) -> Arc<Snapshot<V>> {
        self.owners[partition.0 as usize].snapshot()
    }

    /// The states of all partitions, in order. Each is consistent in itself.
    pub fn snapshots(&self) -> Vec<Arc<Snapshot<V>>> {
        self.owners.iter().map(|owner| owner.snapshot()).collect()
    }

    /// Calls `visit` with the keys of `partition` from `start` on, in order, and their entries, until it breaks. Every
    /// answered change is among them. Blocks on the disk: call it from a plain thread.
    ///
    /// # Errors
    /// [`Error::Checkpoint`], [`Error::CheckpointBehind`] if the checkpoint cannot be written or read; [`Error::Stopped`].
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn list(
        &self,
        partition: PartitionId,
        start: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let checkpoint = self.checkpoint.lock().clone().ok_or(Error::Stopped)?;
        self.owners[partition.0 as usize].list(&checkpoint, start, visit)
    }

    /// The failures of the view that last until a restart, for health checks.
    pub fn failures(&self) -> Vec<Failure> {
        self.failures.all()
    }

    /// Number of source records that never reach the state: an owner refused them, or they were
    /// trimmed before they were read.
    pub fn records_passed_over(&self) -> u64 {
        self.failures.passed_over()
    }

    pub(crate) fn failed(&self) -> Arc<Failures> {
        Arc::clone(&self.failures)
    }

    /// Refuses further commands, answers the accepted ones, and writes the checkpoint.
    pub fn stop(&self) {
        self.owners.iter().for_each(|owner| owner.begin_stop());
        self.owners.iter().for_each(|owner| owner.wait_idle());
        self.stopped.store(true, Ordering::Release);
        self.checkpoint_due.ring();
        if let Some(thread) = self.checkpointer.lock().take()
            && thread.join().is_err()
        {
            tracing::error!(view = V::NAME, "the checkpoint thread panicked");
        }
        drop(self.checkpoint.lock().take());
    }
}

impl<V: View> Drop for Views<V> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn open_topic(topic: &TopicName, config: &ViewsConfig, log: &dyn Log) -> Result<Vec<Arc<dyn Partition>>, Error> {
    let existing = match log.topic(topic) {
        Some(existing) => existing,
        None => {
            let config = TopicConfig {
                partitions: config.partitions,
                cleanup: Cleanup::Compact,
                writers: Writers::OwnersOnly,
                retention: None,
                ..TopicConfig::default()
            };
            log.create_topic(topic, &config)?
        }
    };
    let found = existing.config.partitions;
    if found != config.partitions {
        return Err(Error::Partitions { topic: topic.clone(), found, wanted: config.partitions });
    }
    (0..found).map(|number| Ok(log.partition(&TopicPartition::new(topic.clone(), number))?)).collect()
}

/// The thread that writes the view's checkpoint.
struct Checkpointer<V: View> {
    owners: Vec<Arc<Owner<V>>>,
    checkpoint: Arc<Checkpoint>,
    due: Arc<Bell>,
    stopped: Arc<AtomicBool>,
    interval: Duration,
}

impl<V: View> Checkpointer<V> {
    /// Writes one owner after the other, each once per interval. Writing all at once would take the core from client
    /// threads for many times as long.
    fn run(self) {
        let pause = self.interval / self.owners.len().max(1) as u32;
        let mut in_turn = self.owners.iter().cycle();
        loop {
            let is_due = self.due.wait(pause);
            let last = self.stopped.load(Ordering::Acquire);
            if is_due || last {
                self.owners.iter().for_each(|owner| owner.write_checkpoint(&self.checkpoint));
            } else if let Some(owner) = in_turn.next() {
                owner.write_checkpoint(&self.checkpoint);
            }
            if last {
                return;
            }
        }
    }
}
