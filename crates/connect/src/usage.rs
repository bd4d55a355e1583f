//! What a tenant has used of what it may: bytes of messages, time of connections, messages a second.
//!
//! Counted exactly, where the messages pass. A message is counted and appended under one shared lock, so whoever holds
//! that lock alone (the [`ledger`]) sees a number and the ends of the streams that belong together: what is counted
//! later is what lies behind those ends, and is counted again from there after a crash.

mod ledger;
mod note;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_http::{Metrics, Problem};
use millstream_log::Partition;
use millstream_types::TenantId;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::pace::{Pace, Paces};
use crate::period::{Allowance, Rule};
use crate::refusal::{no_time_left, too_fast, volume_used_up};
use crate::registry::{Stored, Tenant, Version};
use crate::sender::Sender;
use crate::tenant_counter::TenantCounter;

pub(crate) use ledger::Ledger;
use note::{End, Note};

/// What one tenant has used.
pub(crate) struct Usage {
    tenant: TenantId,
    volume: RwLock<Volume>,
    connected: Mutex<Connected>,
    pace: Mutex<Pace>,
    paces: Mutex<Paces>,
    /// Of the tenant's streams.
    partitions: Mutex<Vec<Arc<dyn Partition>>>,
    /// What the ledger has of it.
    noted: Mutex<Option<Arc<Note>>>,
    /// Counts what was refused, by limit.
    refusals: TenantCounter,
}

/// A period under the limit that a version of the tenant says.
#[derive(Debug, Default)]
struct Current {
    of: Option<Version>,
    allowance: Allowance,
}

#[derive(Debug, Default)]
struct Volume {
    current: Current,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Connected {
    current: Current,
    /// How many are connected.
    count: u64,
    /// Of all connections together, in the period, up to `until_ms`.
    total_ms: u64,
    until_ms: i64,
}

/// A limit that can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    DataVolume,
    ConnectionDuration,
    DeviceRate,
    TenantRate,
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Self::DataVolume => "data-volume",
            Self::ConnectionDuration => "connection-duration",
            Self::DeviceRate => "device-rate",
            Self::TenantRate => "tenant-rate",
        }
    }

    /// How an attempt to connect has ended, in Hono's words.
    pub(crate) fn exceeded(self) -> &'static str {
        match self {
            Self::DataVolume => "data-volume-exceeded",
            Self::ConnectionDuration => "connection-duration-exceeded",
            Self::DeviceRate | Self::TenantRate => "unknown",
        }
    }
}

/// The moment at which something is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) wall_ms: i64,
    pub(crate) monotonic: Duration,
}

/// Messages that are to be sent: those of one device, together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) messages: u32,
    /// As they are metered.
    pub(crate) bytes: u64,
}

/// Messages that may be sent. Unless it is kept, nothing was used.
pub(crate) struct Admission<'a> {
    volume: RwLockReadGuard<'a, Volume>,
    given_back: u64,
}

impl Admission<'_> {
    /// The log has taken the messages. To be dropped only now.
    pub(crate) fn keep(mut self) {
        self.given_back = 0;
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.given_back > 0 {
            self.volume.bytes.fetch_sub(self.given_back, Ordering::Relaxed);
        }
    }
}

impl Current {
    fn holds(&self, stored: &Stored<Tenant>, now_ms: i64) -> bool {
        self.of == Some(stored.version) && now_ms < self.allowance.end_ms
    }

    /// Goes on to the period of `now_ms`. Whether nothing is used of it yet.
    fn renew(&mut self, stored: &Stored<Tenant>, rule: Rule, now_ms: i64) -> bool {
        let next = rule.at(now_ms);
        let is_later = next.start_ms > self.allowance.start_ms;
        *self = Self { of: Some(stored.version), allowance: next };
        is_later
    }
}

impl Volume {
    fn take(&self, bytes: u64) -> Result<(), u64> {
        let limit = self.current.allowance.max.unwrap_or(u64::MAX);
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map(drop)
    }
}

impl Connected {
    /// Adds the time since it was last looked at.
    fn advance(&mut self, now_ms: i64) {
        let since_ms = self.until_ms.max(self.current.allowance.start_ms);
        self.total_ms += self.count * u64::try_from(now_ms - since_ms).unwrap_or(0);
        self.until_ms = now_ms;
    }

    fn renew(&mut self, stored: &Stored<Tenant>, now_ms: i64) {
        let rule = stored.value.resource_limits.connection_duration(stored.created_ms);
        if !self.current.holds(stored, now_ms) && self.current.renew(stored, rule, now_ms) {
            self.total_ms = 0;
        }
        self.advance(now_ms);
    }
}

