//! Functions of time, which is in seconds since 1970.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::input::Input;
use crate::number::number;

/// The longest text of a time, in bytes.
const TIME_MAX_BYTES: usize = 64;

/// `seconds|now`: the whole second that it is now, and so many seconds more.
pub(crate) fn now(input: Input<'_, '_>) -> Option<Value> {
    let seconds = input.now_ms.div_euclid(1_000) as f64;
    input.number().map(|more| number(seconds + more))
}

/// `seconds|toIsoString`: the time in UTC as `2024-08-01T08:15:29+00:00`; a fraction of a second is cut off. Null
/// outside of the years 0 to 9999.
pub(crate) fn to_iso_string(input: Input<'_, '_>) -> Option<Value> {
    let seconds = input.number()?.floor();
    let in_range = (-1e12..1e12).contains(&seconds);
    let time = Timestamp::from_second(if in_range { seconds as i64 } else { return None }).ok()?;
    let time = time.to_zoned(TimeZone::UTC);
    (time.year() >= 0).then(|| Value::from(time.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()))
}

/// `text|getTime`: the time that a text of RFC 3339 names, without a fraction of a second.
pub(crate) fn get_time(input: Input<'_, '_>) -> Option<Value> {
    let text = input.piped.as_str().filter(|text| text.len() <= TIME_MAX_BYTES)?;
    let time: Timestamp = text.parse().ok()?;
    Some(Value::from(time.as_millisecond().div_euclid(1_000)))
}
