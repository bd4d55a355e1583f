//! Resolves the sending device and checks that the caller may send for it.

use millstream_http::Problem;
use millstream_log::Partition;
use millstream_types::{Header, TenantId};

use crate::adapter::UNAUTHENTICATED;
use crate::content_type::check_type;
use crate::rate_limit::{Amount, Rates};
use crate::refusal::{
    adapter_disabled, gateway_disabled, no_consumer, not_behind, other_tenant, payload_too_large, unknown_device,
};
use crate::registry::{Adapter, Device, Stored, Tenant, TenantState, needs_consumer};
use crate::stream::{Delivery, Stream};

/// The device that a message is addressed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceAddress<'a> {
    /// The device that has logged in.
    Caller,
    /// A named device; without tenant it belongs to the caller's tenant.
    Named { tenant: Option<&'a str>, device: &'a str },
}

/// The caller: a device that sends for itself, or a gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) adapter: &'static str,
    pub(crate) tenant: &'a TenantId,
    /// The id of the device that has logged in.
    pub(crate) device: &'a str,
}

/// The sending device and its registration.
pub(crate) struct Sender<'a> {
    pub(crate) id: &'a str,
    adapter: &'static str,
    device: &'a Device,
    tenant: &'a Tenant,
    pub(crate) registered: &'a Stored<Tenant>,
}

impl<'a> Sender<'a> {
    /// Resolves the sending device and checks that the caller may send for it.
    pub(crate) fn find(known: &'a TenantState, target: DeviceAddress<'a>, origin: Origin<'a>) -> Result<Self, Problem> {
        let Origin { adapter, tenant: own_tenant, device: caller } = origin;
        let id = match target {
            DeviceAddress::Caller => caller,
            DeviceAddress::Named { tenant: Some(tenant), .. } if tenant != own_tenant.as_str() => {
                return Err(other_tenant(tenant, own_tenant));
            }
            DeviceAddress::Named { device, .. } => device,
        };
        let registered = known.tenant.as_deref().filter(|stored| stored.value.allows(adapter));
        let registered = registered.ok_or_else(|| adapter_disabled(own_tenant, adapter))?;
        let sender = |device| Self { id, adapter, device, tenant: &registered.value, registered };
        let enabled = |id: &str| known.devices.get(id).map(|stored| &*stored.value).filter(|device| device.enabled);
        if id == caller || caller == UNAUTHENTICATED {
            let device = enabled(id).ok_or_else(|| unknown_device(id))?;
            return Ok(sender(device));
        }
        let gateway = enabled(caller).ok_or_else(|| gateway_disabled(caller))?;
        let device = enabled(id).ok_or_else(|| unknown_device(id))?;
        if !device.is_behind(caller, gateway) {
            return Err(not_behind(id, caller));
        }
        Ok(sender(device))
    }

    /// The named device, if it is unknown and the caller is a gateway that may register it.
    pub(crate) fn to_provision(known: &TenantState, target: DeviceAddress<'a>, origin: Origin<'_>) -> Option<&'a str> {
        let DeviceAddress::Named { tenant, device } = target else { return None };
        let is_own = tenant.is_none_or(|tenant| tenant == origin.tenant.as_str());
        let is_unknown = !device.is_empty() && !known.devices.contains_key(device);
        let gateway = known.devices.get(origin.device).map(|stored| &*stored.value);
        let may = gateway.is_some_and(|gateway| gateway.enabled && gateway.may_provision());
        let allows = known.tenant.as_deref().is_some_and(|stored| stored.value.allows(origin.adapter));
        (is_own && is_unknown && may && allows).then_some(device)
    }

    /// A device that sends for itself.
    #[cfg(test)]
    pub(crate) fn of(id: &'a str, device: &'a Device, registered: &'a Stored<Tenant>) -> Self {
        Self { id, adapter: "hono-http", device, tenant: &registered.value, registered }
    }

    /// Refuses a payload over the tenant's limit for this adapter.
    pub(crate) fn check_payload(&self, payload_bytes: usize) -> Result<(), Problem> {
        let limit = self.tenant.adapter(self.adapter).and_then(Adapter::payload_max_bytes);
        match limit.filter(|limit| payload_bytes as u64 > *limit) {
            Some(limit) => Err(payload_too_large(payload_bytes, self.adapter, limit)),
            None => Ok(()),
        }
    }

    /// Refuses telemetry without a reader, if the tenant is configured so.
    pub(crate) fn check_consumer(&self, delivery: Delivery, partition: &dyn Partition) -> Result<(), Problem> {
        let may_be_refused = delivery.stream() == Stream::Telemetry && needs_consumer(&self.tenant.ext);
        match may_be_refused && !partition.has_consumer() {
            true => Err(no_consumer(partition.id())),
            false => Ok(()),
        }
    }

    /// Message and byte rates of the device.
    pub(crate) fn rates(&self) -> Rates {
        self.tenant.resource_limits.device_rates(&self.device.ext)
    }

    /// Metered amount of messages with payloads of these sizes.
    pub(crate) fn amount(&self, payload_bytes: impl IntoIterator<Item = usize>) -> Amount {
        let none = Amount { messages: 0, bytes: 0 };
        payload_bytes
            .into_iter()
            .fold(none, |all, size| Amount { messages: all.messages + 1, bytes: all.bytes + self.tenant.metered(size) })
    }

    /// Default media type of messages.
    pub(crate) fn default_type(&self) -> Option<&'a [u8]> {
        let of_device = self.device.defaults.content_type();
        of_device.or_else(|| self.tenant.defaults.content_type()).map(str::as_bytes)
    }

    /// Refuses a payload without media type that does not fit the default type.
    pub(crate) fn check_default_type(&self, content_type: Option<&[u8]>, payload: &[u8]) -> Result<(), Problem> {
        match self.default_type().filter(|_| content_type.is_none() && !payload.is_empty()) {
            Some(by_default) => check_type(Some(by_default), payload, ""),
            None => Ok(()),
        }
    }

    /// Default properties; those of the device override those of the tenant.
    pub(crate) fn default_headers(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let of_device = self.device.defaults.headers();
        let is_free = move |(name, _): &&(String, String)| !of_device.iter().any(|(known, _)| known == name);
        let all = of_device.iter().chain(self.tenant.defaults.headers().iter().filter(is_free));
        all.map(|(key, value)| Header { key, value: Some(value.as_bytes()) })
    }

    /// The lower of the adapter's and the tenant's limit.
    pub(crate) fn ttd_max_s(&self, of_adapter: u32) -> u32 {
        let of_tenant = self.tenant.adapter(self.adapter).and_then(|adapter| adapter.max_ttd_s());
        of_tenant.unwrap_or(of_adapter).min(of_adapter)
    }

    /// The time to live of a message: its own, else the device's or the tenant's default, up to the tenant's maximum.
    pub(crate) fn ttl_s(&self, delivery: Delivery, given_s: Option<u64>) -> Option<u64> {
        let limits = &self.tenant.resource_limits;
        let limit = match delivery {
            Delivery::AtMostOnce => limits.unconfirmed_ttl_max_s(),
            Delivery::AtLeastOnce => limits.confirmed_ttl_max_s(),
            Delivery::Event => limits.event_ttl_max_s(),
            // Their devices do not say it.
            Delivery::UnconfirmedResponse | Delivery::Response => return limits.response_ttl_s(),
        };
        let by_default = || self.device.defaults.ttl_s().or_else(|| self.tenant.defaults.ttl_s());
        let wanted = given_s.or_else(by_default);
        wanted.map_or(limit, |wanted| Some(limit.map_or(wanted, |limit| wanted.min(limit))))
    }
}
