//! Measurements of devices become entities: every topic of telemetry is followed, each record exactly once.
//!
//! What NGSI forbids never gets into an entity: a member whose name or text breaks its rules is left out and counted,
//! and so is a payload that is no JSON object. The measurement itself stays in its topic untouched.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_log::Topic;
use millstream_types::{Kind, Offset, PartitionId, RecordView, TenantId, TopicPartition, header, iso_time};
use millstream_view::{Draft, Follow, Source, Views};
use serde_json::{Map, Value};

use crate::change_details::Origin;
use crate::change_topics::ChangeTopics;
use crate::entities::{Answer, Change, Command, EntityView, tell};
use crate::entity::{Attribute, Entity, Key, Metadata, ROOT_PATH};
use crate::given::kind_of;
use crate::mapping::{Mapping, Mappings};
use crate::stats::Counters;
use crate::syntax::{self, NESTING_MAX};
use crate::{json, partition_key, update};

/// The metadata that tells when a value was measured.
const TIME_INSTANT: &str = "TimeInstant";

/// One record of telemetry, as its owner applies it.
pub(crate) struct Measurement {
    tell: TopicPartition,
    tenant: TenantId,
    key: Arc<Key>,
    measured_ms: i64,
    /// No name twice.
    attributes: Vec<Attribute>,
}

impl Measurement {
    /// Bytes that it owns beside itself, about.
    pub(crate) fn owned_bytes(&self) -> usize {
        self.key.id.len() + self.key.kind.len() + self.attributes.iter().map(Attribute::size_bytes).sum::<usize>()
    }
}

/// Reads telemetry.
pub(crate) struct Telemetry {
    pub(crate) views: Arc<Views<EntityView>>,
    pub(crate) topics: Arc<ChangeTopics>,
    pub(crate) mappings: Arc<dyn Mappings>,
    pub(crate) counters: Arc<Counters>,
}

impl Follow<EntityView> for Telemetry {
    type Item = Measurement;

    fn follows(&self, topic: &Topic) -> bool {
        topic.name.kind() == Kind::Telemetry && self.can_tell(topic.name.tenant())
    }

    fn item(&self, topic: &Topic, record: &RecordView<'_>) -> Option<(PartitionId, Measurement)> {
        let measurement = self.read(topic.name.tenant(), record);
        if measurement.is_none() {
            self.counters.unmapped.inc();
        }
        let measurement = measurement?;
        let owner = self.views.partition_of(&partition_key(&measurement.tenant, &measurement.key.id));
        Some((owner, measurement))
    }

    fn command(&self, source: Source, next: Offset, measurements: Vec<(Offset, Measurement)>) -> Command {
        Command::Measured { source, next, measurements }
    }
}

impl Telemetry {
    /// Whether there is a topic for the tenant's changes: without one its telemetry has to wait.
    fn can_tell(&self, tenant: &TenantId) -> bool {
        match self.topics.partition(tenant, "") {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(%tenant, %error, "no topic for changes of entities; telemetry waits for it");
                false
            }
        }
    }

    fn read(&self, tenant: &TenantId, record: &RecordView<'_>) -> Option<Measurement> {
        let device = record.header(header::DEVICE_ID).or(record.key)?;
        let device = std::str::from_utf8(device).ok()?;
        let payload = record.value?;
        let members: Map<String, Value> = serde_json::from_slice(payload).ok()?;
        let mapping = self.mappings.mapping(tenant, device).unwrap_or_default();
        let id = mapping.id(device);
        if !syntax::is_identifier(&id) {
            return None;
        }
        let tell = self.topics.partition(tenant, &id).ok()?;
        let attributes = self.attributes(&mapping, members, record.timestamp_ms);
        let key = Arc::new(Key { id, kind: mapping.kind(), path: ROOT_PATH.into() });
        Some(Measurement { tell, tenant: tenant.clone(), key, measured_ms: record.timestamp_ms, attributes })
    }

    fn attributes(&self, mapping: &Mapping, members: Map<String, Value>, measured_ms: i64) -> Vec<Attribute> {
        let mut attributes = mapping.constants().to_vec();
        let metadata = time_instant(measured_ms);
        for (member, value) in members {
            let Some(name) = mapping.attribute_name(&member) else { continue };
            if !is_allowed(&name, &value) {
                self.counters.skipped.inc();
                continue;
            }
            let attribute = Attribute::new(name, kind_of(&value).into(), json::text(&value), metadata.clone());
            put(&mut attributes, attribute);
        }
        attributes
    }
}

fn is_allowed(name: &str, value: &Value) -> bool {
    syntax::is_attribute_name(name) && syntax::forbidden_in(value).is_none() && depth(value) < NESTING_MAX
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn time_instant(at_ms: i64) -> Arc<[Metadata]> {
    let value = format!("\"{}\"", iso_time(at_ms)).into();
    [Metadata { name: TIME_INSTANT.into(), kind: "DateTime".into(), value }].into()
}

fn put(attributes: &mut Vec<Attribute>, attribute: Attribute) {
    match attributes.iter_mut().find(|known| known.name == attribute.name) {
        Some(known) => *known = attribute,
        None => attributes.push(attribute),
    }
}

/// Applies measurements in order. Each is told; of an entity that several concern, the last version alone is stored.
pub(crate) fn apply(
    view: &EntityView,
    draft: &mut Draft<'_, EntityView>,
    measurements: impl Iterator<Item = Measurement>,
) -> Answer {
    let mut latest: HashMap<(TenantId, Arc<Key>), Arc<Entity>> = HashMap::new();
    for Measurement { tell: to, tenant, key, measured_ms, attributes } in measurements {
        let place = (tenant, key);
        let before = match latest.get(&place) {
            Some(entity) => Some(entity.clone()),
            None => draft.state().of(&place.0).and_then(|entities| entities.get(&place.1)).cloned(),
        };
        let mut after = before.as_deref().cloned().unwrap_or_else(|| Entity::new(place.1.clone(), draft.now_ms()));
        let asked: Vec<Arc<str>> = attributes.iter().map(|attribute| attribute.name.clone()).collect();
        attributes.into_iter().for_each(|attribute| put(&mut after.attributes, attribute));
        let differences = update::settle(before.as_deref(), &mut after, draft.now_ms());
        let told = tell(before.as_deref(), &after, (&differences, &asked), &Origin::default(), measured_ms);
        if told.value.as_ref().is_some_and(|value| value.len() > view.measured_entity_max_bytes) {
            view.counters.too_large.inc();
            continue;
        }
        draft.publish(to, told);
        latest.insert(place, Arc::new(after));
        view.counters.measurements.inc();
    }
    for ((tenant, _), entity) in latest {
        draft.change(Change::Put { tenant, entity });
    }
    Answer::Updated
}
