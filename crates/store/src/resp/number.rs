//! Numbers as Redis reads and writes them.

use std::fmt;

/// The integer that `text` is: digits with an optional minus sign, no plus sign, no leading zeros, no white space.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        b"0" if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    // Nineteen digits fit into 64 bits without a sign.
    let mut value = 0u64;
    for digit in digits {
        value = value * 10 + u64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// The number that `text` is, without white space around it.
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A floating-point number: the shortest text that reads back as the same number, or `inf`, `-inf`, `nan`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Double(pub(crate) f64);

impl fmt::Display for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.is_nan() {
            return f.write_str("nan");
        }
        if value.is_infinite() {
            return f.write_str(if value < 0.0 { "-inf" } else { "inf" });
        }
        let exponent = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
        if (-5.0..17.0).contains(&exponent) { write!(f, "{value}") } else { write!(f, "{value:e}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floating_point_numbers_are_short_and_exact() {
        let cases = [
            (0.0, "0"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (1e16, "10000000000000000"),
            (1e300, "1e300"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (number, expected) in cases {
            assert_eq!(Double(number).to_string(), expected);
        }
    }

    #[test]
    fn integers_are_read_as_strictly_as_redis_does() {
        let cases: &[(&str, Option<i64>)] = &[
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
            ("1.0", None),
        ];
        for (text, expected) in cases {
            assert_eq!(integer(text.as_bytes()), *expected, "{text:?}");
        }
    }
}
