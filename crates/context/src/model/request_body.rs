//! Parses request bodies: an entity to create, or attributes to set.
//!
//! Errors that the body alone shows are refused here, before an owner gets a command.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::model::content::{AttributeContent, canonical, kind_of};
use crate::model::entity::{Attribute, DATE_EXPIRES, DATE_TIME, IGNORE_TYPE, Items, Metadata, metadata_bytes};
use crate::model::geometry;
use crate::model::json;
use crate::model::names::shared;
use crate::model::operator::{UpdateOperator, is_operator};
use crate::model::scalar::is_date;
use crate::model::syntax::{check_attribute_name, check_identifier, check_nesting, check_text};
use crate::refusal::{ErrorName, Refusal};

/// The default type of an entity.
pub(crate) const DEFAULT_ENTITY_KIND: &str = "Thing";
/// Attributes with this type or metadata item may contain any character.
pub(crate) const UNRESTRICTED: &str = "TextUnrestricted";

/// The representation of attributes in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    /// `{"value": …, "type": …, "metadata": …}`.
    Normalized,
    KeyValues,
    /// An array of the bare values.
    Values,
    /// An array of the distinct bare values.
    Unique,
}

/// The representation of attributes in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyForm {
    /// `{"value": …, "type": …, "metadata": …}`.
    Normalized,
    KeyValues,
    /// Each attribute by itself: normalized if it is an object with a member `value`, otherwise a bare value.
    Either,
}

/// The representation of a body, and the treatment of metadata that it does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyOptions {
    pub(crate) form: BodyForm,
    /// Removes metadata that the body does not name.
    pub(crate) override_metadata: bool,
}

impl BodyOptions {
    /// The options of a request that sets none.
    pub(crate) const NORMALIZED: Self = Self { form: BodyForm::Normalized, override_metadata: false };
}

/// The change of an attribute's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BodyMetadata {
    Keep,
    /// Adds or replaces these items and keeps the others.
    Merge(Items),
    /// Replaces all metadata by these items.
    Replace(Items),
}

impl BodyMetadata {
    /// One of the items is an observation time.
    pub(crate) fn has_observation_time(&self) -> bool {
        let (Self::Merge(items) | Self::Replace(items)) = self else { return false };
        items.iter().any(Metadata::is_observation_time)
    }
}

/// An attribute in a body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BodyAttribute {
    pub(crate) name: Arc<str>,
    pub(crate) content: AttributeContent,
    pub(crate) metadata: BodyMetadata,
}

impl BodyAttribute {
    /// Refuses an invalid location, unless `known`, the current attribute, keeps its metadata and ignores its type.
    pub(crate) fn check_place(&self, known: Option<&Attribute>) -> Result<(), Refusal> {
        match &self.content {
            AttributeContent::NoPlace { why, .. } if !known.is_some_and(Attribute::ignores_type) => {
                Err(Refusal::bad(format!("{}: {why}; correct it", AttributeLabel(&self.name))))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        let metadata = match &self.metadata {
            BodyMetadata::Keep => 0,
            BodyMetadata::Merge(items) | BodyMetadata::Replace(items) => metadata_bytes(items),
        };
        size_of::<Self>() + self.name.len() + self.content.size_bytes() + metadata
    }
}

/// An entity in a body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BodyEntity {
    pub(crate) id: Arc<str>,
    /// `None` if the body names no type.
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) attributes: Vec<BodyAttribute>,
}

pub(crate) fn entity(body: &[u8], how: BodyOptions) -> Result<BodyEntity, Refusal> {
    let given = entity_of(object(body)?, how)?;
    Ok(BodyEntity { kind: given.kind.or_else(|| Some(shared(DEFAULT_ENTITY_KIND))), ..given })
}

