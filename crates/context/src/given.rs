//! What a request's body gives: an entity to create, or attributes to set.
//!
//! Everything that is wrong in the request alone is refused here, before anything is handed to an owner.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::content::{Content, canonical};
use crate::entity::{Attribute, DATE_EXPIRES, DATE_TIME, IGNORE_TYPE, Items, Metadata, metadata_bytes};
use crate::names::shared;
use crate::operator::{Operator, is_operator};
use crate::query::is_date;
use crate::refusal::{Name, Refusal};
use crate::scalars;
use crate::syntax::{check_attribute_name, check_identifier, check_nesting, check_text};
use crate::{geometry, json};

/// The type of an entity whose creator names none.
pub(crate) const DEFAULT_ENTITY_KIND: &str = "Thing";
/// Attributes and metadata of this type may contain any character.
pub(crate) const UNRESTRICTED: &str = "TextUnrestricted";

/// How attributes are written in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `{"value": …, "type": …, "metadata": …}`.
    Normalized,
    /// The bare value.
    KeyValues,
    /// An array of the bare values; in answers only.
    Values,
    /// The same, each value once; in answers only.
    Unique,
}

/// How a request's attributes are written, and what happens to metadata that it does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) form: Form,
    /// They are cleared and do not stay.
    pub(crate) override_metadata: bool,
}

impl Given {
    /// As it is without options.
    pub(crate) const NORMALIZED: Self = Self { form: Form::Normalized, override_metadata: false };
}

/// What happens to the metadata that an attribute has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MetadataGiven {
    /// It stays.
    Keep,
    /// These are added or replaced, the others stay.
    Merge(Items),
    /// Only these remain.
    Replace(Items),
}

/// An attribute as it is given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AttributeGiven {
    pub(crate) name: Arc<str>,
    pub(crate) content: Content,
    pub(crate) metadata: MetadataGiven,
}

impl AttributeGiven {
    /// Bytes that it takes, about.
    pub(crate) fn size_bytes(&self) -> usize {
        let metadata = match &self.metadata {
            MetadataGiven::Keep => 0,
            MetadataGiven::Merge(items) | MetadataGiven::Replace(items) => metadata_bytes(items),
        };
        size_of::<Self>() + self.name.len() + self.content.size_bytes() + metadata
    }
}

/// An entity as it is given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EntityGiven {
    pub(crate) id: Arc<str>,
    /// None if the body names none.
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) attributes: Vec<AttributeGiven>,
}

/// Reads the body of a create.
pub(crate) fn entity(body: &[u8], how: Given) -> Result<EntityGiven, Refusal> {
    let given = entity_of(object(body)?, how)?;
    Ok(EntityGiven { kind: given.kind.or_else(|| Some(shared(DEFAULT_ENTITY_KIND))), ..given })
}

/// Reads an entity that stands in a body.
pub(crate) fn entity_of(mut members: Map<String, Value>, how: Given) -> Result<EntityGiven, Refusal> {
    let id = match members.shift_remove("id") {
        Some(id) => identifier("entity id", &id)?.into(),
        None => return Err(Refusal::bad("the body has no member 'id': an entity needs one; add it")),
    };
    let kind = match members.shift_remove("type") {
        Some(kind) => Some(shared(identifier("entity type", &kind)?)),
        None => None,
    };
    Ok(EntityGiven { id, kind, attributes: attributes_of(members, how)? })
}

/// Reads the body of an update of several attributes; `id` and `type` have no place in it.
pub(crate) fn attributes(body: &[u8], how: Given) -> Result<Vec<AttributeGiven>, Refusal> {
    match Some(body).filter(|_| how == Given::NORMALIZED).and_then(scalars::attributes) {
        Some(given) => Ok(given),
        None => members(body, how),
    }
}

/// The same of any body.
pub(crate) fn members(body: &[u8], how: Given) -> Result<Vec<AttributeGiven>, Refusal> {
    attributes_of(object(body)?, how)
}

/// Reads the body of an update of the one attribute `name`.
pub(crate) fn attribute(name: &str, body: &[u8], how: Given) -> Result<AttributeGiven, Refusal> {
    check_attribute_name(name)?;
    normalized(name, Value::Object(object(body)?), how)
}

/// Reads the body of an update of an attribute's value: JSON that is an array or an object.
pub(crate) fn json_value(name: &str, body: &[u8], rule: TextRule) -> Result<AttributeGiven, Refusal> {
    check_nesting(body)?;
    let value: Value = serde_json::from_slice(body).map_err(no_json)?;
    if !value.is_array() && !value.is_object() {
        return Err(Refusal::bad(format!(
            "the body is a {}: JSON here is an object or an array; send other values as text/plain",
            kind_of(&value)
        )));
    }
    value_of(name, value, rule)
}

