//! The engine on one machine: opening, topics, closing.
//!
//! ```text
//!   append ─► partition ─► appender ─► journal ─► sync thread ─► answers
//!             (memory)     one write   pre-written  one sync for all
//!                │                        └──────► writeback ─► segments, meta ─► journal file free again
//!                └─► readers near the tail                └───► readers of older records
//! ```

use std::fmt;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use millstream_types::{Epoch, MonotonicClock, PartitionId, Position, TopicId, TopicName, TopicPartition, WallClock};
use parking_lot::Mutex;

use crate::appender::Appender;
use crate::catalog::{Catalog, Effect, TopicEntry, new_topic};
use crate::compaction;
use crate::frame::Part;
use crate::give_way::{give_way, stand_back};
use crate::journal::Journal;
use crate::layout::Layout;
use crate::meta::{JournalPlace, Meta};
use crate::partition::PartitionLog;
use crate::round::{Answer, Control, Entry, Item, Waiter};
use crate::shared::Shared;
use crate::stats::{GroupLag, LogStats, PartitionStats};
use crate::writeback::Writeback;
use crate::{
    AckLevel, Appended, AtomicAppend, Bell, Capabilities, CommittedPosition, Done, EndTransaction, Error, Files, Lock,
    Log, LogConfig, Owner, Partition, Reply, Topic, TopicConfig, recovery, syncer, writeback,
};

/// The log on one machine: a journal that all partitions share, and segments behind it.
pub struct Embedded {
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Arc<Catalog>,
    appender: Arc<Appender>,
    /// One change of topics at a time.
    changing: Mutex<()>,
    threads: Mutex<Option<Threads>>,
    closed: OnceLock<Result<(), Error>>,
    lock: Mutex<Option<Lock>>,
}

struct Threads {
    appender: JoinHandle<()>,
    syncer: JoinHandle<()>,
    compaction: JoinHandle<()>,
    writeback: JoinHandle<Result<(), Error>>,
}

impl Embedded {
    /// Opens the log in `config.dir`, recovering what an earlier process left there; creates it if there is none.
    /// Whatever was recovered is durable and stable when this returns.
    ///
    /// # Errors
    /// [`Error::InvalidLimit`]; [`Error::InUse`] if another process owns the directory; [`Error::DiskFull`], [`Error::Corrupt`],
    /// [`Error::CorruptFile`], [`Error::UnknownVersion`], [`Error::Io`].
    pub fn open(
        config: LogConfig,
        files: Arc<dyn Files>,
        monotonic: Arc<dyn MonotonicClock>,
        wall: Arc<dyn WallClock>,
    ) -> Result<Arc<Self>, Error> {
        config.validate()?;
        let layout = Layout::new(&config.dir);
        create_dirs(&*files, &layout)?;
        let lock = lock(&*files, &layout)?;
        let journal = Journal::new(files.clone(), layout.clone(), config.journal_file_bytes, config.journal_max_bytes);
        let journal = Arc::new(journal);
        let existing = journal.existing()?;
        let meta = match Meta::read(&*files, &layout)? {
            Some(meta) => meta,
            None if existing.is_empty() => fresh_meta(),
            None => return Err(Error::CorruptFile { path: layout.meta(), at: 0, what: "it is missing" }),
        };
        let frames = if meta.clean { Vec::new() } else { recovery::read_journal(&existing, &meta)? };
        let sequence = frames.last().map_or(meta.journal.sequence, |frame| frame.stamp.sequence);
        let epoch = Epoch(meta.epoch.0 + 1);
        let shared = Shared::new(config, files, layout, monotonic, wall, epoch, meta.salt, journal);
        let shared = Arc::new(shared);
        shared.sync.set_place(JournalPlace { sequence, slot: 0, at: 0 });
        let catalog = Arc::new(Catalog::default());
        recovery::restore(&shared, &catalog, meta, frames)?;
        let limit = shared.config.memory_topics_max_bytes;
        if memory_bytes(&catalog, |_| true) > limit {
            let rule = "the topics in memory that there are take more; raise it, delete some and lower it again";
            return Err(Error::InvalidLimit { limit: "log.memory_topics_max_bytes", value: limit as u64, rule });
        }
        let mut writeback = Writeback::new(shared.clone(), catalog.clone());
        writeback.start()?;
        // Only now that `meta` says what was recovered: the frame that deleted a topic may itself not be durable yet.
        recovery::remove_strays(&shared, &catalog)?;
        shared.journal.adopt(existing)?;
        shared.journal.ensure_free().map_err(|e| match e {
            full if full.is_disk_full() => shared.space.full(shared.config.journal_file_bytes),
            other => other,
        })?;
        let appender = Arc::new(Appender::new(&shared, sequence + 1));
        let threads = start(&shared, &catalog, &appender, writeback)?;
        Ok(Arc::new(Self {
            shared,
            catalog,
            appender,
            changing: Mutex::new(()),
            threads: Mutex::new(Some(threads)),
            closed: OnceLock::new(),
            lock: Mutex::new(Some(lock)),
        }))
    }

