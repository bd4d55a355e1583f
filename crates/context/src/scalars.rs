//! Bodies as most updates have them: a few attributes whose values are scalars, without metadata.
//!
//! They are read into what is given at once, without maps in between. Whatever is otherwise in any part, and all that is
//! to be refused, is left to the usual way, which says why; what is read here comes to the same there.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use crate::given::{AttributeGiven, with_value};

/// Bodies with more attributes are none of these.
const ATTRIBUTES_MAX: usize = 16;

/// What a body gives, if it is one of these.
pub(crate) fn attributes(body: &[u8]) -> Option<Vec<AttributeGiven>> {
    // Looked through once, and not text by text.
    let Members(members) = serde_json::from_str(std::str::from_utf8(body).ok()?).ok()?;
    members
        .into_iter()
        .map(|(name, Member { kind, value: Scalar(value) })| with_value(name, kind, value).ok())
        .collect()
}

/// Attributes by name, in their order.
struct Members<'a>(Vec<(&'a str, Member<'a>)>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Member<'a> {
    #[serde(rename = "type", default, borrow, deserialize_with = "text")]
    kind: Option<&'a str>,
    value: Scalar,
}

struct Scalar(Value);

/// A text without escapes; null is none.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de str>, D::Error> {
    <&str>::deserialize(deserializer).map(Some)
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attributes with scalar values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Members<'de>, A::Error> {
        let mut members: Vec<(&str, Member<'_>)> = Vec::with_capacity(1);
        while let Some((name, member)) = given.next_entry()? {
            if members.len() >= ATTRIBUTES_MAX || members.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom("too many attributes, or one that is given twice"));
            }
            members.push((name, member));
        }
        Ok(Members(members))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor).map(Self)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar")
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::given::{self, Given};

    /// What is read here is what the usual way reads.
    fn check(body: &str) -> bool {
        let simply = attributes(body.as_bytes());
        if let Some(given) = &simply {
            assert_eq!(*given, given::members(body.as_bytes(), Given::NORMALIZED).unwrap(), "{body}");
        }
        simply.is_some()
    }

    #[test]
    fn scalars_are_read_here_and_all_else_is_not() {
        for body in [
            r#"{"t":{"type":"Number","value":21.5}}"#,
            r#" { "t" : { "value" : "x y" , "type" : "Text" } , "u" : { "value" : null } } "#,
            r#"{"t":{"value":true},"u":{"value":-0.0},"v":{"value":1e3},"w":{"value":18446744073709551615}}"#,
            r#"{"t":{"type":"DateTime","value":"2026-01-02"},"dateExpires":{"value":"2026-01-02T03:04:05Z"}}"#,
            r#"{"t":{"type":"TextUnrestricted","value":"<\u00e4>"}}"#,
            "{}",
        ] {
            assert!(check(body), "{body}");
        }
        for body in [
            r#"{"t":{"type":"Number","value":1,"metadata":{}}}"#,
            r#"{"t":{"value":1},"t":{"value":2}}"#,
            r#"{"t":{"value":1,"value":2}}"#,
            r#"{"t":{"type":"Number"}}"#,
            r#"{"t":{"value":[1]}}"#,
            r#"{"t":{"value":{"$inc":1}}}"#,
            r#"{"\u0074":{"value":1}}"#,
            r#"{"t":{"value":"<"}}"#,
            r#"{"id":{"value":1}}"#,
            r#"{"t":{"type":"","value":1}}"#,
            r#"{"t":{"type":null,"value":1}}"#,
            r#"{"t":{"type":"DateTime","value":"then"}}"#,
            r#"{"dateExpires":{"value":null}}"#,
            r#"{"t":{"value":1}} x"#,
            r#"{"t":1}"#,
            r#"[1]"#,
            "{",
        ] {
            assert!(!check(body), "{body}");
        }
        let many = |count: usize| {
            let members: Vec<String> = (0..count).map(|n| format!(r#""a{n}":{{"value":{n}}}"#)).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(check(&many(ATTRIBUTES_MAX)) && !check(&many(ATTRIBUTES_MAX + 1)));
    }

    proptest! {
        #[test]
        fn numbers_and_texts_come_to_the_same_on_both_ways(number in any::<f64>(), whole in any::<i64>(), text in ".*") {
            let text = Value::from(text);
            for value in [number.to_string(), format!("{number:e}"), whole.to_string(), text.to_string()] {
                check(&format!(r#"{{"t":{{"type":"K","value":{value}}}}}"#));
            }
        }
    }
}
