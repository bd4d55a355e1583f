//! `ngsi` of a custom target: changes of the entity before a notification is rendered.

use std::sync::Arc;

use serde_json::Value;

use super::scope::MacroScope;
use super::template::{JsonTemplate, MacroTemplate};
use crate::model::content::kind_of;
use crate::model::entity::{Attribute, Entity, Key, Metadata};
use crate::model::json;
use crate::model::member::Member;
use crate::model::syntax::{check_attribute_name, check_identifier};
use crate::refusal::Refusal;

/// Priorities of attributes in a patch; the last is the default.
pub(crate) const PRIORITIES: std::ops::RangeInclusive<u64> = 1..=100_000;
pub(crate) const EVAL_PRIORITY: &str = "evalPriority";

/// Changes of the entity before it is rendered.
#[derive(Debug, Default)]
pub(crate) struct Patch {
    id: Option<MacroTemplate>,
    kind: Option<MacroTemplate>,
    /// In the order of their evaluation.
    attributes: Vec<PatchAttribute>,
}

#[derive(Debug)]
struct PatchAttribute {
    name: String,
    kind: Option<String>,
    value: JsonTemplate,
    /// The metadata item, if it was given, and its number.
    priority: Option<(Metadata, u64)>,
}

impl PatchAttribute {
    fn read(name: String, value: Value) -> Result<Self, Refusal> {
        check_attribute_name(&name)?;
        let what = format!("attribute '{name}' of ngsi");
        let mut given = Member::of(&what, value)?;
        let value = given.take("value").unwrap_or(Value::Null);
        let kind = given.text("type")?;
        kind.as_deref().map_or(Ok(()), |kind| check_identifier(format_args!("the type of {what}"), kind))?;
        let priority = priority(&what, given.object("metadata")?)?;
        given.nothing_else()?;
        Ok(Self { value: JsonTemplate::read(&what, &value)?, name, kind, priority })
    }

    fn number(&self) -> u64 {
        self.priority.as_ref().map_or(*PRIORITIES.end(), |(_, number)| *number)
    }

    /// Sets the attribute of `entity`.
    fn apply(&self, entity: &mut Entity, value: String) {
        let kind: Arc<str> = match &self.kind {
            Some(kind) => kind.as_str().into(),
            None => kind_of_text(&value).into(),
        };
        let known = entity.attributes.iter_mut().position(|known| *known.name == *self.name);
        let at = known.unwrap_or_else(|| {
            entity.attributes.push(Attribute::new(
                self.name.as_str().into(),
                kind.clone(),
                "null".into(),
                Default::default(),
            ));
            entity.attributes.len() - 1
        });
        let attribute = &mut entity.attributes[at];
        (attribute.kind, attribute.value) = (kind, value.into());
        if let Some((item, _)) = &self.priority {
            let others = attribute.metadata.iter().filter(|known| *known.name != *EVAL_PRIORITY).cloned();
            attribute.metadata = others.chain([item.clone()]).collect();
        }
    }
}

impl Patch {
    /// Reads the object `ngsi`.
    ///
    /// # Errors
    /// A refusal that names the attribute and the rule.
    pub(crate) fn read(mut given: Member) -> Result<Self, Refusal> {
        let mut named = |name| given.text(name)?.map(|text| MacroTemplate::read("ngsi", &text)).transpose();
        let (id, kind) = (named("id")?, named("type")?);
        let read = |(name, value)| PatchAttribute::read(name, value);
        let mut attributes = given.into_all().into_iter().map(read).collect::<Result<Vec<_>, Refusal>>()?;
        attributes.sort_by_key(PatchAttribute::number);
        Ok(Self { id, kind, attributes })
    }

    /// The patch sets this attribute.
    pub(crate) fn sets(&self, name: &str) -> bool {
        self.attributes.iter().any(|attribute| attribute.name == name)
    }

    pub(crate) fn sets_something(&self) -> bool {
        !self.attributes.is_empty()
    }

    /// The entity after the patch. Attributes are set by their priorities; each sees those that were set before, but not those
    /// of its own priority. Id and type come last.
    pub(crate) fn applied(&self, entity: &Entity, scope: &MacroScope<'_>) -> Entity {
        let mut entity = entity.clone();
        for group in self.attributes.chunk_by(|one, other| one.number() == other.number()) {
            let value_of = |attribute: &PatchAttribute| {
                let mut value = String::new();
                attribute.value.fill(&scope.with(&entity), &mut value);
                value
            };
            let values: Vec<String> = group.iter().map(value_of).collect();
            group.iter().zip(values).for_each(|(attribute, value)| attribute.apply(&mut entity, value));
        }
        let mut key = Key::clone(&entity.key);
        let scope = scope.with(&entity);
        let filled = |template: &Option<MacroTemplate>| template.as_ref()?.fill_if_there(&scope);
        let (id, kind) = (filled(&self.id), filled(&self.kind));
        key.id = id.map_or(key.id, Into::into);
        key.kind = kind.map_or(key.kind, Into::into);
        entity.key = Arc::new(key);
        entity
    }
}

/// Reads the only metadata item that a patch takes. Stored patches may have a priority out of range, which is the last one.
fn priority(what: &str, metadata: Option<Member>) -> Result<Option<(Metadata, u64)>, Refusal> {
    let Some(mut metadata) = metadata else { return Ok(None) };
    let given = metadata.take(EVAL_PRIORITY);
    if let Some((name, value)) = metadata.into_all().iter().next() {
        return Err(Refusal::bad(format!(
            "{what} has metadata '{name}' (a {}): a patch takes none but {EVAL_PRIORITY}; remove it",
            kind_of(value)
        )));
    }
    let item = |given: Value| {
        let number = given.get("value")?.as_u64().filter(|number| PRIORITIES.contains(number))?;
        let kind = given.get("type").and_then(Value::as_str).unwrap_or("Number");
        let value = json::text(&number.into());
        Some((Metadata { name: EVAL_PRIORITY.into(), kind: kind.into(), value }, number))
    };
    Ok(given.and_then(item))
}

/// The default type of a value, by the first character of its JSON text.
fn kind_of_text(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "Text",
        Some(b't' | b'f') => "Boolean",
        Some(b'n') => "None",
        Some(b'{' | b'[') => "StructuredValue",
        _ => "Number",
    }
}
