//! The partitions of a view as this process has them, while they come and go.
//!
//! ```text
//!            take                      loaded
//!  Elsewhere ─────► Loading ──────────────────────► Here
//!      ▲            writer, then checkpoint and log  │ give: refuses commands, answers the accepted ones,
//!      └─────────────────────────────────────────────┘       writes the checkpoint
//! ```
//!
//! Always true
//! - A state is read only after its writer has begun: nobody adds to it any more when it is loaded.
//! - A snapshot or a command is refused from the moment on at which its partition begins to go. An owner that another
//!   process has fenced counts as elsewhere once it knows.
//! - Each partition moves by one call at a time.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use millstream_log::{Bell, Cleanup, Log, Partition, TopicConfig, Writers};
use millstream_types::{PartitionId, TopicName, TopicPartition, WallClock, partition_of_key};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::checkpoint::Checkpoint;
use crate::checkpointer::{CheckpointJob, JobId};
use crate::failure::{Failure, Failures};
use crate::owner::{Owner, OwnerParts};
use crate::{Answer, Error, Shards, Snapshot, View, ViewRuntime, ViewsConfig};

/// The address of a partition that another process has taken without a word.
const UNKNOWN: &str = "another process";

/// The place of a partition's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// This process owns it.
    Here,
    /// This process is about to own it.
    Loading,
    /// The process with this address owns it.
    Elsewhere(Arc<str>),
}

enum Slot<V: View> {
    Here(Arc<Owner<V>>),
    Loading,
    Elsewhere(Arc<str>),
}

struct SlotState<V: View> {
    partition: Arc<dyn Partition>,
    now: ArcSwap<Slot<V>>,
    /// Held while the partition moves.
    moving: Mutex<()>,
}

/// A running view whose partitions may be elsewhere, one owner for each that is here.
pub struct Slots<V: View> {
    view: Arc<V>,
    log: Arc<dyn Log>,
    shards: Arc<Shards>,
    wall: Arc<dyn WallClock>,
    /// The limits of one owner.
    config: ViewsConfig,
    slots: Arc<[SlotState<V>]>,
    /// `None` once the view has stopped, as another process may open the store then.
    checkpoint: Mutex<Option<Arc<Checkpoint>>>,
    checkpoint_job: JobId,
    checkpoint_due: Arc<Bell>,
    /// No partition is taken any more.
    is_stopping: AtomicBool,
    failures: Arc<Failures>,
    /// Ring when a partition has come.
    watching: Mutex<Vec<Weak<Bell>>>,
}

impl<V: View> std::fmt::Debug for Slots<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slots({}, {} partitions)", V::NAME, self.slots.len())
    }
}

impl<V: View> Slots<V> {
    /// Opens the view over the state topic `topic`, which is created if it does not exist. All partitions are at
    /// `address` until they are taken.
    ///
    /// # Errors
    /// [`Error::Partitions`] if the topic has another number of partitions; [`Error::Checkpoint`], [`Error::Log`].
    pub fn open(
        view: Arc<V>,
        topic: &TopicName,
        config: &ViewsConfig,
        ground: &ViewRuntime,
        address: &str,
    ) -> Result<Arc<Self>, Error> {
        let partitions = open_topic(topic, config, &*ground.log)?;
        let checkpoint = Arc::new(ground.checkpoints.keyspace(&view.checkpoint_name())?);
        let part = |bytes: usize| bytes / partitions.len().max(1);
        let (inbox_max_bytes, dirty_max_bytes) = (part(config.inbox_max_bytes), part(config.dirty_max_bytes));
        let address: Arc<str> = address.into();
        let slot = |partition| SlotState {
            partition,
            now: ArcSwap::from_pointee(Slot::Elsewhere(Arc::clone(&address))),
            moving: Mutex::default(),
        };
        let slots: Arc<[SlotState<V>]> = partitions.into_iter().map(slot).collect();
        let job = ViewCheckpoint {
            slots: Arc::clone(&slots),
            checkpoint: Arc::clone(&checkpoint),
            interval: config.checkpoint_interval,
        };
        let (checkpoint_job, checkpoint_due) =
            checkpoint.checkpointer().add(Arc::new(job)).map_err(|_| Error::Stopped)?;
        Ok(Arc::new(Self {
            view,
            log: Arc::clone(&ground.log),
            shards: Arc::clone(&ground.shards),
            wall: Arc::clone(&ground.wall),
            config: ViewsConfig { inbox_max_bytes, dirty_max_bytes, ..config.clone() },
            slots,
            checkpoint: Mutex::new(Some(checkpoint)),
            checkpoint_job,
            checkpoint_due,
            is_stopping: AtomicBool::new(false),
            failures: Arc::default(),
            watching: Mutex::default(),
        }))
    }

