//! The words of the language.

/// Words that are no names unless they stand in double quotes. Other words (`STREAM`, `TIME`, `MAX`) mean something
/// only at their place and may be names elsewhere.
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

/// Whether `word` is reserved.
pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

/// What `word` begins, if it begins something of the language that is not there yet.
pub(crate) fn unavailable(word: &str) -> Option<&'static str> {
    let parts = [("LATERAL", "LATERAL VIEW"), ("LIKE", "LIKE (use RLIKE with a regular expression)"), ("CASE", "CASE")];
    parts.iter().find(|(begins, _)| begins.eq_ignore_ascii_case(word)).map(|(_, what)| *what)
}
