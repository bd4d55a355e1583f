//! The steps as a page of charts: one file that needs nothing else.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use millstream_load::report::BenchCase;
use serde_json::json;

const PAGE: &str = include_str!("page.html");
/// What the figures take the place of.
const PLACE: &str = "\"the figures\"";

/// Writes the page to `path`.
pub(super) fn write(path: &Path, heading: &str, cases: &[BenchCase], notes: &[String]) -> anyhow::Result<()> {
    fs::write(path, render(heading, cases, notes)).with_context(|| format!("cannot write {}", path.display()))
}

fn render(heading: &str, cases: &[BenchCase], notes: &[String]) -> String {
    let figures = json!({ "heading": heading, "cases": cases, "notes": notes }).to_string();
    // Nothing in it can end the script that it stands in.
    PAGE.replacen(PLACE, &figures.replace('<', "\\u003c"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_carries_the_figures_and_no_text_of_theirs_ends_its_script() {
        let page = render("</script>", &[], &["a note".to_owned()]);
        assert!(page.contains(r#"{"heading":"\u003c/script>","cases":[],"notes":["a note"]}"#), "{page}");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains("http:") && !page.contains("https:"), "it needs nothing else");
    }
}
