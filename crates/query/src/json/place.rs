//! The position of an error in a document, found by the path at the start of its message.

use std::collections::HashMap;

use serde_json::value::RawValue;

/// The byte position that `wrong` names: `filters[0].operation: there is no operation '='`.
pub(super) fn of(text: &str, wrong: &str) -> usize {
    let (path, what) = wrong.split_once(": ").unwrap_or(("", wrong));
    let here = descend(text, path.strip_prefix("query").unwrap_or(path));
    let quoted = what.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    let key = quoted.and_then(|(name, _)| key_of(here, name)).unwrap_or(0);
    offset(text, here).unwrap_or(0) + key
}

/// The part of the document at a path, as deep as there is one.
fn descend<'t>(mut here: &'t str, mut path: &str) -> &'t str {
    while !path.is_empty() {
        let Some((part, rest)) = step(here, path) else { return here };
        (here, path) = (part, rest);
    }
    here
}

/// The part to which a path leads first, and the rest of the path.
fn step<'t, 'p>(here: &'t str, path: &'p str) -> Option<(&'t str, &'p str)> {
    if let Some(rest) = path.strip_prefix('[') {
        let (index, rest) = rest.split_once(']')?;
        let parts: Vec<&RawValue> = serde_json::from_str(here).ok()?;
        return Some((parts.get(index.parse::<usize>().ok()?)?.get(), rest));
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    let members: HashMap<String, &RawValue> = serde_json::from_str(here).ok()?;
    let is_next = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
    let found = members.iter().filter_map(|(name, part)| Some((name, path.strip_prefix(name.as_str())?, part)));
    // Names may have points in them: the longest is meant.
    let (_, rest, part) = found.filter(|(_, rest, _)| is_next(rest)).max_by_key(|(name, ..)| name.len())?;
    Some((part.get(), rest))
}

/// The position of a member's name in an object.
fn key_of(here: &str, name: &str) -> Option<usize> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(here).ok()?;
    let before = &here[..offset(here, members.get(name)?.get())?];
    before.rfind(&serde_json::to_string(name).ok()?)
}

/// The position of `part` within `whole`.
fn offset(whole: &str, part: &str) -> Option<usize> {
    let offset = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (offset <= whole.len()).then_some(offset)
}