    /// Writes and syncs whatever is accepted, brings it all to the segments, and applies retention.
    ///
    /// # Errors
    /// [`Error::WritingEnded`], [`Error::Stopped`].
    pub fn flush(&self) -> Result<(), Error> {
        self.shared.check_open()?;
        self.control(None, Vec::new())?;
        let (sender, receiver) = sync_channel(1);
        self.shared.flush.ask(sender);
        receiver.recv().unwrap_or(Err(Error::Stopped))
    }

    /// Has `prompt` called by each thread that appends something that is waited for, behind the append; the first one that
    /// is given stays. Where it answers `true` somebody calls [`Embedded::write_accepted`] soon, at best once for all
    /// that the thread has still to append. Where it answers `false`, the log's own thread writes.
    pub fn prompt_with(&self, prompt: impl Fn() -> bool + Send + Sync + 'static) {
        self.shared.work.prompt_with(Box::new(prompt));
    }

    /// Writes what has been accepted to the journal on the calling thread, and answers those who wait for no more than that:
    /// no other thread has to be woken, and none to wake the caller. What would take long, or has to wait for others,
    /// is left to the log's own thread.
    pub fn write_accepted(&self) {
        self.appender.turn_briefly();
    }

    /// Ends the log: refuses new appends, writes and syncs the accepted ones, brings all to the segments and marks the
    /// directory as cleanly closed. Ends every thread. Again is no error.
    ///
    /// # Errors
    /// [`Error::WritingEnded`] if not all of it could be written; the next start recovers what is durable.
    pub fn close(&self) -> Result<(), Error> {
        let Some(threads) = self.threads.lock().take() else {
            return self.closed.get().cloned().unwrap_or(Ok(()));
        };
        self.shared.stop();
        // Whoever was taking records when the log stopped has them in the queue once these locks are free again.
        drop(self.shared.gate());
        for topic in self.catalog.topics() {
            topic.partitions.iter().for_each(|partition| drop(partition.lock()));
        }
        self.shared.work.stop();
        let appended = threads.appender.join();
        // Another thread may be writing still, or have left something when that one ended.
        self.appender.turn();
        self.shared.sync.stop();
        let synced = threads.syncer.join();
        self.shared.compaction.stop();
        let compacted = threads.compaction.join();
        self.shared.flush.stop();
        let flushed = threads.writeback.join();
        let result = match (appended, synced, compacted, flushed) {
            (Ok(()), Ok(()), Ok(()), Ok(result)) => result,
            _ => Err(Error::Stopped),
        };
        drop(self.lock.lock().take());
        self.closed.get_or_init(|| result).clone()
    }

    /// Whether appends are taken.
    ///
    /// # Errors
    /// [`Error::WritingEnded`] after a failed write or sync, [`Error::Stopped`] once it is closed, [`Error::DiskFull`].
    pub fn check_writing(&self) -> Result<(), Error> {
        self.shared.check_open()?;
        self.shared.space.check()
    }

