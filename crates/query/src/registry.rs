//! All live queries, by name, and the threads that match for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashTable;
use millstream_log::Bell;
use millstream_types::TenantId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::checkpointer_inbox::CheckpointerInbox;
use crate::cost::CostModel;
use crate::live::LiveQuery;
use crate::progress::EngineTotals;
use crate::{Cause, Config, Error, QueryId, Trouble};

/// A command to a matching thread.
pub(crate) enum ReaderCommand {
    /// Match for this query from now on, and say when that is so.
    Add(Arc<LiveQuery>, oneshot::Sender<Result<(), Error>>),
    /// Match for these stored queries of one stream, after replaying the records that they have missed; then answer.
    Resume(Arc<[Arc<LiveQuery>]>, oneshot::Sender<()>),
    /// Set the timers of these queries.
    Schedule(Arc<[Arc<LiveQuery>]>),
    /// Note for kept queries the positions up to which records are matched; then answer.
    Note(oneshot::Sender<()>),
    /// Match for it no longer.
    Remove(Arc<LiveQuery>),
    /// End the thread for good.
    Stop,
}

/// The commands of a thread, and its bell. It holds at most one addition and one removal for each query.
pub(crate) struct Inbox {
    /// `None` once the thread has ended.
    commands: Mutex<Option<Vec<ReaderCommand>>>,
    bell: Mutex<Arc<Bell>>,
}

impl Inbox {
    fn open() -> Self {
        Self { commands: Mutex::new(Some(Vec::new())), bell: Mutex::default() }
    }

    /// Sends a command. If the thread has ended, the dropped command tells the caller.
    fn send(&self, command: ReaderCommand) {
        if let Some(commands) = &mut *self.commands.lock() {
            commands.push(command);
        }
        self.bell().ring();
    }

    /// Tells the thread something that it answers.
    fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> ReaderCommand) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.send(command(sender));
        receiver
    }

    pub(crate) fn take(&self) -> Vec<ReaderCommand> {
        self.commands.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn close(&self) {
        *self.commands.lock() = None;
    }

    /// The bell that wakes the thread.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        self.bell.lock().clone()
    }

    /// A new bell, which no partition rings yet; the old one ends with the last reference.
    pub(crate) fn renew_bell(&self) -> Arc<Bell> {
        let bell = Arc::new(Bell::default());
        *self.bell.lock() = bell.clone();
        // The commands before this moment rang the old bell.
        bell.ring();
        bell
    }
}

pub(crate) struct QueryRegistry {
    live: Mutex<LiveQueries>,
    pub(crate) inboxes: Vec<Inbox>,
    pub(crate) totals: Arc<EngineTotals>,
    pub(crate) checkpointer: CheckpointerInbox,
}

#[derive(Default)]
struct LiveQueries {
    /// All live queries, and kept queries whose end nobody has read.
    by_id: HashTable<Arc<LiveQuery>>,
    by_tenant: HashMap<TenantId, usize>,
    kept: HashMap<QueryId, Arc<LiveQuery>>,
    prices: CostModel,
    stopped: bool,
}

impl QueryRegistry {
    pub(crate) fn new(threads: usize) -> Self {
        let inboxes = (0..threads).map(|_| Inbox::open()).collect();
        Self { live: Mutex::default(), inboxes, totals: Arc::default(), checkpointer: CheckpointerInbox::default() }
    }