/// Reads an entity within a body.
pub(crate) fn entity_of(mut members: Map<String, Value>, how: BodyOptions) -> Result<BodyEntity, Refusal> {
    let id = match members.shift_remove("id") {
        Some(id) => identifier("entity id", &id)?.into(),
        None => return Err(Refusal::bad("the body has no member 'id': an entity needs one; add it")),
    };
    let kind = match members.shift_remove("type") {
        Some(kind) => Some(shared(identifier("entity type", &kind)?)),
        None => None,
    };
    Ok(BodyEntity { id, kind, attributes: attributes_of(members, how)? })
}

/// Reads the body of an update of several attributes; it must not have `id` and `type`.
pub(crate) fn attributes(body: &[u8], how: BodyOptions) -> Result<Vec<BodyAttribute>, Refusal> {
    attributes_of(object(body)?, how)
}

/// Reads the body of an update of the attribute `name`.
pub(crate) fn attribute(name: &str, body: &[u8], how: BodyOptions) -> Result<BodyAttribute, Refusal> {
    check_attribute_name(name)?;
    normalized(name, Value::Object(object(body)?), how)
}

/// Reads the body of an update of an attribute's value: a JSON array or object.
pub(crate) fn json_value(name: &str, body: &[u8], rule: TextRule) -> Result<BodyAttribute, Refusal> {
    check_nesting(body)?;
    let value = json::read(body).map_err(no_json)?;
    if !value.is_array() && !value.is_object() {
        return Err(Refusal::bad(format!(
            "the body is a {}: JSON here is an object or an array; send other values as text/plain",
            kind_of(&value)
        )));
    }
    value_of(name, value, rule)
}

/// Reads the body of an update of an attribute's value as text: a string in quotes, true, false, null (in
/// any case) or a number.
pub(crate) fn text_value(name: &str, body: &[u8], rule: TextRule) -> Result<BodyAttribute, Refusal> {
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
        None => match serde_json::from_str(&text.to_ascii_lowercase()) {
            Ok(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => value,
            _ => return Err(wrong(text)),
        },
    };
    value_of(name, value, rule)
}

fn value_of(name: &str, value: Value, rule: TextRule) -> Result<BodyAttribute, Refusal> {
    let what = AttributeLabel(name);
    if rule == TextRule::Checked {
        check_text(&what, &value)?;
    }
    let content = if is_operator(&value) {
        AttributeContent::Operator { kind: None, operator: UpdateOperator::read(&what.to_string(), value)? }
    } else if name == DATE_EXPIRES {
        // Its type is known, so an invalid value is an error of the request alone.
        content(name, None, value, rule, PlaceRule::Needed)?
    } else {
        AttributeContent::Value(value)
    };
    Ok(BodyAttribute { name: shared(name), content, metadata: BodyMetadata::Keep })
}

/// Reads an attribute in a mapping: normalized if it has a member `value`, otherwise its bare value.
pub(crate) fn attribute_of_mapping(name: &str, value: Value) -> Result<BodyAttribute, Refusal> {
    check_attribute_name(name)?;
    attribute_of(name, value, BodyOptions { form: BodyForm::Either, override_metadata: false })
}

pub(crate) fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    check_nesting(body)?;
    match json::read(body).map_err(no_json)? {
        Value::Object(members) => Ok(members),
        other => Err(Refusal::bad(format!("the body is a {}: it must be an object; send one", kind_of(&other)))),
    }
}

/// The items of a member that must be an array; `what` names the member.
pub(crate) fn array<'a>(what: &str, value: &'a Value) -> Result<&'a [Value], Refusal> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| Refusal::bad(format!("{what} {value} is no array; send one")))
}

fn no_json(error: serde_json::Error) -> Refusal {
    if error.is_data() {
        return Refusal::bad(format!("the body cannot be taken: {error}; give each member once"));
    }
    Refusal::new(ErrorName::ParseError, format!("the body is not JSON: {error}; correct it there"))
}

fn identifier(what: impl fmt::Display, value: &Value) -> Result<&str, Refusal> {
    let Value::String(text) = value else {
        return Err(Refusal::bad(format!("{what} {value} is no string; send one")));
    };
    check_identifier(what, text)?;
    Ok(text)
}

