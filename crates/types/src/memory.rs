//! The memory that queues, caches and bodies draw on together.
//!
//! The largest shares of the log and the views are set aside at start, which fails if they do not fit. Connections,
//! bodies, answers, fetched records, live queries and the values of buckets in memory take from the remainder while they
//! last, and are refused when nothing is left. Tables that are bounded by a count lie beside the budget.
//!
//! Requests of clients draw on the part of their tenant, so that no tenant takes all that is left.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::TenantId;

/// Requests up to this size are so small that the number of connections bounds them; they do not count by tenant.
const COUNTED_BY_TENANT_BYTES: u64 = 16 << 10;

/// A budget of bytes. Clones share it.
///
/// ```text
///   memory.budget_bytes ───take──► Grant ──drop──► given back
///       ├─ share: query.queues_max_bytes ───take──► Grant, counted in both
///       └─ for_tenant: what it takes is no more than what it leaves free
/// ```
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<Account>);

#[derive(Debug)]
struct Account {
    setting: &'static str,
    limit_bytes: u64,
    used_bytes: AtomicU64,
    whole: Option<MemoryBudget>,
    /// The tenant whose part of the whole it is.
    tenant: Option<TenantId>,
    /// The parts of tenants that are in use.
    of_tenants: Mutex<HashMap<TenantId, Weak<Account>>>,
}

impl MemoryBudget {
    /// A budget of `limit_bytes`; `setting` is the option that an operator changes to raise it.
    pub fn new(setting: &'static str, limit_bytes: u64) -> Self {
        Self::within(None, setting, limit_bytes, None)
    }

    /// A part of the budget with its own limit. It reserves nothing: its bytes count in the whole budget too.
    #[must_use]
    pub fn share(&self, setting: &'static str, limit_bytes: u64) -> Self {
        Self::within(Some(self.clone()), setting, limit_bytes, None)
    }

    /// The part of the budget for what clients of `tenant` ask for: it takes no more than it leaves free. A tenant that has
    /// taken nothing may take all at once.
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        let mut of_tenants = self.0.of_tenants.lock();
        if let Some(known) = of_tenants.get(tenant).and_then(Weak::upgrade) {
            return Self(known);
        }
        let part = Self::within(Some(self.clone()), self.setting(), self.limit_bytes(), Some(tenant.clone()));
        of_tenants.insert(tenant.clone(), Arc::downgrade(&part.0));
        part
    }

    fn within(whole: Option<Self>, setting: &'static str, limit_bytes: u64, tenant: Option<TenantId>) -> Self {
        let (used_bytes, of_tenants) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Account { setting, limit_bytes, used_bytes, whole, tenant, of_tenants }))
    }

    /// Takes `bytes` for a request of `tenant`, from the tenant's part if they are many; `None` if they do not fit.
    pub fn take_for(&self, tenant: &TenantId, bytes: u64) -> Option<Grant> {
        if bytes <= COUNTED_BY_TENANT_BYTES { self.take(bytes) } else { self.for_tenant(tenant).take(bytes) }
    }

    /// Takes `bytes` until the grant is dropped; `None` if they do not fit. Never waits.
    #[must_use]
    pub fn take(&self, bytes: u64) -> Option<Grant> {
        self.add(bytes).then(|| Grant { budget: self.clone(), bytes })
    }

    /// A grant of nothing, to grow later.
    pub fn empty_grant(&self) -> Grant {
        Grant { budget: self.clone(), bytes: 0 }
    }

    /// The bytes taken now, never above the limit.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// The bytes that may still be taken: what is left here, or in the budget that this is a part of, if that is less.
    pub fn left_bytes(&self) -> u64 {
        let account = &*self.0;
        let used_bytes = self.used_bytes();
        let left_bytes = account.limit_bytes.saturating_sub(used_bytes);
        let Some(whole) = &account.whole else { return left_bytes };
        let of_whole_bytes = whole.left_bytes();
        match &account.tenant {
            Some(_) if used_bytes > 0 => of_whole_bytes.saturating_sub(used_bytes) / 2,
            _ => of_whole_bytes.min(left_bytes),
        }
    }

    /// The tenant whose part of a budget it is, and that budget.
    pub fn tenant(&self) -> Option<(&TenantId, &Self)> {
        self.0.tenant.as_ref().zip(self.0.whole.as_ref())
    }

    /// The limit of the budget in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    /// The name of the setting behind the limit.
    pub fn setting(&self) -> &'static str {
        self.0.setting
    }

    // The counters order nothing but themselves, so relaxed is enough.
    fn add(&self, bytes: u64) -> bool {
        let account = &*self.0;
        let more = |used: u64| used.checked_add(bytes).filter(|sum| account.admits(used, *sum));
        if account.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return false;
        }
        let fits = account.whole.as_ref().is_none_or(|whole| whole.add(bytes));
        if !fits {
            account.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn give_back(&self, bytes: u64) {
        self.0.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.whole {
            whole.give_back(bytes);
        }
    }
}

