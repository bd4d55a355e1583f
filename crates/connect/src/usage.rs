//! Tracks a tenant's usage against its limits: data volume, connection time, and messages, bytes and connects a second.
//!
//! The counts are exact. A message is counted and appended under one shared lock. The [`ledger`] takes that lock
//! exclusively, so it reads a byte count and the matching ends of the streams. After a crash it counts the records
//! behind those ends again.

mod ledger;
mod note;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_http::{Metrics, Problem};
use millstream_log::Partition;
use millstream_types::TenantId;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::period::{Allowance, Rule};
use crate::rate_limit::{Amount, RateLimit, RateUnit, SenderRateLimits, TooFast};
use crate::refusal::{no_time_left, too_fast, volume_used_up};
use crate::registry::{Stored, Tenant, Version};
use crate::sender::Sender;
use crate::tenant_counter::TenantCounter;

pub(crate) use ledger::{Ledger, derived_topic};
use note::{Note, PartitionEnd};

/// The usage of one tenant.
pub(crate) struct Usage {
    tenant: TenantId,
    volume: RwLock<Volume>,
    connected: Mutex<Connected>,
    rate_limit: Mutex<RateLimit>,
    /// Lock order: this lock is taken before [`Usage::rate_limit`].
    sender_limits: Mutex<SenderRateLimits>,
    /// Connect rates of the tenant and of each device.
    connects: Mutex<(RateLimit, SenderRateLimits)>,
    /// Partitions of the tenant's streams.
    partitions: Mutex<Vec<Arc<dyn Partition>>>,
    /// The last note that the ledger has written.
    noted: Mutex<Option<Arc<Note>>>,
    /// Counts refused messages and connections by limit.
    refusals: TenantCounter,
}

/// The current accounting period under the limits of one version of the tenant.
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
    /// Number of connections that are open.
    count: u64,
    /// Time of all connections in the period, up to `until_ms`.
    total_ms: u64,
    until_ms: i64,
}

/// A limit that can refuse a message or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    DataVolume,
    ConnectionDuration,
    DeviceRate(RateUnit),
    TenantRate(RateUnit),
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Self::DataVolume => "data-volume",
            Self::ConnectionDuration => "connection-duration",
            Self::DeviceRate(RateUnit::Messages) => "device-rate",
            Self::DeviceRate(RateUnit::Bytes) => "device-byte-rate",
            Self::DeviceRate(RateUnit::Connects) => "device-connect-rate",
            Self::TenantRate(RateUnit::Messages) => "tenant-rate",
            Self::TenantRate(RateUnit::Bytes) => "tenant-byte-rate",
            Self::TenantRate(RateUnit::Connects) => "tenant-connect-rate",
        }
    }

    /// Hono's name for the outcome of the refused connection attempt.
    pub(crate) fn exceeded(self) -> &'static str {
        match self {
            Self::DataVolume => "data-volume-exceeded",
            Self::ConnectionDuration => "connection-duration-exceeded",
            Self::DeviceRate(_) | Self::TenantRate(_) => "unknown",
        }
    }
}

/// The time of a message or a connection on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) wall_ms: i64,
    pub(crate) monotonic: Duration,
}

/// The connecting device and its connect rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectingDevice<'a> {
    pub(crate) device: &'a str,
    /// Connects a second that the device may make.
    pub(crate) per_second_max: Option<u64>,
}

/// Permission to append messages. Dropping it without [`Admission::keep`] returns the used bytes.
pub(crate) struct Admission<'a> {
    volume: RwLockReadGuard<'a, Volume>,
    given_back: u64,
}

