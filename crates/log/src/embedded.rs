//! The engine on one machine: open, topics, close.
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

use millstream_types::{Epoch, ManualClock, MonotonicClock, Position, TopicId, TopicName, TopicPartition, WallClock};
use parking_lot::Mutex;

use crate::acceptor::Acceptor;
use crate::appender::Appender;
use crate::catalog::{CatalogChange, TopicCatalog, TopicEntry, new_topic};
use crate::fenced_writers::FencedWriters;
use crate::frame::FramePart;
use crate::host::Host;
use crate::journal::Journal;
use crate::layout::Layout;
use crate::meta::{JournalPlace, Meta};
use crate::partition::{PartitionContext, PartitionLog};
use crate::producer_ids::ProducerIds;
use crate::queues::Queues;
use crate::shared::EngineShared;
use crate::stats::{GroupLag, LogStats, PartitionStats};
use crate::tasks::{EngineTasks, TaskContext};
use crate::writeback::Writeback;
use crate::{
    AckLevel, Appended, AtomicAppend, Bell, Capabilities, CommittedPosition, Done, EndTransaction, Error, Files,
    KafkaLog, KafkaPartition, KnownGroup, Lock, Log, LogConfig, LogFigures, Partition, PositionCommit, Reply,
    SeededScheduler, Topic, TopicConfig, Writer, derived, recovery,
};

/// The log on one machine: one journal for all partitions, and segments behind it.
pub struct Embedded {
    pub(crate) shared: Arc<EngineShared>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) catalog: Arc<TopicCatalog>,
    pub(crate) acceptor: Acceptor,
    writers: FencedWriters,
    producer_ids: Arc<ProducerIds>,
    appender: Arc<Appender>,
    host: Host,
    changing: Mutex<()>,
    tasks: Mutex<Option<EngineTasks>>,
    closed: OnceLock<Result<(), Error>>,
    lock: Mutex<Option<Lock>>,
}

/// The first epoch of a copy lies this far above the last one of its original.
const COPY_EPOCHS: u32 = 1 << 16;

/// The relation of a start to the log that it finds.
enum Lineage {
    Same,
    /// The directory is a copy of a log that may go on elsewhere.
    New,
}

impl Embedded {
    /// Opens the log in `config.dir` and recovers the state that an earlier process left, or creates the log. All
    /// recovered records are durable and stable on return.
    ///
    /// # Errors
    /// [`Error::InvalidLimit`]; [`Error::InUse`] if another process owns the directory; [`Error::DiskFull`],
    /// [`Error::Corrupt`], [`Error::CorruptFile`], [`Error::UnknownVersion`] and [`Error::Io`] from its files.
    pub fn open(
        config: LogConfig,
        files: Arc<dyn Files>,
        monotonic: Arc<dyn MonotonicClock>,
        wall: Arc<dyn WallClock>,
    ) -> Result<Arc<Self>, Error> {
        Self::open_as(Lineage::Same, config, Host { files, monotonic, wall, scheduler: None })
    }

    /// Opens a copy of a log for the first time. The original goes on, so the copy becomes a log of its own: its epochs
    /// lie far above those that the original may still begin, and a position of the original that lies beyond the copy
    /// is refused.
    ///
    /// # Errors
    /// Those of [`Embedded::open`].
    pub fn open_copy(
        config: LogConfig,
        files: Arc<dyn Files>,
        monotonic: Arc<dyn MonotonicClock>,
        wall: Arc<dyn WallClock>,
    ) -> Result<Arc<Self>, Error> {
        Self::open_as(Lineage::New, config, Host { files, monotonic, wall, scheduler: None })
    }

    /// Opens the log without threads: its tasks take their turns by `scheduler`, on the thread that calls. All that is
    /// random comes from the scheduler's seed, so the same calls make the same changes to the files. For tests.
    ///
    /// # Errors
    /// Those of [`Embedded::open`].
    pub fn by_hand(
        config: LogConfig,
        files: Arc<dyn Files>,
        clock: Arc<ManualClock>,
        scheduler: Arc<SeededScheduler>,
    ) -> Result<Arc<Self>, Error> {
        let (monotonic, wall) = (Arc::clone(&clock), clock);
        Self::open_as(Lineage::Same, config, Host { files, monotonic, wall, scheduler: Some(scheduler) })
    }