impl Account {
    /// `true` if `sum` bytes may be used where `used` are now, as far as this account goes.
    fn admits(&self, used: u64, sum: u64) -> bool {
        match (&self.tenant, &self.whole) {
            (Some(_), Some(whole)) => used == 0 || used == sum || sum <= whole.left_bytes().saturating_sub(sum - used),
            _ => sum <= self.limit_bytes,
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let (Some(tenant), Some(whole)) = (&self.tenant, &self.whole) else { return };
        let mut of_tenants = whole.0.of_tenants.lock();
        // The tenant may have a new part already.
        if of_tenants.get(tenant).is_some_and(|part| part.strong_count() == 0) {
            of_tenants.remove(tenant);
        }
    }
}

/// Bytes taken from a [`MemoryBudget`]; dropping the grant returns them.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub struct Grant {
    budget: MemoryBudget,
    bytes: u64,
}

impl Grant {
    /// The bytes that it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes or returns so much that the grant has `bytes`. `false` if they do not fit; then the grant is unchanged.
    pub fn resize(&mut self, bytes: u64) -> bool {
        if bytes <= self.bytes {
            self.shrink(self.bytes - bytes);
            return true;
        }
        self.grow(bytes - self.bytes)
    }

    /// Adds the bytes of another grant of the same budget.
    ///
    /// # Panics
    /// If it is of another budget.
    pub fn merge(&mut self, mut other: Self) {
        assert!(Arc::ptr_eq(&self.budget.0, &other.budget.0), "both grants are of one budget");
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Takes `bytes` more. `false` if they do not fit; then the grant is unchanged.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let fits = self.budget.add(bytes);
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// Returns `bytes`, or all that the grant has.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.give_back(bytes);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_announces_as_much_as_it_leaves_free_and_small_requests_do_not_count() {
        const UNIT: u64 = 1 << 20;
        let memory = MemoryBudget::new("memory.budget_bytes", 10 * UNIT);
        let tenant = |name| TenantId::new(name).unwrap();
        let (greedy, other) = (tenant("greedy"), tenant("other"));
        let large: Vec<_> = std::iter::from_fn(|| memory.take_for(&greedy, UNIT)).collect();
        assert_eq!(large.len(), 5);
        let small = memory.take_for(&greedy, COUNTED_BY_TENANT_BYTES).unwrap();
        assert!(memory.take_for(&other, 4 * UNIT).is_some(), "one request of any size");
        assert_eq!(std::iter::from_fn(|| memory.take_for(&other, UNIT)).map(std::mem::forget).count(), 2);
        drop((large, small));
        assert!(memory.take_for(&greedy, 8 * UNIT).is_some());
        assert_eq!(memory.used_bytes(), 2 * UNIT);
        assert_eq!(memory.0.of_tenants.lock().keys().collect::<Vec<_>>(), [&other]);
    }

