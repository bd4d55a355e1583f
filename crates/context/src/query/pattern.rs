//! NGSI's regular expressions: extended syntax, a match anywhere in the text, in linear time.

use regex::{Regex, RegexBuilder};

use crate::refusal::Refusal;

const PATTERN_MAX_BYTES: usize = 1_024;
const COMPILED_MAX_BYTES: usize = 256 << 10;

#[derive(Debug, Clone)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Compiles `text`; `what` names it in errors.
    pub(crate) fn new(what: &str, text: &str) -> Result<Self, Refusal> {
        if text.len() > PATTERN_MAX_BYTES {
            return Err(Refusal::bad(format!(
                "{what} has {} bytes: at most {PATTERN_MAX_BYTES} are allowed; shorten it",
                text.len()
            )));
        }
        let mut builder = RegexBuilder::new(text);
        builder.size_limit(COMPILED_MAX_BYTES).dfa_size_limit(COMPILED_MAX_BYTES);
        builder.build().map(Self).map_err(|error| {
            let why = error.to_string().replace('\n', " ");
            Refusal::bad(format!(
                "{what} '{text}' is no regular expression that can be used: {why}; use POSIX extended syntax without \
                 look-around and back references"
            ))
        })
    }

    pub(crate) fn fits(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}
