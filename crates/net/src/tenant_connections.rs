//! The connections of a listener that have logged in, by tenant: those of one tenant keep no other tenant out.
//!
//! Invariants
//! - There are at most `max` of them. At that number, one more of a tenant displaces the newest of the tenant that has most, if
//!   that has at least two more; else it is refused. So tenants come to have as many as each other, and no connection is
//!   displaced by one of its own tenant.
//! - A connection counts for the tenant of its first login.

use std::collections::{BTreeMap, HashMap};

use millstream_types::TenantId;
use parking_lot::Mutex;

/// The connections of a listener by tenant; `T` stands for one.
#[derive(Debug)]
pub(crate) struct TenantConnections<T> {
    setting: &'static str,
    max: usize,
    entered: Mutex<Entered<T>>,
}

#[derive(Debug)]
struct Entered<T> {
    count: usize,
    /// By number: the newest last.
    by_tenant: HashMap<TenantId, BTreeMap<u64, T>>,
}

/// A listener has as many connections as it may have, and the client's tenant has its share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "there are {setting} = {max} connections already, {of_tenant} of them of this tenant; close some, or raise the limit"
)]
pub struct ListenerFull {
    /// The setting that says how many connections there may be.
    pub setting: &'static str,
    /// The value of that setting.
    pub max: usize,
    /// Those of the tenant.
    pub of_tenant: usize,
}

impl<T> TenantConnections<T> {
    /// Without connections; there may be `max`, which `setting` says.
    pub(crate) fn new(setting: &'static str, max: usize) -> Self {
        Self { setting, max, entered: Mutex::new(Entered { count: 0, by_tenant: HashMap::new() }) }
    }

    /// Enters a connection of `tenant`. Returns the one that it displaces, if it displaces one.
    pub(crate) fn enter(&self, tenant: &TenantId, number: u64, connection: T) -> Result<Option<T>, ListenerFull> {
        let mut entered = self.entered.lock();
        let of_tenant = entered.of(tenant);
        let mut displaced = None;
        if entered.count >= self.max {
            displaced = entered.displace(of_tenant + 2);
            if displaced.is_none() {
                return Err(ListenerFull { setting: self.setting, max: self.max, of_tenant });
            }
        }
        if entered.by_tenant.entry(tenant.clone()).or_default().insert(number, connection).is_none() {
            entered.count += 1;
        }
        Ok(displaced)
    }

    /// Takes a connection out, unless it was displaced.
    pub(crate) fn leave(&self, tenant: &TenantId, number: u64) {
        self.entered.lock().remove(tenant, number);
    }
}

impl<T> Entered<T> {
    fn of(&self, tenant: &TenantId) -> usize {
        self.by_tenant.get(tenant).map_or(0, BTreeMap::len)
    }

    /// Takes the newest connection out of the tenant that has most, if that has `at_least` this many.
    fn displace(&mut self, at_least: usize) -> Option<T> {
        let (tenant, connections) = self.by_tenant.iter().max_by_key(|(_, connections)| connections.len())?;
        if connections.len() < at_least {
            return None;
        }
        let (tenant, number) = (tenant.clone(), *connections.last_key_value()?.0);
        self.remove(&tenant, number)
    }

    fn remove(&mut self, tenant: &TenantId, number: u64) -> Option<T> {
        let connections = self.by_tenant.get_mut(tenant)?;
        let removed = connections.remove(&number)?;
        if connections.is_empty() {
            self.by_tenant.remove(tenant);
        }
        self.count -= 1;
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn at_the_limit_the_tenant_that_has_most_makes_room_for_one_that_has_fewer() {
        let all = TenantConnections::new("max", 6);
        let (a, b, c) = (tenant("a"), tenant("b"), tenant("c"));
        for number in 0..6 {
            assert_eq!(all.enter(&a, number, number), Ok(None));
        }
        let full = all.enter(&a, 6, 6).unwrap_err();
        assert_eq!(full, ListenerFull { setting: "max", max: 6, of_tenant: 6 });
        for (number, displaced) in [(7, 5), (8, 4), (9, 3)] {
            assert_eq!(all.enter(&b, number, number), Ok(Some(displaced)), "the newest of the other");
        }
        assert_eq!(all.enter(&b, 10, 10).unwrap_err().of_tenant, 3, "each has half");
        assert!(all.enter(&a, 10, 10).is_err());
        assert_eq!(all.enter(&c, 11, 11).unwrap().map(|displaced| displaced == 9 || displaced == 2), Some(true));
        all.leave(&a, 5);
        assert_eq!(all.entered.lock().count, 6, "a displaced one leaves without effect");
        all.leave(&a, 0);
        assert_eq!(all.enter(&b, 12, 12), Ok(None));
        for (tenant, number) in [&a, &b, &c].into_iter().flat_map(|tenant| (0..13).map(move |number| (tenant, number)))
        {
            all.leave(tenant, number);
        }
        let entered = all.entered.lock();
        assert_eq!((entered.count, entered.by_tenant.len()), (0, 0));
    }
}
