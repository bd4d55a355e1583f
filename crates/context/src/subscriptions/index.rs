//! Index of subscriptions: finds the few that may match a change.
//!
//! A subscription is filed by its condition on the id (the id itself; the literal prefix of a pattern; the pattern;
//! any), on the type (one; any), and by each attribute of its condition. A change is looked up under its own id, type
//! and attributes. The caller checks each candidate in full: a false candidate is allowed, a miss never. Only patterns
//! without a literal prefix are tested one by one, each once for all subscriptions that have it.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

use millstream_types::TenantId;

use super::change::ChangeRecord;
use super::subscription::Subscription;
use crate::query::{NameFilter, Pattern};

/// The pattern that every id matches.
const ANY: &str = ".*";

/// The active subscriptions of all tenants.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionIndex {
    tenants: HashMap<TenantId, Filed>,
    /// Counts of each tenant that has had a subscription since the start of the process.
    tallies: HashMap<TenantId, SubscriptionCounts>,
    hasher: RandomState,
}

/// Numbers of added, replaced and removed subscriptions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SubscriptionCounts {
    pub(crate) inserts: u64,
    pub(crate) updates: u64,
    pub(crate) removes: u64,
}

#[derive(Debug, Default)]
struct Filed {
    all: HashMap<Arc<str>, Arc<Subscription>>,
    /// Ids by the hash of their file position.
    places: HashMap<u64, BTreeSet<Arc<str>>>,
    /// Lengths of literal prefixes with the number of their uses.
    start_lengths: BTreeMap<usize, usize>,
    /// Patterns without a literal prefix with the number of their uses.
    patterns: HashMap<String, (Pattern, usize)>,
}

