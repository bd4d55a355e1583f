//! The engine.

use std::sync::Arc;

use millstream_log::{
    Bell, Capabilities, CommittedPosition, Error, Log, LogConfig, Partition, Reply, Topic, TopicConfig, Writer,
};
use millstream_types::{MIGRATION, Position, TopicName, TopicPartition};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tracing::warn;

use crate::active::Claim;
use crate::config::EngineConfig;
use crate::core::{Core, new_runtime};
use crate::following;
use crate::migration::{self, LogSource};
use crate::partition::KafkaPartition;
use crate::positions::Positions;
use crate::writer::Writers;
use crate::{ActiveProcess, active, fitness, positions, producing, survey, topic_admin, topic_watch, writer};

/// A log whose records are in a Kafka cluster.
#[derive(Debug)]
pub struct OnKafka {
    core: Arc<Core>,
    writers: Arc<Writers>,
    pub(crate) positions: Positions,
    claim: Claim,
    /// Ends the tasks when it is dropped.
    runtime: Option<Runtime>,
}

impl OnKafka {
    /// Connects to the cluster and learns its topics.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`]; [`Error::Unreachable`] if no broker answers; [`Error::Unfit`] if the cluster cannot keep this log; [`Error::Refused`].
    pub fn open(config: LogConfig) -> Result<Arc<Self>, Error> {
        Self::open_telling(config, None, watch::Sender::default())
    }

    /// As [`OnKafka::open`], for a process whose data directory has a log that was moved there, if `source` tells of one. Tells
    /// `waits` the reason for which it, and [`OnKafka::take_over`] after it, wait.
    ///
    /// # Errors
    /// Those of [`OnKafka::open`]; [`Error::Unfit`] if `source` is another log, or has changed since, and nothing is created then.
    pub fn open_telling(
        config: LogConfig,
        source: Option<LogSource>,
        waits: watch::Sender<Option<String>>,
    ) -> Result<Arc<Self>, Error> {
        let config = EngineConfig::new(config)?;
        let runtime = new_runtime(&config)?;
        let core = Core::new(config, waits, runtime.handle().clone());
        core.spawn(producing::run(Arc::clone(&core)));
        let core_of_task = Arc::clone(&core);
        core.wait(async move {
            fitness::check(&core_of_task).await?;
            fitness::until_replicated(&core_of_task).await?;
            learn_migrated(&core_of_task, source).await?;
            let watch = topic_watch::begin(&core_of_task).await?;
            positions::create(&core_of_task).await?;
            core_of_task.spawn(topic_watch::run(watch, Arc::downgrade(&core_of_task)));
            core_of_task.spawn(survey::run(Arc::downgrade(&core_of_task)));
            Ok(())
        })?;
        Ok(Arc::new(Self {
            core,
            writers: Arc::default(),
            positions: Positions::default(),
            claim: Claim::default(),
            runtime: Some(runtime),
        }))
    }

    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.core)
    }
}

/// Learns which topics were moved to Kafka, before any is used.
async fn learn_migrated(core: &Core, source: Option<LogSource>) -> Result<(), Error> {
    let name = core.names.internal(MIGRATION.name);
    let (topics, state) = migration::found(core).await?.unwrap_or_default();
    match (&state, source) {
        (Some(state), _) if !state.is_finished => {
            let rule = format!(
                "a log is being moved there; run 'millstream migrate --to kafka' with the data directory of that log again, or \
                 delete the topics of that prefix (log.kafka.prefix = '{}')",
                core.config.prefix
            );
            return Err(core.unfit(&name, "unfinished", rule));
        }
        (Some(state), Some(source)) => state.check_source(core, &source)?,
        (None, Some(_)) => {
            let rule = "the log of the data directory was not moved there; run 'millstream migrate --to kafka', or choose \
                        another --data-dir, or log.engine = embedded";
            return Err(core.unfit(&name, "no record", rule));
        }
        (_, None) => {}
    }
    core.migrated.get_or_init(|| topics);
    Ok(())
}

