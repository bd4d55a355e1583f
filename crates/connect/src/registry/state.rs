//! The state of one registry partition: tenants with their devices, credentials and logins.
//!
//! Everything is shared between versions, so a snapshot costs nothing and never changes.
//! Records may be applied in any order of their keys: a checkpoint has them sorted, the log as they were written.

use std::sync::Arc;

use imbl::GenericHashMap;
use imbl::shared_ptr::DefaultSharedPtr;
use millstream_types::TenantId;

use super::Mapping;
use super::credential::{Credential, CredentialType, Credentials};
use super::sampling::SamplingMode;
use super::stored::{Stored, Version};
use super::trusted_ca::{Anchor, TrustedCa};
use super::{AuthId, Device, DeviceId, Tenant};

/// A table that versions share. Senders do not choose its keys, so a fast hash is safe for the look-up of each message.
pub(crate) type Table<K, V> = GenericHashMap<K, V, foldhash::fast::RandomState, DefaultSharedPtr>;

/// All tenants of a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tenants: Table<TenantId, TenantState>,
    /// Tenants by the subjects of their trust anchors.
    trusting: Table<Box<str>, Vec<TenantId>>,
    aliases: Table<Box<str>, TenantId>,
}

/// One tenant with its devices and credentials.
#[derive(Debug, Clone, Default)]
pub(crate) struct TenantState {
    pub(crate) tenant: Option<Arc<Stored<Tenant>>>,
    pub(crate) devices: Table<DeviceId, Arc<Stored<Device>>>,
    pub(crate) credentials: Table<DeviceId, Arc<Stored<Credentials>>>,
    /// The logins of each type of credential, in the order of [`CredentialType::ALL`].
    logins: [Table<AuthId, Login>; CredentialType::ALL.len()],
    /// The tenant's `trusted-ca`, ready for logins.
    pub(crate) anchors: Arc<[Anchor]>,
    /// Devices that other devices name in `via`, with the number of those devices.
    gateways: Table<DeviceId, usize>,
    /// The tenant's rules for messages of its private space, if it has any.
    pub(crate) mapping: Option<Arc<Mapping>>,
}

/// The device and credential of an auth-id.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub(crate) device: DeviceId,
    /// Version of the device's credentials; a change of any credential changes it.
    pub(crate) version: Version,
    /// The same as long as the device has credentials; changes if it is deleted and made again.
    pub(crate) born: Version,
    pub(crate) credential: Arc<Credential>,
}

/// A resource's new value; `None` removes it.
#[derive(Debug, Clone)]
pub(crate) enum RegistryChange {
    Tenant(TenantId, Option<Arc<Stored<Tenant>>>),
    Device(TenantId, DeviceId, Option<Arc<Stored<Device>>>),
    Credentials(TenantId, DeviceId, Option<Arc<Stored<Credentials>>>),
}

