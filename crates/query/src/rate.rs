//! Rate limits for the rows of one query, and of all queries of a tenant.

use std::time::Duration;

use crate::{Config, Trouble};

/// Over which time rows are counted.
const SECOND: Duration = Duration::from_secs(1);

/// The most of something in a second; 0 sets no bound.
#[derive(Debug, Clone, Copy)]
struct PerSecondLimit {
    max: u64,
    unit: &'static str,
    setting: &'static str,
}

/// The limits for one second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateLimits {
    rows: PerSecondLimit,
    bytes: PerSecondLimit,
}

impl RateLimits {
    /// The limits of one query.
    pub(crate) fn of_query(config: &Config) -> Self {
        let rows =
            PerSecondLimit { max: config.rows_per_second_max, unit: "rows", setting: "query.rows_per_second_max" };
        let bytes =
            PerSecondLimit { max: config.bytes_per_second_max, unit: "bytes", setting: "query.bytes_per_second_max" };
        Self { rows, bytes }
    }

    /// The limits of all queries of a tenant together.
    pub(crate) fn of_tenant(config: &Config) -> Self {
        let (rows, bytes) = (config.rows_per_second_per_tenant_max, config.bytes_per_second_per_tenant_max);
        let rows = PerSecondLimit {
            max: rows,
            unit: "rows of the tenant's queries",
            setting: "query.rows_per_second_per_tenant_max",
        };
        let bytes = PerSecondLimit {
            max: bytes,
            unit: "bytes of the tenant's queries",
            setting: "query.bytes_per_second_per_tenant_max",
        };
        Self { rows, bytes }
    }

    pub(crate) fn are_unbounded(self) -> bool {
        self.rows.max == 0 && self.bytes.max == 0
    }
}

/// The counts of the running second; they never exceed the limits.
#[derive(Debug, Default)]
pub(crate) struct RateCounter {
    since: Option<Duration>,
    rows: u64,
    bytes: u64,
}

impl RateCounter {
    /// Counts rows at `now`, unless that exceeds a limit: then it counts nothing and returns the limit.
    pub(crate) fn add(&mut self, rates: RateLimits, rows: u64, bytes: u64, now: Duration) -> Result<(), Trouble> {
        let since = self.since.filter(|since| now.saturating_sub(*since) < SECOND).unwrap_or_else(|| {
            (self.rows, self.bytes) = (0, 0);
            now
        });
        self.since = Some(since);
        let took = now.saturating_sub(since);
        let (rows, bytes) = (self.rows + rows, self.bytes + bytes);
        for (given, bound) in [(rows, rates.rows), (bytes, rates.bytes)] {
            if bound.max > 0 && given > bound.max {
                return Err(too_fast(given, bound, took));
            }
        }
        (self.rows, self.bytes) = (rows, bytes);
        Ok(())
    }

    /// True if the counter's second is over.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        self.since.is_none_or(|since| now.saturating_sub(since) >= SECOND)
    }
}

fn too_fast(given: u64, PerSecondLimit { max, unit, setting }: PerSecondLimit, took: Duration) -> Trouble {
    Trouble {
        error: format!("rate limit exceeded: {given} {unit} within {} ms, {setting} = {max}", took.as_millis()),
        resolution: "select fewer records or fields, count or group them, or have the limit raised".to_owned(),
    }
}
