//! The commands of the registry and the owner's decisions on them.

use std::sync::Arc;

use millstream_types::TenantId;
use millstream_view::Draft;
use serde::Serialize;

use super::credential::{Credential, CredentialDraft, Credentials, UnknownSecret};
use super::state::{RegistryChange, TenantState};
use super::stored::{Provisioned, Stored, Version, VersionCondition};
use super::{AuthId, Device, DeviceId, Tenant};

/// The view of the registry. How its state is stored is in `view.rs`.
pub(crate) struct RegistryView;

/// Most devices that one command deletes, so that the command fits into one append.
pub(crate) const DELETED_AT_ONCE_MAX: usize = 4_000;

/// A request for a change.
#[derive(Debug, Clone)]
pub(crate) enum RegistryCommand {
    CreateTenant {
        tenant: TenantId,
        value: Arc<Tenant>,
    },
    ReplaceTenant {
        tenant: TenantId,
        value: Arc<Tenant>,
        condition: VersionCondition,
    },
    /// Deletes the tenant with its devices, or only [`DELETED_AT_ONCE_MAX`] of its devices if there are more.
    DeleteTenant {
        tenant: TenantId,
        condition: VersionCondition,
    },
    CreateDevice {
        tenant: TenantId,
        device: DeviceId,
        value: Arc<Device>,
    },
    /// Creates a device that no application has registered, and a credential for it.
    ProvisionDevice {
        tenant: TenantId,
        device: DeviceId,
        value: Arc<Device>,
        credential: Option<CredentialDraft>,
    },
    /// Marks that applications were told of such a device.
    MarkTold {
        tenant: TenantId,
        device: DeviceId,
    },
    ReplaceDevice {
        tenant: TenantId,
        device: DeviceId,
        value: Arc<Device>,
        condition: VersionCondition,
    },
    DeleteDevice {
        tenant: TenantId,
        device: DeviceId,
        condition: VersionCondition,
    },
    /// Deletes the tenant's devices, [`DELETED_AT_ONCE_MAX`] at most.
    DeleteDevices {
        tenant: TenantId,
    },
    ReplaceCredentials {
        tenant: TenantId,
        device: DeviceId,
        value: Vec<CredentialDraft>,
        condition: VersionCondition,
    },
}

impl RegistryCommand {
    /// Approximate bytes on the heap: those of the resources that it stores.
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Self::CreateTenant { value, .. } | Self::ReplaceTenant { value, .. } => json_bytes(&**value),
            Self::CreateDevice { value, .. } | Self::ReplaceDevice { value, .. } => json_bytes(&**value),
            Self::ProvisionDevice { value, credential, .. } => {
                json_bytes(&**value) + credential.as_ref().map_or(0, CredentialDraft::size_bytes)
            }
            Self::ReplaceCredentials { value, .. } => value.iter().map(CredentialDraft::size_bytes).sum(),
            Self::DeleteTenant { .. }
            | Self::DeleteDevice { .. }
            | Self::DeleteDevices { .. }
            | Self::MarkTold { .. } => 0,
        }
    }
}

fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

/// The result of an accepted command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegistryOutcome {
    /// The resource now has this version.
    Stored(Version),
    Deleted,
    /// More devices remain to be deleted; the caller repeats the command.
    MoreToDelete,
}

/// The reason for which a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegistryRefusal {
    #[error("the tenant {tenant} exists")]
    TenantExists { tenant: TenantId },
    #[error("the device {device} exists")]
    DeviceExists { device: DeviceId },
    #[error("there is no tenant {tenant}")]
    UnknownTenant { tenant: TenantId },
    #[error("there is no device {device} in the tenant {tenant}")]
    UnknownDevice { tenant: TenantId, device: DeviceId },
    #[error("the resource has the version {actual}")]
    OtherVersion { actual: Version },
    #[error("registration-limits.max-devices of the tenant = {limit} is reached")]
    TooManyDevices { limit: usize },
    #[error("{given} credentials; registration-limits.max-credentials-per-device of the tenant = {limit}")]
    TooManyCredentials { given: usize, limit: usize },
    #[error("another device logs in as {auth_id}")]
    AuthIdTaken { auth_id: AuthId },
    #[error("{} has no stored secret {}", .0.auth_id, .0.id)]
    UnknownSecret(UnknownSecret),
}

/// The result of a command.
pub(crate) type RegistryResult = Result<RegistryOutcome, RegistryRefusal>;

