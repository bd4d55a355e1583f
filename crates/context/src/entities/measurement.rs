//! Follows every telemetry topic and turns device measurements into entities, each record exactly once.
//!
//! An entity never holds what NGSI forbids: a member whose name or text breaks the rules is left out and counted, and
//! so is a payload that is no JSON object or that its mapping cannot use. [`MappingErrors`] reports the reason; no
//! other record is affected. The measurement itself stays in its topic.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use millstream_log::Topic;
use millstream_types::{Offset, PartitionId, RecordView, TenantId, TopicKind, WallClock, header, iso_time};
use millstream_view::{Draft, Follow, Slots, SourcePartition, SourceRecord};
use serde_json::{Map, Value};

use crate::entities::change_details::ChangeOrigin;
use crate::entities::change_record;
use crate::entities::change_topics::ChangeTopics;
use crate::entities::partition_key;
use crate::entities::view::{EntityChange, EntityCommand, EntityReply, EntityView, Measurement};
use crate::mapping::mapping_errors::MappingErrors;
use crate::mapping::{Mapped, MappingInput, Mappings, put};
use crate::model::entity::{Attribute, Entity, Items, Key, Metadata, ROOT_PATH, US_PER_MS};
use crate::model::update;
use crate::statistics::stats::ContextCounters;

/// Metadata item with the measuring time.
const TIME_INSTANT: &str = "TimeInstant";

/// The way in which a device without an entity gets one.
const REMEDY: &str = "an entity is made of an object; let the device send one, such as {\"temperature\": 21.5}";

/// The follower of the telemetry topics.
pub(crate) struct Telemetry {
    pub(crate) views: Arc<Slots<EntityView>>,
    pub(crate) topics: Arc<ChangeTopics>,
    pub(crate) mappings: Arc<dyn Mappings>,
    pub(crate) counters: Arc<ContextCounters>,
    pub(crate) mapping_errors: Arc<MappingErrors>,
    pub(crate) wall: Arc<dyn WallClock>,
}

impl Follow<EntityView> for Telemetry {
    type Item = Measurement;

    fn follows(&self, topic: &Topic) -> bool {
        topic.name.kind() == TopicKind::Telemetry && self.topics.is_ready(topic.name.tenant())
    }

    fn items(&self, SourceRecord { topic, record, .. }: SourceRecord<'_>, found: &mut Vec<(PartitionId, Measurement)>) {
        let tenant = topic.name.tenant();
        match self.read(tenant, record) {
            Ok(measurement) => {
                let owner = self.views.partition_of(&partition_key(&measurement.tenant, &measurement.key.id));
                found.push((owner, measurement));
            }
            Err(why) => {
                self.counters.unmapped.inc();
                let device = device_of(record).unwrap_or_default();
                self.mapping_errors.tell(tenant, self.wall.now_ms(), device, || why.to_string());
            }
        }
    }

    fn command(
        &self,
        source: SourcePartition,
        next: Offset,
        measurements: Vec<(Offset, Measurement)>,
    ) -> EntityCommand {
        EntityCommand::Measured { source, next, measurements }
    }
}

impl Telemetry {
    fn read<'a>(&self, tenant: &TenantId, record: &RecordView<'a>) -> Result<Measurement, Unread<'a>> {
        let payload = record.value.ok_or(Unread::Empty)?;
        let members = members(payload).ok_or(Unread::NoObject(payload))?;
        let device = device_of(record)?;
        let mapping = self.mappings.mapping(tenant, device).map_err(|why| why.to_string())?;
        let metadata = time_instant(record.timestamp_ms);
        let measured = MappingInput { device, record, members, now_ms: self.wall.now_ms(), metadata };
        let Mapped { id, kind, attributes, left_out } = mapping.apply(measured)?;
        for why in left_out {
            self.counters.skipped.inc();
            self.mapping_errors.tell(tenant, self.wall.now_ms(), device, || why);
        }
        let tell = self.topics.partition(tenant, &id).map_err(|error| error.to_string())?;
        let key = Arc::new(Key { id, kind, path: ROOT_PATH.into() });
        Ok(Measurement { tell, tenant: tenant.clone(), key, measured_ms: record.timestamp_ms, attributes })
    }
}

