//! What a request's body gives: an entity to create, or attributes to set.
//!
//! Everything that is wrong in the request alone is refused here, before anything is handed to an owner.

use std::sync::Arc;

use millstream_types::iso_time;
use serde_json::{Map, Value};

use crate::entity::{Metadata, metadata_bytes};
use crate::refusal::{Name, Refusal};
use crate::syntax::{check_attribute_name, check_identifier, check_nesting, check_text};
use crate::{datetime, json};

/// The type of an entity whose creator names none.
const DEFAULT_ENTITY_KIND: &str = "Thing";
/// Attributes and metadata of this type may contain any character.
const UNRESTRICTED: &str = "TextUnrestricted";
/// The attribute by which an entity would come to an end by itself.
const EXPIRES: &str = "dateExpires";

/// How attributes are written in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `{"value": …, "type": …, "metadata": …}`.
    Normalized,
    /// The bare value.
    KeyValues,
}

/// What happens to the metadata that an attribute has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MetadataGiven {
    /// It stays.
    Keep,
    /// These are added or replaced, the others stay.
    Merge(Arc<[Metadata]>),
    /// Only these remain.
    Replace(Arc<[Metadata]>),
}

/// An attribute as it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttributeGiven {
    pub(crate) name: Arc<str>,
    pub(crate) kind: Arc<str>,
    /// Canonical JSON text.
    pub(crate) value: Arc<str>,
    pub(crate) metadata: MetadataGiven,
}

impl AttributeGiven {
    /// Bytes that it takes, about.
    pub(crate) fn size_bytes(&self) -> usize {
        let metadata = match &self.metadata {
            MetadataGiven::Keep => 0,
            MetadataGiven::Merge(items) | MetadataGiven::Replace(items) => metadata_bytes(items),
        };
        size_of::<Self>() + self.name.len() + self.kind.len() + self.value.len() + metadata
    }
}

/// An entity as it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntityGiven {
    pub(crate) id: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) attributes: Vec<AttributeGiven>,
}

/// Reads the body of a create.
pub(crate) fn entity(body: &[u8], form: Form) -> Result<EntityGiven, Refusal> {
    let mut members = object(body)?;
    let id = match members.shift_remove("id") {
        Some(id) => identifier("entity id", &id)?,
        None => return Err(Refusal::bad("the body has no member 'id': an entity needs one; add it")),
    };
    let kind = match members.shift_remove("type") {
        Some(kind) => identifier("entity type", &kind)?,
        None => DEFAULT_ENTITY_KIND.into(),
    };
    Ok(EntityGiven { id, kind, attributes: attributes_of(members, form)? })
}

/// Reads the body of an update of several attributes; `id` and `type` have no place in it.
pub(crate) fn attributes(body: &[u8], form: Form) -> Result<Vec<AttributeGiven>, Refusal> {
    attributes_of(object(body)?, form)
}

/// Reads the body of an update of the one attribute `name`.
pub(crate) fn attribute(name: &str, body: &[u8]) -> Result<AttributeGiven, Refusal> {
    check_attribute_name(name)?;
    normalized(name, Value::Object(object(body)?))
}

/// Reads an attribute that stands in a mapping: normalized if it has a member `value`, else its bare value.
pub(crate) fn attribute_of_mapping(name: &str, value: Value) -> Result<AttributeGiven, Refusal> {
    check_attribute_name(name)?;
    if value.get("value").is_some() { normalized(name, value) } else { bare(name, &value) }
}

/// The type of a value that comes without one.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "None",
        Value::Bool(_) => "Boolean",
        Value::Number(_) => "Number",
        Value::String(_) => "Text",
        Value::Array(_) | Value::Object(_) => "StructuredValue",
    }
}

pub(crate) fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    check_nesting(body)?;
    let parsed = serde_json::from_slice(body)
        .map_err(|error| Refusal::new(Name::ParseError, format!("the body is not JSON: {error}; correct it there")))?;
    match parsed {
        Value::Object(members) => Ok(members),
        other => Err(Refusal::bad(format!("the body is a {}: it must be an object; send one", kind_of(&other)))),
    }
}

fn identifier(what: &str, value: &Value) -> Result<Arc<str>, Refusal> {
    let Value::String(text) = value else {
        return Err(Refusal::bad(format!("{what} {value} is no string; send one")));
    };
    check_identifier(what, text)?;
    Ok(text.as_str().into())
}

fn attributes_of(members: Map<String, Value>, form: Form) -> Result<Vec<AttributeGiven>, Refusal> {
    let read = |(name, value): (String, Value)| {
        check_attribute_name(&name)?;
        match form {
            Form::Normalized => normalized(&name, value),
            Form::KeyValues => bare(&name, &value),
        }
    };
    members.into_iter().map(read).collect()
}

