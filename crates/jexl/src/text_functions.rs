//! Functions of texts. Places and lengths count characters (Unicode scalar values).

use serde_json::Value;

use crate::input::{Input, argument};

/// The longest that the upper or lower case of a text can be, as a multiple of it.
const CASE_GROWTH_MAX: usize = 3;

/// `text|uppercase`
pub(crate) fn uppercase(input: Input<'_, '_>) -> Option<Value> {
    let text = input.piped.as_str()?;
    input.budget.bytes(text.len() * CASE_GROWTH_MAX)?;
    Some(Value::from(text.to_uppercase()))
}

/// `text|lowercase`
pub(crate) fn lowercase(input: Input<'_, '_>) -> Option<Value> {
    let text = input.piped.as_str()?;
    input.budget.bytes(text.len() * CASE_GROWTH_MAX)?;
    Some(Value::from(text.to_lowercase()))
}

/// `text|trim`: without blank space at both ends.
pub(crate) fn trim(input: Input<'_, '_>) -> Option<Value> {
    let text = input.piped.as_str()?;
    input.budget.bytes(text.len())?;
    Some(Value::from(text.trim()))
}

/// `text|len`, `array|len`
pub(crate) fn len(input: Input<'_, '_>) -> Option<Value> {
    match &*input.piped {
        Value::String(text) => {
            input.budget.bytes(text.len())?;
            Some(Value::from(text.chars().count()))
        }
        Value::Array(items) => Some(Value::from(items.len())),
        _ => None,
    }
}

/// `text|split(separator)`: the parts between the separators; each character by itself if that is empty.
pub(crate) fn split(input: Input<'_, '_>) -> Option<Value> {
    let (text, separator) = (input.piped.as_str()?, argument(&input.arguments, 0)?.as_str()?);
    input.budget.bytes(text.len())?;
    let mut parts = Vec::new();
    let mut add = |part: &str| {
        input.budget.bytes(size_of::<Value>() + part.len())?;
        parts.push(Value::from(part));
        Some(())
    };
    match separator.is_empty() {
        true => text.char_indices().try_for_each(|(at, c)| add(text.get(at..at + c.len_utf8())?))?,
        false => text.split(separator).try_for_each(&mut add)?,
    }
    Some(Value::Array(parts))
}

/// `text|indexOf(part)`: the place of the first, from 0; null if there is none.
pub(crate) fn index_of(input: Input<'_, '_>) -> Option<Value> {
    let (text, part) = (input.piped.as_str()?, argument(&input.arguments, 0)?.as_str()?);
    input.budget.bytes(text.len())?;
    let before = text.get(..text.find(part)?)?;
    Some(Value::from(before.chars().count()))
}

/// `text|substring(from, to)`: the characters from `from`, inclusive, to `to`, exclusive; null if `to` is before `from`
/// or behind the end.
pub(crate) fn substring(input: Input<'_, '_>) -> Option<Value> {
    let (text, from, to) = (input.piped.as_str()?, input.whole_argument(0)?, input.whole_argument(1)?);
    input.budget.bytes(text.len())?;
    let byte = |number| text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(number);
    text.get(byte(from)?..byte(to)?).map(Value::from)
}

/// `text|includes(part)`
pub(crate) fn includes(input: Input<'_, '_>) -> Option<Value> {
    let (text, part) = (input.piped.as_str()?, argument(&input.arguments, 0)?.as_str()?);
    input.budget.bytes(text.len())?;
    Some(Value::Bool(text.contains(part)))
}

/// `text|replaceStr(from, to)`: every `from` is replaced.
pub(crate) fn replace_str(input: Input<'_, '_>) -> Option<Value> {
    let (text, from, to) =
        (input.piped.as_str()?, argument(&input.arguments, 0)?.as_str()?, argument(&input.arguments, 1)?.as_str()?);
    input.budget.bytes(text.len())?;
    let most = text.matches(from).count().saturating_mul(to.len()).saturating_add(text.len());
    input.budget.bytes(most)?;
    Some(Value::from(text.replace(from, to)))
}

/// `text|replaceRegex(pattern, to)`: every match is replaced; `$1` in `to` is the first group of the match, `$0` the
/// whole.
pub(crate) fn replace_regex(input: Input<'_, '_>) -> Option<Value> {
    let (text, to, pattern) = (input.piped.as_str()?, argument(&input.arguments, 1)?.as_str()?, input.pattern?);
    let (regex, groups) = (pattern.regex()?, to.matches('$').count());
    let (mut replaced, mut done) = (String::new(), 0);
    input.budget.bytes(pattern.cost(text.len()))?;
    for found in regex.find_iter(text) {
        let most = to.len().saturating_add(groups.saturating_mul(found.len()));
        input.budget.bytes(most.saturating_add(found.start() - done))?;
        replaced.push_str(text.get(done..found.start())?);
        match groups {
            0 => replaced.push_str(to),
            _ => regex.captures_at(text, found.start())?.expand(to, &mut replaced),
        }
        done = found.end();
        // The next search may look at the whole rest, so it pays for it: many matches in a long text would otherwise take
        // a time that grows with its square.
        input.budget.bytes(pattern.cost(text.len() - done))?;
    }
    input.budget.bytes(text.len() - done)?;
    replaced.push_str(text.get(done..)?);
    Some(Value::from(replaced))
}

/// `text|matchRegex(pattern)`: all matches; an empty array if there is none.
pub(crate) fn match_regex(input: Input<'_, '_>) -> Option<Value> {
    let (text, pattern) = (input.piped.as_str()?, input.pattern?);
    let mut matches = Vec::new();
    input.budget.bytes(pattern.cost(text.len()))?;
    for found in pattern.regex()?.find_iter(text) {
        input.budget.bytes(size_of::<Value>() + found.len())?;
        matches.push(Value::from(found.as_str()));
        // As in `replace_regex`.
        input.budget.bytes(pattern.cost(text.len() - found.end()))?;
    }
    Some(Value::Array(matches))
}
