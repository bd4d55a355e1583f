//! Changes that follow from the records of other topics.
//!
//! A follower reads its sources up to their *stable* offset, turns records into commands and hands them to the owners.
//! It stores no position of its own: every command says which records of which source it covers, the owner refuses
//! what it has already applied and keeps the position in its state. A restart goes on from the least of the owners'
//! positions, so owners that a source does not concern are told of its progress now and then; retention leaves what is
//! above it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream_log::{Bell, Board, Hold, Log, Partition, Topic, UpTo, give_way};
use millstream_types::{
    BatchError, BatchLimits, Offset, PartitionId, RecordBatch, RecordView, TopicId, TopicPartition,
};
use parking_lot::Mutex;

use crate::failure::{FailedPart, Failure, panic_text};
use crate::{Error, Source, View, Views};

/// How long a follower waits when others fill an owner's inbox.
const OVERLOADED_PAUSE: Duration = Duration::from_millis(1);

/// How long records are left to gather where none was wanted lately: reading few at a time costs more than reading them.
const GATHER: Duration = Duration::from_millis(1);

/// Records after which a follower lets go of the core: some 0.1 ms. Whoever answers clients waits for it no longer than that.
const SHARE_RECORDS: usize = 64;

/// Which records become which commands.
pub trait Follow<V: View>: Send + Sync + 'static {
    /// What one record asks of an owner.
    type Item: Send;

    /// Whether the records of `topic` matter.
    fn follows(&self, topic: &Topic) -> bool;

    /// The owner that a record concerns and what it asks of it; `None` if it asks nothing.
    fn item(&self, topic: &Topic, record: &RecordView<'_>) -> Option<(PartitionId, Self::Item)>;

    /// The command that applies `items` (with their offsets in `source`, ascending) and then notes that everything
    /// before `next` has been applied: see [`crate::Draft::applied`] and [`crate::Draft::advance`].
    fn command(&self, source: Source, next: Offset, items: Vec<(Offset, Self::Item)>) -> V::Command;

    /// Bytes that an item owns beside itself, about: what bounds a command ([`FollowerConfig::command_max_bytes`]).
    fn item_bytes(_item: &Self::Item) -> usize {
        0
    }
}

/// Limits of a follower.
#[derive(Debug, Clone)]
pub struct FollowerConfig {
    /// Threads; sources are divided among them. Default 2.
    pub threads: usize,
    /// Bytes of records per read. Default 256 KiB.
    pub read_max_bytes: usize,
    /// Records per command, so that what they lead to fits into one append. Default 512.
    pub command_max_records: usize,
    /// Bytes of items per command and read at once, about, for the same end; one item alone may be more. Default 1 MiB.
    pub command_max_bytes: usize,
    /// Commands that may be on their way to owners, per thread. Default 64.
    pub flights_max: usize,
    /// Records of a source after which owners that it did not concern are told of its progress. Default 10,000.
    pub progress_records: u64,
    /// How often they are told at most, of all sources at once: each note is a synced append, for which the log has to sync
    /// what arrives meanwhile. Default 1 s.
    pub progress_interval: Duration,
    /// How long a source must be quiet before all owners are told how far it was read. Default 2 s.
    pub quiet: Duration,
}

impl Default for FollowerConfig {
    fn default() -> Self {
        Self {
            threads: 2,
            read_max_bytes: 256 << 10,
            command_max_records: 512,
            command_max_bytes: 1 << 20,
            flights_max: 64,
            progress_records: 10_000,
            progress_interval: Duration::from_secs(1),
            quiet: Duration::from_secs(2),
        }
    }
}

/// Running threads that follow; stops them when dropped.
pub struct Follower {
    bells: Vec<Arc<Bell>>,
    stopped: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({} threads)", self.bells.len())
    }
}

