//! What a read asks for, checked.

use millstream_types::{ServicePaths, TenantId};
use regex::Regex;

use crate::catalog_record::FileRecord;
use crate::period::Periods;
use crate::point::{DAY_MS, Point, day};

/// Which of a point's times a read goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Property {
    #[default]
    Observed,
    /// When the entity was changed; the history of a value begins and ends with it.
    Modified,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) property: Property,
    /// The first moment in it.
    pub(crate) from_ms: i64,
    /// The first moment behind it.
    pub(crate) to_ms: i64,
}

impl Default for Window {
    fn default() -> Self {
        Self { property: Property::Observed, from_ms: i64::MIN, to_ms: i64::MAX }
    }
}

impl Window {
    pub(crate) fn has(&self, ms: i64) -> bool {
        self.from_ms <= ms && ms < self.to_ms
    }

    pub(crate) fn time(&self, point: &Point) -> i64 {
        match self.property {
            Property::Observed => point.observed_ms,
            Property::Modified => point.modified_ms,
        }
    }

    /// The first and the last moment of a file.
    pub(crate) fn span(&self, file: &FileRecord) -> (i64, i64) {
        match self.property {
            Property::Observed => file.observed_ms,
            Property::Modified => file.modified_ms,
        }
    }

    pub(crate) fn overlaps(&self, file: &FileRecord) -> bool {
        let (first, last) = self.span(file);
        first < self.to_ms && last >= self.from_ms
    }

    /// Whether an entity is listed for this point of it: if it lies on a day that the window touches. Files are by day, so that
    /// the list is the same before and after points have gone into one.
    pub(crate) fn lists(&self, point: &Point) -> bool {
        match self.property {
            Property::Observed => self.touches(day(point.observed_ms)),
            Property::Modified => self.has(point.modified_ms),
        }
    }

    /// The same for a file of a day.
    pub(crate) fn lists_file(&self, of: i32, file: &FileRecord) -> bool {
        match self.property {
            Property::Observed => self.touches(of),
            Property::Modified => self.overlaps(file),
        }
    }

    fn touches(&self, of: i32) -> bool {
        let (begin, of) = (|ms: i64| ms.div_euclid(DAY_MS), i64::from(of));
        self.from_ms < self.to_ms && begin(self.from_ms) <= of && of <= begin(self.to_ms - 1)
    }
}

/// Entities and attributes. Empty lists let everything pass.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    pub(crate) tenant: TenantId,
    pub(crate) ids: Vec<String>,
    pub(crate) id_pattern: Option<Regex>,
    pub(crate) kinds: Vec<String>,
    pub(crate) paths: ServicePaths,
    pub(crate) attributes: Vec<String>,
}

impl Selection {
    pub(crate) fn has_kind(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|named| named == kind)
    }

    pub(crate) fn has_attribute(&self, attribute: &str) -> bool {
        self.attributes.is_empty() || self.attributes.iter().any(|named| named == attribute)
    }

    pub(crate) fn has_entity(&self, id: &str, path: &str) -> bool {
        (self.ids.is_empty() || self.ids.iter().any(|named| named == id))
            && self.id_pattern.as_ref().is_none_or(|pattern| pattern.is_match(id))
            && self.paths.have(path)
    }

    /// The ids between which all that it names lie.
    pub(crate) fn id_bounds(&self) -> (&str, Option<&str>) {
        (self.ids.iter().min().map_or("", String::as_str), self.ids.iter().max().map(String::as_str))
    }
}

/// What a read makes of the points.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    /// The points themselves, of each attribute the last so many if that was asked for.
    Points { last: Option<usize> },
    /// What methods make of those of each period.
    Aggregated { methods: Vec<Method>, periods: Periods },
}

/// A method of aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    TotalCount,
    DistinctCount,
    Sum,
    Average,
    Least,
    Greatest,
    StandardDeviation,
    SumOfSquares,
}

impl Method {
    pub(crate) const ALL: [(Self, &str); 8] = [
        (Self::TotalCount, "totalCount"),
        (Self::DistinctCount, "distinctCount"),
        (Self::Sum, "sum"),
        (Self::Average, "avg"),
        (Self::Least, "min"),
        (Self::Greatest, "max"),
        (Self::StandardDeviation, "stddev"),
        (Self::SumOfSquares, "sumsq"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(method, _)| *method == self).map_or("", |(_, name)| name)
    }
}