pub(crate) fn attributes_of(members: Map<String, Value>, how: BodyOptions) -> Result<Vec<BodyAttribute>, Refusal> {
    let read = |(name, value): (String, Value)| {
        check_attribute_name(&name)?;
        attribute_of(&name, value, how)
    };
    members.into_iter().map(read).collect()
}

fn attribute_of(name: &str, value: Value, how: BodyOptions) -> Result<BodyAttribute, Refusal> {
    let is_normalized = match how.form {
        BodyForm::Normalized => true,
        BodyForm::KeyValues => false,
        BodyForm::Either => value.get("value").is_some(),
    };
    if is_normalized { normalized(name, value, how) } else { bare(name, value, how) }
}

/// Names an attribute in errors. Formatted on demand: most requests have no error.
struct AttributeLabel<'a>(&'a str);

impl fmt::Display for AttributeLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attribute '{}'", self.0)
    }
}

fn bare(name: &str, value: Value, how: BodyOptions) -> Result<BodyAttribute, Refusal> {
    let content = content(name, None, value, TextRule::Checked, PlaceRule::Needed)?;
    Ok(BodyAttribute { name: shared(name), content, metadata: body_metadata(None, how) })
}

fn normalized(name: &str, value: Value, how: BodyOptions) -> Result<BodyAttribute, Refusal> {
    let what = AttributeLabel(name);
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
        // Plain data needs no geometry.
        Some(kind) if geometry::is_geo(&kind) && is_set(IGNORE_TYPE) && !is_operator(&value) => {
            if rule == TextRule::Checked {
                check_text(&what, &value)?;
            }
            AttributeContent::Whole { kind, value: json::text(&value) }
        }
        kind => content(name, kind, value, rule, may_ignore_type(metadata.as_deref(), how))?,
    };
    Ok(BodyAttribute { name: shared(name), content, metadata: body_metadata(metadata, how) })
}

/// An attribute may keep ignoring its type: metadata in the request does not end that.
fn may_ignore_type(metadata: Option<&[Metadata]>, how: BodyOptions) -> PlaceRule {
    let ends = |items: &[Metadata]| items.is_empty() || items.iter().any(|item| *item.name == *IGNORE_TYPE);
    if how.override_metadata || metadata.is_some_and(ends) { PlaceRule::Needed } else { PlaceRule::UnlessIgnored }
}

/// A location needs a geometry, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceRule {
    Needed,
    /// Any value is allowed if the current attribute ignores its type.
    UnlessIgnored,
}

/// The texts of a value may contain any character, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRule {
    Checked,
    Unrestricted,
}

impl TextRule {
    /// The rule for new values of an attribute that keeps its type and metadata.
    pub(crate) fn of(known: &Attribute) -> Self {
        if *known.kind == *UNRESTRICTED || known.is_set(UNRESTRICTED) { Self::Unrestricted } else { Self::Checked }
    }
}

fn content(
    name: &str,
    kind: Option<Arc<str>>,
    value: Value,
    rule: TextRule,
    place: PlaceRule,
) -> Result<AttributeContent, Refusal> {
    let what = AttributeLabel(name);
    if rule == TextRule::Checked {
        check_text(&what, &value)?;
    }
    let kind = if name == DATE_EXPIRES { Some(kind_of_end(kind)?) } else { kind };
    if is_operator(&value) {
        return Ok(AttributeContent::Operator { kind, operator: UpdateOperator::read(&what.to_string(), value)? });
    }
    if name == DATE_EXPIRES && value.is_null() {
        return Err(Refusal::bad("dateExpires is null: give it a point in time, or delete it to keep the entity"));
    }
    let kind = kind.unwrap_or_else(|| shared(kind_of(&value)));
    match canonical(&kind, &value) {
        Ok(value) => Ok(AttributeContent::Whole { kind, value }),
        Err(why) if place == PlaceRule::UnlessIgnored && geometry::is_geo(&kind) => {
            Ok(AttributeContent::NoPlace { kind, value: json::text(&value), why })
        }
        Err(why) => Err(Refusal::bad(format!("{what}: {why}; correct it"))),
    }
}

