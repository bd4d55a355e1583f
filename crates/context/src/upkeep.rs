//! What owners are reminded of: entities that have come to their end, and indexes that queries want.
//!
//! One thread; everything is done by the owners themselves, in commands that hold up nobody.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_types::{PartitionId, TenantId, WallClock};
use millstream_view::Views;
use parking_lot::{Condvar, Mutex};

use crate::Error;
use crate::entities::{Answer, Command, EntityView};

/// How often it is looked for entities that have come to their end.
const EVERY: Duration = Duration::from_millis(500);
/// Indexes that may wait to be built; what is wanted beyond that is wanted again by the next query.
const WANTED_MAX: usize = 1_024;

/// What is to be done, shared with those who want it.
#[derive(Default)]
struct Todo {
    wanted: BTreeSet<(TenantId, String)>,
    is_stopping: bool,
}

/// The thread and what it is told.
pub(crate) struct Upkeep {
    todo: Arc<(Mutex<Todo>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Upkeep {
    pub(crate) fn start(views: Arc<Views<EntityView>>, wall: Arc<dyn WallClock>) -> Result<Self, Error> {
        let todo = Arc::new((Mutex::new(Todo::default()), Condvar::new()));
        let (theirs, name) = (todo.clone(), "context-upkeep".to_owned());
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || run(&theirs, &views, &*wall))
            .map_err(|source| Error::Thread(Arc::new(source)))?;
        Ok(Self { todo, thread: Mutex::new(Some(thread)) })
    }

    /// The values of these attributes are to be indexed.
    pub(crate) fn want(&self, tenant: &TenantId, attributes: Vec<String>) {
        let (todo, wake) = &*self.todo;
        let mut todo = todo.lock();
        for attribute in attributes {
            if todo.wanted.len() < WANTED_MAX {
                todo.wanted.insert((tenant.clone(), attribute));
            }
        }
        wake.notify_one();
    }

    /// Does nothing more.
    pub(crate) fn stop(&self) {
        let (todo, wake) = &*self.todo;
        todo.lock().is_stopping = true;
        wake.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reminds owners of entities panicked");
        }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run((todo, wake): &(Mutex<Todo>, Condvar), views: &Views<EntityView>, wall: &dyn WallClock) {
    loop {
        let wanted = {
            let mut todo = todo.lock();
            if todo.wanted.is_empty() && !todo.is_stopping {
                wake.wait_for(&mut todo, EVERY);
            }
            if todo.is_stopping {
                return;
            }
            todo.wanted.pop_first()
        };
        if let Some((tenant, attribute)) = wanted {
            build(views, &tenant, &attribute.into(), || todo.lock().is_stopping);
        }
        expire(views, wall.now_ms());
    }
}

fn build(views: &Views<EntityView>, tenant: &TenantId, attribute: &Arc<str>, is_stopping: impl Fn() -> bool) {
    for partition in (0..views.partitions()).map(PartitionId) {
        let step = || Command::Index { tenant: tenant.clone(), attribute: attribute.clone() };
        while !is_stopping() && matches!(ask(views, partition, step()), Some(Answer::MoreToDo)) {}
    }
}

fn expire(views: &Views<EntityView>, now_ms: i64) {
    for partition in (0..views.partitions()).map(PartitionId) {
        let is_due = || {
            let snapshot = views.snapshot(partition);
            snapshot.state.tenants().any(|(_, entities)| entities.expired(now_ms).next().is_some())
        };
        while is_due() && matches!(ask(views, partition, Command::Expire), Some(Answer::MoreToDo)) {}
    }
}

/// What the owner answers; nothing if it does not now.
fn ask(views: &Views<EntityView>, partition: PartitionId, command: Command) -> Option<Answer> {
    views.submit(partition, command).ok()?.blocking_recv().ok()?.ok()
}
