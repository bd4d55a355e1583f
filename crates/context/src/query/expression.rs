//! `q` and `mq`: statements about attributes or their metadata, all of which must hold.

use serde_json::Value;

use crate::entity::{Attribute, Entity, Metadata};
use crate::query::Pattern;
use crate::query::scalar::{Found, Scalar};

/// A parsed `q` or `mq`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expression {
    pub(crate) statements: Vec<Statement>,
}

/// One demand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    pub(crate) path: Path,
    pub(crate) test: Test,
}

/// What a statement is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) attribute: String,
    /// For `mq`.
    pub(crate) metadata: Option<String>,
    /// Keys into a structured value.
    pub(crate) keys: Vec<String>,
}

/// What is demanded of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    /// It is there.
    Exists,
    /// It is not there.
    Absent,
    /// It, or an element of it, is among these.
    Equal(Choice),
    /// It is there, and neither it nor an element of it is among these.
    NotEqual(Choice),
    /// It is larger than this; or equal, if that is allowed.
    Above(Scalar<'static>, Edge),
    /// It is smaller.
    Below(Scalar<'static>, Edge),
    /// It is a string that contains a match.
    Like(Pattern),
}

/// Whether the bound itself is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// `>=`, `<=`.
    Included,
    /// `>`, `<`.
    Excluded,
}

/// Values that are named one by one or by their range.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    /// Any of these.
    Any(Vec<Scalar<'static>>),
    /// From the one to the other, both included.
    Range(Scalar<'static>, Scalar<'static>),
}

impl Expression {
    /// Whether all statements hold for `entity`.
    pub(crate) fn matches(&self, entity: &Entity) -> bool {
        self.statements.iter().all(|statement| statement.matches(entity))
    }
}

impl Statement {
    /// Whether it holds for `entity`.
    pub(crate) fn matches(&self, entity: &Entity) -> bool {
        self.path.with(entity, |found| self.test.holds(found))
    }
}

impl Test {
    fn holds(&self, found: Option<&Found<'_>>) -> bool {
        let Some(found) = found else { return matches!(self, Self::Absent) };
        match (self, found) {
            (Self::Exists, _) => true,
            (Self::Absent, _) | (_, Found::NullDate) => false,
            (Self::Equal(choice), found) => choice.has(found),
            (Self::NotEqual(choice), found) => !choice.has(found),
            (Self::Above(bound, edge), Found::One(value)) => {
                value.order(bound).is_some_and(|order| order.is_gt() || (order.is_eq() && *edge == Edge::Included))
            }
            (Self::Below(bound, edge), Found::One(value)) => {
                value.order(bound).is_some_and(|order| order.is_lt() || (order.is_eq() && *edge == Edge::Included))
            }
            (Self::Like(pattern), Found::One(Scalar::Text(text))) => pattern.fits(text),
            (Self::Above(..) | Self::Below(..) | Self::Like(_), _) => false,
        }
    }
}

impl Choice {
    fn has(&self, found: &Found<'_>) -> bool {
        match found {
            Found::One(value) => self.has_value(value),
            Found::Many(values) => values.iter().any(|value| self.has_value(value)),
            Found::Object | Found::NullDate => false,
        }
    }

    fn has_value(&self, value: &Scalar<'_>) -> bool {
        match self {
            Self::Any(values) => values.iter().any(|known| known == value),
            Self::Range(from, to) => {
                value.order(from).is_some_and(|order| order.is_ge())
                    && value.order(to).is_some_and(|order| order.is_le())
            }
        }
    }
}

impl Path {
    /// Hands what it leads to in `entity` to `look`. Built-ins win over users' attributes and metadata of their name.
    fn with<T>(&self, entity: &Entity, look: impl FnOnce(Option<&Found<'_>>) -> T) -> T {
        match &self.metadata {
            None => match entity.built_in(&self.attribute) {
                Some(built_in) => self.within(&built_in.kind, &built_in.value, look),
                None => match entity.attribute(&self.attribute) {
                    Some(Attribute { kind, value, .. }) => self.within(kind, value, look),
                    None => look(None),
                },
            },
            Some(name) => {
                let Some(attribute) = entity.attribute(&self.attribute) else { return look(None) };
                match attribute.built_in(name) {
                    Some(built_in) => self.within(&built_in.kind, &built_in.value, look),
                    None => match attribute.metadata.iter().find(|item| *item.name == **name) {
                        Some(Metadata { kind, value, .. }) => self.within(kind, value, look),
                        None => look(None),
                    },
                }
            }
        }
    }

    fn within<T>(&self, kind: &str, text: &str, look: impl FnOnce(Option<&Found<'_>>) -> T) -> T {
        if self.keys.is_empty() {
            return look(Some(&Found::of_text(kind, text)));
        }
        if !text.starts_with('{') {
            return look(None);
        }
        let Ok(value) = serde_json::from_str::<Value>(text) else { return look(None) };
        let inner = self.keys.iter().try_fold(&value, |value, key| value.get(key.as_str()));
        look(inner.map(Found::of_json).as_ref())
    }
}
