//! All partitions of one view: where commands go in and snapshots come out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_log::{Bell, Cleanup, Log, Partition, TopicConfig, Writers, stand_back};
use millstream_types::{PartitionId, TopicName, TopicPartition, WallClock, partition_of_key};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::checkpoint::Checkpoint;
use crate::failure::{Failure, Failures};
use crate::owner::{Owner, Parts};
use crate::{Checkpoints, Error, Shards, Snapshot, View};

/// Limits of a view's owners.
#[derive(Debug, Clone)]
pub struct ViewsConfig {
    /// Partitions of the state topic; fixed when the data directory is made. Default 4.
    pub partitions: u32,
    /// Commands that may wait for one partition; further ones are refused. Default 16,384.
    pub inbox_max_commands: usize,
    /// Bytes of commands that may wait, an equal part of it for each partition; further ones are refused. A command for
    /// which nothing waits is taken whatever its size. Default 32 MiB.
    pub inbox_max_bytes: usize,
    /// The setting behind that limit, for its refusal. Default `inbox_max_bytes`.
    pub inbox_setting: &'static str,
    /// Commands decided in one batch. Default 1,024.
    pub batch_max_commands: usize,
    /// Bytes of changes in one append; a command whose own changes take more is refused. At most half of what the
    /// log takes (`log.append_max_bytes`), as the last command may go beyond. Default 2 MiB.
    pub append_max_bytes: usize,
    /// Batches of one partition that may be on their way to the log. Default 8.
    pub flights_max: usize,
    /// How long changes stay out of the checkpoint. Default 1 s.
    pub checkpoint_interval: Duration,
    /// Bytes of changes that may be on their way to the log or missing from the checkpoint before commands wait, an equal
    /// part of it for each partition. Default 128 MiB.
    pub dirty_max_bytes: usize,
}

impl Default for ViewsConfig {
    fn default() -> Self {
        Self {
            partitions: 4,
            inbox_max_commands: 16_384,
            inbox_max_bytes: 32 << 20,
            inbox_setting: "inbox_max_bytes",
            batch_max_commands: 1_024,
            append_max_bytes: 2 << 20,
            flights_max: 8,
            checkpoint_interval: Duration::from_secs(1),
            dirty_max_bytes: 128 << 20,
        }
    }
}

/// A view: its owners, one per partition.
pub struct Views<V: View> {
    owners: Vec<Arc<Owner<V>>>,
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

/// An answer on its way.
pub type Answer<V> = oneshot::Receiver<Result<<V as View>::Answer, Error>>;

/// What a view is opened on.
#[derive(Clone)]
pub struct Ground {
    /// The log that holds the state topic.
    pub log: Arc<dyn Log>,
    /// The process's checkpoint store.
    pub checkpoints: Arc<Checkpoints>,
    /// The threads that run owners.
    pub shards: Arc<Shards>,
    /// Civil time for records and decisions.
    pub wall: Arc<dyn WallClock>,
}

impl<V: View> Views<V> {
    /// Opens the view over the state topic `topic` (created if it is not there) and rebuilds its state:
    /// checkpoint first, then the tail of the log. Ready for commands when it returns.
    ///
    /// # Errors
    /// [`Error::Partitions`] if the topic has another number of partitions; [`Error::StateRecord`],
    /// [`Error::Checkpoint`], [`Error::Log`].
    pub fn open(view: V, topic: &TopicName, config: &ViewsConfig, ground: &Ground) -> Result<Arc<Self>, Error> {
        let partitions = open_topic(topic, config, &*ground.log)?;
        let checkpoint = ground.checkpoints.keyspace(V::NAME)?;
        let checkpoint_due = Arc::new(Bell::default());
        let view = Arc::new(view);
        let part = |bytes: usize| bytes / partitions.len().max(1);
        let (inbox_max_bytes, dirty_max_bytes) = (part(config.inbox_max_bytes), part(config.dirty_max_bytes));
        let failures = Arc::new(Failures::default());
        let load = |(index, partition): (usize, Arc<dyn Partition>)| {
            let parts = Parts {
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
            checkpoint,
            due: Arc::clone(&checkpoint_due),
            stopped: Arc::clone(&stopped),
            interval: config.checkpoint_interval,
        };
        let thread = std::thread::Builder::new()
            .name(format!("checkpoint-{}", V::NAME))
            .spawn(move || {
                stand_back();
                checkpointer.run();
            })
            .map_err(|_| Error::Stopped)?;
        Ok(Arc::new(Self { owners, checkpointer: Mutex::new(Some(thread)), checkpoint_due, stopped, failures }))
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> u32 {
        self.owners.len() as u32
    }

    /// The partition that owns `key`.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        partition_of_key(key, self.partitions())
    }

    /// Hands a command to the owner of `partition` and returns at once; the answer comes through the receiver.
    /// Dropping the receiver before the command is decided withdraws it.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::Stopped`]: nothing was taken.
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn submit(&self, partition: PartitionId, command: V::Command) -> Result<Answer<V>, Error> {
        self.offer(partition, command).map_err(|(refusal, _)| refusal)
    }

    /// As [`Views::submit`], but a refusal hands the command back.
    ///
    /// # Errors
    /// As [`Views::submit`].
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn offer(&self, partition: PartitionId, command: V::Command) -> Result<Answer<V>, (Error, V::Command)> {
        let (reply, answer) = oneshot::channel();
        self.owners[partition.0 as usize].offer(command, reply)?;
        Ok(answer)
    }

    /// Hands a command to the owner of `partition` and waits for the answer.
    ///
    /// # Errors
    /// As [`Views::submit`]; [`Error::OwnerEnded`] if the change may or may not have been stored.
    pub async fn ask(&self, partition: PartitionId, command: V::Command) -> Result<V::Answer, Error> {
        self.submit(partition, command)?.await.unwrap_or(Err(Error::Stopped))
    }

    /// The state of `partition` now: everything that has been answered is in it. Never waits.
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

    /// What of the view has failed and does not come right by itself: for whoever asks whether the process is well.
    pub fn failures(&self) -> Vec<Failure> {
        self.failures.all()
    }

    /// Records of sources that never reach the state: refused by an owner, or trimmed before they were read.
    pub fn records_passed_over(&self) -> u64 {
        self.failures.passed_over()
    }

    pub(crate) fn failed(&self) -> Arc<Failures> {
        Arc::clone(&self.failures)
    }

    /// Takes no more commands, answers those taken, writes the checkpoint.
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

/// The thread that writes a view's checkpoint.
struct Checkpointer<V: View> {
    owners: Vec<Arc<Owner<V>>>,
    checkpoint: Checkpoint,
    due: Arc<Bell>,
    stopped: Arc<AtomicBool>,
    interval: Duration,
}

impl<V: View> Checkpointer<V> {
    /// Writes for one owner after the other, each once an interval: all at once would keep a core from whoever answers
    /// requests for many times as long.
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