pub(crate) fn decide(draft: &mut Draft<'_, RegistryView>, command: RegistryCommand) -> RegistryResult {
    match command {
        RegistryCommand::CreateTenant { tenant, value } => create_tenant(draft, tenant, value),
        RegistryCommand::ReplaceTenant { tenant, value, condition } => {
            let stored = known(draft, &tenant)?.checked(&condition)?.replaced_by(value, draft.now_ms());
            let version = stored.version;
            draft.change(RegistryChange::Tenant(tenant, Some(Arc::new(stored))));
            Ok(RegistryOutcome::Stored(version))
        }
        RegistryCommand::DeleteTenant { tenant, condition } => {
            known(draft, &tenant)?.checked(&condition)?;
            let outcome = delete_devices(draft, &tenant)?;
            if outcome == RegistryOutcome::Deleted {
                draft.change(RegistryChange::Tenant(tenant, None));
            }
            Ok(outcome)
        }
        RegistryCommand::CreateDevice { tenant, device, value } => create_device(draft, tenant, device, value, None),
        RegistryCommand::ProvisionDevice { tenant, device, value, credential } => {
            provision_device(draft, tenant, device, value, credential)
        }
        RegistryCommand::MarkTold { tenant, device } => {
            let known = known(draft, &tenant)?.device(&tenant, &device)?;
            let provisioned = Some(Provisioned { is_told: true });
            let stored = Stored { provisioned, ..Stored::clone(known) };
            let version = stored.version;
            draft.change(RegistryChange::Device(tenant, device, Some(Arc::new(stored))));
            Ok(RegistryOutcome::Stored(version))
        }
        RegistryCommand::ReplaceDevice { tenant, device, value, condition } => {
            let now_ms = draft.now_ms();
            let stored =
                known(draft, &tenant)?.device(&tenant, &device)?.checked(&condition)?.replaced_by(value, now_ms);
            let version = stored.version;
            draft.change(RegistryChange::Device(tenant, device, Some(Arc::new(stored))));
            Ok(RegistryOutcome::Stored(version))
        }
        RegistryCommand::DeleteDevice { tenant, device, condition } => {
            known(draft, &tenant)?.device(&tenant, &device)?.checked(&condition)?;
            delete_device(draft, &tenant, device);
            Ok(RegistryOutcome::Deleted)
        }
        RegistryCommand::DeleteDevices { tenant } => delete_devices(draft, &tenant),
        RegistryCommand::ReplaceCredentials { tenant, device, value, condition } => {
            replace_credentials(draft, tenant, device, value, &condition)
        }
    }
}

fn known<'a>(draft: &'a Draft<'_, RegistryView>, tenant: &TenantId) -> Result<&'a TenantState, RegistryRefusal> {
    draft.state().tenant(tenant).ok_or_else(|| RegistryRefusal::UnknownTenant { tenant: tenant.clone() })
}

impl TenantState {
    fn checked(&self, condition: &VersionCondition) -> Result<&Stored<Tenant>, RegistryRefusal> {
        // `State::tenant` gives only those that have one.
        let tenant = self.tenant.as_deref().expect("a tenant that was found is there");
        tenant.checked(condition)
    }

    fn device(&self, tenant: &TenantId, device: &DeviceId) -> Result<&Arc<Stored<Device>>, RegistryRefusal> {
        let unknown = || RegistryRefusal::UnknownDevice { tenant: tenant.clone(), device: device.clone() };
        self.devices.get(device).ok_or_else(unknown)
    }
}

impl<T> Stored<T> {
    fn checked(&self, condition: &VersionCondition) -> Result<&Self, RegistryRefusal> {
        if condition.holds(self.version) {
            Ok(self)
        } else {
            Err(RegistryRefusal::OtherVersion { actual: self.version })
        }
    }
}

fn create_tenant(draft: &mut Draft<'_, RegistryView>, tenant: TenantId, value: Arc<Tenant>) -> RegistryResult {
    if draft.state().tenant(&tenant).is_some() {
        return Err(RegistryRefusal::TenantExists { tenant });
    }
    let stored = Stored::new(value, draft.now_ms());
    let version = stored.version;
    draft.change(RegistryChange::Tenant(tenant, Some(Arc::new(stored))));
    Ok(RegistryOutcome::Stored(version))
}

