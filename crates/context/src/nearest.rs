//! The nearest of many: how far one must look for as many as a page needs, so that the others need no sorting.

use std::ops::ControlFlow;

use crate::list::{Asked, Count};
use crate::plan::Source;
use crate::query::GeoQuery;

/// The first radius that is looked at, metres; each later one is twice as large.
const RADIUS_FIRST_M: f64 = 100.0;
/// Beyond it a circle is most of the earth.
const RADIUS_MAX_M: f64 = 5_000_000.0;
/// Entities that are looked at for the radius, beside some for each that the page needs; then all are sorted.
const LOOKED_AT_MAX: usize = 10_000;
const LOOKED_AT_FOR_EACH: usize = 16;

impl Asked {
    /// Lets a list of the nearest ask for no more than lies within the radius that holds its page.
    pub(crate) fn narrowed(mut self) -> Self {
        if self.count == Count::Unwanted
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

    /// How many fit the filter with this geo query, up to `end`; breaks when too many were looked at.
    fn found(&self, geo: &GeoQuery, end: usize, budget: &mut usize) -> ControlFlow<(), usize> {
        let Some(areas) = geo.areas() else { return ControlFlow::Break(()) };
        let source = Source::Areas(areas);
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
