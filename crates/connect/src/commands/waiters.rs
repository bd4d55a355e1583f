//! HTTP requests that wait for the outcome of their command.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_types::TenantId;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::command::Command;
use super::outcome::Outcome;
use super::response::Response;

/// The progress of a command.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandProgress {
    /// It waits for its device; no listener is connected.
    pub(crate) waits: bool,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) response: Option<Response>,
}

/// The reason for which a request cannot wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CannotWait {
    /// Another request waits for the same tenant and correlation id.
    Taken,
    /// As many of the tenant's requests wait as it leaves free to others.
    Full,
}

/// The requests that wait for their command. One tenant takes no more places than it leaves free.
#[derive(Debug)]
pub(crate) struct Waiters {
    max: usize,
    known: Mutex<KnownWaiters>,
}

#[derive(Debug, Default)]
struct KnownWaiters {
    /// By tenant and correlation id; each tenant has some.
    of_tenants: HashMap<TenantId, HashMap<Box<str>, WaitingRequest>>,
    count: usize,
}

#[derive(Debug)]
struct WaitingRequest {
    device: Arc<str>,
    progress: watch::Sender<CommandProgress>,
}

/// A registered waiter; dropping it ends the registration.
pub(crate) struct Waiter {
    of: Arc<Waiters>,
    tenant: TenantId,
    correlation_id: Box<str>,
    pub(crate) progress: watch::Receiver<CommandProgress>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut known = self.of.known.lock();
        let Some(of_tenant) = known.of_tenants.get_mut(&self.tenant) else { return };
        let removed = of_tenant.remove(&self.correlation_id);
        if of_tenant.is_empty() {
            known.of_tenants.remove(&self.tenant);
        }
        known.count -= usize::from(removed.is_some());
    }
}

impl Waiters {
    /// At most `max` at a time.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, known: Mutex::default() }
    }

    /// Registers a waiter for the command to `device` with this correlation id.
    pub(crate) fn wait(
        self: &Arc<Self>,
        tenant: &TenantId,
        correlation_id: &str,
        device: &str,
    ) -> Result<Waiter, CannotWait> {
        let mut known = self.known.lock();
        let of_tenant = known.of_tenants.get(tenant);
        if of_tenant.is_some_and(|of_tenant| of_tenant.contains_key(correlation_id)) {
            return Err(CannotWait::Taken);
        }
        if of_tenant.map_or(0, HashMap::len) >= self.max.saturating_sub(known.count) {
            return Err(CannotWait::Full);
        }
        let (sender, progress) = watch::channel(CommandProgress::default());
        let waiting = WaitingRequest { device: device.into(), progress: sender };
        let correlation_id: Box<str> = correlation_id.into();
        known.of_tenants.entry(tenant.clone()).or_default().insert(correlation_id.clone(), waiting);
        known.count += 1;
        Ok(Waiter { of: Arc::clone(self), tenant: tenant.clone(), correlation_id, progress })
    }

    /// The command waits for its device.
    pub(crate) fn waits(&self, command: &Command) {
        self.tell_of(command, |progress| progress.waits = true);
    }

    /// Tells the waiting request that its command has ended.
    pub(crate) fn ended(&self, command: &Command, outcome: &Outcome) {
        self.tell_of(command, |progress| progress.outcome = Some(outcome.clone()));
    }

    /// Tells the waiting request the device's response.
    pub(crate) fn responded(&self, tenant: &TenantId, correlation_id: &str, response: Response) {
        let device = Arc::clone(&response.device);
        self.tell(tenant, correlation_id, &device, |progress| progress.response = Some(response));
    }

    fn tell_of(&self, command: &Command, change: impl FnOnce(&mut CommandProgress)) {
        if let Some(id) = &command.correlation_id {
            self.tell(&command.tenant, id, &command.device, change);
        }
    }

    fn tell(&self, tenant: &TenantId, id: &str, device: &str, change: impl FnOnce(&mut CommandProgress)) {
        let known = self.known.lock();
        let waiting = known.of_tenants.get(tenant).and_then(|of_tenant| of_tenant.get(id));
        if let Some(waiting) = waiting.filter(|waiting| *waiting.device == *device) {
            waiting.progress.send_modify(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn response(device: &str) -> Response {
        Response { device: device.into(), status: 200, content_type: None, payload: Bytes::new() }
    }

    #[test]
    fn an_id_has_one_waiter_that_hears_of_its_device_only_and_frees_its_place() {
        let (waiters, tenant) = (Arc::new(Waiters::new(4)), TenantId::default());
        let wait = |id| waiters.wait(&tenant, id, "d");
        let first = wait("a").unwrap();
        assert_eq!(wait("a").err(), Some(CannotWait::Taken));
        let second = wait("b").unwrap();
        assert_eq!(wait("c").err(), Some(CannotWait::Full));
        waiters.responded(&tenant, "a", response("another"));
        waiters.responded(&TenantId::new("other").unwrap(), "a", response("d"));
        assert_eq!(first.progress.borrow().response, None);
        waiters.responded(&tenant, "a", response("d"));
        assert_eq!(first.progress.borrow().response, Some(response("d")));
        assert_eq!(second.progress.borrow().response, None);
        let of_another = waiters.wait(&TenantId::new("other").unwrap(), "a", "d");
        assert!(of_another.is_ok(), "a tenant leaves room to others");
        drop((first, of_another));
        assert!(wait("a").is_ok());
    }
}
