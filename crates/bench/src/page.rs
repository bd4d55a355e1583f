//! Renders figures as a self-contained page of charts.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use super::Report;

/// The page, into which each suite puts its own charts.
const PAGE: &str = include_str!("page.html");
/// Placeholder of the figures in the page.
const PLACE: &str = "\"the figures\"";

/// Placeholder of the charts in the page.
const CHARTS: &str = "/* the charts */";
/// Placeholder of the title; occurs twice.
const TITLE: &str = "the title";

/// A page of one suite.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChartPage {
    pub(super) title: &'static str,
    /// The script that draws its charts and its table.
    pub(super) charts: &'static str,
}

impl ChartPage {
    /// Writes the figures as a page to `path`.
    pub(super) fn write(self, path: &Path, report: &Report) -> anyhow::Result<()> {
        fs::write(path, self.render(report)).with_context(|| format!("cannot write {}", path.display()))
    }

    fn render(self, Report { heading, cases, notes }: &Report) -> String {
        let figures = json!({ "heading": heading, "cases": cases, "notes": notes }).to_string();
        let page = PAGE.replace(TITLE, self.title).replacen(CHARTS, self.charts, 1);
        // Nothing in it can end the script that it stands in.
        page.replacen(PLACE, &figures.replace('<', "\\u003c"), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_carries_the_figures_and_no_text_of_theirs_ends_its_script() {
        let report = Report { heading: "</script>".to_owned(), cases: Vec::new(), notes: vec!["a note".to_owned()] };
        let page = ChartPage { title: "Figures", charts: "draw();" }.render(&report);
        assert!(page.contains("<h1>Figures</h1>") && page.contains("draw();\n</script>"), "{page}");
        assert!(page.contains(r#"{"heading":"\u003c/script>","cases":[],"notes":["a note"]}"#), "{page}");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains("http:") && !page.contains("https:"), "it needs nothing else");
    }
}
