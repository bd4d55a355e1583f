//! How fast one query may give rows.

use std::time::Duration;

use crate::{Config, Trouble};

/// Over which time rows are counted.
const SECOND: Duration = Duration::from_secs(1);

/// What one query may give in a second; 0 sets no bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    rows_max: u64,
    bytes_max: u64,
}

impl Rates {
    pub(crate) fn of(config: &Config) -> Self {
        Self { rows_max: config.rows_per_second_max, bytes_max: config.bytes_per_second_max }
    }

    pub(crate) fn are_unbounded(self) -> bool {
        self.rows_max == 0 && self.bytes_max == 0
    }
}

/// What a query has given in the running second.
#[derive(Debug, Default)]
pub(crate) struct Given {
    since: Option<Duration>,
    rows: u64,
    bytes: u64,
}

impl Given {
    /// Counts what is given at `now`; which limit that breaks, if any.
    pub(crate) fn add(&mut self, rates: Rates, rows: u64, bytes: u64, now: Duration) -> Option<Trouble> {
        let since = self.since.filter(|since| now.saturating_sub(*since) < SECOND).unwrap_or_else(|| {
            (self.rows, self.bytes) = (0, 0);
            now
        });
        self.since = Some(since);
        self.rows += rows;
        self.bytes += bytes;
        let took = now.saturating_sub(since).as_millis();
        let breaks = |given: u64, max: u64, unit: &str, setting: &str| {
            (max > 0 && given > max).then(|| Trouble {
                error: format!("rate limit exceeded: {given} {unit} within {took} ms, {setting} = {max}"),
                resolution: "select fewer records or fields, count or group them, or have the limit raised".to_owned(),
            })
        };
        breaks(self.rows, rates.rows_max, "rows", "query.rows_per_second_max")
            .or_else(|| breaks(self.bytes, rates.bytes_max, "bytes", "query.bytes_per_second_max"))
    }
}
