//! A change record, parsed.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use millstream_types::{RecordView, TenantId};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::details::{Details, Differs};
use crate::entities::change_topics::{ALTERATION_TYPE, CHANGE_DETAILS, SERVICE_PATH};
use crate::model::entity::{Attribute, Entity, Key, Metadata, US_PER_MS};
use crate::model::names::shared;

/// Position of a change in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub(crate) struct ChangePosition {
    /// The change topic's unique id.
    pub(crate) topic: u128,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
}

impl ChangePosition {
    /// Both are in the same partition.
    pub(crate) fn is_beside(&self, other: Self) -> bool {
        (self.topic, self.partition) == (other.topic, other.partition)
    }
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alteration {
    Create,
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

/// A change of an entity. The entity itself is parsed on demand.
#[derive(Debug)]
pub(crate) struct ChangeRecord<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) place: ChangePosition,
    pub(crate) key: Key,
    pub(crate) alteration: Alteration,
    pub(crate) details: Details<'a>,
    value: &'a [u8],
    entity: OnceCell<Option<Entity>>,
}

impl<'a> ChangeRecord<'a> {
    /// Parses a change record; `None` if it is none, or if it is older than the header `change-details`.
    pub(crate) fn read(tenant: &'a TenantId, place: ChangePosition, record: &RecordView<'a>) -> Option<Self> {
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let [details, path, alteration] = record.header_values([CHANGE_DETAILS, SERVICE_PATH, ALTERATION_TYPE]);
        let details = Details::read(details?)?;
        let (id, path) = (text(record.key?)?, text(path?)?);
        let key = Key { id: id.into(), kind: shared(&details.kind), path: shared(path) };
        let alteration = Alteration::of(alteration?)?;
        Some(Self { tenant, place, key, alteration, details, value: record.value?, entity: OnceCell::new() })
    }

    /// The entity after the change; before it, if it was deleted.
    pub(crate) fn entity(&self) -> Option<&Entity> {
        self.entity.get_or_init(|| self.read_entity()).as_ref()
    }

    /// The entity's JSON in the change record: normalized, with all attributes of users.
    pub(crate) fn json(&self) -> Option<&'a str> {
        std::str::from_utf8(self.value).ok()
    }

    fn read_entity(&self) -> Option<Entity> {
        let visitor = MembersOf::<RecordItem<'_>> { but: &["id", "type"], of: PhantomData };
        let RecordMembers(attributes) =
            serde_json::Deserializer::from_slice(self.value).deserialize_map(visitor).ok()?;
        let mut entity = Entity::new(Arc::new(self.key.clone()), self.details.created_ms * US_PER_MS);
        entity.modified_ms = self.details.modified_ms;
        let mut times_ms = self.details.times_ms.chunks_exact(2);
        for (name, RecordItem { kind, value, metadata }) in attributes {
            let metadata = metadata.into_iter().flat_map(|items| items.0).map(|(name, item)| Metadata {
                name: shared(&name),
                kind: shared(&item.kind),
                value: item.value.get().into(),
            });
            let mut attribute = Attribute::new(shared(&name), shared(&kind), value.get().into(), metadata.collect());
            if let Some([after, before]) = times_ms.next() {
                attribute.created_ms = self.details.created_ms + after;
                attribute.modified_ms = entity.modified_ms - before;
            }
            entity.attributes.push(attribute);
        }
        entity.attributes.extend(self.details.expires_ms.map(Attribute::date_expires));
        Some(entity)
    }

    /// Names of the changed attributes; a change of metadata alone is optional.
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

/// An object's members in order.
struct RecordMembers<'a, T>(Vec<(Cow<'a, str>, T)>);

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for RecordMembers<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersOf { but: &[], of: PhantomData })
    }
}

/// Parses an object's members except some.
struct MembersOf<T> {
    but: &'static [&'static str],
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for MembersOf<T> {
    type Value = RecordMembers<'de, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(BorrowedText(name)) = given.next_key()? {
            if self.but.contains(&&*name) {
                given.next_value::<IgnoredAny>()?;
            } else {
                members.push((name, given.next_value()?));
            }
        }
        Ok(RecordMembers(members))
    }
}

/// Text that is copied only if it has escapes.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

/// An attribute or metadata item. Its value is canonical, as the owner wrote it.
#[derive(Deserialize)]
struct RecordItem<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    value: &'a RawValue,
    #[serde(default, borrow)]
    metadata: Option<RecordMembers<'a, RecordItem<'a>>>,
}
