//! A thread that reads its share of the partitions and matches their records; the first thread also runs the timers.
//!
//! Records are split over threads, queries are not: each thread knows all queries of its streams. Threads share the queries'
//! outboxes and counters, and the index of a stream's queries, which does not change while a thread reads it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millstream_log::Partition;
use millstream_types::TopicId;

use crate::clocks::Clocks;
use crate::live::{LiveQuery, LiveStream};
use crate::outbox::PutOutcome;
use crate::read_error::ReadError;
use crate::registry::{Inbox, QueryRegistry, ReaderCommand};
use crate::stream_tail::StreamTail;
use crate::timer_wheel::{TimerId, TimerWheel, due_ms};
use crate::{Cause, Error, QueryId};

/// Longest sleep while some query has a deadline: a clock that is set by hand rings no bell.
const WAIT_FOR_DEADLINE: Duration = Duration::from_millis(50);
/// The longest sleep without a timer.
const WAIT: Duration = Duration::from_secs(1);

pub(crate) struct PartitionReader {
    number: usize,
    registry: Arc<QueryRegistry>,
    read_max_bytes: usize,
    clocks: Arc<Clocks>,
    streams: HashMap<TopicId, StreamTail>,
    /// The ends of queries and of their windows. Only the first thread has any.
    deadlines: TimerWheel<Weak<LiveQuery>>,
    /// The timer of each query.
    tickets: HashMap<QueryId, TimerId>,
}

impl PartitionReader {
    pub(crate) fn new(number: usize, registry: Arc<QueryRegistry>, read_max_bytes: usize, clocks: Arc<Clocks>) -> Self {
        let deadlines = TimerWheel::new(due_ms(clocks.monotonic.now()));
        Self { number, registry, read_max_bytes, clocks, streams: HashMap::new(), deadlines, tickets: HashMap::new() }
    }

    /// Runs until it receives [`ReaderCommand::Stop`].
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

    /// Executes the commands since the last call; false after [`ReaderCommand::Stop`].
    fn obey(&mut self) -> bool {
        for command in self.inbox().take() {
            match command {
                ReaderCommand::Add(query, answer) => drop(answer.send(self.add(&query))),
                ReaderCommand::Resume(queries, answer) => {
                    self.resume(&queries);
                    // The caller may have stopped waiting.
                    let _ = answer.send(());
                }
                ReaderCommand::Schedule(queries) => queries.iter().for_each(|query| self.schedule(query)),
                ReaderCommand::Note(answer) => {
                    self.streams.values().for_each(StreamTail::note);
                    let _ = answer.send(());
                }
                ReaderCommand::Remove(query) => self.remove(&query),
                ReaderCommand::Stop => return false,
            }
        }
        true
    }

    fn add(&mut self, query: &Arc<LiveQuery>) -> Result<(), Error> {
        if query.outbox.has_ended() {
            return Ok(());
        }
        self.schedule(query);
        let (id, now_ms) = (query.stream.topic.id, self.clocks.wall.now_ms());
        let Some(tailed) = self.tailed(&query.stream) else {
            return Ok(());
        };
        // Earlier records are not for the new query, but still for the others.
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
    fn tailed(&mut self, stream: &Arc<LiveStream>) -> Option<&mut StreamTail> {
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
            let tailed = StreamTail::begin(stream.clone(), mine, &bell, number, self.read_max_bytes, totals);
            self.streams.insert(id, tailed);
        }
        self.streams.get_mut(&id)
    }

    /// Resumes the stored queries of one stream.
    fn resume(&mut self, queries: &[Arc<LiveQuery>]) {
        let Some(stream) = queries.first().map(|query| query.stream.clone()) else { return };
        let now_ms = self.clocks.wall.now_ms();
        let Some(tailed) = self.tailed(&stream) else { return };
        let mut finished = Vec::new();
        let caught_up = tailed.catch_up(now_ms, &mut finished);
        match caught_up.and_then(|()| tailed.replay(queries, now_ms, &mut finished)) {
            // Another thread may have removed a query that has ended.
            Ok(()) => {
                let live = queries.iter().filter(|query| !query.outbox.has_ended());
                live.for_each(|query| tailed.insert(query.clone()));
            }
            // The other queries learn of the error at their own read.
            Err(broken) => queries.iter().for_each(|query| self.registry.end_broken(query, &broken)),
        }
        self.registry.finish(finished);
    }

    /// Asks the first thread to set the timer of a query.
    fn schedule(&mut self, query: &Arc<LiveQuery>) {
        if let Some(due) = query.next_due().filter(|_| self.number == 0) {
            let ticket = self.deadlines.schedule(due_ms(due), Arc::downgrade(query));
            self.tickets.insert(query.id, ticket);
        }
    }

    fn remove(&mut self, query: &LiveQuery) {
        if let Some(ticket) = self.tickets.remove(&query.id) {
            self.deadlines.cancel(ticket);
        }
        query.leave_stream();
        let id = query.stream.topic.id;
        let Some(tailed) = self.streams.get_mut(&id) else {
            return;
        };
        tailed.remove(query);
        if tailed.is_idle() {
            self.leave(id);
        }
    }

    /// Stops reading a stream. A partition rings a bell for as long as the bell lives, so the other streams get a new one.
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
    fn fail(&mut self, id: TopicId, broken: &ReadError) {
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

    /// Emits the windows that are due, and ends the queries whose time is over.
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
                PutOutcome::Taken => self.schedule(&query),
                put => finished.push((query, put)),
            }
        }
        self.registry.finish(finished);
    }

    /// The time until the next timer.
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
