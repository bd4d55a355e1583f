//! Registers devices that no application has registered: at the first login by a certificate whose authority wants it, and
//! at the first message through a gateway that may register devices.
//!
//! Applications are told of each by an event, at least once: it is marked in the registration once the log has it, and is
//! made up for a second later, at the device's next login, or at the next start.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::Problem;
use millstream_log::{AckLevel, reply};
use millstream_net::CertificateFields;
use millstream_types::{Header, Record, TenantId, WallClock, header};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::refusal::{not_provisioned, not_taken};
use crate::registry::{
    AuthId, CertificateSecret, CredentialDraft, CredentialType, Device, DeviceId, DeviceProvisioning, Registry,
    RegistryCommand, RegistryFailure, RegistryRefusal, SecretDraft, SecretMaterial, SecretOrigin,
};
use crate::stream::Stream;
use crate::streams::Streams;

/// Media type of the event that tells applications of a new device.
const EVENT_TYPE: &[u8] = b"application/vnd.eclipse-hono-device-provisioning-notification";
const STATUS: &str = "hono_registration_status";
const GATEWAY: &str = "gateway_id";
const TENANT: &str = "tenant_id";

/// The rest before an event that could not be appended is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A device that is to be registered at its first login.
#[derive(Debug)]
pub(crate) struct NewDevice {
    pub(crate) tenant: TenantId,
    pub(crate) auth_id: String,
    pub(crate) provisioning: DeviceProvisioning,
    pub(crate) certificate: CertificateFields,
}

/// Registers devices and tells applications of them.
pub(crate) struct Provisioning {
    registry: Registry,
    streams: Arc<Streams>,
    wall: Arc<dyn WallClock>,
    /// Told when an event could not be appended.
    failed: Notify,
}

impl Provisioning {
    pub(crate) fn new(registry: Registry, streams: Arc<Streams>, wall: Arc<dyn WallClock>) -> Arc<Self> {
        Arc::new(Self { registry, streams, wall, failed: Notify::new() })
    }

    /// Registers the device of a certificate with a credential for it.
    pub(crate) async fn device_of_certificate(&self, new: NewDevice) -> Result<(), Problem> {
        let NewDevice { tenant, auth_id, provisioning, certificate } = new;
        let no_id = |why: String| not_provisioned(&certificate.subject, why);
        let given = provisioning.device_id(&certificate);
        let given =
            given.map_err(|()| no_id("the subject lacks what auto-provisioning-device-id-template names".into()))?;
        let device = match given {
            Some(id) => DeviceId::from_str(&id).map_err(|error| no_id(error.to_string()))?,
            None => DeviceId::random(),
        };
        let auth_id = AuthId::of_certificate(&auth_id).map_err(|error| no_id(error.to_string()))?;
        // Without dates, as Hono stores it: the next certificate of the device logs in, too.
        let secret = SecretDraft {
            origin: SecretOrigin::New(SecretMaterial::Certificate(CertificateSecret {})),
            enabled: None,
            not_before: None,
            not_after: None,
            comment: None,
        };
        let (kind, secrets) = (CredentialType::Certificate, vec![secret]);
        let credential = CredentialDraft { kind, auth_id, enabled: true, ext: Default::default(), secrets };
        let value = Arc::new(Device::provisioned(None, provisioning.is_gateway));
        self.register(&tenant, device, value, Some(credential)).await
    }

    /// Registers a device behind the gateway that sends for it.
    pub(crate) async fn edge_device(&self, tenant: &TenantId, gateway: &str, device: &str) -> Result<(), Problem> {
        let no_id = |error: crate::registry::IdError| not_provisioned(device, error.to_string());
        let via = DeviceId::from_str(gateway).map_err(no_id)?;
        let id = DeviceId::from_str(device).map_err(no_id)?;
        self.register(tenant, id, Arc::new(Device::provisioned(Some(via), false)), None).await
    }

