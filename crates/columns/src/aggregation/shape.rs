//! The shape of a query's aggregates: their kinds, and the indexes of their inputs.

use std::sync::Arc;

use super::{DistributionKind, FigureOf};
use crate::Points;

/// The aggregates over the inputs of each record.
#[derive(Debug, Clone, PartialEq)]
pub enum AggregateShape {
    /// Figures for each combination of the first `keys` inputs; of all records together if there are no keys.
    Groups {
        /// The number of inputs that make the groups.
        keys: usize,
        /// The figures of each group.
        figures: Arc<[FigureOf]>,
    },
    /// The most frequent combinations of all inputs.
    Top {
        /// The largest number of combinations that are reported.
        k: u64,
        /// The smallest count that is reported.
        threshold: u64,
    },
    /// The rows of the records themselves, up to `rows_max`.
    Raw {
        /// The number of rows that are kept.
        rows_max: usize,
    },
    /// The first `rows_max` rows of the records by the sort keys before each.
    Sorted {
        /// The number of rows that are kept.
        rows_max: usize,
        /// True for each sort key whose greatest value comes first.
        descending: Box<[bool]>,
    },
    /// The distribution of the one input.
    Distribution {
        /// The rows that it gives.
        kind: DistributionKind,
        /// The points of the rows.
        points: Points,
    },
}

/// The sizes of sketches, as powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SketchSizes {
    /// The groups of a result.
    pub lg_groups: u8,
    /// The distinct values that are counted exactly.
    pub lg_distinct: u8,
    /// The places for the most frequent values.
    pub lg_top: u8,
    /// The number of values up to which quantiles are exact, over all records and within the first groups.
    pub quantile_k: u16,
    /// As `quantile_k`, within further groups.
    pub group_quantile_k: u16,
}

impl SketchSizes {
    /// So many groups, and so many different things that are counted exactly: each the next power of two that its
    /// sketch can have. Of the most frequent at least as many are counted exactly as there may be groups.
    pub fn new(groups: usize, distinct: usize) -> Self {
        let lg = |size: usize| size.clamp(1 << 5, 1 << 20).next_power_of_two().trailing_zeros() as u8;
        let (lg_groups, least) = (lg(groups), Self::default());
        Self { lg_groups, lg_distinct: lg(distinct), lg_top: least.lg_top.max(lg_groups + 1), ..least }
    }
}

impl Default for SketchSizes {
    fn default() -> Self {
        Self { lg_groups: 9, lg_distinct: 14, lg_top: 10, quantile_k: 1600, group_quantile_k: 400 }
    }
}
