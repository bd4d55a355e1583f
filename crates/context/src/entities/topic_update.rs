//! Follows the topics `context_update.<tenant>`: each record updates entities, exactly once.
//!
//! | part | content |
//! | --- | --- |
//! | key | the entity's id, so that the updates of an entity keep their order |
//! | value | JSON: an update as `POST /v2/op/update` takes it, or one entity, which is appended |
//! | header `format` | `normalized` or `keyValues`; without it each attribute is read by itself |
//! | header `fiware-servicepath` | the service path of the entities, `/` without it |
//!
//! The owner of an entity applies the updates that a record has for it, and stores the position behind the record, in
//! one append. So the entities of a record may change at different moments, but each changes once.
//!
//! A record that cannot be read updates nothing; an update that an owner refuses changes nothing. Both are counted and
//! reported, and affect no other record.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_log::Topic;
use millstream_types::{
    Offset, PartitionId, RecordView, TenantId, TopicKind, TopicName, TopicPartition, WallClock, service_path,
};
use millstream_view::{Draft, Follow, Slots, SourcePartition, SourceRecord};

use crate::entities::batch_update;
use crate::entities::change_details::ChangeOrigin;
use crate::entities::change_topics::{ChangeTopics, SERVICE_PATH};
use crate::entities::decide;
use crate::entities::partition_key;
use crate::entities::stamps::Stamps;
use crate::entities::view::{EntityCommand, EntityReply, EntityView, WriteRequest};
use crate::mapping::mapping_errors::MappingErrors;
use crate::model::entity::ROOT_PATH;
use crate::model::names::shared;
use crate::model::request_body::BodyForm;
use crate::refusal::{ErrorName, Refusal};
use crate::statistics::stats::ContextCounters;

/// Header with the representation of the attributes.
const FORMAT: &str = "format";
/// Characters of a refused value that its error shows.
const EXCERPT_MAX_CHARS: usize = 100;

/// The follower of the update topics.
pub(crate) struct UpdateTopics {
    pub(crate) views: Arc<Slots<EntityView>>,
    pub(crate) topics: Arc<ChangeTopics>,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) counters: Arc<ContextCounters>,
    pub(crate) update_errors: Arc<MappingErrors>,
    pub(crate) wall: Arc<dyn WallClock>,
}

/// The updates of one record that concern one owner.
pub(crate) struct RecordUpdate {
    tenant: TenantId,
    /// Each with the entity's name in errors.
    writes: Vec<(String, WriteRequest)>,
}

impl RecordUpdate {
    pub(crate) fn owned_bytes(&self) -> usize {
        let each = self.writes.iter().map(|(named, request)| named.len() + request.action.owned_bytes());
        size_of_val(self.writes.as_slice()) + each.sum::<usize>()
    }
}

impl Follow<EntityView> for UpdateTopics {
    type Item = RecordUpdate;

    fn follows(&self, topic: &Topic) -> bool {
        topic.name.kind() == TopicKind::ContextUpdate && self.topics.is_ready(topic.name.tenant())
    }

    fn items(&self, source: SourceRecord<'_>, found: &mut Vec<(PartitionId, RecordUpdate)>) {
        let SourceRecord { topic, partition, record } = source;
        let tenant = topic.name.tenant();
        match self.read(tenant, record) {
            Ok(updates) => found.extend(updates),
            Err(refusal) => {
                self.counters.topic_updates_refused.inc();
                self.update_errors.tell(tenant, self.wall.now_ms(), "", || {
                    let at = place(&TopicPartition::new(topic.name.clone(), partition.0), record.offset);
                    let value = String::from_utf8_lossy(record.value.unwrap_or_default());
                    let excerpt: String = value.chars().take(EXCERPT_MAX_CHARS).collect();
                    format!("{at}, value '{excerpt}': {}", refusal.description)
                });
            }
        }
    }

    fn command(&self, source: SourcePartition, next: Offset, records: Vec<(Offset, RecordUpdate)>) -> EntityCommand {
        EntityCommand::TopicUpdates { source, next, records }
    }

