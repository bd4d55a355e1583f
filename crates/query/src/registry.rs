//! All live queries, by name, and the threads that match for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashTable;
use millstream_log::Bell;
use millstream_types::TenantId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::keeper::KeeperInbox;
use crate::live::Live;
use crate::price::Prices;
use crate::progress::Totals;
use crate::{Cause, Config, Error, QueryId, Trouble};

/// What a thread is told.
pub(crate) enum Command {
    /// Match for this query from now on, and say when that is so.
    Add(Arc<Live>, oneshot::Sender<Result<(), Error>>),
    /// Match for these of one stream, which a former process has kept, once they have seen what they have not; say when.
    Resume(Arc<[Arc<Live>]>, oneshot::Sender<()>),
    /// Look at these when something is due.
    Schedule(Arc<[Arc<Live>]>),
    /// Note for those that are kept up to where everything is matched, and say when that is done.
    Note(oneshot::Sender<()>),
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

    /// Tells the thread something that it answers.
    fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.send(command(sender));
        receiver
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
    pub(crate) keeper: KeeperInbox,
}

#[derive(Default)]
struct LiveQueries {
    /// All of them, and those that are kept until somebody has read their end.
    by_id: HashTable<Arc<Live>>,
    by_tenant: HashMap<TenantId, usize>,
    kept: HashMap<QueryId, Arc<Live>>,
    prices: Prices,
    stopped: bool,
}

impl Registry {
    pub(crate) fn new(threads: usize) -> Self {
        let inboxes = (0..threads).map(|_| Inbox::open()).collect();
        Self { live: Mutex::default(), inboxes, totals: Arc::default(), keeper: KeeperInbox::default() }
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
        if live.by_tenant.get(query.tenant()).is_some_and(|of_tenant| *of_tenant >= config.live_per_tenant_max) {
            let limit = config.live_per_tenant_max;
            return Err(Error::TooManyOfTenant { tenant: query.tenant().clone(), limit });
        }
        if query.keeping.is_some() {
            let of_tenant = live.kept.values().filter(|kept| kept.tenant() == query.tenant()).count();
            if of_tenant >= config.kept_per_tenant_max {
                let limit = config.kept_per_tenant_max;
                return Err(Error::TooManyKept { tenant: query.tenant().clone(), limit });
            }
        }
        if let Some(price) = &query.price {
            live.prices.add(query.stream.topic.id, price, filter, config)?;
        }
        *live.by_tenant.entry(query.tenant().clone()).or_default() += 1;
        live.by_id.insert_unique(query.id.hash(), query.clone(), |query| query.id.hash());
        if query.keeping.is_some() {
            live.kept.insert(query.id, query.clone());
        }
        Ok(())
    }

    /// Has every thread that reads part of the query's stream match for it.
    pub(crate) async fn start(&self, query: &Arc<Live>) -> Result<(), Error> {
        let add = |inbox: &Inbox| inbox.ask(|sender| Command::Add(query.clone(), sender));
        let answers: Vec<_> = self.inboxes.iter().map(add).collect();
        for answer in answers {
            answer.await.unwrap_or(Err(Error::Stopped))?;
        }
        query.matched.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a query, unless it has ended already. One that is kept stays until somebody has read its end.
    pub(crate) fn end(&self, query: &Arc<Live>, cause: Cause, trouble: Option<Trouble>) {
        if !query.end(cause, trouble) {
            return;
        }
        let stays = cause != Cause::Shutdown && query.keeping.as_ref().is_some_and(|keeping| keeping.is_kept());
        {
            let mut live = self.live.lock();
            if let Some(price) = &query.price {
                live.prices.remove(query.stream.topic.id, price);
            }
            if !stays {
                live.remove(query);
            }
        }
        for inbox in &self.inboxes {
            inbox.send(Command::Remove(query.clone()));
        }
    }

    /// Keeps a query no longer that has ended.
    pub(crate) fn forget(&self, query: &Live) {
        if self.live.lock().remove(query) {
            self.keeper.forget(query.id);
        }
    }

    /// The queries that are kept, or to be.
    pub(crate) fn kept(&self) -> Vec<Arc<Live>> {
        self.live.lock().kept.values().cloned().collect()
    }

    pub(crate) fn is_kept(&self, id: QueryId) -> bool {
        self.live.lock().kept.contains_key(&id)
    }

    pub(crate) fn keeps_any(&self) -> bool {
        !self.live.lock().kept.is_empty()
    }

    /// Has the threads note how far the queries that are kept have come.
    pub(crate) fn note_places(&self) {
        let noted: Vec<_> = self.inboxes.iter().map(|inbox| inbox.ask(Command::Note)).collect();
        // A thread that is gone has noted everything.
        noted.into_iter().for_each(|noted| drop(noted.blocking_recv()));
    }

    /// Has the threads match for queries of one stream that a former process has kept; each says when it does.
    pub(crate) fn resume(&self, queries: &Arc<[Arc<Live>]>) -> Vec<oneshot::Receiver<()>> {
        let resume = |inbox: &Inbox| inbox.ask(|sender| Command::Resume(queries.clone(), sender));
        self.inboxes.iter().map(resume).collect()
    }

    /// All threads match for queries that a former process has kept: from now on their time is looked at.
    pub(crate) fn resumed(&self, queries: &[Arc<Live>]) {
        if let Some(inbox) = self.inboxes.first() {
            inbox.send(Command::Schedule(queries.into()));
        }
    }

    pub(crate) fn find(&self, tenant: &TenantId, id: QueryId) -> Result<Arc<Live>, Error> {
        let live = self.live.lock();
        let query = live.by_id.find(id.hash(), |query| query.id == id).filter(|query| query.tenant() == tenant);
        query.cloned().ok_or(Error::UnknownQuery { id })
    }

    /// The live queries that `select` selects, oldest first.
    pub(crate) fn list(&self, select: impl Fn(&Live) -> bool) -> Vec<Arc<Live>> {
        let mut list: Vec<Arc<Live>> = self.live.lock().by_id.iter().filter(|live| select(live)).cloned().collect();
        list.sort_by_key(|live| (live.received, live.id));
        list
    }

    pub(crate) fn live_count(&self) -> usize {
        self.live.lock().by_id.len()
    }

    /// Refuses new queries.
    pub(crate) fn close(&self) {
        self.live.lock().stopped = true;
    }

    /// Ends the live ones and tells the threads to end.
    pub(crate) fn stop(&self) {
        for query in self.list(|_| true) {
            self.end(&query, Cause::Shutdown, None);
        }
        self.inboxes.iter().for_each(|inbox| inbox.send(Command::Stop));
    }
}

impl LiveQueries {
    /// Takes a query out; whether it was there.
    fn remove(&mut self, query: &Live) -> bool {
        let Ok(known) = self.by_id.find_entry(query.id.hash(), |known| known.id == query.id) else {
            return false;
        };
        known.remove();
        self.kept.remove(&query.id);
        if let Some(of_tenant) = self.by_tenant.get_mut(query.tenant()) {
            *of_tenant -= 1;
            if *of_tenant == 0 {
                self.by_tenant.remove(query.tenant());
            }
        }
        true
    }
}
