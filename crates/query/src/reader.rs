//! A thread that reads its share of the partitions and matches their records; the first one also keeps the time.
//!
//! Records, not queries, are split over threads: each knows all queries of its streams. Shared are the queries' outboxes
//! and counters, and the index of a stream's queries, which nobody changes while somebody looks.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millstream_log::Partition;
use millstream_types::TopicId;

use crate::live::{Clocks, Live};
use crate::outbox::Put;
use crate::registry::{Command, Inbox, Registry};
use crate::stream::Stream;
use crate::tailed::{Broken, Tailed};
use crate::wheel::{Ticket, Wheel, due_ms};
use crate::{Cause, Error, QueryId};

/// Longest sleep while some query has a deadline: a clock that is set by hand rings no bell.
const WAIT_FOR_DEADLINE: Duration = Duration::from_millis(50);
/// Longest sleep otherwise.
const WAIT: Duration = Duration::from_secs(1);

pub(crate) struct Reader {
    number: usize,
    registry: Arc<Registry>,
    read_max_bytes: usize,
    clocks: Arc<Clocks>,
    streams: HashMap<TopicId, Tailed>,
    /// When queries end, and when their windows do. Kept by the first thread only.
    deadlines: Wheel<Weak<Live>>,
    /// Where each of them waits.
    tickets: HashMap<QueryId, Ticket>,
}

impl Reader {
    pub(crate) fn new(number: usize, registry: Arc<Registry>, read_max_bytes: usize, clocks: Arc<Clocks>) -> Self {
        let deadlines = Wheel::new(due_ms(clocks.monotonic.now()));
        Self { number, registry, read_max_bytes, clocks, streams: HashMap::new(), deadlines, tickets: HashMap::new() }
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self) {
        while self.obey() {
            let any = self.advance();
            self.expire();
            if !any {
                self.inbox().bell().wait(self.patience());
            }
        }
        self.inbox().close();
    }

    fn inbox(&self) -> &Inbox {
        &self.registry.inboxes[self.number]
    }

    /// Does what it has been told since last time; false when that is to stop.
    fn obey(&mut self) -> bool {
        for command in self.inbox().take() {
            match command {
                Command::Add(query, answer) => drop(answer.send(self.add(&query))),
                Command::Resume(queries, answer) => {
                    self.resume(&queries);
                    // Whoever waits for it may be gone.
                    let _ = answer.send(());
                }
                Command::Schedule(queries) => queries.iter().for_each(|query| self.schedule(query)),
                Command::Note(answer) => {
                    self.streams.values().for_each(Tailed::note);
                    let _ = answer.send(());
                }
                Command::Remove(query) => self.remove(&query),
                Command::Stop => return false,
            }
        }
        true
    }

    fn add(&mut self, query: &Arc<Live>) -> Result<(), Error> {
        if query.outbox.has_ended() {
            return Ok(());
        }
        self.schedule(query);
        let (id, now_ms) = (query.stream.topic.id, self.clocks.wall.now_ms());
        let Some(tailed) = self.tailed(&query.stream) else {
            return Ok(());
        };
        // What has been appended before is not for the new query, but still for the others.
        let mut finished = Vec::new();
        let caught_up = tailed.catch_up(now_ms, &mut finished);
        if caught_up.is_ok() {
            tailed.insert(query.clone());
        }
        self.registry.finish(finished);
        caught_up.map_err(|broken| {
            self.fail(id, &broken);
            broken.of(&query.stream.topic.name)
        })
    }

    /// A stream as this thread reads it; `None` if it reads none of its partitions.
    fn tailed(&mut self, stream: &Arc<Stream>) -> Option<&mut Tailed> {
        let id = stream.topic.id;
        let (number, threads) = (self.number, self.registry.inboxes.len());
        let mine = |partition: &dyn Partition| {
            (id.0 as usize).wrapping_add(partition.id().partition.0 as usize) % threads == number
        };
        if !stream.partitions.iter().any(|partition| mine(&**partition)) {
            return None;
        }
        if !self.streams.contains_key(&id) {
            let (bell, totals) = (self.inbox().bell(), self.registry.totals.clone());
            let tailed = Tailed::begin(stream.clone(), mine, &bell, number, self.read_max_bytes, totals);
            self.streams.insert(id, tailed);
        }
        self.streams.get_mut(&id)
    }