    async fn register(
        &self,
        tenant: &TenantId,
        device: DeviceId,
        value: Arc<Device>,
        credential: Option<CredentialDraft>,
    ) -> Result<(), Problem> {
        let auth_id = credential.as_ref().map(|credential| credential.auth_id.clone());
        let command =
            RegistryCommand::ProvisionDevice { tenant: tenant.clone(), device: device.clone(), value, credential };
        match self.registry.ask(tenant, command).await {
            Ok(_) => {}
            // Another connection of the device was faster.
            Err(RegistryFailure::Refused(refusal))
                if self.is_registered(tenant, &device, auth_id.as_ref(), &refusal) =>
            {
                return Ok(());
            }
            Err(RegistryFailure::Refused(refusal)) => {
                return Err(not_provisioned(device.as_str(), refusal.to_string()));
            }
            Err(failure) => return Err(failure.into()),
        }
        tracing::info!(%tenant, %device, "a device was registered at its first login or message");
        self.tell(tenant, device.as_str()).await;
        Ok(())
    }

    /// True if a registration was refused because it is there already.
    fn is_registered(
        &self,
        tenant: &TenantId,
        device: &DeviceId,
        auth_id: Option<&AuthId>,
        refusal: &RegistryRefusal,
    ) -> bool {
        let snapshot = self.registry.snapshot(tenant);
        let Some(known) = snapshot.state.tenant(tenant) else { return false };
        match (refusal, auth_id) {
            (RegistryRefusal::DeviceExists { .. } | RegistryRefusal::AuthIdTaken { .. }, Some(auth_id)) => {
                known.login(CredentialType::Certificate, auth_id.as_str()).is_some()
            }
            (RegistryRefusal::DeviceExists { .. }, None) => known.devices.contains_key(device),
            _ => false,
        }
    }

    /// True if applications have not been told yet that the device was registered.
    pub(crate) fn is_untold(&self, tenant: &TenantId, device: &str) -> bool {
        let snapshot = self.registry.snapshot(tenant);
        let stored = snapshot.state.tenant(tenant).and_then(|known| known.devices.get(device));
        stored.and_then(|stored| stored.provisioned).is_some_and(|provisioned| !provisioned.is_told)
    }

    /// Tells applications of a new device, and marks that. If it fails, it is made up for later.
    pub(crate) async fn tell(&self, tenant: &TenantId, device: &str) {
        if !self.is_untold(tenant, device) {
            return;
        }
        if let Err(problem) = self.try_tell(tenant, device).await {
            let why = problem.text();
            tracing::warn!(%tenant, device, why, "applications are not told yet of a device that was registered");
            self.failed.notify_one();
        }
    }

    async fn try_tell(&self, tenant: &TenantId, device: &str) -> Result<(), Problem> {
        let streams = self.streams.of(tenant).await.map_err(|error| not_taken(&error))?;
        let registered = self.registry.device(tenant, device);
        let gateway = registered.as_ref().and_then(|registered| registered.via.first());
        let now_ms = self.wall.now_ms();
        let created = now_ms.to_string();
        let own = |key, value| Header { key, value: Some(value) };
        let mut headers = vec![
            own(header::DEVICE_ID, device.as_bytes()),
            own(TENANT, tenant.as_str().as_bytes()),
            own(header::CONTENT_TYPE, EVENT_TYPE),
            own(header::CREATION_TIME, created.as_bytes()),
            own(header::QOS, b"1"),
            own(STATUS, b"NEW"),
        ];
        headers.extend(gateway.map(|gateway| own(GATEWAY, gateway.as_str().as_bytes())));
        let (key, value) = (Some(device.as_bytes()), Some(&b""[..]));
        let record = Record { timestamp_ms: now_ms, key, value, headers: &headers };
        let (done, verdict) = reply();
        let partition = streams.partition(Stream::Event, device);
        partition
            .append(&[record], AckLevel::Synced, done.failing_on_full_disk())
            .map_err(|error| not_taken(&error))?;
        verdict.await.map_err(|error| not_taken(&error))?;
        let Ok(id) = DeviceId::from_str(device) else { return Ok(()) };
        let command = RegistryCommand::MarkTold { tenant: tenant.clone(), device: id };
        self.registry.ask(tenant, command).await.map(drop).map_err(Problem::from)
    }

