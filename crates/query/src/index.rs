//! From a value in a field to the queries that need it there.

use std::collections::HashMap;

use crate::value::{CanonicalNumber, Value};

/// The number of a query within its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub(crate) usize);

/// A value in canonical form: values that compare as equal have equal keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    Text(Box<str>),
    Number(CanonicalNumber),
    Boolean(bool),
}

/// For each field the queries that can only match records with certain values in it.
#[derive(Debug, Default)]
pub(crate) struct EqualityIndex {
    fields: HashMap<usize, Postings>,
}

#[derive(Debug, Default)]
struct Postings {
    texts: HashMap<Box<str>, Vec<EntryId>>,
    numbers: HashMap<CanonicalNumber, Vec<EntryId>>,
    booleans: [Vec<EntryId>; 2],
}

impl EqualityIndex {
    /// How many queries share these values already.
    pub(crate) fn crowd(&self, slot: usize, keys: &[Key]) -> usize {
        let Some(postings) = self.fields.get(&slot) else {
            return 0;
        };
        keys.iter().map(|key| postings.of(key).len()).sum()
    }

    pub(crate) fn insert(&mut self, slot: usize, keys: &[Key], entry: EntryId) {
        let postings = self.fields.entry(slot).or_default();
        for key in keys {
            postings.of_mut(key).push(entry);
        }
    }

    pub(crate) fn remove(&mut self, slot: usize, keys: &[Key], entry: EntryId) {
        let Some(postings) = self.fields.get_mut(&slot) else {
            return;
        };
        for key in keys {
            let entries = postings.of_mut(key);
            if let Some(position) = entries.iter().position(|known| *known == entry) {
                entries.swap_remove(position);
            }
            if entries.is_empty() {
                postings.forget(key);
            }
        }
        if postings.is_empty() {
            self.fields.remove(&slot);
        }
    }

    /// The fields that have to be looked at.
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        self.fields.keys().copied()
    }

    /// The queries that need `value` in the field.
    pub(crate) fn candidates(&self, slot: usize, value: &Value<'_>) -> &[EntryId] {
        let Some(postings) = self.fields.get(&slot) else {
            return &[];
        };
        let entries = match value {
            Value::Text(text) => postings.texts.get(text.as_ref()),
            Value::Integer(number) => postings.numbers.get(&CanonicalNumber::Integer(*number)),
            Value::Double(number) => postings.numbers.get(&CanonicalNumber::of_double(*number)),
            Value::Boolean(value) => Some(&postings.booleans[usize::from(*value)]),
            Value::Null | Value::Nested => None,
        };
        entries.map_or(&[], Vec::as_slice)
    }
}

impl Postings {
    fn of(&self, key: &Key) -> &[EntryId] {
        let entries = match key {
            Key::Text(text) => self.texts.get(text),
            Key::Number(number) => self.numbers.get(number),
            Key::Boolean(value) => Some(&self.booleans[usize::from(*value)]),
        };
        entries.map_or(&[], Vec::as_slice)
    }

    fn of_mut(&mut self, key: &Key) -> &mut Vec<EntryId> {
        match key {
            Key::Text(text) => self.texts.entry(text.clone()).or_default(),
            Key::Number(number) => self.numbers.entry(*number).or_default(),
            Key::Boolean(value) => &mut self.booleans[usize::from(*value)],
        }
    }

    fn forget(&mut self, key: &Key) {
        match key {
            Key::Text(text) => drop(self.texts.remove(text)),
            Key::Number(number) => drop(self.numbers.remove(number)),
            Key::Boolean(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.numbers.is_empty() && self.booleans.iter().all(Vec::is_empty)
    }
}
