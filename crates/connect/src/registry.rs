//! The device registry: tenants, their devices and the devices' credentials.
//!
//! State is a view of the log; reads use the newest durable snapshot and never wait, so a change that was answered is
//! seen by the next login and the next message.

mod access;
mod certificate;
mod command;
mod command_endpoint;
mod credential;
mod defaults;
mod device;
mod ext_rules;
mod id;
mod limits;
mod mapping;
mod object;
mod public_key;
mod sampling;
mod state;
mod stored;
mod template;
mod tenant;
mod trusted_ca;
mod view;

use std::sync::Arc;

use millstream_types::{Offset, StateTopic, TenantId, TopicName};
use millstream_view::{Snapshot, ViewRuntime, Views, ViewsConfig};
use tokio::sync::Semaphore;

pub(crate) use access::{
    Act, check_device, check_tenant, has_broker, is_declared, may, needs_consumer, takes_decoded_payload,
};
pub(crate) use certificate::read_certificate;
pub(crate) use command::{RegistryCommand, RegistryOutcome, RegistryRefusal};
pub(crate) use command_endpoint::{CommandEndpoint, DownlinkValues};
pub(crate) use credential::{
    CertificateSecret, Credential, CredentialDraft, CredentialType, GivenCredential, GivenSecret, Secret, SecretDraft,
    SecretMaterial, SecretOrigin, SharedKey, UnknownSecret,
};
pub use defaults::Defaults;
pub use device::Device;
pub use ext_rules::ExtRules;
pub use id::{AuthId, DeviceId, ID_MAX_CHARS, IdError};
pub(crate) use limits::{check_limits, check_rates};
pub(crate) use mapping::{Mapping, OnUnknown, PrivateRoute};
pub(crate) use public_key::PublicKey;
pub(crate) use state::{Login, Table, TenantState};
pub(crate) use stored::{Stored, Version, VersionCondition};
pub(crate) use tenant::Adapter;
pub use tenant::Tenant;
use trusted_ca::TrustedCa;
pub(crate) use trusted_ca::{Anchor, DeviceProvisioning};
use view::RegistryView;

/// Commands decided in one append: each may carry a body of [`crate::management::BODY_MAX_BYTES`], and all together
/// must stay well below the log's largest append.
const BATCH_MAX_COMMANDS: usize = 64;

/// All tenants, devices and credentials. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    views: Arc<Views<RegistryView>>,
    /// Deletions of many devices go one after the other: their appends are large.
    deletions: Arc<Semaphore>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.views.fmt(f)
    }
}

/// The state of an owner at one moment.
pub(crate) type RegistrySnapshot = Snapshot<RegistryView>;

/// The reason for which a change of the registry failed.
#[derive(Debug)]
pub(crate) enum RegistryFailure {
    /// A rule of the registry forbids the change.
    Refused(RegistryRefusal),
    /// The owner did not answer the request.
    View(millstream_view::Error),
}

impl Registry {
    /// Opens the registry and rebuilds its state. One without any tenant gets the tenant `default`.
    pub(crate) fn open(ground: &ViewRuntime, config: ViewsConfig) -> Result<Self, millstream_view::Error> {
        let config = ViewsConfig { batch_max_commands: BATCH_MAX_COMMANDS, ..config };
        let views = Views::open(RegistryView, &TopicName::internal(StateTopic::Registry), &config, ground)?;
        let registry = Self { views, deletions: Arc::new(Semaphore::new(1)) };
        if registry.counts().0 == 0 {
            let command = RegistryCommand::CreateTenant { tenant: TenantId::default(), value: Arc::default() };
            let partition = registry.views.partition_of(TenantId::DEFAULT.as_bytes());
            let answer = registry.views.submit(partition, command)?.blocking_recv();
            // Nobody else is there yet who could have created it before.
            let _ = answer.unwrap_or(Err(millstream_view::Error::Stopped))?;
        }
        Ok(registry)
    }

    /// Returns a registered device; `None` if the device or its tenant is unknown.
    pub fn device(&self, tenant: &TenantId, device: &str) -> Option<Arc<Device>> {
        let snapshot = self.snapshot(tenant);
        Some(snapshot.state.tenant(tenant)?.devices.get(device)?.value.clone())
    }

    /// Returns a registered tenant; `None` if the tenant is unknown.
    pub fn tenant(&self, tenant: &TenantId) -> Option<Arc<Tenant>> {
        let snapshot = self.snapshot(tenant);
        Some(snapshot.state.tenant(tenant)?.tenant.as_ref()?.value.clone())
    }