impl OnKafka {
    /// Waits until no other process of this installation works, and works from now on. Blocks on the cluster. A server calls it
    /// before anything else, so that a process can stand by; an engine without it shares the log with all others.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`]; [`Error::Stopped`] if the log is closed meanwhile, and nobody waits for this process then.
    pub fn take_over(&self, me: ActiveProcess) -> Result<(), Error> {
        self.core.wait(active::take_over(self.core(), Arc::clone(&self.writers), me, Arc::clone(&self.claim)))
    }

    /// Resolves once another process has taken over: this one has nothing to write any more, and should end.
    pub async fn taken_over(&self) -> ActiveProcess {
        self.core.activity.taken_over().await
    }

    /// Refuses appends, waits until those that were accepted have ended, and ends the writers, so that the next ones need not end
    /// their transactions. Appends fail from now on.
    ///
    /// # Errors
    /// [`Error::Stopped`] if an append or a writer has not ended in time: the append fails, and the next writer of the name ends
    /// the transaction.
    pub fn close(&self) -> Result<(), Error> {
        let (writers, patience) = (Arc::clone(&self.writers), self.core.config.request_timeout);
        let (core, claim) = (self.core(), Arc::clone(&self.claim));
        core.activity.close();
        let ended = self.core.wait(async move {
            let ending = async {
                producing::until_sent(&core).await;
                active::leave(&core, claim).await;
                writer::end_all(writers).await;
            };
            tokio::time::timeout(patience, ending).await.map_err(|_| Error::Stopped)
        });
        self.core.topics.close();
        ended
    }
}

impl Drop for OnKafka {
    fn drop(&mut self) {
        if self.close().is_err() {
            warn!("an append or a writer has not ended in time; the next writer of its name ends its transaction");
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Log for OnKafka {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::ALL;
        (capabilities.memory_topics, capabilities.level_per_append) = (false, false);
        (capabilities.holds, capabilities.local) = (false, false);
        capabilities
    }

    fn create_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        self.core.wait(topic_admin::create_topic(self.core(), name.clone(), config.clone()))
    }

    fn alter_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        self.core.wait(topic_admin::alter_topic(self.core(), name.clone(), config.clone()))
    }

    fn add_partitions(&self, name: &TopicName, total: u32) -> Result<Arc<Topic>, Error> {
        self.core.wait(topic_admin::add_partitions(self.core(), name.clone(), total))
    }

    fn delete_topic(&self, name: &TopicName) -> Result<(), Error> {
        self.core.wait(topic_admin::delete_topic(self.core(), name.clone()))
    }

    fn topic(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.core.topics.find(name).map(|topic| topic.topic())
    }

    fn topics(&self) -> Vec<Arc<Topic>> {
        self.core.topics()
    }

    fn watch_topics(&self, bell: &Arc<Bell>) {
        self.core.topics.watchers.add(bell);
    }

    fn partition(&self, partition: &TopicPartition) -> Result<Arc<dyn Partition>, Error> {
        let state = self.core.topics.get(&partition.topic)?.partition(partition)?;
        let core = self.core();
        let opened = Arc::clone(&state);
        self.core.wait(async move { following::begin(&core, &opened).await })?;
        Ok(Arc::new(KafkaPartition { core: self.core(), state }))
    }

    fn writer(&self, name: &str) -> Result<Arc<dyn Writer>, Error> {
        let writer = self.core.wait(writer::begin(self.core(), Arc::clone(&self.writers), name.to_owned()))?;
        Ok(Arc::new(writer))
    }

    fn check_writing(&self) -> Result<(), Error> {
        self.core.check_writing()
    }

    fn spare_bytes(&self) -> u64 {
        self.core.disk.spare_bytes()
    }

    fn check_disk(&self) -> Result<(), Error> {
        self.core.disk.check()
    }

    fn backpressure(&self) -> Option<Reply<()>> {
        self.core.pending.backpressure()
    }

    fn committed(&self, group: &str, partition: &TopicPartition) -> Result<Option<Position>, Error> {
        self.core.topics.get(&partition.topic)?.partition(partition)?;
        let all = self.positions(group)?;
        Ok(all.into_iter().find(|known| known.partition == *partition).map(|known| known.position))
    }

    fn positions(&self, group: &str) -> Result<Vec<CommittedPosition>, Error> {
        self.positions.of(&self.core, group)
    }
}
