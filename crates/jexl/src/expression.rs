use serde_json::Value;

use crate::budget::Budget;
use crate::error::SyntaxError;
use crate::names::Names;
use crate::program::Program;
use crate::{evaluation, parser};

/// A parsed expression.
///
/// It takes memory in proportion to its text. Compiled regular expressions are shared by the whole process, which keeps up to
/// 8 MiB of them.
#[derive(Debug, Clone)]
pub struct Expression {
    program: Program,
}

impl Expression {
    /// Parses a text of at most [`EXPRESSION_MAX_BYTES`](crate::EXPRESSION_MAX_BYTES).
    ///
    /// A function that does not exist, and a regular expression with a mistake, are no errors of the syntax: they are
    /// null if they are reached.
    ///
    /// # Errors
    /// [`SyntaxError`], with the place, what is there, and what may be there. Orion takes such an expression, and its
    /// value is null.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        parser::parse(text).map(|program| Self { program })
    }

    /// Returns the value of the expression, with `now_ms` in milliseconds since 1970 as the time for `now`.
    ///
    /// The result is null if the expression cannot be evaluated: a name in an operation has no value, values do not fit
    /// an operator or a function, or [`STEPS_MAX`](crate::STEPS_MAX), [`WORK_MAX_BYTES`](crate::WORK_MAX_BYTES) or
    /// [`VALUE_DEPTH_MAX`](crate::VALUE_DEPTH_MAX) does not suffice.
    pub fn evaluate(&self, names: &dyn Names, now_ms: i64) -> Value {
        self.evaluate_within(names, now_ms, &mut Budget::default())
    }

    /// Like [`Expression::evaluate`], with a budget that several evaluations share.
    pub fn evaluate_within(&self, names: &dyn Names, now_ms: i64, budget: &mut Budget) -> Value {
        evaluation::evaluate(&self.program, names, now_ms, budget)
    }

    /// The names that the expression reads, each once, in the order in which they appear.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.program.names.iter().map(|name| &**name)
    }
}
