//! Parses the updates of several entities: the body of `POST /v2/op/update`, a notification, and the value of a
//! record in `context_update.<tenant>`.

use serde_json::{Map, Value};

use crate::entities::view::{EntityTarget, WriteAction};
use crate::model::entity::Key;
use crate::model::request_body::{self, BodyAttribute, BodyEntity, BodyForm, BodyOptions, array, object};
use crate::model::update::UpdateMode;
use crate::query::{Criteria, Rules, Selector};
use crate::refusal::Refusal;

/// Members of an entity that select others by a regular expression.
const PATTERNS: [&str; 2] = ["idPattern", "typePattern"];

/// The action of a batch on each entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActionType {
    Append,
    AppendStrict,
    Update,
    Delete,
    Replace,
}

impl ActionType {
    /// Reads a name in any capitals, as FIWARE's clients send it.
    fn read(text: &str) -> Result<Self, Refusal> {
        match text.to_ascii_lowercase().as_str() {
            "append" => Ok(Self::Append),
            "appendstrict" | "append_strict" => Ok(Self::AppendStrict),
            "update" => Ok(Self::Update),
            "delete" => Ok(Self::Delete),
            "replace" => Ok(Self::Replace),
            _ => Err(Refusal::bad(format!(
                "actionType '{text}': use append, appendStrict, update, delete or replace; correct it"
            ))),
        }
    }

    /// The owner's action for one entity.
    fn action(self, given: BodyEntity) -> WriteAction {
        let kind = given.kind.as_deref().map(str::to_owned);
        let target = EntityTarget { id: given.id.clone(), kind };
        let manner = match self {
            Self::Append => return WriteAction::Upsert { given, manner: UpdateMode::Append },
            Self::AppendStrict => return WriteAction::Upsert { given, manner: UpdateMode::AppendStrict },
            Self::Delete if given.attributes.is_empty() => return WriteAction::Delete(target),
            Self::Delete => {
                let names = given.attributes.into_iter().map(|attribute| attribute.name).collect();
                return WriteAction::RemoveAttributes { target, names };
            }
            Self::Update => UpdateMode::Update,
            Self::Replace => UpdateMode::Replace,
        };
        WriteAction::Set { target, given: given.attributes, manner }
    }
}

/// The entity's name in the reply, and the owner's action.
pub(crate) type BatchItem = (String, WriteAction);

/// An update of several entities.
pub(crate) enum BatchUpdate {
    /// Of entities that are named, one after the other.
    Named(Vec<BatchItem>),
    /// Of all entities that match, for one item after the other.
    Matching(Vec<MatchingItem>, Box<Criteria>),
}

/// A change of all entities that match.
pub(crate) struct MatchingItem {
    pub(crate) selector: Selector,
    action: ActionType,
    attributes: Vec<BodyAttribute>,
}

impl MatchingItem {
    /// The owner's action for one of the entities.
    pub(crate) fn action(&self, key: &Key) -> WriteAction {
        let (id, kind) = (key.id.clone(), Some(key.kind.clone()));
        self.action.action(BodyEntity { id, kind, attributes: self.attributes.clone() })
    }
}

/// Reads the body of an update; nothing is applied unless the whole body is valid. It is about entities that match if it has an
/// `expression`, or if its entities have patterns.
pub(crate) fn read(body: &[u8], how: BodyOptions) -> Result<BatchUpdate, Refusal> {
    let mut members = object(body)?;
    let criteria = match members.shift_remove("expression") {
        None => None,
        Some(Value::Object(expression)) => Some(Criteria::of_json(Rules::Sent, &expression)?),
        Some(other) => return Err(Refusal::bad(format!("expression {other} is no object; send one"))),
    };
    let has_pattern = |entity: &Value| PATTERNS.iter().any(|name| entity.get(name).is_some());
    let entities = members.get("entities").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (count, patterns) = (entities.len(), entities.iter().filter(|entity| has_pattern(entity)).count());
    if criteria.is_none() && patterns == 0 {
        return read_batch(members, how).map(BatchUpdate::Named);
    }
    if criteria.is_none() && patterns < count {
        return Err(Refusal::bad(
            "entities has items with a pattern and items without: send them in two requests, the first as it was meant",
        ));
    }
    let (action, entities) = take_parts(members)?;
    let items = entities.into_iter().map(|entity| matching_item(entity, action, how)).collect::<Result<_, _>>()?;
    Ok(BatchUpdate::Matching(items, Box::new(criteria.unwrap_or_default())))
}

