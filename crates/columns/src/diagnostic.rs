//! What is wrong with the text of a query, and where.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A place in the text of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Bytes before it.
    pub byte: usize,
    /// Its line, from 1.
    pub line: usize,
    /// Its column in characters, from 1.
    pub column: usize,
}

impl Place {
    /// The place `byte` bytes into `text`.
    pub fn of(text: &str, byte: usize) -> Self {
        let before = &text[..byte];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { byte, line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

/// One thing that is wrong with a query: where, what is there, what should be there, and what was probably meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Where it begins.
    #[serde(flatten)]
    pub place: Place,
    /// The rule and, where it is not obvious, the remedy.
    pub message: String,
    /// What stands there, as written (long texts are cut).
    pub found: String,
    /// What could stand there; empty if the message says it all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<String>,
    /// The known word or name that is nearest to what was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.place.line, self.place.column, self.message)?;
        if let Some(suggestion) = &self.suggestion {
            write!(f, "; did you mean {suggestion}?")?;
        }
        Ok(())
    }
}