fn bare(name: &str, value: &Value) -> Result<AttributeGiven, Refusal> {
    let kind = kind_of(value);
    let value = checked(&format!("attribute '{name}'"), kind, value, false)?;
    check_builtin(name)?;
    Ok(AttributeGiven { name: name.into(), kind: kind.into(), value, metadata: MetadataGiven::Keep })
}

fn normalized(name: &str, value: Value) -> Result<AttributeGiven, Refusal> {
    let what = format!("attribute '{name}'");
    let Value::Object(mut members) = value else {
        return Err(Refusal::bad(format!(
            "{what} is a {}: it must be an object with value, type and metadata; send one, or use options=keyValues",
            kind_of(&value)
        )));
    };
    let (value, kind, metadata) =
        (members.shift_remove("value"), members.shift_remove("type"), members.shift_remove("metadata"));
    only_known(&what, &members, "value, type and metadata")?;
    check_builtin(name)?;
    let value = value.unwrap_or_default();
    let kind = given_kind(&what, kind, &value)?;
    let metadata = metadata.map(|items| metadata_of(&what, items)).transpose()?;
    let unrestricted = metadata.iter().flatten().any(|item| &*item.name == UNRESTRICTED && &*item.value == "true");
    let value = checked(&what, &kind, &value, unrestricted)?;
    let metadata = match metadata {
        None => MetadataGiven::Keep,
        Some(items) if items.is_empty() => MetadataGiven::Replace(items.into()),
        Some(items) => MetadataGiven::Merge(items.into()),
    };
    Ok(AttributeGiven { name: name.into(), kind, value, metadata })
}

fn metadata_of(what: &str, items: Value) -> Result<Vec<Metadata>, Refusal> {
    let Value::Object(items) = items else {
        return Err(Refusal::bad(format!("the metadata of {what} is a {}: it must be an object", kind_of(&items))));
    };
    items.into_iter().map(|(name, item)| metadata_item(what, name, item)).collect()
}

fn metadata_item(attribute: &str, name: String, item: Value) -> Result<Metadata, Refusal> {
    check_identifier("metadata name", &name)?;
    let what = format!("metadata '{name}' of {attribute}");
    let Value::Object(mut members) = item else {
        return Err(Refusal::bad(format!("{what} is a {}: it must be an object with value and type", kind_of(&item))));
    };
    let (value, kind) = (members.shift_remove("value").unwrap_or_default(), members.shift_remove("type"));
    only_known(&what, &members, "value and type")?;
    let kind = given_kind(&what, kind, &value)?;
    let value = checked(&what, &kind, &value, false)?;
    Ok(Metadata { name: name.into(), kind, value })
}

fn only_known(what: &str, rest: &Map<String, Value>, known: &str) -> Result<(), Refusal> {
    match rest.keys().next() {
        None => Ok(()),
        Some(unknown) => Err(Refusal::bad(format!("{what} has a member '{unknown}': it may have {known}; remove it"))),
    }
}

fn given_kind(what: &str, kind: Option<Value>, value: &Value) -> Result<Arc<str>, Refusal> {
    match kind {
        Some(kind) => identifier(&format!("the type of {what}"), &kind),
        None => Ok(kind_of(value).into()),
    }
}

/// Setting it must end the entity, which this version cannot do; to keep it as plain data would be a lie.
fn check_builtin(name: &str) -> Result<(), Refusal> {
    if name == EXPIRES { Err(Refusal::later("attribute", name)) } else { Ok(()) }
}

/// The value's canonical text, if its type allows it.
fn checked(what: &str, kind: &str, value: &Value, unrestricted: bool) -> Result<Arc<str>, Refusal> {
    if let Value::Object(members) = value
        && let Some(operator) = members.keys().next().filter(|name| name.starts_with('$'))
    {
        return Err(Refusal::later("update operator", operator));
    }
    if !unrestricted && kind != UNRESTRICTED {
        check_text(what, value)?;
    }
    if !matches!(kind, "DateTime" | "ISO8601") || value.is_null() {
        return Ok(json::text(value));
    }
    match value.as_str().and_then(datetime::parse) {
        Some(at_ms) => Ok(format!("\"{}\"", iso_time(at_ms)).into()),
        None => Err(Refusal::bad(format!(
            "the value {value} of {what} is no {kind}: write YYYY-MM-DD, or YYYY-MM-DDThh:mm:ss.sssZ"
        ))),
    }
}
