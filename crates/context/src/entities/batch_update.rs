//! Parses the updates of several entities: the body of `POST /v2/op/update`, a notification, and the value of a
//! record in `context_update.<tenant>`.

use serde_json::{Map, Value};

use crate::entities::view::{EntityTarget, WriteAction};
use crate::model::request_body::{self, BodyEntity, BodyForm, BodyOptions, array, object};
use crate::model::update::UpdateMode;
use crate::refusal::Refusal;

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

/// Reads the body of an update; nothing is applied unless the whole body is valid.
pub(crate) fn read(body: &[u8], how: BodyOptions) -> Result<Vec<BatchItem>, Refusal> {
    read_batch(object(body)?, how)
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

fn read_batch(mut members: Map<String, Value>, how: BodyOptions) -> Result<Vec<BatchItem>, Refusal> {
    let action = match members.shift_remove("actionType") {
        Some(Value::String(text)) => ActionType::read(&text)?,
        Some(other) => return Err(Refusal::bad(format!("actionType {other} is no string; send one"))),
        None => return Err(Refusal::bad("the body has no member 'actionType': add append, update, delete or another")),
    };
    let entities = members.shift_remove("entities");
    only(members.keys().next(), "actionType and entities")?;
    read_entities("entities", entities, action, how)
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
    read_entities("data", data, ActionType::Append, BodyOptions::NORMALIZED)
}

fn only(unknown: Option<&String>, known: &str) -> Result<(), Refusal> {
    match unknown {
        Some(name) => Err(Refusal::bad(format!("the body has a member '{name}': it may have {known}; remove it"))),
        None => Ok(()),
    }
}

fn read_entities(
    name: &str,
    entities: Option<Value>,
    action: ActionType,
    how: BodyOptions,
) -> Result<Vec<BatchItem>, Refusal> {
    let entities = entities.ok_or_else(|| Refusal::bad(format!("the body has no member '{name}': add an array")))?;
    array(name, &entities)?;
    let Value::Array(entities) = entities else { return Ok(Vec::new()) };
    if entities.is_empty() {
        return Err(Refusal::bad(format!("{name} is empty: it must name at least one entity; add it")));
    }
    let one = |entity: Value| match entity {
        Value::Object(members) => item(members, action, how),
        other => Err(Refusal::bad(format!("{other} in {name} is no object; send entities"))),
    };
    entities.into_iter().map(one).collect()
}

fn item(members: Map<String, Value>, action: ActionType, how: BodyOptions) -> Result<BatchItem, Refusal> {
    if let Some(pattern) = ["idPattern", "typePattern"].into_iter().find(|name| members.contains_key(*name)) {
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
