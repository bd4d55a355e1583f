//! The listeners of one tenant and the choice of the one that gets a command.
//!
//! Listeners that name the device come first, the newest before the others. The gateway through which the device last
//! sent comes next, then any other gateway that may act for it. The registry is asked each time if a gateway may.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_types::TenantId;
use tokio::sync::mpsc::error::TrySendError;

use super::command::Command;
use super::delivery::{CommandDelivery, Notes};
use super::gateways::LastGateways;
use super::listener::{Way, Whose};
use super::request_id::RequestIds;
use crate::registry::{Device, Registry};

/// Most devices of one tenant whose last gateway is remembered.
const GATEWAYS_REMEMBERED_MAX: usize = 16_384;

/// Look-up of devices in the current registry.
pub(crate) trait Devices: Send + Sync {
    /// The device, if it and its tenant exist and are enabled.
    fn enabled(&self, tenant: &TenantId, device: &str) -> Option<Arc<Device>>;
}

impl Devices for Registry {
    fn enabled(&self, tenant: &TenantId, device: &str) -> Option<Arc<Device>> {
        let snapshot = self.snapshot(tenant);
        let known = snapshot.state.tenant(tenant)?;
        known.tenant.as_deref().filter(|stored| stored.value.enabled)?;
        known.devices.get(device).map(|stored| Arc::clone(&stored.value)).filter(|device| device.enabled)
    }
}

/// A command to hand over to a listener that is newer than the given one.
pub(super) struct Offer<'a> {
    pub(super) command: &'a Arc<Command>,
    pub(super) device: &'a Device,
    pub(super) newer_than: u64,
    pub(super) devices: &'a dyn Devices,
    pub(super) notes: &'a Arc<Notes>,
    pub(super) request_ids: &'a RequestIds,
}

/// The result of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    Taken,
    /// A listener exists, but its queue is full.
    Full,
    Nobody,
}

#[derive(Debug)]
struct CommandListener {
    id: u64,
    via: Option<Arc<str>>,
    way: Way,
}

/// The newest listener of each list is last.
#[derive(Debug)]
pub(super) struct Listeners {
    exact: HashMap<Arc<str>, Vec<CommandListener>>,
    behind: HashMap<Arc<str>, Vec<CommandListener>>,
    last: LastGateways,
}

impl Default for Listeners {
    fn default() -> Self {
        let last = LastGateways::new(GATEWAYS_REMEMBERED_MAX);
        Self { exact: HashMap::new(), behind: HashMap::new(), last }
    }
}

impl Listeners {
    pub(super) fn add(&mut self, id: u64, whose: &Whose, way: Way) {
        let (list, via) = match whose {
            Whose::Device { device, via } => (self.exact.entry(Arc::clone(device)).or_default(), via.clone()),
            Whose::Behind { gateway } => (self.behind.entry(Arc::clone(gateway)).or_default(), None),
        };
        if let Way::Once(_) = way {
            list.retain(|listener| !matches!(listener.way, Way::Once(_)));
        }
        list.push(CommandListener { id, via, way });
    }

    pub(super) fn remove(&mut self, id: u64, whose: &Whose) {
        let (map, name) = match whose {
            Whose::Device { device, .. } => (&mut self.exact, device),
            Whose::Behind { gateway } => (&mut self.behind, gateway),
        };
        if let Some(list) = map.get_mut(name) {
            list.retain(|listener| listener.id != id);
            if list.is_empty() {
                map.remove(name);
            }
        }
    }

    pub(super) fn seen_behind(&mut self, device: &str, gateway: &str) {
        self.last.note(device, gateway);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.behind.is_empty() && self.last.is_empty()
    }

    /// Hands a command to the first listener that takes it.
    pub(super) fn offer(&mut self, offer: &Offer<'_>) -> Offered {
        let mut offered = Offered::Nobody;
        if let Some(list) = self.exact.get_mut(&offer.command.device) {
            offered = offer.to(list);
        }
        if offered == Offered::Taken || self.behind.is_empty() {
            return offered;
        }
        for gateway in self.gateways(offer) {
            match self.behind.get_mut(&gateway).map(|list| offer.to(list)) {
                Some(Offered::Taken) => return Offered::Taken,
                Some(Offered::Full) => offered = Offered::Full,
                Some(Offered::Nobody) | None => {}
            }
        }
        offered
    }

    /// The listeners that may act for the device, in order of preference.
    fn gateways(&self, offer: &Offer<'_>) -> Vec<Arc<str>> {
        let last = self.last.of(&offer.command.device);
        let by_name = last.into_iter().map(|gateway| &**gateway).chain(offer.device.via.iter().map(|id| id.as_str()));
        let named = by_name.filter_map(|name| self.behind.get_key_value(name)).map(|(gateway, _)| gateway);
        let by_group = self.behind.keys().filter(|_| !offer.device.via_groups.is_empty());
        named.chain(by_group).filter(|gateway| offer.may_go_via(gateway)).cloned().collect()
    }
}

impl Offer<'_> {
    fn may_go_via(&self, gateway: &str) -> bool {
        let known = self.devices.enabled(&self.command.tenant, gateway);
        known.is_some_and(|known| self.device.is_behind(gateway, &known))
    }

    /// Hands the command to the newest listener of `list` that takes it and removes closed listeners.
    fn to(&self, list: &mut Vec<CommandListener>) -> Offered {
        let mut offered = Offered::Nobody;
        let mut index = list.len();
        while index > 0 {
            index -= 1;
            let listener = &list[index];
            if listener.id <= self.newer_than || listener.via.as_ref().is_some_and(|via| !self.may_go_via(via)) {
                continue;
            }
            let delivery = CommandDelivery::new(Arc::clone(self.command), Arc::clone(self.notes), self.request_ids);
            let (back, is_gone) = match &listener.way {
                Way::Stream(stream) => match stream.try_send(delivery) {
                    Ok(()) => return Offered::Taken,
                    Err(TrySendError::Full(back)) => (back, false),
                    Err(TrySendError::Closed(back)) => (back, true),
                },
                Way::Once(_) => {
                    let Way::Once(once) = list.remove(index).way else { continue };
                    match once.give(delivery) {
                        Ok(()) => return Offered::Taken,
                        Err(back) => {
                            back.take_back();
                            continue;
                        }
                    }
                }
            };
            back.take_back();
            if is_gone {
                list.remove(index);
            } else {
                offered = Offered::Full;
            }
        }
        offered
    }
}
