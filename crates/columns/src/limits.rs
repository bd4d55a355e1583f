//! What a query's text may be.

use serde::{Deserialize, Serialize};

/// Bounds of a query's text (`query.limits`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Longest text of a query, bytes. Default 64 KiB.
    pub text_max_bytes: usize,
    /// Deepest nesting of parentheses, NOT, lists, subscripts and calls of functions. Default 64.
    pub depth_max: usize,
    /// Most operators (`+ - * / %` and XOR) of one expression. Default 200.
    pub operators_max: usize,
    /// Most steps of a path such as `a.b[0]`. Default 32.
    pub path_max_steps: usize,
    /// Most values of a list. Default 1,000.
    pub list_max: usize,
    /// Most values in SELECT, GROUP BY, ORDER BY or an aggregate. Default 500.
    pub items_max: usize,
    /// Most points of a QUANTILE, FREQ or CUMFREQ. Default 200.
    pub points_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            text_max_bytes: 64 << 10,
            depth_max: 64,
            operators_max: 200,
            path_max_steps: 32,
            list_max: 1000,
            items_max: 500,
            points_max: 200,
        }
    }
}
