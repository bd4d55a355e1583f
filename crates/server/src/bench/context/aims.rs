//! What the figures are to come to, and whether they do.

use millstream_load::report::BenchCase;

/// What a run has to tell.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) cases: Vec<BenchCase>,
    pub(super) notes: Vec<String>,
}

impl Judged {
    pub(super) fn aim(&mut self, line: String) {
        self.notes.push(line);
    }
}

pub(super) fn at_least(what: &str, value: f64, aim: f64) -> String {
    line(what, "at least", value, aim, value >= aim)
}

pub(super) fn at_most(what: &str, value: f64, aim: f64) -> String {
    line(what, "at most", value, aim, value <= aim)
}

/// Of two p99, the second may be 20 % or 1 ms above the first.
pub(super) fn is_left_alone(what: &str, alone_ms: f64, beside_ms: f64) -> String {
    let aim = (alone_ms * 1.2).max(alone_ms + 1.0);
    at_most(&format!("{what}, p99 in ms ({alone_ms:.2} alone)"), beside_ms, aim)
}

fn line(what: &str, bound: &str, value: f64, aim: f64, is_met: bool) -> String {
    let verdict = if is_met { "met" } else { "missed" };
    format!("Aim, {what}, {bound} {aim:.2}: {verdict}: {value:.2}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_met_at_its_bound() {
        assert_eq!(at_least("x", 2.0, 2.0), "Aim, x, at least 2.00: met: 2.00.");
        assert!(at_least("x", 1.9, 2.0).contains("missed"));
        assert!(at_most("x", 2.1, 2.0).contains("missed"));
    }

    #[test]
    fn a_fifth_or_a_millisecond_more_is_left_alone() {
        assert!(is_left_alone("x", 1.0, 2.0).contains(": met"));
        assert!(is_left_alone("x", 1.0, 2.1).contains(": missed"));
        assert!(is_left_alone("x", 10.0, 12.0).contains(": met"));
        assert!(is_left_alone("x", 10.0, 12.1).contains(": missed"));
    }
}
