//! The groups that this node knows, and which of them gives way to a new one.
//!
//! Always true
//! - Every group counts, also one that only has positions and was not used since the start.
//! - A tenant has no more groups than [`GroupConfig::groups_per_tenant_max`], and begins no more than it leaves free of
//!   [`GroupConfig::groups_max`]: no tenant takes all of them.
//! - While the positions of a group are being forgotten, nobody joins it or commits in it.
//!
//! The lock of the registry is taken before that of an entry, never the other way round.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use millstream_log::KnownGroup;
use parking_lot::Mutex;

use super::GroupConfig;
use super::entry::GroupEntry;

/// Separates tenant and id in the log; no tenant's name contains it.
pub(crate) const TENANT_END: char = '/';

/// The tenant of a group in the log, and the id that its clients know; `None` if it is none of this listener's.
pub fn tenant_and_id(group: &str) -> Option<(&str, &str)> {
    group.split_once(TENANT_END)
}

pub(crate) type SharedEntry = Arc<Mutex<GroupEntry>>;

/// A group of this node.
enum GroupSlot {
    /// It has positions, and was not used since the start. The time of its last commit is wall clock.
    Stored { committed_ms: i64 },
    /// It has members, or was used since the start.
    InUse(SharedEntry),
    /// Its positions are being forgotten.
    Leaving,
}

/// Why a group cannot begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotBegun {
    /// Its positions from before are being forgotten; try again.
    Leaving,
    /// Its tenant has all the groups that it may have.
    Full,
}

/// The present, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) monotonic: Duration,
    pub(crate) wall_ms: i64,
}

/// All groups, by tenant and by name.
pub(crate) struct GroupRegistry {
    groups_max: usize,
    per_tenant_max: usize,
    tenants: BTreeMap<String, BTreeMap<String, GroupSlot>>,
    count: usize,
}

impl GroupRegistry {
    /// A registry with the groups that have positions.
    pub(crate) fn new(config: &GroupConfig, stored: Vec<KnownGroup>) -> Self {
        let (groups_max, per_tenant_max) = (config.groups_max, config.groups_per_tenant_max);
        let mut this = Self { groups_max, per_tenant_max, tenants: BTreeMap::new(), count: 0 };
        stored.into_iter().for_each(|group| this.note_stored(group));
        this
    }

