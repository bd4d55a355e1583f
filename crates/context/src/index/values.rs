//! The values of one attribute in a persistent ordered set: built once it is queried, kept up to date from then on.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use crate::entity::{Attribute, Place};
use crate::query::{Found, Scalar};

/// A scalar as it is ordered: by kind, then by value.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Date(i64),
    /// A JSON string with nothing to unescape between its quotes; shared with the attribute where that is so.
    Text(Arc<str>),
    /// Above every other.
    End,
}

impl Value {
    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Number(_) => 2,
            Self::Date(_) => 3,
            Self::Text(_) => 4,
            Self::End => 5,
        }
    }

    /// As a filter names it.
    pub(crate) fn of(scalar: &Scalar<'_>) -> Self {
        match scalar {
            Scalar::Null => Self::Null,
            Scalar::Bool(value) => Self::Bool(*value),
            Scalar::Number(number) => Self::Number(*number),
            Scalar::Date(at_ms) => Self::Date(*at_ms),
            Scalar::Text(text) => Self::Text(format!("\"{text}\"").into()),
        }
    }

    /// Between which two all values of this one's kind lie.
    pub(crate) fn of_kind(&self) -> (Self, Self) {
        match self {
            Self::Null => (Self::Null, Self::Bool(false)),
            Self::Bool(_) => (Self::Bool(false), Self::Number(f64::NEG_INFINITY)),
            Self::Number(_) => (Self::Number(f64::NEG_INFINITY), Self::Date(i64::MIN)),
            Self::Date(_) => (Self::Date(i64::MIN), Self::Text("\"\"".into())),
            Self::Text(_) | Self::End => (Self::Text("\"\"".into()), Self::End),
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            // Zero is one value, whatever its sign.
            (Self::Number(a), Self::Number(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
            (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
            (Self::Text(a), Self::Text(b)) => inner(a).cmp(inner(b)),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value {}

/// What stands between the quotes.
fn inner(text: &str) -> &[u8] {
    text.as_bytes().get(1..text.len().saturating_sub(1)).unwrap_or_default()
}

/// The index.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    /// Of an array, every element that is a scalar.
    entries: OrdSet<(Value, Option<Place>)>,
    /// Entities up to this place are in it; all, once it is built.
    pub(crate) built: Built,
}

/// How far an index has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Built {
    /// Entities at or before this place are in it.
    UpTo(Place),
    /// Not one.
    #[default]
    Not,
    /// All.
    Whole,
}

impl Built {
    /// Whether an entity at `place` is in the index.
    pub(crate) fn has(&self, place: &Place) -> bool {
        match self {
            Self::Not => false,
            Self::UpTo(last) => place <= last,
            Self::Whole => true,
        }
    }
}

impl Values {
    pub(crate) fn insert(&mut self, attribute: &Attribute, place: &Place) {
        for value in values_of(attribute) {
            self.entries.insert((value, Some(place.clone())));
        }
    }

    pub(crate) fn remove(&mut self, attribute: &Attribute, place: &Place) {
        for value in values_of(attribute) {
            self.entries.remove(&(value, Some(place.clone())));
        }
    }

    /// Places with a value from `from` on and before `to`; those of one value by creation.
    pub(crate) fn between(&self, from: &Value, to: Bound<&Value>) -> impl Iterator<Item = &Place> {
        let to = to.cloned();
        let range = (Bound::Included((from.clone(), None)), Bound::Unbounded);
        let within = move |value: &Value| match &to {
            Bound::Included(last) => value <= last,
            Bound::Excluded(end) => value < end,
            Bound::Unbounded => true,
        };
        let entries = self.entries.range::<_, (Value, Option<Place>)>(range);
        entries.take_while(move |(value, _)| within(value)).filter_map(|(_, place)| place.as_ref())
    }
}

/// What of an attribute's value can be looked up.
fn values_of(attribute: &Attribute) -> Vec<Value> {
    match Found::of_text(&attribute.kind, &attribute.value) {
        Found::One(Scalar::Text(_)) if !attribute.value.contains('\\') => vec![Value::Text(attribute.value.clone())],
        Found::One(scalar) => vec![Value::of(&scalar)],
        Found::Many(scalars) => scalars.iter().map(Value::of).collect(),
        Found::Object | Found::NullDate => Vec::new(),
    }
}
