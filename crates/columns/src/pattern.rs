//! A regular expression that a whole text must match, compiled once.

use std::fmt;

use regex::{Regex, RegexBuilder};

/// Largest compiled pattern.
const COMPILED_MAX_BYTES: usize = 256 << 10;

/// A regular expression for RLIKE. Two are equal if their texts are.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    whole: Regex,
}

impl Pattern {
    /// Compiles `text`; matching is linear in the text, so look-around and back references are refused.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, regex::Error> {
        let compile = |text: &str| RegexBuilder::new(text).size_limit(COMPILED_MAX_BYTES).build();
        // By itself first: `a)|(b` must not become a pattern by what is put around it.
        compile(text)?;
        let whole = compile(&format!(r"\A(?:{text})\z"))?;
        Ok(Self { text: text.to_owned(), whole })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether all of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        self.whole.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}
