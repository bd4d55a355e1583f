//! The statistics of aggregates and the points at which a distribution is evaluated.

/// A statistic of several values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// `COUNT(a)`: the number of values that are not NULL.
    Count,
    /// `SUM(a)`: the sum of the numbers, an integer for integers; NULL without numbers.
    Sum,
    /// `AVG(a)`: the mean of the numbers, a double; NULL without numbers.
    Average,
    /// `MIN(a)`: the least number, or without numbers the least text; NULL without either.
    Min,
    /// `MAX(a)`: the greatest number, or without numbers the greatest text; NULL without either.
    Max,
    /// `STDDEV(a)`: the standard deviation of the numbers as a sample, a double; NULL of fewer than two.
    StandardDeviation,
    /// `FIRST(a)`: the value of the record with the least event time that has one; no list and no map.
    First,
    /// `LAST(a)`: the value of the record with the greatest event time that has one; no list and no map.
    Last,
}

/// The points at which a distribution is evaluated.
#[derive(Debug, Clone, PartialEq)]
pub enum Points {
    /// `LINEAR, n`: n points at equal distances over the domain (of QUANTILE: from 0 to 1); at least 1.
    Linear(u64),
    /// `REGION, start, end, step`: from start to end (both included) in steps above 0.
    Region {
        /// The first of the points.
        start: f64,
        /// The upper limit of the points; not below `start`.
        end: f64,
        /// The distance between two points.
        step: f64,
    },
    /// `MANUAL, p, …`: exactly these points; not empty.
    Manual(Vec<f64>),
}

impl Statistic {
    /// The function's name in a query.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Count => "COUNT",
            Self::Sum => "SUM",
            Self::Average => "AVG",
            Self::Min => "MIN",
            Self::Max => "MAX",
            Self::StandardDeviation => "STDDEV",
            Self::First => "FIRST",
            Self::Last => "LAST",
        }
    }
}

impl Points {
    /// True if all points are from 0 to 1.
    pub fn are_ranks(&self) -> bool {
        let is_rank = |point: &f64| (0.0..=1.0).contains(point);
        match self {
            Self::Linear(_) => true,
            Self::Region { start, end, .. } => is_rank(start) && is_rank(end),
            Self::Manual(points) => points.iter().all(is_rank),
        }
    }

    /// The number of points, at least one.
    pub fn count(&self) -> u64 {
        match self {
            Self::Linear(count) => *count,
            // Slightly more than the exact quotient, so that 0.1 to 0.3 in steps of 0.1 gives three points.
            Self::Region { start, end, step } => (((end - start) / step + 1e-9) as u64).saturating_add(1),
            Self::Manual(points) => points.len() as u64,
        }
    }
}
