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
    /// The limit of waiting requests is reached.
    Full,
}

type Name = (TenantId, Box<str>);

/// The requests that wait for their command, by tenant and correlation id.
#[derive(Debug)]
pub(crate) struct Waiters {
    max: usize,
    known: Mutex<HashMap<Name, WaitingRequest>>,
}

#[derive(Debug)]
struct WaitingRequest {
    device: Arc<str>,
    progress: watch::Sender<CommandProgress>,
}

/// A registered waiter; dropping it ends the registration.
pub(crate) struct Waiter {
    of: Arc<Waiters>,
    name: Name,
    pub(crate) progress: watch::Receiver<CommandProgress>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.of.known.lock().remove(&self.name);
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
        let name = (tenant.clone(), correlation_id.into());
        if known.contains_key(&name) {
            return Err(CannotWait::Taken);
        }
        if known.len() >= self.max {
            return Err(CannotWait::Full);
        }
        let (sender, progress) = watch::channel(CommandProgress::default());
        known.insert(name.clone(), WaitingRequest { device: device.into(), progress: sender });
        Ok(Waiter { of: Arc::clone(self), name, progress })
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
        if known.is_empty() {
            return;
        }
        if let Some(known) = known.get(&(tenant.clone(), id.into())).filter(|known| *known.device == *device) {
            known.progress.send_modify(change);
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
        let (waiters, tenant) = (Arc::new(Waiters::new(2)), TenantId::default());
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
        drop(first);
        assert!(wait("a").is_ok());
    }
}