impl Follower {
    /// Starts to follow every topic that `follow` names, those created later included.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the system refuses a thread.
    pub fn start<V: View, F: Follow<V>>(
        follow: Arc<F>,
        views: &Arc<Views<V>>,
        log: &Arc<dyn Log>,
        config: &FollowerConfig,
    ) -> Result<Self, Error> {
        let stopped = Arc::new(AtomicBool::new(false));
        let mut follower = Self { bells: Vec::new(), stopped: Arc::clone(&stopped), threads: Mutex::new(Vec::new()) };
        for number in 0..config.threads.max(1) {
            let bell = Arc::new(Bell::default());
            let board = Board::new(Arc::clone(&bell));
            let of_topics = board.hang(News::Topics);
            log.watch_topics(&of_topics);
            follower.bells.push(Arc::clone(&bell));
            let thread = Thread {
                number: number as u128,
                follow: Arc::clone(&follow),
                views: Arc::clone(views),
                log: Arc::clone(log),
                config: config.clone(),
                bell,
                board,
                _of_topics: of_topics,
                stopped: Arc::clone(&stopped),
                cursors: HashMap::new(),
                due: HashSet::new(),
                flights: VecDeque::new(),
                has_found: false,
                told_at: Instant::now(),
            };
            let spawned = std::thread::Builder::new()
                .name(format!("follow-{}-{number}", V::NAME))
                .spawn(move || {
                    give_way();
                    thread.run();
                })
                .map_err(|_| Error::Stopped)?;
            follower.threads.lock().push(spawned);
        }
        Ok(follower)
    }

    /// Stops reading and waits until what was handed over is answered.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        for bell in &self.bells {
            bell.ring();
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a follower thread panicked");
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What bells ring for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum News {
    /// There are other topics than before.
    Topics,
    /// There is more to read.
    Source(Source),
}

/// How far one source has been read.
struct Cursor {
    topic: Arc<Topic>,
    partition: Arc<dyn Partition>,
    next: Offset,
    /// Per owner: how far it knows.
    told: Vec<Offset>,
    /// Keeps what some owner has not applied from being trimmed, where the engine can.
    hold: Option<Box<dyn Hold>>,
    /// Rings for as long as it is kept.
    _bell: Arc<Bell>,
    /// Set once the source cannot be read any more; it is left alone then.
    failed: bool,
}

/// Records on their way to an owner.
struct Flight<V: View> {
    source: Source,
    next: Offset,
    records: u64,
    answer: crate::Answer<V>,
}

struct Thread<V: View, F: Follow<V>> {
    number: u128,
    follow: Arc<F>,
    views: Arc<Views<V>>,
    log: Arc<dyn Log>,
    config: FollowerConfig,
    bell: Arc<Bell>,
    board: Arc<Board<News>>,
    _of_topics: Arc<Bell>,
    stopped: Arc<AtomicBool>,
    cursors: HashMap<Source, Cursor>,
    /// Sources in which there may be something to read.
    due: HashSet<Source>,
    flights: VecDeque<Flight<V>>,
    /// A record was wanted since the bell was last waited for.
    has_found: bool,
    /// When owners were last told of progress that does not concern them.
    told_at: Instant,
}

impl<V: View, F: Follow<V>> Thread<V, F> {
    fn run(mut self) {
        // A panic is a mistake in the program; it must not end the process, nor go unseen.
        let ended = catch_unwind(AssertUnwindSafe(|| self.follow_until_stopped()));
        let ended = ended.unwrap_or_else(|panic| {
            self.fail_all(&format!("following panicked: {}", panic_text(&*panic)));
            Ok(())
        });
        let landed = std::iter::from_fn(|| (!self.flights.is_empty()).then(|| self.land_oldest()));
        let landed = landed.fold(Ok(()), Result::and);
        match ended.and(landed) {
            Ok(()) => {}
            Err(Error::Stopped) if self.stopped.load(Ordering::Acquire) => {}
            Err(why) => self.fail_all(&why.to_string()),
        }
    }

