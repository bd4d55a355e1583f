//! Fields: paths into the payload, and the `$` fields.

use crate::cursor::{Cursor, ParseError};
use crate::field::metadata_names;
use crate::lexer::Token;
use crate::suggest::nearest;
use crate::{Field, ParserLimits, PathStep};

/// A field: a path into the payload, or one of the `$` fields.
pub(super) fn field(cursor: &mut Cursor<'_>, limits: &ParserLimits) -> Result<Field, ParseError> {
    if let Token::Word(word) = cursor.peek()
        && word.starts_with('$')
    {
        return metadata(cursor);
    }
    let mark = cursor.mark();
    let mut steps = vec![PathStep::Key(cursor.need_name("a field")?)];
    while let Some(step) = step(cursor)? {
        steps.push(step);
        if steps.len() > limits.path_max_steps {
            return Err(cursor.refuse_at(mark, too_many_steps(limits)));
        }
    }
    Ok(Field::Payload(steps))
}

pub(super) fn too_many_steps(limits: &ParserLimits) -> String {
    format!("a path has more than {} steps", limits.named("path_max_steps", limits.path_max_steps))
}

/// `.name`, `['name']` or `[number]`; a computed subscript is not part of the field.
fn step(cursor: &mut Cursor<'_>) -> Result<Option<PathStep>, ParseError> {
    if cursor.is_symbol(".") {
        return member(cursor).map(|name| Some(PathStep::Key(name)));
    }
    if !cursor.is_symbol("[") || *cursor.peek_at(2) != Token::Symbol("]") {
        return Ok(None);
    }
    let step = match cursor.peek_next() {
        Token::Text(name) => PathStep::Key(name.clone()),
        Token::Number(digits) => match digits.parse() {
            Ok(index) => PathStep::Index(index),
            Err(_) => return Ok(None),
        },
        _ => return Ok(None),
    };
    for _ in 0..3 {
        cursor.advance();
    }
    Ok(Some(step))
}

/// `.name`: the name.
pub(super) fn member(cursor: &mut Cursor<'_>) -> Result<String, ParseError> {
    cursor.need_symbol(".")?;
    match cursor.peek().clone() {
        Token::Word(name) | Token::Name(name) => {
            cursor.advance();
            Ok(name)
        }
        _ => Err(cursor.expected(&["the name of a member"])),
    }
}

fn metadata(cursor: &mut Cursor<'_>) -> Result<Field, ParseError> {
    let names = metadata_names(cursor.is_of_job());
    let Token::Word(word) = cursor.advance() else {
        return Err(cursor.expected(names));
    };
    match word.to_ascii_lowercase().as_str() {
        "$key" => Ok(Field::Key),
        "$timestamp" => Ok(Field::Timestamp),
        "$offset" => Ok(Field::Offset),
        "$partition" => Ok(Field::Partition),
        "$topic" if cursor.is_of_job() => Ok(Field::Topic),
        "$header" | "$headers" => match step(cursor)? {
            Some(PathStep::Key(name)) => Ok(Field::Header(name)),
            Some(PathStep::Index(_)) => {
                Err(cursor.refuse_last("a header is named by its name, as in $header['device_id']".to_owned()))
            }
            None => Err(cursor.expected(&["['the header's name']"])),
        },
        _ => {
            let message = format!("there is no {word}; a member of the payload of that name stands in double quotes");
            let mut refusal = cursor.refuse_last(message);
            refusal.expected = names.iter().map(|&name| name.to_owned()).collect();
            refusal.suggestion = nearest(&word, names.iter().copied()).map(str::to_owned);
            Err(refusal)
        }
    }
}