impl Usage {
    /// Lets messages pass if the limits of their tenant and device allow it. The log has to get them while the
    /// admission is held.
    pub(crate) fn admit(&self, sender: &Sender<'_>, amount: Amount, now: Moment) -> Result<Admission<'_>, Problem> {
        self.keep_pace(sender, amount.messages, now.monotonic)?;
        let stored = sender.registered;
        let mut volume = self.volume.read();
        while !volume.current.holds(stored, now.wall_ms) {
            drop(volume);
            self.renew(stored, now.wall_ms);
            volume = self.volume.read();
        }
        match volume.take(amount.bytes) {
            Ok(()) => Ok(Admission { volume, given_back: amount.bytes }),
            Err(used) => {
                self.refused(Limit::DataVolume);
                Err(volume_used_up(used, amount.bytes, volume.current.allowance, now.wall_ms))
            }
        }
    }

    fn keep_pace(&self, sender: &Sender<'_>, messages: u32, now: Duration) -> Result<(), Problem> {
        let limits = &sender.registered.value.resource_limits;
        if let Some(limit) = sender.messages_per_second_max() {
            let paced = self.paces.lock().take(sender.id, now, messages, limit);
            paced.map_err(|wait| {
                self.refused(Limit::DeviceRate);
                too_fast("device", sender.id, limit, wait)
            })?;
        }
        if let Some(limit) = limits.messages_per_second_max() {
            let paced = self.pace.lock().take(now, messages, limit);
            paced.map_err(|wait| {
                self.refused(Limit::TenantRate);
                too_fast("tenant", self.tenant.as_str(), limit, wait)
            })?;
        }
        Ok(())
    }

    fn renew(&self, stored: &Stored<Tenant>, now_ms: i64) {
        let mut volume = self.volume.write();
        if volume.current.holds(stored, now_ms) {
            return;
        }
        let rule = stored.value.resource_limits.data_volume(stored.created_ms);
        if volume.current.renew(stored, rule, now_ms) {
            *volume.bytes.get_mut() = 0;
        }
    }

    /// Lets a device connect if its tenant has volume and time left.
    pub(crate) fn connect(&self, stored: &Stored<Tenant>, now_ms: i64) -> Result<(), (Limit, Problem)> {
        self.renew(stored, now_ms);
        {
            let volume = self.volume.read();
            let (used, allowance) = (volume.bytes.load(Ordering::Relaxed), volume.current.allowance);
            if allowance.max.is_some_and(|max| used >= max) {
                self.refused(Limit::DataVolume);
                return Err((Limit::DataVolume, volume_used_up(used, 0, allowance, now_ms)));
            }
        }
        let mut connected = self.connected.lock();
        connected.renew(stored, now_ms);
        let allowance = connected.current.allowance;
        if allowance.max.is_some_and(|max| connected.total_ms >= max) {
            self.refused(Limit::ConnectionDuration);
            return Err((Limit::ConnectionDuration, no_time_left(connected.total_ms, allowance, now_ms)));
        }
        connected.count += 1;
        Ok(())
    }

    /// One of those that [`Usage::connect`] has let in has gone.
    pub(crate) fn disconnect(&self, now_ms: i64) {
        let mut connected = self.connected.lock();
        connected.advance(now_ms);
        connected.count = connected.count.saturating_sub(1);
    }

    /// Counts what lies in `partition` as well, once it is restored; messages to it are admitted like all others.
    pub(crate) fn follow(&self, partition: &Arc<dyn Partition>) {
        let mut partitions = self.partitions.lock();
        if !partitions.iter().any(|known| known.topic().id == partition.topic().id && known.id() == partition.id()) {
            partitions.retain(|known| known.id() != partition.id());
            partitions.push(Arc::clone(partition));
        }
    }

    fn refused(&self, limit: Limit) {
        self.refusals.count(Some(&self.tenant), limit.name());
    }

    /// What is used now, and how far the streams reach of which that is true.
    fn cut(&self, stored: &Stored<Tenant>, now_ms: i64) -> Note {
        let partitions = self.partitions.lock().clone();
        let (start_ms, bytes, ends) = {
            let volume = self.volume.write();
            let ends = partitions.iter().map(|partition| End::of(&**partition)).collect();
            (volume.current.allowance.start_ms, volume.bytes.load(Ordering::Relaxed), ends)
        };
        let mut connected = self.connected.lock();
        if connected.count > 0 {
            connected.renew(stored, now_ms);
        }
        Note {
            volume_start_ms: start_ms,
            volume_bytes: bytes,
            connected_start_ms: connected.current.allowance.start_ms,
            connected_ms: connected.total_ms,
            ends,
        }
    }
}

/// Counts what limits have refused.
fn refusals(metrics: &Metrics) -> TenantCounter {
    let help = "Messages and connections that a limit of their tenant or device has refused.";
    TenantCounter::new(metrics, "millstream_connect_limit_refusals_total", help, "limit", &[])
}

#[cfg(test)]
mod tests;
