//! All live queries, by name, and the threads that match for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_log::Bell;
use millstream_types::TenantId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::live::Live;
use crate::price::Prices;
use crate::progress::Totals;
use crate::{Cause, Config, Error, QueryId, Trouble};

/// What a thread is told.
pub(crate) enum Command {
    /// Match for this query from now on, and say when that is so.
    Add(Arc<Live>, oneshot::Sender<Result<(), Error>>),
    /// Match for it no longer.
    Remove(Arc<Live>),
    /// End.
    Stop,
}

/// Where a thread is told, and woken. It holds at most an addition and a removal for each query.
pub(crate) struct Inbox {
    /// `None` once the thread is gone.
    commands: Mutex<Option<Vec<Command>>>,
    bell: Mutex<Arc<Bell>>,
}

impl Inbox {
    fn open() -> Self {
        Self { commands: Mutex::new(Some(Vec::new())), bell: Mutex::default() }
    }

    /// Tells the thread; if it is gone, whoever waits for an answer learns that by the lost command.
    fn send(&self, command: Command) {
        if let Some(commands) = &mut *self.commands.lock() {
            commands.push(command);
        }
        self.bell().ring();
    }

    pub(crate) fn take(&self) -> Vec<Command> {
        self.commands.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn close(&self) {
        *self.commands.lock() = None;
    }

    /// What wakes the thread.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        self.bell.lock().clone()
    }

    /// A new bell, which no partition rings yet; the old one ends with the last reference.
    pub(crate) fn renew_bell(&self) -> Arc<Bell> {
        let bell = Arc::new(Bell::default());
        *self.bell.lock() = bell.clone();
        // What was sent before this moment rang the old bell.
        bell.ring();
        bell
    }
}

pub(crate) struct Registry {
    live: Mutex<LiveQueries>,
    pub(crate) inboxes: Vec<Inbox>,
    pub(crate) totals: Arc<Totals>,
}

#[derive(Default)]
struct LiveQueries {
    by_id: HashMap<QueryId, Arc<Live>>,
    by_tenant: HashMap<TenantId, usize>,
    prices: Prices,
    stopped: bool,
}

impl Registry {
    pub(crate) fn new(threads: usize) -> Self {
        let inboxes = (0..threads).map(|_| Inbox::open()).collect();
        Self { live: Mutex::default(), inboxes, totals: Arc::default() }
    }

    /// Takes a query with this condition, if there is room.
    pub(crate) fn admit(&self, query: &Arc<Live>, filter: &str, config: &Config) -> Result<(), Error> {
        let mut live = self.live.lock();
        if live.stopped {
            return Err(Error::Stopped);
        }
        if live.by_id.len() >= config.live_max {
            return Err(Error::TooMany { limit: config.live_max });
        }
        if live.by_tenant.get(&query.tenant).is_some_and(|of_tenant| *of_tenant >= config.live_per_tenant_max) {
            let limit = config.live_per_tenant_max;
            return Err(Error::TooManyOfTenant { tenant: query.tenant.clone(), limit });
        }
        live.prices.add(query.stream.topic.id, query.price, filter, config)?;
        *live.by_tenant.entry(query.tenant.clone()).or_default() += 1;
        live.by_id.insert(query.id, query.clone());
        Ok(())
    }

    /// Has every thread that reads part of the query's stream match for it.
    pub(crate) async fn start(&self, query: &Arc<Live>) -> Result<(), Error> {
        let mut answers = Vec::new();
        for inbox in &self.inboxes {
            let (sender, receiver) = oneshot::channel();
            inbox.send(Command::Add(query.clone(), sender));
            answers.push(receiver);
        }
        for answer in answers {
            answer.await.unwrap_or(Err(Error::Stopped))?;
        }
        query.matched.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a query, unless it has ended already.
    pub(crate) fn end(&self, query: &Arc<Live>, cause: Cause, trouble: Option<Trouble>) {
        if !query.end(cause, trouble) {
            return;
        }
        let mut live = self.live.lock();
        live.by_id.remove(&query.id);
        live.prices.remove(query.stream.topic.id, query.price);
        if let Some(of_tenant) = live.by_tenant.get_mut(&query.tenant) {
            *of_tenant -= 1;
            if *of_tenant == 0 {
                live.by_tenant.remove(&query.tenant);
            }
        }
        drop(live);
        for inbox in &self.inboxes {
            inbox.send(Command::Remove(query.clone()));
        }
    }

    pub(crate) fn find(&self, tenant: &TenantId, id: QueryId) -> Result<Arc<Live>, Error> {
        let live = self.live.lock();
        let query = live.by_id.get(&id).filter(|query| query.tenant == *tenant);
        query.cloned().ok_or(Error::UnknownQuery { id })
    }

    /// The live queries that `select` selects, oldest first.
    pub(crate) fn list(&self, select: impl Fn(&Live) -> bool) -> Vec<Arc<Live>> {
        let mut list: Vec<Arc<Live>> = self.live.lock().by_id.values().filter(|live| select(live)).cloned().collect();
        list.sort_by_key(|live| (live.received, live.id));
        list
    }

    pub(crate) fn live_count(&self) -> usize {
        self.live.lock().by_id.len()
    }

    /// Refuses new queries, ends the live ones and tells the threads to end.
    pub(crate) fn stop(&self) {
        self.live.lock().stopped = true;
        for query in self.list(|_| true) {
            self.end(&query, Cause::Shutdown, None);
        }
        self.inboxes.iter().for_each(|inbox| inbox.send(Command::Stop));
    }
}
