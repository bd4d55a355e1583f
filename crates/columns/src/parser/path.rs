//! Fields: names in the payload with steps below them, and the `$` fields.

use crate::cursor::{Cursor, Refusal};
use crate::field::METADATA;
use crate::lexer::Token;
use crate::suggest::nearest;
use crate::{Field, Limits, Step};

/// A field: a name in the payload with steps below it, or one of the `$` fields.
pub(super) fn field(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Field, Refusal> {
    if let Token::Word(word) = cursor.peek()
        && word.starts_with('$')
    {
        return metadata(cursor);
    }
    let mark = cursor.mark();
    let mut steps = vec![Step::Key(cursor.need_name("a field")?)];
    while let Some(step) = step(cursor)? {
        steps.push(step);
        if steps.len() > limits.path_max_steps {
            return Err(cursor.refuse_at(mark, too_many_steps(limits)));
        }
    }
    Ok(Field::Payload(steps))
}

pub(super) fn too_many_steps(limits: &Limits) -> String {
    format!("a path has more than query.limits.path_max_steps = {} steps", limits.path_max_steps)
}

/// `.name`, `['name']` or `[number]`; a subscript that is computed is not one of the field itself.
fn step(cursor: &mut Cursor<'_>) -> Result<Option<Step>, Refusal> {
    if cursor.is_symbol(".") {
        return member(cursor).map(|name| Some(Step::Key(name)));
    }
    if !cursor.is_symbol("[") || *cursor.peek_at(2) != Token::Symbol("]") {
        return Ok(None);
    }
    let step = match cursor.peek_next() {
        Token::Text(name) => Step::Key(name.clone()),
        Token::Number(digits) => match digits.parse() {
            Ok(index) => Step::Index(index),
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
pub(super) fn member(cursor: &mut Cursor<'_>) -> Result<String, Refusal> {
    cursor.need_symbol(".")?;
    match cursor.peek().clone() {
        Token::Word(name) | Token::Name(name) => {
            cursor.advance();
            Ok(name)
        }
        _ => Err(cursor.expected(&["the name of a member"])),
    }
}

fn metadata(cursor: &mut Cursor<'_>) -> Result<Field, Refusal> {
    let Token::Word(word) = cursor.advance() else {
        return Err(cursor.expected(&METADATA));
    };
    match word.to_ascii_lowercase().as_str() {
        "$key" => Ok(Field::Key),
        "$timestamp" => Ok(Field::Timestamp),
        "$offset" => Ok(Field::Offset),
        "$partition" => Ok(Field::Partition),
        "$header" => match step(cursor)? {
            Some(Step::Key(name)) => Ok(Field::Header(name)),
            Some(Step::Index(_)) => {
                Err(cursor.refuse_last("a header is named by its name, as in $header['device_id']".to_owned()))
            }
            None => Err(cursor.expected(&["['the header's name']"])),
        },
        _ => {
            let message = format!("there is no {word}; a member of the payload of that name stands in double quotes");
            let mut refusal = cursor.refuse_last(message);
            refusal.expected = METADATA.iter().map(|&name| name.to_owned()).collect();
            refusal.suggestion = nearest(&word, METADATA).map(str::to_owned);
            Err(refusal)
        }
    }
}
