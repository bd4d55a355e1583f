//! What a request gives as an attribute's type and value: all of it, the value alone, or an operator on what is there.

use std::sync::Arc;

use millstream_types::iso_time;
use serde_json::Value;

use crate::entity::{Attribute, DATE_EXPIRES, IGNORE_TYPE};
use crate::given::kind_of;
use crate::operator::Operator;
use crate::query::is_date;
use crate::refusal::{Name, Refusal};
use crate::{datetime, geometry, json};

/// Type and value as given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    /// Both; the value as canonical JSON text.
    Whole { kind: Arc<str>, value: Arc<str> },
    /// The value; the type stays.
    Value(Value),
    /// What is made of the value that is there; the type stays unless one is given.
    Operator { kind: Option<Arc<str>>, operator: Operator },
}

/// A type and a value as canonical JSON text.
pub(crate) type KindAndValue = (Arc<str>, Arc<str>);

impl Content {
    /// Bytes that it takes, about.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Whole { kind, value } => kind.len() + value.len(),
            Self::Value(value) => json::text(value).len(),
            Self::Operator { .. } => size_of::<Operator>(),
        }
    }

    /// The type, if one is given.
    pub(crate) fn kind(&self) -> Option<&str> {
        match self {
            Self::Whole { kind, .. } => Some(kind),
            Self::Operator { kind, .. } => kind.as_deref(),
            Self::Value(_) => None,
        }
    }

    /// What the attribute `name` becomes; none if it is not to be. Refused if it does not fit what is there.
    pub(crate) fn resolved(self, name: &str, known: Option<&Attribute>) -> Result<Option<KindAndValue>, Refusal> {
        let unfit = |why: String| {
            Refusal::new(Name::Unprocessable, format!("attribute '{name}': {why}; nothing was changed: send what fits"))
        };
        let (kind, value) = match self {
            Self::Whole { kind, value } => return Ok(Some((kind, value))),
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
        let value = match known.is_some_and(|known| known.is_set(IGNORE_TYPE)) && geometry::is_geo(&kind) {
            true => json::text(&value),
            false => canonical(&kind, &value).map_err(unfit)?,
        };
        Ok(Some((kind, value)))
    }
}

/// The canonical text of a value of type `kind`; the error says why it is none of that type.
pub(crate) fn canonical(kind: &str, value: &Value) -> Result<Arc<str>, String> {
    if value.is_null() {
        return Ok(json::text(value));
    }
    if geometry::is_geo(kind) {
        geometry::read(kind, value).map_err(|why| format!("the value {value} is no {kind}: {why}"))?;
    }
    if !is_date(kind) {
        return Ok(json::text(value));
    }
    match value.as_str().and_then(datetime::parse) {
        Some(at_ms) => Ok(format!("\"{}\"", iso_time(at_ms)).into()),
        None => Err(format!("the value {value} is no {kind}: write YYYY-MM-DD, or YYYY-MM-DDThh:mm:ss.sssZ")),
    }
}
