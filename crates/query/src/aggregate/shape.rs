//! What a query computes, with the values that it needs by their places.

use std::sync::Arc;

use millstream_columns::Points;

use super::{DistributionKind, FigureOf};

/// What is computed of the inputs of each record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    /// Figures for each combination of the first `keys` inputs; of all records together if there are no keys.
    Groups { keys: usize, figures: Arc<[FigureOf]> },
    /// The most frequent combinations of all inputs.
    Top { k: u64, threshold: u64 },
    /// The rows of records themselves, the first so many.
    Raw { rows_max: usize },
    /// The distribution of the one input.
    Distribution { kind: DistributionKind, points: Points },
}

/// How large sketches grow, as powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SketchSizes {
    pub(crate) lg_groups: u8,
    pub(crate) lg_distinct: u8,
    pub(crate) lg_top: u8,
    pub(crate) quantile_k: u16,
}

impl SketchSizes {
    /// So many groups, and so many different things that are counted exactly: each the next power of two that its
    /// sketch can have. Of the most frequent at least as many are counted exactly as there may be groups.
    pub(crate) fn new(groups: usize, distinct: usize) -> Self {
        let lg = |size: usize| size.clamp(1 << 5, 1 << 20).next_power_of_two().trailing_zeros() as u8;
        let (lg_groups, least) = (lg(groups), Self::default());
        Self { lg_groups, lg_distinct: lg(distinct), lg_top: least.lg_top.max(lg_groups + 1), ..least }
    }
}

impl Default for SketchSizes {
    fn default() -> Self {
        Self { lg_groups: 9, lg_distinct: 14, lg_top: 10, quantile_k: 1600 }
    }
}
