//! The queues of all tenants' streams that have receivers, and the positions of those of events.
//!
//! A thread stores changed positions every [`STORED_EVERY`], and when the server stops. After `kill -9` events that were settled
//! since are offered again.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_log::Partition;
use millstream_types::{Grant, MemoryBudget, PartitionId, StateTopic, TenantId, TopicKind, TopicName, WallClock};
use millstream_view::{Failure, ViewRuntime, Views, ViewsConfig};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::address::StreamAddress;
use super::durable_records::DurableRecords;
use super::queue_positions::{PositionChange, QueuePosition, QueuePositions, TenantQueues};
use super::stream_queue::StreamQueue;
use super::unsettled_room::UnsettledRoom;
use crate::Error;
use crate::registry::Registry;

/// Interval between notes of the positions.
const STORED_EVERY: Duration = Duration::from_millis(500);
/// Notes between two looks for queues that nobody wants any more.
const SWEPT_EVERY: u32 = 120;
/// Time after which a queue with a name that nobody has received from is forgotten.
const UNUSED_MAX_MS: i64 = 7 * 24 * 3_600_000;
/// Queues of events that one tenant may have.
const QUEUES_MAX: usize = 16;
/// Events of one queue that may be handed out and not settled.
const OPEN_MAX: usize = 10_000;

/// The name of a queue: the stream, and the name under which its receivers share it, if they have one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct QueueName {
    pub(super) address: StreamAddress,
    pub(super) subscription: Option<Box<str>>,
}

/// A queue that is not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoQueue {
    /// The memory budget has no room.
    NoMemory,
    /// The tenant has as many as it may.
    TooMany,
}

/// The queues of all tenants.
pub(crate) struct StreamQueues {
    parts: Arc<QueuesParts>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct QueuesParts {
    live: Mutex<HashMap<QueueName, LiveQueue>>,
    positions: Arc<Views<QueuePositions>>,
    registry: Registry,
    wall: Arc<dyn WallClock>,
    /// True once the operator is told that positions cannot be stored, until they can.
    is_told: AtomicBool,
    is_stopping: Mutex<bool>,
    changed: Condvar,
}

/// A queue in use.
enum LiveQueue {
    /// It lasts while it has receivers.
    Telemetry(Weak<StreamQueue>),
    /// It also lasts until it is stored.
    Events(Arc<StreamQueue>),
}

impl LiveQueue {
    fn queue(&self) -> Option<Arc<StreamQueue>> {
        match self {
            Self::Telemetry(queue) => queue.upgrade(),
            Self::Events(queue) => Some(Arc::clone(queue)),
        }
    }
}

impl StreamQueues {
    /// Opens the positions and starts the thread that stores them. Blocks.
    pub(crate) fn open(ground: &ViewRuntime, config: &ViewsConfig, registry: &Registry) -> Result<Arc<Self>, Error> {
        let topic = TopicName::internal(StateTopic::EventQueues);
        let positions = Views::open(QueuePositions, &topic, config, ground).map_err(Error::EventQueues)?;
        let (live, is_told, is_stopping, changed) = Default::default();
        let (registry, wall) = (registry.clone(), ground.wall.clone());
        let parts = Arc::new(QueuesParts { live, positions, registry, wall, is_told, is_stopping, changed });
        let working = parts.clone();
        let thread = std::thread::Builder::new().name("event-queues".to_owned()).spawn(move || working.run());
        let thread = thread.map_err(|source| Error::Thread(Arc::new(source)))?;
        Ok(Arc::new(Self { parts, thread: Mutex::new(Some(thread)) }))
    }

    /// Returns the queue of this name, or opens it: one of telemetry begins with what comes from now on; one of events goes on, and
    /// the one without a name begins with all that there is. What it keeps in mind is taken of `memory`.
    pub(super) fn of(
        &self,
        name: QueueName,
        partitions: &[Arc<dyn Partition>],
        memory: &MemoryBudget,
    ) -> Result<Arc<StreamQueue>, NoQueue> {
        let mut live = self.parts.live.lock();
        if let Some(known) = live.get(&name).and_then(LiveQueue::queue).filter(|known| !known.is_broken()) {
            return Ok(known);
        }
        let tenant = &name.address.tenant;
        let room = memory.take_for(tenant, StreamQueue::memory_bytes(partitions.len())).ok_or(NoQueue::NoMemory)?;
        if name.address.kind != TopicKind::Event {
            live.retain(|_, queue| queue.queue().is_some());
            let queue = StreamQueue::from_now_on(partitions, &name.address.reply, room);
            live.insert(name, LiveQueue::Telemetry(Arc::downgrade(&queue)));
            return Ok(queue);
        }
        let queue = self.parts.open_queue(&name, &live, partitions, memory, room)?;
        live.insert(name, LiveQueue::Events(Arc::clone(&queue)));
        Ok(queue)
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.parts.positions.failures()
    }

    /// Stores the last positions and ends the thread.
    pub(crate) fn stop(&self) {
        *self.parts.is_stopping.lock() = true;
        self.parts.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that stores the positions of event queues panicked");
        }
        self.parts.positions.stop();
    }
}

