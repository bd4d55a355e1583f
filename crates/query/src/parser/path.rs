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
            let message = format!("a path has more than query.limits.path_max_steps = {} steps", limits.path_max_steps);
            return Err(cursor.refuse_at(mark, message));
        }
    }
    Ok(Field::Payload(steps))
}

fn step(cursor: &mut Cursor<'_>) -> Result<Option<Step>, Refusal> {
    if cursor.take_symbol(".") {
        return match cursor.peek().clone() {
            Token::Word(name) | Token::Name(name) => {
                cursor.advance();
                Ok(Some(Step::Key(name)))
            }
            _ => Err(cursor.expected(&["the name of a member"])),
        };
    }
    if !cursor.take_symbol("[") {
        return Ok(None);
    }
    let step = match cursor.peek().clone() {
        Token::Text(name) => Step::Key(name),
        Token::Number(digits) => match digits.parse() {
            Ok(index) => Step::Index(index),
            Err(_) => return Err(cursor.expected(&["a whole number from 0"])),
        },
        _ => return Err(cursor.expected(&["the number of an element", "the name of a member in single quotes"])),
    };
    cursor.advance();
    cursor.need_symbol("]")?;
    Ok(Some(step))
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
