//! The results of a condition for the records of a chunk.

use super::selection::Selection;

/// The records for which a condition is TRUE, those for which it is FALSE, and those without a value. It is
/// NULL for the other records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Truth {
    /// The records for which the condition is TRUE.
    pub yes: Selection,
    /// The records for which the condition is FALSE.
    pub no: Selection,
    /// The records for which the condition has no value.
    pub failed: Selection,
}

impl Truth {
    /// The truth of the negated condition.
    #[inline]
    pub fn negated(self) -> Self {
        Self { yes: self.no, no: self.yes, failed: self.failed }
    }

    /// The truth of the condition that this one is NULL.
    #[inline]
    pub fn is_null(self, records: Selection) -> Self {
        let values = self.yes | self.no;
        Self { yes: records - values - self.failed, no: values, failed: self.failed }
    }

    /// The union of the truth of two separate sets of records.
    #[inline]
    pub fn joined(self, other: Self) -> Self {
        Self { yes: self.yes | other.yes, no: self.no | other.no, failed: self.failed | other.failed }
    }

    /// The truth restricted to these records.
    #[inline]
    pub fn within(self, records: Selection) -> Self {
        Self { yes: self.yes & records, no: self.no & records, failed: self.failed & records }
    }
}
