//! Locations: parses GeoJSON and NGSI's older forms into one geometry type. x is longitude, y latitude.

use geo::{BoundingRect, Coord, Geometry, LineString, MultiLineString, MultiPoint, MultiPolygon, Point, Polygon, Rect};
use serde_json::Value;

pub(crate) const GEO_JSON: &str = "geo:json";

/// The type is one of the location types that GeoJSON replaces.
pub(crate) fn is_deprecated(kind: &str) -> bool {
    kind != GEO_JSON && is_geo(kind)
}

pub(crate) fn is_geo(kind: &str) -> bool {
    matches!(kind, GEO_JSON | "geo:point" | "geo:line" | "geo:box" | "geo:polygon")
}

/// Parses the value of an attribute of type `kind`; the error says what is wrong with it.
pub(crate) fn read(kind: &str, value: &Value) -> Result<Geometry, String> {
    let texts = || match value {
        Value::Array(items) => items.iter().map(pair_of).collect::<Result<Vec<_>, _>>(),
        _ => Err("it must be an array of texts \"latitude, longitude\"".to_owned()),
    };
    match kind {
        "geo:point" => Ok(Geometry::Point(pair_of(value)?.into())),
        "geo:line" => line(texts()?),
        "geo:box" => bounds(&texts()?),
        "geo:polygon" => polygon(vec![texts()?]),
        _ => geo_json(shown(value)?),
    }
}

/// Checks a value that a request sends. A box has an area; stored ones may have none.
pub(crate) fn check(kind: &str, value: &Value) -> Result<(), String> {
    let given = read(kind, value)?;
    let is_flat = |area: Rect| area.width() == 0.0 || area.height() == 0.0;
    if kind == "geo:box" && given.bounding_rect().is_some_and(is_flat) {
        return Err("the corners of a box must differ in latitude and in longitude".to_owned());
    }
    Ok(())
}

/// The geometry within a `Feature` or a `FeatureCollection` of one; otherwise the value itself.
pub(crate) fn shown(value: &Value) -> Result<&Value, String> {
    match value["type"].as_str() {
        Some("Feature") => value.get("geometry").ok_or_else(|| "a Feature needs a member geometry".to_owned()),
        Some("FeatureCollection") => match value["features"].as_array().map(Vec::as_slice) {
            Some([feature]) if feature["type"] == "Feature" => shown(feature),
            _ => Err("a FeatureCollection must have exactly one Feature".to_owned()),
        },
        _ => Ok(value),
    }
}

fn geo_json(value: &Value) -> Result<Geometry, String> {
    let coordinates = &value["coordinates"];
    let lines = || array(coordinates)?.iter().map(positions).collect::<Result<Vec<_>, _>>();
    match value["type"].as_str() {
        Some("Point") => Ok(Geometry::Point(position(coordinates)?.into())),
        Some("MultiPoint") => Ok(Geometry::MultiPoint(MultiPoint::from(not_empty(positions(coordinates)?)?))),
        Some("LineString") => line(positions(coordinates)?),
        Some("MultiLineString") => {
            let lines = lines()?.into_iter().map(line_string).collect::<Result<Vec<_>, _>>()?;
            Ok(Geometry::MultiLineString(MultiLineString(not_empty(lines)?)))
        }
        Some("Polygon") => polygon(lines()?),
        Some("MultiPolygon") => {
            let rings = |polygon: &Value| array(polygon)?.iter().map(positions).collect::<Result<Vec<_>, _>>();
            let polygons = array(coordinates)?.iter().map(|one| polygon_of(rings(one)?));
            let polygons = polygons.collect::<Result<Vec<_>, String>>()?;
            Ok(Geometry::MultiPolygon(MultiPolygon(not_empty(polygons)?)))
        }
        Some(other) => Err(format!(
            "type {other} is none of Point, MultiPoint, LineString, MultiLineString, Polygon and MultiPolygon"
        )),
        None => Err("it must be an object with type and coordinates".to_owned()),
    }
}

pub(crate) fn line(positions: Vec<Coord>) -> Result<Geometry, String> {
    line_string(positions).map(Geometry::LineString)
}

/// A rectangle of two opposite corners.
pub(crate) fn bounds(corners: &[Coord]) -> Result<Geometry, String> {
    match *corners {
        [a, b] => Ok(Geometry::Polygon(Rect::new(a, b).to_polygon())),
        _ => Err(format!("a box has 2 corners and not {}", corners.len())),
    }
}

/// A polygon of rings with at least four positions each; the last equals the first.
pub(crate) fn polygon(rings: Vec<Vec<Coord>>) -> Result<Geometry, String> {
    polygon_of(rings).map(Geometry::Polygon)
}

/// Checks the ranges of longitude and latitude.
pub(crate) fn coord(longitude: f64, latitude: f64) -> Result<Coord, String> {
    if !(-180.0..=180.0).contains(&longitude) || !(-90.0..=90.0).contains(&latitude) {
        return Err(format!(
            "longitude {longitude}, latitude {latitude} is out of range: use -180 to 180, and -90 to 90"
        ));
    }
    Ok(Coord { x: longitude, y: latitude })
}

pub(crate) fn pair(text: &str) -> Result<Coord, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let both = text.split_once(',').and_then(|(latitude, longitude)| Some((number(longitude)?, number(latitude)?)));
    let (longitude, latitude) = both.ok_or_else(|| format!("'{text}' is no pair latitude,longitude"))?;
    coord(longitude, latitude)
}

