//! The time of each device's last message.
//!
//! A message only stamps its device in memory. Every [`NOTED_EVERY`], and when the server stops, a thread stores the
//! new stamps in the state topic `_millstream_last_seen`. After `kill -9` a stamp is at most that much too old.
//! Stamps of devices that are no longer registered are removed, so there are never more stamps than devices.
//!
//! | key | value |
//! | --- | --- |
//! | tenant, 0, device | version byte; milliseconds since 1970-01-01T00:00:00Z (8, big endian) |

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_types::{PartitionId, StateTopic, TenantId, TopicName, partition_of_key};
use millstream_view::{DecodeError, Draft, Encoded, Failure, InState, View, ViewRuntime, Views, ViewsConfig};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::Error;
use crate::registry::Registry;

/// Interval between notes of the stamps.
const NOTED_EVERY: Duration = Duration::from_secs(60);
/// Stamps in one command to the owner of the notes.
const STAMPS_AT_ONCE: usize = 1_000;
/// Parts that a tenant's stamps are locked in.
const SHARDS: u32 = 16;
/// Version of the notes; a later one is refused.
const VERSION: u8 = StateTopic::LastSeen.version();

/// The stamps of all tenants.
pub(crate) struct LastSeen {
    parts: Arc<LastSeenParts>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The stamps of one tenant's devices.
pub(crate) struct Stamps {
    shards: Vec<RwLock<HashMap<Box<str>, AtomicI64, foldhash::fast::RandomState>>>,
}

struct LastSeenParts {
    views: Arc<Views<LastSeenView>>,
    registry: Registry,
    known: Mutex<HashMap<TenantId, Arc<Stamps>>>,
    is_stopping: Mutex<bool>,
    changed: Condvar,
}

impl Stamps {
    fn new(noted: Option<&Noted>) -> Self {
        let stamps = Self { shards: (0..SHARDS).map(|_| RwLock::default()).collect() };
        for (device, at_ms) in noted.into_iter().flatten() {
            stamps.stamp(device, *at_ms);
        }
        stamps
    }

    fn shard(&self, device: &str) -> &RwLock<HashMap<Box<str>, AtomicI64, foldhash::fast::RandomState>> {
        &self.shards[partition_of_key(device.as_bytes(), SHARDS).0 as usize]
    }

    /// Stamps a registered device that has sent a message.
    pub(crate) fn stamp(&self, device: &str, now_ms: i64) {
        let shard = self.shard(device);
        let known = shard.read().get(device).map(|at_ms| at_ms.store(now_ms, Ordering::Relaxed));
        if known.is_none() {
            shard.write().insert(device.into(), AtomicI64::new(now_ms));
        }
    }

    fn at_ms(&self, device: &str) -> Option<i64> {
        self.shard(device).read().get(device).map(|at_ms| at_ms.load(Ordering::Relaxed))
    }

    fn all(&self) -> Vec<(Box<str>, i64)> {
        let of_shard = |shard: &RwLock<HashMap<Box<str>, AtomicI64, _>>| -> Vec<_> {
            shard.read().iter().map(|(device, at_ms)| (device.clone(), at_ms.load(Ordering::Relaxed))).collect()
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    fn forget(&self, device: &str) {
        self.shard(device).write().remove(device);
    }
}

impl LastSeen {
    /// Opens the notes and starts the thread that writes them. Blocks.
    pub(crate) fn open(ground: &ViewRuntime, config: &ViewsConfig, registry: &Registry) -> Result<Arc<Self>, Error> {
        let topic = TopicName::internal(StateTopic::LastSeen);
        let views = Views::open(LastSeenView, &topic, config, ground).map_err(Error::Usage)?;
        let (known, is_stopping, changed) = (Mutex::default(), Mutex::new(false), Condvar::new());
        let parts = Arc::new(LastSeenParts { views, registry: registry.clone(), known, is_stopping, changed });
        let working = parts.clone();
        let thread = std::thread::Builder::new().name("last-seen".to_owned()).spawn(move || working.run());
        let thread = thread.map_err(|source| Error::Thread(Arc::new(source)))?;
        Ok(Arc::new(Self { parts, thread: Mutex::new(Some(thread)) }))
    }

    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<Stamps> {
        let views = &self.parts.views;
        let mut known = self.parts.known.lock();
        let stamps = known
            .entry(tenant.clone())
            .or_insert_with(|| Arc::new(Stamps::new(views.snapshot(partition_of(views, tenant)).state.get(tenant))));
        Arc::clone(stamps)
    }

    /// The time of the device's last message since its registration, in milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn at_ms(&self, tenant: &TenantId, device: &str, registered_ms: i64) -> Option<i64> {
        self.of(tenant).at_ms(device).filter(|at_ms| *at_ms >= registered_ms)
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.parts.views.failures()
    }

    /// Writes the last notes and ends the thread.
    pub(crate) fn stop(&self) {
        *self.parts.is_stopping.lock() = true;
        self.parts.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that notes when devices have last sent panicked");
        }
        self.parts.views.stop();
    }
}

fn partition_of(views: &Views<LastSeenView>, tenant: &TenantId) -> PartitionId {
    views.partition_of(tenant.as_str().as_bytes())
}

impl LastSeenParts {
    fn run(&self) {
        let mut is_stopping = self.is_stopping.lock();
        while !*is_stopping {
            if self.changed.wait_for(&mut is_stopping, NOTED_EVERY).timed_out() {
                parking_lot::MutexGuard::unlocked(&mut is_stopping, || self.note());
            }
        }
        drop(is_stopping);
        self.note();
    }

