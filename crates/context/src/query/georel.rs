//! Geo queries: `georel`, `geometry` and `coords`, tested against an entity's location.

use geo::algorithm::{BoundingRect, Distance, Haversine, HaversineClosestPoint, Intersects, Relate};
use geo::{Closest, Geometry, Point, Rect};

use crate::model::entity::Entity;
use crate::model::geometry;
use crate::query::Rules;
use crate::refusal::{ErrorName, Refusal};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GeoQuery {
    relation: Relation,
    geometry: Geometry,
}

/// The relation between the entity's location and the query's geometry.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Relation {
    /// Distance from a point, in metres.
    Near {
        centre: Point,
        min_m: f64,
        max_m: Option<f64>,
    },
    CoveredBy,
    Intersects,
    Disjoint,
    Equals,
}

/// Metres of a degree of latitude, slightly below the minimum, so that searched areas are never too small.
const DEGREE_MIN_M: f64 = 110_000.0;

impl GeoQuery {
    /// Reads the three parameters; they must come together.
    pub(crate) fn read(
        rules: Rules,
        georel: Option<&str>,
        geometry: Option<&str>,
        coords: Option<&str>,
    ) -> Result<Option<Self>, Refusal> {
        let (georel, geometry, coords) = match (georel, geometry, coords) {
            (None, None, None) => return Ok(None),
            (Some(georel), Some(geometry), Some(coords)) => (georel, geometry, coords),
            _ => {
                return Err(Refusal::bad(
                    "georel, geometry and coords come together: add what is missing, or leave all out",
                ));
            }
        };
        let shape = shape(geometry, coords)
            .map_err(|why| Refusal::bad(format!("geometry '{geometry}' with coords '{coords}': {why}; correct it")))?;
        let relation = relation(georel, geometry, &shape)?;
        if rules == Rules::Sent {
            check_sent(georel, geometry, coords, &shape)?;
        }
        if relation == Relation::CoveredBy && !matches!(shape, Geometry::Polygon(_)) {
            return Err(not_computed(georel, geometry, "nothing but a polygon or a box covers anything"));
        }
        Ok(Some(Self { relation, geometry: shape }))
    }

    /// The entity's location has the relation.
    pub(crate) fn matches(&self, entity: &Entity) -> bool {
        entity.location().is_some_and(|location| self.fits(&location))
    }

    /// Metres from the centre of `near` to the entity's location.
    pub(crate) fn distance_m(&self, entity: &Entity) -> Option<f64> {
        let Relation::Near { centre, .. } = self.relation else { return None };
        Some(distance_m(centre, &entity.location()?))
    }

    pub(crate) fn is_near(&self) -> bool {
        matches!(self.relation, Relation::Near { .. })
    }

    /// The same query with a maximum distance of `radius_m`; `None` unless the relation is `near`.
    pub(crate) fn within(&self, radius_m: f64) -> Option<Self> {
        let Relation::Near { centre, min_m, max_m } = self.relation else { return None };
        let max_m = Some(max_m.map_or(radius_m, |max_m| max_m.min(radius_m)));
        Some(Self { relation: Relation::Near { centre, min_m, max_m }, geometry: self.geometry.clone() })
    }

    /// Rectangles of longitude and latitude that contain all matches; `None` if matches may be anywhere.
    pub(crate) fn areas(&self) -> Option<Vec<Rect>> {
        match self.relation {
            Relation::Disjoint | Relation::Near { max_m: None, .. } => None,
            Relation::Near { centre, max_m: Some(max_m), .. } => circle(centre, max_m),
            Relation::CoveredBy | Relation::Intersects | Relation::Equals => {
                self.geometry.bounding_rect().map(|area| vec![area])
            }
        }
    }

    fn fits(&self, location: &Geometry) -> bool {
        match self.relation {
            Relation::Near { centre, min_m, max_m } => {
                let distance_m = distance_m(centre, location);
                distance_m >= min_m && max_m.is_none_or(|max_m| distance_m <= max_m)
            }
            // A point is covered by geometries that it touches, and equals one at the same position.
            Relation::CoveredBy => match geometry::as_point(location) {
                Some(point) => self.geometry.intersects(&point),
                None => location.relate(&self.geometry).is_coveredby(),
            },
            Relation::Intersects => location.intersects(&self.geometry),
            Relation::Disjoint => !location.intersects(&self.geometry),
            Relation::Equals => match (geometry::as_point(location), geometry::as_point(&self.geometry)) {
                (Some(a), Some(b)) => a == b,
                (None, None) => location.relate(&self.geometry).is_equal_topo(),
                _ => false,
            },
        }
    }
}

