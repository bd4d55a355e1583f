//! The inputs of a query plan: the filter of a list, the page and the total.

use millstream_types::ServicePaths;

use super::{Criteria, Selector};

/// The filter of a list.
#[derive(Debug, Default)]
pub(crate) struct EntityFilter {
    /// One of these must match; an empty list matches all.
    pub(crate) selectors: Vec<Selector>,
    pub(crate) paths: ServicePaths,
    pub(crate) criteria: Criteria,
    /// Entities that expire by this time are left out.
    pub(crate) now_ms: i64,
}

/// Limit and offset of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pagination {
    pub(crate) limit: usize,
    pub(crate) offset: usize,
}

/// The client wants the total of all pages, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TotalCount {
    Wanted,
    Unwanted,
}
