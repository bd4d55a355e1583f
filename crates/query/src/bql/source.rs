//! The clauses FROM and LIMIT.

use millstream_columns::{Cursor, ParseError, Token};

use crate::{RecordSource, StreamDuration};

pub(super) fn source(cursor: &mut Cursor<'_>) -> Result<RecordSource, ParseError> {
    match cursor.peek() {
        Token::Name(name) => {
            let name = name.clone();
            cursor.advance();
            Ok(RecordSource::Topic(name))
        }
        Token::Word(word) if word.eq_ignore_ascii_case("STREAM") => {
            cursor.advance();
            stream_duration(cursor).map(RecordSource::Stream)
        }
        Token::Symbol("(") => Err(cursor.unavailable("a query within a query")),
        _ => Err(cursor.expected(&["STREAM", "the name of a topic in double quotes"])),
    }
}

fn stream_duration(cursor: &mut Cursor<'_>) -> Result<StreamDuration, ParseError> {
    cursor.need_symbol("(")?;
    if cursor.take_symbol(")") {
        return Ok(StreamDuration::Default);
    }
    let duration = match cursor.peek() {
        Token::Word(word) if word.eq_ignore_ascii_case("MAX") => StreamDuration::Max,
        Token::Number(digits) => match digits.parse() {
            Ok(0) | Err(_) => return Err(cursor.expected(&["a duration of whole milliseconds from 1"])),
            Ok(duration_ms) => StreamDuration::Ms(duration_ms),
        },
        _ => return Err(cursor.expected(&["a duration in milliseconds", "MAX", ")"])),
    };
    cursor.advance();
    cursor.need_symbol(",")?;
    if cursor.is_word("RECORD") {
        return Err(cursor.refuse("a stream is limited by TIME; use LIMIT to end after a number of records".to_owned()));
    }
    cursor.need_word("TIME")?;
    cursor.need_symbol(")")?;
    Ok(duration)
}

pub(super) fn limit(cursor: &mut Cursor<'_>) -> Result<u64, ParseError> {
    if let Token::Number(digits) = cursor.peek()
        && let Ok(limit) = digits.parse()
        && limit > 0
    {
        cursor.advance();
        return Ok(limit);
    }
    Err(cursor.expected(&["a whole number of rows from 1"]))
}
