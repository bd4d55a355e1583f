//! An object in the body of a subscription or a registration. Members are taken one by one, so that unknown ones remain.

use serde_json::{Map, Value};

use crate::ignored::IgnoredMembers;
use crate::model::content::kind_of;
use crate::refusal::Refusal;

/// The remaining members and the object's name in errors.
#[derive(Debug)]
pub(crate) struct Member {
    what: String,
    /// The object's JSON pointer in the body.
    pointer: String,
    members: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Member {
    pub(crate) fn of(what: impl Into<String>, value: Value) -> Result<Self, Refusal> {
        let what = what.into();
        match value {
            Value::Object(members) => Ok(Self { what, pointer: String::new(), members, known: Vec::new() }),
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

    /// Takes a member of any kind.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.members.shift_remove(name)
    }

    /// Takes the member `name`, which must be an object.
    pub(crate) fn object(&mut self, name: &'static str) -> Result<Option<Self>, Refusal> {
        let what = format!("{name} of {}", self.what);
        let pointer = format!("{}/{name}", self.pointer);
        self.take(name).map(|value| Ok(Self { pointer, ..Self::of(what, value)? })).transpose()
    }

    /// Takes an object that must have one of these members.
    pub(crate) fn object_with(&mut self, name: &'static str, known: &[&str]) -> Result<Option<Self>, Refusal> {
        match self.full_object(name)? {
            Some(given) if !known.iter().any(|known| given.has(known)) => {
                let names: Vec<&str> = given.members.keys().map(String::as_str).collect();
                let rule = format!("it must have one of {}; leave it out, or name one", known.join(", "));
                Err(self.wrong(name, &format!("an object with {}", names.join(", ")), &rule))
            }
            given => Ok(given),
        }
    }

    /// Takes an object that must not be empty.
    pub(crate) fn full_object(&mut self, name: &'static str) -> Result<Option<Self>, Refusal> {
        match self.object(name)? {
            Some(empty) if empty.is_empty() => {
                Err(self.wrong(name, "{}", "it must not be empty; leave it out, or fill it"))
            }
            given => Ok(given),
        }
    }

    /// Takes a text that is not empty.
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

    /// Takes an integer within `range`.
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

    /// Takes a list of texts that are not empty.
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

    /// All remaining members, in order.
    pub(crate) fn into_all(self) -> Map<String, Value> {
        self.members
    }

    /// Notes the remaining members as ignored.
    pub(crate) fn ignore_rest(self, ignored: &mut IgnoredMembers) {
        for name in self.members.into_iter().map(|(name, _)| name) {
            ignored.add(&self.pointer, name);
        }
    }

    /// Refuses members that were not taken.
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