/// Reads the body of an update of an attribute's value as text: a string in quotes, true, false, null or a number.
pub(crate) fn text_value(name: &str, body: &[u8], rule: TextRule) -> Result<AttributeGiven, Refusal> {
    let wrong = |shown: &str| {
        Refusal::bad(format!(
            "the value '{shown}' of attribute '{name}': as text/plain it is a string in double quotes, true, false, \
             null or a number; correct it"
        ))
    };
    let text = std::str::from_utf8(body).map_err(|_| wrong("which is not UTF-8"))?.trim();
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let value = match quoted {
        Some(inner) => Value::from(inner),
        None => match serde_json::from_str(text) {
            Ok(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => value,
            _ => return Err(wrong(text)),
        },
    };
    value_of(name, value, rule)
}

fn value_of(name: &str, value: Value, rule: TextRule) -> Result<AttributeGiven, Refusal> {
    let what = Named(name);
    if rule == TextRule::Checked {
        check_text(&what, &value)?;
    }
    let content = if is_operator(&value) {
        Content::Operator { kind: None, operator: Operator::read(&what.to_string(), value)? }
    } else if name == DATE_EXPIRES {
        // Its type is known, so that what it cannot be is wrong by itself.
        content(name, None, value, rule)?
    } else {
        Content::Value(value)
    };
    Ok(AttributeGiven { name: shared(name), content, metadata: MetadataGiven::Keep })
}

/// Reads an attribute that stands in a mapping: normalized if it has a member `value`, else its bare value.
pub(crate) fn attribute_of_mapping(name: &str, value: Value) -> Result<AttributeGiven, Refusal> {
    check_attribute_name(name)?;
    if value.get("value").is_some() {
        normalized(name, value, Given::NORMALIZED)
    } else {
        bare(name, value, Given::NORMALIZED)
    }
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
    match serde_json::from_slice(body).map_err(no_json)? {
        Value::Object(members) => Ok(members),
        other => Err(Refusal::bad(format!("the body is a {}: it must be an object; send one", kind_of(&other)))),
    }
}

fn no_json(error: serde_json::Error) -> Refusal {
    Refusal::new(Name::ParseError, format!("the body is not JSON: {error}; correct it there"))
}

fn identifier(what: impl fmt::Display, value: &Value) -> Result<&str, Refusal> {
    let Value::String(text) = value else {
        return Err(Refusal::bad(format!("{what} {value} is no string; send one")));
    };
    check_identifier(what, text)?;
    Ok(text)
}

fn attributes_of(members: Map<String, Value>, how: Given) -> Result<Vec<AttributeGiven>, Refusal> {
    let read = |(name, value): (String, Value)| {
        check_attribute_name(&name)?;
        if how.form == Form::KeyValues { bare(&name, value, how) } else { normalized(&name, value, how) }
    };
    members.into_iter().map(read).collect()
}

/// An attribute, as messages name it: most requests need no message.
struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attribute '{}'", self.0)
    }
}

fn bare(name: &str, value: Value, how: Given) -> Result<AttributeGiven, Refusal> {
    let content = content(name, None, value, TextRule::Checked)?;
    Ok(AttributeGiven { name: shared(name), content, metadata: metadata_given(None, how) })
}

fn normalized(name: &str, value: Value, how: Given) -> Result<AttributeGiven, Refusal> {
    let what = Named(name);
    let Value::Object(mut members) = value else {
        return Err(Refusal::bad(format!(
            "{what} is a {}: it must be an object with value, type and metadata; send one, or use options=keyValues",
            kind_of(&value)
        )));
    };
    let (value, kind, metadata) =
        (members.shift_remove("value"), members.shift_remove("type"), members.shift_remove("metadata"));
    only_known(&what, &members, "value, type and metadata")?;
    let kind = kind.map(|kind| identifier(format_args!("the type of {what}"), &kind).map(shared)).transpose()?;
    let metadata = metadata.map(|items| metadata_of(&what, items)).transpose()?;
    let is_set = |name: &str| metadata.iter().flatten().any(|item| item.is_set(name));
    let rule = if is_set(UNRESTRICTED) || kind.as_deref() == Some(UNRESTRICTED) {
        TextRule::Unrestricted
    } else {
        TextRule::Checked
    };
    let value = value.unwrap_or_default();
    let content = match kind {
        // Plain data: no place need be in it.
        Some(kind) if geometry::is_geo(&kind) && is_set(IGNORE_TYPE) && !is_operator(&value) => {
            if rule == TextRule::Checked {
                check_text(&what, &value)?;
            }
            Content::Whole { kind, value: json::text(&value) }
        }
        kind => content(name, kind, value, rule)?,
    };
    Ok(AttributeGiven { name: shared(name), content, metadata: metadata_given(metadata, how) })
}