    /// Takes a partition: fences its owner elsewhere, then rebuilds the state from the checkpoint and the tail of the log.
    /// It accepts commands on return. Does nothing if it is here, unless its owner has ended: then another takes its place,
    /// and what was unknown of the last changes is decided. Blocks on the disk: call it from a plain thread.
    ///
    /// # Errors
    /// [`Error::StateRecord`], [`Error::Checkpoint`] and [`Error::Log`] if the state cannot be rebuilt: the partition is
    /// elsewhere then, nobody knows where; [`Error::Stopped`].
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn take(&self, partition: PartitionId) -> Result<(), Error> {
        let slot = self.slot(partition);
        let _alone = slot.moving.lock();
        let checkpoint = self.checkpoint()?;
        if let Slot::Here(owner) = &*slot.now.load_full() {
            if !owner.has_ended() {
                return Ok(());
            }
            owner.retire(&checkpoint);
        }
        slot.now.store(Arc::new(Slot::Loading));
        let loaded = self.load(partition, &checkpoint);
        let (now, outcome) = match loaded {
            Ok(owner) => {
                debug_assert!(!owner.has_ended(), "an owner begins whole");
                (Slot::Here(owner), Ok(()))
            }
            Err(failure) => (Slot::Elsewhere(UNKNOWN.into()), Err(failure)),
        };
        if outcome.is_ok() {
            self.failures.forget(slot.partition.id());
        }
        slot.now.store(Arc::new(now));
        self.watching.lock().retain(|bell| {
            bell.upgrade().is_some_and(|bell| {
                bell.ring();
                true
            })
        });
        outcome
    }

    /// Takes all partitions, side by side.
    ///
    /// # Errors
    /// Those of [`Slots::take`] for the first that cannot be taken.
    pub fn take_all(&self) -> Result<(), Error> {
        std::thread::scope(|threads| {
            let all: Vec<_> = self.numbers().map(|partition| threads.spawn(move || self.take(partition))).collect();
            all.into_iter().try_for_each(|taken| taken.join().unwrap_or(Err(Error::Stopped)))
        })
    }

    /// Gives a partition away to the process at `address`: refuses its commands and snapshots from now on, answers the
    /// commands that were accepted and writes the checkpoint. The other process may take it on return. Blocks until then:
    /// call it from a plain thread.
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn give(&self, partition: PartitionId, address: &str) {
        let slot = self.slot(partition);
        let _alone = slot.moving.lock();
        let before = slot.now.swap(Arc::new(Slot::Elsewhere(address.into())));
        if let Slot::Here(owner) = &*before {
            owner.begin_stop();
            owner.wait_idle();
            if let Ok(checkpoint) = self.checkpoint() {
                owner.retire(&checkpoint);
            }
            self.failures.forget(slot.partition.id());
        }
    }

    fn load(&self, partition: PartitionId, checkpoint: &Checkpoint) -> Result<Arc<Owner<V>>, Error> {
        let slot = self.slot(partition);
        // Before the state is read: nothing is added to it by another any more.
        let writer = self.log.writer(&format!("view/{}", slot.partition.id()))?;
        let parts = OwnerParts {
            writer,
            view: Arc::clone(&self.view),
            log: Arc::clone(&self.log),
            partition: Arc::clone(&slot.partition),
            wall: Arc::clone(&self.wall),
            config: self.config.clone(),
            queue: self.shards.queue(partition.0 as usize),
            checkpoint_due: Arc::clone(&self.checkpoint_due),
            failures: Arc::clone(&self.failures),
        };
        Owner::load(parts, checkpoint)
    }

    fn slot(&self, partition: PartitionId) -> &SlotState<V> {
        &self.slots[partition.0 as usize]
    }

    fn numbers(&self) -> impl Iterator<Item = PartitionId> + use<V> {
        (0..self.slots.len() as u32).map(PartitionId)
    }

    /// The checkpoint of a view that has not stopped.
    fn checkpoint(&self) -> Result<Arc<Checkpoint>, Error> {
        let checkpoint = self.checkpoint.lock().clone();
        checkpoint.filter(|_| !self.is_stopping.load(Ordering::Acquire)).ok_or(Error::Stopped)
    }

    /// The owner of a partition.
    ///
    /// # Errors
    /// [`Error::Loading`], [`Error::Elsewhere`].
    pub(crate) fn owner(&self, partition: PartitionId) -> Result<Arc<Owner<V>>, Error> {
        let slot = self.slot(partition);
        match &**slot.now.load() {
            Slot::Here(owner) if !owner.is_fenced() => Ok(Arc::clone(owner)),
            Slot::Here(_) => Err(elsewhere(slot, UNKNOWN.into())),
            Slot::Loading => Err(Error::Loading { partition: slot.partition.id().clone() }),
            Slot::Elsewhere(address) => Err(elsewhere(slot, Arc::clone(address))),
        }
    }

    /// The place of a partition now.
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn place(&self, partition: PartitionId) -> Place {
        match self.owner(partition) {
            Ok(_) => Place::Here,
            Err(Error::Elsewhere { address, .. }) => Place::Elsewhere(address),
            Err(_) => Place::Loading,
        }
    }

    /// Rings `bell` whenever a partition has been taken, for as long as the bell lives.
    pub(crate) fn watch(&self, bell: &Arc<Bell>) {
        self.watching.lock().push(Arc::downgrade(bell));
    }

