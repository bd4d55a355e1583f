//! Arrays and objects: of a payload as their bytes, or lists that a query makes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::value::{Failure, Value};

/// The members of an object; of several with one name the first.
struct Members<'a>(Vec<(Cow<'a, str>, &'a [u8])>);

/// What an array or object holds.
enum Parts<'a> {
    List(Vec<Value<'a>>),
    Map(Members<'a>),
}

/// What `value` holds; `None` if it is neither array nor object.
fn parts<'a>(value: &Value<'a>) -> Result<Option<Parts<'a>>, Failure> {
    match value {
        Value::List(list) => Ok(Some(Parts::List(list.clone()))),
        Value::Nested(raw) if raw.first() == Some(&b'[') => elements(raw).map(|list| Some(Parts::List(list))),
        Value::Nested(raw) => members(raw).map(|map| Some(Parts::Map(map))),
        _ => Ok(None),
    }
}

/// The elements, if `value` is a list.
pub(crate) fn list<'a>(value: &Value<'a>) -> Result<Option<Vec<Value<'a>>>, Failure> {
    Ok(match parts(value)? {
        Some(Parts::List(list)) => Some(list),
        _ => None,
    })
}

fn elements(raw: &[u8]) -> Result<Vec<Value<'_>>, Failure> {
    let elements: Vec<&RawValue> = serde_json::from_slice(raw).map_err(|_| Failure::Unreadable)?;
    elements.into_iter().map(|element| Ok(Value::read(element.get().as_bytes())?)).collect()
}

fn members(raw: &[u8]) -> Result<Members<'_>, Failure> {
    struct Reader;
    impl<'a> Visitor<'a> for Reader {
        type Value = Members<'a>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Members<'a>, A::Error> {
            let mut names = HashSet::new();
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &'a RawValue>()? {
                if names.insert(name.clone()) {
                    members.push((Cow::Owned(name), value.get().as_bytes()));
                }
            }
            Ok(Members(members))
        }
    }
    serde_json::Deserializer::from_slice(raw).deserialize_map(Reader).map_err(|_| Failure::Unreadable)
}

impl<'a> Members<'a> {
    fn member(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, raw)| *raw)
    }

    fn values(&self) -> impl Iterator<Item = Result<Value<'a>, Failure>> {
        self.0.iter().map(|(_, raw)| Ok(Value::read(raw)?))
    }
}

/// The member called `key` or the element at `key` of `of`; NULL if there is none.
pub(crate) fn element<'a>(of: Value<'a>, key: &Value<'_>) -> Result<Value<'a>, Failure> {
    Ok(match (parts(&of)?, key) {
        (Some(Parts::Map(map)), Value::Text(name)) => match map.member(name) {
            Some(raw) => Value::read(raw)?,
            None => Value::Null,
        },
        (Some(Parts::List(mut list)), Value::Integer(index)) => match usize::try_from(*index) {
            Ok(index) if index < list.len() => list.swap_remove(index),
            _ => Value::Null,
        },
        _ => Value::Null,
    })
}

/// How many elements, members or characters `of` has; `None` if it is none that has any.
pub(crate) fn size(of: &Value<'_>) -> Result<Option<i64>, Failure> {
    let size = match (of, parts(of)?) {
        (Value::Text(text), _) => text.chars().count(),
        (_, Some(Parts::List(list))) => list.len(),
        (_, Some(Parts::Map(map))) => map.0.len(),
        _ => return Ok(None),
    };
    Ok(Some(size as i64))
}

/// Whether a map, or one in a list, has a member called `key`; `None` if there is no map to look at.
pub(crate) fn contains_key(of: &Value<'_>, key: &str) -> Result<Option<bool>, Failure> {
    match parts(of)? {
        Some(Parts::Map(map)) => Ok(Some(map.member(key).is_some())),
        Some(Parts::List(list)) => {
            for element in &list {
                if matches!(parts(element)?, Some(Parts::Map(map)) if map.member(key).is_some()) {
                    return Ok(Some(true));
                }
            }
            Ok(Some(false))
        }
        None => Ok(None),
    }
}

/// Whether an element of a list, a member of a map, or a member of a map in a list equals `value`.
pub(crate) fn contains_value(of: &Value<'_>, value: &Value<'_>) -> Result<Option<bool>, Failure> {
    let equals = |part: &Value<'_>| part.compare(value).is_some_and(|order| order.is_eq());
    let in_map = |map: &Members<'_>| {
        for part in map.values() {
            if equals(&part?) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    match parts(of)? {
        Some(Parts::Map(map)) => in_map(&map).map(Some),
        Some(Parts::List(list)) => {
            for element in &list {
                let found = match parts(element)? {
                    Some(Parts::Map(map)) => in_map(&map)?,
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

/// The elements of `elements` at whose places `keep` has TRUE; NULL if one of the two is no list.
pub(crate) fn filtered<'a>(elements: Value<'a>, keep: Value<'_>) -> Result<Value<'a>, Failure> {
    let (Some(elements), Some(keep)) = (list(&elements)?, list(&keep)?) else {
        return Ok(Value::Null);
    };
    let kept = elements.into_iter().zip(&keep).filter(|(_, keep)| **keep == Value::Boolean(true));
    Ok(Value::List(kept.map(|(element, _)| element).collect()))
}
