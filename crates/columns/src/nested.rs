//! Arrays and objects: as the bytes of a payload, or as lists that a query builds.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::value::{EvalError, Value};

/// The members of an object; of members with the same name the first counts.
struct ObjectMembers<'a>(Vec<(Cow<'a, str>, &'a [u8])>);

/// The content of an array or object.
enum Elements<'a> {
    List(Vec<Value<'a>>),
    Map(ObjectMembers<'a>),
}

/// The content of `value`; `None` if it is neither array nor object.
fn parts<'v>(value: &'v Value<'_>) -> Result<Option<Elements<'v>>, EvalError> {
    match value {
        Value::List(list) => Ok(Some(Elements::List(list.clone()))),
        Value::Nested(raw) if raw.first() == Some(&b'[') => elements(raw).map(|list| Some(Elements::List(list))),
        Value::Nested(raw) => members(raw).map(|map| Some(Elements::Map(map))),
        _ => Ok(None),
    }
}

/// The elements, if `value` is a list.
pub(crate) fn list(value: Value<'_>) -> Result<Option<Vec<Value<'_>>>, EvalError> {
    Ok(match value {
        Value::List(list) => Some(list),
        Value::Nested(raw) if raw.first() == Some(&b'[') => Some(match raw {
            Cow::Borrowed(raw) => elements(raw)?,
            Cow::Owned(raw) => elements(&raw)?.into_iter().map(Value::into_owned).collect(),
        }),
        _ => None,
    })
}

fn elements(raw: &[u8]) -> Result<Vec<Value<'_>>, EvalError> {
    let elements: Vec<&RawValue> = serde_json::from_slice(raw).map_err(|_| EvalError::Unreadable)?;
    elements.into_iter().map(|element| Ok(Value::read(element.get().as_bytes())?)).collect()
}

fn members(raw: &[u8]) -> Result<ObjectMembers<'_>, EvalError> {
    struct MembersVisitor;
    impl<'a> Visitor<'a> for MembersVisitor {
        type Value = ObjectMembers<'a>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<ObjectMembers<'a>, A::Error> {
            let mut names = HashSet::new();
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &'a RawValue>()? {
                if names.insert(name.clone()) {
                    members.push((Cow::Owned(name), value.get().as_bytes()));
                }
            }
            Ok(ObjectMembers(members))
        }
    }
    serde_json::Deserializer::from_slice(raw).deserialize_map(MembersVisitor).map_err(|_| EvalError::Unreadable)
}

impl<'a> ObjectMembers<'a> {
    fn member(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, raw)| *raw)
    }

    fn values(&self) -> impl Iterator<Item = Result<Value<'a>, EvalError>> {
        self.0.iter().map(|(_, raw)| Ok(Value::read(raw)?))
    }
}

/// The member called `key` or the element at `key` of `of`; NULL if there is none.
pub(crate) fn element<'a>(of: Value<'a>, key: &Value<'_>) -> Result<Value<'a>, EvalError> {
    Ok(match (of, key) {
        (Value::Nested(raw), Value::Text(name)) if raw.first() != Some(&b'[') => match raw {
            Cow::Borrowed(raw) => member(raw, name)?,
            Cow::Owned(raw) => member(&raw, name)?.into_owned(),
        },
        (of, Value::Integer(index)) => match (list(of)?, usize::try_from(*index)) {
            (Some(mut list), Ok(index)) if index < list.len() => list.swap_remove(index),
            _ => Value::Null,
        },
        _ => Value::Null,
    })
}

/// The member of an object; NULL if it has none of that name.
fn member<'a>(object: &'a [u8], name: &str) -> Result<Value<'a>, EvalError> {
    members(object)?.member(name).map_or(Ok(Value::Null), |raw| Ok(Value::read(raw)?))
}

/// The number of elements, members or characters of `of`; `None` for other values.
pub(crate) fn size(of: &Value<'_>) -> Result<Option<i64>, EvalError> {
    let size = match (of, parts(of)?) {
        (Value::Text(text), _) => text.chars().count(),
        (_, Some(Elements::List(list))) => list.len(),
        (_, Some(Elements::Map(map))) => map.0.len(),
        _ => return Ok(None),
    };
    Ok(Some(size as i64))
}

/// True if a map, or a map in a list, has a member called `key`; `None` without any map.
pub(crate) fn contains_key(of: &Value<'_>, key: &str) -> Result<Option<bool>, EvalError> {
    match parts(of)? {
        Some(Elements::Map(map)) => Ok(Some(map.member(key).is_some())),
        Some(Elements::List(list)) => {
            for element in &list {
                if matches!(parts(element)?, Some(Elements::Map(map)) if map.member(key).is_some()) {
                    return Ok(Some(true));
                }
            }
            Ok(Some(false))
        }
        None => Ok(None),
    }
}

/// True if an element of a list, a member of a map, or a member of a map in a list equals `value`.
pub(crate) fn contains_value(of: &Value<'_>, value: &Value<'_>) -> Result<Option<bool>, EvalError> {
    let equals = |part: &Value<'_>| part.compare(value).is_some_and(|order| order.is_eq());
    let in_map = |map: &ObjectMembers<'_>| {
        for part in map.values() {
            if equals(&part?) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    match parts(of)? {
        Some(Elements::Map(map)) => in_map(&map).map(Some),
        Some(Elements::List(list)) => {
            for element in &list {
                let found = match parts(element)? {
                    Some(Elements::Map(map)) => in_map(&map)?,
                    _ => equals(element),
                };
                if found {
                    return Ok(Some(true));
                }
            }
            Ok(Some(false))
        }
        None => Ok(None),
    }
}

/// The elements of `elements` for which `keep` has TRUE at the same index; NULL if one of the two is no list.
pub(crate) fn filtered<'a>(elements: Value<'a>, keep: Value<'_>) -> Result<Value<'a>, EvalError> {
    let (Some(elements), Some(keep)) = (list(elements)?, list(keep)?) else {
        return Ok(Value::Null);
    };
    let kept = elements.into_iter().zip(&keep).filter(|(_, keep)| **keep == Value::Boolean(true));
    Ok(Value::List(kept.map(|(element, _)| element).collect()))
}
