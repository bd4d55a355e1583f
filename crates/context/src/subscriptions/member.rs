//! An object of a subscription's body, taken apart member by member, so that what is left over is known.

use serde_json::{Map, Value};

use crate::given::kind_of;
use crate::refusal::Refusal;

/// What has not been taken yet, and what it is called in refusals.
#[derive(Debug)]
pub(crate) struct Member {
    what: String,
    members: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Member {
    pub(crate) fn of(what: impl Into<String>, value: Value) -> Result<Self, Refusal> {
        let what = what.into();
        match value {
            Value::Object(members) => Ok(Self { what, members, known: Vec::new() }),
            other => Err(Refusal::bad(format!("{what} is a {}: it must be an object; send one", kind_of(&other)))),
        }
    }

    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// A member of any kind.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.members.shift_remove(name)
    }

    /// An object.
    pub(crate) fn object(&mut self, name: &'static str) -> Result<Option<Self>, Refusal> {
        let what = format!("{name} of {}", self.what);
        self.take(name).map(|value| Self::of(what, value)).transpose()
    }

    /// An object that must not be empty.
    pub(crate) fn full_object(&mut self, name: &'static str) -> Result<Option<Self>, Refusal> {
        match self.object(name)? {
            Some(empty) if empty.is_empty() => {
                Err(self.wrong(name, "{}", "it must not be empty; leave it out, or fill it"))
            }
            given => Ok(given),
        }
    }

    /// A text that is not empty.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, &other.to_string(), "it must be a text that is not empty; send one")),
        }
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(name, &other.to_string(), "it must be true or false; correct it")),
        }
    }

    /// A whole number within `range`.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|number| range.contains(number)) {
                Some(number) => Ok(Some(number)),
                None => {
                    let rule =
                        format!("it must be a whole number from {} to {}; correct it", range.start(), range.end());
                    Err(self.wrong(name, &value.to_string(), &rule))
                }
            },
        }
    }

    /// A list of texts, none of them empty.
    pub(crate) fn texts(&mut self, name: &'static str) -> Result<Option<Vec<String>>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let items = value.as_array().map(|items| {
            items.iter().map(|item| item.as_str().filter(|text| !text.is_empty()).map(str::to_owned)).collect()
        });
        match items {
            Some(Some(texts)) => Ok(Some(texts)),
            _ => Err(self.wrong(name, &value.to_string(), "it must be a list of texts that are not empty; send one")),
        }
    }

    /// Members in their order, whatever they are called.
    pub(crate) fn into_all(self) -> Map<String, Value> {
        self.members
    }

    /// Refuses what nobody has taken.
    pub(crate) fn nothing_else(self) -> Result<(), Refusal> {
        match self.members.keys().next() {
            None => Ok(()),
            Some(name) => Err(Refusal::bad(format!(
                "{} has a member '{name}': it may have {}; remove it",
                self.what,
                self.known.join(", ")
            ))),
        }
    }

    /// The refusal of a member's value.
    pub(crate) fn wrong(&self, name: &str, value: &str, rule: &str) -> Refusal {
        Refusal::bad(format!("{name} of {} = {value}: {rule}", self.what))
    }
}
