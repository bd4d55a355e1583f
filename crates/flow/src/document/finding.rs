//! One fault of a document, with its place and the rule that it breaks, and the list of all of them.

use millstream_columns::nearest;
use serde::Serialize;

use super::tree::{TextPosition, Tree};

/// A fault of a document. All of them are reported at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The place inside the document, such as `sinks.out.config.topic` or `routes[2].to[0]`; empty for the whole.
    pub path: String,
    /// The bundle whose text has the fault; line and column are those of its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// The line in the text, from 1. As in YAML, a carriage return alone ends a line, too.
    pub line: usize,
    /// The column in the line, in characters, from 1.
    pub column: usize,
    /// The name of the rule that is broken, such as `unknown_key`; stable, for programs.
    pub rule: &'static str,
    /// The offending value as JSON text, shortened to 200 characters; `None` where something is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The fault in words: value, rule and remedy.
    pub message: String,
    /// The nearest valid name, where the value looks like a typing error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

/// Most findings of one document; a program that reads them learns nothing from more.
const FINDINGS_MAX: usize = 200;
/// Longest value in a finding, in characters.
const VALUE_MAX_CHARS: usize = 200;

/// Most names that a message lists.
const LISTED_MAX: usize = 20;
/// Longer names are nobody's typing error, and comparing them costs.
const CANDIDATE_MAX_BYTES: usize = 64;

/// Collects findings in the order in which the rules are checked.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<(TextPosition, Finding)>,
    /// The names of the merged bundles; a place's source n is the n-th of them.
    pub(super) bundles: Vec<String>,
}

/// A finding that is being made.
pub(super) struct NewFinding<'a> {
    findings: Option<&'a mut Findings>,
    place: TextPosition,
    finding: Finding,
}

impl Findings {
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// True if there is a finding of one of these rules.
    pub(super) fn has_any(&self, rules: &[&str]) -> bool {
        self.found.iter().any(|(_, finding)| rules.contains(&finding.rule))
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    /// Begins a finding, which is added when it goes out of scope.
    pub(super) fn add(
        &mut self,
        place: TextPosition,
        path: &str,
        rule: &'static str,
        message: String,
    ) -> NewFinding<'_> {
        let bundle = place.source.checked_sub(1).and_then(|index| self.bundles.get(index)).cloned();
        let path = path.to_owned();
        let finding =
            Finding { path, bundle, line: place.line, column: place.column, rule, value: None, message, nearest: None };
        let findings = (self.found.len() < FINDINGS_MAX).then_some(self);
        NewFinding { findings, place, finding }
    }

    /// All findings, in the order of the text.
    pub(super) fn into_sorted(mut self) -> Vec<Finding> {
        self.found.sort_by_key(|(place, _)| *place);
        self.found.into_iter().map(|(_, finding)| finding).collect()
    }
}

impl NewFinding<'_> {
    pub(super) fn value(mut self, tree: &Tree) -> Self {
        if self.findings.is_some() {
            self.finding.value = Some(shortened(&tree.to_json().to_string()));
        }
        self
    }

    pub(super) fn named(mut self, name: &str) -> Self {
        self.finding.value = Some(shortened(&serde_json::Value::from(name).to_string()));
        self
    }

    pub(super) fn suggest(mut self, suggestion: Option<String>) -> Self {
        self.finding.nearest = suggestion;
        self
    }

    /// Adds the nearest of `candidates` to the message, if one is near.
    pub(super) fn near<'n>(mut self, name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Self {
        if self.findings.is_some() {
            let candidates = candidates.into_iter().filter(|candidate| candidate.len() <= CANDIDATE_MAX_BYTES);
            if let Some(meant) = nearest(name, candidates).filter(|meant| *meant != name) {
                self.finding.message.push_str(&format!("; did you mean '{meant}'?"));
                self.finding.nearest = Some(meant.to_owned());
            }
        }
        self
    }

    /// As [`Self::near`]; if none is near, the message lists the known names, or says how to see them.
    pub(super) fn near_or_listed(self, name: &str, known: &[&str], see: &str) -> Self {
        let mut finding = self.near(name, known.iter().copied());
        if finding.finding.nearest.is_none() {
            let listed = match known.len() {
                0 => "; there are none".to_owned(),
                1..=LISTED_MAX => format!("; there are {}", known.join(", ")),
                _ => format!("; {see} lists those that are"),
            };
            finding.finding.message.push_str(&listed);
        }
        finding
    }
}

impl Drop for NewFinding<'_> {
    fn drop(&mut self) {
        if let Some(findings) = self.findings.take() {
            let finding = std::mem::replace(
                &mut self.finding,
                Finding {
                    path: String::new(),
                    bundle: None,
                    line: 0,
                    column: 0,
                    rule: "",
                    value: None,
                    message: String::new(),
                    nearest: None,
                },
            );
            findings.found.push((self.place, finding));
        }
    }
}

/// The beginning of `text`, short enough for a message.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(VALUE_MAX_CHARS) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

/// The beginning of a name. Names that are longer than any legal one appear in many messages otherwise.
pub(super) fn bounded_name(name: &str) -> &str {
    name.char_indices().nth(VALUE_MAX_CHARS).map_or(name, |(cut, _)| &name[..cut])
}

/// `path` with the step to `key`; keys that are no plain words stand in quotes.
pub(super) fn join(path: &str, key: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '?');
    // A long key would be copied into the path of each value behind it.
    let is_plain = (1..=CANDIDATE_MAX_BYTES).contains(&key.len()) && key.chars().all(is_plain);
    match (is_plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", serde_json::Value::from(shortened(key))),
    }
}
