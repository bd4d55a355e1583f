//! The W3C trace context of a request: taken from `traceparent`, or generated.
//!
//! The text is stored in the header of every record that the request causes, so that a measurement can be followed from
//! its socket to the entity and the query.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};

use axum::http::HeaderValue;

use crate::head::Headers;

/// Length of a rendered `traceparent`.
pub const TRACEPARENT_BYTES: usize = 55;

/// Length of an id in the form of a UUID.
pub const UUID_BYTES: usize = 36;

/// The trace of a request and its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The identifier of the trace; never zero.
    pub trace_id: u128,
    /// The span of this request within it; never zero.
    pub span_id: u64,
    /// Trace flags; bit 0 says that the caller records this trace.
    pub flags: u8,
}

impl TraceContext {
    /// The caller's trace with a new span, or a new trace if the header is missing or malformed.
    pub fn of<'a>(headers: impl Into<Headers<'a>>) -> Self {
        let span_id = random();
        match headers.into().get("traceparent").and_then(parse) {
            Some((trace_id, flags)) => Self { trace_id, span_id, flags },
            None => Self { trace_id: u128::from(random()) << 64 | u128::from(random()), span_id, flags: 0 },
        }
    }

    /// The trace's id in the form of a UUID.
    pub fn id_as_uuid(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.id_text()).expect("hexadecimal digits are ASCII")
    }

    /// The trace's id as the text of a UUID.
    pub fn id_text(&self) -> [u8; UUID_BYTES] {
        let mut digits = [0; 32];
        write_hex(&mut digits, self.trace_id);
        let mut text = [b'-'; UUID_BYTES];
        for (from, to) in [(0..8, 0), (8..12, 9), (12..16, 14), (16..20, 19), (20..32, 24)] {
            text[to..to + from.len()].copy_from_slice(&digits[from]);
        }
        text
    }

    /// The value of `traceparent` for records and requests that this request causes.
    pub fn traceparent(&self) -> [u8; TRACEPARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut text[3..35], self.trace_id);
        write_hex(&mut text[36..52], u128::from(self.span_id));
        write_hex(&mut text[53..55], u128::from(self.flags));
        text
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

/// Trace id and flags of a `traceparent` (W3C Trace Context, section 3.2). Later versions may append fields.
fn parse(text: &[u8]) -> Option<(u128, u8)> {
    let dashes = text.len() >= TRACEPARENT_BYTES && [2, 35, 52].iter().all(|at| text[*at] == b'-');
    if !dashes {
        return None;
    }
    let version = read_hex(&text[..2])?;
    let rest_is_legal = match version {
        0xff => false,
        0 => text.len() == TRACEPARENT_BYTES,
        _ => text.get(TRACEPARENT_BYTES).is_none_or(|next| *next == b'-'),
    };
    let trace_id = read_hex(&text[3..35])?;
    let parent = read_hex(&text[36..52])?;
    let flags = read_hex(&text[53..55])?;
    (rest_is_legal && trace_id != 0 && parent != 0).then_some((trace_id, flags as u8))
}

fn read_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

fn write_hex(place: &mut [u8], mut value: u128) {
    for digit in place.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

/// A random number that is never zero. Ids need no secrecy, so a fast generator per thread suffices.
fn random() -> u64 {
    thread_local!(static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish()));
    STATE.with(|state| {
        // SplitMix64 (Steele, Lea, Flood 2014).
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).max(1)
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::*;

    #[test]
    fn an_id_is_shown_as_a_uuid() {
        let context = TraceContext { trace_id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, span_id: 1, flags: 0 };
        assert_eq!(context.id_as_uuid(), "0af76519-16cd-43dd-8448-eb211c80319c");
        assert_eq!(TraceContext { trace_id: 1, ..context }.id_as_uuid(), "00000000-0000-0000-0000-000000000001");
    }

    #[test]
    fn a_callers_trace_is_continued_and_a_malformed_one_replaced() {
        let check = |given: &str, trace: Option<u128>| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", given.parse().unwrap());
            let context = TraceContext::of(&headers);
            assert_ne!(context.span_id, 0xb7ad_6b71_6920_3331, "a span of its own");
            assert_eq!(context.to_string().as_bytes(), context.traceparent());
            match trace {
                Some(id) => assert_eq!((context.trace_id, context.flags), (id, 1), "{given}"),
                None => assert_ne!(context.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, "{given}"),
            }
        };
        let known = Some(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        check("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", known);
        check("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", known);
        check("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None);
        check("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", None);
        check("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", None);
        check("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None);
        check("00-00000000000000000000000000000000-b7ad6b7169203331-01", None);
        check("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", None);
        check("", None);
    }
}