    /// Notes the stamps that have changed.
    fn note(&self) {
        let all: Vec<_> = self.known.lock().iter().map(|(tenant, stamps)| (tenant.clone(), stamps.clone())).collect();
        for (tenant, stamps) in all {
            let partition = partition_of(&self.views, &tenant);
            for changes in self.changes(&tenant, &stamps).chunks(STAMPS_AT_ONCE) {
                let answer = self.views.submit(partition, changes.to_vec());
                let answer =
                    answer.and_then(|answer| answer.blocking_recv().unwrap_or(Err(millstream_view::Error::Stopped)));
                if let Err(error) = answer {
                    tracing::warn!(%error, "it cannot be noted when devices have last sent; it is tried again");
                    return;
                }
            }
        }
    }

    /// The stamps of a tenant that are not noted as they are, and the notes of devices that are gone.
    fn changes(&self, tenant: &TenantId, stamps: &Stamps) -> Vec<LastSeenChange> {
        let registry = self.registry.snapshot(tenant);
        let devices = registry.state.tenant(tenant).map(|known| &known.devices);
        let is_registered = |device: &str| devices.is_some_and(|devices| devices.contains_key(device));
        let views = self.views.snapshot(partition_of(&self.views, tenant));
        let noted = views.state.get(tenant);
        let change = |device: Arc<str>, at_ms| LastSeenChange { tenant: tenant.clone(), device, at_ms };
        let mut changes = Vec::new();
        for (device, at_ms) in stamps.all() {
            if !is_registered(&device) {
                stamps.forget(&device);
            } else if noted.and_then(|noted| noted.get(&*device)) != Some(&at_ms) {
                changes.push(change(device.into(), Some(at_ms)));
            }
        }
        let gone = noted.into_iter().flatten().map(|(device, _)| device).filter(|device| !is_registered(device));
        changes.extend(gone.map(|device| change(Arc::clone(device), None)));
        changes
    }
}

type Noted = imbl::HashMap<Arc<str>, i64>;

struct LastSeenView;

/// When a device has last sent; `None` removes the note.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LastSeenChange {
    tenant: TenantId,
    device: Arc<str>,
    at_ms: Option<i64>,
}

impl View for LastSeenView {
    type State = imbl::HashMap<TenantId, Noted>;
    type Storage = InState;
    type Change = LastSeenChange;
    type Command = Vec<LastSeenChange>;
    type Answer = ();
    const NAME: &'static str = "last seen";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: Vec<LastSeenChange>) {
        command.into_iter().for_each(|change| draft.change(change));
    }

    fn owned_bytes(command: &Vec<LastSeenChange>) -> usize {
        command.iter().map(|change| size_of::<LastSeenChange>() + change.device.len()).sum()
    }

    fn apply(state: &mut Self::State, LastSeenChange { tenant, device, at_ms }: &LastSeenChange) {
        match at_ms {
            Some(at_ms) => drop(state.entry(tenant.clone()).or_default().insert(Arc::clone(device), *at_ms)),
            None => {
                let Some(devices) = state.get_mut(tenant) else { return };
                devices.remove(device);
                if devices.is_empty() {
                    state.remove(tenant);
                }
            }
        }
    }

    fn encode(change: &LastSeenChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        for part in [change.tenant.as_str(), "\0", &change.device] {
            key.extend_from_slice(part.as_bytes());
        }
        let Some(at_ms) = change.at_ms else { return Encoded::Tombstone };
        value.push(VERSION);
        value.extend_from_slice(&at_ms.to_be_bytes());
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<LastSeenChange, DecodeError> {
        let names = std::str::from_utf8(key).ok().and_then(|names| names.split_once('\0'));
        let names = names.and_then(|(tenant, device)| Some((TenantId::new(tenant).ok()?, Arc::from(device))));
        let (tenant, device) = names.ok_or_else(|| DecodeError::new("a key that names no device of a tenant"))?;
        let at_ms = match value.map(|value| (value.first(), value.get(1..).and_then(|rest| rest.try_into().ok()))) {
            None => None,
            Some((Some(&VERSION), Some(at_ms))) => Some(i64::from_be_bytes(at_ms)),
            Some((version, _)) => {
                let version = version.copied().unwrap_or_default();
                let what = format!("when a device has last sent: version {version}, known is {VERSION} with 8 bytes");
                return Err(DecodeError::new(what));
            }
        };
        Ok(LastSeenChange { tenant, device, at_ms })
    }
}