    fn follow_until_stopped(&mut self) -> Result<(), Error> {
        self.discover();
        while !self.stopped.load(Ordering::Acquire) {
            self.hear();
            let mut moved = false;
            for source in Vec::from_iter(self.due.iter().copied()) {
                if self.advance(source)? {
                    moved = true;
                } else {
                    self.due.remove(&source);
                }
            }
            if moved {
                if self.told_at.elapsed() >= self.config.progress_interval {
                    self.tell_those_behind_by(self.config.progress_records)?;
                }
                continue;
            }
            let has_found = std::mem::take(&mut self.has_found);
            if !self.bell.wait(self.config.quiet) {
                self.tell_those_behind_by(1)?;
                self.due.extend(self.cursors.keys());
            } else if !has_found {
                std::thread::sleep(GATHER);
            }
        }
        Ok(())
    }

    /// Notes which sources have something new. There may be thousands, of which one has: the others are not looked at.
    fn hear(&mut self) {
        for news in self.board.take() {
            match news {
                News::Topics => self.discover(),
                News::Source(source) => {
                    self.due.insert(source);
                }
            }
        }
    }

    /// Takes up sources that are new, lets go those that are gone.
    fn discover(&mut self) {
        let topics = self.log.topics();
        let known: HashSet<TopicId> = topics.iter().map(|topic| topic.id).collect();
        let failures = self.views.failed();
        self.cursors.retain(|source, cursor| {
            let is_there = known.contains(&source.topic);
            if !is_there {
                failures.forget(cursor.partition.id());
            }
            is_there
        });
        let follow = Arc::clone(&self.follow);
        for topic in topics.iter().filter(|topic| follow.follows(topic)) {
            for number in 0..topic.config.partitions {
                let source = Source { topic: topic.id, partition: PartitionId(number) };
                let mine = (topic.id.0 + u128::from(number)) % self.config.threads.max(1) as u128 == self.number;
                if mine && !self.cursors.contains_key(&source) {
                    self.take_up(source, topic);
                }
            }
        }
    }

    fn take_up(&mut self, source: Source, topic: &Arc<Topic>) {
        let Ok(partition) = self.log.partition(&TopicPartition::new(topic.name.clone(), source.partition.0)) else {
            return;
        };
        let bell = self.board.hang(News::Source(source));
        self.due.insert(source);
        partition.watch(&bell);
        let told = self.applied(source);
        let least = told.iter().min().copied().unwrap_or_default();
        let hold = self.log.capabilities().holds.then(|| partition.hold(V::NAME, least));
        let next = least.max(partition.offsets().first);
        if least > Offset::ZERO && next > least {
            self.pass_over_trimmed(partition.id(), least, next);
        }
        let topic = Arc::clone(topic);
        self.cursors.insert(source, Cursor { topic, partition, next, told, hold, _bell: bell, failed: false });
    }

    /// How far each owner has applied `source`, durably.
    fn applied(&self, source: Source) -> Vec<Offset> {
        let snapshots = self.views.snapshots();
        snapshots.iter().map(|snapshot| snapshot.sources.get(&source).copied().unwrap_or_default()).collect()
    }

    /// Retention has taken records before they were applied.
    fn pass_over_trimmed(&self, partition: &TopicPartition, from: Offset, to: Offset) {
        tracing::warn!(%partition, %from, %to, "records were trimmed before they were applied");
        self.views.failed().pass_over(to.0 - from.0);
    }

    /// Lets retention have what every owner has applied.
    fn let_go(&self, source: Source) {
        if let Some(hold) = self.cursors.get(&source).and_then(|cursor| cursor.hold.as_ref())
            && let Some(least) = self.applied(source).into_iter().min()
        {
            hold.advance(least);
        }
    }