fn create_device(
    draft: &mut Draft<'_, RegistryView>,
    tenant: TenantId,
    device: DeviceId,
    value: Arc<Device>,
    provisioned: Option<Provisioned>,
) -> RegistryResult {
    let known = known(draft, &tenant)?;
    if known.devices.contains_key(&device) {
        return Err(RegistryRefusal::DeviceExists { device });
    }
    let limits = known.checked(&VersionCondition::Always)?.value.registration_limits;
    if let Some(limit) = limits.devices_max().filter(|limit| known.devices.len() >= *limit) {
        return Err(RegistryRefusal::TooManyDevices { limit });
    }
    let stored = Stored { provisioned, ..Stored::new(value, draft.now_ms()) };
    let version = stored.version;
    draft.change(RegistryChange::Device(tenant, device, Some(Arc::new(stored))));
    Ok(RegistryOutcome::Stored(version))
}

fn provision_device(
    draft: &mut Draft<'_, RegistryView>,
    tenant: TenantId,
    device: DeviceId,
    value: Arc<Device>,
    credential: Option<CredentialDraft>,
) -> RegistryResult {
    let credentials = match credential {
        None => None,
        // Refused before anything is changed.
        Some(credential) => Some(complete(known(draft, &tenant)?, &device, vec![credential], None)?),
    };
    let (owner, id) = (tenant.clone(), device.clone());
    let outcome = create_device(draft, owner, id, value, Some(Provisioned { is_told: false }))?;
    if let Some(credentials) = credentials {
        let stored = Stored::new(Arc::new(credentials), draft.now_ms());
        draft.change(RegistryChange::Credentials(tenant, device, Some(Arc::new(stored))));
    }
    Ok(outcome)
}

fn delete_device(draft: &mut Draft<'_, RegistryView>, tenant: &TenantId, device: DeviceId) {
    let has_credentials = draft.state().tenant(tenant).is_some_and(|known| known.credentials.contains_key(&device));
    if has_credentials {
        draft.change(RegistryChange::Credentials(tenant.clone(), device.clone(), None));
    }
    draft.change(RegistryChange::Device(tenant.clone(), device, None));
}

fn delete_devices(draft: &mut Draft<'_, RegistryView>, tenant: &TenantId) -> RegistryResult {
    let devices = &known(draft, tenant)?.devices;
    let is_all = devices.len() <= DELETED_AT_ONCE_MAX;
    let doomed: Vec<DeviceId> = devices.keys().take(DELETED_AT_ONCE_MAX).cloned().collect();
    for device in doomed {
        delete_device(draft, tenant, device);
    }
    Ok(if is_all { RegistryOutcome::Deleted } else { RegistryOutcome::MoreToDelete })
}

fn replace_credentials(
    draft: &mut Draft<'_, RegistryView>,
    tenant: TenantId,
    device: DeviceId,
    drafts: Vec<CredentialDraft>,
    condition: &VersionCondition,
) -> RegistryResult {
    let now_ms = draft.now_ms();
    let known = known(draft, &tenant)?;
    let owner = known.device(&tenant, &device)?;
    let before = known.credentials.get(&device);
    let actual = before.map_or(owner.born, |before| before.version);
    if !condition.holds(actual) {
        return Err(RegistryRefusal::OtherVersion { actual });
    }
    let limits = known.checked(&VersionCondition::Always)?.value.registration_limits;
    if let Some(limit) = limits.credentials_max().filter(|limit| drafts.len() > *limit) {
        return Err(RegistryRefusal::TooManyCredentials { given: drafts.len(), limit });
    }
    let value = Arc::new(complete(known, &device, drafts, before.map(|before| &*before.value))?);
    let stored =
        before.map_or_else(|| Stored::new(value.clone(), now_ms), |old| old.replaced_by(value.clone(), now_ms));
    let version = stored.version;
    draft.change(RegistryChange::Credentials(tenant, device, Some(Arc::new(stored))));
    Ok(RegistryOutcome::Stored(version))
}

fn complete(
    known: &TenantState,
    device: &DeviceId,
    drafts: Vec<CredentialDraft>,
    stored: Option<&Credentials>,
) -> Result<Credentials, RegistryRefusal> {
    let complete = |draft: CredentialDraft| {
        if known.login(draft.kind, draft.auth_id.as_str()).is_some_and(|login| login.device != *device) {
            return Err(RegistryRefusal::AuthIdTaken { auth_id: draft.auth_id });
        }
        let is_same = |old: &&Arc<Credential>| old.kind == draft.kind && old.auth_id == draft.auth_id;
        let old = stored.and_then(|stored| stored.iter().find(is_same)).cloned();
        draft.complete(old.as_deref()).map(Arc::new).map_err(RegistryRefusal::UnknownSecret)
    };
    drafts.into_iter().map(complete).collect()
}
