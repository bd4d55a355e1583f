//! The view of entities: the commands that its owner gets, its replies and the changes that it stores.
//!
//! The decisions are in `decide.rs`: from a command to changes.

use std::sync::Arc;

use millstream_types::{Offset, TenantId, TopicPartition};
use millstream_view::SourcePartition;

use crate::entities::change_details::ChangeOrigin;
use crate::entities::change_topics::ChangeTopics;
use crate::entities::condition::Versions;
use crate::entities::topic_update::RecordUpdate;
use crate::index::Built;
use crate::mapping::mapping_errors::MappingErrors;
use crate::model::content::AttributeContent;
use crate::model::entity::{Attribute, Entity, Key};
use crate::model::request_body::{BodyAttribute, BodyEntity};
use crate::model::update::UpdateMode;
use crate::refusal::Refusal;
use crate::statistics::stats::ContextCounters;

/// Limit of an append: the state and change records of the largest entity that a client may make fit.
pub(crate) const APPEND_MAX_BYTES: usize = 4 << 20;

pub(crate) struct EntityView {
    pub(crate) entity_max_bytes: usize,
    pub(crate) measured_entity_max_bytes: usize,
    pub(crate) indexed_attributes_max: usize,
    pub(crate) topics: Arc<ChangeTopics>,
    pub(crate) counters: Arc<ContextCounters>,
    pub(crate) mapping_errors: Arc<MappingErrors>,
    pub(crate) update_errors: Arc<MappingErrors>,
}

pub(crate) enum EntityCommand {
    /// A client's write to one entity.
    Request(Box<WriteRequest>),
    /// Measurements of a source: apply those that are not applied yet, then store `next` as the source's offset.
    Measured { source: SourcePartition, next: Offset, measurements: Vec<(Offset, Measurement)> },
    /// Updates of a source: apply those that are not applied yet, then store `next` as the source's offset.
    TopicUpdates { source: SourcePartition, next: Offset, records: Vec<(Offset, RecordUpdate)> },
    /// Index the values of an attribute one step further.
    Index { tenant: TenantId, attribute: Arc<str> },
    /// Removes some of the expired entities.
    Expire,
}

/// One telemetry record, mapped and ready for the owner.
pub(crate) struct Measurement {
    pub(crate) tell: TopicPartition,
    pub(crate) tenant: TenantId,
    pub(crate) key: Arc<Key>,
    pub(crate) measured_ms: i64,
    /// The attributes; their names are unique.
    pub(crate) attributes: Vec<Attribute>,
}

impl Measurement {
    pub(crate) fn owned_bytes(&self) -> usize {
        self.key.id.len() + self.key.kind.len() + self.attributes.iter().map(Attribute::size_bytes).sum::<usize>()
    }
}

pub(crate) struct WriteRequest {
    pub(crate) tenant: TenantId,
    /// The service path of the request.
    pub(crate) path: Arc<str>,
    pub(crate) tell: TopicPartition,
    pub(crate) origin: ChangeOrigin,
    /// The versions that `If-Match` allows.
    pub(crate) versions: Option<Versions>,
    /// Unique time of the request; the creation time of a new entity.
    pub(crate) at_us: i64,
    pub(crate) action: WriteAction,
}

pub(crate) enum WriteAction {
    Create(BodyEntity),
    /// Creates the entity or appends to an existing one.
    Upsert {
        given: BodyEntity,
        manner: UpdateMode,
    },
    Set {
        target: EntityTarget,
        given: Vec<BodyAttribute>,
        manner: UpdateMode,
    },
    SetOne {
        target: EntityTarget,
        given: BodyAttribute,
    },
    RemoveAttribute {
        target: EntityTarget,
        name: String,
    },
    /// Ignores attributes that do not exist.
    RemoveAttributes {
        target: EntityTarget,
        names: Vec<Arc<str>>,
    },
    Delete(EntityTarget),
}

impl WriteAction {
    pub(crate) fn id(&self) -> &Arc<str> {
        match self {
            Self::Create(given) | Self::Upsert { given, .. } => &given.id,
            Self::Set { target, .. }
            | Self::SetOne { target, .. }
            | Self::RemoveAttribute { target, .. }
            | Self::RemoveAttributes { target, .. }
            | Self::Delete(target) => &target.id,
        }
    }

    /// The entity's type, if the request names one.
    pub(crate) fn kind(&self) -> Option<&str> {
        match self {
            Self::Create(given) | Self::Upsert { given, .. } => given.kind.as_deref(),
            Self::Set { target, .. }
            | Self::SetOne { target, .. }
            | Self::RemoveAttribute { target, .. }
            | Self::RemoveAttributes { target, .. }
            | Self::Delete(target) => target.kind.as_deref(),
        }
    }

    /// Refuses invalid locations. `find` returns the current entity of an id and a type.
    pub(crate) fn check_places(
        &self,
        find: impl FnOnce(&str, Option<&str>) -> Option<Arc<Entity>>,
    ) -> Result<(), Refusal> {
        let given =
            || self.attributes().iter().filter(|given| matches!(given.content, AttributeContent::NoPlace { .. }));
        if given().next().is_none() {
            return Ok(());
        }
        // A new attribute has no metadata from before.
        let is_new = matches!(self, Self::Create(_) | Self::Set { manner: UpdateMode::Replace, .. });
        let known = if is_new { None } else { find(self.id(), self.kind()) };
        let attribute = |name: &str| known.as_ref().and_then(|known| known.attribute(name));
        given().try_for_each(|given| given.check_place(attribute(&given.name)))
    }

    pub(crate) fn attributes(&self) -> &[BodyAttribute] {
        match self {
            Self::Create(given) | Self::Upsert { given, .. } => &given.attributes,
            Self::Set { given, .. } => given,
            Self::SetOne { given, .. } => std::slice::from_ref(given),
            Self::RemoveAttribute { .. } | Self::RemoveAttributes { .. } | Self::Delete(_) => &[],
        }
    }

    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Self::RemoveAttribute { name, .. } => name.len(),
            Self::RemoveAttributes { names, .. } => names.iter().map(|name| size_of_val(name) + name.len()).sum(),
            _ => self.attributes().iter().map(BodyAttribute::size_bytes).sum(),
        }
    }
}

/// An existing entity, as a request names it.
pub(crate) struct EntityTarget {
    pub(crate) id: Arc<str>,
    /// The type, needed if several entities share the id.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EntityReply {
    Created,
    Updated,
    /// A step is done, others follow.
    MoreToDo,
    Refused(Refusal),
}

/// A new version or the removal of an entity, or the progress of an index.
pub(crate) enum EntityChange {
    Put { tenant: TenantId, entity: Arc<Entity> },
    Remove { tenant: TenantId, key: Arc<Key> },
    Index { tenant: TenantId, attribute: Arc<str>, built: Built },
}