    /// Reads on in one source. Whether there was anything.
    fn advance(&mut self, source: Source) -> Result<bool, Error> {
        let Some(cursor) = self.cursors.get_mut(&source).filter(|cursor| !cursor.failed) else { return Ok(false) };
        let batches = match cursor.partition.read(cursor.next, self.config.read_max_bytes, UpTo::Stable) {
            Ok(batches) => batches,
            Err(millstream_log::Error::Trimmed { oldest, .. }) => {
                let (partition, from) = (cursor.partition.id().clone(), std::mem::replace(&mut cursor.next, oldest));
                self.pass_over_trimmed(&partition, from, oldest);
                return Ok(true);
            }
            Err(millstream_log::Error::UnknownTopic { .. }) => {
                self.views.failed().forget(cursor.partition.id());
                self.cursors.remove(&source);
                return Ok(false);
            }
            Err(damage) => {
                let from = cursor.next;
                let offset = if let millstream_log::Error::Corrupt { offset, .. } = &damage { *offset } else { from };
                self.fail(source, offset, damage.to_string());
                return Ok(false);
            }
        };
        if batches.is_empty() {
            return Ok(false);
        }
        let (items, next, unreadable) = collect(&*self.follow, cursor, &batches, self.config.command_max_bytes);
        cursor.next = next;
        self.has_found |= !items.is_empty();
        for (owner, items) in items {
            self.hand_over_all(source, owner, next, items)?;
        }
        if let Some(error) = unreadable {
            self.fail(source, next, error.to_string());
        }
        self.let_go(source);
        Ok(true)
    }

    /// Leaves a source alone that cannot be read from `offset` on, and lets that be seen.
    fn fail(&mut self, source: Source, offset: Offset, reason: String) {
        let Some(cursor) = self.cursors.get_mut(&source) else { return };
        cursor.failed = true;
        let partition = cursor.partition.id().clone();
        self.views.failed().add(Failure { view: V::NAME, part: FailedPart::Source, partition, offset, reason });
    }

    /// Nothing that this thread follows is followed any further.
    fn fail_all(&mut self, reason: &str) {
        let left: Vec<_> = self.cursors.iter().map(|(source, cursor)| (*source, cursor.next)).collect();
        left.into_iter().for_each(|(source, next)| self.fail(source, next, reason.to_owned()));
    }

    /// Hands `items` over in commands that an append can carry.
    fn hand_over_all(
        &mut self,
        source: Source,
        owner: PartitionId,
        next: Offset,
        items: Vec<(Offset, F::Item)>,
    ) -> Result<(), Error> {
        let (mut command, mut command_bytes) = (Vec::new(), 0);
        for (offset, item) in items {
            let item_bytes = F::item_bytes(&item);
            let is_full = command.len() >= self.config.command_max_records
                || command_bytes + item_bytes > self.config.command_max_bytes;
            if is_full && !command.is_empty() {
                self.hand_over(source, owner, offset, std::mem::take(&mut command))?;
                command_bytes = 0;
            }
            command_bytes += item_bytes;
            command.push((offset, item));
        }
        self.hand_over(source, owner, next, command)
    }

    fn hand_over(
        &mut self,
        source: Source,
        owner: PartitionId,
        next: Offset,
        items: Vec<(Offset, F::Item)>,
    ) -> Result<(), Error> {
        let records = items.len() as u64;
        let mut command = self.follow.command(source, next, items);
        while self.flights.len() >= self.config.flights_max {
            self.land_oldest()?;
        }
        let answer = loop {
            match self.views.offer(owner, command) {
                Ok(answer) => break answer,
                Err((full, _)) if full.is_full() && self.stopped.load(Ordering::Acquire) => {
                    return Err(Error::Stopped);
                }
                Err((full, returned)) if full.is_full() => {
                    command = returned;
                    if self.flights.is_empty() {
                        std::thread::sleep(OVERLOADED_PAUSE);
                    } else {
                        self.land_oldest()?;
                    }
                }
                Err((refusal, _)) => return Err(refusal),
            }
        };
        self.flights.push_back(Flight { source, next, records, answer });
        if let Some(cursor) = self.cursors.get_mut(&source) {
            cursor.told[owner.0 as usize] = next;
        }
        Ok(())
    }

