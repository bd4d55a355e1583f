//! Payloads of custom targets.

use serde_json::Value;

use super::patch::Patch;
use super::template::{JsonTemplate, MacroTemplate};
use crate::model::member::Member;
use crate::refusal::Refusal;

#[derive(Debug)]
pub(crate) enum PayloadTemplate {
    /// The body in the subscription's format.
    Plain,
    Nothing,
    Text(MacroTemplate),
    Json(JsonTemplate),
    Ngsi(Patch),
}

impl PayloadTemplate {
    pub(crate) fn read(given: &mut Member) -> Result<Self, Refusal> {
        let named: Vec<&str> = ["payload", "json", "ngsi"].into_iter().filter(|name| given.has(name)).collect();
        if named.len() > 1 {
            return Err(given.wrong(&named.join(" and "), "all", "they exclude each other; leave all but one out"));
        }
        match (given.take("payload"), given.take("json"), given.object("ngsi")?) {
            (Some(Value::Null), _, _) => Ok(Self::Nothing),
            (Some(Value::String(text)), _, _) if text.is_empty() => Ok(Self::Plain),
            (Some(Value::String(text)), _, _) => Ok(Self::Text(MacroTemplate::read("payload", &text)?.decoded())),
            (Some(other), _, _) => {
                Err(given.wrong("payload", &other.to_string(), "it must be a text or null; correct it"))
            }
            (_, Some(json), _) if json.is_object() || json.is_array() => {
                Ok(Self::Json(JsonTemplate::read("json", &json)?))
            }
            (_, Some(other), _) => {
                Err(given.wrong("json", &other.to_string(), "it must be an object or an array; correct it"))
            }
            (_, _, Some(patch)) => Ok(Self::Ngsi(Patch::read(patch)?)),
            (None, None, None) => Ok(Self::Plain),
        }
    }
}
