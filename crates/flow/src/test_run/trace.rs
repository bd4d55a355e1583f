//! Compares the lines that a hook has written with those that a test expects.
//!
//! A run of lines that repeats at once counts once, so that the number of batches does not matter.

use super::compare::{Difference, DifferenceKind};

/// The difference, if there is one. Without `in_order`, because several instances wrote, only the set of lines counts.
pub(super) fn compare(hook: &str, expected: &[String], written: &[String], in_order: bool) -> Option<Difference> {
    let (wanted, found) = match in_order {
        true => (without_repeats(expected), without_repeats(written)),
        false => (distinct(expected), distinct(written)),
    };
    (wanted != found).then(|| Difference {
        kind: DifferenceKind::Trace,
        node: None,
        message: format!("hook {hook} wrote {}, expected {}", listed(&found), listed(&wanted)),
        expected: Some(wanted.into()),
        actual: Some(found.into()),
    })
}

fn listed(lines: &[&str]) -> String {
    if lines.is_empty() { "nothing".to_owned() } else { lines.join(", ") }
}

fn distinct(lines: &[String]) -> Vec<&str> {
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

fn without_repeats(lines: &[String]) -> Vec<&str> {
    let mut kept: Vec<&str> = Vec::new();
    for line in lines {
        kept.push(line);
        let repeated = (1..=kept.len() / 2).find(|length| {
            let (before, run) = kept.split_at(kept.len() - length);
            before.ends_with(run)
        });
        if let Some(length) = repeated {
            kept.truncate(kept.len() - length);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_run_that_repeats_at_once_counts_once() {
        for (written, kept) in [
            ("start in out in out stop", "start in out stop"),
            ("start start in out in out in out stop stop", "start in out stop"),
            ("a b a", "a b a"),
            ("a a b b a a b b", "a b"),
        ] {
            assert_eq!(without_repeats(&lines(written)), without_repeats(&lines(kept)), "{written}");
            assert_eq!(without_repeats(&lines(written)), lines(kept), "{written}");
        }
    }

    #[test]
    fn a_difference_shows_both() {
        let found = compare("h", &lines("a b"), &lines("b a"), true).unwrap();
        assert_eq!(found.message, "hook h wrote b, a, expected a, b");
        assert_eq!(compare("h", &lines("a b"), &lines("b a b"), false), None);
    }
}
