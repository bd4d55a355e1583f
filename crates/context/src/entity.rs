//! An entity: what a thing is called, and its attributes as they are now.
//!
//! Values are kept as canonical JSON text, so that showing an entity is copying. Everything is shared: a new version of
//! an entity costs what has changed.

use std::ops::Deref;
use std::sync::Arc;

use geo::Geometry;
use millstream_types::iso_time;

use crate::{datetime, geometry, json};

/// The service path of entities that name none.
pub(crate) const ROOT_PATH: &str = "/";
/// The type of points in time.
pub(crate) const DATE_TIME: &str = "DateTime";
/// The attribute that ends an entity by itself; the one built-in that clients write.
pub(crate) const DATE_EXPIRES: &str = "dateExpires";
/// Metadata by which a location is plain data.
pub(crate) const IGNORE_TYPE: &str = "ignoreType";
pub(crate) const US_PER_MS: i64 = 1_000;
const PATH: &str = "servicePath";
const DATE_CREATED: &str = "dateCreated";
const DATE_MODIFIED: &str = "dateModified";

/// What identifies an entity within its tenant. One id with two types, or in two paths, is two entities.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) id: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) path: Arc<str>,
}

/// One version of an entity; never changed once it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entity {
    pub(crate) key: Arc<Key>,
    /// A time of its own, see [`crate::stamps`].
    pub(crate) created_us: i64,
    pub(crate) modified_ms: i64,
    /// Counts its versions, from 0.
    pub(crate) version: u64,
    /// In the order in which they were first given.
    pub(crate) attributes: Vec<Attribute>,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) name: Arc<str>,
    pub(crate) kind: Arc<str>,
    /// Canonical JSON text.
    pub(crate) value: Arc<str>,
    pub(crate) metadata: Items,
    /// When the entity got it.
    pub(crate) created_ms: i64,
    /// When it last became another: value, type or metadata.
    pub(crate) modified_ms: i64,
}

impl Attribute {
    /// An attribute that no entity has yet; the entity's owner says when it got it.
    pub(crate) fn new(name: Arc<str>, kind: Arc<str>, value: Arc<str>, metadata: Items) -> Self {
        Self { name, kind, value, metadata, created_ms: 0, modified_ms: 0 }
    }

    /// The end of a transient entity.
    pub(crate) fn date_expires(at_ms: i64) -> Self {
        Self::new(DATE_EXPIRES.into(), DATE_TIME.into(), quoted(&iso_time(at_ms)), Default::default())
    }

    /// The point in time that it is, if it is one.
    pub(crate) fn as_date(&self) -> Option<i64> {
        datetime::parse(self.value.strip_prefix('"')?.strip_suffix('"')?)
    }

    /// Whether it says where its entity is.
    pub(crate) fn is_location(&self) -> bool {
        geometry::is_geo(&self.kind) && &*self.value != "null" && !self.is_set(IGNORE_TYPE)
    }

    /// Whether it has this metadata item, and that is true.
    pub(crate) fn is_set(&self, metadata: &str) -> bool {
        self.metadata.iter().any(|item| item.is_set(metadata))
    }

    /// Whether value and type are the same.
    pub(crate) fn has_value_of(&self, other: &Self) -> bool {
        let same = |a: &Arc<str>, b: &Arc<str>| Arc::ptr_eq(a, b) || a == b;
        same(&self.value, &other.value) && same(&self.kind, &other.kind)
    }

    /// Whether the metadata are the same.
    pub(crate) fn has_metadata_of(&self, other: &Self) -> bool {
        self.metadata.is_shared_with(&other.metadata) || self.metadata == other.metadata
    }

    /// The metadata item that every attribute has under this name; none if no entity was given it, as a built-in one.
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

    /// Bytes that it takes, about.
    pub(crate) fn size_bytes(&self) -> usize {
        let texts = self.name.len() + self.kind.len() + self.value.len();
        size_of::<Self>() + texts + metadata_bytes(&self.metadata)
    }
}

