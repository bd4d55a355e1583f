//! Finds the radius that contains a page of the nearest entities, so that the others are not sorted.

use std::ops::ControlFlow;

use crate::query::GeoQuery;
use crate::query::filter::TotalCount;
use crate::requests::list::ListRequest;
use crate::requests::plan::CandidateSource;

/// The first radius in metres; each further one is twice as large.
const RADIUS_FIRST_M: f64 = 100.0;
/// A larger circle covers most of the earth.
const RADIUS_MAX_M: f64 = 5_000_000.0;
/// Entities that the search for the radius may examine, in addition to some for each of the page;
/// beyond it all are sorted.
const LOOKED_AT_MAX: usize = 10_000;
const LOOKED_AT_FOR_EACH: usize = 16;

impl ListRequest {
    /// Limits a list by distance to the radius that contains its page.
    pub(crate) fn narrowed(mut self) -> Self {
        if self.count == TotalCount::Unwanted
            && self.order.is_by_distance()
            && let Some(geo) = &self.filter.criteria.geo
            && let Some(narrower) = self.radius(geo)
        {
            self.filter.criteria.geo = Some(narrower);
        }
        self
    }

    fn radius(&self, geo: &GeoQuery) -> Option<GeoQuery> {
        let end = self.page.offset.saturating_add(self.page.limit);
        let mut budget = end.saturating_mul(LOOKED_AT_FOR_EACH).saturating_add(LOOKED_AT_MAX);
        let mut radius_m = RADIUS_FIRST_M;
        while radius_m < RADIUS_MAX_M {
            let narrower = geo.within(radius_m)?;
            match self.found(&narrower, end, &mut budget) {
                ControlFlow::Break(()) => return None,
                ControlFlow::Continue(found) if found >= end => return Some(narrower),
                ControlFlow::Continue(_) => radius_m *= 2.0,
            }
        }
        None
    }

    /// Counts matches within this geo query, up to `end`; breaks when the budget is used up.
    fn found(&self, geo: &GeoQuery, end: usize, budget: &mut usize) -> ControlFlow<(), usize> {
        let Some(areas) = geo.areas() else { return ControlFlow::Break(()) };
        let source = CandidateSource::Areas(areas);
        let mut found = 0;
        for entities in self.partitions() {
            source.each(&self.filter, entities, &mut |place| {
                *budget = budget.saturating_sub(1);
                let entity = self.filter.find(place, entities);
                found += usize::from(entity.is_some_and(|entity| geo.matches(entity)));
                found < end && *budget > 0
            });
        }
        if *budget == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(found) }
    }
}