    fn open_as(lineage: Lineage, config: LogConfig, host: Host) -> Result<Arc<Self>, Error> {
        config.validate()?;
        let (layout, files) = (Layout::new(&config.dir), Arc::clone(&host.files));
        create_dirs(&*files, &layout)?;
        let lock = lock(&*files, &layout)?;
        let journal = Arc::new(Journal::new(&host, layout.clone(), &config));
        let existing = journal.existing()?;
        let mut meta = match Meta::read(&*files, &layout)? {
            Some(meta) => meta,
            None if existing.is_empty() => fresh_meta(&host),
            None => return Err(Error::CorruptFile { path: layout.meta(), at: 0, what: "it is missing" }),
        };
        let mut frames = if meta.clean { Vec::new() } else { recovery::read_journal(&existing, &meta)? };
        derived::set_damaged_aside(&*files, &layout, &config.derived, &mut meta, &mut frames)?;
        let sequence = frames.last().map_or(meta.journal.sequence, |frame| frame.stamp.sequence);
        let (epoch, salt) = match lineage {
            Lineage::Same => (Epoch(meta.epoch.0 + 1), meta.salt),
            Lineage::New => (Epoch(meta.epoch.0 + COPY_EPOCHS), fresh_salt(&host)),
        };
        let shared = EngineShared::new(config, host.clone(), layout, epoch, salt, journal);
        let shared = Arc::new(shared);
        let queues = Arc::new(Queues::default());
        queues.sync.set_place(JournalPlace { sequence, slot: 0, at: 0 });
        let catalog = Arc::new(TopicCatalog::default());
        let context = PartitionContext { shared: shared.clone(), queues: queues.clone() };
        recovery::restore(&context, &catalog, meta, frames)?;
        let limit = shared.config.memory_topics_max_bytes;
        if memory_bytes(&catalog, |_| true) > limit {
            let rule =
                "the existing memory topics need more; raise the limit, or delete some of them before you lower it";
            return Err(Error::InvalidLimit { limit: "log.memory_topics_max_bytes", value: limit as u64, rule });
        }
        let mut writeback = Writeback::new(shared.clone(), queues.clone(), catalog.clone());
        writeback.start()?;
        // Only now: the frame that deletes a topic may not be durable before `meta` is.
        recovery::remove_strays(&shared, &catalog)?;
        shared.journal.adopt(existing)?;
        shared.journal.ensure_free().map_err(|e| match e {
            full if full.is_disk_full() => shared.space.waiting(shared.config.journal_file_bytes),
            other => other,
        })?;
        let appender = Arc::new(Appender::new(&shared, &queues, sequence + 1));
        let context = TaskContext { shared: &shared, queues: &queues, catalog: &catalog, appender: &appender };
        let tasks = EngineTasks::start(&context, writeback)?;
        let producer_ids = Arc::new(ProducerIds::of_start(epoch));
        let acceptor = Acceptor { shared: shared.clone(), queues: queues.clone(), catalog: catalog.clone() };
        let log = Self {
            shared,
            queues,
            catalog,
            writers: FencedWriters::new(acceptor.clone(), producer_ids.clone()),
            producer_ids,
            acceptor,
            appender,
            host,
            changing: Mutex::new(()),
            tasks: Mutex::new(Some(tasks)),
            closed: OnceLock::new(),
            lock: Mutex::new(Some(lock)),
        };
        log.guard_existing();
        log.writers.abort_left_open();
        Ok(Arc::new(log))
    }

    /// Writes and syncs all accepted records, brings them to the segments, and applies retention.
    ///
    /// # Errors
    /// [`Error::WritingEnded`] or [`Error::Stopped`] if the log has ended.
    pub fn flush(&self) -> Result<(), Error> {
        self.shared.check_open()?;
        self.acceptor.control(None, Vec::new())?;
        let (sender, receiver) = sync_channel(1);
        self.queues.flush.ask(sender);
        self.shared.answer(&receiver)
    }

    /// Registers a callback for threads that append records that somebody waits for; it runs after the append. The
    /// first registered callback stays. `true` promises a call of [`Embedded::write_accepted`] soon, best once for
    /// all that the thread still appends. After `false` the log's own thread writes.
    pub fn prompt_with(&self, prompt: impl Fn() -> bool + Send + Sync + 'static) {
        self.queues.work.prompt_with(Box::new(prompt));
    }

    /// Writes the accepted records to the journal on the calling thread, and answers callers that wait for
    /// `written`. That saves waking another thread and being woken by it. A long write, or one that must wait, is
    /// left to the log's own thread.
    pub fn write_accepted(&self) {
        self.appender.turn_briefly();
    }

