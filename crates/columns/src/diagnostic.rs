//! Errors in the text of a query, with their position.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A position in the text of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextPosition {
    /// Number of bytes before it.
    pub byte: usize,
    /// Number of the line, from 1.
    pub line: usize,
    /// Its column in characters, from 1.
    pub column: usize,
}

impl TextPosition {
    /// The position `byte` bytes into `text`.
    pub fn of(text: &str, byte: usize) -> Self {
        let before = &text[..byte];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { byte, line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

/// One error in a query: its position, the text found, the texts expected and a suggestion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The position at which the error begins.
    #[serde(flatten)]
    pub place: TextPosition,
    /// The rule and, where it is not obvious, the remedy.
    pub message: String,
    /// The text at that position, as written; long texts are cut.
    pub found: String,
    /// The texts that are valid there; empty if the message says it all.
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
