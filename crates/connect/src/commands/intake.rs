//! From the streams of commands to the owners of what waits.

use std::sync::Arc;

use millstream_log::Topic;
use millstream_types::{Kind, Offset, PartitionId, RecordView, TenantId, TopicName, TopicPartition};
use millstream_view::{Follow, Source, Views};

use super::command::Arrived;
use super::listeners::Devices;
use super::outcome::Outcome;
use super::view::{Ask, CommandView, Item};
use crate::registry::Registry;
use crate::streams::Streams;

/// Reads every `command.<tenant>`.
pub(crate) struct Intake {
    pub(crate) views: Arc<Views<CommandView>>,
    pub(crate) registry: Registry,
    pub(crate) streams: Arc<Streams>,
    pub(crate) payload_max_bytes: usize,
}

impl Follow<CommandView> for Intake {
    type Item = Item;

    fn follows(&self, topic: &Topic) -> bool {
        let tenant = topic.name.tenant();
        topic.name.kind() == Kind::Command
            && self.registry.snapshot(tenant).state.tenant(tenant).is_some()
            && self.streams.response_partition(tenant, "").is_ok()
    }

    fn item(&self, topic: &Topic, record: &RecordView<'_>) -> Option<(PartitionId, Item)> {
        let tenant = topic.name.tenant();
        let mut arrived = Arrived::read(tenant, topic.id, record, self.payload_max_bytes);
        if arrived.fault.is_none() && self.registry.enabled(tenant, &arrived.command.device).is_none() {
            arrived.fault = Some(Outcome::unknown_device());
        }
        let device = &arrived.command.device;
        let tell = self.streams.response_partition(tenant, device).unwrap_or_else(|error| {
            tracing::error!(%tenant, %error, "the topic for responses cannot be made");
            TopicPartition::new(TopicName::reserved(Kind::CommandResponse, tenant), 0)
        });
        Some((owner(&self.views, tenant, device), Item { arrived, tell }))
    }

    fn command(&self, source: Source, next: Offset, mut items: Vec<(Offset, Item)>) -> Ask {
        items.iter_mut().for_each(|(_, item)| item.arrived.command.place.source = source);
        Ask::Take { source, next, items }
    }
}

/// The partition that keeps what waits for `device`.
pub(crate) fn owner(views: &Views<CommandView>, tenant: &TenantId, device: &str) -> PartitionId {
    views.partition_of(format!("{tenant}\0{device}").as_bytes())
}
