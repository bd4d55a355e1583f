//! Select lists of jobs: `*`, `* EXCEPT (a, b)`, and values with names; and lists of aggregates.

use super::expression::value;
use super::scope::Scope;
use super::within_items_max;
use crate::cursor::{Cursor, ParseError};
use crate::lexer::Token;
use crate::{AllMembers, Diagnostic, Item, Parameters, Parametric, ParserLimits, SelectList};

/// Parses a text that is the select list of a job. Of two values with one name the later stays, in the place of the earlier.
///
/// # Errors
/// All errors in the text, each with its position.
pub fn select_list(
    text: &str,
    parameters: &Parameters,
    limits: &ParserLimits,
) -> Result<Parametric<SelectList>, Vec<Diagnostic>> {
    list_in(Scope::RECORD, text, parameters, limits)
}

/// Parses a text that is the select list of a job over records by key: its functions may look back at earlier ones.
///
/// # Errors
/// All errors in the text, each with its position.
pub fn keyed_select_list(
    text: &str,
    parameters: &Parameters,
    limits: &ParserLimits,
) -> Result<Parametric<SelectList>, Vec<Diagnostic>> {
    list_in(Scope::KEYED_RECORD, text, parameters, limits)
}

fn list_in(
    scope: Scope<'_>,
    text: &str,
    parameters: &Parameters,
    limits: &ParserLimits,
) -> Result<Parametric<SelectList>, Vec<Diagnostic>> {
    let mut cursor = Cursor::of_job(text, parameters)?;
    let parsed = list(&mut cursor, limits, scope).map_err(|refusal| vec![*refusal])?;
    Ok(Parametric { parsed, parameters: cursor.into_parameters_used() })
}

/// Parses a text that is a list of values of many records of a job, such as `AVG(temp) AS mean, COUNT(*) AS n`. Names are as in
/// [`select_list`].
///
/// # Errors
/// All errors in the text, each with its position.
pub fn aggregate_list(
    text: &str,
    parameters: &Parameters,
    limits: &ParserLimits,
) -> Result<Parametric<Vec<Item>>, Vec<Diagnostic>> {
    let mut cursor = Cursor::of_job(text, parameters)?;
    let list = SelectList { all: None, items: Vec::new() };
    let parsed = items(&mut cursor, list, Scope::ITEM, limits).map_err(|refusal| vec![*refusal])?.items;
    Ok(Parametric { parsed, parameters: cursor.into_parameters_used() })
}

fn list(cursor: &mut Cursor<'_>, limits: &ParserLimits, scope: Scope<'_>) -> Result<SelectList, ParseError> {
    let mut list = SelectList { all: None, items: Vec::new() };
    if cursor.take_symbol("*") {
        list.all = Some(AllMembers { except: except(cursor, limits)? });
        if !cursor.take_symbol(",") {
            return end(cursor, list, &["EXCEPT", ",", "the end of the list"]);
        }
    }
    items(cursor, list, scope, limits)
}

/// Reads the values of a list, up to the end of the text.
fn items(
    cursor: &mut Cursor<'_>,
    mut list: SelectList,
    scope: Scope<'_>,
    limits: &ParserLimits,
) -> Result<SelectList, ParseError> {
    loop {
        let mark = cursor.mark();
        if cursor.is_symbol("*") {
            let why = match scope.no_aggregates {
                Some(_) => "* stands first in the list, and once",
                None => "* is all members of one record; a list of aggregates is of many",
            };
            return Err(cursor.refuse(why.to_owned()));
        }
        let value = value(cursor, limits, scope)?;
        let alias = if cursor.take_word("AS") { Some(cursor.need_name("a name")?) } else { None };
        let item = Item { value, alias };
        let name = item.name();
        match list.items.iter_mut().find(|earlier| earlier.name() == name) {
            Some(earlier) => *earlier = item,
            None => list.items.push(item),
        }
        within_items_max(cursor, mark, list.items.len(), limits)?;
        if !cursor.take_symbol(",") {
            return end(cursor, list, &["AS", ",", "the end of the list"]);
        }
    }
}

/// The names in `EXCEPT (a, b)`, if it stands here.
fn except(cursor: &mut Cursor<'_>, limits: &ParserLimits) -> Result<Vec<String>, ParseError> {
    let mut names = Vec::new();
    if !cursor.take_word("EXCEPT") {
        return Ok(names);
    }
    cursor.need_symbol("(")?;
    loop {
        let mark = cursor.mark();
        names.push(cursor.need_name("the name of a member")?);
        within_items_max(cursor, mark, names.len(), limits)?;
        if cursor.take_symbol(")") {
            return Ok(names);
        }
        if !cursor.take_symbol(",") {
            return Err(cursor.expected(&[",", ")"]));
        }
    }
}

fn end(cursor: &Cursor<'_>, list: SelectList, expected: &[&str]) -> Result<SelectList, ParseError> {
    match cursor.peek() {
        Token::End => Ok(list),
        _ => Err(cursor.unexpected_rest(expected)),
    }
}
