//! `orderBy`: sorts by id, type, attributes or distance; ties by creation, then id.

use std::cmp::Ordering;

use serde_json::Value;

use crate::model::entity::{Entity, ListPosition};
use crate::model::json;
use crate::model::scalar::is_date;
use crate::model::syntax::check_identifier;
use crate::query::GeoQuery;
use crate::refusal::Refusal;

const DISTANCE: &str = "geo:distance";

/// The sort keys before creation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Order(Vec<By>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct By {
    what: What,
    is_reversed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Id,
    Kind,
    Attribute(String),
    Distance,
}

/// Sort key of an entity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Standing {
    ranks: Vec<Rank>,
    place: ListPosition,
}

/// Sort key of a value; kinds are sorted one after the other.
#[derive(Debug, Clone, PartialEq)]
enum Rank {
    Null,
    Number(f64),
    Text(String),
    Object(String),
    Array(String),
    Bool(bool),
}

impl Order {
    /// Reads a list of names; `is_near` allows `geo:distance`.
    pub(crate) fn read(text: &str, is_near: bool) -> Result<Self, Refusal> {
        let mut order: Vec<By> = Vec::new();
        for token in text.split(',') {
            let name = token.strip_prefix('!').unwrap_or(token);
            check_identifier("orderBy:", name)?;
            let what = match name {
                "id" => What::Id,
                "type" => What::Kind,
                DISTANCE if !is_near => {
                    return Err(Refusal::bad("orderBy=geo:distance needs georel=near: add it, or order otherwise"));
                }
                DISTANCE => What::Distance,
                _ => What::Attribute(name.to_owned()),
            };
            if order.iter().any(|known| known.what == what) {
                return Err(Refusal::bad(format!("orderBy names '{name}' twice: each token counts once; remove one")));
            }
            order.push(By { what, is_reversed: token.starts_with('!') });
        }
        Ok(Self(order))
    }

    /// The order is that of creation alone.
    pub(crate) fn is_creation(&self) -> bool {
        self.0.is_empty()
    }

    /// The nearest entities come first.
    pub(crate) fn is_by_distance(&self) -> bool {
        self.0.first().is_some_and(|by| by.what == What::Distance && !by.is_reversed)
    }

    /// The sort key of `entity`.
    pub(crate) fn standing(&self, entity: &Entity, geo: Option<&GeoQuery>) -> Standing {
        Standing { ranks: self.0.iter().map(|by| by.rank(entity, geo)).collect(), place: entity.place() }
    }

    pub(crate) fn compare(&self, a: &Standing, b: &Standing) -> Ordering {
        let ranks = self.0.iter().zip(a.ranks.iter().zip(&b.ranks)).map(|(by, (a, b))| match by.is_reversed {
            true => b.compare(a),
            false => a.compare(b),
        });
        ranks.fold(Ordering::Equal, Ordering::then).then_with(|| a.place.cmp(&b.place))
    }
}

impl By {
    fn rank(&self, entity: &Entity, geo: Option<&GeoQuery>) -> Rank {
        match &self.what {
            What::Id => Rank::Text(entity.key.id.to_string()),
            What::Kind => Rank::Text(entity.key.kind.to_string()),
            What::Distance => {
                geo.and_then(|geo| geo.distance_m(entity)).map_or(Rank::Number(f64::INFINITY), Rank::Number)
            }
            What::Attribute(name) => match entity.built_in(name).or_else(|| entity.attribute(name).cloned()) {
                None => Rank::Null,
                Some(attribute) if is_date(&attribute.kind) => {
                    attribute.as_date().map_or(Rank::Null, |at_ms| Rank::Number(at_ms as f64))
                }
                Some(attribute) => Rank::of(&attribute.value),
            },
        }
    }
}

impl Rank {
    fn of(text: &str) -> Self {
        match json::parsed(text) {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => Self::Number(number.as_f64().unwrap_or_default()),
            Value::String(text) => Self::Text(text),
            Value::Array(_) => Self::Array(text.to_owned()),
            Value::Object(_) => Self::Object(text.to_owned()),
        }
    }

    fn number(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Number(_) => 1,
            Self::Text(_) => 2,
            Self::Object(_) => 3,
            Self::Array(_) => 4,
            Self::Bool(_) => 5,
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) | (Self::Object(a), Self::Object(b)) | (Self::Array(a), Self::Array(b)) => {
                a.cmp(b)
            }
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            _ => self.number().cmp(&other.number()),
        }
    }
}