#[cfg(test)]
mod tests {
    use millstream_log::{Embedded, LogConfig, SystemFiles};
    use millstream_types::SystemClock;
    use millstream_view::{Checkpoints, Shards};

    use super::*;
    use crate::registry::{Device, RegistryCommand, VersionCondition};

    #[tokio::test]
    async fn only_changed_stamps_are_noted_and_those_of_deleted_devices_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone()).unwrap();
        let checkpoints = Checkpoints::open(&dir.path().join("views")).unwrap();
        let ground = ViewRuntime { log: log.clone(), checkpoints, shards: Shards::start(1).unwrap(), wall: clock };
        let (views, tenant) = (ViewsConfig { partitions: 4, ..ViewsConfig::default() }, TenantId::default());
        tokio::task::spawn_blocking(move || {
            let registry = Registry::open(&ground, views.clone()).unwrap();
            let last_seen = LastSeen::open(&ground, &views, &registry).unwrap();
            let handle = tokio::runtime::Handle::current();
            let ask = |command| handle.block_on(registry.ask(&tenant, command)).unwrap();
            for device in ["a", "b"] {
                let device = device.parse().unwrap();
                ask(RegistryCommand::CreateDevice {
                    tenant: tenant.clone(),
                    device,
                    value: Arc::new(Device::default()),
                });
            }
            let (stamps, parts) = (last_seen.of(&tenant), &last_seen.parts);
            let noted = || -> Vec<_> {
                let state = &parts.views.snapshot(partition_of(&parts.views, &tenant)).state;
                let mut noted: Vec<_> = state.get(&tenant).cloned().unwrap_or_default().into_iter().collect();
                noted.sort_unstable();
                noted
            };
            stamps.stamp("a", 1);
            stamps.stamp("b", 2);
            parts.note();
            assert_eq!(noted(), [("a".into(), 1), ("b".into(), 2)]);
            assert_eq!(parts.changes(&tenant, &stamps), []);
            stamps.stamp("b", 3);
            let change = |device: &str, at_ms| LastSeenChange { tenant: tenant.clone(), device: device.into(), at_ms };
            assert_eq!(parts.changes(&tenant, &stamps), [change("b", Some(3))]);
            let (device, condition) = ("a".parse().unwrap(), VersionCondition::Always);
            ask(RegistryCommand::DeleteDevice { tenant: tenant.clone(), device, condition });
            parts.note();
            assert_eq!((noted(), stamps.all()), (vec![("b".into(), 3)], vec![("b".into(), 3)]));
            last_seen.stop();
            registry.stop();
        })
        .await
        .unwrap();
        log.close().unwrap();
    }

    #[test]
    fn notes_of_version_1_are_read_and_written_as_they_lie() {
        let stored = [1, 0, 0, 1, 0x8B, 0xCF, 0xE5, 0x68, 0];
        for (value, encoded) in [(Some(&stored[..]), Encoded::Value), (None, Encoded::Tombstone)] {
            let change = LastSeenView::decode(b"acme\0d:1", value).unwrap();
            assert_eq!((change.tenant.as_str(), &*change.device), ("acme", "d:1"));
            assert_eq!(change.at_ms, value.map(|_| 1_700_000_000_000));
            let (mut key, mut written) = (Vec::new(), Vec::new());
            assert_eq!(LastSeenView::encode(&change, &mut key, &mut written), encoded);
            assert_eq!((key.as_slice(), written.as_slice()), (&b"acme\0d:1"[..], value.unwrap_or_default()));
        }
        for (key, value, told) in [
            (&b"acme\0d"[..], &[2, 0, 0, 0, 0, 0, 0, 0, 0][..], "version 2, known is 1"),
            (b"acme\0d", &stored[..8], "with 8 bytes"),
            (b"acme\0d", &[], "version 0"),
            (b"acme", &stored, "no device"),
            (b"a b\0d", &stored, "no device"),
        ] {
            let refusal = LastSeenView::decode(key, Some(value)).unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