/// An attribute of which value and type are given alone; its metadata stay.
pub(crate) fn with_value(name: &str, kind: Option<&str>, value: Value) -> Result<AttributeGiven, Refusal> {
    check_attribute_name(name)?;
    kind.map_or(Ok(()), |kind| check_identifier(format_args!("the type of {}", Named(name)), kind))?;
    let rule = if kind == Some(UNRESTRICTED) { TextRule::Unrestricted } else { TextRule::Checked };
    let content = content(name, kind.map(shared), value, rule)?;
    Ok(AttributeGiven { name: shared(name), content, metadata: MetadataGiven::Keep })
}

/// Whether the texts of a value may contain any character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRule {
    Checked,
    Unrestricted,
}

impl TextRule {
    /// What holds for new values of an attribute that keeps its type and metadata.
    pub(crate) fn of(known: &Attribute) -> Self {
        if *known.kind == *UNRESTRICTED || known.is_set(UNRESTRICTED) { Self::Unrestricted } else { Self::Checked }
    }
}

fn content(name: &str, kind: Option<Arc<str>>, value: Value, rule: TextRule) -> Result<Content, Refusal> {
    let what = Named(name);
    if rule == TextRule::Checked {
        check_text(&what, &value)?;
    }
    let kind = if name == DATE_EXPIRES { Some(shared(DATE_TIME)) } else { kind };
    if is_operator(&value) {
        return Ok(Content::Operator { kind, operator: Operator::read(&what.to_string(), value)? });
    }
    if name == DATE_EXPIRES && value.is_null() {
        return Err(Refusal::bad("dateExpires is null: give it a point in time, or delete it to keep the entity"));
    }
    let kind = kind.unwrap_or_else(|| shared(kind_of(&value)));
    let value = canonical(&kind, &value).map_err(|why| Refusal::bad(format!("{what}: {why}; correct it")))?;
    Ok(Content::Whole { kind, value })
}

fn metadata_given(items: Option<Vec<Metadata>>, how: Given) -> MetadataGiven {
    match items {
        None if how.override_metadata => MetadataGiven::Replace(Default::default()),
        None => MetadataGiven::Keep,
        Some(items) if items.is_empty() || how.override_metadata => MetadataGiven::Replace(items.into()),
        Some(items) => MetadataGiven::Merge(items.into()),
    }
}

fn metadata_of(what: &Named<'_>, items: Value) -> Result<Vec<Metadata>, Refusal> {
    let Value::Object(items) = items else {
        return Err(Refusal::bad(format!("the metadata of {what} is a {}: it must be an object", kind_of(&items))));
    };
    items.into_iter().map(|(name, item)| metadata_item(what, name, item)).collect()
}

fn metadata_item(attribute: &Named<'_>, name: String, item: Value) -> Result<Metadata, Refusal> {
    check_identifier("metadata name", &name)?;
    let what = format!("metadata '{name}' of {attribute}");
    let Value::Object(mut members) = item else {
        return Err(Refusal::bad(format!("{what} is a {}: it must be an object with value and type", kind_of(&item))));
    };
    let (value, kind) = (members.shift_remove("value").unwrap_or_default(), members.shift_remove("type"));
    only_known(&what, &members, "value and type")?;
    let kind = match kind {
        Some(kind) => shared(identifier(format_args!("the type of {what}"), &kind)?),
        None => shared(kind_of(&value)),
    };
    if &*kind != UNRESTRICTED {
        check_text(&what, &value)?;
    }
    let value = match is_date(&kind) {
        true => canonical(&kind, &value).map_err(|why| Refusal::bad(format!("{what}: {why}; correct it")))?,
        false => json::text(&value),
    };
    Ok(Metadata { name: shared(&name), kind, value })
}

fn only_known(what: impl fmt::Display, rest: &Map<String, Value>, known: &str) -> Result<(), Refusal> {
    match rest.keys().next() {
        None => Ok(()),
        Some(unknown) => Err(Refusal::bad(format!("{what} has a member '{unknown}': it may have {known}; remove it"))),
    }
}
