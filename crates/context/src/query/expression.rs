//! `q` and `mq`: statements about attributes or their metadata, all of which must hold, and alternatives of such.

use serde_json::Value;

use crate::model::entity::{Attribute, Entity, Metadata};
use crate::model::scalar::{PathValue, Scalar};
use crate::query::Pattern;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Expression {
    pub(crate) statements: Vec<Statement>,
    /// One of each list must hold.
    pub(crate) alternatives: Vec<Vec<Expression>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    pub(crate) path: Path,
    pub(crate) test: Test,
}

/// The left side of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) attribute: String,
    /// The metadata item; set only in `mq`.
    pub(crate) metadata: Option<String>,
    /// Keys into a structured value.
    pub(crate) keys: Vec<String>,
}

/// The condition of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    Exists,
    Absent,
    /// The value, or an element of it, is among these.
    Equal(Choice),
    /// The value exists, and neither it nor an element of it is among these.
    NotEqual(Choice),
    /// The value is above this bound.
    Above(Scalar<'static>, Edge),
    /// The value is below this bound.
    Below(Scalar<'static>, Edge),
    /// The value is a string that contains a match.
    Like(Pattern),
}

/// The bound is included or excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    Included,
    Excluded,
}

/// A list or a range of values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    Any(Vec<Scalar<'static>>),
    /// A range that includes both ends.
    Range(Scalar<'static>, Scalar<'static>),
}

impl Expression {
    /// All statements hold for `entity`, and one of each list of alternatives.
    pub(crate) fn matches(&self, entity: &Entity) -> bool {
        let holds = |any: &Vec<Self>| any.iter().any(|expression| expression.matches(entity));
        self.statements.iter().all(|statement| statement.matches(entity)) && self.alternatives.iter().all(holds)
    }

    /// The statements, also those of alternatives.
    pub(crate) fn all_statements(&self) -> Vec<&Statement> {
        let within = self.alternatives.iter().flatten().flat_map(Self::all_statements);
        self.statements.iter().chain(within).collect()
    }
}

impl Statement {
    /// The statement holds for `entity`.
    pub(crate) fn matches(&self, entity: &Entity) -> bool {
        self.path.with(entity, |found| self.test.holds(found))
    }
}

impl Test {
    fn holds(&self, found: Option<&PathValue<'_>>) -> bool {
        let Some(found) = found else { return matches!(self, Self::Absent) };
        match (self, found) {
            (Self::Exists, _) => true,
            (Self::Absent, _) | (_, PathValue::NullDate) => false,
            (Self::Equal(choice), found) => choice.has(found),
            (Self::NotEqual(choice), found) => !choice.has(found),
            (Self::Above(bound, edge), PathValue::One(value)) => {
                value.order(bound).is_some_and(|order| order.is_gt() || (order.is_eq() && *edge == Edge::Included))
            }
            (Self::Below(bound, edge), PathValue::One(value)) => {
                value.order(bound).is_some_and(|order| order.is_lt() || (order.is_eq() && *edge == Edge::Included))
            }
            (Self::Like(pattern), PathValue::One(Scalar::Text(text))) => pattern.fits(text),
            (Self::Above(..) | Self::Below(..) | Self::Like(_), _) => false,
        }
    }
}

impl Choice {
    fn has(&self, found: &PathValue<'_>) -> bool {
        match found {
            PathValue::One(value) => self.has_value(value),
            PathValue::Many(values) => values.iter().any(|value| self.has_value(value)),
            PathValue::Object | PathValue::NullDate => false,
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
    /// Resolves the path in `entity` and passes the value to `look`. Built-ins win over users' attributes and
    /// metadata of the same name.
    fn with<T>(&self, entity: &Entity, look: impl FnOnce(Option<&PathValue<'_>>) -> T) -> T {
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

    fn within<T>(&self, kind: &str, text: &str, look: impl FnOnce(Option<&PathValue<'_>>) -> T) -> T {
        if self.keys.is_empty() {
            return look(Some(&PathValue::of_text(kind, text)));
        }
        if !text.starts_with('{') {
            return look(None);
        }
        let Ok(value) = serde_json::from_str::<Value>(text) else { return look(None) };
        let inner = self.keys.iter().try_fold(&value, |value, key| value.get(key.as_str()));
        look(inner.map(PathValue::of_json).as_ref())
    }
}
