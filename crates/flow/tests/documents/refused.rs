//! Documents that are refused: one file for each fault, with its findings as comments at its end.
//!
//! `UPDATE_DOCS=1` writes the findings again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use millstream_flow::{Document, Finding};

use crate::catalogue::context;

const MARK: &str = "# Findings:\n";

fn described(findings: &[Finding]) -> String {
    let mut text = MARK.to_owned();
    for finding in findings {
        let bundle = finding.bundle.as_ref().map(|name| format!(" in bundle {name}")).unwrap_or_default();
        let path = if finding.path.is_empty() { "the document" } else { &finding.path };
        let _ = writeln!(text, "# {}:{} {} at {path}{bundle}", finding.line, finding.column, finding.rule);
        if let Some(value) = &finding.value {
            let _ = writeln!(text, "#   value: {value}");
        }
        if let Some(nearest) = &finding.nearest {
            let _ = writeln!(text, "#   nearest: {nearest}");
        }
        let _ = writeln!(text, "#   {}", finding.message.replace('\n', " "));
    }
    text
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents/refused");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn each_fault_is_found_with_its_place_rule_value_and_nearest_name() {
    let mut wrong = String::new();
    for file in files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let (document, expected) = text.split_once(MARK).unwrap_or((&text, ""));
        let findings = Document::read(document, &context()).err().unwrap_or_default();
        assert!(!findings.is_empty(), "{} is accepted", file.display());
        let found = described(&findings);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&file, format!("{document}{found}")).unwrap();
        } else if found != format!("{MARK}{expected}") {
            let _ = writeln!(wrong, "{}\nexpected\n{MARK}{expected}found\n{found}", file.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn each_rule_of_the_reference_page_has_a_document_that_breaks_it() {
    // Their documents are too large for a file; `reading.rs` has them.
    const ELSEWHERE: [&str; 2] = ["text_size", "too_many"];
    let page = millstream_flow::reference_page();
    let (_, rules) = page.split_once("## Rules").unwrap();
    let rules: Vec<&str> = rules.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let texts: String = files().iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let is_broken =
        |rule: &str| texts.lines().any(|line| line.starts_with("# ") && line.contains(&format!(" {rule} at ")));
    let missing: Vec<_> = rules.iter().filter(|rule| !is_broken(rule) && !ELSEWHERE.contains(rule)).collect();
    assert!(rules.len() > 60 && missing.is_empty(), "{} rules, no document for {missing:?}", rules.len());
}
