//! What is computed of many records.

mod display;

pub use display::listed;

use crate::{Expr, Item, Type};

/// Something that is computed of the records of a group.
#[derive(Debug, Clone, PartialEq)]
pub enum Aggregate {
    /// `COUNT(*)`: how many records.
    Count,
    /// A figure of one value of each record.
    Of {
        /// Which figure.
        statistic: Statistic,
        /// Of which value.
        value: Box<Expr>,
    },
    /// `COUNT(DISTINCT a, …)`: how many different combinations of values, not empty. Combinations with a NULL count
    /// like others; with one value NULL does not count.
    CountDistinct(Vec<Expr>),
    /// Something that is rows and no value. Stands as an item by itself only.
    Summary(Box<Summary>),
}

/// A figure of some values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// `COUNT(a)`: how many are not NULL.
    Count,
    /// `SUM(a)`: of the numbers; NULL without any. Of integers an integer.
    Sum,
    /// `AVG(a)`: of the numbers, a double; NULL without any.
    Average,
    /// `MIN(a)`: the least of the numbers; NULL without any.
    Min,
    /// `MAX(a)`: the greatest of the numbers; NULL without any.
    Max,
}

/// What gives rows of its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Summary {
    /// `QUANTILE(a, points)`: the values at these ranks (0 to 1). Rows `{Quantile, Value}`.
    Quantile {
        /// Of which value.
        value: Expr,
        /// At which ranks.
        points: Points,
    },
    /// `FREQ(a, points)`: how many values fall between the points. Rows `{Range, Count, Probability}`, one more than
    /// there are points: ranges are half open, the first begins below everything, the last has no end.
    Frequency {
        /// Of which value.
        value: Expr,
        /// Between which points.
        points: Points,
    },
    /// `CUMFREQ(a, points)`: as FREQ, but all ranges begin below everything.
    CumulativeFrequency {
        /// Of which value.
        value: Expr,
        /// Up to which points.
        points: Points,
    },
    /// `TOP(k, threshold, a, …)`: the most frequent combinations of values. A row has a member for each value, called
    /// as a selected field would be, and the count under the item's name, else `Count`.
    Top {
        /// How many combinations, at least 1.
        k: u64,
        /// The least count that is told.
        threshold: Option<u64>,
        /// The values and their names; not empty, all names different.
        values: Vec<Item>,
    },
}

/// Where a distribution is looked at.
#[derive(Debug, Clone, PartialEq)]
pub enum Points {
    /// `LINEAR, n`: so many, even over the domain (of QUANTILE: from 0 to 1); at least 1.
    Linear(u64),
    /// `REGION, start, end, step`: from start to end (both included) in steps above 0.
    Region {
        /// The first point.
        start: f64,
        /// No point is above it; not below `start`.
        end: f64,
        /// From one point to the next.
        step: f64,
    },
    /// `MANUAL, p, …`: exactly these; not empty.
    Manual(Vec<f64>),
}

impl Aggregate {
    /// The type of its value, as far as it is known. A summary has none.
    pub fn kind(&self) -> Type {
        match self {
            Self::Count | Self::CountDistinct(_) => Type::Integer,
            Self::Of { statistic, .. } => match statistic {
                Statistic::Count => Type::Integer,
                Statistic::Average => Type::Double,
                Statistic::Sum | Statistic::Min | Statistic::Max => Type::Number,
            },
            Self::Summary(_) => Type::Any,
        }
    }

    /// The values that it is computed of.
    pub fn arguments(&self) -> Vec<&Expr> {
        match self {
            Self::Count => Vec::new(),
            Self::Of { value, .. } => vec![value],
            Self::CountDistinct(values) => values.iter().collect(),
            Self::Summary(summary) => summary.arguments(),
        }
    }
}

impl Statistic {
    /// The function's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Count => "COUNT",
            Self::Sum => "SUM",
            Self::Average => "AVG",
            Self::Min => "MIN",
            Self::Max => "MAX",
        }
    }
}

impl Summary {
    /// The values that it is computed of.
    pub fn arguments(&self) -> Vec<&Expr> {
        match self {
            Self::Quantile { value, .. } | Self::Frequency { value, .. } | Self::CumulativeFrequency { value, .. } => {
                vec![value]
            }
            Self::Top { values, .. } => values.iter().map(|item| &item.value).collect(),
        }
    }

    /// The names of a row's members. `name` is that of the item which asks for it, if it was given one.
    pub fn columns(&self, name: Option<&str>) -> Vec<String> {
        let fixed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self {
            Self::Quantile { .. } => fixed(&["Quantile", "Value"]),
            Self::Frequency { .. } | Self::CumulativeFrequency { .. } => fixed(&["Range", "Count", "Probability"]),
            Self::Top { values, .. } => {
                values.iter().map(Item::name).chain([name.unwrap_or("Count").to_owned()]).collect()
            }
        }
    }
}

impl Points {
    /// Whether all points are from 0 to 1.
    pub fn are_ranks(&self) -> bool {
        let is_rank = |point: &f64| (0.0..=1.0).contains(point);
        match self {
            Self::Linear(_) => true,
            Self::Region { start, end, .. } => is_rank(start) && is_rank(end),
            Self::Manual(points) => points.iter().all(is_rank),
        }
    }

    /// How many points there are.
    pub fn count(&self) -> u64 {
        match self {
            Self::Linear(count) => *count,
            // A little more than the exact quotient, so that 0.1 to 0.3 in steps of 0.1 are three.
            Self::Region { start, end, step } => (((end - start) / step + 1e-9) as u64).saturating_add(1),
            Self::Manual(points) => points.len() as u64,
        }
    }
}
