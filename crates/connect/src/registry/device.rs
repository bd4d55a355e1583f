//! A device, as its owner describes it.

use millstream_http::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object::{Object, yes};
use super::{CommandEndpoint, Defaults, DeviceId};

/// The registered description of a device. Members that nothing acts on are kept if they were stored once, and refused in requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "DeviceDocument")]
pub struct Device {
    /// True if the device may send messages.
    pub enabled: bool,
    /// Properties that its messages get if they do not carry them.
    #[serde(skip_serializing_if = "Defaults::is_empty")]
    pub defaults: Defaults,
    /// Gateways that may act for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<DeviceId>,
    /// Groups of gateways that may act for it.
    #[serde(rename = "viaGroups", skip_serializing_if = "Vec::is_empty")]
    pub via_groups: Vec<String>,
    /// Groups of gateways that it belongs to.
    #[serde(rename = "memberOf", skip_serializing_if = "Vec::is_empty")]
    pub member_of: Vec<String>,
    /// A free JSON object that applications keep with the device.
    #[serde(skip_serializing_if = "Object::is_empty")]
    pub ext: Object,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    authorities: Vec<String>,
    #[serde(rename = "command-endpoint", skip_serializing_if = "Option::is_none")]
    command_endpoint: Option<CommandEndpoint>,
    #[serde(rename = "downstream-message-mapper", skip_serializing_if = "Option::is_none")]
    downstream_message_mapper: Option<String>,
    #[serde(rename = "upstream-message-mapper", skip_serializing_if = "Option::is_none")]
    upstream_message_mapper: Option<String>,
}

/// The members that a request may carry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceDocument {
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    via: Vec<DeviceId>,
    #[serde(default, rename = "viaGroups")]
    via_groups: Vec<String>,
    #[serde(default, rename = "memberOf")]
    member_of: Vec<String>,
    #[serde(default)]
    authorities: Vec<String>,
    #[serde(default)]
    ext: Object,
    /// Read-only: a client may send back the status that it has read; it has no effect.
    #[serde(default, rename = "status")]
    _status: Option<Value>,
    #[serde(default, rename = "command-endpoint")]
    command_endpoint: Option<CommandEndpoint>,
    #[serde(default, rename = "downstream-message-mapper")]
    downstream_message_mapper: Option<String>,
    #[serde(default, rename = "upstream-message-mapper")]
    upstream_message_mapper: Option<String>,
}

impl TryFrom<DeviceDocument> for Device {
    type Error = &'static str;

    fn try_from(given: DeviceDocument) -> Result<Self, &'static str> {
        let is_behind = !given.via.is_empty() || !given.via_groups.is_empty();
        if is_behind && !given.member_of.is_empty() {
            return Err("memberOf makes the device a gateway, via and viaGroups put it behind one; \
                        give either the one or the others");
        }
        Ok(Self {
            enabled: given.enabled,
            defaults: given.defaults,
            via: given.via,
            via_groups: given.via_groups,
            member_of: given.member_of,
            ext: given.ext,
            authorities: given.authorities,
            command_endpoint: given.command_endpoint,
            downstream_message_mapper: given.downstream_message_mapper,
            upstream_message_mapper: given.upstream_message_mapper,
        })
    }
}

impl Default for Device {
    fn default() -> Self {
        Self {
            enabled: true,
            defaults: Defaults::default(),
            via: Vec::new(),
            via_groups: Vec::new(),
            member_of: Vec::new(),
            ext: Object::default(),
            authorities: Vec::new(),
            command_endpoint: None,
            downstream_message_mapper: None,
            upstream_message_mapper: None,
        }
    }
}

/// The authority of gateways that may register the devices behind them.
const PROVISIONS: &str = "auto-provisioning-enabled";

impl Device {
    /// A device that no application has registered: behind a gateway, or a gateway that may register others, or neither.
    pub(crate) fn provisioned(via: Option<DeviceId>, is_gateway: bool) -> Self {
        let authorities = is_gateway.then(|| PROVISIONS.to_owned()).into_iter().collect();
        Self { via: via.into_iter().collect(), authorities, ..Self::default() }
    }

    /// True if the device may register devices by sending for them.
    pub(crate) fn may_provision(&self) -> bool {
        self.authorities.iter().any(|authority| authority == PROVISIONS)
    }

    /// The address that takes commands for the devices behind it, if it is a network server's.
    pub(crate) fn command_endpoint(&self) -> Option<&CommandEndpoint> {
        self.command_endpoint.as_ref()
    }

    /// Refuses members that nothing would act on.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let refuse = |detail: &'static str, value: &str, rule: &'static str, remedy: &'static str| {
            Err(Problem::invalid(detail).value(value).rule(rule).remedy(remedy))
        };
        if let Some(unknown) = self.authorities.iter().find(|authority| *authority != PROVISIONS) {
            let rule = "authorities has auto-provisioning-enabled, with which a gateway may register devices, and nothing else";
            return refuse("there is no such authority", unknown, rule, "leave it out");
        }
        if let Some(endpoint) = &self.command_endpoint {
            endpoint.check()?;
        }
        let mappers = [&self.downstream_message_mapper, &self.upstream_message_mapper];
        if let Some(mapper) = mappers.into_iter().flatten().next() {
            let rule = "message mappers are not supported; messages pass as they are, and a job can rewrite them";
            return refuse("no service rewrites messages", mapper, rule, "leave the mapper out, and use a job");
        }
        Ok(())
    }

    /// True if `gateway`, which has the id `id`, may act for this device.
    pub(crate) fn is_behind(&self, id: &str, gateway: &Self) -> bool {
        self.via.iter().any(|via| via.as_str() == id)
            || self.via_groups.iter().any(|group| gateway.member_of.contains(group))
    }
}
