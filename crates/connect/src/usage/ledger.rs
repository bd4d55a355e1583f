//! Keeps the usage of tenants across restarts.
//!
//! Every [`NOTED_EVERY`] it stores a note for each tenant whose usage changed: the usage and the ends of the tenant's
//! streams. At start it reads the records behind those ends and adds them, so each message in the log counts exactly
//! once after `kill -9`, without extra work per message. A crash loses the connection time since the last note.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_http::Metrics;
use millstream_log::{DerivedTopic, Partition, UpTo};
use millstream_types::{BatchLimits, Header, Offset, RecordView, StateTopic, TenantId, TopicName, WallClock, header};
use millstream_view::{ViewRuntime, Views, ViewsConfig};
use parking_lot::{Condvar, Mutex, RwLock};

use super::note::{Note, NoteChange, NoteView};
use super::{Connected, Current, Usage, Volume, refusals};
use crate::Error;
use crate::adapter::MAPPED;
use crate::registry::{Registry, Tenant};
use crate::tenant_counter::TenantCounter;

/// Interval between notes of the usage.
const NOTED_EVERY: Duration = Duration::from_secs(2);
/// Bytes of records read at once after a restart.
const READ_BYTES: usize = 1 << 20;
/// Prefix of adapter types; records of other writers are not metered.
const ADAPTERS: &[u8] = b"hono-";

/// The state topic of the usage. Without its notes the records of a tenant's period are counted again.
pub(crate) fn derived_topic() -> DerivedTopic {
    DerivedTopic {
        name: topic(),
        source: None,
        loses: "the time that the tenants' devices have been connected in this period, and the volume of those \
                messages of it that retention has removed",
    }
}

fn topic() -> TopicName {
    TopicName::internal(StateTopic::Usage)
}

/// The usage of all tenants.
pub(crate) struct Ledger {
    parts: Arc<LedgerParts>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct LedgerParts {
    views: Arc<Views<NoteView>>,
    registry: Registry,
    wall: Arc<dyn WallClock>,
    refusals: TenantCounter,
    known: Mutex<HashMap<TenantId, Arc<Usage>>>,
    is_stopping: Mutex<bool>,
    changed: Condvar,
}

impl Ledger {
    /// Opens the notes and starts the thread that writes them.
    pub(crate) fn open(
        ground: &ViewRuntime,
        config: &ViewsConfig,
        registry: &Registry,
        metrics: &Metrics,
    ) -> Result<Arc<Self>, Error> {
        let views = Views::open(NoteView, &topic(), config, ground).map_err(Error::Usage)?;
        let parts = Arc::new(LedgerParts {
            views,
            registry: registry.clone(),
            wall: ground.wall.clone(),
            refusals: refusals(metrics),
            known: Mutex::default(),
            is_stopping: Mutex::new(false),
            changed: Condvar::new(),
        });
        let working = parts.clone();
        let thread = std::thread::Builder::new().name("usage".to_owned()).spawn(move || working.run());
        let thread = thread.map_err(|source| Error::Thread(Arc::new(source)))?;
        Ok(Arc::new(Self { parts, thread: Mutex::new(Some(thread)) }))
    }

    /// The usage of `tenant`. The first call for a tenant counts the records in `partitions` and reads the disk.
    pub(crate) fn of(
        &self,
        tenant: &TenantId,
        partitions: Vec<Arc<dyn Partition>>,
    ) -> Result<Arc<Usage>, millstream_log::Error> {
        let parts = &self.parts;
        if let Some(known) = parts.known.lock().get(tenant).cloned() {
            *known.partitions.lock() = partitions;
            return Ok(known);
        }
        let views = &parts.views;
        let note = views.snapshot(views.partition_of(tenant.as_str().as_bytes())).state.get(tenant).cloned();
        let usage = Arc::new(parts.restore(tenant, note, partitions)?);
        // Topics of a tenant are resolved once at a time.
        parts.known.lock().insert(tenant.clone(), usage.clone());
        Ok(usage)
    }

    pub(crate) fn failures(&self) -> Vec<millstream_view::Failure> {
        self.parts.views.failures()
    }

    /// Writes the last notes and ends the thread.
    pub(crate) fn stop(&self) {
        *self.parts.is_stopping.lock() = true;
        self.parts.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that notes what tenants use panicked");
        }
        self.parts.views.stop();
    }
}

