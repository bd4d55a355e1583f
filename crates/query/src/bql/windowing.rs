//! The clause WINDOWING.

use millstream_columns::parser::{Scope, value};
use millstream_columns::{CalendarStep, CalendarWindows, Cursor, ParseError, ParserLimits, Token, Type};

use crate::{EventTime, Extent, Window};

/// The windows that there are.
const WINDOWS: [&str; 3] = ["TUMBLING", "EVERY", "SESSION"];
/// The units of a tumbling window.
const UNITS: [&str; 7] = ["TIME", "RECORD", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"];
/// Most parts of a sliding window, which are as long as the greatest common divisor of its size and its distance.
const PARTS_MAX: u64 = 1_440;
/// The greatest time of a window, in milliseconds: about 3,170 years.
const TIME_MAX_MS: u64 = 100_000_000_000_000;

/// Parses what follows WINDOWING up to ON.
pub(super) fn window(cursor: &mut Cursor<'_>) -> Result<Window, ParseError> {
    if cursor.take_word("TUMBLING") {
        tumbling(cursor)
    } else if cursor.take_word("EVERY") {
        every(cursor)
    } else if cursor.take_word("SESSION") {
        session(cursor)
    } else if cursor.is_word("SLIDING") || cursor.is_word("HOPPING") {
        let message =
            "windows that overlap are EVERY(n, TIME, LAST, m, TIME): a result every n milliseconds, of the last m";
        Err(cursor.refuse(message.to_owned()))
    } else {
        Err(cursor.expected(&WINDOWS))
    }
}

/// Parses the time after ON, and its delay.
pub(super) fn event_time(cursor: &mut Cursor<'_>, limits: &ParserLimits) -> Result<EventTime, ParseError> {
    let mark = cursor.mark();
    let time = value(cursor, limits, Scope::RECORD)?;
    if time.kind() == Type::Boolean || time.kind().is_nested() {
        let what = time.kind().noun();
        let message =
            format!("a time is milliseconds since 1970 or a text such as '2026-01-31T12:00:00Z'; this is {what}");
        return Err(cursor.refuse_at(mark, message));
    }
    let mut delay_ms = 0;
    if cursor.take_word("DELAY") {
        let read = match cursor.peek() {
            Token::Number(digits) => digits.parse().ok().filter(|delay_ms| *delay_ms <= TIME_MAX_MS),
            _ => None,
        };
        delay_ms = read.ok_or_else(|| cursor.expected(&["whole milliseconds from 0"]))?;
        cursor.advance();
    }
    Ok(EventTime { value: time, delay_ms })
}

/// `(n, TIME|RECORD)`, or `(n, DAY|WEEK|MONTH|QUARTER|YEAR)` with a time zone behind it, or in UTC.
fn tumbling(cursor: &mut Cursor<'_>) -> Result<Window, ParseError> {
    cursor.need_symbol("(")?;
    let mark = cursor.mark();
    let amount = amount(cursor)?;
    cursor.need_symbol(",")?;
    let (unit, is_of_months) = match cursor.peek() {
        Token::Word(word) => match word.to_ascii_uppercase().as_str() {
            "DAY" => (1, false),
            "WEEK" => (7, false),
            "MONTH" => (1, true),
            "QUARTER" => (3, true),
            "YEAR" => (12, true),
            _ => (0, false),
        },
        _ => (0, false),
    };
    if unit == 0 {
        let extent = extent_of(cursor, mark, amount, &UNITS)?;
        cursor.need_symbol(")")?;
        return Ok(Window::Tumbling(extent));
    }
    cursor.advance();
    let Some(steps) = u16::try_from(amount).ok().and_then(|amount| amount.checked_mul(unit)) else {
        let message = format!("a window of {amount} is beyond {} days or months", u16::MAX);
        return Err(cursor.refuse_at(mark, message));
    };
    let step = if is_of_months { CalendarStep::Months(steps) } else { CalendarStep::Days(steps) };
    let mut zone = "UTC".to_owned();
    let mark = cursor.mark();
    if cursor.take_symbol(",") {
        let Token::Text(name) = cursor.peek().clone() else {
            return Err(cursor.expected(&["a time zone such as 'Europe/Berlin'"]));
        };
        cursor.advance();
        zone = name;
    }
    let Some(windows) = CalendarWindows::of_zone(step, &zone) else {
        let mut refusal = cursor.refuse_at(mark + 1, format!("there is no time zone '{zone}'; one is 'Europe/Berlin'"));
        refusal.suggestion = CalendarWindows::nearest_zone(&zone);
        return Err(refusal);
    };
    cursor.need_symbol(")")?;
    Ok(Window::Calendar(windows))
}

/// `(n, TIME|RECORD, ALL)`, or `(n, TIME|RECORD, FIRST|LAST, m, TIME|RECORD)`.
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
            return Err(cursor.unavailable_at(mark, "a window of the first records between two results"));
        }
        Window::Tumbling(emit)
    } else if cursor.take_word("LAST") {
        cursor.need_symbol(",")?;
        let mark = cursor.mark();
        let size = extent(cursor)?;
        last(emit, size).map_err(|message| cursor.refuse_at(mark, message))?
    } else {
        return Err(cursor.expected(&["ALL", "FIRST", "LAST"]));
    };
    cursor.need_symbol(")")?;
    Ok(window)
}

