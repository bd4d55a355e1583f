//! The part of its tenant that a caller may use: topics, entity types and keys, by prefix.

use std::sync::Arc;

/// The topics, entity types and keys that a caller is limited to. The default has no limit.
///
/// A limited caller has what its prefixes name and nothing else: without a prefix for topics it has no topic, without
/// one for types no entity, without one for keys no key, and it has no devices, jobs or administration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessScope(Option<Arc<Prefixes>>);

#[derive(Debug, PartialEq, Eq)]
struct Prefixes {
    topics: Vec<String>,
    types: Vec<String>,
    /// Each is a bucket's name, a slash and the beginning of keys, which may be empty.
    keys: Vec<String>,
}

impl AccessScope {
    /// Limits a caller to topics, entity types and keys that begin with one of these. A prefix of keys is a bucket's name, a
    /// slash and the beginning of its keys. Without any prefix there is no limit.
    pub fn new(topics: &[String], types: &[String], keys: &[String]) -> Self {
        if topics.is_empty() && types.is_empty() && keys.is_empty() {
            return Self::default();
        }
        let prefixes = Prefixes { topics: topics.to_vec(), types: types.to_vec(), keys: keys.to_vec() };
        Self(Some(Arc::new(prefixes)))
    }

    /// `true` if the caller does not have all of its tenant.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// `true` if the caller may use the topic of this name, in its rendering without prefixes of a protocol.
    pub fn has_topic(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|limits| begins_with_one(name, &limits.topics))
    }

    /// `true` if the caller may use entities of this type.
    pub fn has_type(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|limits| begins_with_one(name, &limits.types))
    }

    /// `true` if the caller may use this key of the bucket, and with it all keys that begin so.
    pub fn has_key(&self, bucket: &str, key: &[u8]) -> bool {
        let of_key = |prefix: &String| {
            let named = prefix.split_once('/');
            named.is_some_and(|(of, beginning)| of == bucket && key.starts_with(beginning.as_bytes()))
        };
        self.0.as_ref().is_none_or(|limits| limits.keys.iter().any(of_key))
    }

    /// The prefixes of topics; none if there is no limit.
    pub fn topics(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |limits| &limits.topics)
    }

    /// The prefixes of entity types; none if there is no limit.
    pub fn types(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |limits| &limits.types)
    }

    /// The prefixes of keys, each behind its bucket and a slash; none if there is no limit.
    pub fn keys(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |limits| &limits.keys)
    }
}

fn begins_with_one(name: &str, prefixes: &[String]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(&**prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_caller_has_what_its_prefixes_name_and_nothing_else() {
        let of = |topics: &[&str], types: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
            AccessScope::new(&owned(topics), &owned(types), &[])
        };
        for (scope, topic, has_topic, kind, has_type) in [
            (of(&[], &[]), "orders", true, "Room", true),
            (of(&["telemetry."], &[]), "telemetry.acme", true, "Room", false),
            (of(&["telemetry."], &[]), "telemetry", false, "Room", false),
            (of(&[], &["Room"]), "orders", false, "RoomOfServers", true),
            (of(&["a", "b"], &["Room", "Car"]), "bolts", true, "Bus", false),
        ] {
            assert_eq!((scope.has_topic(topic), scope.has_type(kind)), (has_topic, has_type), "{scope:?}");
            assert_eq!(scope.is_limited(), scope != AccessScope::default());
        }
    }

    #[test]
    fn keys_are_those_of_a_bucket_that_begin_so() {
        let limits = ["shop/img/", "films/"].map(str::to_owned);
        let scope = AccessScope::new(&[], &[], &limits);
        for (bucket, key, has_key) in [
            ("shop", "img/a", true),
            ("shop", "img/", true),
            ("shop", "img", false),
            ("shop", "", false),
            ("shop", "other", false),
            ("films", "", true),
            ("films", "a", true),
            ("shop2", "img/a", false),
            ("sho", "p/img/a", false),
            ("shop/img", "a", false),
        ] {
            assert_eq!(scope.has_key(bucket, key.as_bytes()), has_key, "{bucket}/{key}");
        }
        assert!(scope.is_limited() && !scope.has_topic("shop") && !scope.has_type("shop"));
        assert!(AccessScope::default().has_key("shop", b"a"));
        assert!(!AccessScope::new(&["shop".to_owned()], &[], &[]).has_key("shop", b"a"));
    }
}
