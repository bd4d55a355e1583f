//! What is demanded of an entity beside its id and type.

use serde_json::{Map, Value};

use crate::entity::Entity;
use crate::query::{Expression, GeoQuery};
use crate::refusal::Refusal;

/// The members of an `expression`, which are parameters of a list as well.
pub(crate) const CRITERIA: [&str; 5] = ["q", "mq", "georel", "geometry", "coords"];

/// All that is given must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Criteria {
    /// About attributes.
    pub(crate) q: Option<Expression>,
    /// About metadata.
    pub(crate) mq: Option<Expression>,
    /// About its location.
    pub(crate) geo: Option<GeoQuery>,
    /// Attributes that it has; all of them.
    pub(crate) has: Vec<String>,
}

impl Criteria {
    /// Reads the criteria that `given` has under their names.
    pub(crate) fn read<'a>(given: impl Fn(&str) -> Option<&'a str>) -> Result<Self, Refusal> {
        let q = given("q").map(Expression::of_q).transpose()?;
        let mq = given("mq").map(Expression::of_mq).transpose()?;
        let geo = GeoQuery::read(given("georel"), given("geometry"), given("coords"))?;
        Ok(Self { q, mq, geo, has: Vec::new() })
    }

    /// Reads an `expression` in a body.
    pub(crate) fn of_json(expression: &Map<String, Value>) -> Result<Self, Refusal> {
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
        Self::read(|name| expression.get(name).and_then(Value::as_str))
    }

    /// Whether nothing is demanded.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether `entity` has all of it.
    pub(crate) fn matches(&self, entity: &Entity) -> bool {
        self.has.iter().all(|name| entity.attribute(name).is_some())
            && self.q.as_ref().is_none_or(|q| q.matches(entity))
            && self.mq.as_ref().is_none_or(|mq| mq.matches(entity))
            && self.geo.as_ref().is_none_or(|geo| geo.matches(entity))
    }
}