/// A subscription's condition on the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Id<'a> {
    Any,
    One(&'a str),
    Start(&'a str),
    Like(&'a str),
}

impl SubscriptionIndex {
    /// Adds a subscription in place of the one with its id.
    pub(crate) fn put(&mut self, subscription: &Arc<Subscription>) {
        let is_known = self.take_out(&subscription.tenant, &subscription.id);
        let tally = self.tallies.entry(subscription.tenant.clone()).or_default();
        *(if is_known { &mut tally.updates } else { &mut tally.inserts }) += 1;
        let filed = self.tenants.entry(subscription.tenant.clone()).or_default();
        for place in places(subscription, &self.hasher) {
            filed.places.entry(place).or_default().insert(subscription.id.clone());
        }
        for pattern in patterns(subscription) {
            match literal_start(pattern.as_str()) {
                Some((_, true)) => {}
                Some((start, false)) => *filed.start_lengths.entry(start.len()).or_default() += 1,
                None => {
                    let text = pattern.as_str().to_owned();
                    filed.patterns.entry(text).or_insert_with(|| (pattern.clone(), 0)).1 += 1;
                }
            }
        }
        filed.all.insert(subscription.id.clone(), subscription.clone());
    }

    pub(crate) fn remove(&mut self, tenant: &TenantId, id: &str) {
        if self.take_out(tenant, id) {
            self.tallies.entry(tenant.clone()).or_default().removes += 1;
        }
    }

    /// The ids of a tenant's subscriptions, in order, and the counts.
    pub(crate) fn of(&self, tenant: &TenantId) -> (Vec<Arc<str>>, SubscriptionCounts) {
        let mut ids: Vec<_> =
            self.tenants.get(tenant).map(|filed| filed.all.keys().cloned().collect()).unwrap_or_default();
        ids.sort_unstable();
        (ids, self.tallies.get(tenant).copied().unwrap_or_default())
    }

    /// Resets the counts of a tenant.
    pub(crate) fn count_anew(&mut self, tenant: &TenantId) {
        self.tallies.remove(tenant);
    }

    /// Removes a subscription; returns true if it was present.
    fn take_out(&mut self, tenant: &TenantId, id: &str) -> bool {
        let Some(filed) = self.tenants.get_mut(tenant) else { return false };
        let Some(known) = filed.all.remove(id) else { return false };
        for place in places(&known, &self.hasher) {
            if let Some(ids) = filed.places.get_mut(&place) {
                ids.remove(id);
                if ids.is_empty() {
                    filed.places.remove(&place);
                }
            }
        }
        for pattern in patterns(&known) {
            match literal_start(pattern.as_str()) {
                Some((_, true)) => {}
                Some((start, false)) => {
                    if let Some(count) = filed.start_lengths.get_mut(&start.len()) {
                        *count -= 1;
                        if *count == 0 {
                            filed.start_lengths.remove(&start.len());
                        }
                    }
                }
                None => {
                    if let Some((_, count)) = filed.patterns.get_mut(pattern.as_str()) {
                        *count -= 1;
                        if *count == 0 {
                            filed.patterns.remove(pattern.as_str());
                        }
                    }
                }
            }
        }
        if filed.all.is_empty() {
            self.tenants.remove(tenant);
        }
        true
    }

    /// The tenant has an active subscription.
    pub(crate) fn has(&self, tenant: &TenantId) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// The subscriptions that may match the change, by id, without duplicates.
    pub(crate) fn candidates(&self, change: &ChangeRecord<'_>) -> Vec<Arc<Subscription>> {
        let Some(filed) = self.tenants.get(change.tenant) else { return Vec::new() };
        let id = &*change.key.id;
        let starts = filed.start_lengths.keys().filter_map(|length| id.get(..*length)).map(Id::Start);
        let like = filed.patterns.values().filter(|(pattern, _)| pattern.fits(id)).map(|(p, _)| Id::Like(p.as_str()));
        let hash = |text: Option<&str>| self.hasher.hash_one(text);
        let kinds = [None, Some(&*change.key.kind)].map(hash);
        let attributes: Vec<u64> = change.touched().map(Some).chain([None]).map(hash).collect();
        let mut found = BTreeSet::new();
        for id in [Id::Any, Id::One(id)].into_iter().chain(starts).chain(like) {
            let id = self.hasher.hash_one(id);
            for kind in kinds {
                for attribute in &attributes {
                    found.extend(filed.places.get(&place(id, kind, *attribute)).into_iter().flatten());
                }
            }
        }
        found.into_iter().filter_map(|id| filed.all.get(id).cloned()).collect()
    }
}

/// The file positions of a subscription.
fn places(subscription: &Subscription, hasher: &RandomState) -> Vec<u64> {
    let condition = &subscription.condition;
    // A deletion concerns the subscription whatever attributes the entity had.
    let attributes: Vec<Option<&str>> = if condition.attrs.is_empty() || condition.alterations.delete {
        vec![None]
    } else {
        condition.attrs.iter().map(|name| Some(name.as_str())).collect()
    };
    let mut places = Vec::new();
    for selector in &subscription.entities {
        let kinds: Vec<Option<&str>> = match &selector.kinds {
            NameFilter::Of(kinds) => kinds.iter().map(|kind| Some(kind.as_str())).collect(),
            NameFilter::Any | NameFilter::Like(_) => vec![None],
        };
        for id in ids(&selector.ids) {
            for kind in &kinds {
                let (id, kind) = (hasher.hash_one(id), hasher.hash_one(kind));
                places.extend(attributes.iter().map(|attribute| place(id, kind, hasher.hash_one(attribute))));
            }
        }
    }
    places
}

/// The file position of hashes of id, type and attribute. Each text is hashed once for all positions.
fn place(id: u64, kind: u64, attribute: u64) -> u64 {
    id ^ kind.rotate_left(21) ^ attribute.rotate_left(42)
}

fn ids(names: &NameFilter) -> Vec<Id<'_>> {
    match names {
        NameFilter::Any => vec![Id::Any],
        NameFilter::Of(ids) => ids.iter().map(|id| Id::One(id)).collect(),
        NameFilter::Like(pattern) if pattern.as_str() == ANY => vec![Id::Any],
        NameFilter::Like(pattern) => vec![match literal_start(pattern.as_str()) {
            Some((id, true)) => Id::One(id),
            Some((start, false)) => Id::Start(start),
            None => Id::Like(pattern.as_str()),
        }],
    }
}

fn patterns(subscription: &Subscription) -> impl Iterator<Item = &Pattern> {
    subscription.entities.iter().filter_map(|selector| match &selector.ids {
        NameFilter::Like(pattern) if pattern.as_str() != ANY => Some(pattern),
        NameFilter::Any | NameFilter::Of(_) | NameFilter::Like(_) => None,
    })
}

/// The literal prefix of `pattern`, if it is anchored, and whether it is the whole pattern.
fn literal_start(pattern: &str) -> Option<(&str, bool)> {
    let rest = pattern.strip_prefix('^')?;
    if rest.contains('|') {
        return None;
    }
    let end = rest.find(|c: char| r"\.+*?()[]{}^$".contains(c)).unwrap_or(rest.len());
    let is_all = &rest[end..] == "$";
    // A quantifier belongs to the character before it.
    let end = if rest[end..].starts_with(['*', '?', '{']) { rest[..end].char_indices().last()?.0 } else { end };
    (end > 0).then(|| (&rest[..end], is_all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_literal_start_of_a_pattern_is_found_and_never_too_long() {
        for (pattern, expected) in [
            ("^urn:room:1$", Some(("urn:room:1", true))),
            ("^urn:room:.*", Some(("urn:room:", false))),
            ("^room", Some(("room", false))),
            ("^rooms*", Some(("room", false))),
            ("^rooms{0,1}", Some(("room", false))),
            ("^rooms+", Some(("rooms", false))),
            ("^a|b", None),
            ("^(a)", None),
            ("^s*", None),
            ("room", None),
            (".*", None),
        ] {
            assert_eq!(literal_start(pattern), expected, "{pattern}");
        }
    }
}