/// The type of `dateExpires`. Another type is refused: its value would be no point in time but
/// would still expire the entity.
fn kind_of_end(given: Option<Arc<str>>) -> Result<Arc<str>, Refusal> {
    match given {
        Some(kind) if !is_date(&kind) => Err(Refusal::bad(format!(
            "the type '{kind}' of attribute '{DATE_EXPIRES}': it is a {DATE_TIME}; leave the type out, or give the attribute another name"
        ))),
        _ => Ok(shared(DATE_TIME)),
    }
}

fn body_metadata(items: Option<Vec<Metadata>>, how: BodyOptions) -> BodyMetadata {
    match items {
        None if how.override_metadata => BodyMetadata::Replace(Default::default()),
        None => BodyMetadata::Keep,
        Some(items) if items.is_empty() || how.override_metadata => BodyMetadata::Replace(items.into()),
        Some(items) => BodyMetadata::Merge(items.into()),
    }
}

fn metadata_of(what: &AttributeLabel<'_>, items: Value) -> Result<Vec<Metadata>, Refusal> {
    let Value::Object(items) = items else {
        return Err(Refusal::bad(format!("the metadata of {what} is a {}: it must be an object", kind_of(&items))));
    };
    items.into_iter().map(|(name, item)| metadata_item(what, name, item)).collect()
}

fn metadata_item(attribute: &AttributeLabel<'_>, name: String, item: Value) -> Result<Metadata, Refusal> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_update_gives_each_attribute_once_with_a_value_that_fits_its_type() {
        for body in [
            r#"{"t":{"type":"Number","value":21.5}}"#,
            r#" { "t" : { "value" : "x y" , "type" : "Text" } , "u" : { "value" : null } } "#,
            r#"{"t":{"value":true},"u":{"value":-0.0},"v":{"value":1e3},"w":{"value":18446744073709551615}}"#,
            r#"{"t":{"type":"DateTime","value":"2026-01-02"},"dateExpires":{"value":"2026-01-02T03:04:05Z"}}"#,
            r#"{"t":{"type":"TextUnrestricted","value":"<\u00e4>"}}"#,
            r#"{"t":{"type":"Number","value":1,"metadata":{}}}"#,
            r#"{"t":{"value":{"$inc":1}}}"#,
            r#"{"\u0074":{"value":[1]}}"#,
            "{}",
        ] {
            assert!(attributes(body.as_bytes(), BodyOptions::NORMALIZED).is_ok(), "{body}");
        }
        for body in [
            r#"{"t":{"value":1},"t":{"value":2}}"#,
            r#"{"t":{"value":1,"value":2}}"#,
            r#"{"t":{"value":"<"}}"#,
            r#"{"id":{"value":1}}"#,
            r#"{"t":{"type":"","value":1}}"#,
            r#"{"t":{"type":null,"value":1}}"#,
            r#"{"t":{"type":"DateTime","value":"then"}}"#,
            r#"{"dateExpires":{"value":null}}"#,
            r#"{"t":{"value":1}} x"#,
            r#"{"t":1}"#,
            "[1]",
            "{",
        ] {
            assert!(attributes(body.as_bytes(), BodyOptions::NORMALIZED).is_err(), "{body}");
        }
    }

    proptest! {
        #[test]
        fn a_number_in_an_update_keeps_its_value(number in any::<f64>().prop_filter("JSON", |n| n.is_finite()), whole in any::<i64>()) {
            for given in [number.to_string(), format!("{number:e}"), whole.to_string()] {
                let read = attributes(format!(r#"{{"t":{{"value":{given}}}}}"#).as_bytes(), BodyOptions::NORMALIZED).unwrap();
                let AttributeContent::Whole { value, .. } = &read[0].content else { panic!("{given}: {read:?}") };
                prop_assert_eq!(value.parse::<f64>().unwrap(), given.parse::<f64>().unwrap(), "{}", given);
            }
        }
    }
}
