//! NGSI's rules for names and texts.

use std::collections::HashSet;
use std::fmt::Display;

use serde_json::Value;

use crate::refusal::{ErrorName, Refusal};

/// Longest identifier: entity id and type, attribute name and type, metadata name and type.
pub(crate) const IDENTIFIER_MAX_CHARS: usize = 256;
/// Deepest nesting of a JSON body.
pub(crate) const NESTING_MAX: usize = 50;
/// The tenant's name follows NGSI's rule.
pub(crate) fn is_service(name: &[u8]) -> bool {
    name.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_')
}

/// Characters that are forbidden in requests.
const FORBIDDEN: &str = "<>\"'=;()";
const RESERVED_NAMES: [&str; 4] = ["id", "type", "*", "geo:distance"];

/// Checks an identifier; `what` names it in the error.
pub(crate) fn check_identifier(what: impl Display, text: &str) -> Result<(), Refusal> {
    if is_identifier(text) {
        return Ok(());
    }
    let shown: String = text.chars().take(IDENTIFIER_MAX_CHARS).collect();
    Err(Refusal::bad(format!(
        "{what} '{shown}' is no identifier: use 1 to {IDENTIFIER_MAX_CHARS} ASCII characters without control characters, blanks and & ? / # {}; choose another",
        FORBIDDEN.chars().map(String::from).collect::<Vec<_>>().join(" ")
    )))
}

pub(crate) fn is_identifier(text: &str) -> bool {
    let legal = |c: u8| c.is_ascii_graphic() && !b"&?/#".contains(&c) && !FORBIDDEN.as_bytes().contains(&c);
    (1..=IDENTIFIER_MAX_CHARS).contains(&text.len()) && text.bytes().all(legal)
}

pub(crate) fn check_attribute_name(name: &str) -> Result<(), Refusal> {
    if RESERVED_NAMES.contains(&name) {
        return Err(Refusal::bad(format!(
            "'{name}' cannot be an attribute's name: id, type, * and geo:distance are reserved; choose another"
        )));
    }
    check_identifier("attribute name", name)
}

/// Refuses a list with duplicates; `what` names it in the error.
pub(crate) fn check_once(what: impl Display, names: &[impl AsRef<str>]) -> Result<(), Refusal> {
    let mut known = HashSet::new();
    match names.iter().map(AsRef::as_ref).find(|name| !known.insert(*name)) {
        None => Ok(()),
        Some(name) => Err(Refusal::bad(format!("{what} names '{name}' twice: name each once"))),
    }
}

/// `names` in their order, each once.
pub(crate) fn without_repeats(mut names: Vec<String>) -> Vec<String> {
    let mut known = HashSet::new();
    names.retain(|name| known.insert(name.clone()));
    names
}

pub(crate) fn is_attribute_name(name: &str) -> bool {
    !RESERVED_NAMES.contains(&name) && is_identifier(name)
}

/// Checks the strings within a value; `what` names it in the error.
pub(crate) fn check_text(what: impl Display, value: &Value) -> Result<(), Refusal> {
    match forbidden_in(value) {
        None => Ok(()),
        Some(text) => Err(Refusal::bad(format!(
            "the value of {what} contains '{text}': the characters < > \" ' = ; ( ) are forbidden; \
             leave them out, or give it the type TextUnrestricted"
        ))),
    }
}

pub(crate) fn has_forbidden(text: &str) -> bool {
    text.bytes().any(|c| FORBIDDEN.as_bytes().contains(&c))
}

/// The first string within `value` that has a forbidden character.
pub(crate) fn forbidden_in(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => has_forbidden(text).then_some(text),
        Value::Array(items) => items.iter().find_map(forbidden_in),
        Value::Object(members) => members
            .iter()
            .find_map(|(name, value)| has_forbidden(name).then_some(&**name).or_else(|| forbidden_in(value))),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Refuses JSON that nests too deep. Scans the text before it is parsed.
pub(crate) fn check_nesting(text: &[u8]) -> Result<(), Refusal> {
    let deepest = nesting(text);
    if deepest <= NESTING_MAX {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorName::ParseError,
        format!("the body nests {deepest} levels deep: at most {NESTING_MAX} are allowed; flatten it"),
    ))
}

pub(crate) fn nesting(text: &[u8]) -> usize {
    let (mut open, mut deepest, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for &c in text {
        match c {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                open += 1;
                deepest = deepest.max(open);
            }
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn identifiers_are_plain_and_short() {
        let longest = "x".repeat(IDENTIFIER_MAX_CHARS);
        for text in ["a", "urn:ngsi-ld:Device:4711", "a.b-c_d", "%41", "\\", longest.as_str()] {
            assert!(check_identifier("id", text).is_ok(), "{text}");
        }
        let too_long = "x".repeat(IDENTIFIER_MAX_CHARS + 1);
        let forbidden = "< > \" ' = ; ( ) & ? / #".split(' ').map(|c| format!("a{c}b"));
        let others = ["", "a b", "a\u{7}", "ä", "\u{7f}", &too_long].map(String::from);
        for text in forbidden.chain(others) {
            let refusal = check_identifier("id", &text).unwrap_err();
            assert_eq!(refusal.name, ErrorName::BadRequest);
            assert!(refusal.description.contains("1 to 256"), "{refusal:?}");
        }
    }

    #[test]
    fn reserved_words_are_no_attribute_names() {
        for name in RESERVED_NAMES {
            assert!(check_attribute_name(name).unwrap_err().description.contains(name));
            assert!(!is_attribute_name(name));
        }
        assert!(is_attribute_name("dateCreated"));
    }

    #[test]
    fn forbidden_characters_are_found_at_any_depth() {
        assert_eq!(forbidden_in(&json!({"a": [1, {"b": "x<y"}]})), Some("x<y"));
        assert_eq!(forbidden_in(&json!({"a(": 1})), Some("a("));
        assert_eq!(forbidden_in(&json!(["a", 1, null, {"b": "c&?/#"}])), None);
    }

    #[test]
    fn nesting_counts_open_brackets_but_not_those_in_strings() {
        for (text, expected) in [("1", 0), ("{}", 1), ("[{\"a\":[]},[]]", 3), (r#"{"a":"[[[\"[["}"#, 1)] {
            assert_eq!(nesting(text.as_bytes()), expected, "{text}");
        }
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(check_nesting(deep(50).as_bytes()).is_ok());
        let refusal = check_nesting(deep(51).as_bytes()).unwrap_err();
        assert_eq!(refusal.name, ErrorName::ParseError);
    }
}