    #[test]
    fn the_part_of_a_tenant_grows_by_any_steps_to_what_it_leaves_free() {
        let memory = MemoryBudget::new("memory.budget_bytes", 1_000);
        let share = memory.share("share", 800);
        let part = |name| share.for_tenant(&TenantId::new(name).unwrap());
        let (mut one, mut same) = (part("greedy").empty_grant(), part("greedy").empty_grant());
        while one.grow(1) && same.grow(1) {}
        assert_eq!((one.bytes() + same.bytes(), part("greedy").left_bytes()), (400, 0));
        assert!(one.resize(one.bytes()), "what it has it keeps");
        assert_eq!(part("other").left_bytes(), 400);
        let other = part("other").take(300).unwrap();
        assert!(part("other").take(51).is_none() && part("third").take(100).is_some());
        assert_eq!((share.used_bytes(), memory.used_bytes()), (700, 700));
        drop((one, same, other));
        assert_eq!((share.used_bytes(), memory.used_bytes()), (0, 0));
        assert!(share.0.of_tenants.lock().is_empty());
    }

    #[test]
    fn a_grant_fits_whole_or_takes_nothing_and_is_returned_when_dropped() {
        let memory = MemoryBudget::new("memory.budget_bytes", 100);
        let mut first = memory.take(50).unwrap();
        assert!(first.grow(10) && !first.grow(41));
        first.shrink(20);
        assert_eq!(memory.used_bytes(), 40);
        assert!(first.grow(20));
        assert!(memory.take(41).is_none() && memory.take(u64::MAX).is_none());
        assert_eq!(memory.used_bytes(), 60);
        let second = memory.take(40).unwrap();
        assert_eq!(memory.clone().used_bytes(), 100);
        drop(first);
        assert_eq!(memory.used_bytes(), 40);
        drop(second);
        assert_eq!((memory.used_bytes(), memory.limit_bytes(), memory.setting()), (0, 100, "memory.budget_bytes"));
    }

    #[test]
    fn a_share_ends_at_its_own_limit_and_where_the_whole_is_used_up() {
        let whole = MemoryBudget::new("whole", 100);
        let share = whole.share("share", 50);
        assert!(share.take(51).is_none());
        let most = whole.take(70).unwrap();
        assert!(share.take(31).is_none());
        assert_eq!((share.used_bytes(), whole.used_bytes()), (0, 70), "a refusal leaves nothing counted");
        let rest = share.take(30).unwrap();
        assert_eq!((share.used_bytes(), whole.used_bytes()), (30, 100));
        drop(most);
        assert!(share.take(21).is_none());
        drop(rest);
        assert_eq!((share.used_bytes(), whole.used_bytes()), (0, 0));
    }

    #[test]
    fn grants_of_one_budget_are_resized_and_merged_without_loss() {
        let whole = MemoryBudget::new("whole", 100);
        let share = whole.share("share", 80);
        let mut grant = share.empty_grant();
        assert!(grant.resize(50) && !grant.resize(81) && grant.resize(40));
        grant.merge(share.take(30).unwrap());
        assert_eq!((grant.bytes(), share.left_bytes(), whole.left_bytes()), (70, 10, 30));
        let most = whole.take(25).unwrap();
        assert_eq!(share.left_bytes(), 5, "the whole has less");
        drop((grant, most));
        assert_eq!((share.used_bytes(), whole.used_bytes()), (0, 0));
    }

    #[test]
    fn many_threads_never_have_more_than_the_limit_together_and_all_is_given_back() {
        const LIMIT_BYTES: u64 = 1_000;
        let whole = MemoryBudget::new("whole", LIMIT_BYTES);
        let held = AtomicU64::new(0);
        std::thread::scope(|threads| {
            for number in 0..8_u64 {
                let budget = if number % 2 == 0 { whole.clone() } else { whole.share("share", LIMIT_BYTES / 2) };
                let held = &held;
                threads.spawn(move || {
                    for turn in 0..20_000 {
                        let bytes = (number * 131 + turn * 17) % 400;
                        let Some(grant) = budget.take(bytes) else { continue };
                        // Counted after the grant was taken and before it is returned.
                        let sum = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(sum <= LIMIT_BYTES && budget.used_bytes() <= budget.limit_bytes(), "{sum}");
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        drop(grant);
                    }
                });
            }
        });
        assert_eq!(whole.used_bytes(), 0);
        assert!(whole.take(LIMIT_BYTES).is_some(), "all of it is there again");
    }
}