    /// Returns the value of `member` in a tenant's `ext`; `None` if the member is absent or the tenant is unknown.
    pub fn tenant_ext(&self, tenant: &TenantId, member: &str) -> Option<serde_json::Value> {
        let snapshot = self.snapshot(tenant);
        snapshot.state.tenant(tenant)?.tenant.as_ref()?.value.ext.get(member).cloned()
    }

    /// Counts the registered tenants and devices.
    pub fn counts(&self) -> (usize, usize) {
        let mut counts = (0, 0);
        for snapshot in self.views.snapshots() {
            for (tenant, _) in snapshot.state.tenants() {
                counts.0 += 1;
                counts.1 += snapshot.state.tenant(tenant).map_or(0, |known| known.devices.len());
            }
        }
        counts
    }

    /// All tenants, in no order.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let ids = |snapshot: Arc<RegistrySnapshot>| -> Vec<TenantId> {
            snapshot.state.tenants().map(|(tenant, _)| tenant.clone()).collect()
        };
        self.views.snapshots().into_iter().flat_map(ids).collect()
    }

    /// The state that `tenant` is part of, as it is now.
    pub(crate) fn snapshot(&self, tenant: &TenantId) -> Arc<RegistrySnapshot> {
        self.views.snapshot(self.views.partition_of(tenant.as_str().as_bytes()))
    }

    /// The states of all owners, as they are now.
    pub(crate) fn snapshots(&self) -> Vec<Arc<RegistrySnapshot>> {
        self.views.snapshots()
    }

    /// The next offset of each owner's state. The result differs whenever something has changed.
    pub(crate) fn applied(&self) -> Vec<Offset> {
        self.views.snapshots().iter().map(|snapshot| snapshot.next).collect()
    }

    /// Names a unique property of `value` that a tenant other than `tenant` already has. Two tenants created at the
    /// same time may both pass, because they may belong to different owners.
    pub(crate) fn clash(&self, tenant: &TenantId, value: &Tenant) -> Option<String> {
        let subjects: Vec<String> = value.trusted_ca.iter().filter_map(TrustedCa::subject).collect();
        let mut others = self.trusting(&subjects);
        others.extend(value.alias.as_ref().and_then(|alias| self.of_alias(alias)));
        let mut others = others.iter().filter(|other| *other != tenant).filter_map(|other| self.tenant(other));
        others.find_map(|other| value.clash(&other))
    }

    /// True if a tenant has a trust anchor, so that its devices may log in by certificate.
    pub(crate) fn has_anchors(&self) -> bool {
        self.views.snapshots().iter().any(|snapshot| snapshot.state.has_anchors())
    }

    /// Tenants with a trust anchor that has one of these subjects.
    pub(crate) fn trusting(&self, subjects: &[String]) -> Vec<TenantId> {
        let mut found: Vec<TenantId> = Vec::new();
        for snapshot in self.views.snapshots() {
            for tenant in subjects.iter().flat_map(|subject| snapshot.state.trusting(subject)) {
                if !found.contains(tenant) {
                    found.push(tenant.clone());
                }
            }
        }
        found
    }

    /// The tenant with this id or alias.
    pub(crate) fn called(&self, name: &str) -> Option<TenantId> {
        let by_id = TenantId::new(name).ok().filter(|tenant| self.tenant(tenant).is_some());
        by_id.or_else(|| self.of_alias(name))
    }

    fn of_alias(&self, alias: &str) -> Option<TenantId> {
        self.views.snapshots().iter().find_map(|snapshot| snapshot.state.of_alias(alias).cloned())
    }

    /// Hands a change to its tenant's owner and waits until it is durable.
    pub(crate) async fn ask(
        &self,
        tenant: &TenantId,
        command: RegistryCommand,
    ) -> Result<RegistryOutcome, RegistryFailure> {
        let partition = self.views.partition_of(tenant.as_str().as_bytes());
        self.views.ask(partition, command).await.map_err(RegistryFailure::View)?.map_err(RegistryFailure::Refused)
    }

    /// Repeats [`Registry::ask`] until everything that `command` names is deleted.
    pub(crate) async fn delete_all(&self, tenant: &TenantId, command: RegistryCommand) -> Result<(), RegistryFailure> {
        let turn = self.deletions.acquire().await;
        while self.ask(tenant, command.clone()).await? == RegistryOutcome::MoreToDelete {}
        drop(turn);
        Ok(())
    }

    /// The failures of the registry's partitions.
    pub(crate) fn failures(&self) -> Vec<millstream_view::Failure> {
        self.views.failures()
    }

    /// Takes no more changes and answers those taken.
    pub(crate) fn stop(&self) {
        self.views.stop();
    }
}