    /// Makes up for the events that the last process has not sent, and then for those that fail. It does not end.
    pub(crate) async fn keep_telling(self: Arc<Self>) {
        loop {
            self.make_up().await;
            self.failed.notified().await;
            sleep(RETRY_INTERVAL).await;
        }
    }

    async fn make_up(&self) {
        let untold = |snapshot: &crate::registry::RegistrySnapshot| -> Vec<(TenantId, DeviceId)> {
            let devices = snapshot.state.tenants().filter_map(|(id, _)| Some((id, snapshot.state.tenant(id)?)));
            let all =
                devices.flat_map(|(id, known)| known.devices.iter().map(move |(device, stored)| (id, device, stored)));
            let left = all.filter(|(_, _, stored)| stored.provisioned.is_some_and(|provisioned| !provisioned.is_told));
            left.map(|(tenant, device, _)| (tenant.clone(), device.clone())).collect()
        };
        for (tenant, device) in self.registry.snapshots().iter().flat_map(|snapshot| untold(snapshot)) {
            self.tell(&tenant, device.as_str()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use millstream_http::Metrics;
    use millstream_log::{Embedded, Log, LogConfig, SystemFiles, UpTo};
    use millstream_types::{BatchLimits, SystemClock, TopicKind, TopicName, TopicPartition};
    use millstream_view::{Checkpoints, Shards, ViewRuntime};

    use super::*;
    use crate::{Connect, ConnectConfig};

    fn open(dir: &Path) -> (Arc<Embedded>, Connect) {
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone()).unwrap();
        let ground = ViewRuntime {
            log: log.clone() as Arc<dyn Log>,
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(2).unwrap(),
            wall: clock.clone(),
        };
        let config = ConnectConfig::default();
        let connect = Connect::open(&ground, &config, Arc::new(()), Arc::default(), clock, &Metrics::default());
        (log, connect.unwrap())
    }

    /// Number of events in the tenant `default`.
    fn events(log: &Embedded) -> usize {
        let name = TopicName::reserved(TopicKind::Event, &TenantId::default());
        let partitions = (0..4).map(|number| log.partition(&TopicPartition::new(name.clone(), number)).unwrap());
        let count = |partition: Arc<dyn millstream_log::Partition>| {
            let batches = partition.read(partition.offsets().first, 1 << 20, UpTo::Tail).unwrap();
            batches
                .iter()
                .map(|batch| batch.inflated(&BatchLimits::default()).unwrap().records().count())
                .sum::<usize>()
        };
        partitions.map(count).sum()
    }

    #[test]
    fn an_event_that_a_crash_has_kept_from_applications_is_made_up_for_at_the_next_start_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let tenant = TenantId::default();
        let (log, connect) = open(dir.path());
        let command = RegistryCommand::ProvisionDevice {
            tenant: tenant.clone(),
            device: "d".parse().unwrap(),
            value: Arc::new(Device::provisioned(Some("g".parse().unwrap()), false)),
            credential: None,
        };
        runtime.block_on(connect.registry().ask(&tenant, command)).unwrap();
        connect.stop();
        drop(connect);
        log.close().unwrap();
        for _ in 0..2 {
            let (log, connect) = open(dir.path());
            let provisioning = connect.provisioning();
            runtime.block_on(provisioning.make_up());
            assert!(!provisioning.is_untold(&tenant, "d"));
            assert_eq!(events(&log), 1);
            drop(provisioning);
            connect.stop();
            drop(connect);
            log.close().unwrap();
        }
    }
}
