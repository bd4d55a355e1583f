//! A tenant, as its operator describes it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Defaults;
use super::limits::{RegistrationLimits, ResourceLimits};
use super::object::{Object, yes};
use super::sampling::Tracing;
use super::trusted_ca::TrustedCa;

/// A tenant as its document describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tenant {
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alias: Option<String>,
    #[serde(default, skip_serializing_if = "Defaults::is_empty")]
    pub(crate) defaults: Defaults,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) adapters: Option<Vec<Adapter>>,
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub(crate) ext: Object,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) minimum_message_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) trusted_ca: Vec<TrustedCa>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trust_anchor_group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tracing: Option<Tracing>,
    #[serde(default, skip_serializing_if = "RegistrationLimits::is_default")]
    pub(crate) registration_limits: RegistrationLimits,
    #[serde(default, skip_serializing_if = "ResourceLimits::is_default")]
    pub(crate) resource_limits: ResourceLimits,
}

/// A tenant's settings for one adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Adapter {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) enabled: bool,
    #[serde(default = "yes")]
    pub(crate) device_authentication_required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_ttd: Option<u32>,
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub(crate) ext: Object,
}

impl Adapter {
    /// Longest time that a device may wait for a command, seconds.
    pub(crate) fn max_ttd_s(&self) -> Option<u32> {
        let in_ext = || self.ext.get("max-ttd")?.as_u64()?.try_into().ok();
        self.max_ttd.or_else(in_ext)
    }

    /// Largest payload of a message, if it is lower than the adapter's own limit.
    pub(crate) fn payload_max_bytes(&self) -> Option<u64> {
        self.ext.get("max-payload-bytes")?.as_u64()
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            enabled: true,
            alias: None,
            defaults: Defaults::default(),
            adapters: None,
            ext: Object::default(),
            minimum_message_size: None,
            trusted_ca: Vec::new(),
            trust_anchor_group: None,
            tracing: None,
            registration_limits: RegistrationLimits::default(),
            resource_limits: ResourceLimits::default(),
        }
    }
}

impl Tenant {
    /// Free members that applications and other planes store with the tenant.
    pub fn ext(&self) -> &Map<String, Value> {
        &self.ext
    }

    /// The tenant's settings for the adapter of this type.
    pub(crate) fn adapter(&self, kind: &str) -> Option<&Adapter> {
        self.adapters.as_ref()?.iter().find(|adapter| adapter.kind == kind)
    }

    /// Metered bytes of a payload of this size: a multiple of `minimum-message-size`.
    pub(crate) fn metered(&self, payload_bytes: usize) -> u64 {
        let bytes = payload_bytes as u64;
        self.minimum_message_size
            .filter(|unit| *unit > 0)
            .map_or(bytes, |unit| bytes.div_ceil(unit).saturating_mul(unit))
    }

    /// True if devices may use the adapter of this type. Without a list they may use every adapter.
    pub(crate) fn allows(&self, kind: &str) -> bool {
        self.enabled && (self.adapters.is_none() || self.adapter(kind).is_some_and(|adapter| adapter.enabled))
    }

    /// True if the tenant lets its devices use the adapter of this type without login.
    pub(crate) fn allows_without_login(&self, kind: &str) -> bool {
        let is_open = |adapter: &Adapter| !adapter.device_authentication_required;
        self.allows(kind) && self.adapter(kind).is_some_and(is_open)
    }

    /// Names a unique property that both tenants have; `None` if they share none. The alias is unique. The subjects of
    /// certificate authorities are unique, too, unless a trust anchor group shares them.
    pub(crate) fn clash(&self, other: &Self) -> Option<String> {
        if let Some(alias) = self.alias.as_ref().filter(|alias| other.alias.as_ref() == Some(*alias)) {
            return Some(format!("alias '{alias}'"));
        }
        if self.trust_anchor_group.is_some() && self.trust_anchor_group == other.trust_anchor_group {
            return None;
        }
        let subjects = self.trusted_ca.iter().filter_map(TrustedCa::subject);
        let mut shared = subjects.filter(|dn| other.trusted_ca.iter().any(|ca| ca.subject().as_ref() == Some(dn)));
        shared.next().map(|dn| format!("certificate authority '{dn}'"))
    }
}
