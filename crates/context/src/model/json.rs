//! JSON text of entities: compact, numbers in their shortest form, no duplicate members.

use std::sync::Arc;
use std::{fmt, io};

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value};

/// Integral doubles below this limit are written without decimals and without an exponent.
const PLAIN_BELOW: f64 = 1e16;

/// Members that an object may have twice, if both have the same value: clients of Orion send them so.
const REPEATABLE: [&str; 2] = ["id", "type"];

struct Canonical;

impl Formatter for Canonical {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        if value.fract() == 0.0 && value.abs() < PLAIN_BELOW {
            return self.write_i64(writer, value as i64);
        }
        serde_json::ser::CompactFormatter.write_f64(writer, value)
    }
}

/// Parses JSON; refuses objects with duplicate members, but for `id` and `type` with the same value.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(bytes).map(|Unique(value)| value)
}

/// A value without duplicate members.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut given: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = given.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = given.next_key::<String>()? {
            let known = members.get(&name);
            if known.is_some() && !REPEATABLE.contains(&name.as_str()) {
                return Err(A::Error::custom(format_args!("member '{name}' is given twice")));
            }
            let Unique(value) = given.next_value()?;
            if known.is_some_and(|known| *known != value) {
                return Err(A::Error::custom(format_args!("member '{name}' is given twice, with two values")));
            }
            members.insert(name, value);
        }
        Ok(members.into())
    }
}

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

/// Parses a text that is known to be JSON.
pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

pub(crate) fn push_string(text: &str, out: &mut String) {
    // Checks many bytes at a time: few texts have a character to escape.
    let plain = |c: u8| (c >= b' ') & (c != b'"') & (c != b'\\');
    if text.bytes().fold(true, |all, c| all & plain(c)) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

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

    #[test]
    fn no_object_is_read_that_has_a_member_twice() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"c":2,"a":3}}]"#, r#"{"a":1,"\u0061":2}"#] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.is_data() && error.to_string().contains("member 'a' is given twice"), "{text}: {error}");
        }
        let error = read(br#"{"id":"a","id":"b"}"#).unwrap_err();
        assert!(error.is_data() && error.to_string().contains("'id' is given twice"), "{error}");
        assert_eq!(
            read(br#"{"id":"a","type":"T","id":"a","type":"T"}"#).unwrap(),
            serde_json::json!({"id": "a", "type": "T"})
        );
        for text in [r#"{"a":{"a":[1,-2,0.5,18446744073709551615,true,null,"\u00e4"]},"b":{}}"#, "7", r#""x""#, "[]"] {
            assert_eq!(read(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        for text in ["", "{", "{\"a\":1,}", "1e999", "[1] x"] {
            assert!(read(text.as_bytes()).is_err_and(|error| !error.is_data()), "{text}");
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
