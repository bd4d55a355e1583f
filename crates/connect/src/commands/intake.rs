//! Hands the records of the command streams to the owners of the waiting commands.

use std::sync::Arc;

use millstream_log::Topic;
use millstream_types::{Offset, PartitionId, TenantId, TopicKind, TopicName, TopicPartition};
use millstream_view::{Follow, SourcePartition, SourceRecord, Views};

use super::command::Arrived;
use super::listeners::Devices;
use super::outcome::Outcome;
use super::view::{Ask, CommandView, StreamItem};
use crate::registry::Registry;
use crate::streams::Streams;

/// Reads the topics `command.<tenant>` of all tenants.
pub(crate) struct Intake {
    pub(crate) views: Arc<Views<CommandView>>,
    pub(crate) registry: Registry,
    pub(crate) streams: Arc<Streams>,
    pub(crate) payload_max_bytes: usize,
}

impl Follow<CommandView> for Intake {
    type Item = StreamItem;

    fn follows(&self, topic: &Topic) -> bool {
        let tenant = topic.name.tenant();
        topic.name.kind() == TopicKind::Command
            && self.registry.snapshot(tenant).state.tenant(tenant).is_some()
            && self.streams.response_partition(tenant, "").is_ok()
    }

    fn items(&self, SourceRecord { topic, record, .. }: SourceRecord<'_>, found: &mut Vec<(PartitionId, StreamItem)>) {
        let tenant = topic.name.tenant();
        let mut arrived = Arrived::read(tenant, topic.id, record, self.payload_max_bytes);
        if arrived.fault.is_none() && self.registry.enabled(tenant, &arrived.command.device).is_none() {
            arrived.fault = Some(Outcome::unknown_device());
        }
        let device = &arrived.command.device;
        let tell = self.streams.response_partition(tenant, device).unwrap_or_else(|error| {
            tracing::error!(%tenant, %error, "the topic for responses cannot be made");
            TopicPartition::new(TopicName::reserved(TopicKind::CommandResponse, tenant), 0)
        });
        found.push((owner(&self.views, tenant, device), StreamItem { arrived, tell }));
    }

    fn command(&self, source: SourcePartition, next: Offset, mut items: Vec<(Offset, StreamItem)>) -> Ask {
        items.iter_mut().for_each(|(_, item)| item.arrived.command.position.source = source);
        Ask::Take { source, next, items }
    }
}

/// The partition that keeps the commands waiting for `device`.
pub(crate) fn owner(views: &Views<CommandView>, tenant: &TenantId, device: &str) -> PartitionId {
    views.partition_of(format!("{tenant}\0{device}").as_bytes())
}
