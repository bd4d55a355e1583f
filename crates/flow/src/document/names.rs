//! The names that a document gives.

use super::keys::NAME_MAX_CHARS;

/// `true` for the name of a job, a node or a column.
pub(super) fn is_name(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && !name.ends_with('.')
        && name.chars().all(is_legal)
        && name.len() <= NAME_MAX_CHARS
}

/// The rule for names, as a finding tells it.
pub(super) fn name_rule() -> String {
    format!("use 1 to {NAME_MAX_CHARS} of the characters a-z A-Z 0-9 _ - . and begin with a letter or _")
}