/// Bytes that metadata take, about.
pub(crate) fn metadata_bytes(items: &[Metadata]) -> usize {
    let texts = |item: &Metadata| item.name.len() + item.kind.len() + item.value.len();
    size_of_val(items) + items.iter().map(texts).sum::<usize>()
}

/// A metadata item of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) name: Arc<str>,
    pub(crate) kind: Arc<str>,
    /// Canonical JSON text.
    pub(crate) value: Arc<str>,
}

impl Metadata {
    /// Whether it is this one, and true.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        *self.name == *name && &*self.value == "true"
    }
}

/// The metadata of an attribute. Most attributes have none: then it takes a word, and is copied without counting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Items(Option<Arc<Box<[Metadata]>>>);

impl Items {
    /// Whether both lie in the same memory.
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

/// Where an entity stands in lists: by creation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) created_us: i64,
    pub(crate) key: Arc<Key>,
}

impl Place {
    /// Before every place of that time, behind every one of an earlier time.
    pub(crate) fn first_at(at_ms: i64) -> Self {
        let none: Arc<str> = "".into();
        Self {
            created_us: at_ms.saturating_mul(US_PER_MS),
            key: Arc::new(Key { id: none.clone(), kind: none.clone(), path: none }),
        }
    }
}

/// Whether every entity has an attribute of this name.
pub(crate) fn is_built_in(name: &str) -> bool {
    matches!(name, DATE_CREATED | DATE_MODIFIED | PATH)
}

impl Entity {
    /// A new entity without attributes.
    pub(crate) fn new(key: Arc<Key>, created_us: i64) -> Self {
        let modified_ms = created_us.div_euclid(US_PER_MS);
        Self { key, created_us, modified_ms, version: 0, attributes: Vec::new() }
    }

    /// When it was created.
    pub(crate) fn created_ms(&self) -> i64 {
        self.created_us.div_euclid(US_PER_MS)
    }

    /// Lets go of room for more attributes. An allocator that is asked for less memory mostly leaves it where it is.
    pub(crate) fn keep_exactly(&mut self) {
        if self.attributes.capacity() > self.attributes.len() {
            let mut exactly = Vec::with_capacity(self.attributes.len());
            exactly.append(&mut self.attributes);
            self.attributes = exactly;
        }
    }

    pub(crate) fn place(&self) -> Place {
        Place { created_us: self.created_us, key: self.key.clone() }
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| &*attribute.name == name)
    }

    /// When it ends by itself, if it does.
    pub(crate) fn expires_ms(&self) -> Option<i64> {
        self.attribute(DATE_EXPIRES)?.as_date()
    }

    /// Whether it has come to its end by itself.
    pub(crate) fn has_expired(&self, now_ms: i64) -> bool {
        self.expires_ms().is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// Its attributes that say where it is; one at most.
    pub(crate) fn locations(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().filter(|attribute| attribute.is_location())
    }

    /// Its location beside which `attribute` would be another one.
    pub(crate) fn location_beside(&self, attribute: &Attribute) -> Option<&Attribute> {
        let is_one = || self.attribute(&attribute.name).is_some_and(Attribute::is_location);
        self.locations().next().filter(|_| attribute.is_location() && !is_one())
    }

    /// Where it is.
    pub(crate) fn location(&self) -> Option<Geometry> {
        let Attribute { kind, value, .. } = self.locations().next()?;
        geometry::read(kind, &json::parsed(value)).ok()
    }

    /// What tells this version from every other, as HTTP has it.
    pub(crate) fn tag(&self) -> String {
        format!("\"{:x}-{:x}\"", self.created_us, self.version)
    }

    /// The attribute that every entity has under this name.
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

/// `text`, which has nothing to escape, as a JSON string.
fn quoted(text: &str) -> Arc<str> {
    format!("\"{text}\"").into()
}
