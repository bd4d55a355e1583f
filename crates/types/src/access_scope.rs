//! The part of its tenant that a caller may use: topics and entity types, by prefix.

use std::sync::Arc;

/// The topics and entity types that a caller is limited to. The default has no limit.
///
/// A limited caller has what its prefixes name and nothing else: without a prefix for topics it has no topic, without
/// one for types no entity, and it has no devices, jobs, keys or administration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessScope(Option<Arc<Prefixes>>);

#[derive(Debug, PartialEq, Eq)]
struct Prefixes {
    topics: Vec<String>,
    types: Vec<String>,
}

impl AccessScope {
    /// Limits a caller to topics and entity types that begin with one of these. Without any prefix there is no limit.
    pub fn new(topics: &[String], types: &[String]) -> Self {
        if topics.is_empty() && types.is_empty() {
            return Self::default();
        }
        Self(Some(Arc::new(Prefixes { topics: topics.to_vec(), types: types.to_vec() })))
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

    /// The prefixes of topics; none if there is no limit.
    pub fn topics(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |limits| &limits.topics)
    }

    /// The prefixes of entity types; none if there is no limit.
    pub fn types(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |limits| &limits.types)
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
            AccessScope::new(&owned(topics), &owned(types))
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
}
