//! The parser of queries: a statement, or a JSON document.

use millstream_columns::{Diagnostic, ParserLimits};

use crate::bql::{check_length, parse_statement};
use crate::{Language, QueryPlan, json};

/// Parses a query: a statement, or a JSON document if it begins with `{`.
///
/// # Errors
/// All errors in the text, each with its position.
pub fn parse(text: &str, limits: &ParserLimits) -> Result<QueryPlan, Vec<Diagnostic>> {
    match Language::of(text) {
        Language::Json => {
            check_length(text, limits)?;
            json::read(text, limits)
        }
        Language::Bql => parse_statement(text, limits),
    }
}
