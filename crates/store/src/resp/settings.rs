//! The settings of a tenant's connections that CONFIG SET changes here; the host has the others.

use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering::Relaxed};

use crate::resp::events::EventClasses;
use crate::resp::number::{integer, unsigned};

/// Longest argument of a request at first, as in Redis.
const BULK_MAX_BYTES: u64 = 512 << 20;
/// Least value that `proto-max-bulk-len` takes, in bytes.
const BULK_LEAST_BYTES: u64 = 1 << 20;

/// Settings of the protocol. They are read for every batch, so each is an atomic number.
#[derive(Debug)]
pub(crate) struct ProtocolSettings {
    bulk_limit_bytes: u64,
    bulk_max_bytes: AtomicU64,
    /// Microseconds; no command is slow if it is negative.
    slower_than_us: AtomicI64,
    slow_log_length: AtomicU64,
    latency_threshold_ms: AtomicU64,
    /// With 0 connections stay open.
    idle_timeout_s: AtomicU64,
    classes: AtomicU16,
}

impl ProtocolSettings {
    /// The settings at the start; an argument of a request has at most `bulk_limit_bytes` whatever is set.
    pub(crate) fn bounded(bulk_limit_bytes: u64) -> Self {
        Self {
            bulk_limit_bytes,
            bulk_max_bytes: AtomicU64::new(BULK_MAX_BYTES),
            slower_than_us: AtomicI64::new(10_000),
            slow_log_length: AtomicU64::new(128),
            latency_threshold_ms: AtomicU64::new(0),
            idle_timeout_s: AtomicU64::new(0),
            classes: AtomicU16::new(0),
        }
    }
}

/// A setting that CONFIG SET changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    BulkMaxBytes,
    SlowerThan,
    SlowLogLength,
    LatencyThreshold,
    IdleTimeout,
    Classes,
}

impl Setting {
    pub(crate) const ALL: [(&str, Self); 6] = [
        ("latency-monitor-threshold", Self::LatencyThreshold),
        ("notify-keyspace-events", Self::Classes),
        ("proto-max-bulk-len", Self::BulkMaxBytes),
        ("slowlog-log-slower-than", Self::SlowerThan),
        ("slowlog-max-len", Self::SlowLogLength),
        ("timeout", Self::IdleTimeout),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, setting)| *setting)
    }
}

/// A value that a setting has been checked to take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettingChange(Setting, i64);

impl ProtocolSettings {
    /// The bound of the longest argument, whatever is set.
    pub(crate) fn bulk_limit_bytes(&self) -> u64 {
        self.bulk_limit_bytes
    }

    /// Longest argument of a request.
    pub(crate) fn bulk_max_bytes(&self) -> u64 {
        self.bulk_max_bytes.load(Relaxed).min(self.bulk_limit_bytes)
    }

    /// Microseconds from which on a command is slow; `None` if none is.
    pub(crate) fn slower_than_us(&self) -> Option<u64> {
        u64::try_from(self.slower_than_us.load(Relaxed)).ok()
    }

    /// Milliseconds from which on a command is an event of the latency monitor; `None` if none is.
    pub(crate) fn latency_threshold_ms(&self) -> Option<u64> {
        Some(self.latency_threshold_ms.load(Relaxed)).filter(|threshold_ms| *threshold_ms > 0)
    }

    /// Milliseconds after which a connection without requests is closed; `None` if it stays open.
    pub(crate) fn idle_timeout_ms(&self) -> Option<i64> {
        let timeout_s = self.idle_timeout_s.load(Relaxed).cast_signed();
        (timeout_s > 0).then(|| timeout_s * 1_000)
    }

    pub(crate) fn slow_log_length(&self) -> usize {
        usize::try_from(self.slow_log_length.load(Relaxed)).unwrap_or(usize::MAX)
    }

    pub(crate) fn classes(&self) -> EventClasses {
        EventClasses::from_bits(self.classes.load(Relaxed))
    }

    pub(crate) fn get(&self, setting: Setting) -> String {
        match setting {
            Setting::BulkMaxBytes => self.bulk_max_bytes().to_string(),
            Setting::SlowerThan => self.slower_than_us.load(Relaxed).to_string(),
            Setting::SlowLogLength => self.slow_log_length.load(Relaxed).to_string(),
            Setting::LatencyThreshold => self.latency_threshold_ms.load(Relaxed).to_string(),
            Setting::IdleTimeout => self.idle_timeout_s.load(Relaxed).to_string(),
            Setting::Classes => self.classes().to_string(),
        }
    }

    /// Checks a value without changing anything.
    pub(crate) fn check(setting: Setting, value: &[u8]) -> Result<SettingChange, &'static str> {
        let number = match setting {
            Setting::Classes => EventClasses::parse(value)
                .map(|classes| i64::from(classes.bits()))
                .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?,
            Setting::SlowerThan => integer(value).ok_or("argument couldn't be parsed into an integer")?,
            Setting::BulkMaxBytes => {
                let bytes = bytes(value).ok_or("argument must be a memory value")?;
                if !(BULK_LEAST_BYTES..=i64::MAX.cast_unsigned()).contains(&bytes) {
                    return Err("argument must be between 1048576 and 9223372036854775807 inclusive");
                }
                bytes.cast_signed()
            }
            Setting::SlowLogLength | Setting::LatencyThreshold => {
                let number = integer(value).ok_or("argument couldn't be parsed into an integer")?;
                if number < 0 {
                    return Err("argument must be between 0 and 9223372036854775807 inclusive");
                }
                number
            }
            Setting::IdleTimeout => {
                let seconds = integer(value).ok_or("argument couldn't be parsed into an integer")?;
                if !(0..=i64::from(i32::MAX)).contains(&seconds) {
                    return Err("argument must be between 0 and 2147483647 inclusive");
                }
                seconds
            }
        };
        Ok(SettingChange(setting, number))
    }

    pub(crate) fn apply(&self, SettingChange(setting, number): SettingChange) {
        match setting {
            Setting::BulkMaxBytes => self.bulk_max_bytes.store(number.cast_unsigned(), Relaxed),
            Setting::SlowerThan => self.slower_than_us.store(number, Relaxed),
            Setting::SlowLogLength => self.slow_log_length.store(number.cast_unsigned(), Relaxed),
            Setting::LatencyThreshold => self.latency_threshold_ms.store(number.cast_unsigned(), Relaxed),
            Setting::IdleTimeout => self.idle_timeout_s.store(number.cast_unsigned(), Relaxed),
            Setting::Classes => self.classes.store(u16::try_from(number).unwrap_or_default(), Relaxed),
        }
    }
}

/// A number of bytes with an optional unit: `1k` is 1,000 and `1kb` 1,024.
fn bytes(value: &[u8]) -> Option<u64> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = value.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    unsigned(number)?.checked_mul(factor)
}
