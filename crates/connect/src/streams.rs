//! The topics of devices' messages: `telemetry.<tenant>` and `event.<tenant>`, and of commands: `command.<tenant>`
//! and `command_response.<tenant>`.
//!
//! The topics of a tenant are resolved once. A message finds its partition without a lock or an allocation.

use std::sync::Arc;

use arc_swap::ArcSwap;
use millstream_log::{AckLevel, Log, Partition, Reply, Topic, TopicConfig};
use millstream_types::{TenantId, TopicKind, TopicName, TopicPartition, partition_of_key};
use parking_lot::Mutex;

use crate::last_seen::{LastSeen, Stamps};
use crate::metrics::{AdapterMetrics, TenantMetrics};
use crate::registry::Table;
use crate::stream::Stream;
use crate::usage::{Ledger, Usage};

/// Largest record of these topics: a message in the largest packet by default, with room for the headers of its record.
const RECORD_MAX_BYTES: usize = (1 << 20) + (64 << 10);

/// The topics of all tenants that have sent since the start.
pub(crate) struct Streams {
    log: Arc<dyn Log>,
    partitions: u32,
    meters: Arc<AdapterMetrics>,
    ledger: Arc<Ledger>,
    pub(crate) last_seen: Arc<LastSeen>,
    known: ArcSwap<Table<TenantId, Arc<TenantStreams>>>,
    /// Held while a tenant's topics are resolved, so that each is resolved once.
    resolving: Mutex<()>,
}

/// The topics of one tenant.
pub(crate) struct TenantStreams {
    telemetry: Vec<Arc<dyn Partition>>,
    event: Vec<Arc<dyn Partition>>,
    response: Vec<Arc<dyn Partition>>,
    command: Vec<Arc<dyn Partition>>,
    pub(crate) meter: Arc<TenantMetrics>,
    pub(crate) usage: Arc<Usage>,
    /// The time of each device's last message.
    pub(crate) stamps: Arc<Stamps>,
}

impl TenantStreams {
    /// The partition that keeps the order of `device`'s messages.
    pub(crate) fn partition(&self, stream: Stream, device: &str) -> &Arc<dyn Partition> {
        of_device(self.partitions(stream), device)
    }

    /// The partitions of a stream.
    pub(crate) fn partitions(&self, stream: Stream) -> &[Arc<dyn Partition>] {
        match stream {
            Stream::Telemetry => &self.telemetry,
            Stream::Event => &self.event,
            Stream::CommandResponse => &self.response,
        }
    }

    /// The partition that keeps the order of commands to `device`.
    pub(crate) fn command_partition(&self, device: &str) -> &Arc<dyn Partition> {
        of_device(&self.command, device)
    }
}

fn of_device<'a>(partitions: &'a [Arc<dyn Partition>], device: &str) -> &'a Arc<dyn Partition> {
    &partitions[partition_of_key(device.as_bytes(), partitions.len() as u32).0 as usize]
}

impl Streams {
    pub(crate) fn new(
        log: Arc<dyn Log>,
        partitions: u32,
        meters: Arc<AdapterMetrics>,
        ledger: Arc<Ledger>,
        last_seen: Arc<LastSeen>,
    ) -> Self {
        let known = ArcSwap::from_pointee(Table::default());
        Self { log, partitions, meters, ledger, last_seen, known, resolving: Mutex::new(()) }
    }

    /// The streams of `tenant`, if they are resolved.
    pub(crate) fn known(&self, tenant: &TenantId) -> Option<Arc<TenantStreams>> {
        self.known.load().get(tenant).cloned()
    }

    /// The streams of `tenant`; creates missing topics.
    pub(crate) async fn of(self: &Arc<Self>, tenant: &TenantId) -> Result<Arc<TenantStreams>, millstream_log::Error> {
        if let Some(known) = self.known(tenant) {
            return Ok(known);
        }
        let (streams, tenant) = (self.clone(), tenant.clone());
        // Creating a topic waits for the disk.
        let resolved = tokio::task::spawn_blocking(move || streams.resolve(&tenant)).await;
        resolved.unwrap_or(Err(millstream_log::Error::Stopped))
    }

    /// Returns the log's [`Log::backpressure`], to wait for.
    pub(crate) fn room(&self) -> Option<Reply<()>> {
        self.log.backpressure()
    }

    /// Forgets the streams of `tenant`, because one of them was deleted.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        let _turn = self.resolving.lock();
        self.known.store(Arc::new(self.known.load().without(tenant)));
    }

    /// The blocking form of [`Streams::of`].
    pub(crate) fn resolve(&self, tenant: &TenantId) -> Result<Arc<TenantStreams>, millstream_log::Error> {
        let _turn = self.resolving.lock();
        if let Some(known) = self.known(tenant) {
            return Ok(known);
        }
        let telemetry = self.topic(tenant, TopicKind::Telemetry, AckLevel::Written)?;
        let event = self.topic(tenant, TopicKind::Event, AckLevel::Synced)?;
        let response = self.topic(tenant, TopicKind::CommandResponse, AckLevel::Written)?;
        // Last, as commands are taken once they can be answered.
        let command = self.topic(tenant, TopicKind::Command, AckLevel::Synced)?;
        // Of the private space there may be messages from before a restart.
        let private = TopicPartition::new(TopicName::reserved(TopicKind::Mqtt, tenant), 0);
        let private = self.log.topic(&private.topic).and_then(|_| self.log.partition(&private).ok());
        let counted = [&telemetry, &event, &response].into_iter().flatten().cloned().chain(private);
        let usage = self.ledger.of(tenant, counted.collect())?;
        let (meter, stamps) = (self.meters.of(tenant), self.last_seen.of(tenant));
        let resolved = Arc::new(TenantStreams { telemetry, event, response, command, meter, usage, stamps });
        self.known.store(Arc::new(self.known.load().update(tenant.clone(), resolved.clone())));
        Ok(resolved)
    }

    /// The partition for the responses of `device` and for the notices about its commands, in order. Creates a missing
    /// topic, which waits for the disk.
    pub(crate) fn response_partition(
        &self,
        tenant: &TenantId,
        device: &str,
    ) -> Result<TopicPartition, millstream_log::Error> {
        let name = TopicName::reserved(TopicKind::CommandResponse, tenant);
        let topic = match self.log.topic(&name) {
            Some(topic) => topic,
            None => {
                self.forget(tenant);
                self.resolve(tenant)?;
                let gone = || millstream_log::Error::UnknownTopic { topic: name.clone() };
                self.log.topic(&name).ok_or_else(gone)?
            }
        };
        let number = partition_of_key(device.as_bytes(), topic.config.partitions);
        Ok(TopicPartition::new(name, number.0))
    }

    fn topic(
        &self,
        tenant: &TenantId,
        kind: TopicKind,
        level: AckLevel,
    ) -> Result<Vec<Arc<dyn Partition>>, millstream_log::Error> {
        let name = TopicName::reserved(kind, tenant);
        let topic: Arc<Topic> = match self.log.topic(&name) {
            Some(existing) => existing,
            None => {
                let config = TopicConfig {
                    partitions: self.partitions,
                    level,
                    record_max_bytes: RECORD_MAX_BYTES,
                    ..TopicConfig::default()
                };
                self.log.create_topic(&name, &config)?
            }
        };
        let numbers = 0..topic.config.partitions;
        numbers.map(|number| self.log.partition(&TopicPartition::new(name.clone(), number))).collect()
    }
}