    /// The number of all groups.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The number of a tenant's groups.
    pub(crate) fn len_of(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).map_or(0, BTreeMap::len)
    }

    /// The group, if it was used since the start.
    pub(crate) fn get(&self, group: &str) -> Option<SharedEntry> {
        match self.slot(group)? {
            GroupSlot::InUse(entry) => Some(entry.clone()),
            GroupSlot::Stored { .. } | GroupSlot::Leaving => None,
        }
    }

    /// All groups that were used since the start, by name within each tenant.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (&String, &SharedEntry)> {
        self.tenants.values().flatten().filter_map(|(name, slot)| match slot {
            GroupSlot::InUse(entry) => Some((name, entry)),
            GroupSlot::Stored { .. } | GroupSlot::Leaving => None,
        })
    }

    /// The group, which `new` begins unless it is in use. `new` takes the time of its last commit.
    pub(crate) fn get_or_begin(
        &mut self,
        group: &str,
        new: impl FnOnce(i64) -> GroupEntry,
    ) -> Result<SharedEntry, NotBegun> {
        let committed_ms = match self.slot(group) {
            None if !self.has_room(tenant_of(group)) => return Err(NotBegun::Full),
            Some(GroupSlot::Leaving) => return Err(NotBegun::Leaving),
            Some(GroupSlot::InUse(entry)) if !entry.lock().group.is_dead() => {
                return Ok(entry.clone());
            }
            Some(GroupSlot::Stored { committed_ms }) => *committed_ms,
            Some(GroupSlot::InUse(_)) | None => i64::MIN,
        };
        let entry = Arc::new(Mutex::new(new(committed_ms)));
        self.insert(group, GroupSlot::InUse(entry.clone()));
        Ok(entry)
    }

    /// A group has positions: it counts from now on.
    pub(crate) fn note_stored(&mut self, KnownGroup { name, committed_ms }: KnownGroup) {
        if tenant_and_id(&name).is_some() && self.slot(&name).is_none() {
            self.insert(&name, GroupSlot::Stored { committed_ms });
        }
    }

    /// Ends the group of a tenant that has been without members, and without a commit, for longest. It is left until
    /// [`GroupRegistry::give_place`] or [`GroupRegistry::stay`]. `None` if all have members or are in use at the moment.
    pub(crate) fn leave_oldest(&mut self, tenant: &str, now: Now) -> Option<String> {
        let groups = self.tenants.get(tenant)?.iter();
        let unused = groups.filter_map(|(name, slot)| Some((unused_since_ms(slot, now)?, name)));
        let oldest = unused.min()?.1.clone();
        self.leave(&oldest).ok().map(|()| oldest)
    }

    /// Ends a group without members, as [`GroupRegistry::leave_oldest`] does.
    ///
    /// # Errors
    /// [`ResponseError::GroupIdNotFound`], [`ResponseError::NonEmptyGroup`]; [`ResponseError::CoordinatorLoadInProgress`] if
    /// it is being left already.
    pub(crate) fn leave(&mut self, group: &str) -> Result<(), ResponseError> {
        let slot = self.tenants.get_mut(tenant_of(group)).and_then(|groups| groups.get_mut(group));
        let slot = slot.ok_or(ResponseError::GroupIdNotFound)?;
        match slot {
            GroupSlot::Leaving => return Err(ResponseError::CoordinatorLoadInProgress),
            GroupSlot::InUse(entry) => entry.lock().group.end()?,
            GroupSlot::Stored { .. } => {}
        }
        *slot = GroupSlot::Leaving;
        Ok(())
    }

    /// True if a group of that tenant is being left.
    pub(crate) fn is_leaving(&self, tenant: &str) -> bool {
        let groups = self.tenants.get(tenant);
        groups.is_some_and(|groups| groups.values().any(|slot| matches!(slot, GroupSlot::Leaving)))
    }

    /// The positions of `old` are forgotten: `new` takes its place.
    pub(crate) fn give_place(&mut self, old: &str, new: &str, entry: GroupEntry) {
        self.remove(old);
        if self.slot(new).is_none() {
            self.insert(new, GroupSlot::InUse(Arc::new(Mutex::new(entry))));
        }
    }

    /// The positions of a group that was left could not be forgotten.
    pub(crate) fn stay(&mut self, group: &str, committed_ms: i64) {
        self.insert(group, GroupSlot::Stored { committed_ms });
    }

    /// Forgets a group.
    pub(crate) fn remove(&mut self, group: &str) {
        let Entry::Occupied(mut groups) = self.tenants.entry(tenant_of(group).to_owned()) else { return };
        self.count -= usize::from(groups.get_mut().remove(group).is_some());
        if groups.get().is_empty() {
            groups.remove();
        }
    }

    /// Removes a group that [`super::protocol::Group::end`] has ended.
    pub(crate) fn remove_dead(&mut self, group: &str) {
        if self.get(group).is_some_and(|entry| entry.lock().group.is_dead()) {
            self.remove(group);
        }
    }

    /// Forgets groups that were not used since the start, unless `is_kept`.
    pub(crate) fn keep_stored(&mut self, is_kept: impl Fn(&str) -> bool) {
        let stored = self.tenants.values().flatten().filter(|(_, slot)| matches!(slot, GroupSlot::Stored { .. }));
        let gone: Vec<_> = stored.filter(|(name, _)| !is_kept(name)).map(|(name, _)| name.clone()).collect();
        gone.iter().for_each(|name| self.remove(name));
    }

    fn slot(&self, group: &str) -> Option<&GroupSlot> {
        self.tenants.get(tenant_of(group))?.get(group)
    }

    fn insert(&mut self, group: &str, slot: GroupSlot) {
        let groups = self.tenants.entry(tenant_of(group).to_owned()).or_default();
        self.count += usize::from(groups.insert(group.to_owned(), slot).is_none());
    }

    fn has_room(&self, tenant: &str) -> bool {
        let of_tenant = self.len_of(tenant);
        of_tenant < self.per_tenant_max && of_tenant < self.groups_max.saturating_sub(self.count)
    }
}

fn tenant_of(group: &str) -> &str {
    tenant_and_id(group).map_or("", |(tenant, _)| tenant)
}

/// The last use of a group without members; wall clock. `None` if it may not be ended.
fn unused_since_ms(slot: &GroupSlot, now: Now) -> Option<i64> {
    match slot {
        GroupSlot::Stored { committed_ms } => Some(*committed_ms),
        GroupSlot::InUse(entry) => {
            // One that is locked is in use.
            let entry = entry.try_lock()?;
            let empty = now.monotonic.saturating_sub(entry.group.empty_since()?);
            let empty_since_ms = now.wall_ms.saturating_sub(i64::try_from(empty.as_millis()).unwrap_or(i64::MAX));
            Some(entry.committed_ms.max(empty_since_ms))
        }
        GroupSlot::Leaving => None,
    }
}
