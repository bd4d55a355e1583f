//! JSON where YAML reads it otherwise: pairs of `\uD83D\uDE00`, and errors in the words of JSON.

use serde::de::IgnoredAny;

/// The text with pairs of surrogates as one escape of YAML, if it is JSON
/// that has some. Columns after a pair in the same line are two less.
pub(super) fn replaced(text: &str) -> Option<String> {
    if !is_like_json(text) || !text.contains("\\u") || serde_json::from_str::<IgnoredAny>(text).is_err() {
        return None;
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        result.push_str(&rest[..at]);
        let escape = &rest[at..];
        let taken = match pair(escape) {
            Some(character) => {
                result.push_str(&format!("\\U{:08X}", u32::from(character)));
                PAIR_BYTES
            }
            // The escaped character is one byte, as the text is JSON.
            None => {
                result.push_str(&escape[..2]);
                2
            }
        };
        rest = &escape[taken..];
    }
    result.push_str(rest);
    Some(result)
}

const PAIR_BYTES: usize = 12;

fn pair(escape: &str) -> Option<char> {
    let unit = |at: usize| {
        let digits = escape.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    char::decode_utf16([unit(0)?, unit(6)?]).next()?.ok().filter(|character| u32::from(*character) > 0xFFFF)
}

/// Line, column and fault of a text that is meant to be JSON, for a fault of syntax.
pub(super) fn json_fault(text: &str, message: &str, rule: &str) -> Option<(usize, usize, String)> {
    if rule != "syntax" || !is_like_json(text) {
        return None;
    }
    let message = match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => return None,
        Err(error) if error.line() == 0 => message.to_owned(),
        Err(error) => {
            let words = error.to_string();
            let words = words.split(" at line ").next().unwrap_or_default().to_owned();
            return Some((error.line(), error.column().max(1), format!("the text is not JSON: {words}; mend it here")));
        }
    };
    Some((1, 1, message))
}

/// An object that begins with a key in quotes.
fn is_like_json(text: &str) -> bool {
    text.trim_start().strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('"'))
}
