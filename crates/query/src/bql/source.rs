//! The clauses FROM, WINDOWING and LIMIT.
use millstream_columns::{Cursor, ParseError, Token};

use crate::{Extent, RecordSource, StreamDuration, Window};

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

/// Parses the clause after WINDOWING.
pub(super) fn window(cursor: &mut Cursor<'_>) -> Result<Window, ParseError> {
    let Token::Word(word) = cursor.peek().clone() else {
        return Err(cursor.expected(&["TUMBLING", "EVERY"]));
    };
    match word.to_ascii_uppercase().as_str() {
        "TUMBLING" => {
            cursor.advance();
            cursor.need_symbol("(")?;
            let emit = extent(cursor)?;
            cursor.need_symbol(")")?;
            Ok(Window::Tumbling(emit))
        }
        "EVERY" => {
            cursor.advance();
            every(cursor)
        }
        "SLIDING" | "SESSION" => Err(cursor.unavailable("a sliding or session window")),
        _ => Err(cursor.expected(&["TUMBLING", "EVERY"])),
    }
}

/// `(n, TIME|RECORD, ALL)` or `(n, TIME|RECORD, FIRST, n, TIME|RECORD)`.
fn every(cursor: &mut Cursor<'_>) -> Result<Window, ParseError> {
    cursor.need_symbol("(")?;
    let emit = extent(cursor)?;
    cursor.need_symbol(",")?;
    let window = if cursor.take_word("ALL") {
        Window::Additive(emit)
    } else if cursor.take_word("FIRST") {
        cursor.need_symbol(",")?;
        let mark = cursor.mark();
        if extent(cursor)? != emit {
            return Err(cursor.unavailable_at(mark, "a window that includes more or less than its results are apart"));
        }
        Window::Tumbling(emit)
    } else if cursor.is_word("LAST") {
        return Err(cursor.unavailable("a sliding window"));
    } else {
        return Err(cursor.expected(&["ALL", "FIRST"]));
    };
    cursor.need_symbol(")")?;
    Ok(window)
}

/// `n, TIME` or `n, RECORD`.
fn extent(cursor: &mut Cursor<'_>) -> Result<Extent, ParseError> {
    let amount = match cursor.peek() {
        Token::Number(digits) => digits.parse().ok().filter(|amount| *amount > 0),
        _ => None,
    };
    let Some(amount) = amount else {
        return Err(cursor.expected(&["a whole number from 1"]));
    };
    cursor.advance();
    cursor.need_symbol(",")?;
    if cursor.take_word("TIME") {
        Ok(Extent::TimeMs(amount))
    } else if cursor.take_word("RECORD") {
        Ok(Extent::Records(amount))
    } else {
        Err(cursor.expected(&["TIME", "RECORD"]))
    }
}