impl State {
    /// The tenant, if there is one of that name.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Option<&TenantState> {
        self.tenants.get(tenant).filter(|known| known.tenant.is_some())
    }

    pub(crate) fn tenants(&self) -> impl Iterator<Item = (&TenantId, &Stored<Tenant>)> {
        self.tenants.iter().filter_map(|(id, known)| Some((id, known.tenant.as_deref()?)))
    }

    pub(crate) fn apply(&mut self, change: &RegistryChange) {
        let (RegistryChange::Tenant(id, _) | RegistryChange::Device(id, ..) | RegistryChange::Credentials(id, ..)) =
            change;
        let known = self.tenants.entry(id.clone()).or_default();
        match change {
            RegistryChange::Tenant(_, tenant) => {
                let anchors = tenant.iter().flat_map(|stored| &stored.value.trusted_ca);
                let before = std::mem::replace(&mut known.anchors, anchors.filter_map(TrustedCa::anchor).collect());
                let after = Arc::clone(&known.anchors);
                let alias =
                    |stored: &Option<Arc<Stored<Tenant>>>| stored.as_ref().and_then(|it| it.value.alias.clone());
                let (old_alias, new_alias) = (alias(&known.tenant), alias(tenant));
                known.mapping = tenant.as_ref().and_then(|stored| Mapping::of(&stored.value.ext));
                known.tenant.clone_from(tenant);
                self.index_anchors(id, &before, &after);
                self.index_alias(id, old_alias, new_alias);
            }
            RegistryChange::Device(_, device, value) => known.set_device(device, value.as_ref()),
            RegistryChange::Credentials(_, device, value) => known.set_credentials(device, value.as_ref()),
        }
        let is_empty =
            |known: &TenantState| known.tenant.is_none() && known.devices.is_empty() && known.credentials.is_empty();
        if self.tenants.get(id).is_some_and(is_empty) {
            self.tenants.remove(id);
        }
    }

    /// Tenants with a trust anchor of this subject.
    pub(crate) fn trusting(&self, subject: &str) -> &[TenantId] {
        self.trusting.get(subject).map_or(&[], Vec::as_slice)
    }

    /// True if a tenant has a trust anchor.
    pub(crate) fn has_anchors(&self) -> bool {
        !self.trusting.is_empty()
    }

    /// The tenant with this alias.
    pub(crate) fn of_alias(&self, alias: &str) -> Option<&TenantId> {
        self.aliases.get(alias)
    }

    /// Enters a tenant under its anchors in place of those before.
    fn index_anchors(&mut self, tenant: &TenantId, before: &[Anchor], after: &[Anchor]) {
        for anchor in before {
            let subject = anchor.trust.subject();
            if let Some(tenants) = self.trusting.get_mut(subject) {
                tenants.retain(|known| known != tenant);
                if tenants.is_empty() {
                    self.trusting.remove(subject);
                }
            }
        }
        for anchor in after {
            let tenants = self.trusting.entry(anchor.trust.subject().into()).or_default();
            if !tenants.contains(tenant) {
                tenants.push(tenant.clone());
            }
        }
    }

    /// Enters a tenant under its alias in place of the one before.
    fn index_alias(&mut self, tenant: &TenantId, before: Option<String>, after: Option<String>) {
        if let Some(alias) = before.filter(|alias| self.aliases.get(&**alias) == Some(tenant)) {
            self.aliases.remove(&*alias);
        }
        if let Some(alias) = after {
            self.aliases.insert(alias.into(), tenant.clone());
        }
    }
}

impl TenantState {
    /// The credential of this type that a device logs in with under `auth_id`.
    pub(crate) fn login(&self, kind: CredentialType, auth_id: &str) -> Option<&Login> {
        self.logins[kind as usize].get(auth_id)
    }

    /// True if traces of `device` are recorded. A setting for an auth-id applies to its device.
    pub(crate) fn sampling(&self, device: &str) -> SamplingMode {
        let tracing = self.tenant.as_deref().and_then(|stored| stored.value.tracing.as_ref());
        let Some(tracing) = tracing else { return SamplingMode::Default };
        let credentials = self.credentials.get(device);
        let credentials = credentials.into_iter().flat_map(|stored| stored.value.iter());
        tracing.mode(credentials.map(|credential| credential.auth_id.as_str()))
    }

    /// True if the device is a gateway: another device names it, or it belongs to a gateway group.
    pub(crate) fn is_gateway(&self, id: &str) -> bool {
        let is_member = || self.devices.get(id).is_some_and(|stored| !stored.value.member_of.is_empty());
        self.gateways.contains_key(id) || is_member()
    }

    fn set_device(&mut self, device: &DeviceId, value: Option<&Arc<Stored<Device>>>) {
        let before = match value {
            Some(value) => self.devices.insert(device.clone(), value.clone()),
            None => self.devices.remove(device),
        };
        for gateway in before.iter().flat_map(|before| &before.value.via) {
            match self.gateways.get_mut(gateway) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.gateways.remove(gateway)),
            }
        }
        for gateway in value.into_iter().flat_map(|value| &value.value.via) {
            *self.gateways.entry(gateway.clone()).or_default() += 1;
        }
    }

    fn set_credentials(&mut self, device: &DeviceId, value: Option<&Arc<Stored<Credentials>>>) {
        let before = match value {
            Some(value) => self.credentials.insert(device.clone(), value.clone()),
            None => self.credentials.remove(device),
        };
        for credential in before.iter().flat_map(|before| before.value.iter()) {
            let logins = &mut self.logins[credential.kind as usize];
            if logins.get(&credential.auth_id).is_some_and(|login| login.device == *device) {
                logins.remove(&credential.auth_id);
            }
        }
        for (credential, stored) in value.into_iter().flat_map(|stored| stored.value.iter().map(move |c| (c, stored))) {
            let (version, born) = (stored.version, stored.born);
            let login = Login { device: device.clone(), version, born, credential: credential.clone() };
            self.logins[credential.kind as usize].insert(credential.auth_id.clone(), login);
        }
    }
}
