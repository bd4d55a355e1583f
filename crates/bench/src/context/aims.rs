//! The aim that one load leaves another alone.

pub(super) use crate::findings::{Findings, at_least, at_most};

/// Checks that the second p99 is at most 20 % or 1 ms above the first.
pub(super) fn is_left_alone(what: &str, alone_ms: f64, beside_ms: f64) -> String {
    let aim = (alone_ms * 1.2).max(alone_ms + 1.0);
    at_most(&format!("{what}, p99 in ms ({alone_ms:.2} alone)"), beside_ms, aim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_tolerates_a_fifth_or_a_millisecond_more() {
        assert!(is_left_alone("x", 1.0, 2.0).contains(": met"));
        assert!(is_left_alone("x", 1.0, 2.1).contains(": missed"));
        assert!(is_left_alone("x", 10.0, 12.0).contains(": met"));
        assert!(is_left_alone("x", 10.0, 12.1).contains(": missed"));
    }
}
