//! A regular expression that a whole text must match, compiled once.

use std::fmt;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

/// Largest compiled pattern.
const COMPILED_MAX_BYTES: usize = 256 << 10;

/// A regular expression for RLIKE. Two are equal if their texts are.
#[derive(Clone)]
pub struct Pattern(Arc<Compiled>);

struct Compiled {
    text: Box<str>,
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
        Ok(Self(Arc::new(Compiled { text: text.into(), whole })))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether all of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        self.0.whole.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.0.text)
    }
}
