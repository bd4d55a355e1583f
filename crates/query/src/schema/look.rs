//! Samples one payload: finds the type of each of its fields.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::node::{FieldNode, SchemaBudget};
use crate::Type;

/// Sees the members of an object; false if the payload is none, or no JSON.
pub(super) fn look(payload: &[u8], record: u64, root: &mut FieldNode, limits: &mut SchemaBudget) -> bool {
    // Validated first, so that nothing is counted of a payload that breaks off.
    let whole = std::str::from_utf8(payload)
        .ok()
        .filter(|text| text.trim_ascii_start().starts_with('{'))
        .filter(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    let Some(whole) = whole else { return false };
    let mut json = serde_json::Deserializer::from_str(whole);
    // A number beyond all doubles ends the sampling of this record; the record counts nevertheless.
    let _ = json.deserialize_map(MemberVisitor { node: root, record, depth: 0, limits });
    true
}

/// The members of an object.
struct MemberVisitor<'n> {
    node: &'n mut FieldNode,
    record: u64,
    depth: usize,
    limits: &'n mut SchemaBudget,
}

impl<'de> Visitor<'de> for MemberVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.node.member(&name, self.limits) {
                Some(node) => {
                    let (record, depth) = (self.record, self.depth);
                    map.next_value_seed(ElementVisitor { node, record, depth, limits: self.limits })?;
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A value that is a part of a payload.
struct ElementVisitor<'n> {
    node: &'n mut FieldNode,
    record: u64,
    depth: usize,
    limits: &'n mut SchemaBudget,
}

impl ElementVisitor<'_> {
    fn see<E>(self, kind: Type, example: impl Into<Value>) -> Result<(), E> {
        self.node.see(self.record, kind, Some(example.into()), self.limits);
        Ok(())
    }

    /// Sees a container; whether its parts are to be looked at.
    fn see_container(&mut self, kind: Type) -> bool {
        let is_first = self.node.see(self.record, kind, None, self.limits);
        let deeper = self.depth + 1 < self.limits.depth_max;
        self.limits.reached |= !deeper;
        is_first && deeper
    }
}

impl<'de> DeserializeSeed<'de> for ElementVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ElementVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.node.see(self.record, Type::Null, None, self.limits);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.see(Type::Boolean, value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.see(Type::Integer, value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        // Beyond 64 bits with a sign an integer is a double, as in queries.
        let kind = if i64::try_from(value).is_ok() { Type::Integer } else { Type::Double };
        self.see(kind, value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.see(Type::Double, value)
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.see(Type::Text, value)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        if self.see_container(Type::Map) {
            let Self { node, record, depth, limits } = self;
            return MemberVisitor { node, record, depth: depth + 1, limits }.visit_map(map);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        if self.see_container(Type::List) {
            let Self { node, record, depth, limits } = self;
            if let Some(node) = node.first(limits) {
                list.next_element_seed(ElementVisitor { node, record, depth: depth + 1, limits })?;
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}
