//! Selection of cases by name, and the cases on which they depend.

use super::workload::{LARGE_BYTES, SMALL_BYTES};

/// The cases that `--only` selects.
#[derive(Debug, Clone, Copy)]
pub(super) struct CaseFilter<'a> {
    /// Text that the names must contain; `None` selects every case.
    pub(super) only: Option<&'a str>,
}

impl CaseFilter<'_> {
    pub(super) fn has(self, case: &str) -> bool {
        self.only.is_none_or(|only| case.contains(only))
    }

    pub(super) fn is_empty(self) -> bool {
        let of_size = |bytes| [produce(bytes, "1"), produce(bytes, "all"), consume(bytes), own(bytes)];
        let at_half_rate = [half_rate("1"), half_rate("all"), own_half_rate()];
        let mut all = [SMALL_BYTES, LARGE_BYTES].into_iter().flat_map(of_size).chain(at_half_rate);
        !all.any(|case| self.has(&case))
    }

    /// Returns whether a selected case needs Kafka's produce rate for such records.
    pub(super) fn builds_on_producing(self, record_bytes: usize, acks: &str) -> bool {
        let at_half_rate = self.has(&half_rate(acks)) || acks == "all" && self.has(&own_half_rate());
        self.has(&own(record_bytes)) || record_bytes == SMALL_BYTES && at_half_rate
    }
}

pub(super) fn produce(record_bytes: usize, acks: &str) -> String {
    format!("produce {record_bytes} B, acks={acks}")
}

pub(super) fn consume(record_bytes: usize) -> String {
    format!("consume {record_bytes} B")
}

pub(super) fn half_rate(acks: &str) -> String {
    format!("produce {SMALL_BYTES} B at half of Kafka's rate, acks={acks}")
}

pub(super) fn own(record_bytes: usize) -> String {
    format!("own generator, {record_bytes} B, acks=all")
}

pub(super) fn own_half_rate() -> String {
    format!("own generator, {SMALL_BYTES} B at half of Kafka's rate, open loop, acks=all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_filter_adds_only_the_cases_that_its_case_builds_on() {
        let built_on = |only: &str| {
            let case_filter = CaseFilter { only: Some(only) };
            let of_size = |bytes| ["1", "all"].map(|acks| case_filter.builds_on_producing(bytes, acks));
            [of_size(SMALL_BYTES), of_size(LARGE_BYTES)]
        };
        assert_eq!(built_on("consume 100 B"), [[false, false], [false, false]]);
        assert_eq!(built_on("half of Kafka's rate, acks=1"), [[true, false], [false, false]]);
        assert_eq!(built_on("open loop"), [[false, true], [false, false]]);
        assert_eq!(built_on("own generator, 1024 B"), [[false, false], [true, true]]);
        assert!(CaseFilter { only: Some("2048 B") }.is_empty());
        assert!(!CaseFilter { only: Some("consume") }.is_empty() && !CaseFilter { only: None }.is_empty());
    }
}
