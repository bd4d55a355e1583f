//! Room that tenants share: requests take a part of it before their bytes are read, and wait until there is one.
//!
//! Invariants
//! - A tenant takes no more than it leaves free, or else a single request. So whatever requests one tenant
//!   announces, as much room stays for others, and with each further tenant that does so the parts become smaller.
//! - Requests of one tenant get their room in their order; those of another overtake them.
//! - A request gets all of its room at once, so that none waits for more while it holds some.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millstream_types::TenantId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The room; clones share it.
#[derive(Debug, Clone)]
pub struct TenantRoom(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    limit_bytes: usize,
    free_bytes: usize,
    /// The tenants that hold room or wait for some.
    tenants: HashMap<TenantId, Tenant>,
    /// The number of waiting requests of all tenants, with those whose clients have left meanwhile.
    waiting: usize,
}

#[derive(Debug, Default)]
struct Tenant {
    held_bytes: usize,
    waiting: VecDeque<WaitingRequest>,
}

#[derive(Debug)]
struct WaitingRequest {
    size_bytes: usize,
    told: oneshot::Sender<RoomPermit>,
}

/// A request's part of the room, given back on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the room back"]
pub struct RoomPermit {
    room: TenantRoom,
    tenant: TenantId,
    size_bytes: usize,
}

impl TenantRoom {
    /// Room of `limit_bytes`, all of it free.
    pub fn new(limit_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(State { limit_bytes, free_bytes: limit_bytes, tenants: HashMap::new(), waiting: 0 })))
    }

    /// Waits for room of `size_bytes`, at most the limit, for a request of `tenant`.
    pub async fn acquire(&self, tenant: &TenantId, size_bytes: usize) -> RoomPermit {
        let waiting = {
            let mut state = self.0.lock();
            let size_bytes = size_bytes.min(state.limit_bytes);
            let is_first = state.tenants.get(tenant).is_none_or(|known| known.waiting.is_empty());
            if is_first && state.fits(tenant, size_bytes) {
                return self.permit(&mut state, tenant, size_bytes);
            }
            let (told, waiting) = oneshot::channel();
            let queue = &mut state.tenants.entry(tenant.clone()).or_default().waiting;
            queue.push_back(WaitingRequest { size_bytes, told });
            state.waiting += 1;
            waiting
        };
        waiting.await.expect("a waiting request is dropped only once it is told")
    }

    /// `true` if a request waits, or less than a quarter is free.
    pub fn is_short(&self) -> bool {
        let state = self.0.lock();
        state.free_bytes < state.limit_bytes / 4 || state.waiting > 0
    }

    fn permit(&self, state: &mut State, tenant: &TenantId, size_bytes: usize) -> RoomPermit {
        state.free_bytes -= size_bytes;
        state.tenants.entry(tenant.clone()).or_default().held_bytes += size_bytes;
        RoomPermit { room: self.clone(), tenant: tenant.clone(), size_bytes }
    }

    /// Gives room back, and lets in those whom it is enough for.
    fn give_back(&self, tenant: &TenantId, size_bytes: usize) {
        let mut left = Vec::new();
        {
            let mut state = self.0.lock();
            state.free_bytes += size_bytes;
            let known = state.tenants.get_mut(tenant).expect("who holds room is known");
            known.held_bytes -= size_bytes;
            if known.is_gone() {
                state.tenants.remove(tenant);
            }
            state.forget_closed();
            while let Some((tenant, WaitingRequest { size_bytes, told })) = state.next() {
                let permit = self.permit(&mut state, &tenant, size_bytes);
                // The client may have left; its room is given back without the lock.
                left.extend(told.send(permit).err());
            }
        }
        drop(left);
    }
}

impl State {
    fn fits(&self, tenant: &TenantId, size_bytes: usize) -> bool {
        let held_bytes = self.tenants.get(tenant).map_or(0, |tenant| tenant.held_bytes);
        let Some(rest_bytes) = self.free_bytes.checked_sub(size_bytes) else { return false };
        held_bytes == 0 || held_bytes + size_bytes <= rest_bytes
    }