    /// What the disk still takes, as of at most [`LogConfig::flush_interval_ms`] ago.
    pub fn disk_free_bytes(&self) -> u64 {
        self.shared.space.free_bytes()
    }

    /// The epoch of this start, larger than that of any before it in this directory.
    pub fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    /// What it has done since it was opened, and what is there now.
    pub fn stats(&self) -> LogStats {
        let mut stats = self.shared.counters.stats();
        stats.pending_bytes = self.shared.room.pending_bytes() as u64;
        stats.journal_bytes = self.shared.journal.used_bytes();
        for topic in self.catalog.topics() {
            stats.partitions.extend(topic.partitions.iter().map(|partition| partition_stats(partition)));
        }
        stats
    }

    /// The partitions of one topic, in order; none if it does not exist.
    pub fn topic_stats(&self, topic: &TopicName) -> Vec<PartitionStats> {
        let entry = self.catalog.topic(topic);
        entry.iter().flat_map(|topic| &topic.partitions).map(|partition| partition_stats(partition)).collect()
    }

    /// How far each group has read the partitions of a topic for which it has a position, by partition and group.
    pub fn lags(&self, topic: &TopicName) -> Vec<GroupLag> {
        let Some(entry) = self.catalog.topic(topic) else { return Vec::new() };
        let positions = self.catalog.positions_in(entry.state.id).into_iter();
        let lags = positions.filter_map(|(number, group, position)| {
            let partition = entry.partitions.get(number.0 as usize)?;
            let lag = partition.offsets().stable.0.saturating_sub(position.0);
            Some(GroupLag { group, partition: partition.id.clone(), position, lag })
        });
        lags.collect()
    }

    /// Puts a part into the journal, and returns when it and everything before it is durable.
    fn control(&self, part: Option<&Part>, effects: Vec<Effect>) -> Result<(), Error> {
        let mut encoded = Vec::new();
        part.iter().for_each(|part| part.put(&mut encoded));
        let (sender, receiver) = sync_channel(1);
        let item = Item::Parts { encoded, count: u32::from(part.is_some()), effects };
        self.shared.work.push_control(Control {
            entry: Entry { order: self.shared.next_order(), item },
            waiter: Some(Waiter { level: AckLevel::Synced, answer: Answer::Thread(sender) }),
            pending_bytes: 0,
        });
        self.shared.work.urge();
        receiver.recv().unwrap_or(Err(Error::Stopped))
    }

    /// Whether the topic, if it is one in memory, has room beside the others once it is as `config` says.
    fn check_memory(&self, name: &TopicName, config: &TopicConfig) -> Result<(), Error> {
        let (wanted_bytes, limit_bytes) = (config.memory_bytes(), self.shared.config.memory_topics_max_bytes);
        let used_bytes = memory_bytes(&self.catalog, |topic| topic.name != *name);
        if wanted_bytes == 0 || wanted_bytes.saturating_add(used_bytes) <= limit_bytes {
            return Ok(());
        }
        Err(Error::MemoryTopicsFull { topic: name.clone(), wanted_bytes, used_bytes, limit_bytes })
    }

    fn known(&self, name: &TopicName) -> Result<Arc<TopicEntry>, Error> {
        self.catalog.topic(name).ok_or_else(|| Error::UnknownTopic { topic: name.clone() })
    }
}

fn partition_stats(partition: &PartitionLog) -> PartitionStats {
    let accept = partition.lock();
    PartitionStats {
        partition: partition.id.clone(),
        offsets: partition.offsets(),
        segment_bytes: accept.segment_bytes(),
        segments: accept.segments.len() as u64,
        memory_bytes: accept.recent.size_bytes() as u64,
        record_bytes: accept.segment_bytes() + accept.recent.own_bytes(partition.first()) as u64,
        open_transactions: accept.producers.transactions.open().len() as u64,
        aborted_transactions: accept.producers.transactions.aborted().entries().len() as u64,
    }
}

