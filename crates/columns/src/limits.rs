//! The limits of a query's text, and of a job's expressions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of a query's text (`query.limits`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParserLimits {
    /// Longest text of a query, in bytes. Default 64 KiB.
    pub text_max_bytes: usize,
    /// Deepest nesting of parentheses, NOT, CASE, lists, subscripts and calls of functions. Default 64.
    pub depth_max: usize,
    /// Most operators (`+ - * / %` and XOR) of one expression. Default 200.
    pub operators_max: usize,
    /// Most steps of a path such as `a.b[0]`. Default 32.
    pub path_max_steps: usize,
    /// Most values of a list or of a call, and most conditions of a CASE. Default 1,000.
    pub list_max: usize,
    /// Most values in SELECT, GROUP BY, ORDER BY or an aggregate. Default 500.
    pub items_max: usize,
    /// Most points of a QUANTILE, FREQ or CUMFREQ. Default 200.
    pub points_max: u64,
    /// The section of the configuration whose `limits` these are; `None` for limits that no setting changes.
    #[serde(skip)]
    pub section: Option<&'static str>,
}

impl Default for ParserLimits {
    fn default() -> Self {
        Self {
            text_max_bytes: 64 << 10,
            depth_max: 64,
            operators_max: 200,
            path_max_steps: 32,
            list_max: 1000,
            items_max: 500,
            points_max: 200,
            section: Some("query"),
        }
    }
}

impl ParserLimits {
    /// The limits of a job's expressions, which are fixed.
    #[must_use]
    pub fn of_jobs() -> Self {
        Self { section: None, ..Self::default() }
    }

    /// A limit as messages name it: its setting and value, or the value alone if no setting changes it.
    pub(crate) fn named(&self, key: &str, value: impl std::fmt::Display) -> String {
        match self.section {
            Some(section) => format!("{section}.limits.{key} = {value}"),
            None => value.to_string(),
        }
    }
}