    /// Forgets waiting requests whose clients have left.
    fn forget_closed(&mut self) {
        if self.waiting == 0 {
            return;
        }
        self.waiting = 0;
        self.tenants.retain(|_, tenant| {
            tenant.waiting.retain(|request| !request.told.is_closed());
            self.waiting += tenant.waiting.len();
            !tenant.is_gone()
        });
    }

    /// Takes the next request that fits out of its queue, first one of the tenant that holds least.
    fn next(&mut self) -> Option<(TenantId, WaitingRequest)> {
        if self.waiting == 0 {
            return None;
        }
        let fitting = self.tenants.iter().filter(|(tenant, known)| {
            known.waiting.front().is_some_and(|request| self.fits(tenant, request.size_bytes))
        });
        let tenant = fitting.min_by_key(|(_, known)| known.held_bytes)?.0.clone();
        let request = self.tenants.get_mut(&tenant)?.waiting.pop_front()?;
        self.waiting -= 1;
        Some((tenant, request))
    }
}

impl Tenant {
    fn is_gone(&self) -> bool {
        self.held_bytes == 0 && self.waiting.is_empty()
    }
}

impl Drop for RoomPermit {
    fn drop(&mut self) {
        self.room.give_back(&self.tenant, self.size_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LIMIT: usize = 1000;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    /// The permit, if there is room at once.
    fn at_once(room: &TenantRoom, name: &str, size_bytes: usize) -> Option<RoomPermit> {
        let name = tenant(name);
        match pin!(room.acquire(&name, size_bytes)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_tenant_takes_as_much_as_it_leaves_free_and_others_share_the_rest() {
        let room = TenantRoom::new(LIMIT);
        let mut held = Vec::new();
        for (name, permits) in [("a", 5), ("b", 2), ("c", 1), ("d", 1)] {
            let before = held.len();
            held.extend(std::iter::from_fn(|| at_once(&room, name, 100)));
            assert_eq!(held.len() - before, permits, "{name}");
        }
        assert!(room.is_short());
        drop(held);
        assert!(!room.is_short());
        assert!(room.0.lock().tenants.is_empty());
    }

    #[test]
    fn one_request_of_any_size_fits_while_its_tenant_holds_nothing() {
        let room = TenantRoom::new(LIMIT);
        let whole = at_once(&room, "a", 5 * LIMIT).unwrap();
        assert!(at_once(&room, "b", 1).is_none());
        drop(whole);
        let _most = at_once(&room, "a", 900).unwrap();
        assert!(at_once(&room, "a", 1).is_none());
        assert!(at_once(&room, "b", 100).is_some());
    }

    #[test]
    fn requests_of_a_tenant_wait_in_their_order_and_those_of_others_overtake_them() {
        let room = TenantRoom::new(LIMIT);
        let held = at_once(&room, "a", 400).unwrap();
        let (a, b) = (tenant("a"), tenant("b"));
        let mut context = Context::from_waker(Waker::noop());
        let mut large = pin!(room.acquire(&a, 300));
        let mut gone = Box::pin(room.acquire(&a, 100));
        let mut small = pin!(room.acquire(&a, 50));
        assert!(large.as_mut().poll(&mut context).is_pending());
        assert!(gone.as_mut().poll(&mut context).is_pending());
        assert!(small.as_mut().poll(&mut context).is_pending(), "it would fit, and comes later");
        let Poll::Ready(_other) = pin!(room.acquire(&b, 100)).poll(&mut context) else {
            panic!("another tenant waits")
        };
        drop(gone);
        drop(held);
        assert!(large.as_mut().poll(&mut context).is_ready());
        assert!(small.as_mut().poll(&mut context).is_ready());
    }
}