    /// The number of partitions of the view.
    pub fn partitions(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The partition that owns `key`.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        partition_of_key(key, self.partitions())
    }

    /// Passes a command to the owner of `partition` and returns at once; the receiver gets the answer. Dropping the
    /// receiver before the decision withdraws the command.
    ///
    /// # Errors
    /// With the command, which was not accepted: [`Error::Loading`], [`Error::Elsewhere`]; [`Error::Overloaded`] and its
    /// like; [`Error::Stopped`].
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn offer(&self, partition: PartitionId, command: V::Command) -> Result<Answer<V>, (Error, V::Command)> {
        let owner = match self.owner(partition) {
            Ok(owner) => owner,
            Err(away) => return Err((away, command)),
        };
        let (reply, answer) = oneshot::channel();
        match owner.offer(command, reply) {
            Ok(()) => Ok(answer),
            // It has begun to go since.
            Err((Error::Stopped, command)) => Err((self.owner(partition).err().unwrap_or(Error::Stopped), command)),
            Err(refused) => Err(refused),
        }
    }

    /// Like [`Slots::offer`], but a refusal drops the command.
    ///
    /// # Errors
    /// Those of [`Slots::offer`].
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn submit(&self, partition: PartitionId, command: V::Command) -> Result<Answer<V>, Error> {
        self.offer(partition, command).map_err(|(refusal, _)| refusal)
    }

    /// Passes a command to the owner of `partition` and waits for the answer.
    ///
    /// # Errors
    /// Those of [`Slots::offer`]; [`Error::OwnerEnded`] if the outcome of the change is unknown.
    pub async fn ask(&self, partition: PartitionId, command: V::Command) -> Result<V::Answer, Error> {
        self.submit(partition, command)?.await.unwrap_or(Err(Error::Stopped))
    }

    /// The current state of `partition`; it includes every answered command. Never waits.
    ///
    /// # Errors
    /// [`Error::Loading`], [`Error::Elsewhere`].
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn snapshot(&self, partition: PartitionId) -> Result<Arc<Snapshot<V>>, Error> {
        self.owner(partition).map(|owner| owner.snapshot())
    }

    /// The states of all partitions, in order. Each is consistent in itself.
    ///
    /// # Errors
    /// [`Error::Loading`], [`Error::Elsewhere`] of the first that is not here.
    pub fn snapshots(&self) -> Result<Vec<Arc<Snapshot<V>>>, Error> {
        self.numbers().map(|partition| self.snapshot(partition)).collect()
    }

    /// Calls `visit` with the keys of `partition` from `start` on, in order, and their entries, until it breaks. Every
    /// answered change is among them. Blocks on the disk: call it from a plain thread.
    ///
    /// # Errors
    /// [`Error::Loading`], [`Error::Elsewhere`]; [`Error::Checkpoint`], [`Error::CheckpointBehind`] if the checkpoint
    /// cannot be written or read; [`Error::Stopped`].
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
        match self.owner(partition)?.list(&checkpoint, start, visit) {
            // It has gone since.
            Err(Error::Stopped) => Err(self.owner(partition).err().unwrap_or(Error::Stopped)),
            listed => listed,
        }
    }

    /// The failures of the view that last until a restart, or until their partition is taken again, for health checks.
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

    /// Refuses further commands, answers the accepted ones, and writes the checkpoint. No partition is taken any more.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        // A partition that is being taken or given away is so first.
        let here: Vec<_> = self
            .slots
            .iter()
            .filter_map(|slot| {
                let _alone = slot.moving.lock();
                slot.here()
            })
            .collect();
        here.iter().for_each(|owner| owner.begin_stop());
        here.iter().for_each(|owner| owner.wait_idle());
        if let Some(checkpoint) = self.checkpoint.lock().take() {
            checkpoint.checkpointer().remove(self.checkpoint_job);
            here.iter().for_each(|owner| owner.write_checkpoint(&checkpoint));
        }
    }
}

impl<V: View> SlotState<V> {
    fn here(&self) -> Option<Arc<Owner<V>>> {
        match &**self.now.load() {
            Slot::Here(owner) => Some(Arc::clone(owner)),
            Slot::Loading | Slot::Elsewhere(_) => None,
        }
    }
}

impl<V: View> Drop for Slots<V> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn elsewhere<V: View>(slot: &SlotState<V>, address: Arc<str>) -> Error {
    Error::Elsewhere { partition: slot.partition.id().clone(), address }
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

/// The checkpoint of a view, one partition after the other, each once per interval. Writing all at once would take the core
/// from client threads for many times as long.
struct ViewCheckpoint<V: View> {
    slots: Arc<[SlotState<V>]>,
    checkpoint: Arc<Checkpoint>,
    interval: Duration,
}

impl<V: View> CheckpointJob for ViewCheckpoint<V> {
    fn partitions(&self) -> usize {
        self.slots.len()
    }

    fn write(&self, partition: usize) {
        if let Some(owner) = self.slots[partition].here() {
            owner.write_checkpoint(&self.checkpoint);
        }
    }

    fn pause(&self) -> Duration {
        self.interval / self.slots.len().max(1) as u32
    }
}
