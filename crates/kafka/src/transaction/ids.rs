//! The transactional ids that are known, and which of them gives way to a new one.
//!
//! A tenant has no more of them than [`crate::KafkaConfig::transactional_ids_per_tenant_max`], and begins no more than it leaves free of
//! [`crate::KafkaConfig::transactional_ids_max`]: no tenant takes all of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::machine::{Transaction, TransactionState, Transition};

/// The transactional ids that are known, by tenant and key.
pub(super) struct TransactionalIds {
    limits: IdLimits,
    tenants: HashMap<String, HashMap<String, Arc<IdSlot>>>,
    count: usize,
    /// The producer ids that belong to them.
    producers: HashSet<i64>,
}

/// How many transactional ids there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdLimits {
    /// Of all tenants.
    pub(super) ids_max: usize,
    pub(super) per_tenant_max: usize,
}

/// The state of one transactional id.
pub(super) struct IdSlot {
    pub(super) key: String,
    /// The holder of the permit changes the id; others wait.
    pub(super) turn: Arc<Semaphore>,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// The stored transaction; `None` before the first record and after the last.
    pub(super) now: Option<Transaction>,
    /// The transition that is being stored.
    pub(super) next: Option<Transition>,
    /// The id was removed from the map: look it up again.
    pub(super) is_gone: bool,
}

/// The id of a tenant that may be forgotten.
pub(super) enum Unused {
    /// With the permit to change it.
    Found(Arc<IdSlot>, OwnedSemaphorePermit),
    /// All that have no open transaction are being changed at the moment.
    Busy,
    /// All have an open transaction.
    None,
}

impl TransactionalIds {
    pub(super) fn new(limits: IdLimits) -> Self {
        Self { limits, tenants: HashMap::new(), count: 0, producers: HashSet::new() }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<IdSlot>> {
        self.tenants.get(tenant_of(key))?.get(key)
    }

    /// All ids.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Arc<IdSlot>> {
        self.tenants.values().flat_map(HashMap::values)
    }

    /// The ids of a tenant.
    pub(super) fn of_tenant(&self, tenant: &str) -> impl Iterator<Item = &Arc<IdSlot>> {
        self.tenants.get(tenant).into_iter().flat_map(HashMap::values)
    }

    /// Adds an id that was stored before a start; limits do not hold for it.
    pub(super) fn load(&mut self, key: String, transaction: Transaction) {
        self.producers.insert(transaction.producer.id);
        self.insert(IdSlot::new(key, Some(transaction)));
    }

    /// Adds an id that is not known. `None` if its tenant has all that it may have.
    pub(super) fn begin(&mut self, key: &str) -> Option<Arc<IdSlot>> {
        let of_tenant = self.tenants.get(tenant_of(key)).map_or(0, HashMap::len);
        let is_full =
            of_tenant >= self.limits.per_tenant_max || of_tenant >= self.limits.ids_max.saturating_sub(self.count);
        (!is_full).then(|| self.insert(IdSlot::new(key.to_owned(), None)))
    }

    /// Removes an id; `successor`, if it is not known, gets its place.
    pub(super) fn remove(&mut self, key: &str, successor: Option<&str>) {
        if let Some(ids) = self.tenants.get_mut(tenant_of(key)) {
            self.count -= usize::from(ids.remove(key).is_some());
            if ids.is_empty() {
                self.tenants.remove(tenant_of(key));
            }
        }
        if let Some(successor) = successor.filter(|key| self.get(key).is_none()) {
            self.insert(IdSlot::new(successor.to_owned(), None));
        }
    }

    /// The id of a tenant without an open transaction that nobody has used for longest, and that nobody changes.
    pub(super) fn longest_unused(&self, tenant: &str) -> Unused {
        let mut is_busy = false;
        let mut oldest: Option<(i64, &Arc<IdSlot>, OwnedSemaphorePermit)> = None;
        for slot in self.of_tenant(tenant) {
            let since_ms = slot.unused_since_ms();
            is_busy |= since_ms != Since::Open;
            let Since::Unused(since_ms) = since_ms else { continue };
            let is_older =
                oldest.as_ref().is_none_or(|(oldest_ms, old, _)| (since_ms, &slot.key) < (*oldest_ms, &old.key));
            if is_older && let Ok(permit) = slot.turn.clone().try_acquire_owned() {
                oldest = Some((since_ms, slot, permit));
            }
        }
        match oldest {
            // Nobody can have opened a transaction before the permit was taken, unless it was while looking.
            Some((_, slot, permit)) if matches!(slot.unused_since_ms(), Since::Unused(_)) => {
                Unused::Found(slot.clone(), permit)
            }
            Some(_) => Unused::Busy,
            None if is_busy => Unused::Busy,
            None => Unused::None,
        }
    }

    /// The number of ids of a tenant, and of all.
    pub(super) fn counts(&self, tenant: &str) -> (usize, usize) {
        (self.tenants.get(tenant).map_or(0, HashMap::len), self.count)
    }

    pub(super) fn has_producer(&self, producer_id: i64) -> bool {
        self.producers.contains(&producer_id)
    }

    /// The producer id of a transactional id has become another.
    pub(super) fn change_producer(&mut self, old: Option<i64>, new: Option<i64>) {
        if let Some(old) = old {
            self.producers.remove(&old);
        }
        self.producers.extend(new);
    }

    fn insert(&mut self, slot: Arc<IdSlot>) -> Arc<IdSlot> {
        let ids = self.tenants.entry(tenant_of(&slot.key).to_owned()).or_default();
        self.count += usize::from(ids.insert(slot.key.clone(), slot.clone()).is_none());
        slot
    }
}

/// Since when an id is unused.
#[derive(Debug, PartialEq, Eq)]
enum Since {
    /// By wall clock.
    Unused(i64),
    /// It is being changed, or about to begin.
    Changing,
    /// It has an open transaction.
    Open,
}

impl IdSlot {
    fn new(key: String, now: Option<Transaction>) -> Arc<Self> {
        let state = State { now, ..State::default() };
        Arc::new(Self { key, turn: Arc::new(Semaphore::new(1)), state: Mutex::new(state) })
    }

    fn unused_since_ms(&self) -> Since {
        let state = self.state.lock();
        match &state.now {
            Some(now) if now.stage == TransactionState::Ongoing => Since::Open,
            Some(now) if state.next.is_none() => Since::Unused(now.since_ms),
            _ => Since::Changing,
        }
    }
}

/// The tenant of a key `<tenant>/<transactional id>`.
pub(super) fn tenant_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(tenant, _)| tenant)
}
