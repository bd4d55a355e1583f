//! An entity with its attributes and metadata.
//!
//! Values are kept as canonical JSON text, so that rendering an entity is copying. All parts are shared: a new version
//! of an entity costs only its changes.

use std::ops::Deref;
use std::sync::Arc;

use geo::Geometry;
use millstream_types::iso_time;

use crate::model::datetime;
use crate::model::geometry;
use crate::model::json;

pub(crate) const ROOT_PATH: &str = "/";
pub(crate) const DATE_TIME: &str = "DateTime";
/// The expiry time of a transient entity; the only built-in attribute that clients write.
pub(crate) const DATE_EXPIRES: &str = "dateExpires";
/// Metadata item that makes a location attribute plain data.
pub(crate) const IGNORE_TYPE: &str = "ignoreType";
/// Metadata items with the observation time of the value.
const OBSERVATION_TIMES: [&str; 2] = ["TimeInstant", "observedAt"];
pub(crate) const US_PER_MS: i64 = 1_000;
const PATH: &str = "servicePath";
const DATE_CREATED: &str = "dateCreated";
const DATE_MODIFIED: &str = "dateModified";

/// Identity of an entity within its tenant. The same id with another type or path is another entity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) id: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) path: Arc<str>,
}

/// One immutable version of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entity {
    pub(crate) key: Arc<Key>,
    /// Unique creation time, see [`crate::entities::stamps`].
    pub(crate) created_us: i64,
    pub(crate) modified_ms: i64,
    /// Number of this version, from 0.
    pub(crate) version: u64,
    /// In the order of their creation.
    pub(crate) attributes: Vec<Attribute>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) name: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) value: Arc<str>,
    pub(crate) metadata: Items,
    pub(crate) created_ms: i64,
    /// Time of the last change of value, type or metadata.
    pub(crate) modified_ms: i64,
}

impl Attribute {
    /// An attribute without times; the entity's owner sets them.
    pub(crate) fn new(name: Arc<str>, kind: Arc<str>, value: Arc<str>, metadata: Items) -> Self {
        Self { name, kind, value, metadata, created_ms: 0, modified_ms: 0 }
    }

    pub(crate) fn date_expires(at_ms: i64) -> Self {
        Self::new(DATE_EXPIRES.into(), DATE_TIME.into(), quoted(&iso_time(at_ms)), Default::default())
    }

    /// The value as a point in time, if the type is a date.
    pub(crate) fn as_date(&self) -> Option<i64> {
        datetime::parse(self.value.strip_prefix('"')?.strip_suffix('"')?)
    }

    /// The type is a location type, and the attribute does not ignore it.
    pub(crate) fn is_location(&self) -> bool {
        geometry::is_geo(&self.kind) && &*self.value != "null" && !self.ignores_type()
    }

    /// The attribute is plain data, whatever its type.
    pub(crate) fn ignores_type(&self) -> bool {
        self.is_set(IGNORE_TYPE)
    }

    /// The metadata item `metadata` exists and is true.
    pub(crate) fn is_set(&self, metadata: &str) -> bool {
        self.metadata.iter().any(|item| item.is_set(metadata))
    }

    /// Value and type are equal.
    pub(crate) fn has_value_of(&self, other: &Self) -> bool {
        let same = |a: &Arc<str>, b: &Arc<str>| Arc::ptr_eq(a, b) || a == b;
        same(&self.value, &other.value) && same(&self.kind, &other.kind)
    }

    pub(crate) fn has_metadata_of(&self, other: &Self) -> bool {
        self.metadata.is_shared_with(&other.metadata) || self.metadata == other.metadata
    }

    /// The built-in metadata item `name`; `None` if it is not a built-in.
    pub(crate) fn built_in(&self, name: &str) -> Option<Metadata> {
        if self.created_ms == 0 {
            return None;
        }
        let at_ms = match name {
            DATE_CREATED => self.created_ms,
            DATE_MODIFIED => self.modified_ms,
            _ => return None,
        };
        Some(Metadata { name: name.into(), kind: DATE_TIME.into(), value: quoted(&iso_time(at_ms)) })
    }

    pub(crate) fn size_bytes(&self) -> usize {
        let texts = self.name.len() + self.kind.len() + self.value.len();
        size_of::<Self>() + texts + metadata_bytes(&self.metadata)
    }
}

