//! Times as texts and numbers, in UTC.
//!
//! Letters of a pattern stand for digits: `y` year, `M` month, `d` day, `H` hour, `m` minute, `s` second, `S` fraction of a
//! second; one letter for each digit. Letters in single quotes and all other characters stand for themselves.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::value::{EvalError, Value};

/// The default pattern of UNIXTIMESTAMP.
const PATTERN: &str = "yyyy-MM-dd HH:mm:ss";
/// The form of RFC 3339.
const RFC_3339: &str = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'";
/// Most digits of a part that is written.
/// The letters of patterns.
const LETTERS: &str = "yuMdHmsS";
const WIDTH_MAX: usize = 9;
/// Digits of the fraction that a time has.
const FRACTION_DIGITS: usize = 3;

/// The time in seconds since 1970-01-01T00:00:00Z; `None` if `moment` is neither text nor number, or `pattern`
/// is neither NULL nor text.
pub(crate) fn seconds(moment: &Value<'_>, pattern: &Value<'_>) -> Result<Option<i64>, EvalError> {
    let number;
    let text = match moment {
        Value::Text(text) => text.as_ref(),
        Value::Integer(value) => {
            number = value.to_string();
            &number
        }
        _ => return Ok(None),
    };
    let pattern = match pattern {
        Value::Null => PATTERN,
        Value::Text(pattern) => pattern,
        _ => return Ok(None),
    };
    read(text, pattern).map(|time_ms| Some(time_ms.div_euclid(1000))).ok_or(EvalError::Time)
}

/// The time in milliseconds since 1970-01-01T00:00:00Z: a number of milliseconds, or a text as in RFC 3339. `None` for other values.
///
/// # Errors
/// [`EvalError::Time`] for a text that is no time.
pub fn time_ms(value: &Value<'_>) -> Result<Option<i64>, EvalError> {
    match value {
        Value::Integer(time_ms) => Ok(Some(*time_ms)),
        Value::Double(time_ms) => Ok(Some(time_ms.floor() as i64)),
        Value::Text(text) => read_rfc_3339(text).map(Some).ok_or(EvalError::Time),
        _ => Ok(None),
    }
}

/// The time of a text; `None` if `pattern` is neither NULL nor text.
pub(crate) fn parsed(text: &str, pattern: &Value<'_>) -> Result<Option<i64>, EvalError> {
    let read = match pattern {
        Value::Null => read_rfc_3339(text),
        Value::Text(pattern) => read(text, pattern),
        _ => return Ok(None),
    };
    read.map(Some).ok_or(EvalError::Time)
}

/// The text of a time; `None` if `pattern` is neither NULL nor text.
pub(crate) fn formatted(time_ms: i64, pattern: &Value<'_>) -> Result<Option<String>, EvalError> {
    let pattern = match pattern {
        Value::Null => RFC_3339,
        Value::Text(pattern) => pattern,
        _ => return Ok(None),
    };
    write(time_ms, pattern).map(Some).ok_or(EvalError::Time)
}

/// The date and time in UTC; `None` beyond the calendar.
pub(crate) fn civil(time_ms: i64) -> Option<DateTime> {
    Timestamp::from_millisecond(time_ms).ok().map(|time| Offset::UTC.to_datetime(time))
}

/// Milliseconds since 1970-01-01T00:00:00Z, rounded down.
pub(crate) fn milliseconds(time: Timestamp) -> Option<i64> {
    i64::try_from(time.as_nanosecond().div_euclid(1_000_000)).ok()
}

fn read_rfc_3339(text: &str) -> Option<i64> {
    milliseconds(text.trim().parse().ok()?)
}

fn read(text: &str, pattern: &str) -> Option<i64> {
    let (mut year, mut month, mut day, mut hour, mut minute, mut second, mut fraction_ms) =
        (1970, 1, 1, 0, 0, 0, 0_i64);
    let mut rest = text.trim();
    each_part(pattern, |part| {
        let (letter, width) = match part {
            PatternPart::Plain(plain) => {
                rest = rest.strip_prefix(plain)?;
                return Some(());
            }
            PatternPart::Digits(letter, width) => (letter, width),
        };
        let digits = rest.get(..width).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
        rest = &rest[width..];
        match letter {
            'y' | 'u' => year = digits.parse().ok()?,
            'M' => month = digits.parse().ok()?,
            'd' => day = digits.parse().ok()?,
            'H' => hour = digits.parse().ok()?,
            'm' => minute = digits.parse().ok()?,
            's' => second = digits.parse().ok()?,
            'S' => fraction_ms = format!("{digits:0<FRACTION_DIGITS$}")[..FRACTION_DIGITS].parse().ok()?,
            _ => return None,
        }
        Some(())
    })?;
    let moment = DateTime::new(year, month, day, hour, minute, second, 0).ok().filter(|_| rest.is_empty())?;
    Some(milliseconds(Offset::UTC.to_timestamp(moment).ok()?)? + fraction_ms)
}

fn write(time_ms: i64, pattern: &str) -> Option<String> {
    let time = civil(time_ms)?;
    let mut out = String::with_capacity(pattern.len());
    each_part(pattern, |part| {
        let (letter, width) = match part {
            PatternPart::Plain(plain) => {
                out.push(plain);
                return Some(());
            }
            PatternPart::Digits(letter, width) => (letter, width),
        };
        if width > WIDTH_MAX {
            return None;
        }
        let number: i32 = match letter {
            'y' | 'u' => time.year().into(),
            'M' => time.month().into(),
            'd' => time.day().into(),
            'H' => time.hour().into(),
            'm' => time.minute().into(),
            's' => time.second().into(),
            'S' => {
                let fraction = format!("{:0FRACTION_DIGITS$}", time.millisecond());
                out.extend(fraction.chars().chain(std::iter::repeat('0')).take(width));
                return Some(());
            }
            _ => return None,
        };
        write!(out, "{number:0width$}").ok()
    })?;
    Some(out)
}

/// The reason why a text is no pattern of times; `None` if it is one.
pub fn time_pattern_fault(pattern: &str) -> Option<String> {
    let mut fault = None;
    each_part(pattern, |part| {
        fault = match part {
            PatternPart::Digits(letter, _) if !LETTERS.contains(letter) => Some(format!(
                "the pattern '{pattern}' has the letter {letter}, which stands for nothing; there are y M d H m s S, and \
                 other letters stand in single quotes"
            )),
            PatternPart::Digits(letter, width) if width > WIDTH_MAX => {
                Some(format!("the pattern '{pattern}' has {width} times {letter}; at most {WIDTH_MAX} are possible"))
            }
            _ => return Some(()),
        };
        None
    });
    fault
}

/// A part of a pattern.
enum PatternPart {
    /// A character that stands for itself.
    Plain(char),
    /// A letter, and how many digits it stands for.
    Digits(char, usize),
}

/// Calls `look` with each part of the pattern, up to the first that gives `None`.
fn each_part(pattern: &str, mut look: impl FnMut(PatternPart) -> Option<()>) -> Option<()> {
    let mut letters = pattern.chars().peekable();
    let mut is_quoted = false;
    while let Some(letter) = letters.next() {
        if letter == '\'' {
            is_quoted = !is_quoted;
        } else if is_quoted || !letter.is_ascii_alphabetic() {
            look(PatternPart::Plain(letter))?;
        } else {
            let mut width = 1;
            while letters.next_if_eq(&letter).is_some() {
                width += 1;
            }
            look(PatternPart::Digits(letter, width))?;
        }
    }
    Some(())
}
