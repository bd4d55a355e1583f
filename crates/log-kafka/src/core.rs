//! The part of the engine that its handles and tasks share.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use kafka_protocol::ResponseError;
use millstream_log::{Done, Error, LogCounters, Reply, Topic, reply};
use millstream_types::{SystemClock, WallClock as _};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::activity::Activity;
use crate::cluster::Cluster;
use crate::config::EngineConfig;
use crate::connection::CallError;
use crate::contact::Troubles;
use crate::followed::Followed;
use crate::names::Names;
use crate::outbox::Outbox;
use crate::partition_state::{PartitionState, leader_of};
use crate::queue::Ended;
use crate::topic_state::Topics;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) cluster: Cluster,
    pub(crate) names: Names,
    pub(crate) topics: Topics,
    pub(crate) outbox: Outbox,
    pub(crate) followed: Followed,
    pub(crate) counters: LogCounters,
    pub(crate) activity: Activity,
    pub(crate) troubles: Troubles,
    /// Bytes of appends that have not ended.
    pending_bytes: AtomicUsize,
    /// Callers that wait until there is room for appends.
    room_waiters: Mutex<Vec<Done<()>>>,
    clock: SystemClock,
    runtime: Handle,
}

impl Core {
    pub(crate) fn new(config: EngineConfig, runtime: Handle) -> Arc<Self> {
        let config = Arc::new(config);
        Arc::new(Self {
            cluster: Cluster::new(Arc::clone(&config)),
            names: Names::new(&config.prefix),
            topics: Topics::default(),
            outbox: Outbox::default(),
            followed: Followed::default(),
            counters: LogCounters::default(),
            activity: Activity::default(),
            troubles: Troubles::default(),
            room_waiters: Mutex::default(),
            clock: SystemClock::default(),
            pending_bytes: AtomicUsize::new(0),
            config,
            runtime,
        })
    }

    /// All topics, ordered by name.
    pub(crate) fn topics(&self) -> Vec<Arc<Topic>> {
        self.topics.all().iter().map(|topic| topic.topic()).collect()
    }

    /// Runs a task of the engine.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Waits for a task of the engine on the calling thread, which may be one of any runtime.
    ///
    /// # Errors
    /// Those of the task; [`Error::Stopped`] if the engine ends.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.runtime.spawn(async move { drop(sender.send(task.await)) });
        receiver.recv().unwrap_or(Err(Error::Stopped))
    }

    /// Checks that appends may be stored soon.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if no broker answers; [`Error::Fenced`] once another process has taken over.
    pub(crate) fn check_writing(&self) -> Result<(), Error> {
        self.activity.check(&self.config)?;
        match self.cluster.contact.silence() {
            None => Ok(()),
            Some(silence) => {
                let why = format!("no broker has answered for {} s", silence.as_secs());
                Err(Error::Unreachable { brokers: self.config.brokers.join(", "), why })
            }
        }
    }

    /// Counts bytes of an append, if there is room for them.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(crate) fn accept(&self, bytes: usize) -> Result<(), Error> {
        let limit_bytes = self.config.pending_max_bytes;
        let waiting_bytes = self.pending_bytes.fetch_add(bytes, Ordering::AcqRel);
        // One append always fits.
        if waiting_bytes > 0 && waiting_bytes + bytes > limit_bytes {
            self.pending_bytes.fetch_sub(bytes, Ordering::AcqRel);
            return Err(Error::Overloaded { waiting_bytes, limit: "log.pending_max_bytes", limit_bytes });
        }
        Ok(())
    }

    /// Bytes of appends that have not ended.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes.load(Ordering::Acquire)
    }

    /// Bytes of its newest batches that each partition may keep.
    pub(crate) fn tail_share(&self) -> usize {
        self.config.tail_bytes / self.followed.count().max(1)
    }

    /// Answers appends that have ended.
    pub(crate) fn end(&self, ended: Ended) {
        self.pending_bytes.fetch_sub(ended.accepted_bytes, Ordering::AcqRel);
        ended.answer();
        if !self.is_crowded() {
            let waiters = std::mem::take(&mut *self.room_waiters.lock());
            waiters.into_iter().for_each(|waiter| waiter.finish(Ok(())));
        }
    }

    /// Answers the acknowledged appends of a partition that readers see.
    pub(crate) fn answer_seen(&self, partition: &PartitionState) {
        partition.seen().into_iter().for_each(|ended| self.end(ended));
    }

    /// `true` if appends will soon be refused.
    fn is_crowded(&self) -> bool {
        self.pending_bytes.load(Ordering::Acquire) > self.config.pending_max_bytes / 2
    }

    /// A reply to await before the next append; `None` while there is room.
    pub(crate) fn backpressure(&self) -> Option<Reply<()>> {
        let mut waiters = self.room_waiters.lock();
        if !self.is_crowded() {
            return None;
        }
        let (done, answer) = reply();
        waiters.push(done);
        Some(answer)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// The error of a call that brokers did not answer.
    pub(crate) fn unreachable(&self, error: &CallError) -> Error {
        Error::Unreachable { brokers: self.config.brokers.join(", "), why: error.to_string() }
    }

    /// Asks where these partitions are led now.
    pub(crate) async fn find_leaders(&self, partitions: &[Arc<PartitionState>]) -> Result<(), Error> {
        let mut wanted: BTreeMap<Uuid, Vec<&Arc<PartitionState>>> = BTreeMap::new();
        for partition in partitions {
            wanted.entry(partition.topic.id).or_default().push(partition);
        }
        let ids: Vec<Uuid> = wanted.keys().copied().collect();
        let metadata = self.cluster.metadata(Some(&ids)).await.map_err(|error| self.unreachable(&error))?;
        for topic in &metadata.topics {
            for partition in wanted.get(&topic.topic_id).into_iter().flatten() {
                leader_of(topic, partition.index()).into_iter().for_each(|leader| partition.led_by(leader));
            }
        }
        Ok(())
    }
}

/// The text of an error code.
pub(crate) fn said(code: i16, message: Option<&str>) -> String {
    let named = || ResponseError::try_from_code(code).map_or_else(|| format!("error {code}"), |e| e.to_string());
    message.filter(|message| !message.is_empty()).map_or_else(named, str::to_owned)
}
