//! The maintenance thread: removes expired entities and builds the indexes that queries want.
//!
//! The thread only sends commands. The owners do the work in short steps, between the commands of clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_types::{PartitionId, TenantId, WallClock};
use millstream_view::Slots;
use parking_lot::{Condvar, Mutex};

use crate::Error;
use crate::entities::view::{EntityCommand, EntityReply, EntityView};

/// Interval between two searches for expired entities.
const INTERVAL: Duration = Duration::from_millis(500);
/// Indexes that may wait to be built. The next query asks again for an index beyond this limit.
const WANTED_MAX: usize = 1_024;

/// The work that the maintenance thread is asked for.
#[derive(Default)]
struct MaintenanceQueue {
    content: Mutex<QueueContent>,
    wake: Condvar,
}

#[derive(Default)]
struct QueueContent {
    /// Attributes whose values shall be indexed.
    wanted: BTreeSet<(TenantId, String)>,
    is_stopping: bool,
}

/// Handle of the maintenance thread.
pub(crate) struct Maintenance {
    queue: Arc<MaintenanceQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Maintenance {
    pub(crate) fn start(views: Arc<Slots<EntityView>>, wall: Arc<dyn WallClock>) -> Result<Self, Error> {
        let queue = Arc::new(MaintenanceQueue::default());
        let (theirs, name) = (queue.clone(), "context-upkeep".to_owned());
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || run(&theirs, &views, &*wall))
            .map_err(|source| Error::Thread(Arc::new(source)))?;
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    /// Requests indexes over the values of `attributes`.
    pub(crate) fn request_indexes(&self, tenant: &TenantId, attributes: Vec<String>) {
        let mut content = self.queue.content.lock();
        for attribute in attributes {
            if content.wanted.len() < WANTED_MAX {
                content.wanted.insert((tenant.clone(), attribute));
            }
        }
        self.queue.wake.notify_one();
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.queue.content.lock().is_stopping = true;
        self.queue.wake.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the maintenance thread of entities panicked");
        }
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(queue: &MaintenanceQueue, views: &Slots<EntityView>, wall: &dyn WallClock) {
    loop {
        let wanted = {
            let mut content = queue.content.lock();
            if content.wanted.is_empty() && !content.is_stopping {
                queue.wake.wait_for(&mut content, INTERVAL);
            }
            if content.is_stopping {
                return;
            }
            content.wanted.pop_first()
        };
        if let Some((tenant, attribute)) = wanted {
            build(views, &tenant, &attribute.into(), || queue.content.lock().is_stopping);
        }
        expire(views, wall.now_ms());
    }
}

/// Indexes the values of `attribute` in all partitions; returns early when `is_stopping`.
fn build(views: &Slots<EntityView>, tenant: &TenantId, attribute: &Arc<str>, is_stopping: impl Fn() -> bool) {
    for partition in (0..views.partitions()).map(PartitionId) {
        let step = || EntityCommand::Index { tenant: tenant.clone(), attribute: attribute.clone() };
        while !is_stopping() && matches!(ask(views, partition, step()), Some(EntityReply::MoreToDo)) {}
    }
}

/// Asks the owners of all partitions to remove the entities that have expired at `now_ms`.
fn expire(views: &Slots<EntityView>, now_ms: i64) {
    for partition in (0..views.partitions()).map(PartitionId) {
        let is_due = || {
            let Ok(snapshot) = views.snapshot(partition) else { return false };
            snapshot.state.tenants().any(|(_, entities)| entities.expired(now_ms).next().is_some())
        };
        while is_due() && matches!(ask(views, partition, EntityCommand::Expire), Some(EntityReply::MoreToDo)) {}
    }
}

/// Sends a command and waits for the reply; `None` if the owner cannot take it now.
fn ask(views: &Slots<EntityView>, partition: PartitionId, command: EntityCommand) -> Option<EntityReply> {
    views.submit(partition, command).ok()?.blocking_recv().ok()?.ok()
}