    /// Waits for the oldest command. One that its owner refused is passed over: it would be refused for ever.
    fn land_oldest(&mut self) -> Result<(), Error> {
        let Some(flight) = self.flights.pop_front() else { return Ok(()) };
        match flight.answer.blocking_recv().unwrap_or(Err(Error::Stopped)) {
            Err(end @ (Error::OwnerEnded { .. } | Error::Stopped)) => Err(end),
            Err(refusal) => {
                self.pass_over_refused(flight.source, flight.next, flight.records, &refusal);
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    fn pass_over_refused(&self, source: Source, next: Offset, records: u64, refusal: &Error) {
        let Some(cursor) = self.cursors.get(&source) else { return };
        let (partition, reason) = (cursor.partition.id().clone(), refusal.to_string());
        let failed = self.views.failed();
        failed.pass_over(records);
        failed.add(Failure { view: V::NAME, part: FailedPart::Records, partition, offset: next, reason });
    }

    /// Tells every owner how far each source has been read, if that is so many records more than it knows.
    fn tell_those_behind_by(&mut self, records: u64) -> Result<(), Error> {
        let sources: Vec<(Source, Offset)> =
            self.cursors.iter().map(|(source, cursor)| (*source, cursor.next)).collect();
        for (source, next) in sources {
            let told = self.cursors.get(&source).map(|cursor| cursor.told.clone()).unwrap_or_default();
            let behind = (0..).zip(told).filter(|(_, told)| next.0.saturating_sub(told.0) >= records);
            for (owner, _) in behind {
                self.hand_over(source, PartitionId(owner), next, Vec::new())?;
            }
            self.let_go(source);
        }
        self.told_at = Instant::now();
        Ok(())
    }
}

/// What records ask of each owner, with their offsets.
type Items<I> = HashMap<PartitionId, Vec<(Offset, I)>>;

/// How much was read at once.
#[derive(Default)]
struct Load {
    records: usize,
    /// Of what they ask.
    items_bytes: usize,
}

/// What the records of `batches` ask for, up to where they have been read, and why not further: no further than the batch
/// with which that is more than `max_bytes`. Of a batch that is unreadable nothing is taken.
fn collect<V: View, F: Follow<V>>(
    follow: &F,
    cursor: &Cursor,
    batches: &[RecordBatch],
    max_bytes: usize,
) -> (Items<F::Item>, Offset, Option<BatchError>) {
    let (mut items, mut next): (Items<F::Item>, _) = (HashMap::new(), cursor.next);
    let mut read = Load::default();
    for batch in batches {
        if read.items_bytes > max_bytes {
            break;
        }
        if let Err(error) = collect_batch(follow, cursor, batch, &mut read, &mut items) {
            let next = next.max(batch.base_offset());
            items.values_mut().for_each(|items| items.retain(|(offset, _)| *offset < next));
            items.retain(|_, items| !items.is_empty());
            return (items, next, Some(error));
        }
        next = batch.last_offset().next();
    }
    (items, next, None)
}

fn collect_batch<V: View, F: Follow<V>>(
    follow: &F,
    cursor: &Cursor,
    batch: &RecordBatch,
    read: &mut Load,
    items: &mut Items<F::Item>,
) -> Result<(), BatchError> {
    for record in batch.inflated(&BatchLimits::default())?.records() {
        read.records += 1;
        if read.records.is_multiple_of(SHARE_RECORDS) {
            std::thread::yield_now();
        }
        let record = record?;
        if record.offset >= cursor.next
            && let Some((owner, item)) = follow.item(&cursor.topic, &record)
        {
            read.items_bytes += F::item_bytes(&item);
            items.entry(owner).or_default().push((record.offset, item));
        }
    }
    Ok(())
}
