//! Filter criteria of an entity beside its id and type.

use serde_json::{Map, Value};

use crate::model::entity::Entity;
use crate::query::{Expression, GeoQuery, Rules};
use crate::refusal::Refusal;

/// The members of an `expression`, which are also parameters of a list.
pub(crate) const CRITERIA: [&str; 5] = ["q", "mq", "georel", "geometry", "coords"];

/// All given criteria must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Criteria {
    pub(crate) q: Option<Expression>,
    pub(crate) mq: Option<Expression>,
    pub(crate) geo: Option<GeoQuery>,
    /// The entity must have one of these attributes; an empty list allows all entities.
    pub(crate) has_any: Vec<String>,
}

impl Criteria {
    /// Reads the criteria from named parameters.
    pub(crate) fn read<'a>(rules: Rules, given: impl Fn(&str) -> Option<&'a str>) -> Result<Self, Refusal> {
        let q = given("q").map(|text| Expression::of_q(text, rules)).transpose()?;
        let mq = given("mq").map(|text| Expression::of_mq(text, rules)).transpose()?;
        let geo = GeoQuery::read(rules, given("georel"), given("geometry"), given("coords"))?;
        Ok(Self { q, mq, geo, has_any: Vec::new() })
    }

    pub(crate) fn of_json(rules: Rules, expression: &Map<String, Value>) -> Result<Self, Refusal> {
        if expression.is_empty() {
            let known = CRITERIA.join(", ");
            return Err(Refusal::bad(format!(
                "expression {{}} asks for nothing: give it one of {known}, or leave it out"
            )));
        }
        for (name, value) in expression {
            if !CRITERIA.contains(&name.as_str()) {
                let known = CRITERIA.join(", ");
                return Err(Refusal::bad(format!("expression has a member '{name}': it may have {known}; remove it")));
            }
            match value.as_str() {
                None => return Err(Refusal::bad(format!("{name} {value} of the expression is no string; send one"))),
                Some("") => {
                    return Err(Refusal::bad(format!(
                        "{name} of the expression is empty: give it a value, or leave it out"
                    )));
                }
                Some(_) => {}
            }
        }
        Self::read(rules, |name| expression.get(name).and_then(Value::as_str))
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All criteria hold for `entity`.
    pub(crate) fn matches(&self, entity: &Entity) -> bool {
        (self.has_any.is_empty() || self.has_any.iter().any(|name| entity.attribute(name).is_some()))
            && self.q.as_ref().is_none_or(|q| q.matches(entity))
            && self.mq.as_ref().is_none_or(|mq| mq.matches(entity))
            && self.geo.as_ref().is_none_or(|geo| geo.matches(entity))
    }
}