    /// Takes a query with this condition, if there is room.
    pub(crate) fn admit(&self, query: &Arc<LiveQuery>, filter: &str, config: &Config) -> Result<(), Error> {
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
        if query.durable.is_some() {
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
        if query.durable.is_some() {
            live.kept.insert(query.id, query.clone());
        }
        Ok(())
    }

    /// Has every thread that reads part of the query's stream match for it.
    pub(crate) async fn start(&self, query: &Arc<LiveQuery>) -> Result<(), Error> {
        let add = |inbox: &Inbox| inbox.ask(|sender| ReaderCommand::Add(query.clone(), sender));
        let answers: Vec<_> = self.inboxes.iter().map(add).collect();
        for answer in answers {
            answer.await.unwrap_or(Err(Error::Stopped))?;
        }
        query.matched.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a query that has not ended yet. A kept query stays until its end is read.
    pub(crate) fn end(&self, query: &Arc<LiveQuery>, cause: Cause, trouble: Option<Trouble>) {
        if !query.end(cause, trouble) {
            return;
        }
        self.totals.count_end(cause);
        let stays = cause != Cause::Shutdown && query.durable.as_ref().is_some_and(|durable| durable.is_kept());
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
            inbox.send(ReaderCommand::Remove(query.clone()));
        }
    }

    /// Keeps a query no longer that has ended.
    pub(crate) fn forget(&self, query: &LiveQuery) {
        if self.live.lock().remove(query) {
            self.checkpointer.forget(query.id);
        }
    }

    /// The queries with checkpoints, or waiting for their first.
    pub(crate) fn kept(&self) -> Vec<Arc<LiveQuery>> {
        self.live.lock().kept.values().cloned().collect()
    }

    pub(crate) fn is_kept(&self, id: QueryId) -> bool {
        self.live.lock().kept.contains_key(&id)
    }

    pub(crate) fn keeps_any(&self) -> bool {
        !self.live.lock().kept.is_empty()
    }

    /// Makes the threads note the positions of kept queries.
    pub(crate) fn note_places(&self) {
        let noted: Vec<_> = self.inboxes.iter().map(|inbox| inbox.ask(ReaderCommand::Note)).collect();
        // A thread that has ended has noted everything.
        noted.into_iter().for_each(|noted| drop(noted.blocking_recv()));
    }

    /// Makes the threads match for stored queries of one stream; each answers when it does.
    pub(crate) fn resume(&self, queries: &Arc<[Arc<LiveQuery>]>) -> Vec<oneshot::Receiver<()>> {
        let resume = |inbox: &Inbox| inbox.ask(|sender| ReaderCommand::Resume(queries.clone(), sender));
        self.inboxes.iter().map(resume).collect()
    }

    /// All threads match for the resumed queries: their timers start now.
    pub(crate) fn resumed(&self, queries: &[Arc<LiveQuery>]) {
        if let Some(inbox) = self.inboxes.first() {
            inbox.send(ReaderCommand::Schedule(queries.into()));
        }
    }

    pub(crate) fn find(&self, tenant: &TenantId, id: QueryId) -> Result<Arc<LiveQuery>, Error> {
        let live = self.live.lock();
        let query = live.by_id.find(id.hash(), |query| query.id == id).filter(|query| query.tenant() == tenant);
        query.cloned().ok_or(Error::UnknownQuery { id })
    }

    /// The live queries that `select` selects, oldest first.
    pub(crate) fn list(&self, select: impl Fn(&LiveQuery) -> bool) -> Vec<Arc<LiveQuery>> {
        let mut list: Vec<Arc<LiveQuery>> =
            self.live.lock().by_id.iter().filter(|live| select(live)).cloned().collect();
        list.sort_by_key(|live| (live.received, live.id));
        list
    }

    /// The number of queries that have not ended.
    pub(crate) fn live_count(&self) -> usize {
        let live = self.live.lock();
        live.by_id.len() - live.kept.values().filter(|kept| kept.outbox.has_ended()).count()
    }

    /// Refuses new queries from now on.
    pub(crate) fn close(&self) {
        self.live.lock().stopped = true;
    }

    /// Ends the live ones and tells the threads to end.
    pub(crate) fn stop(&self) {
        for query in self.list(|_| true) {
            self.end(&query, Cause::Shutdown, None);
        }
        self.inboxes.iter().for_each(|inbox| inbox.send(ReaderCommand::Stop));
    }
}

impl LiveQueries {
    /// Takes a query out; whether it was there.
    fn remove(&mut self, query: &LiveQuery) -> bool {
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
