//! Attributes that a mapping computes from a measurement.

use std::sync::Arc;

use millstream_columns::{ColumnsOf, Value};
use millstream_types::iso_time;
use serde_json::{Map, Value as Json};

use super::expressions::Expressions;
use super::rules::check;
use crate::model::content::{canonical, kind_of};
use crate::model::entity::{Attribute, DATE_EXPIRES, IGNORE_TYPE, Items};
use crate::model::geometry;
use crate::model::request_body::{UNRESTRICTED, attribute_of_mapping};
use crate::model::scalar::is_date;
use crate::model::update;

const POINT: &str = "geo:json";

/// An attribute and its expressions.
#[derive(Debug)]
pub(super) struct Computed {
    name: Arc<str>,
    /// `None`: the type of the value.
    kind: Option<Arc<str>>,
    metadata: Items,
    source: ValueSource,
}

#[derive(Debug)]
enum ValueSource {
    /// The index of the value's expression.
    Value(usize),
    /// Indexes of longitude and latitude.
    Point(usize, usize),
}

impl Computed {
    /// Reads `attributes.<name>`: an expression, or an object with `value` (an expression) or
    /// `point` (two), `type` and `metadata`.
    pub(super) fn read(name: &str, written: Json, expressions: &mut Expressions<'_>) -> Result<Self, String> {
        let at = format!("attributes.{name}");
        let mut members = match written {
            Json::String(text) => Map::from_iter([("value".to_owned(), Json::String(text))]),
            Json::Object(members) => members,
            other => {
                return Err(format!("{at} is {other}: it must be an expression, or an object with value or point"));
            }
        };
        let (value, point) = (members.shift_remove("value"), members.shift_remove("point"));
        let (source, default) = match (value, point) {
            (Some(Json::String(text)), None) => (ValueSource::Value(expressions.add((&at, 0), &text)?), None),
            (None, Some(Json::Array(both))) => (point_of(&at, &both, expressions)?, Some(POINT)),
            _ => return Err(format!("{at} needs one of value, an expression, and point, [longitude, latitude]")),
        };
        let is_typed = members.contains_key("type") || name == DATE_EXPIRES;
        // The rest is read like any attribute, beside a valid placeholder value.
        let any = if name == DATE_EXPIRES { Json::from("1970-01-01") } else { Json::Null };
        members.insert("value".to_owned(), any);
        let given = attribute_of_mapping(name, Json::Object(members));
        let shape = given.and_then(update::create).map_err(|refusal| format!("{at}: {}", refusal.description))?;
        let Some(shape) = shape else { return Err(format!("{at} cannot be computed")) };
        let kind = if is_typed { Some(shape.kind) } else { default.map(Into::into) };
        Ok(Self { name: shape.name, kind, metadata: shape.metadata, source })
    }

    /// The reason why it never has a value.
    pub(super) fn flaw(&self) -> Option<String> {
        let (ValueSource::Point(..), Some(kind)) = (&self.source, &self.kind) else { return None };
        let why = canonical(kind, &point_at([0.0, 0.0])).err()?;
        Some(format!("attributes.{}: a point is none of type '{kind}': {why}; leave the type out", self.name))
    }

    /// The name, if the attribute is a location.
    pub(super) fn location(&self) -> Option<&str> {
        let is_geo = self.kind.as_deref().is_some_and(geometry::is_geo);
        let is_ignored = self.metadata.iter().any(|item| item.is_set(IGNORE_TYPE));
        (is_geo && !is_ignored).then_some(&*self.name)
    }

    /// The attribute of a record; `None` if the expression is NULL.
    ///
    /// # Errors
    /// Why it has to be left out.
    pub(super) fn attribute(&self, of: &ColumnsOf<'_, '_>, measured: &Items) -> Result<Option<Attribute>, String> {
        let at = |why: String| format!("attributes.{}: {why}", self.name);
        let value = match self.source {
            ValueSource::Value(place) => self.value(of, place),
            ValueSource::Point(longitude, latitude) => point(of, longitude, latitude),
        };
        let value = value.map_err(at)?;
        if value.is_null() {
            return Ok(None);
        }
        let kind = self.kind.clone().unwrap_or_else(|| kind_of(&value).into());
        if &*kind != UNRESTRICTED {
            check(&self.name, &value)?;
        }
        let value = canonical(&kind, &value).map_err(at)?;
        let metadata = match self.metadata.is_empty() {
            true => measured.clone(),
            false => self.metadata.iter().chain(measured.iter()).cloned().collect(),
        };
        Ok(Some(Attribute::new(self.name.clone(), kind, value, metadata)))
    }

    /// The value; as a date, a number is milliseconds since 1970.
    fn value(&self, of: &ColumnsOf<'_, '_>, place: usize) -> Result<Json, String> {
        let value = of.value(place).map_err(|failure| failure.to_string())?;
        if let (Value::Integer(at_ms), true) = (&value, self.kind.as_deref().is_some_and(is_date)) {
            return Ok(iso_time(*at_ms).into());
        }
        let mut json = Vec::new();
        value.write_json(&mut json);
        serde_json::from_slice(&json).map_err(|error| error.to_string())
    }
}

fn point_of(at: &str, both: &[Json], expressions: &mut Expressions<'_>) -> Result<ValueSource, String> {
    let [Json::String(longitude), Json::String(latitude)] = both else {
        return Err(format!("{at}.point must be two expressions, [longitude, latitude]"));
    };
    let longitude = expressions.add((&format!("{at}.point[0]"), 0), longitude)?;
    Ok(ValueSource::Point(longitude, expressions.add((&format!("{at}.point[1]"), 0), latitude)?))
}

/// The point; null where one of its expressions is NULL.
fn point(of: &ColumnsOf<'_, '_>, longitude: usize, latitude: usize) -> Result<Json, String> {
    let mut coordinates = [0.0; 2];
    for (coordinate, place) in coordinates.iter_mut().zip([longitude, latitude]) {
        match of.value(place).map_err(|failure| failure.to_string())? {
            Value::Null => return Ok(Json::Null),
            value => match value.as_double() {
                Some(degrees) => *coordinate = degrees,
                None => return Err("a coordinate is no number".to_owned()),
            },
        }
    }
    Ok(point_at(coordinates))
}

fn point_at(coordinates: [f64; 2]) -> Json {
    serde_json::json!({"type": "Point", "coordinates": coordinates})
}
