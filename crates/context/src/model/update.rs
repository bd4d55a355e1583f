//! Applies an update to an entity's attributes. Nothing here depends on owners or HTTP.

use std::sync::Arc;

use crate::model::entity::{Attribute, Entity, Items, Metadata};
use crate::model::request_body::{BodyAttribute, BodyMetadata};
use crate::refusal::{ErrorName, Refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpdateMode {
    /// Updates existing attributes and appends the others.
    Append,
    /// Appends attributes that do not exist; refuses the others.
    AppendStrict,
    /// Updates existing attributes; refuses the others.
    Update,
    Replace,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpdateOutcome {
    Done,
    /// Nothing or only a part is applied; the reason names the rest.
    Refused(Refusal),
}

impl UpdateOutcome {
    /// The entity has a new version.
    pub(crate) fn has_effect(&self) -> bool {
        !matches!(self, Self::Refused(refusal) if refusal.name != ErrorName::PartialUpdate)
    }
}

/// Sets attributes of `entity` in the given mode.
pub(crate) fn set(entity: &mut Entity, given: Vec<BodyAttribute>, manner: UpdateMode) -> UpdateOutcome {
    let count = given.len();
    let mut refused: Vec<Arc<str>> = Vec::new();
    if manner == UpdateMode::Replace {
        entity.attributes.clear();
    }
    for attribute in given {
        let found = entity.attributes.iter_mut().find(|known| known.name == attribute.name);
        let done = match (found, manner) {
            (Some(_), UpdateMode::AppendStrict) | (None, UpdateMode::Update) => {
                refused.push(attribute.name);
                Ok(())
            }
            (Some(known), _) => overwrite(known, attribute),
            (None, _) => create(attribute).map(|created| entity.attributes.extend(created)),
        };
        if let Err(refusal) = done {
            return UpdateOutcome::Refused(refusal);
        }
    }
    if refused.is_empty() {
        return UpdateOutcome::Done;
    }
    let (name, applied) = if refused.len() == count {
        (ErrorName::Unprocessable, "nothing was changed")
    } else {
        (ErrorName::PartialUpdate, "the other attributes were applied")
    };
    let (state, remedy) = match manner {
        UpdateMode::AppendStrict => ("exist already", "update them without options=append"),
        _ => ("do not exist", "append them by POST"),
    };
    UpdateOutcome::Refused(Refusal::new(
        name,
        format!("attributes {} of entity '{}' {state}: {applied}; {remedy}", refused.join(", "), entity.key.id),
    ))
}

/// A new attribute; `None` if its operator creates none.
pub(crate) fn create(given: BodyAttribute) -> Result<Option<Attribute>, Refusal> {
    let Some((kind, value)) = given.content.resolved(&given.name, None)? else { return Ok(None) };
    let metadata = match given.metadata {
        BodyMetadata::Keep => Default::default(),
        BodyMetadata::Merge(items) | BodyMetadata::Replace(items) => items,
    };
    Ok(Some(Attribute::new(given.name, kind, value, metadata)))
}

/// Sets the value and type of an attribute; merges its metadata unless they are replaced.
pub(crate) fn overwrite(known: &mut Attribute, given: BodyAttribute) -> Result<(), Refusal> {
    if let Some((kind, value)) = given.content.resolved(&known.name, Some(known))? {
        // Equal parts stay shared with the version before.
        if known.kind != kind {
            known.kind = kind;
        }
        known.value = value;
    }
    match given.metadata {
        BodyMetadata::Keep => {}
        BodyMetadata::Replace(items) => known.metadata = items,
        BodyMetadata::Merge(items) => known.metadata = merged(&known.metadata, items),
    }
    Ok(())
}

fn merged(known: &[Metadata], given: Items) -> Items {
    let named = |items: &[Metadata], name: &str| items.iter().any(|item| &*item.name == name);
    if known.iter().all(|item| named(&given, &item.name)) {
        return given;
    }
    let current = |item: &Metadata| given.iter().find(|new| new.name == item.name).unwrap_or(item).clone();
    let added = given.iter().filter(|item| !named(known, &item.name)).cloned();
    known.iter().map(current).chain(added).collect()
}

/// The difference of an attribute between two versions of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttributeDifference {
    pub(crate) name: Arc<str>,
    pub(crate) what: Differs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Differs {
    Added,
    /// The value or type differs, and perhaps the metadata; or an operator set the value.
    Value,
    Metadata,
    Removed,
}

/// Finds the differences of `after` from the version before and sets the times of attributes. No other code sets them.
///
/// An attribute in `operated`, which a request set by an operator, differs in any case, as in Orion.
pub(crate) fn settle(
    before: Option<&Entity>,
    after: &mut Entity,
    operated: &[Arc<str>],
    now_ms: i64,
) -> Vec<AttributeDifference> {
    after.modified_ms = now_ms;
    after.version = before.map_or(0, |before| before.version + 1);
    let of_before = before.map_or(&[][..], |entity| &entity.attributes);
    let mut differences = Vec::new();
    for (at, attribute) in after.attributes.iter_mut().enumerate() {
        let in_place = of_before.get(at).filter(|known| known.name == attribute.name);
        let known = in_place.or_else(|| of_before.iter().find(|known| known.name == attribute.name));
        let what = match known {
            None => Differs::Added,
            Some(known) if !known.has_value_of(attribute) || operated.contains(&attribute.name) => Differs::Value,
            Some(known) if !known.has_metadata_of(attribute) => Differs::Metadata,
            Some(known) => {
                (attribute.created_ms, attribute.modified_ms) = (known.created_ms, known.modified_ms);
                continue;
            }
        };
        attribute.created_ms = known.map_or(now_ms, |known| known.created_ms);
        attribute.modified_ms = now_ms;
        differences.push(AttributeDifference { name: attribute.name.clone(), what });
    }
    let gone = of_before.iter().filter(|known| after.attribute(&known.name).is_none());
    differences.extend(gone.map(|known| AttributeDifference { name: known.name.clone(), what: Differs::Removed }));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::entity::Key;
    use crate::model::render::normalized;
    use crate::model::request_body::{BodyOptions, attributes};

    fn room() -> Entity {
        let mut room = Entity::new(Key { id: "r".into(), kind: "Room".into(), path: "/".into() }.into(), 0);
        let body = br#"{"a":{"value":1,"metadata":{"m":{"value":1},"n":{"value":2}}},"b":{"value":"x"}}"#;
        set(&mut room, attributes(body, BodyOptions::NORMALIZED).unwrap(), UpdateMode::Append);
        room
    }

    fn check(manner: UpdateMode, body: &str, refusal: Option<ErrorName>, expected: &str, differing: &[&str]) {
        let mut after = room();
        let outcome = set(&mut after, attributes(body.as_bytes(), BodyOptions::NORMALIZED).unwrap(), manner);
        match (&outcome, refusal) {
            (UpdateOutcome::Done, None) => {}
            (UpdateOutcome::Refused(given), Some(expected)) => assert_eq!(given.name, expected, "{given:?}"),
            other => panic!("{other:?}"),
        }
        let shown = normalized(&after);
        let members = shown.strip_prefix(r#"{"id":"r","type":"Room""#).unwrap();
        assert_eq!(members, expected, "{manner:?} {body}");
        let differences = settle(Some(&room()), &mut after, &[], 9);
        let names: Vec<&str> = differences.iter().map(|difference| &*difference.name).collect();
        assert_eq!(names, differing, "{manner:?} {body}");
        for attribute in &after.attributes {
            let expected = if differing.contains(&&*attribute.name) { 9 } else { 0 };
            assert_eq!(attribute.modified_ms, expected, "{} {manner:?} {body}", attribute.name);
        }
    }

    #[test]
    fn each_update_mode_follows_the_reference() {
        use UpdateMode::*;
        let a = |value: &str| {
            let metadata = r#"{"m":{"type":"Number","value":1},"n":{"type":"Number","value":2}}"#;
            format!(r#","a":{{"type":"Number","value":{value},"metadata":{metadata}}}"#)
        };
        let text =
            |name: &str, value: &str| format!(r#","{name}":{{"type":"Text","value":"{value}","metadata":{{}}}}"#);
        let (old_a, old_b) = (a("1"), text("b", "x"));
        let both = r#"{"a":{"value":7},"c":{"value":"z"}}"#;
        let c = text("c", "z");
        check(Append, both, None, &format!("{}{old_b}{c}}}", a("7")), &["a", "c"]);
        check(AppendStrict, both, Some(ErrorName::PartialUpdate), &format!("{old_a}{old_b}{c}}}"), &["c"]);
        check(Update, both, Some(ErrorName::PartialUpdate), &format!("{}{old_b}}}", a("7")), &["a"]);
        let replaced = format!(r#","a":{{"type":"Number","value":7,"metadata":{{}}}}{c}}}"#);
        check(Replace, both, None, &replaced, &["a", "c", "b"]);
        let unchanged = format!("{old_a}{old_b}}}");
        check(AppendStrict, r#"{"b":{"value":"y"}}"#, Some(ErrorName::Unprocessable), &unchanged, &[]);
        check(Update, r#"{"c":{"value":"y"}}"#, Some(ErrorName::Unprocessable), &unchanged, &[]);
        check(Append, r#"{"b":{"value":"x"}}"#, None, &unchanged, &[]);
    }

    #[test]
    fn metadata_is_merged_and_cleared_only_by_an_empty_object() {
        let metadata_after = |given: &str| {
            let mut after = room();
            let body = format!(r#"{{"a":{{"value":1{given}}}}}"#);
            set(&mut after, attributes(body.as_bytes(), BodyOptions::NORMALIZED).unwrap(), UpdateMode::Append);
            let items = &after.attribute("a").unwrap().metadata;
            items.iter().map(|item| format!("{}={}", item.name, item.value)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(metadata_after(""), "m=1 n=2");
        assert_eq!(metadata_after(r#","metadata":{"n":{"value":3},"o":{"value":4}}"#), "m=1 n=3 o=4");
        assert_eq!(metadata_after(r#","metadata":{}"#), "");
    }
}
