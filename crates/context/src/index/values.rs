//! The values of one attribute in a persistent ordered set: built on the first query and kept up to date afterwards.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use crate::model::entity::{Attribute, ListPosition};
use crate::model::scalar::{PathValue, Scalar};

/// A scalar, ordered by kind, then by value.
#[derive(Debug, Clone)]
pub(crate) enum IndexValue {
    Null,
    Bool(bool),
    Number(f64),
    Date(i64),
    /// A JSON string without its quotes and without escapes; shared with the attribute where possible.
    Text(Arc<str>),
    /// The upper bound: it sorts above all other values.
    End,
}

impl IndexValue {
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

    /// The value of a filter's scalar.
    pub(crate) fn of(scalar: &Scalar<'_>) -> Self {
        match scalar {
            Scalar::Null => Self::Null,
            Scalar::Bool(value) => Self::Bool(*value),
            Scalar::Number(number) => Self::Number(*number),
            Scalar::Date(at_ms) => Self::Date(*at_ms),
            Scalar::Text(text) => Self::Text(format!("\"{text}\"").into()),
        }
    }

    /// The bounds of all values of this kind.
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

impl Ord for IndexValue {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            // Zero and negative zero are one value.
            (Self::Number(a), Self::Number(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
            (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
            (Self::Text(a), Self::Text(b)) => inner(a).cmp(inner(b)),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for IndexValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for IndexValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for IndexValue {}

/// The bytes between the quotes.
fn inner(text: &str) -> &[u8] {
    text.as_bytes().get(1..text.len().saturating_sub(1)).unwrap_or_default()
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    /// All scalars; of an array, each scalar element.
    entries: OrdSet<(IndexValue, Option<ListPosition>)>,
    /// Progress of the index; `Whole` once it is complete.
    pub(crate) built: Built,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Built {
    /// Entities up to this position are indexed.
    UpTo(ListPosition),
    #[default]
    Not,
    Whole,
}

impl Built {
    /// The entity at `place` is indexed.
    pub(crate) fn has(&self, place: &ListPosition) -> bool {
        match self {
            Self::Not => false,
            Self::UpTo(last) => place <= last,
            Self::Whole => true,
        }
    }
}

impl Values {
    pub(crate) fn insert(&mut self, attribute: &Attribute, place: &ListPosition) {
        for value in values_of(attribute) {
            self.entries.insert((value, Some(place.clone())));
        }
    }

    pub(crate) fn remove(&mut self, attribute: &Attribute, place: &ListPosition) {
        for value in values_of(attribute) {
            self.entries.remove(&(value, Some(place.clone())));
        }
    }

    /// Positions with a value from `from` to `to`, by value, then by creation.
    pub(crate) fn between(&self, from: &IndexValue, to: Bound<&IndexValue>) -> impl Iterator<Item = &ListPosition> {
        let to = to.cloned();
        let range = (Bound::Included((from.clone(), None)), Bound::Unbounded);
        let within = move |value: &IndexValue| match &to {
            Bound::Included(last) => value <= last,
            Bound::Excluded(end) => value < end,
            Bound::Unbounded => true,
        };
        let entries = self.entries.range::<_, (IndexValue, Option<ListPosition>)>(range);
        entries.take_while(move |(value, _)| within(value)).filter_map(|(_, place)| place.as_ref())
    }
}

/// The scalars of an attribute's value.
fn values_of(attribute: &Attribute) -> Vec<IndexValue> {
    match PathValue::of_text(&attribute.kind, &attribute.value) {
        PathValue::One(Scalar::Text(_)) if !attribute.value.contains('\\') => {
            vec![IndexValue::Text(attribute.value.clone())]
        }
        PathValue::One(scalar) => vec![IndexValue::of(&scalar)],
        PathValue::Many(scalars) => scalars.iter().map(IndexValue::of).collect(),
        PathValue::Object | PathValue::NullDate => Vec::new(),
    }
}