    fn item_bytes(update: &RecordUpdate) -> usize {
        update.owned_bytes()
    }
}

impl UpdateTopics {
    /// The updates of a record, by owner.
    fn read(&self, tenant: &TenantId, record: &RecordView<'_>) -> Result<BTreeMap<PartitionId, RecordUpdate>, Refusal> {
        let value = record.value.ok_or_else(|| {
            Refusal::bad("the record has no value: send an update; one with actionType delete removes an entity")
        })?;
        let path = path(record)?;
        let mut updates: BTreeMap<PartitionId, RecordUpdate> = BTreeMap::new();
        for (named, action) in batch_update::read_record(value, form(record)?)? {
            let id = action.id();
            let tell = self
                .topics
                .partition(tenant, id)
                .map_err(|error| Refusal::new(ErrorName::NoResourcesAvailable, error.to_string()))?;
            let owner = self.views.partition_of(&partition_key(tenant, id));
            let (origin, at_us) = (ChangeOrigin::default(), self.stamps.next());
            let request = WriteRequest {
                tenant: tenant.clone(),
                path: path.clone(),
                tell,
                origin,
                versions: None,
                at_us,
                action,
            };
            let update = updates.entry(owner);
            let update = update.or_insert_with(|| RecordUpdate { tenant: tenant.clone(), writes: Vec::new() });
            update.writes.push((named, request));
        }
        Ok(updates)
    }
}

fn path(record: &RecordView<'_>) -> Result<Arc<str>, Refusal> {
    let given = record.header(SERVICE_PATH).unwrap_or_default();
    if given.is_empty() {
        return Ok(shared(ROOT_PATH));
    }
    let path = service_path(&String::from_utf8_lossy(given)).map_err(|error| Refusal::bad(error.to_string()))?;
    Ok(shared(&path))
}

fn form(record: &RecordView<'_>) -> Result<BodyForm, Refusal> {
    match record.header(FORMAT) {
        None => Ok(BodyForm::Either),
        Some(b"normalized") => Ok(BodyForm::Normalized),
        Some(b"keyValues") => Ok(BodyForm::KeyValues),
        Some(other) => Err(Refusal::bad(format!(
            "header {FORMAT} '{}': use normalized or keyValues, or leave it out",
            String::from_utf8_lossy(other)
        ))),
    }
}

fn place(partition: &TopicPartition, offset: Offset) -> String {
    format!("topic {}, partition {}, offset {offset}", partition.topic, partition.partition.0)
}

/// Applies the updates of records in order, and stores the position behind them.
pub(crate) fn apply(
    view: &EntityView,
    draft: &mut Draft<'_, EntityView>,
    source: SourcePartition,
    next: Offset,
    records: Vec<(Offset, RecordUpdate)>,
) -> EntityReply {
    let applied = draft.applied(source);
    let spent_bytes = Cell::new(0);
    for (offset, RecordUpdate { tenant, writes }) in records.into_iter().filter(|(offset, _)| *offset >= applied) {
        for (named, request) in writes {
            match write(view, draft, request, &spent_bytes) {
                Ok(_) => view.counters.topic_updates.inc(),
                Err(refusal) => {
                    view.counters.topic_updates_refused.inc();
                    view.update_errors.tell(&tenant, draft.now_ms(), "", || {
                        let topic = TopicName::reserved(TopicKind::ContextUpdate, &tenant);
                        let at = place(&TopicPartition::new(topic, source.partition.0), offset);
                        format!("{at}, entity '{named}': {}", refusal.description)
                    });
                }
            }
        }
    }
    draft.advance(source, next);
    EntityReply::Updated
}

fn write(
    view: &EntityView,
    draft: &mut Draft<'_, EntityView>,
    request: WriteRequest,
    spent_bytes: &Cell<usize>,
) -> Result<EntityReply, Refusal> {
    request.action.check_places(|id, kind| {
        let same = draft.state().of(&request.tenant).into_iter().flat_map(|entities| entities.with_id(id));
        decide::only(same.filter(|entity| entity.key.path == request.path), id, kind).ok().cloned()
    })?;
    view.request(draft, request, spent_bytes)
}
