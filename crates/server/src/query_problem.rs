//! Converts the errors of live queries into problem details.

use axum::http::StatusCode;
use millstream_http::Problem;
use millstream_query::{Diagnostic, Error};
use serde_json::Value;

/// The member of a problem that lists everything that is wrong with a query's text.
pub(crate) const FINDINGS: &str = "errors";

/// Converts a refusal; an error in the text is 422 with the positions.
pub(crate) fn problem(error: Error) -> Problem {
    let problem = Problem::from_error(error.code(), &error);
    match error {
        Error::Refused { diagnostics } => {
            let errors: Vec<Value> = diagnostics.iter().map(place).collect();
            problem.with_status(StatusCode::UNPROCESSABLE_ENTITY).member(FINDINGS, errors)
        }
        _ => problem,
    }
}

/// Renders a diagnostic with its length in the text.
pub(crate) fn place(diagnostic: &Diagnostic) -> Value {
    let mut place = serde_json::to_value(diagnostic).expect("a diagnostic has string keys only");
    place["length"] = diagnostic.found.chars().count().max(1).into();
    place
}
