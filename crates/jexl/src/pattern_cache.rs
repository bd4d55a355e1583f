//! PatternWeight regular expressions, for all evaluations of the process: compiling one takes up to milliseconds, and a compiled
//! one up to a thousand times the memory of its text, so that expressions do not hold them.

use std::sync::LazyLock;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::pattern::{PATTERN_MAX_BYTES, Pattern};

/// All compiled forms together, by the upper limit of each.
const CACHE_MAX_BYTES: u64 = 8 << 20;
/// So many small forms fit.
const ITEMS_GUESS: usize = 512;

#[derive(Clone)]
struct PatternWeight;

impl Weighter<Box<str>, Pattern> for PatternWeight {
    fn weight(&self, text: &Box<str>, pattern: &Pattern) -> u64 {
        let compiled_bytes = if pattern.regex().is_some() { pattern.compiled_max_bytes() } else { 0 };
        (text.len() + compiled_bytes) as u64
    }
}

static PATTERNS: LazyLock<Cache<Box<str>, Pattern, PatternWeight>> =
    LazyLock::new(|| Cache::with_weighter(ITEMS_GUESS, CACHE_MAX_BYTES, PatternWeight));

/// The compiled form of a text.
pub(crate) fn compiled(text: &str) -> Pattern {
    if text.len() > PATTERN_MAX_BYTES {
        return Pattern::new(text);
    }
    if let Some(known) = PATTERNS.get(text) {
        return known;
    }
    let pattern = Pattern::new(text);
    PATTERNS.insert(text.into(), pattern.clone());
    pattern
}
