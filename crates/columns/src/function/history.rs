//! Functions of the earlier records of a key.

/// A function over the records of a key so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryFunction {
    /// `LAG(a[, n])`: the value of the record that is n records before this one; NULL if there is none.
    Lag,
    /// `CHANGED(a)`: TRUE if the value differs from that of the record before, and for the first record.
    Changed,
    /// `SINCE_CHANGE(a)`: the milliseconds since the value has been what it is.
    SinceChange,
    /// `RUNNING_COUNT(a)`: the number of values that are not NULL.
    RunningCount,
    /// `RUNNING_SUM(a)`: the sum of the numbers.
    RunningSum,
    /// `RUNNING_AVG(a)`: the mean of the numbers.
    RunningAverage,
    /// `RUNNING_MIN(a)`: the least value.
    RunningMin,
    /// `RUNNING_MAX(a)`: the greatest value.
    RunningMax,
}

impl HistoryFunction {
    /// The names of all functions.
    pub(crate) const NAMES: [(&str, Self); 8] = [
        ("LAG", Self::Lag),
        ("CHANGED", Self::Changed),
        ("SINCE_CHANGE", Self::SinceChange),
        ("RUNNING_COUNT", Self::RunningCount),
        ("RUNNING_SUM", Self::RunningSum),
        ("RUNNING_AVG", Self::RunningAverage),
        ("RUNNING_MIN", Self::RunningMin),
        ("RUNNING_MAX", Self::RunningMax),
    ];

    /// The function of that name, in capitals.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
    }

    /// The function's name in a select list.
    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| name)
    }

    pub(crate) fn is_of_numbers(self) -> bool {
        matches!(self, Self::RunningSum | Self::RunningAverage)
    }
}