/// The reason why a record is not mapped. It is formatted only when somebody reads it: devices may send many
/// payloads that are not JSON.
enum Unread<'a> {
    Empty,
    NoObject(&'a [u8]),
    Other(String),
}

impl From<String> for Unread<'_> {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl fmt::Display for Unread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "there is no payload: {REMEDY}"),
            Self::NoObject(payload) => {
                let why = serde_json::from_slice::<Map<String, Value>>(payload).err();
                let why = why.map_or_else(|| "it has none of its members".to_owned(), |error| error.to_string());
                write!(f, "the payload is no JSON object: {why}; {REMEDY}")
            }
            Self::Other(why) => f.write_str(why),
        }
    }
}

/// The members of a payload that is a JSON object.
fn members(payload: &[u8]) -> Option<Map<String, Value>> {
    // The first byte is cheaper to check than a parser error is to build.
    payload.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(payload).ok())?
}

fn device_of<'a>(record: &RecordView<'a>) -> Result<&'a str, String> {
    let device = record.header(header::DEVICE_ID).or(record.key).ok_or("the record has neither device_id nor key")?;
    std::str::from_utf8(device).map_err(|_| "the name of the device is not UTF-8".to_owned())
}

fn time_instant(at_ms: i64) -> Items {
    let value = format!("\"{}\"", iso_time(at_ms)).into();
    vec![Metadata { name: TIME_INSTANT.into(), kind: "DateTime".into(), value }].into()
}

impl EntityView {
    /// Counts and reports an attribute that would be a second location of its entity.
    fn leave_out(&self, place: &(TenantId, Arc<Key>), attribute: &Attribute, known: &Attribute, now_ms: i64) {
        let (tenant, key) = place;
        self.counters.skipped.inc();
        self.mapping_errors.tell(tenant, now_ms, "", || {
            format!(
                "attribute '{}' would be a second location of entity '{}' beside '{}': one is allowed; give others the \
                 metadata ignoreType = true, or delete what is out of use",
                attribute.name, key.id, known.name
            )
        });
    }
}

/// Applies measurements in order. Each has a change record; of each entity only the last version is stored.
pub(crate) fn apply(
    view: &EntityView,
    draft: &mut Draft<'_, EntityView>,
    measurements: impl Iterator<Item = Measurement>,
) -> EntityReply {
    let mut latest: HashMap<(TenantId, Arc<Key>), Arc<Entity>> = HashMap::new();
    for Measurement { tell: to, tenant, key, measured_ms, attributes } in measurements {
        let place = (tenant, key);
        let before = match latest.get(&place) {
            Some(entity) => Some(entity.clone()),
            None => draft.state().of(&place.0).and_then(|entities| entities.get(&place.1)).cloned(),
        };
        let mut after =
            before.as_deref().cloned().unwrap_or_else(|| Entity::new(place.1.clone(), draft.now_ms() * US_PER_MS));
        let mut asked = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            if let Some(known) = after.location_beside(&attribute) {
                view.leave_out(&place, &attribute, known, draft.now_ms());
                continue;
            }
            asked.push(attribute.name.clone());
            put(&mut after.attributes, attribute);
        }
        after.keep_exactly();
        let differences = update::settle(before.as_deref(), &mut after, &[], draft.now_ms());
        let told =
            change_record::of(before.as_deref(), &after, &differences, &asked, &ChangeOrigin::default(), measured_ms);
        if told.value.as_ref().is_some_and(|value| value.len() > view.measured_entity_max_bytes) {
            view.counters.too_large.inc();
            continue;
        }
        draft.publish(to, told);
        latest.insert(place, Arc::new(after));
        view.counters.measurements.inc();
    }
    for ((tenant, _), entity) in latest {
        draft.change(EntityChange::Put { tenant, entity });
    }
    EntityReply::Updated
}