impl LedgerParts {
    fn restore(
        &self,
        tenant: &TenantId,
        note: Option<Arc<Note>>,
        partitions: Vec<Arc<dyn Partition>>,
    ) -> Result<Usage, millstream_log::Error> {
        let now_ms = self.wall.now_ms();
        let mut volume = Volume::default();
        let mut connected = Connected { until_ms: now_ms, ..Connected::default() };
        if let Some(note) = &note {
            volume.current.allowance.start_ms = note.volume_start_ms;
            *volume.bytes.get_mut() = note.volume_bytes;
            connected.current.allowance.start_ms = note.connected_start_ms;
            connected.total_ms = note.connected_ms;
        }
        let snapshot = self.registry.snapshot(tenant);
        if let Some(stored) = snapshot.state.tenant(tenant).and_then(|known| known.tenant.as_deref()) {
            let rule = stored.value.resource_limits.data_volume(stored.created_ms);
            if volume.current.renew(stored, rule, now_ms) {
                *volume.bytes.get_mut() = 0;
            }
            for partition in &partitions {
                let from = note.as_ref().map_or(Offset::ZERO, |note| note.end_of(&**partition));
                *volume.bytes.get_mut() += metered(&**partition, from, &stored.value, &volume.current)?;
            }
        }
        Ok(Usage {
            tenant: tenant.clone(),
            volume: RwLock::new(volume),
            connected: Mutex::new(connected),
            rate_limit: Mutex::default(),
            sender_limits: Mutex::default(),
            connects: Mutex::default(),
            partitions: Mutex::new(partitions),
            noted: Mutex::new(note),
            refusals: self.refusals.clone(),
        })
    }

    fn run(&self) {
        let mut is_stopping = self.is_stopping.lock();
        while !*is_stopping {
            parking_lot::MutexGuard::unlocked(&mut is_stopping, || self.note());
            self.changed.wait_for(&mut is_stopping, NOTED_EVERY);
        }
        drop(is_stopping);
        self.note();
    }

    /// Submits a note for each tenant whose usage changed.
    fn note(&self) {
        let all: Vec<Arc<Usage>> = self.known.lock().values().cloned().collect();
        let mut changes: HashMap<_, Vec<NoteChange>> = HashMap::new();
        let mut noted = Vec::new();
        for usage in all {
            let change = self.change(&usage);
            if *usage.noted.lock() == change.1 {
                continue;
            }
            noted.push((usage, change.1.clone()));
            changes.entry(self.views.partition_of(change.0.as_str().as_bytes())).or_default().push(change);
        }
        let answers: Vec<_> =
            changes.into_iter().map(|(partition, changes)| self.views.submit(partition, changes)).collect();
        for answer in answers {
            let answer =
                answer.and_then(|answer| answer.blocking_recv().unwrap_or(Err(millstream_view::Error::Stopped)));
            if let Err(error) = answer {
                tracing::warn!(%error, "what tenants have used cannot be noted; it is tried again");
                return;
            }
        }
        for (usage, note) in noted {
            *usage.noted.lock() = note;
        }
    }

    /// The note of a tenant, or its removal if the tenant was deleted.
    fn change(&self, usage: &Usage) -> NoteChange {
        let tenant = &usage.tenant;
        let snapshot = self.registry.snapshot(tenant);
        let stored = snapshot.state.tenant(tenant).and_then(|known| known.tenant.as_deref());
        NoteChange(tenant.clone(), stored.map(|stored| Arc::new(usage.cut(stored, self.wall.now_ms()))))
    }
}

/// The metered bytes of the devices' records in `partition`, from `from` on and within the period.
fn metered(
    partition: &dyn Partition,
    from: Offset,
    tenant: &Tenant,
    current: &Current,
) -> Result<u64, millstream_log::Error> {
    let offsets = partition.offsets();
    let mut next = from.max(offsets.first);
    let mut bytes = 0;
    while next < offsets.tail {
        let batches = partition.read(next, READ_BYTES, UpTo::Tail)?;
        if batches.is_empty() {
            break;
        }
        for batch in batches {
            next = batch.next_offset();
            let Ok(batch) = batch.inflated(&BatchLimits::default()) else { continue };
            let records = batch.records().filter_map(Result::ok);
            let counts = |record: &RecordView<'_>| {
                record.offset >= from && record.timestamp_ms >= current.allowance.start_ms && is_metered(record)
            };
            let sizes = records.filter(counts).map(|record| tenant.metered(record.value.map_or(0, <[u8]>::len)));
            bytes += sizes.sum::<u64>();
        }
    }
    Ok(bytes)
}

/// True if a device sent the record and the record counts for its message.
fn is_metered(record: &RecordView<'_>) -> bool {
    let is_of_device = |field: &Header<'_>| {
        field.key == header::ORIG_ADAPTER && field.value.is_some_and(|by| by.starts_with(ADAPTERS))
    };
    record.headers().any(|field| is_of_device(&field)) && record.header(MAPPED).is_none()
}
