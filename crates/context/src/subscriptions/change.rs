//! A change of an entity, as its record tells it.

use std::cell::OnceCell;
use std::sync::Arc;

use millstream_types::{RecordView, TenantId};
use serde_json::{Map, Value};

use super::details::{Details, Differs};
use crate::change_topics::{ALTERATION_TYPE, CHANGE_DETAILS, SERVICE_PATH};
use crate::entity::{Attribute, Entity, Key, Metadata};
use crate::json;

/// Where a change lies in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub(crate) struct Place {
    /// The change topic's unique id.
    pub(crate) topic: u128,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
}

/// What has happened to an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alteration {
    Create,
    /// Nothing differs.
    Update,
    Change,
    Delete,
}

impl Alteration {
    fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"entityCreate" => Some(Self::Create),
            b"entityUpdate" => Some(Self::Update),
            b"entityChange" => Some(Self::Change),
            b"entityDelete" => Some(Self::Delete),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "entityCreate",
            Self::Update => "entityUpdate",
            Self::Change => "entityChange",
            Self::Delete => "entityDelete",
        }
    }
}

/// A change; the entity itself is read when somebody needs it.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) place: Place,
    pub(crate) key: Key,
    pub(crate) alteration: Alteration,
    pub(crate) details: Details<'a>,
    value: &'a [u8],
    entity: OnceCell<Option<Entity>>,
}

impl<'a> Change<'a> {
    /// Reads a change record; `None` if it is none, or from before such records had details.
    pub(crate) fn read(tenant: &'a TenantId, place: Place, record: &RecordView<'a>) -> Option<Self> {
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let details = Details::read(record.header(CHANGE_DETAILS)?)?;
        let (id, path) = (text(record.key?)?, text(record.header(SERVICE_PATH)?)?);
        let key = Key { id: id.into(), kind: (&*details.kind).into(), path: path.into() };
        let alteration = Alteration::of(record.header(ALTERATION_TYPE)?)?;
        Some(Self { tenant, place, key, alteration, details, value: record.value?, entity: OnceCell::new() })
    }

    /// The entity after the change; before it, if it was deleted.
    pub(crate) fn entity(&self) -> Option<&Entity> {
        self.entity.get_or_init(|| self.read_entity()).as_ref()
    }

    fn read_entity(&self) -> Option<Entity> {
        let mut members: Map<String, Value> = serde_json::from_slice(self.value).ok()?;
        members.retain(|name, _| name != "id" && name != "type");
        let mut entity = Entity::new(Arc::new(self.key.clone()), self.details.created_ms);
        entity.modified_ms = self.details.modified_ms;
        let mut times_ms = self.details.times_ms.chunks_exact(2);
        for (name, mut value) in members {
            let mut metadata = Vec::new();
            if let Some(Value::Object(items)) = value.get_mut("metadata").map(Value::take) {
                metadata.extend(items.into_iter().map(|(name, item)| {
                    let (kind, value) = typed(&item);
                    Metadata { name: name.into(), kind, value }
                }));
            }
            let (kind, value) = typed(&value);
            let mut attribute = Attribute::new(name.into(), kind, value, metadata.into());
            if let Some([after, before]) = times_ms.next() {
                attribute.created_ms = entity.created_ms + after;
                attribute.modified_ms = entity.modified_ms - before;
            }
            entity.attributes.push(attribute);
        }
        entity.attributes.extend(self.details.expires_ms.map(Attribute::date_expires));
        Some(entity)
    }

    /// Names of the attributes that changed; metadata alone may not count.
    pub(crate) fn changed(&self, ignores_metadata: bool) -> impl Iterator<Item = &str> {
        self.details
            .attrs
            .iter()
            .filter(move |detail| match detail.2 {
                Differs::Value => true,
                Differs::Metadata => !ignores_metadata,
                Differs::InNothing => self.details.is_forced,
            })
            .map(|detail| &*detail.0)
    }

    /// Names of the attributes that changed or were part of the request.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &str> {
        self.details.attrs.iter().map(|detail| &*detail.0)
    }
}

fn typed(item: &Value) -> (Arc<str>, Arc<str>) {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or_default();
    (kind.into(), json::text(item.get("value").unwrap_or(&Value::Null)))
}
