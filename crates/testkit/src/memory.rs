//! An engine of the log in memory, for tests that need no disk: the contract kept a second time, in the plainest way.
//!
//! One lock guards everything. An append has every level at once and is answered before the call returns, unless answers are
//! held ([`MemoryLog::hold_answers`]) or one is lost ([`MemoryLog::lose_next_answer`]). A restart ([`MemoryLog::reopened`]) is one in good order.
//!
//! Always true
//! - Bells ring and answers are given outside the lock.
//! - Offsets are never handed out twice: those of aborted transactions stay, without their records.
//!
//! Not here: limits of the embedded engine on what waits for a disk, compaction and retention (no record is removed but by a
//! trim, or from the ring of a topic in memory), and what clients of Kafka's protocol need
//! ([`KafkaLog`](millstream_log::KafkaLog)).

mod contents;
mod handle;
mod partition;
mod transactions;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_log::{
    Bell, Capabilities, CommittedPosition, Done, Error, Log, Partition, Reply, Topic, TopicConfig, Writer,
};
use millstream_types::{Position, TopicName, TopicPartition, WallClock};
use parking_lot::Mutex;

use contents::Contents;
use handle::MemoryPartition;
use writer::MemoryWriter;

/// Free bytes of the disk beside the log below which it is full.
const DISK_FREE_MIN_BYTES: u64 = 1 << 20;

/// A log in memory. See the module for what it leaves out.
pub struct MemoryLog {
    shared: Arc<Shared>,
}

/// The state of the engine, shared with the handles on its partitions and its writers.
struct Shared {
    contents: Mutex<Contents>,
    /// Answers that wait for their release; `None` if answers are given at once.
    held: Mutex<Option<Vec<Answer>>>,
    /// No partition can be looked up.
    has_no_leaders: AtomicBool,
    /// The log is on this machine, as far as it says.
    local: AtomicBool,
    /// Free bytes of the disk beside the log.
    disk_free_bytes: AtomicU64,
    wall: Arc<dyn WallClock>,
}

type Answer = Box<dyn FnOnce() + Send>;

impl Shared {
    /// Changes the contents, unless the log is closed; afterwards rings the bells of what has changed.
    fn change<T>(&self, change: impl FnOnce(&mut Contents) -> Result<T, Error>) -> Result<T, Error> {
        let mut contents = self.contents.lock();
        contents.check_open()?;
        let result = change(&mut contents);
        let rung = std::mem::take(&mut contents.rung);
        drop(contents);
        rung.iter().for_each(|watchers| watchers.ring());
        result
    }

    /// Gives an answer, or holds it.
    fn answer<T: Send + 'static>(&self, done: Done<T>, outcome: Result<T, Error>) {
        let mut held = self.held.lock();
        match &mut *held {
            Some(answers) => answers.push(Box::new(move || done.finish(outcome))),
            None => {
                drop(held);
                done.finish(outcome);
            }
        }
    }

    fn release_answers(&self) {
        let held = self.held.lock().take();
        held.into_iter().flatten().for_each(|answer| answer());
    }
}

impl MemoryLog {
    /// Opens an empty log. `wall` gives the times of commits, and of records in topics with append time.
    pub fn open(wall: Arc<dyn WallClock>) -> Arc<Self> {
        Self::with(Contents::default(), wall)
    }

    fn with(contents: Contents, wall: Arc<dyn WallClock>) -> Arc<Self> {
        let (contents, held) = (Mutex::new(contents), Mutex::new(None));
        let (has_no_leaders, local) = (AtomicBool::new(false), AtomicBool::new(true));
        let disk_free_bytes = AtomicU64::new(u64::MAX);
        Arc::new(Self { shared: Arc::new(Shared { contents, held, has_no_leaders, local, disk_free_bytes, wall }) })
    }

    /// Closes this log and opens the next one over its contents, as a restart in good order does: under a new epoch,
    /// topics in memory are empty, and the writers of before are gone with what they left open.
    pub fn reopened(&self) -> Arc<Self> {
        self.close();
        let contents = self.shared.contents.lock().next_life();
        let next = Self::with(contents, Arc::clone(&self.shared.wall));
        next.shared.local.store(self.shared.local.load(Ordering::Relaxed), Ordering::Relaxed);
        next
    }

    /// Closes the log: it can still be read, and everything else ends in [`Error::Stopped`]. Releases the answers that are
    /// held. A second call does nothing.
    pub fn close(&self) {
        self.shared.contents.lock().is_closed = true;
        self.shared.release_answers();
    }

    /// Holds the answers of appends and commits until the guard is dropped: what they append is stored, and nobody is told.
    /// For tests of what is in flight.
    pub fn hold_answers(&self) -> HeldAnswers {
        self.shared.held.lock().get_or_insert_default();
        HeldAnswers { shared: Arc::clone(&self.shared) }
    }