    /// Closes the log: refuses new appends, writes and syncs the accepted ones, brings all of them to the segments,
    /// marks the directory as cleanly closed, and ends every thread. A second call returns the same result.
    ///
    /// # Errors
    /// [`Error::WritingEnded`] if some records could not be written; the next start recovers the durable ones.
    pub fn close(&self) -> Result<(), Error> {
        let Some(tasks) = self.tasks.lock().take() else {
            return self.closed.get().cloned().unwrap_or(Ok(()));
        };
        self.shared.stop();
        // Once these locks are free, appends that were under way when the log stopped are in the queue.
        drop(self.shared.gate());
        for topic in self.catalog.topics() {
            topic.partitions.iter().for_each(|partition| drop(partition.lock()));
        }
        let Self { shared, queues, catalog, appender, .. } = self;
        let result = tasks.finish(&TaskContext { shared, queues, catalog, appender });
        drop(self.lock.lock().take());
        self.closed.get_or_init(|| result).clone()
    }

    /// Free bytes on the disk, as of at most [`LogConfig::flush_interval_ms`] ago.
    pub fn disk_free_bytes(&self) -> u64 {
        self.shared.space.seen_bytes()
    }

    /// The epoch of this start, higher than every earlier one in this directory.
    pub fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    /// Checks that a memory topic of this configuration fits beside the others.
    fn check_memory(&self, name: &TopicName, config: &TopicConfig) -> Result<(), Error> {
        let (wanted_bytes, limit_bytes) = (config.memory_bytes(), self.shared.config.memory_topics_max_bytes);
        let used_bytes = memory_bytes(&self.catalog, |topic| topic.name != *name);
        if wanted_bytes == 0 || wanted_bytes.saturating_add(used_bytes) <= limit_bytes {
            return Ok(());
        }
        Err(Error::MemoryTopicsFull { topic: name.clone(), wanted_bytes, used_bytes, limit_bytes })
    }

    fn context(&self) -> PartitionContext {
        PartitionContext { shared: self.shared.clone(), queues: self.queues.clone() }
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
        memory_bytes: accept.tail_cache.size_bytes() as u64,
        record_bytes: accept.segment_bytes() + accept.tail_cache.own_bytes(partition.first()) as u64,
        open_transactions: accept.producers.transactions.open().len() as u64,
        aborted_transactions: accept.producers.transactions.aborted().entries().len() as u64,
        damaged_reads: partition.damaged_reads(),
    }
}

/// Most bytes of the memory topics that `counts` selects.
fn memory_bytes(catalog: &TopicCatalog, counts: impl Fn(&Topic) -> bool) -> usize {
    let topics = catalog.topics().into_iter().map(|entry| entry.state.current());
    let each = topics.filter(|topic| counts(topic)).map(|topic| topic.config.memory_bytes());
    each.fold(0, usize::saturating_add)
}

/// Creates the directories so that their names survive a crash, missing parents included.
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

/// A secret salt: no record can look like a frame.
fn fresh_salt(host: &Host) -> u64 {
    (host.random_bits() >> 64) as u64
}

