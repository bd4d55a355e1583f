//! The part of the engine that its handles and tasks share.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, OnceLock, mpsc};

use kafka_protocol::ResponseError;
use millstream_kafka_wire::CallError;
use millstream_log::{Error, LogCounters, SystemFiles, Topic};
use millstream_types::{ACTIVE, SystemClock, WallClock as _};
use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};
use tokio::sync::watch;
use uuid::Uuid;

use crate::activity::Activity;
use crate::clocks::Clocks;
use crate::cluster::Cluster;
use crate::config::EngineConfig;
use crate::contact::Troubles;
use crate::followed::Followed;
use crate::health::ReplicaReport;
use crate::local_copies::LocalCopies;
use crate::local_disk::LocalDisk;
use crate::lost_records::LostRecords;
use crate::migrated::{MigratedTopic, MigratedTopics};
use crate::names::Names;
use crate::outbox::Outbox;
use crate::partition_state::{PartitionState, leader_of};
use crate::pending::PendingAppends;
use crate::topic_state::Topics;

const THREADS: usize = 2;

/// The threads of an engine.
///
/// # Errors
/// [`Error::Unreachable`] if the system has none.
pub(crate) fn new_runtime(config: &EngineConfig) -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("log-kafka")
        .enable_all()
        .build()
        .map_err(|error| Error::Unreachable { brokers: config.brokers.join(", "), why: error.to_string() })
}

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
    pub(crate) lost: LostRecords,
    pub(crate) replicas: Mutex<ReplicaReport>,
    pub(crate) clocks: Clocks,
    /// The reason why the start waits.
    pub(crate) waits: watch::Sender<Option<String>>,
    pub(crate) pending: Arc<PendingAppends>,
    pub(crate) copies: LocalCopies,
    pub(crate) disk: LocalDisk,
    /// The topics that were moved here; known before any topic is.
    pub(crate) migrated: OnceLock<MigratedTopics>,
    clock: SystemClock,
    runtime: Handle,
}

impl Core {
    pub(crate) fn new(config: EngineConfig, waits: watch::Sender<Option<String>>, runtime: Handle) -> Arc<Self> {
        let config = Arc::new(config);
        let pending = Arc::new(PendingAppends::new(config.pending_max_bytes));
        Arc::new(Self {
            cluster: Cluster::new(Arc::clone(&config)),
            names: Names::new(&config.prefix),
            topics: Topics::new(Arc::clone(&pending)),
            outbox: Outbox::default(),
            followed: Followed::default(),
            counters: LogCounters::default(),
            activity: Activity::default(),
            troubles: Troubles::default(),
            lost: LostRecords::default(),
            replicas: Mutex::default(),
            clocks: Clocks::default(),
            waits,
            migrated: OnceLock::new(),
            clock: SystemClock::default(),
            copies: LocalCopies::new(config.copies_dir.clone(), config.copies),
            disk: LocalDisk::new(Arc::new(SystemFiles), config.local_dir.clone(), config.copies.disk_free_min_bytes),
            pending,
            config,
            runtime,
        })
    }

    /// All topics, ordered by name.
    pub(crate) fn topics(&self) -> Vec<Arc<Topic>> {
        self.topics.all().iter().map(|topic| topic.topic()).collect()
    }

    /// The topic of this id in Kafka as it was before it was moved there, if it was.
    pub(crate) fn migrated(&self, id: Uuid) -> Option<Arc<MigratedTopic>> {
        self.migrated.get().and_then(|migrated| migrated.get(&id)).cloned()
    }

    /// Runs a task of the engine.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Waits for a task of the engine on the calling thread. Other tasks of that thread, if it is one of a runtime of many, go on meanwhile.
    ///
    /// # Errors
    /// Those of the task; [`Error::Stopped`] if the engine ends.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.runtime.spawn(async move { drop(sender.send(task.await)) });
        let receive = || receiver.recv().unwrap_or(Err(Error::Stopped));
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        if matches!(flavor, Ok(RuntimeFlavor::MultiThread)) { tokio::task::block_in_place(receive) } else { receive() }
    }

    /// Checks that appends may be stored soon.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if no broker answers; [`Error::Fenced`] once another process has taken over.
    pub(crate) fn check_writing(&self) -> Result<(), Error> {
        self.activity.check()?;
        match self.cluster.contact.silence() {
            None => Ok(()),
            Some(silence) => {
                let why = format!("no broker has answered for {} s", silence.as_secs());
                Err(Error::Unreachable { brokers: self.config.brokers.join(", "), why })
            }
        }
    }

    /// Checks that brokers have not been out of reach for so long that another process may have taken over.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub(crate) fn check_pauses(&self) -> Result<(), Error> {
        if !self.cluster.contact.pauses.in_doubt() {
            return Ok(());
        }
        let why =
            "brokers were out of reach, and it is not known yet whether another process has taken over".to_owned();
        Err(Error::Unreachable { brokers: self.config.brokers.join(", "), why })
    }

    /// Checks that no other process can have taken over.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub(crate) fn check_claim(&self) -> Result<(), Error> {
        self.check_pauses()?;
        let Some(time) = self.cluster.contact.pauses.unconfirmed() else { return Ok(()) };
        let topic = self.names.internal(ACTIVE.name);
        let why = format!(
            "another process may have taken over, as the topic {topic} has not answered for {} s; see that its leader runs and is reached",
            time.as_secs()
        );
        Err(Error::Unreachable { brokers: self.config.brokers.join(", "), why })
    }

    /// Bytes of its newest batches that each partition may keep.
    pub(crate) fn tail_share(&self) -> usize {
        self.config.tail_bytes / self.followed.count().max(1)
    }

    /// Answers the acknowledged appends of a partition that readers see.
    pub(crate) fn answer_seen(&self, partition: &PartitionState) {
        partition.seen().into_iter().for_each(|ended| self.pending.end(ended));
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// The error of a call that brokers did not answer.
    pub(crate) fn unreachable(&self, error: &CallError) -> Error {
        Error::Unreachable { brokers: self.config.brokers.join(", "), why: error.to_string() }
    }

    /// The reason for which the leader of a partition refuses an append, with the remedy if that is its clock.
    pub(crate) fn why_refused(&self, partition: &PartitionState, code: i16, message: Option<&str>) -> String {
        if ResponseError::try_from_code(code) != Some(ResponseError::InvalidTimestamp) {
            return said(code, message);
        }
        let leader =
            partition.leader().map_or_else(|| "a broker".to_owned(), |leader| self.cluster.name(leader.broker));
        format!(
            "{leader} refuses the time of a record, as its clock is behind that of this process by more than message.timestamp.after.max.ms of the topic; set the clocks of all machines by NTP"
        )
    }

    /// The error of a cluster that cannot keep this log.
    pub(crate) fn unfit(&self, setting: &str, value: impl Into<String>, rule: impl Into<String>) -> Error {
        let broker = self.config.brokers.join(", ");
        Error::Unfit { broker, setting: setting.to_owned(), value: value.into(), rule: rule.into() }
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