fn distance_m(from: Point, to: &Geometry) -> f64 {
    match to {
        Geometry::Point(point) => Haversine.distance(from, *point),
        other if other.intersects(&from) => 0.0,
        other => match other.haversine_closest_point(&from) {
            Closest::Intersection(point) | Closest::SinglePoint(point) => Haversine.distance(from, point),
            Closest::Indeterminate => f64::INFINITY,
        },
    }
}

/// Rectangles around a circle: one, or two on both sides of the date line.
fn circle(centre: Point, radius_m: f64) -> Option<Vec<Rect>> {
    let height = radius_m / DEGREE_MIN_M;
    let (south, north) = (centre.y() - height, centre.y() + height);
    if south <= -89.0 || north >= 89.0 {
        return None;
    }
    let width = height / south.abs().max(north.abs()).to_radians().cos();
    let (west, east) = (centre.x() - width, centre.x() + width);
    let area = |west: f64, east: f64| Rect::new((west, south), (east, north));
    match () {
        () if width >= 180.0 => None,
        () if west < -180.0 => Some(vec![area(-180.0, east), area(west + 360.0, 180.0)]),
        () if east > 180.0 => Some(vec![area(west, 180.0), area(-180.0, east - 360.0)]),
        () => Some(vec![area(west, east)]),
    }
}

fn shape(geometry: &str, coords: &str) -> Result<Geometry, String> {
    let positions = coords.split(';').map(geometry::pair).collect::<Result<Vec<_>, _>>()?;
    match geometry {
        "point" => match positions[..] {
            [position] => Ok(Geometry::Point(position.into())),
            _ => Err(format!("a point has 1 pair and not {}", positions.len())),
        },
        "line" => geometry::line(positions),
        "polygon" => geometry::polygon(vec![positions]),
        "box" => geometry::bounds(&positions),
        _ => Err("use point, line, polygon or box".to_owned()),
    }
}

/// Refuses forms that Orion refuses in requests but that stored subscriptions may have.
fn check_sent(georel: &str, geometry: &str, coords: &str, shape: &Geometry) -> Result<(), Refusal> {
    if georel == "near" {
        return Err(Refusal::bad(
            "georel 'near' has no distance: add maxDistance or minDistance in metres, as in near;maxDistance:1000",
        ));
    }
    let is_flat = |area: Rect| area.width() == 0.0 || area.height() == 0.0;
    if geometry == "box" && shape.bounding_rect().is_some_and(is_flat) {
        return Err(Refusal::bad(format!(
            "geometry 'box' with coords '{coords}' has no area: give two corners that differ in latitude and longitude"
        )));
    }
    Ok(())
}

fn relation(georel: &str, geometry: &str, shape: &Geometry) -> Result<Relation, Refusal> {
    let wrong = |why: &str| Refusal::bad(format!("georel '{georel}': {why}; correct it"));
    let mut parts = georel.split(';');
    let name = parts.next().unwrap_or_default();
    let (mut min_m, mut max_m) = (None, None);
    for modifier in parts {
        let (key, value) =
            modifier.split_once(':').ok_or_else(|| wrong("a modifier is maxDistance:m or minDistance:m"))?;
        let metres = value.parse::<f64>().ok().filter(|metres| metres.is_finite() && *metres >= 0.0);
        let metres = metres.ok_or_else(|| wrong("a distance is a number of metres, not negative"))?;
        let slot = match key {
            "maxDistance" => &mut max_m,
            "minDistance" => &mut min_m,
            _ => return Err(wrong("a modifier is maxDistance:m or minDistance:m")),
        };
        if slot.replace(metres).is_some() {
            return Err(wrong("a modifier is given twice"));
        }
    }
    if name == "near" {
        let centre = geometry::as_point(shape)
            .ok_or_else(|| not_computed(georel, geometry, "distance is measured from a point"))?;
        return Ok(Relation::Near { centre, min_m: min_m.unwrap_or(0.0), max_m });
    }
    if min_m.is_some() || max_m.is_some() {
        return Err(wrong("only near takes a distance"));
    }
    match name {
        "coveredBy" => Ok(Relation::CoveredBy),
        "intersects" => Ok(Relation::Intersects),
        "disjoint" => Ok(Relation::Disjoint),
        "equals" => Ok(Relation::Equals),
        _ => Err(wrong("use near, coveredBy, intersects, disjoint or equals")),
    }
}

fn not_computed(georel: &str, geometry: &str, why: &str) -> Refusal {
    Refusal::new(
        ErrorName::NotSupportedQuery,
        format!("georel '{georel}' with the geometry '{geometry}' cannot be computed: {why}; use another geometry"),
    )
}