impl Admission<'_> {
    /// Keeps the used bytes once the log has taken the messages.
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

    /// Moves to the period of `now_ms`; true if that period is a new one without usage.
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
    /// Adds the connection time since the last call.
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
    /// Admits messages within the limits of their tenant and device.
    /// The caller appends them while it holds the admission.
    pub(crate) fn admit(&self, sender: &Sender<'_>, amount: Amount, now: Moment) -> Result<Admission<'_>, Problem> {
        self.check_message_rate(sender, amount, now.monotonic)?;
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

    fn check_message_rate(&self, sender: &Sender<'_>, amount: Amount, now: Duration) -> Result<(), Problem> {
        let (of_device, of_all) = (sender.rates(), sender.registered.value.resource_limits.rates());
        let all = || if of_all.is_unlimited() { Ok(()) } else { self.rate_limit.lock().take(now, amount, of_all) };
        let (limit, problem) = if of_device.is_unlimited() {
            let Err(exceeded) = all() else { return Ok(()) };
            self.tenant_too_fast(exceeded)
        } else {
            let mut sender_limits = self.sender_limits.lock();
            let own = sender_limits.of(sender.id, now);
            let before = *own;
            match own.take(now, amount, of_device) {
                Err(exceeded) => device_too_fast(sender.id, exceeded),
                Ok(()) => {
                    let Err(exceeded) = all() else { return Ok(()) };
                    // A message that the tenant's rate refuses does not use the device's own rate.
                    *own = before;
                    self.tenant_too_fast(exceeded)
                }
            }
        };
        self.refused(limit);
        Err(problem)
    }

    fn check_connect_rate(
        &self,
        stored: &Stored<Tenant>,
        caller: ConnectingDevice<'_>,
        now: Duration,
    ) -> Result<(), (Limit, Problem)> {
        let of_all = stored.value.resource_limits.connects_per_second_max();
        if of_all.is_none() && caller.per_second_max.is_none() {
            return Ok(());
        }
        let mut connects = self.connects.lock();
        let (all, sender_limits) = &mut *connects;
        let before = *all;
        all.take_connect(now, of_all).map_err(|exceeded| self.tenant_too_fast(exceeded))?;
        if caller.per_second_max.is_some() {
            let own = sender_limits.of(caller.device, now).take_connect(now, caller.per_second_max);
            own.map_err(|exceeded| {
                *all = before;
                device_too_fast(caller.device, exceeded)
            })?;
        }
        Ok(())
    }

    fn tenant_too_fast(&self, exceeded: TooFast) -> (Limit, Problem) {
        (Limit::TenantRate(exceeded.unit), too_fast("tenant", self.tenant.as_str(), exceeded))
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

    /// Admits a connection if the tenant has volume and time left and the connect rates allow it.
    pub(crate) fn connect(
        &self,
        stored: &Stored<Tenant>,
        caller: ConnectingDevice<'_>,
        now: Moment,
    ) -> Result<(), (Limit, Problem)> {
        let now_ms = now.wall_ms;
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
        self.check_connect_rate(stored, caller, now.monotonic).inspect_err(|(limit, _)| self.refused(*limit))?;
        connected.count += 1;
        Ok(())
    }

    /// Ends a connection that [`Usage::connect`] has admitted.
    pub(crate) fn disconnect(&self, now_ms: i64) {
        let mut connected = self.connected.lock();
        connected.advance(now_ms);
        connected.count = connected.count.saturating_sub(1);
    }

    /// Includes `partition` in the notes, so that its records are counted again after a crash.
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

    /// Reads the usage and the matching ends of the streams.
    fn cut(&self, stored: &Stored<Tenant>, now_ms: i64) -> Note {
        let partitions = self.partitions.lock().clone();
        let (start_ms, bytes, ends) = {
            let volume = self.volume.write();
            let ends = partitions.iter().map(|partition| PartitionEnd::of(&**partition)).collect();
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

fn device_too_fast(device: &str, exceeded: TooFast) -> (Limit, Problem) {
    (Limit::DeviceRate(exceeded.unit), too_fast("device", device, exceeded))
}

/// The counter of messages and connections that limits refuse.
fn refusals(metrics: &Metrics) -> TenantCounter {
    let help = "Messages and connections that a limit of their tenant or device has refused.";
    TenantCounter::new(metrics, "millstream_connect_limit_refusals_total", help, "limit", &[])
}

#[cfg(test)]
mod tests;
