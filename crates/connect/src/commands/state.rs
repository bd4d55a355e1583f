//! The waiting commands of one partition. Versions share their structure. Records of different keys may be applied in
//! any order.

use std::sync::Arc;

use millstream_types::TenantId;

use super::command::{Command, RecordPosition};

/// The waiting commands of all tenants of a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tenants: imbl::HashMap<TenantId, TenantCommands>,
}

#[derive(Debug, Clone, Default)]
struct TenantCommands {
    devices: imbl::HashMap<Arc<str>, imbl::OrdMap<RecordPosition, Arc<Command>>>,
    /// Approximate memory of the tenant's commands together.
    size_bytes: usize,
}

/// A command starts to wait or is removed.
#[derive(Debug, Clone)]
pub(crate) enum CommandChange {
    Waits(Arc<Command>),
    Gone { tenant: TenantId, device: Arc<str>, position: RecordPosition },
}

impl State {
    pub(crate) fn apply(&mut self, change: &CommandChange) {
        match change {
            CommandChange::Waits(command) => {
                let known = self.tenants.entry(command.tenant.clone()).or_default();
                let queue = known.devices.entry(Arc::clone(&command.device)).or_default();
                let before =
                    queue.insert(command.position, Arc::clone(command)).map_or(0, |before| before.size_bytes());
                known.size_bytes = known.size_bytes + command.size_bytes() - before;
            }
            CommandChange::Gone { tenant, device, position } => {
                let Some(known) = self.tenants.get_mut(tenant) else { return };
                let Some(queue) = known.devices.get_mut(device) else { return };
                known.size_bytes -= queue.remove(position).map_or(0, |before| before.size_bytes());
                if queue.is_empty() {
                    known.devices.remove(device);
                }
                if known.devices.is_empty() {
                    self.tenants.remove(tenant);
                }
            }
        }
    }

    /// The waiting command at this position.
    pub(crate) fn get(&self, tenant: &TenantId, device: &str, position: RecordPosition) -> Option<&Arc<Command>> {
        self.tenants.get(tenant)?.devices.get(device)?.get(&position)
    }

    /// Number of commands that wait for `device`.
    pub(crate) fn count(&self, tenant: &TenantId, device: &str) -> usize {
        let queue = self.tenants.get(tenant).and_then(|known| known.devices.get(device));
        queue.map_or(0, imbl::OrdMap::len)
    }

    /// Memory of all commands that wait for devices of `tenant`.
    pub(crate) fn size_bytes(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, |known| known.size_bytes)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Command>> {
        self.tenants.values().flat_map(|known| known.devices.values().flat_map(imbl::OrdMap::values))
    }
}
