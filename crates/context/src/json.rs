//! JSON text as entities keep it: compact, numbers in their shortest form, never a member twice.

use std::io;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// Integral doubles below this are shown without decimals and without an exponent.
const PLAIN_BELOW: f64 = 1e16;

/// Writes numbers shortest.
struct Canonical;

impl Formatter for Canonical {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        if value.fract() == 0.0 && value.abs() < PLAIN_BELOW {
            return self.write_i64(writer, value as i64);
        }
        serde_json::ser::CompactFormatter.write_f64(writer, value)
    }
}

/// The text of `value`.
pub(crate) fn text(value: &Value) -> Arc<str> {
    match value {
        Value::Null => "null".into(),
        Value::Bool(true) => "true".into(),
        Value::Bool(false) => "false".into(),
        value => {
            let mut bytes = Vec::new();
            value.serialize(&mut Serializer::with_formatter(&mut bytes, Canonical)).expect("writing to memory");
            String::from_utf8(bytes).expect("JSON is UTF-8").into()
        }
    }
}

/// The value of a text that is JSON.
pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Appends `text` as a JSON string.
pub(crate) fn push_string(text: &str, out: &mut String) {
    // All bytes are looked at, many at a time: few texts have anything to escape.
    let plain = |c: u8| (c >= b' ') & (c != b'"') & (c != b'\\');
    if text.bytes().fold(true, |all, c| all & plain(c)) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

/// Appends a whole number.
pub(crate) fn push_number(number: i64, out: &mut String) {
    out.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_shortest() {
        for (given, shown) in [
            ("20.0", "20"),
            ("-0.0", "0"),
            ("1e3", "1000"),
            ("0.1", "0.1"),
            ("1.10", "1.1"),
            ("1e-7", "1e-7"),
            ("9007199254740993", "9007199254740993"),
            ("1e15", "1000000000000000"),
            ("123456789.125", "123456789.125"),
            ("{\"a\" : [1.0, \"x\", null, true]}", "{\"a\":[1,\"x\",null,true]}"),
        ] {
            let value: Value = serde_json::from_str(given).unwrap();
            assert_eq!(&*text(&value), shown, "{given}");
        }
        let large: Value = serde_json::from_str("1e300").unwrap();
        assert_eq!(text(&large).parse::<f64>().unwrap(), 1e300);
    }

    #[test]
    fn whole_numbers_are_shown_as_rust_does() {
        for number in [0, 7, -1, 10, 1_767_323_045_678, i64::MIN, i64::MAX] {
            let mut out = String::new();
            push_number(number, &mut out);
            assert_eq!(out, number.to_string());
        }
    }

    #[test]
    fn a_member_that_is_given_twice_is_kept_once() {
        let value: Value = serde_json::from_str("{\"a\":1,\"b\":2,\"a\":3}").unwrap();
        assert_eq!(&*text(&value), "{\"a\":3,\"b\":2}");
    }

    #[test]
    fn strings_are_escaped_where_they_must_be() {
        for (given, shown) in [("plain ä", "\"plain ä\""), ("a\\b\"\n", "\"a\\\\b\\\"\\n\"")] {
            let mut out = String::new();
            push_string(given, &mut out);
            assert_eq!(out, shown);
        }
    }

    proptest::proptest! {
        #[test]
        fn strings_are_as_serde_json_writes_them(text in r#"[a-z"\\\x00-\x7f\u{80}-\u{2ff}]{0,40}"#) {
            let mut out = String::new();
            push_string(&text, &mut out);
            proptest::prop_assert_eq!(out, Value::from(&*text).to_string());
        }
    }
}
