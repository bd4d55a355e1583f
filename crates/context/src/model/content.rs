//! The type and value of an attribute in a request: both, the value alone, or an update operator.

use std::sync::Arc;

use millstream_types::iso_time;
use serde_json::Value;

use crate::model::datetime;
use crate::model::entity::{Attribute, DATE_EXPIRES};
use crate::model::geometry;
use crate::model::json;
use crate::model::operator::UpdateOperator;
use crate::model::scalar::is_date;
use crate::refusal::{ErrorName, Refusal};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AttributeContent {
    /// Type and value; the value as canonical JSON text.
    Whole { kind: Arc<str>, value: Arc<str> },
    /// A location type with a value that is no geometry. Allowed as plain data if the attribute ignores its type.
    NoPlace { kind: Arc<str>, value: Arc<str>, why: String },
    /// The value alone; the attribute keeps its type.
    Value(Value),
    /// An update operator; the attribute keeps its type unless `kind` is given.
    Operator { kind: Option<Arc<str>>, operator: UpdateOperator },
}

/// A type and a value as canonical JSON text.
pub(crate) type KindAndValue = (Arc<str>, Arc<str>);

impl AttributeContent {
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Whole { kind, value } => kind.len() + value.len(),
            Self::NoPlace { kind, value, why } => kind.len() + value.len() + why.len(),
            Self::Value(value) => json::text(value).len(),
            Self::Operator { .. } => size_of::<UpdateOperator>(),
        }
    }

    pub(crate) fn kind(&self) -> Option<&str> {
        match self {
            Self::Whole { kind, .. } | Self::NoPlace { kind, .. } => Some(kind),
            Self::Operator { kind, .. } => kind.as_deref(),
            Self::Value(_) => None,
        }
    }

    /// The resulting type and value of the attribute `name`; `None` if it is not created. Refuses an operator
    /// that does not fit `known`.
    pub(crate) fn resolved(self, name: &str, known: Option<&Attribute>) -> Result<Option<KindAndValue>, Refusal> {
        let unfit = |why: String| {
            Refusal::new(
                ErrorName::Unprocessable,
                format!("attribute '{name}': {why}; nothing was changed: send what fits"),
            )
        };
        let (kind, value) = match self {
            Self::Whole { kind, value } => return Ok(Some((kind, value))),
            Self::NoPlace { kind, value, why } => {
                return if known.is_some_and(Attribute::ignores_type) {
                    Ok(Some((kind, value)))
                } else {
                    Err(unfit(why))
                };
            }
            Self::Value(value) => (known.map(|known| known.kind.clone()), value),
            Self::Operator { kind, operator } => {
                let kind = kind.or_else(|| known.map(|known| known.kind.clone()));
                let is_date = kind.as_deref().is_some_and(is_date);
                let made = match known {
                    Some(known) => operator.of(json::parsed(&known.value), is_date).map(Some),
                    None => operator.of_nothing(is_date),
                };
                match made.map_err(unfit)? {
                    Some(value) => (kind, value),
                    None => return Ok(None),
                }
            }
        };
        if name == DATE_EXPIRES && value.is_null() {
            return Err(unfit("it would be null, which is no point in time".to_owned()));
        }
        let kind = kind.unwrap_or_else(|| kind_of(&value).into());
        let value = match known.is_some_and(Attribute::ignores_type) && geometry::is_geo(&kind) {
            true => json::text(&value),
            false => canonical(&kind, &value).map_err(unfit)?,
        };
        Ok(Some((kind, value)))
    }
}

/// The default type of a value.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "None",
        Value::Bool(_) => "Boolean",
        Value::Number(_) => "Number",
        Value::String(_) => "Text",
        Value::Array(_) | Value::Object(_) => "StructuredValue",
    }
}

/// The canonical text of a value of type `kind`; the error says why the value does not fit the type.
pub(crate) fn canonical(kind: &str, value: &Value) -> Result<Arc<str>, String> {
    if value.is_null() {
        return Ok(json::text(value));
    }
    if geometry::is_geo(kind) {
        geometry::check(kind, value).map_err(|why| format!("the value {value} is no {kind}: {why}"))?;
    }
    if !is_date(kind) {
        return Ok(json::text(value));
    }
    match value.as_str().and_then(datetime::parse) {
        Some(at_ms) => Ok(format!("\"{}\"", iso_time(at_ms)).into()),
        None => Err(format!("the value {value} is no {kind}: write YYYY-MM-DD, or YYYY-MM-DDThh:mm:ss.sssZ")),
    }
}