    /// Has queries of one stream that a former process has kept go on.
    fn resume(&mut self, queries: &[Arc<Live>]) {
        let Some(stream) = queries.first().map(|query| query.stream.clone()) else { return };
        let now_ms = self.clocks.wall.now_ms();
        let Some(tailed) = self.tailed(&stream) else { return };
        let mut finished = Vec::new();
        let caught_up = tailed.catch_up(now_ms, &mut finished);
        match caught_up.and_then(|()| tailed.replay(queries, now_ms, &mut finished)) {
            // Whoever takes one out that has ended may have done so already.
            Ok(()) => {
                let live = queries.iter().filter(|query| !query.outbox.has_ended());
                live.for_each(|query| tailed.insert(query.clone()));
            }
            // What the others see of the stream comes later.
            Err(broken) => queries.iter().for_each(|query| self.registry.end_broken(query, &broken)),
        }
        self.registry.finish(finished);
    }

    /// Has the first thread look at a query when something is due.
    fn schedule(&mut self, query: &Arc<Live>) {
        if let Some(due) = query.next_due().filter(|_| self.number == 0) {
            let ticket = self.deadlines.schedule(due_ms(due), Arc::downgrade(query));
            self.tickets.insert(query.id, ticket);
        }
    }

    fn remove(&mut self, query: &Live) {
        if let Some(ticket) = self.tickets.remove(&query.id) {
            self.deadlines.cancel(ticket);
        }
        query.stream.remove(query);
        let id = query.stream.topic.id;
        let Some(tailed) = self.streams.get_mut(&id) else {
            return;
        };
        tailed.remove(query);
        if tailed.is_idle() {
            self.leave(id);
        }
    }

    /// Reads a stream no longer. A partition rings a bell for as long as the bell lives, so the others get a new one.
    fn leave(&mut self, id: TopicId) {
        self.streams.remove(&id);
        let bell = self.inbox().renew_bell();
        self.streams.values().for_each(|tailed| tailed.watch(&bell));
    }

    /// Reads and matches a piece of everything. Whether there was anything.
    fn advance(&mut self) -> bool {
        let now_ms = self.clocks.wall.now_ms();
        let mut any = false;
        let mut finished = Vec::new();
        let mut broken = Vec::new();
        for (id, tailed) in &mut self.streams {
            match tailed.advance(now_ms, &mut finished) {
                Ok(read) => any |= read,
                Err(error) => broken.push((*id, error)),
            }
        }
        self.registry.finish(finished);
        for (id, error) in broken {
            self.fail(id, &error);
        }
        any
    }

    /// Ends all queries of a stream that cannot be read.
    fn fail(&mut self, id: TopicId, broken: &Broken) {
        let Some(tailed) = self.streams.get(&id) else {
            return;
        };
        if !broken.is_stop() {
            tracing::error!(stream = %tailed.stream.topic.name, error = broken as &dyn std::error::Error, "live queries cannot read their stream");
        }
        let queries: Vec<_> = tailed.stream.catalogue().tags().cloned().collect();
        for query in queries {
            self.registry.end_broken(&query, broken);
        }
        self.leave(id);
    }

    /// Gives the windows that are due, and ends the queries whose time is over.
    fn expire(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let mut due = Vec::new();
        // Whole milliseconds that are over: nothing ends before its time.
        let now = self.clocks.monotonic.now();
        self.deadlines.advance(now.as_millis() as u64, &mut due);
        let mut finished = Vec::new();
        for query in due.iter().filter_map(Weak::upgrade) {
            self.tickets.remove(&query.id);
            if query.deadline().is_some_and(|deadline| deadline <= now) {
                self.registry.end(&query, Cause::Duration, None);
                continue;
            }
            match query.tick(now) {
                Put::Taken => self.schedule(&query),
                put => finished.push((query, put)),
            }
        }
        self.registry.finish(finished);
    }

    /// How long there is nothing to do unless the bell rings.
    fn patience(&self) -> Duration {
        match self.deadlines.next_ms() {
            Some(next_ms) => {
                let now = self.clocks.monotonic.now();
                Duration::from_millis(next_ms).saturating_sub(now).min(WAIT_FOR_DEADLINE)
            }
            None => WAIT,
        }
    }
}
