//! The language of expressions.

mod aggregate;
mod expression;
mod items;
mod operand;
mod path;
mod scope;

pub use expression::{condition, value};
pub use items::Items;
pub use scope::{Scope, named};

use crate::cursor::{Cursor, Refusal};
use crate::lexer::Token;
use crate::{Diagnostic, Expr, Limits};

/// Reads a text that is one expression over one record.
///
/// # Errors
/// Everything that is wrong with it, at least one thing, each with its place.
pub fn expression(text: &str, limits: &Limits) -> Result<Expr, Vec<Diagnostic>> {
    let mut cursor = Cursor::new(text)?;
    let read = value(&mut cursor, limits, Scope::RECORD).map_err(|refusal| vec![*refusal])?;
    match cursor.peek() {
        Token::End => Ok(read),
        _ => Err(vec![*cursor.unexpected_rest(&["an operator", "the end of the expression"])]),
    }
}

/// Refuses a list of `count` values that is longer than [`Limits::items_max`].
///
/// # Errors
/// It is.
pub fn within_items_max(cursor: &Cursor<'_>, mark: usize, count: usize, limits: &Limits) -> Result<(), Refusal> {
    if count <= limits.items_max {
        return Ok(());
    }
    let message = format!("more than query.limits.items_max = {} values stand here; name fewer", limits.items_max);
    Err(cursor.refuse_at(mark, message))
}
