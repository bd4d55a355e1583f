//! The commands that wait, as one partition knows them. Everything is shared between versions. Records may be applied in
//! any order of their keys.

use std::sync::Arc;

use millstream_types::TenantId;

use super::command::{Command, Place};

/// All tenants of a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tenants: imbl::HashMap<TenantId, OfTenant>,
}

#[derive(Debug, Clone, Default)]
struct OfTenant {
    devices: imbl::HashMap<Arc<str>, imbl::OrdMap<Place, Arc<Command>>>,
    /// What all of them take.
    size_bytes: usize,
}

/// A command begins to wait, or waits no longer.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Waits(Arc<Command>),
    Gone { tenant: TenantId, device: Arc<str>, place: Place },
}

impl State {
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Waits(command) => {
                let known = self.tenants.entry(command.tenant.clone()).or_default();
                let queue = known.devices.entry(Arc::clone(&command.device)).or_default();
                let before = queue.insert(command.place, Arc::clone(command)).map_or(0, |before| before.size_bytes());
                known.size_bytes = known.size_bytes + command.size_bytes() - before;
            }
            Change::Gone { tenant, device, place } => {
                let Some(known) = self.tenants.get_mut(tenant) else { return };
                let Some(queue) = known.devices.get_mut(device) else { return };
                known.size_bytes -= queue.remove(place).map_or(0, |before| before.size_bytes());
                if queue.is_empty() {
                    known.devices.remove(device);
                }
                if known.devices.is_empty() {
                    self.tenants.remove(tenant);
                }
            }
        }
    }

    /// The command that waits there.
    pub(crate) fn get(&self, tenant: &TenantId, device: &str, place: Place) -> Option<&Arc<Command>> {
        self.tenants.get(tenant)?.devices.get(device)?.get(&place)
    }

    /// How many wait for `device`.
    pub(crate) fn count(&self, tenant: &TenantId, device: &str) -> usize {
        let queue = self.tenants.get(tenant).and_then(|known| known.devices.get(device));
        queue.map_or(0, imbl::OrdMap::len)
    }

    /// What all that wait for devices of `tenant` take.
    pub(crate) fn size_bytes(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, |known| known.size_bytes)
    }

    /// All that wait.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Command>> {
        self.tenants.values().flat_map(|known| known.devices.values().flat_map(imbl::OrdMap::values))
    }
}
