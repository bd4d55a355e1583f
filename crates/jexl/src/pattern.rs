use regex::{Regex, RegexBuilder};

/// The longest text of a regular expression, in bytes; a longer one is as one with a mistake.
const PATTERN_MAX_BYTES: usize = 1_024;
/// The largest compiled form, and the largest cache of states while it is matched.
pub(crate) const COMPILED_MAX_BYTES: usize = 64 << 10;

/// A compiled regular expression. Matching takes time that is linear in the text.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Option<Regex>);

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        let mut builder = RegexBuilder::new(text);
        builder.size_limit(COMPILED_MAX_BYTES).dfa_size_limit(COMPILED_MAX_BYTES);
        Self(if text.len() > PATTERN_MAX_BYTES { None } else { builder.build().ok() })
    }

    /// The compiled form; `None` if the text is no regular expression, or too large.
    pub(crate) fn regex(&self) -> Option<&Regex> {
        self.0.as_ref()
    }
}