    /// Says from now on that the log is on other machines ([`Capabilities::local`]), in its next lives, too.
    pub fn move_away(&self) {
        self.shared.local.store(false, Ordering::Relaxed);
    }

    /// Tells from now on that the disk beside the log has so many free bytes. Appends do not mind.
    pub fn tell_free(&self, bytes: u64) {
        self.shared.disk_free_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Refuses further look-ups of partitions, as a cluster does whose leaders are away.
    pub fn lose_leaders(&self) {
        self.shared.has_no_leaders.store(true, Ordering::Relaxed);
    }

    /// Loses the answer of the next commit that the writer of this name makes: it ends in [`Error::OutcomeUnknown`], and so
    /// does every later call of that writer. `stored` tells whether the commit has taken effect.
    pub fn lose_next_answer(&self, writer: &str, stored: bool) {
        let unknown = Error::OutcomeUnknown { writer: writer.to_owned() };
        self.shared.contents.lock().transactions.fail_next_commit(writer, unknown, stored);
    }

    /// Ends the next commit that the writer of this name makes in `error`, without any effect, and every later call of that
    /// writer in [`Error::OutcomeUnknown`].
    pub fn fail_next_commit(&self, writer: &str, error: Error) {
        self.shared.contents.lock().transactions.fail_next_commit(writer, error, false);
    }
}

/// Holds answers of a [`MemoryLog`]. Dropped, it gives those that it holds in the order of the calls, and later ones come at
/// once again.
#[must_use = "dropped, it holds nothing"]
pub struct HeldAnswers {
    shared: Arc<Shared>,
}

impl Drop for HeldAnswers {
    fn drop(&mut self) {
        self.shared.release_answers();
    }
}

impl std::fmt::Debug for HeldAnswers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldAnswers({})", self.shared.held.lock().as_ref().map_or(0, Vec::len))
    }
}

impl std::fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryLog({} topics)", self.topics().len())
    }
}

impl Log for MemoryLog {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::ALL;
        capabilities.local = self.shared.local.load(Ordering::Relaxed);
        capabilities
    }

    fn create_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        let now_ms = self.shared.wall.now_ms();
        self.shared.change(|contents| contents.create_topic(name, config, now_ms))
    }

    fn alter_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        self.shared.change(|contents| contents.alter_topic(name, config))
    }

    fn add_partitions(&self, name: &TopicName, total: u32) -> Result<Arc<Topic>, Error> {
        self.shared.change(|contents| contents.add_partitions(name, total))
    }

    fn delete_topic(&self, name: &TopicName) -> Result<(), Error> {
        self.shared.change(|contents| contents.delete_topic(name))
    }

    fn topic(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.shared.contents.lock().topic(name).ok()
    }

    fn topics(&self) -> Vec<Arc<Topic>> {
        self.shared.contents.lock().topics()
    }

    fn watch_topics(&self, bell: &Arc<Bell>) {
        self.shared.contents.lock().topic_watchers.add(bell);
    }

    fn partition(&self, partition: &TopicPartition) -> Result<Arc<dyn Partition>, Error> {
        let place = self.shared.contents.lock().place(partition)?;
        if self.shared.has_no_leaders.load(Ordering::Relaxed) {
            return Err(Error::Unreachable { brokers: "this test".to_owned(), why: "no leader is left".to_owned() });
        }
        Ok(Arc::new(MemoryPartition::new(Arc::clone(&self.shared), partition.clone(), place)))
    }

    fn writer(&self, name: &str) -> Result<Arc<dyn Writer>, Error> {
        let number = self.shared.change(|contents| Ok(contents.begin_writer(name)))?;
        Ok(Arc::new(MemoryWriter::new(Arc::clone(&self.shared), name.to_owned(), number)))
    }

    fn check_writing(&self) -> Result<(), Error> {
        self.shared.contents.lock().check_open()
    }

    fn spare_bytes(&self) -> u64 {
        self.shared.disk_free_bytes.load(Ordering::Relaxed)
    }

    fn check_disk(&self) -> Result<(), Error> {
        let (path, free_bytes) = (PathBuf::from("beside"), self.spare_bytes());
        if free_bytes >= DISK_FREE_MIN_BYTES {
            return Ok(());
        }
        Err(Error::DiskFull { path, free_bytes, limit_bytes: DISK_FREE_MIN_BYTES })
    }

    fn backpressure(&self) -> Option<Reply<()>> {
        None
    }

    fn committed(&self, group: &str, partition: &TopicPartition) -> Result<Option<Position>, Error> {
        self.shared.contents.lock().committed(group, partition)
    }

    fn positions(&self, group: &str) -> Result<Vec<CommittedPosition>, Error> {
        Ok(self.shared.contents.lock().positions(group))
    }
}
