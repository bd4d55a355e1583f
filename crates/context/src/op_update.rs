//! The body of `POST /v2/op/update`, and what became of its entities in one answer.

use serde_json::{Map, Value};

use crate::entities::{Action, Target};
use crate::given::{self, EntityGiven, Form, Given, object};
use crate::op_query::array;
use crate::refusal::{Name, Refusal};
use crate::update::Manner;

/// What is to be done with each entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActionType {
    Append,
    AppendStrict,
    Update,
    Delete,
    Replace,
}

impl ActionType {
    fn read(text: &str) -> Result<Self, Refusal> {
        match text {
            "append" | "APPEND" => Ok(Self::Append),
            "appendStrict" | "APPEND_STRICT" => Ok(Self::AppendStrict),
            "update" | "UPDATE" => Ok(Self::Update),
            "delete" | "DELETE" => Ok(Self::Delete),
            "replace" | "REPLACE" => Ok(Self::Replace),
            _ => Err(Refusal::bad(format!(
                "actionType '{text}': use append, appendStrict, update, delete or replace; correct it"
            ))),
        }
    }

    /// What one entity's owner is asked to do.
    fn action(self, given: EntityGiven) -> Action {
        let kind = given.kind.as_deref().map(str::to_owned);
        let target = Target { id: given.id.clone(), kind };
        let manner = match self {
            Self::Append => return Action::Upsert { given, manner: Manner::Append },
            Self::AppendStrict => return Action::Upsert { given, manner: Manner::AppendStrict },
            Self::Delete if given.attributes.is_empty() => return Action::Delete(target),
            Self::Delete => {
                let names = given.attributes.into_iter().map(|attribute| attribute.name).collect();
                return Action::RemoveAttributes { target, names };
            }
            Self::Update => Manner::Update,
            Self::Replace => Manner::Replace,
        };
        Action::Set { target, given: given.attributes, manner }
    }
}

/// What one entity is called in the answer, and what its owner is asked to do.
pub(crate) type Asked = (String, Action);

/// Reads the body of an update; nothing is applied unless all of it is right.
pub(crate) fn read(body: &[u8], how: Given) -> Result<Vec<Asked>, Refusal> {
    let mut members = object(body)?;
    let action = match members.shift_remove("actionType") {
        Some(Value::String(text)) => ActionType::read(&text)?,
        Some(other) => return Err(Refusal::bad(format!("actionType {other} is no string; send one"))),
        None => return Err(Refusal::bad("the body has no member 'actionType': add append, update, delete or another")),
    };
    let entities = members.shift_remove("entities");
    only(members.keys().next(), "actionType and entities")?;
    read_entities("entities", entities, action, how)
}

/// Reads a notification's body, which is taken as entities to append.
pub(crate) fn read_notification(body: &[u8]) -> Result<Vec<Asked>, Refusal> {
    let mut members = object(body)?;
    let (subscription, data) = (members.shift_remove("subscriptionId"), members.shift_remove("data"));
    only(members.keys().next(), "subscriptionId and data")?;
    if !subscription.is_some_and(|id| id.is_string()) {
        return Err(Refusal::bad(
            "the body has no text 'subscriptionId': a notification names its subscription; add it",
        ));
    }
    read_entities("data", data, ActionType::Append, Given { form: Form::Normalized, override_metadata: false })
}

fn only(unknown: Option<&String>, known: &str) -> Result<(), Refusal> {
    match unknown {
        Some(name) => Err(Refusal::bad(format!("the body has a member '{name}': it may have {known}; remove it"))),
        None => Ok(()),
    }
}

fn read_entities(name: &str, entities: Option<Value>, action: ActionType, how: Given) -> Result<Vec<Asked>, Refusal> {
    let entities = entities.ok_or_else(|| Refusal::bad(format!("the body has no member '{name}': add an array")))?;
    array(name, &entities)?;
    let Value::Array(entities) = entities else { return Ok(Vec::new()) };
    if entities.is_empty() {
        return Err(Refusal::bad(format!("{name} is empty: it must name at least one entity; add it")));
    }
    let one = |entity: Value| {
        let Value::Object(members) = entity else {
            return Err(Refusal::bad(format!("{entity} in {name} is no object; send entities")));
        };
        if let Some(pattern) = ["idPattern", "typePattern"].into_iter().find(|name| members.contains_key(*name)) {
            return Err(Refusal::later("an update by pattern: member", pattern));
        }
        let given = match action {
            // What the attributes would be does not matter.
            ActionType::Delete => given::entity_of(without_values(members), Given::NORMALIZED)?,
            _ => given::entity_of(members, how)?,
        };
        let named = match &given.kind {
            Some(kind) => format!("{}/{kind}", given.id),
            None => given.id.to_string(),
        };
        Ok((named, action.action(given)))
    };
    entities.into_iter().map(one).collect()
}

/// An entity of which attributes are named alone.
fn without_values(mut members: Map<String, Value>) -> Map<String, Value> {
    let attributes = members.iter_mut().filter(|(name, _)| !["id", "type"].contains(&name.as_str()));
    attributes.for_each(|(_, value)| *value = Value::Object(Map::new()));
    members
}

/// What the answer to a batch is, of the refusals among its answers.
pub(crate) fn combined(count: usize, refused: Vec<(String, Refusal)>) -> Result<(), Refusal> {
    let Some((_, first)) = refused.first() else { return Ok(()) };
    if count == 1 {
        return Err(first.clone());
    }
    let is_done_in_part = refused.len() < count || refused.iter().any(|(_, why)| why.name == Name::PartialUpdate);
    let of_all = |name: Name| refused.iter().all(|(_, why)| why.name == name);
    let has = |name: Name| refused.iter().any(|(_, why)| why.name == name);
    let name = match () {
        () if is_done_in_part => Name::PartialUpdate,
        () if of_all(Name::NotFound) => Name::NotFound,
        () if has(Name::TooManyResults) => Name::TooManyResults,
        () if has(Name::RequestEntityTooLarge) => Name::RequestEntityTooLarge,
        () if has(Name::NoResourcesAvailable) => Name::NoResourcesAvailable,
        () => Name::Unprocessable,
    };
    let each: Vec<String> = refused.iter().map(|(named, why)| format!("{named}: {}", why.description)).collect();
    Err(Refusal::new(name, format!("{} of {count} entities: {}", refused.len(), each.join(" | "))))
}
