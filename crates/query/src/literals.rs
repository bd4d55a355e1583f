//! The literals that every text matching a pattern contains.

use millstream_columns::Pattern;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Largest number of alternative literals; a pattern with more is not used.
const ALTERNATIVES_MAX: usize = 32;

/// Something that holds for every text that matches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequiredLiteral {
    /// It is one of these.
    Whole(Vec<Vec<u8>>),
    /// The text begins with this literal.
    Prefix(Vec<u8>),
    /// At least one of these occurs in it.
    Anywhere(Vec<Vec<u8>>),
}

/// The literals that the whole-text pattern requires, the most selective first.
pub(crate) fn required(pattern: &Pattern) -> Vec<RequiredLiteral> {
    let Ok(hir) = regex_syntax::parse(pattern.translated()) else {
        return Vec::new();
    };
    if let Some(texts) = whole(&hir) {
        return vec![RequiredLiteral::Whole(texts)];
    }
    let prefix = prefix(&hir).map(|prefix| RequiredLiteral::Prefix(prefix.to_vec()));
    prefix.into_iter().chain(anywhere(&hir).map(RequiredLiteral::Anywhere)).collect()
}

/// False if no text of a number, and neither `true` nor `false`, matches.
pub(crate) fn may_match_number_or_boolean(pattern: &Pattern) -> bool {
    let may_occur = |literal: &[u8]| {
        let is_part_of = |word: &[u8]| word.windows(literal.len().max(1)).any(|part| part == literal);
        literal.iter().all(|byte| b"+-.0123456789Ee".contains(byte)) || is_part_of(b"true") || is_part_of(b"false")
    };
    required(pattern).iter().all(|required| match required {
        RequiredLiteral::Prefix(prefix) => may_occur(prefix),
        RequiredLiteral::Whole(literals) | RequiredLiteral::Anywhere(literals) => {
            literals.iter().any(|literal| may_occur(literal))
        }
    })
}

/// All texts that match, if they are few.
fn whole(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(vec![literal.0.to_vec()]),
        HirKind::Capture(capture) => whole(&capture.sub),
        HirKind::Alternation(parts) => all(parts, whole),
        HirKind::Class(Class::Unicode(class)) => {
            let characters = class.iter().flat_map(|range| range.start()..=range.end());
            let few: Vec<char> = characters.take(ALTERNATIVES_MAX + 1).collect();
            (few.len() <= ALTERNATIVES_MAX).then(|| few.iter().map(|one| one.to_string().into_bytes()).collect())
        }
        _ => None,
    }
}

fn prefix(hir: &Hir) -> Option<&[u8]> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(&literal.0),
        HirKind::Capture(capture) => prefix(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => prefix(&repetition.sub),
        HirKind::Concat(parts) => {
            // An anchor takes no text.
            parts.iter().find(|part| !matches!(part.kind(), HirKind::Look(_))).and_then(prefix)
        }
        _ => None,
    }
}

/// The literals of which one must occur. Of several sets it is the one whose shortest literal is longest.
fn anywhere(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(vec![literal.0.to_vec()]),
        HirKind::Capture(capture) => anywhere(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => anywhere(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().filter_map(anywhere).max_by_key(|literals| shortest(literals)),
        HirKind::Alternation(parts) => all(parts, anywhere),
        _ => None,
    }
}

/// The literals of all alternatives together.
fn all(parts: &[Hir], each: impl Fn(&Hir) -> Option<Vec<Vec<u8>>>) -> Option<Vec<Vec<u8>>> {
    let mut literals = Vec::new();
    for part in parts {
        literals.extend(each(part)?);
        if literals.len() > ALTERNATIVES_MAX {
            return None;
        }
    }
    Some(literals)
}

fn shortest(literals: &[Vec<u8>]) -> usize {
    literals.iter().map(Vec::len).min().unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn of(pattern: &str) -> Vec<RequiredLiteral> {
        required(&Pattern::new(pattern).unwrap())
    }

    fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_pattern_names_the_literals_that_its_matches_contain() {
        let prefix = |text: &str| RequiredLiteral::Prefix(text.as_bytes().to_vec());
        let anywhere = |all: &[&str]| RequiredLiteral::Anywhere(texts(all));
        assert_eq!(of("on|off"), [RequiredLiteral::Whole(texts(&["on", "off"]))]);
        assert_eq!(of("y|x"), [RequiredLiteral::Whole(texts(&["x", "y"]))]);
        assert_eq!(of("(?:error)"), [RequiredLiteral::Whole(texts(&["error"]))]);
        assert_eq!(of("error.*"), [prefix("error"), anywhere(&["error"])]);
        assert_eq!(of("^err[0-9]+warning"), [prefix("err"), anywhere(&["warning"])]);
        assert_eq!(of(".*(timeout|refused).*"), [anywhere(&["timeout", "refused"])]);
        assert_eq!(of(".*(timeout|.)x"), [anywhere(&["x"])]);
        assert_eq!(of("(ab)?.*"), []);
        assert_eq!(of("(?i)error"), []);
        assert_eq!(of(".*a{0,3}"), []);
        assert_eq!(of("."), []);
        assert_eq!(of("(abc)+d?"), [prefix("abc"), anywhere(&["abc"])]);
    }

    #[test]
    fn a_pattern_tells_if_it_may_match_a_number_or_a_boolean() {
        for (pattern, may) in [
            ("[0-9]+", true),
            ("1.*", true),
            (".*e.*", true),
            ("(?i)TRUE", true),
            ("al.*|fal.*", true),
            ("x|", true),
            ("x.*", false),
            ("on|off", false),
            (".*(timeout|refused).*", false),
        ] {
            assert_eq!(may_match_number_or_boolean(&Pattern::new(pattern).unwrap()), may, "{pattern}");
        }
    }
}