pub(crate) fn metadata_bytes(items: &[Metadata]) -> usize {
    let texts = |item: &Metadata| item.name.len() + item.kind.len() + item.value.len();
    size_of_val(items) + items.iter().map(texts).sum::<usize>()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) name: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) value: Arc<str>,
}

impl Metadata {
    pub(crate) fn is_observation_time(&self) -> bool {
        OBSERVATION_TIMES.contains(&&*self.name)
    }

    /// The item has this name and is true.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        *self.name == *name && &*self.value == "true"
    }
}

/// The metadata of an attribute. Most attributes have none: an empty list takes one word and needs no reference count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Items(Option<Arc<Box<[Metadata]>>>);

impl Items {
    fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Deref for Items {
    type Target = [Metadata];

    fn deref(&self) -> &[Metadata] {
        self.0.as_ref().map_or(&[], |items| items)
    }
}

impl From<Vec<Metadata>> for Items {
    fn from(items: Vec<Metadata>) -> Self {
        Self((!items.is_empty()).then(|| Arc::new(items.into())))
    }
}

impl FromIterator<Metadata> for Items {
    fn from_iter<I: IntoIterator<Item = Metadata>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

/// Position of an entity in lists: by creation, then by key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListPosition {
    pub(crate) created_us: i64,
    pub(crate) key: Arc<Key>,
}

impl ListPosition {
    /// The lowest position at this time.
    pub(crate) fn first_at(at_ms: i64) -> Self {
        let none: Arc<str> = "".into();
        Self {
            created_us: at_ms.saturating_mul(US_PER_MS),
            key: Arc::new(Key { id: none.clone(), kind: none.clone(), path: none }),
        }
    }
}

/// Every entity has an attribute of this name.
pub(crate) fn is_built_in(name: &str) -> bool {
    matches!(name, DATE_CREATED | DATE_MODIFIED | PATH)
}

impl Entity {
    pub(crate) fn new(key: Arc<Key>, created_us: i64) -> Self {
        let modified_ms = created_us.div_euclid(US_PER_MS);
        Self { key, created_us, modified_ms, version: 0, attributes: Vec::new() }
    }

    pub(crate) fn created_ms(&self) -> i64 {
        self.created_us.div_euclid(US_PER_MS)
    }

    /// Shrinks the attribute list to its length. Most allocators shrink in place.
    pub(crate) fn keep_exactly(&mut self) {
        if self.attributes.capacity() > self.attributes.len() {
            let mut exactly = Vec::with_capacity(self.attributes.len());
            exactly.append(&mut self.attributes);
            self.attributes = exactly;
        }
    }

    pub(crate) fn place(&self) -> ListPosition {
        ListPosition { created_us: self.created_us, key: self.key.clone() }
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| &*attribute.name == name)
    }

    /// Expiry time of a transient entity.
    pub(crate) fn expires_ms(&self) -> Option<i64> {
        self.attribute(DATE_EXPIRES)?.as_date()
    }

    pub(crate) fn has_expired(&self, now_ms: i64) -> bool {
        self.expires_ms().is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// The location attributes; at most one.
    pub(crate) fn locations(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().filter(|attribute| attribute.is_location())
    }

    /// The location attribute other than `attribute`.
    pub(crate) fn location_beside(&self, attribute: &Attribute) -> Option<&Attribute> {
        let is_one = || self.attribute(&attribute.name).is_some_and(Attribute::is_location);
        self.locations().next().filter(|_| attribute.is_location() && !is_one())
    }

    pub(crate) fn location(&self) -> Option<Geometry> {
        let Attribute { kind, value, .. } = self.locations().next()?;
        geometry::read(kind, &json::parsed(value)).ok()
    }

    /// The entity tag (HTTP `ETag`), unique for each version.
    pub(crate) fn tag(&self) -> String {
        format!("\"{:x}-{:x}\"", self.created_us, self.version)
    }

    /// Returns the built-in attribute `name`; `None` for other names.
    pub(crate) fn built_in(&self, name: &str) -> Option<Attribute> {
        let (kind, value) = match name {
            DATE_CREATED => (DATE_TIME, iso_time(self.created_ms())),
            DATE_MODIFIED => (DATE_TIME, iso_time(self.modified_ms)),
            PATH => ("Text", self.key.path.to_string()),
            _ => return None,
        };
        Some(Attribute::new(name.into(), kind.into(), quoted(&value), Default::default()))
    }
}

/// Quotes `text`, which has no character to escape.
fn quoted(text: &str) -> Arc<str> {
    format!("\"{text}\"").into()
}