/// The window with a result every `emit`, of the last `size`.
pub(crate) fn last(emit: Extent, size: Extent) -> Result<Window, String> {
    let (slide, whole) = match (emit, size) {
        (Extent::TimeMs(emit), Extent::TimeMs(size)) | (Extent::Records(emit), Extent::Records(size)) => (emit, size),
        _ => return Err("a window and the distance of its results are both of TIME or both of RECORD".to_owned()),
    };
    if slide == whole {
        return Ok(Window::Tumbling(emit));
    }
    if slide > whole {
        return Err(format!("records between two windows would be lost; let the size be at least {slide}"));
    }
    let parts = whole / divisor(whole, slide);
    if parts > PARTS_MAX {
        let message =
            "a window has at most 1,440 parts, of the greatest common divisor of its size and the distance of results";
        return Err(format!("{message}; these are {parts}"));
    }
    Ok(Window::Sliding { emit, size })
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// `(gap, TIME)`.
fn session(cursor: &mut Cursor<'_>) -> Result<Window, ParseError> {
    cursor.need_symbol("(")?;
    let mark = cursor.mark();
    let amount = amount(cursor)?;
    cursor.need_symbol(",")?;
    let Extent::TimeMs(gap_ms) = extent_of(cursor, mark, amount, &["TIME"])? else {
        return Err(cursor.refuse_at(mark, "a session ends after a pause, which is a TIME".to_owned()));
    };
    cursor.need_symbol(")")?;
    Ok(Window::Session { gap_ms })
}

/// `n, TIME` or `n, RECORD`.
fn extent(cursor: &mut Cursor<'_>) -> Result<Extent, ParseError> {
    let mark = cursor.mark();
    let amount = amount(cursor)?;
    cursor.need_symbol(",")?;
    extent_of(cursor, mark, amount, &["TIME", "RECORD"])
}

fn amount(cursor: &mut Cursor<'_>) -> Result<u64, ParseError> {
    let amount = match cursor.peek() {
        Token::Number(digits) => digits.parse().ok().filter(|amount| *amount > 0),
        _ => None,
    };
    let amount = amount.ok_or_else(|| cursor.expected(&["a whole number from 1"]))?;
    cursor.advance();
    Ok(amount)
}

/// The unit of an amount that stands at `mark`.
fn extent_of(cursor: &mut Cursor<'_>, mark: usize, amount: u64, units: &[&str]) -> Result<Extent, ParseError> {
    if cursor.take_word("RECORD") {
        return Ok(Extent::Records(amount));
    }
    if !cursor.take_word("TIME") {
        return Err(cursor.expected(units));
    }
    if amount > TIME_MAX_MS {
        return Err(cursor.refuse_at(mark, format!("a window has at most {TIME_MAX_MS} milliseconds")));
    }
    Ok(Extent::TimeMs(amount))
}
