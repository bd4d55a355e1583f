//! The part of its tenant that a caller may use: topics, entity types, keys, consumer groups and transactional ids, by prefix.

use std::sync::Arc;

/// The topics, entity types and keys that a caller is limited to. The default has no limit.
///
/// A limited caller has what its prefixes name and nothing else: without a prefix for topics it has no topic, without
/// one for types no entity, without one for keys no key, and it has no devices, jobs or administration. Consumer groups and
/// transactional ids are those of the whole tenant unless prefixes of their own limit them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessScope(Option<Arc<Prefixes>>);

#[derive(Debug, PartialEq, Eq)]
struct Prefixes {
    topics: Vec<String>,
    types: Vec<String>,
    /// Each is a bucket's name, a slash and the beginning of keys, which may be empty.
    keys: Vec<String>,
    /// None for all of the tenant.
    groups: Vec<String>,
    /// None for all of the tenant.
    transactional_ids: Vec<String>,
}

impl AccessScope {
    /// Limits a caller to topics, entity types and keys that begin with one of these. A prefix of keys is a bucket's name, a
    /// slash and the beginning of its keys. Without any prefix there is no limit.
    pub fn new(topics: &[String], types: &[String], keys: &[String]) -> Self {
        if topics.is_empty() && types.is_empty() && keys.is_empty() {
            return Self::default();
        }
        let (groups, transactional_ids) = (Vec::new(), Vec::new());
        let (topics, types, keys) = (topics.to_vec(), types.to_vec(), keys.to_vec());
        Self(Some(Arc::new(Prefixes { topics, types, keys, groups, transactional_ids })))
    }

    /// Limits a caller that is limited already to consumer groups and transactional ids that begin with one of these. Without
    /// a prefix it has all of its tenant; a caller without limits stays so.
    #[must_use]
    pub fn with_groups(self, groups: &[String], transactional_ids: &[String]) -> Self {
        let Some(limits) = self.0 else { return self };
        Self(Some(Arc::new(Prefixes {
            topics: limits.topics.clone(),
            types: limits.types.clone(),
            keys: limits.keys.clone(),
            groups: groups.to_vec(),
            transactional_ids: transactional_ids.to_vec(),
        })))
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

    /// `true` if the caller may be a member of the consumer group of this id, look at it and commit its positions.
    pub fn has_group(&self, id: &str) -> bool {
        self.groups().is_empty() || begins_with_one(id, self.groups())
    }

    /// `true` if the caller may write under this transactional id.
    pub fn has_transactional_id(&self, id: &str) -> bool {
        self.transactional_ids().is_empty() || begins_with_one(id, self.transactional_ids())
    }

    /// The prefixes of consumer groups; none if there is no limit.
    pub fn groups(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |limits| &limits.groups)
    }

    /// The prefixes of transactional ids; none if there is no limit.
    pub fn transactional_ids(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |limits| &limits.transactional_ids)
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
    fn groups_and_transactional_ids_are_those_of_the_tenant_unless_prefixes_limit_them() {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let limited = AccessScope::new(&owned(&["ord"]), &[], &[]);
        let of = |groups: &[&str], ids: &[&str]| limited.clone().with_groups(&owned(groups), &owned(ids));
        for (scope, group, has_group, id, has_id) in [
            (AccessScope::default(), "any", true, "any", true),
            (limited.clone(), "any", true, "any", true),
            (of(&["shop-"], &[]), "shop-a", true, "any", true),
            (of(&["shop-"], &[]), "shop", false, "any", true),
            (of(&[], &["shop-", "till-"]), "any", true, "till-1", true),
            (of(&["a"], &["b"]), "b", false, "a", false),
        ] {
            assert_eq!((scope.has_group(group), scope.has_transactional_id(id)), (has_group, has_id), "{scope:?}");
            assert!(scope.has_topic("orders"));
        }
        assert!(!AccessScope::default().with_groups(&owned(&["a"]), &[]).is_limited());
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
