//! Reads whatever it is given as a document and asserts that what comes of it makes sense.
//! Shared by the tests and by the fuzz target.

use std::collections::BTreeMap;

use millstream_flow::{Document, DocumentContext, Functions, Hooks, catalogue};

/// Findings of one document, and characters of a value in one.
const FINDINGS_MAX: usize = 200;
const VALUE_MAX_CHARS: usize = 201;

/// The types, functions and hooks of this program, with bundles.
pub(crate) fn context() -> DocumentContext {
    let bundles = [
        ("cleaning", include_str!("bundles/cleaning.yaml")),
        ("weather", include_str!("bundles/weather.yaml")),
        ("broken", include_str!("bundles/broken.yaml")),
    ];
    DocumentContext {
        catalogue: catalogue(),
        functions: Functions::default().all().iter().map(|function| function.name).collect(),
        hooks: Hooks::default().all().iter().map(|hook| hook.name).collect(),
        params: BTreeMap::new(),
        bundles: bundles.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
        topics: None,
        targets: None,
        earlier: None,
    }
}

/// Reads `data` if it is text; `true` if it is a document. Findings have a place in the text, a rule and a message, and
/// the JSON of a document is the same document.
pub(crate) fn take_apart(data: &[u8], context: &DocumentContext) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let findings = match Document::read(text, context) {
        Ok(document) => {
            let again = Document::read(&document.json.to_string(), context);
            assert!(again.is_ok_and(|again| again.hash == document.hash), "{text}");
            return true;
        }
        Err(findings) => findings,
    };
    // YAML ends a line at a carriage return alone, too; the fault may be the text's end behind the last line.
    let lines = text.replace("\r\n", "\n").replace('\r', "\n").lines().count() + 1;
    assert!(!findings.is_empty() && findings.len() <= FINDINGS_MAX, "{} findings\n{text}", findings.len());
    for finding in findings {
        assert!(finding.bundle.is_some() || (1..=lines).contains(&finding.line), "{finding:?}\n{text}");
        assert!(finding.column >= 1 && !finding.rule.is_empty() && !finding.message.is_empty(), "{finding:?}");
        assert!(finding.value.as_ref().is_none_or(|value| value.chars().count() <= VALUE_MAX_CHARS), "{finding:?}");
    }
    false
}
