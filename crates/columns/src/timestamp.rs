//! Texts and numbers that stand for a moment, as UNIXTIMESTAMP reads them.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::value::{Failure, Value};

/// How a moment is written if nothing says how.
const PATTERN: &str = "yyyy-MM-dd HH:mm:ss";

/// The moment in seconds since 1970-01-01T00:00:00Z; `None` if `moment` is neither text nor number, or `pattern` neither
/// NULL nor a text.
pub(crate) fn seconds(moment: &Value<'_>, pattern: &Value<'_>) -> Result<Option<i64>, Failure> {
    let text = match moment {
        Value::Text(text) => text.to_string(),
        Value::Integer(number) => number.to_string(),
        _ => return Ok(None),
    };
    let pattern = match pattern {
        Value::Null => PATTERN,
        Value::Text(pattern) => pattern,
        _ => return Ok(None),
    };
    read(&text, pattern).map(Some).ok_or(Failure::Cast)
}

/// Letters of a pattern stand for digits: `y` year, `M` month, `d` day, `H` hour, `m` minute, `s` second, `S` fraction
/// of a second; as many letters as digits. Letters in single quotes and all else stand for themselves. UTC.
fn read(text: &str, pattern: &str) -> Option<i64> {
    let (mut year, mut month, mut day, mut hour, mut minute, mut second) = (1970, 1, 1, 0, 0, 0);
    let mut rest = text.trim();
    let mut letters = pattern.chars().peekable();
    let mut quoted = false;
    while let Some(letter) = letters.next() {
        if letter == '\'' {
            quoted = !quoted;
        } else if quoted || !letter.is_ascii_alphabetic() {
            rest = rest.strip_prefix(letter)?;
        } else {
            let mut width = 1;
            while letters.next_if_eq(&letter).is_some() {
                width += 1;
            }
            let digits = rest.get(..width).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
            rest = &rest[width..];
            match letter {
                'y' | 'u' => year = digits.parse().ok()?,
                'M' => month = digits.parse().ok()?,
                'd' => day = digits.parse().ok()?,
                'H' => hour = digits.parse().ok()?,
                'm' => minute = digits.parse().ok()?,
                's' => second = digits.parse().ok()?,
                'S' => {}
                _ => return None,
            }
        }
    }
    let moment = DateTime::new(year, month, day, hour, minute, second, 0).ok().filter(|_| rest.is_empty())?;
    Some(moment.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}
