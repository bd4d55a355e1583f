//! The validated temporal query: time window, entity selection and result form.

use std::sync::Arc;

use millstream_types::{ServicePaths, TenantId};
use regex::Regex;

use crate::catalog_record::FileRecord;
use crate::period::Periods;
use crate::point::{DAY_MS, Point};

/// The time of a point that a query refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TimeProperty {
    #[default]
    Observed,
    /// The time of the entity's change; `createdAt` also selects it.
    Modified,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeWindow {
    pub(crate) property: TimeProperty,
    /// The start, which is included.
    pub(crate) from_ms: i64,
    /// The end, which is excluded.
    pub(crate) to_ms: i64,
}

impl Default for TimeWindow {
    fn default() -> Self {
        Self { property: TimeProperty::Observed, from_ms: i64::MIN, to_ms: i64::MAX }
    }
}

impl TimeWindow {
    pub(crate) fn has(&self, ms: i64) -> bool {
        self.from_ms <= ms && ms < self.to_ms
    }

    pub(crate) fn time(&self, point: &Point) -> i64 {
        match self.property {
            TimeProperty::Observed => point.observed_ms,
            TimeProperty::Modified => point.modified_ms,
        }
    }

    /// Returns the first and last time in a file.
    pub(crate) fn span(&self, file: &FileRecord) -> (i64, i64) {
        match self.property {
            TimeProperty::Observed => file.observed_ms,
            TimeProperty::Modified => file.modified_ms,
        }
    }

    pub(crate) fn overlaps(&self, file: &FileRecord) -> bool {
        let (first, last) = self.span(file);
        first < self.to_ms && last >= self.from_ms
    }

    /// Returns the window whose points list an entity: all days that this one touches. So files of whole days need not be
    /// searched, and the list does not change when points are flushed.
    pub(crate) fn listing(&self) -> Self {
        if self.property == TimeProperty::Modified || self.from_ms >= self.to_ms {
            return *self;
        }
        let begin = |ms: i64| ms.div_euclid(DAY_MS);
        let from_ms = begin(self.from_ms).saturating_mul(DAY_MS);
        let to_ms = (begin(self.to_ms - 1) + 1).saturating_mul(DAY_MS);
        Self { from_ms, to_ms, ..*self }
    }

    /// Tells if a file has no point outside the window.
    pub(crate) fn covers(&self, file: &FileRecord) -> bool {
        let (first, last) = self.span(file);
        self.has(first) && self.has(last)
    }
}

/// The selected entities and attributes; an empty list selects all.
#[derive(Debug, Clone)]
pub(crate) struct EntitySelection {
    pub(crate) tenant: TenantId,
    pub(crate) ids: Vec<String>,
    pub(crate) id_pattern: Option<Regex>,
    pub(crate) kinds: Vec<String>,
    pub(crate) paths: ServicePaths,
    pub(crate) attributes: Vec<String>,
}

impl EntitySelection {
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

    /// Returns the least and greatest selected id; `None` means no upper bound.
    pub(crate) fn id_bounds(&self) -> (&str, Option<&str>) {
        (self.ids.iter().min().map_or("", String::as_str), self.ids.iter().max().map(String::as_str))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntityRef {
    pub(crate) kind: Arc<str>,
    pub(crate) id: String,
    pub(crate) path: String,
}

/// A section of the entity list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntityPage {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
    /// True if the total is requested.
    pub(crate) counts: bool,
}

/// A read of the series of some entities: which points of them, in which form.
#[derive(Debug, Clone)]
pub(crate) struct SeriesQuery {
    pub(crate) selection: EntitySelection,
    pub(crate) window: TimeWindow,
    pub(crate) form: ResultForm,
    /// Leaves out the points that say that an attribute was deleted.
    pub(crate) skips_deletions: bool,
}

/// The result form of a read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ResultForm {
    /// The points themselves.
    Points(PointExtent),
    /// The values of each period, aggregated by the methods.
    Aggregated { methods: Vec<AggregateMethod>, periods: Periods },
}

/// The points of each attribute that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointExtent {
    /// As many as an answer may have, the oldest first.
    All,
    First(usize),
    Last(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregateMethod {
    TotalCount,
    DistinctCount,
    Sum,
    Average,
    Least,
    Greatest,
    StandardDeviation,
    SumOfSquares,
}

impl AggregateMethod {
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
