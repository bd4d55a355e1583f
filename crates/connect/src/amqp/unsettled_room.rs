//! Memory for what is known of the deliveries that a connection has not settled.

use millstream_types::{Grant, MemoryBudget, TenantId};

/// Deliveries for which memory is taken at a time, and bytes that one of them takes in the table of its session.
const STEP: usize = 1_024;
const DELIVERY_BYTES: u64 = 64;

/// Room for unsettled deliveries, which grows with their number and is given back when none is left.
pub(super) struct UnsettledRoom {
    budget: MemoryBudget,
    tenant: TenantId,
    grants: Vec<Grant>,
    max: usize,
}

impl UnsettledRoom {
    /// Room for at most `max` deliveries.
    pub(super) fn new(budget: MemoryBudget, tenant: TenantId, max: usize) -> Self {
        Self { budget, tenant, grants: Vec::new(), max }
    }

    /// The number of deliveries that there may be, if there are `known`: more than these if there is memory.
    pub(super) fn for_more_than(&mut self, known: usize) -> usize {
        if known == 0 {
            self.grants.clear();
        }
        if known >= self.grants.len() * STEP && known < self.max {
            self.grants.extend(self.budget.take_for(&self.tenant, STEP as u64 * DELIVERY_BYTES));
        }
        self.max.min(self.grants.len() * STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_grows_with_the_deliveries_as_far_as_the_limit_and_the_budget() {
        let budget = MemoryBudget::new("memory.budget_bytes", 20 * STEP as u64 * DELIVERY_BYTES);
        let room = |max| UnsettledRoom::new(budget.clone(), TenantId::default(), max);
        let mut small = room(10);
        assert_eq!((small.for_more_than(0), small.for_more_than(10)), (10, 10));
        let mut large = room(usize::MAX);
        assert_eq!([0, STEP - 1, STEP].map(|known| large.for_more_than(known)), [STEP, STEP, 2 * STEP]);
        let mut most = 2 * STEP;
        while large.for_more_than(most) > most {
            most += STEP;
        }
        assert!(
            (5 * STEP..20 * STEP).contains(&most),
            "{most} deliveries, as a tenant has no more than it leaves free"
        );
        assert_eq!(large.for_more_than(0), STEP, "nothing is left, and the rest is given back");
        drop((small, large));
        assert_eq!(budget.used_bytes(), 0);
    }
}