/// What those topics in memory that `counts` names may take.
fn memory_bytes(catalog: &Catalog, counts: impl Fn(&Topic) -> bool) -> usize {
    let topics = catalog.topics().into_iter().map(|entry| entry.state.current());
    let each = topics.filter(|topic| counts(topic)).map(|topic| topic.config.memory_bytes());
    each.fold(0, usize::saturating_add)
}

/// Creates the directories, with names that survive a crash: also those on the way to ours that did not exist.
fn create_dirs(files: &dyn Files, layout: &Layout) -> Result<(), Error> {
    let missing = |dir: &&Path| files.list(dir).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    let new = layout.dir().ancestors().take_while(missing).count();
    for dir in [layout.dir(), &layout.journal_dir(), &layout.topics_dir()] {
        files.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    }
    for dir in layout.dir().ancestors().take(1 + new.max(1)) {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    }
    Ok(())
}

fn lock(files: &dyn Files, layout: &Layout) -> Result<Lock, Error> {
    let path = layout.lock();
    match files.lock(&path).map_err(|e| Error::io("lock", &path, e))? {
        Lock::Taken { by } => Err(Error::InUse { path: layout.dir().to_owned(), pid: by }),
        held => Ok(held),
    }
}

fn fresh_meta() -> Meta {
    Meta {
        // Nobody outside can know it, so no record can pass for a frame.
        salt: uuid::Uuid::new_v4().as_u64_pair().0,
        epoch: Epoch(0),
        clean: true,
        journal: JournalPlace { sequence: 0, slot: 0, at: 0 },
        topics: Vec::new(),
        positions: Vec::new(),
    }
}

fn start(
    shared: &Arc<Shared>,
    catalog: &Arc<Catalog>,
    appender: &Arc<Appender>,
    writeback: Writeback,
) -> Result<Threads, Error> {
    let refuse = |e| Error::io("start a thread for", shared.layout.dir(), e);
    let (appender, for_syncer, topics) = (appender.clone(), shared.clone(), catalog.clone());
    let for_compaction = shared.clone();
    let appender = spawn("log-appender", move || appender.run()).map_err(refuse)?;
    let syncer = spawn("log-sync", move || syncer::run(&for_syncer, &topics)).map_err(refuse)?;
    let writeback = spawn("log-writeback", move || {
        stand_back();
        writeback::run(writeback)
    });
    let writeback = writeback.map_err(refuse)?;
    let compaction = spawn("log-compaction", move || {
        stand_back();
        compaction::run(&for_compaction)
    });
    let compaction = compaction.map_err(refuse)?;
    Ok(Threads { appender, syncer, compaction, writeback })
}

/// Starts a thread of the log: one that gives way.
fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<thread::JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(|| {
        give_way();
        body()
    })
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the log was not closed cleanly");
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Embedded({})", self.shared.layout.dir().display())
    }
}