impl QueuesParts {
    fn open_queue(
        &self,
        name: &QueueName,
        live: &HashMap<QueueName, LiveQueue>,
        partitions: &[Arc<dyn Partition>],
        memory: &MemoryBudget,
        room: Grant,
    ) -> Result<Arc<StreamQueue>, NoQueue> {
        let tenant = &name.address.tenant;
        let stored = self.of_tenant(tenant);
        let subscription: Arc<str> = name.subscription.as_deref().unwrap_or_default().into();
        let position = |partition: &Arc<dyn Partition>, number: u32| {
            let known = stored.get(&(Arc::clone(&subscription), number));
            known.filter(|known| known.topic == partition.topic().id).map(|known| QueuePosition::clone(known))
        };
        let known: Option<Vec<_>> = partitions.iter().zip(0..).map(|(partition, at)| position(partition, at)).collect();
        let is_new = known.is_none() && !subscription.is_empty();
        if is_new {
            let names_live = live.keys().filter(|other| other.address == name.address);
            let names_live = names_live.filter_map(|other| other.subscription.as_deref());
            let names = stored.keys().map(|(subscription, _)| &**subscription).filter(|name| !name.is_empty());
            if names.chain(names_live).collect::<HashSet<_>>().len() + 1 >= QUEUES_MAX {
                return Err(NoQueue::TooMany);
            }
        }
        let begin = |partition: &Arc<dyn Partition>| {
            let offsets = partition.offsets();
            let next = if is_new { offsets.stable } else { offsets.first };
            QueuePosition { topic: partition.topic().id, stored_ms: 0, next, open: Vec::new() }
        };
        let positions = known.unwrap_or_else(|| partitions.iter().map(begin).collect());
        let durable_room = UnsettledRoom::new(memory.clone(), tenant.clone(), OPEN_MAX);
        let durable = DurableRecords::new(durable_room, self.wall.clone(), is_new);
        Ok(StreamQueue::of_events(partitions, &positions, durable, room))
    }

    fn partition_of(&self, tenant: &TenantId) -> PartitionId {
        self.positions.partition_of(tenant.as_str().as_bytes())
    }

    fn of_tenant(&self, tenant: &TenantId) -> TenantQueues {
        self.positions.snapshot(self.partition_of(tenant)).state.get(tenant).cloned().unwrap_or_default()
    }

    fn run(&self) {
        let mut until_sweep = 0;
        let mut is_stopping = self.is_stopping.lock();
        while !*is_stopping {
            if self.changed.wait_for(&mut is_stopping, STORED_EVERY).timed_out() {
                MutexGuard::unlocked(&mut is_stopping, || {
                    self.store();
                    if until_sweep == 0 {
                        self.sweep();
                        until_sweep = SWEPT_EVERY;
                    }
                    until_sweep -= 1;
                });
            }
        }
        drop(is_stopping);
        self.store();
    }

    /// Stores the positions that have changed, and lets go of queues that nobody uses.
    fn store(&self) {
        let events = |(name, queue): (&QueueName, &LiveQueue)| match queue {
            LiveQueue::Telemetry(_) => None,
            LiveQueue::Events(queue) => Some((name.clone(), Arc::clone(queue))),
        };
        let all: Vec<_> = self.live.lock().iter().filter_map(events).collect();
        for (name, queue) in all {
            let Some(positions) = queue.take_changed(self.wall.now_ms()) else { continue };
            let tenant = name.address.tenant;
            let subscription: Arc<str> = name.subscription.as_deref().unwrap_or_default().into();
            let change = |(partition, position)| PositionChange {
                tenant: tenant.clone(),
                subscription: Arc::clone(&subscription),
                partition,
                position: Some(Arc::new(position)),
            };
            if !self.submit(&tenant, (0..).zip(positions).map(change).collect()) {
                queue.store_again();
            }
        }
        self.live.lock().retain(|_, queue| queue.queue().is_some_and(|queue| queue.is_used()));
    }

    /// Removes the positions of tenants that are gone, and those of names that nobody has used for long.
    fn sweep(&self) {
        let unused_ms = self.wall.now_ms().saturating_sub(UNUSED_MAX_MS);
        for snapshot in self.positions.snapshots() {
            for (tenant, queues) in &snapshot.state {
                let registry = self.registry.snapshot(tenant);
                let is_there = registry.state.tenant(tenant).is_some_and(|known| known.tenant.is_some());
                let live = self.live.lock();
                let is_live = |subscription: &str| {
                    let of_tenant = live.keys().filter(|name| name.address.tenant == *tenant);
                    of_tenant.filter_map(|name| name.subscription.as_deref()).any(|name| name == subscription)
                };
                let is_gone = |subscription: &str, position: &QueuePosition| {
                    !is_there || (!subscription.is_empty() && position.stored_ms < unused_ms && !is_live(subscription))
                };
                let gone = queues.iter().filter(|((subscription, _), position)| is_gone(subscription, position));
                let gone = gone.map(|((subscription, partition), _)| PositionChange {
                    tenant: tenant.clone(),
                    subscription: Arc::clone(subscription),
                    partition: *partition,
                    position: None,
                });
                let gone: Vec<_> = gone.collect();
                drop(live);
                if !gone.is_empty() {
                    self.submit(tenant, gone);
                }
            }
        }
    }

    /// Stores changes of a tenant; false if they cannot be stored.
    fn submit(&self, tenant: &TenantId, changes: Vec<PositionChange>) -> bool {
        let answer = self.positions.submit(self.partition_of(tenant), changes);
        let answer = answer.and_then(|answer| answer.blocking_recv().unwrap_or(Err(millstream_view::Error::Stopped)));
        let was_told = self.is_told.swap(answer.is_err(), Ordering::Relaxed);
        if let (Err(error), false) = (&answer, was_told) {
            tracing::warn!(%tenant, %error, "the positions of a queue of events cannot be stored; it is tried again");
        }
        answer.is_ok()
    }
}