fn fresh_meta(host: &Host) -> Meta {
    Meta {
        salt: fresh_salt(host),
        epoch: Epoch(0),
        clean: true,
        journal: JournalPlace { sequence: 0, slot: 0, at: 0 },
        topics: Vec::new(),
        positions: Vec::new(),
    }
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
        Capabilities::ALL
    }

    fn create_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        let config = &self.shared.config.guarded(name, config);
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
        self.shared.config.check_partitions(name, config, self.topics())?;
        self.shared.space.check()?;
        let id = TopicId(self.host.random_bits());
        let topic = Topic { id, name: name.clone(), config: config.clone() };
        let first = config.first_offset(self.shared.wall.now_ms()).0;
        let entry = new_topic(&self.context(), topic.clone(), self.shared.epoch, first);
        let current = entry.state.current();
        self.acceptor.control(Some(&FramePart::Created(topic)), vec![CatalogChange::Created(entry)])?;
        Ok(current)
    }

    fn alter_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        config.validate(name)?;
        let _one_at_a_time = self.changing.lock();
        self.shared.check_open()?;
        let entry = self.known(name)?;
        let current = entry.state.current();
        config.check_change(name, &current.config)?;
        let topic = Topic { config: config.clone(), ..Topic::clone(&current) };
        self.acceptor.control(Some(&FramePart::Altered(topic.clone())), vec![CatalogChange::Altered(topic)])?;
        // Records accepted under a weaker level before the change are durable on return too.
        self.acceptor.control(None, Vec::new())?;
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
        self.shared.config.check_partitions(name, &config, self.topics())?;
        self.shared.space.check()?;
        let topic = Topic { config, ..Topic::clone(&current) };
        let grown = entry.grown(&self.context(), total, self.shared.epoch);
        self.acceptor.control(Some(&FramePart::Altered(topic.clone())), vec![CatalogChange::Grown(grown, topic)])?;
        Ok(entry.state.current())
    }

    fn delete_topic(&self, name: &TopicName) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock();
        self.shared.check_open()?;
        let entry = self.known(name)?;
        entry.state.delete();
        let current = entry.state.current();
        for partition in &entry.partitions {
            // Earlier records must precede the deletion in the journal.
            partition.seal(&mut partition.lock(), &current);
        }
        self.acceptor.control(Some(&FramePart::Deleted(entry.state.id)), vec![CatalogChange::Deleted(entry.state.id)])
    }

    fn topic(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.catalog.topic(name).map(|topic| topic.state.current())
    }

    fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.catalog.topic_by_id(id).map(|entry| entry.state.current())
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

    fn writer(&self, name: &str) -> Result<Arc<dyn Writer>, Error> {
        self.writers.begin(name)
    }

    fn check_writing(&self) -> Result<(), Error> {
        self.shared.check_open()?;
        self.shared.space.check()
    }

    fn check_making_room(&self) -> Result<(), Error> {
        self.shared.check_open()?;
        self.shared.space.check_making_room()
    }

    fn spare_bytes(&self) -> u64 {
        self.shared.space.spare_bytes()
    }

    fn check_disk(&self) -> Result<(), Error> {
        self.shared.space.look_and_check()
    }

    fn backpressure(&self) -> Option<Reply<()>> {
        self.shared.backpressure.wait()
    }

    fn committed(&self, group: &str, partition: &TopicPartition) -> Result<Option<Position>, Error> {
        let known = self.catalog.partition(partition)?;
        Ok(self.catalog.committed(group, known.topic.id, partition.partition))
    }

    fn positions(&self, group: &str) -> Result<Vec<CommittedPosition>, Error> {
        Ok(self.catalog.positions(group))
    }
}

impl LogFigures for Embedded {
    fn stats(&self) -> LogStats {
        let mut stats = self.shared.counters.stats();
        stats.pending_bytes = self.shared.backpressure.pending_bytes() as u64;
        stats.journal_bytes = self.shared.journal.used_bytes();
        for topic in self.catalog.topics() {
            stats.partitions.extend(topic.partitions.iter().map(|partition| partition_stats(partition)));
        }
        stats
    }

    fn topic_stats(&self, topic: &TopicName) -> Vec<PartitionStats> {
        let entry = self.catalog.topic(topic);
        entry.iter().flat_map(|topic| &topic.partitions).map(|partition| partition_stats(partition)).collect()
    }

    fn lags(&self, topic: &TopicName) -> Vec<GroupLag> {
        let Some(entry) = self.catalog.topic(topic) else { return Vec::new() };
        let positions = self.catalog.positions_in(entry.state.id).into_iter();
        let lags = positions.filter_map(|(number, group, position)| {
            let partition = entry.partitions.get(number.0 as usize)?;
            Some(GroupLag { group, partition: partition.id.clone(), position, lag: partition.lag(position) })
        });
        lags.collect()
    }
}

impl KafkaLog for Embedded {
    fn kafka_partition(&self, partition: &TopicPartition) -> Result<Arc<dyn KafkaPartition>, Error> {
        Ok(self.catalog.partition(partition)?)
    }

    fn end_transaction(
        &self,
        end: &EndTransaction<'_>,
        level: AckLevel,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error> {
        self.acceptor.accept_end(end, level, done)
    }

    fn commit_positions(&self, positions: Vec<PositionCommit>, done: Done<()>) -> Result<(), Error> {
        let append = AtomicAppend { records: Vec::new(), positions };
        let done = Done::call(|committed| done.finish(committed.map(drop)));
        self.acceptor.accept_atomic(&append, None, None, AckLevel::Synced, done)
    }

    fn next_producer_id(&self) -> Option<i64> {
        self.producer_ids.for_client()
    }

    fn next_transactional_producer_id(&self) -> Option<i64> {
        self.producer_ids.for_transactions()
    }

    fn groups(&self) -> Vec<KnownGroup> {
        self.catalog.groups()
    }

    fn forget_positions(&self, group: &str, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.acceptor.accept_forget(group, partitions)
    }
}
