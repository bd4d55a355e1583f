//! The cases and notes of a run, and the lines that say whether a figure meets its aim.

use millstream_load::report::BenchCase;

/// Cases and notes that a run collects.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) cases: Vec<BenchCase>,
    pub(crate) notes: Vec<String>,
}

impl Findings {
    pub(crate) fn aim(&mut self, line: String) {
        self.notes.push(line);
    }
}

pub(crate) fn at_least(what: &str, value: f64, aim: f64) -> String {
    line(what, "at least", value, aim, value >= aim)
}

pub(crate) fn at_most(what: &str, value: f64, aim: f64) -> String {
    line(what, "at most", value, aim, value <= aim)
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
}
