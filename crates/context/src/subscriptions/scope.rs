//! The names that macros and expressions of a subscription can use.

use std::borrow::Cow;

use millstream_jexl::{Expression, Names};
use serde_json::{Map, Value};

use super::built_ins::{built_in, built_in_metadata, service};
use super::change::ChangeRecord;
use super::expression_work::ExpressionWork;
use super::template::MacroValues;
use crate::model::entity::{Attribute, Entity, Metadata};
use crate::model::json::{self, push_string};

/// The name in expressions of all metadata: `metadata.<attribute>.<name>`.
const METADATA: &str = "metadata";
/// Metadata that the server makes.
const BUILT_IN: [&str; 4] = ["previousValue", "actionType", "dateCreated", "dateModified"];

pub(crate) struct MacroScope<'a> {
    pub(crate) change: &'a ChangeRecord<'a>,
    /// The changed entity, or what a patch has made of it so far.
    pub(crate) entity: Option<&'a Entity>,
    pub(crate) token: Option<&'a str>,
    pub(crate) now_ms: i64,
    pub(crate) work: &'a ExpressionWork,
}

impl<'a> MacroScope<'a> {
    /// The same, with another entity.
    pub(crate) fn with<'b>(&'b self, entity: &'b Entity) -> MacroScope<'b> {
        MacroScope { entity: Some(entity), ..*self }
    }

    /// The metadata of all attributes, with those that the server makes.
    fn metadata(&self) -> Value {
        let of_entity = self.entity.into_iter().flat_map(|entity| &entity.attributes);
        let of = |attribute: &Attribute| {
            let made = BUILT_IN.iter().filter(|name| attribute.metadata.iter().all(|item| *item.name != ***name));
            let made = made.filter_map(|name| built_in_metadata(self.change, attribute, name));
            let items = attribute.metadata.iter().cloned().chain(made);
            let item = |item: Metadata| Some((item.name.to_string(), parsed(&item.value)?));
            (attribute.name.to_string(), Value::Object(items.filter_map(item).collect()))
        };
        Value::Object(of_entity.map(of).collect::<Map<_, _>>())
    }
}

impl MacroValues for MacroScope<'_> {
    fn json(&self, name: &str) -> Option<Cow<'_, str>> {
        if let Some((attribute, item)) = name.strip_prefix("metadata.").and_then(|rest| rest.split_once('.')) {
            let attribute = self.entity?.attribute(attribute)?;
            let given = attribute.metadata.iter().find(|known| *known.name == *item);
            return match given {
                Some(item) => Some(Cow::Borrowed(&*item.value)),
                None => built_in_metadata(self.change, attribute, item).map(|item| Cow::Owned(item.value.to_string())),
            };
        }
        let key = &self.change.key;
        match name {
            "id" => return Some(quoted(&key.id)),
            "type" => return Some(quoted(&key.kind)),
            // Names no attribute; the rest of the name is `metadata.<attribute>.<name>`.
            METADATA => return None,
            _ => {}
        }
        let entity = self.entity?;
        match entity.attribute(name) {
            Some(attribute) => Some(Cow::Borrowed(&*attribute.value)),
            None => match name {
                "service" => Some(quoted(service(self.change))),
                "servicePath" => Some(quoted(&key.path)),
                "authToken" => self.token.map(quoted),
                _ => built_in(self.change, entity, name).map(|built_in| Cow::Owned(built_in.value.to_string())),
            },
        }
    }

    fn evaluate(&self, expression: &Expression) -> Value {
        self.work.evaluate(expression, self, self.now_ms)
    }
}

impl Names for MacroScope<'_> {
    fn value(&self, name: &str) -> Option<Cow<'_, Value>> {
        let value = if name == METADATA { self.metadata() } else { parsed(&self.json(name)?)? };
        Some(Cow::Owned(value))
    }
}

fn parsed(text: &str) -> Option<Value> {
    json::read(text.as_bytes()).ok()
}

fn quoted(text: &str) -> Cow<'static, str> {
    let mut out = String::new();
    push_string(text, &mut out);
    Cow::Owned(out)
}