impl Log for Embedded {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            memory_topics: true,
            level_per_append: true,
            read_by_position: false,
            holds: true,
            idempotent_producers: true,
            transactions: true,
        }
    }

    fn create_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        config.validate(name)?;
        let _one_at_a_time = self.changing.lock();
        self.shared.check_open()?;
        if let Some(existing) = self.topic(name) {
            return match config.difference(&existing.config) {
                None => Ok(existing),
                Some(differs) => Err(Error::TopicExists { topic: name.clone(), differs }),
            };
        }
        self.check_memory(name, config)?;
        self.shared.space.check()?;
        let id = TopicId(uuid::Uuid::new_v4().as_u128());
        let topic = Topic { id, name: name.clone(), config: config.clone() };
        let entry = new_topic(&self.shared, topic.clone(), self.shared.epoch);
        let current = entry.state.current();
        self.control(Some(&Part::Created(topic)), vec![Effect::Created(entry)])?;
        Ok(current)
    }

    fn alter_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        config.validate(name)?;
        let _one_at_a_time = self.changing.lock();
        self.shared.check_open()?;
        let entry = self.known(name)?;
        let current = entry.state.current();
        if let Some((setting, value)) = config.fixed_difference(&current.config) {
            let rule = match setting {
                "partitions" => {
                    "partitions are only added, by Kafka's tools (kafka-topics.sh --alter --topic NAME --partitions COUNT); or create another topic"
                }
                _ => "it cannot be altered; create another topic",
            };
            return Err(Error::InvalidConfig { topic: name.clone(), setting, value, rule });
        }
        let topic = Topic { config: config.clone(), ..Topic::clone(&current) };
        self.control(Some(&Part::Altered(topic.clone())), vec![Effect::Altered(topic)])?;
        // What was accepted under a weaker level before the change took effect is durable, too, when this returns.
        self.control(None, Vec::new())?;
        Ok(entry.state.current())
    }

    fn add_partitions(&self, name: &TopicName, total: u32) -> Result<Arc<Topic>, Error> {
        let _one_at_a_time = self.changing.lock();
        self.shared.check_open()?;
        let entry = self.known(name)?;
        let current = entry.state.current();
        let config = current.config.grown(name, total)?;
        if config == current.config {
            return Ok(current);
        }
        self.check_memory(name, &config)?;
        self.shared.space.check()?;
        let topic = Topic { config, ..Topic::clone(&current) };
        let grown = entry.grown(&self.shared, total, self.shared.epoch);
        self.control(Some(&Part::Altered(topic.clone())), vec![Effect::Grown(grown, topic)])?;
        Ok(entry.state.current())
    }

    fn delete_topic(&self, name: &TopicName) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock();
        self.shared.check_open()?;
        let entry = self.known(name)?;
        entry.state.delete();
        let current = entry.state.current();
        for partition in &entry.partitions {
            // Whatever was taken before must stand before the deletion in the journal.
            partition.seal(&mut partition.lock(), &current);
        }
        self.control(Some(&Part::Deleted(entry.state.id)), vec![Effect::Deleted(entry.state.id)])
    }

    fn topic(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.catalog.topic(name).map(|topic| topic.state.current())
    }

    fn topics(&self) -> Vec<Arc<Topic>> {
        self.catalog.topics().iter().map(|topic| topic.state.current()).collect()
    }

    fn watch_topics(&self, bell: &Arc<Bell>) {
        self.catalog.watch(bell);
    }

    fn partition(&self, partition: &TopicPartition) -> Result<Arc<dyn Partition>, Error> {
        Ok(self.catalog.partition(partition)?)
    }

    fn append_atomic(
        &self,
        append: &AtomicAppend<'_>,
        level: AckLevel,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error> {
        self.accept_atomic(append, None, level, done)
    }

    fn end_transaction(
        &self,
        end: &EndTransaction<'_>,
        level: AckLevel,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error> {
        self.accept_end(end, level, done)
    }

    fn check_disk(&self) -> Result<(), Error> {
        self.shared.space.look_and_check()
    }

    fn room(&self) -> Option<Reply<()>> {
        self.shared.room.wait()
    }

    fn committed(&self, group: &str, partition: &TopicPartition) -> Result<Option<Position>, Error> {
        let known = self.catalog.partition(partition)?;
        Ok(self.catalog.committed(group, known.topic.id, partition.partition))
    }

    fn groups(&self) -> Result<Vec<String>, Error> {
        Ok(self.catalog.groups())
    }

    fn positions(&self, group: &str) -> Result<Vec<CommittedPosition>, Error> {
        Ok(self.catalog.positions(group))
    }

    fn forget_positions(&self, group: &str, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.accept_forget(group, partitions)
    }

    fn assign(&self, topic: &TopicName, owner: Arc<dyn Owner>) -> Result<(), Error> {
        let entry = self.known(topic)?;
        for number in 0..entry.partitions.len() as u32 {
            let partition = TopicPartition { topic: topic.clone(), partition: PartitionId(number) };
            owner.assigned(&partition, self.shared.epoch);
        }
        Ok(())
    }
}
