use std::borrow::Cow;

use serde_json::Value;

use crate::budget::Budget;
use crate::pattern::Pattern;

/// The arguments of a function, and the limits within which it runs.
pub(crate) struct Input<'c, 'a> {
    /// The value before `|`.
    pub(crate) piped: Cow<'a, Value>,
    pub(crate) arguments: Vec<Cow<'a, Value>>,
    /// The first argument as a regular expression, for functions that take one.
    pub(crate) pattern: Option<&'c Pattern>,
    /// Milliseconds since 1970.
    pub(crate) now_ms: i64,
    pub(crate) budget: &'c mut Budget,
}

impl Input<'_, '_> {
    /// The value before `|`, if it is a number.
    pub(crate) fn number(&self) -> Option<f64> {
        self.piped.as_f64()
    }

    /// The argument of that number as a whole number from 0.
    pub(crate) fn whole_argument(&self, number: usize) -> Option<usize> {
        let value = argument(&self.arguments, number)?.as_f64()?;
        (value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value)).then_some(value as usize)
    }
}

/// The argument of that number, from 0.
pub(crate) fn argument<'v>(arguments: &'v [Cow<'_, Value>], number: usize) -> Option<&'v Value> {
    arguments.get(number).map(|argument| &**argument)
}
