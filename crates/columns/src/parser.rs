//! The parser of the expression language.

mod aggregate;
mod expression;
mod form;
mod history;
mod items;
mod operand;
mod path;
mod scope;
mod select_list;

pub use expression::{condition, value};
pub use items::Items;
pub use scope::{Scope, named};
pub use select_list::{aggregate_list, keyed_select_list, select_list};

use crate::cursor::{Cursor, ParseError};
use crate::lexer::Token;
use crate::{Diagnostic, Expr, Parameters, Parametric, ParserLimits};

/// Parses a text that is one expression over one record.
///
/// # Errors
/// All errors in the text, each with its position.
pub fn expression(text: &str, limits: &ParserLimits) -> Result<Expr, Vec<Diagnostic>> {
    let mut cursor = Cursor::new(text)?;
    whole(&mut cursor, |cursor| value(cursor, limits, Scope::RECORD))
}

/// Parses a text that is one expression over one record of a job.
///
/// # Errors
/// All errors in the text, each with its position.
pub fn parametric_value(
    text: &str,
    parameters: &Parameters,
    limits: &ParserLimits,
) -> Result<Parametric<Expr>, Vec<Diagnostic>> {
    let mut cursor = Cursor::of_job(text, parameters)?;
    let parsed = whole(&mut cursor, |cursor| value(cursor, limits, Scope::RECORD))?;
    Ok(Parametric { parsed, parameters: cursor.into_parameters_used() })
}

/// Parses a text that is one condition on one record of a job.
///
/// # Errors
/// All errors in the text, each with its position.
pub fn parametric_condition(
    text: &str,
    parameters: &Parameters,
    limits: &ParserLimits,
) -> Result<Parametric<Expr>, Vec<Diagnostic>> {
    let mut cursor = Cursor::of_job(text, parameters)?;
    let parsed = whole(&mut cursor, |cursor| condition(cursor, limits, Scope::RECORD))?;
    Ok(Parametric { parsed, parameters: cursor.into_parameters_used() })
}

/// Parses an expression that is the whole text.
fn whole<'t>(
    cursor: &mut Cursor<'t>,
    read: impl FnOnce(&mut Cursor<'t>) -> Result<Expr, ParseError>,
) -> Result<Expr, Vec<Diagnostic>> {
    let read = read(cursor).map_err(|refusal| vec![*refusal])?;
    match cursor.peek() {
        Token::End => Ok(read),
        _ => Err(vec![*cursor.unexpected_rest(&["an operator", "the end of the expression"])]),
    }
}

/// Refuses a list of `count` values that is longer than [`ParserLimits::items_max`].
///
/// # Errors
/// A diagnostic that names the limit.
pub fn within_items_max(
    cursor: &Cursor<'_>,
    mark: usize,
    count: usize,
    limits: &ParserLimits,
) -> Result<(), ParseError> {
    if count <= limits.items_max {
        return Ok(());
    }
    let message = format!("more than {} values stand here; name fewer", limits.named("items_max", limits.items_max));
    Err(cursor.refuse_at(mark, message))
}
