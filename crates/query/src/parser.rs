//! The statement: `SELECT … FROM … [WHERE …] [LIMIT n]`.

use std::collections::HashSet;

use crate::condition::condition;
use crate::cursor::{Cursor, Refusal};
use crate::diagnostic::{Diagnostic, Place};
use crate::field::METADATA;
use crate::lexer::Token;
use crate::suggest::nearest;
use crate::{Field, Item, Limits, Plan, Select, Source, Step, StreamDuration};

/// Reads a query.
///
/// # Errors
/// Everything that is wrong with it, at least one thing, each with its place.
pub fn parse(text: &str, limits: &Limits) -> Result<Plan, Vec<Diagnostic>> {
    if text.len() > limits.text_max_bytes {
        return Err(vec![Diagnostic {
            place: Place { byte: 0, line: 1, column: 1 },
            message: format!(
                "a query of {} bytes exceeds query.limits.text_max_bytes = {}; shorten it or raise the limit",
                text.len(),
                limits.text_max_bytes
            ),
            found: crate::lexer::excerpt(text),
            expected: Vec::new(),
            suggestion: None,
        }]);
    }
    let mut cursor = Cursor::new(text)?;
    statement(&mut cursor, limits).map_err(|refusal| vec![*refusal])
}

fn statement(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Plan, Refusal> {
    cursor.need_word("SELECT")?;
    let select = select(cursor, limits)?;
    if !cursor.is_word("FROM") {
        let expected: &[&str] = if select == Select::All { &["FROM"] } else { &[",", "AS", "FROM"] };
        return Err(cursor.unexpected_rest(expected));
    }
    cursor.need_word("FROM")?;
    let source = source(cursor)?;
    let filter = if cursor.take_word("WHERE") { Some(condition(cursor, limits)?) } else { None };
    let limit = if cursor.take_word("LIMIT") { Some(limit(cursor)?) } else { None };
    cursor.take_symbol(";");
    if *cursor.peek() != Token::End {
        let expected: &[&str] = match (&filter, limit) {
            (_, Some(_)) => &["the end of the query"],
            (Some(_), None) => &["AND", "OR", "LIMIT", "the end of the query"],
            (None, None) => &["WHERE", "LIMIT", "the end of the query"],
        };
        return Err(cursor.unexpected_rest(expected));
    }
    Ok(Plan { select, source, filter, limit })
}

fn select(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Select, Refusal> {
    if cursor.is_word("DISTINCT") {
        return Err(cursor.unavailable("SELECT DISTINCT"));
    }
    if cursor.take_symbol("*") {
        return Ok(Select::All);
    }
    let mut items = Vec::new();
    let mut names = HashSet::new();
    loop {
        let mark = cursor.mark();
        let item = item(cursor, limits)?;
        if !names.insert(item.name()) {
            let message = format!("two selected fields are called '{}'; rename one with AS", item.name());
            return Err(cursor.refuse_at(mark, message));
        }
        items.push(item);
        if items.len() > limits.items_max {
            let message = format!(
                "more than query.limits.items_max = {} fields are selected; select fewer or use *",
                limits.items_max
            );
            return Err(cursor.refuse_at(mark, message));
        }
        if !cursor.take_symbol(",") {
            return Ok(Select::Items(items));
        }
    }
}

fn item(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Item, Refusal> {
    match cursor.peek() {
        Token::Word(_) | Token::Name(_) => {}
        Token::Number(_) | Token::Text(_) | Token::Symbol("-") => {
            return Err(cursor.unavailable("selecting anything but fields"));
        }
        _ => return Err(cursor.expected(&["*", "a field"])),
    }
    let field = field(cursor, limits)?;
    let alias = if cursor.take_word("AS") { Some(cursor.need_name("a name")?) } else { None };
    Ok(Item { field, alias })
}

/// A field: a name in the payload with steps below it, or one of the `$` fields.
pub(crate) fn field(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Field, Refusal> {
    if let (Token::Word(word), Token::Symbol("(")) = (cursor.peek(), cursor.peek_next()) {
        let function = format!("the function {}", word.to_uppercase());
        return Err(cursor.unavailable(&function));
    }
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

fn source(cursor: &mut Cursor<'_>) -> Result<Source, Refusal> {
    match cursor.peek() {
        Token::Name(name) => {
            let name = name.clone();
            cursor.advance();
            Ok(Source::Topic(name))
        }
        Token::Word(word) if word.eq_ignore_ascii_case("STREAM") => {
            cursor.advance();
            stream_duration(cursor).map(Source::Stream)
        }
        Token::Symbol("(") => Err(cursor.unavailable("a query within a query")),
        _ => Err(cursor.expected(&["STREAM", "the name of a topic in double quotes"])),
    }
}

fn stream_duration(cursor: &mut Cursor<'_>) -> Result<StreamDuration, Refusal> {
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

fn limit(cursor: &mut Cursor<'_>) -> Result<u64, Refusal> {
    if let Token::Number(digits) = cursor.peek()
        && let Ok(limit) = digits.parse()
        && limit > 0
    {
        cursor.advance();
        return Ok(limit);
    }
    Err(cursor.expected(&["a whole number of rows from 1"]))
}