fn pair_of(value: &Value) -> Result<Coord, String> {
    pair(value.as_str().ok_or_else(|| format!("{value} is no text \"latitude, longitude\""))?)
}

fn polygon_of(rings: Vec<Vec<Coord>>) -> Result<Polygon, String> {
    let mut rings = rings.into_iter().map(|ring| match ring.as_slice() {
        [first, _, _, .., last] if first == last => Ok(LineString(ring)),
        _ => Err(format!("a polygon's ring has at least 4 positions, the last as the first, and not {}", ring.len())),
    });
    let outer = rings.next().ok_or("a polygon needs a ring")??;
    Ok(Polygon::new(outer, rings.collect::<Result<_, _>>()?))
}

fn line_string(positions: Vec<Coord>) -> Result<LineString, String> {
    if positions.len() < 2 {
        return Err(format!("a line has at least 2 positions and not {}", positions.len()));
    }
    Ok(LineString(positions))
}

fn positions(value: &Value) -> Result<Vec<Coord>, String> {
    array(value)?.iter().map(position).collect()
}

/// Parses a GeoJSON position: longitude first; an altitude is ignored.
fn position(value: &Value) -> Result<Coord, String> {
    match value.as_array().map(Vec::as_slice) {
        Some([longitude, latitude, ..]) => match (longitude.as_f64(), latitude.as_f64()) {
            (Some(longitude), Some(latitude)) => coord(longitude, latitude),
            _ => Err(format!("{value} is no position [longitude, latitude]")),
        },
        _ => Err(format!("{value} is no position [longitude, latitude]")),
    }
}

fn array(value: &Value) -> Result<&[Value], String> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("coordinates {value} are no array"))
}

fn not_empty<T>(items: Vec<T>) -> Result<Vec<T>, String> {
    if items.is_empty() { Err("coordinates are empty".to_owned()) } else { Ok(items) }
}

pub(crate) fn as_point(geometry: &Geometry) -> Option<Point> {
    match geometry {
        Geometry::Point(point) => Some(*point),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_forms_of_locations_are_read() {
        let square = json!([[[0, 0], [0, 1], [1, 1], [0, 0]]]);
        for (kind, value) in [
            ("geo:point", json!("40.4, -3.7")),
            ("geo:line", json!(["1,2", "3,4"])),
            ("geo:box", json!(["1,2", "3,4"])),
            ("geo:polygon", json!(["0,0", "0,1", "1,1", "0,0"])),
            (GEO_JSON, json!({"type": "Point", "coordinates": [-3.7, 40.4]})),
            (GEO_JSON, json!({"type": "Point", "coordinates": [-3.7, 40.4, 600]})),
            (GEO_JSON, json!({"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]})),
            (GEO_JSON, json!({"type": "LineString", "coordinates": [[1, 2], [3, 4]]})),
            (GEO_JSON, json!({"type": "MultiLineString", "coordinates": [[[1, 2], [3, 4]]]})),
            (GEO_JSON, json!({"type": "Polygon", "coordinates": square})),
            (GEO_JSON, json!({"type": "MultiPolygon", "coordinates": [square]})),
            (GEO_JSON, json!({"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}})),
            (
                GEO_JSON,
                json!({"type": "FeatureCollection", "features": [
                    {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}}]}),
            ),
        ] {
            assert!(is_geo(kind));
            assert_eq!(read(kind, &value).map(|_| ()), Ok(()), "{kind} {value}");
        }
        // The old form has latitude first, GeoJSON longitude.
        let old = read("geo:point", &json!("40.4, -3.7")).unwrap();
        assert_eq!(old, read(GEO_JSON, &json!({"type": "Point", "coordinates": [-3.7, 40.4]})).unwrap());
    }

    #[test]
    fn an_invalid_location_is_refused() {
        let feature = json!({"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}});
        for (kind, value, why) in [
            ("geo:point", json!("40.4"), "no pair"),
            ("geo:point", json!(7), "no text"),
            ("geo:point", json!("91,0"), "out of range"),
            ("geo:point", json!("nan,0"), "out of range"),
            ("geo:line", json!(["1,2"]), "at least 2"),
            ("geo:line", json!("1,2"), "array"),
            ("geo:box", json!(["1,2"]), "2 corners"),
            ("geo:polygon", json!(["0,0", "0,1", "1,1"]), "at least 4"),
            ("geo:polygon", json!(["0,0", "0,1", "1,1", "2,2"]), "the last as the first"),
            (GEO_JSON, json!("x"), "type and coordinates"),
            (GEO_JSON, json!({"type": "Point"}), "no position"),
            (GEO_JSON, json!({"type": "Point", "coordinates": [0]}), "no position"),
            (GEO_JSON, json!({"type": "Point", "coordinates": ["0", "0"]}), "no position"),
            (GEO_JSON, json!({"type": "Point", "coordinates": [181, 0]}), "out of range"),
            (GEO_JSON, json!({"type": "Polygon", "coordinates": []}), "needs a ring"),
            (GEO_JSON, json!({"type": "MultiPoint", "coordinates": []}), "empty"),
            (GEO_JSON, json!({"type": "GeometryCollection", "geometries": []}), "GeometryCollection"),
            (GEO_JSON, json!({"type": "FeatureCollection", "features": [feature, feature]}), "exactly one"),
            (GEO_JSON, json!({"type": "FeatureCollection", "features": []}), "exactly one"),
        ] {
            let refused = read(kind, &value).unwrap_err();
            assert!(refused.contains(why), "{kind} {value}: {refused}");
        }
    }
}
