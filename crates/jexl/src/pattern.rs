use regex::{Error, Regex, RegexBuilder};

/// The longest text of a regular expression, in bytes; a longer one is as one with a mistake.
pub(crate) const PATTERN_MAX_BYTES: usize = 1_024;
/// The largest compiled form, and the largest cache of states while it is matched.
const COMPILED_MAX_BYTES: usize = 256 << 10;
/// Sizes of compiled forms, in bytes, and what a byte costs that one of at most this size looks at, as a multiple of one
/// that another function reads. It is the worst case, in which each byte leads into states that were not met before; a
/// larger form can be in more of them at once.
const COSTS: [(usize, usize); 2] = [(16 << 10, 32), (COMPILED_MAX_BYTES, 128)];

/// A compiled regular expression. Matching takes time that is linear in the text.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    /// `None` if the text is no regular expression, or too large.
    regex: Option<Regex>,
    byte_cost: usize,
    compiled_max_bytes: usize,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        let compile = |size: usize| RegexBuilder::new(text).size_limit(size).dfa_size_limit(COMPILED_MAX_BYTES).build();
        for (size, byte_cost) in COSTS.into_iter().filter(|_| text.len() <= PATTERN_MAX_BYTES) {
            match compile(size) {
                Ok(regex) => return Self { regex: Some(regex), byte_cost, compiled_max_bytes: size },
                Err(Error::CompiledTooBig(_)) => {}
                Err(_) => break,
            }
        }
        // As much work as the largest.
        Self { regex: None, byte_cost: 0, compiled_max_bytes: COMPILED_MAX_BYTES }
    }

    /// The compiled form; `None` if the text is no regular expression, or too large.
    pub(crate) fn regex(&self) -> Option<&Regex> {
        self.regex.as_ref()
    }

    /// Upper limit of the compiled form.
    pub(crate) fn compiled_max_bytes(&self) -> usize {
        self.compiled_max_bytes
    }

    /// The cost of a search that looks at so many bytes.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        bytes.saturating_mul(self.byte_cost)
    }
}