fn matching_item(
    mut members: Map<String, Value>,
    action: ActionType,
    how: BodyOptions,
) -> Result<MatchingItem, Refusal> {
    let named = Selector::MEMBERS.into_iter().filter_map(|name| Some((name.to_owned(), members.shift_remove(name)?)));
    let selector = Selector::of_json(&Value::Object(named.collect()))?;
    let attributes = match action {
        ActionType::Delete => request_body::attributes_of(without_values(members), BodyOptions::NORMALIZED)?,
        _ => request_body::attributes_of(members, how)?,
    };
    Ok(MatchingItem { selector, action, attributes })
}

/// Reads the value of a record: a batch as in the body of an update, or one entity to append.
pub(crate) fn read_record(value: &[u8], form: BodyForm) -> Result<Vec<BatchItem>, Refusal> {
    let how = BodyOptions { form, override_metadata: false };
    let members = object(value)?;
    if members.contains_key("id") {
        return Ok(vec![item(members, ActionType::Append, how)?]);
    }
    if members.contains_key("actionType") || members.contains_key("entities") {
        return read_batch(members, how);
    }
    Err(Refusal::bad(
        "it has neither 'id' nor 'actionType': send one entity with an id, or a batch with actionType and entities",
    ))
}

fn read_batch(members: Map<String, Value>, how: BodyOptions) -> Result<Vec<BatchItem>, Refusal> {
    let (action, entities) = take_parts(members)?;
    entities.into_iter().map(|entity| item(entity, action, how)).collect()
}

/// The action and the entities of a batch.
fn take_parts(mut members: Map<String, Value>) -> Result<(ActionType, Vec<Map<String, Value>>), Refusal> {
    let action = match members.shift_remove("actionType") {
        Some(Value::String(text)) => ActionType::read(&text)?,
        Some(other) => return Err(Refusal::bad(format!("actionType {other} is no string; send one"))),
        None => return Err(Refusal::bad("the body has no member 'actionType': add append, update, delete or another")),
    };
    let entities = members.shift_remove("entities");
    only(members.keys().next(), "actionType, entities and expression")?;
    Ok((action, read_entities("entities", entities)?))
}

/// Reads a notification's body as entities to append.
pub(crate) fn read_notification(body: &[u8]) -> Result<Vec<BatchItem>, Refusal> {
    let mut members = object(body)?;
    let (subscription, data) = (members.shift_remove("subscriptionId"), members.shift_remove("data"));
    only(members.keys().next(), "subscriptionId and data")?;
    if !subscription.is_some_and(|id| id.is_string()) {
        return Err(Refusal::bad(
            "the body has no text 'subscriptionId': a notification names its subscription; add it",
        ));
    }
    let entities = read_entities("data", data)?.into_iter();
    entities.map(|entity| item(entity, ActionType::Append, BodyOptions::NORMALIZED)).collect()
}

fn only(unknown: Option<&String>, known: &str) -> Result<(), Refusal> {
    match unknown {
        Some(name) => Err(Refusal::bad(format!("the body has a member '{name}': it may have {known}; remove it"))),
        None => Ok(()),
    }
}

fn read_entities(name: &str, entities: Option<Value>) -> Result<Vec<Map<String, Value>>, Refusal> {
    let entities = entities.ok_or_else(|| Refusal::bad(format!("the body has no member '{name}': add an array")))?;
    array(name, &entities)?;
    let Value::Array(entities) = entities else { return Ok(Vec::new()) };
    if entities.is_empty() {
        return Err(Refusal::bad(format!("{name} is empty: it must name at least one entity; add it")));
    }
    let one = |entity: Value| match entity {
        Value::Object(members) => Ok(members),
        other => Err(Refusal::bad(format!("{other} in {name} is no object; send entities"))),
    };
    entities.into_iter().map(one).collect()
}

fn item(members: Map<String, Value>, action: ActionType, how: BodyOptions) -> Result<BatchItem, Refusal> {
    if let Some(pattern) = PATTERNS.into_iter().find(|name| members.contains_key(*name)) {
        return Err(Refusal::later("an update by pattern: member", pattern));
    }
    let given = match action {
        // The attributes do not matter.
        ActionType::Delete => request_body::entity_of(without_values(members), BodyOptions::NORMALIZED)?,
        _ => request_body::entity_of(members, how)?,
    };
    let named = match &given.kind {
        Some(kind) => format!("{}/{kind}", given.id),
        None => given.id.to_string(),
    };
    Ok((named, action.action(given)))
}

/// Empties all members but `id` and `type`.
fn without_values(mut members: Map<String, Value>) -> Map<String, Value> {
    let attributes = members.iter_mut().filter(|(name, _)| !["id", "type"].contains(&name.as_str()));
    attributes.for_each(|(_, value)| *value = Value::Object(Map::new()));
    members
}
