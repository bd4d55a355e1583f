//! The reserved words of the language.

/// Words that are names only in double quotes. Other words (`STREAM`, `TIME`, `MAX`) have a meaning in one place only
/// and may be names elsewhere.
pub(crate) const RESERVED: [&str; 26] = [
    "SELECT",
    "DISTINCT",
    "FROM",
    "LATERAL",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "BY",
    "WINDOWING",
    "LIMIT",
    "AS",
    "AND",
    "OR",
    "XOR",
    "NOT",
    "IN",
    "IS",
    "BETWEEN",
    "RLIKE",
    "LIKE",
    "CASE",
    "NULL",
    "TRUE",
    "FALSE",
    "NOW",
];

pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

/// The feature that begins with `word` and that this version does not support yet.
pub(crate) fn unavailable(word: &str) -> Option<&'static str> {
    let parts = [("LATERAL", "LATERAL VIEW")];
    parts.iter().find(|(begins, _)| begins.eq_ignore_ascii_case(word)).map(|(_, what)| *what)
}
