//! Settings of history: its limits, and rules for what is kept and how long.

use millstream_http::Wildcard;
use millstream_types::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The pattern that matches everything.
pub(crate) const ANY: &str = "*";
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// The settings of the history plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryConfig {
    /// If `true`, changes of entities are kept; if not, reads return what was kept before. Default true.
    pub enabled: bool,
    /// Bytes of points in memory that are not in files yet, at least 1 MiB; beyond it reading of the change topics
    /// pauses. Half of it is written at once. Default 64 MiB.
    pub recent_max_bytes: usize,
    /// Longest time that points are in memory only, in milliseconds; after a crash they are read from the
    /// change topics again. Default 300,000.
    pub flush_interval_ms: u64,
    /// Files of history that should not be exceeded. From four fifths on `/readyz` and a log line warn, and more files
    /// are merged; all points are kept all the same. Default 100,000.
    pub files_max: usize,
    /// Size up to which the files of a day are merged, in bytes. Default 128 MiB.
    pub merge_max_bytes: u64,
    /// Memory for the indexes of files that were read, in bytes. Default 32 MiB.
    pub index_cache_bytes: usize,
    /// Most points in one answer, or periods if they are aggregated. Default 10,000.
    pub page_max_points: usize,
    /// Largest answer, in bytes. Default 32 MiB.
    pub page_max_bytes: usize,
    /// Has no effect: a read opens the files that it needs one after the other. Default 2,000.
    pub read_max_files: usize,
    /// Reads and deletions that may wait for a thread; further ones are answered 503. One tenant
    /// takes no more of these places than it leaves free. Default 512.
    pub requests_max_waiting: usize,
    /// Time that a request may take, in milliseconds. Default 30,000.
    pub timeout_ms: u64,
    /// Rules for which changes are kept and for how long; each setting is taken from the first matching rule that has
    /// it. Default none: everything is kept for ever.
    pub rules: Vec<HistoryRule>,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            recent_max_bytes: 64 << 20,
            flush_interval_ms: 300_000,
            files_max: 100_000,
            merge_max_bytes: 128 << 20,
            index_cache_bytes: 32 << 20,
            page_max_points: 10_000,
            page_max_bytes: 32 << 20,
            read_max_files: 2_000,
            requests_max_waiting: 512,
            timeout_ms: 30_000,
            rules: Vec::new(),
        }
    }
}

impl HistoryConfig {
    /// Checks each setting on its own.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        let rules = [
            ("history.recent_max_bytes", self.recent_max_bytes, 1 << 20..=1 << 40, "use at least 1048576"),
            ("history.flush_interval_ms", self.flush_interval_ms as usize, 1..=86_400_000, "use 1 to 86400000"),
            ("history.files_max", self.files_max, 1..=10_000_000, "use 1 to 10000000"),
            ("history.page_max_points", self.page_max_points, 1..=1_000_000, "use 1 to 1000000"),
            ("history.read_max_files", self.read_max_files, 1..=1_000_000, "use 1 to 1000000"),
        ];
        match rules.into_iter().find(|(_, value, legal, _)| !legal.contains(value)) {
            None => self.rules.iter().try_for_each(HistoryRule::validate),
            Some((setting, value, _, rule)) => Err(Error::InvalidSetting { setting, value: value.to_string(), rule }),
        }
    }
}

/// A rule for the changes that are kept, and for how long, of the tenants, types and attributes that fit. `*` in a
/// pattern stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryRule {
    /// A pattern for names of tenants. Default `*`.
    pub tenant: String,
    /// A pattern for types of entities. Default `*`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A pattern for names of attributes. Default `*`.
    pub attribute: String,
    /// `false` drops their changes. Default: taken from a later rule, else they are kept.
    pub keep: Option<bool>,
    /// Time that points are kept, counted from their flush, in milliseconds. Default: taken from a
    /// later rule, else for ever.
    pub retention_ms: Option<u64>,
    /// Bytes of files for each type of a tenant; the oldest days are removed first. Default: taken from
    /// a later rule, else unlimited.
    pub retention_bytes: Option<u64>,
    /// Age from which points are sampled, counted from their flush, in milliseconds; at least one period. Of several
    /// rules with the same patterns, the one with the greatest reached age applies. Default: taken from a later
    /// rule, else all points stay.
    pub sample_after_ms: Option<u64>,
    /// Length of the periods of which one point stays, in milliseconds; it must divide a day.
    pub sample_period_ms: Option<u64>,
    /// The point that stays of a period: `last`, `avg`, or `all`, which excludes the attribute from sampling
    /// by later rules. Default `last`.
    pub sample: Option<Sample>,
}

/// The points of a period that stay. Points that say that an attribute was deleted always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Sample {
    /// The last point, as it is.
    #[default]
    #[serde(rename = "last")]
    Last,
    /// The last point with the mean of the numbers as its value, and of how many as its metadata `averagedFrom`.
    #[serde(rename = "avg")]
    Average,
    /// All of them: there are no periods.
    #[serde(rename = "all")]
    All,
}

impl Default for HistoryRule {
    fn default() -> Self {
        let any = || ANY.to_owned();
        Self {
            tenant: any(),
            kind: any(),
            attribute: any(),
            keep: None,
            retention_ms: None,
            retention_bytes: None,
            sample_after_ms: None,
            sample_period_ms: None,
            sample: None,
        }
    }
}

impl HistoryRule {
    /// Checks that the rule can be applied.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`]: retention applies to a whole type, because a file holds all attributes; sampling
    /// needs an age and a period that divides a day, because a file holds one day.
    pub fn validate(&self) -> Result<(), Error> {
        if self.attribute != ANY && (self.retention_ms.is_some() || self.retention_bytes.is_some()) {
            return Err(Error::InvalidSetting {
                setting: "history.rules",
                value: format!("{{ attribute = \"{}\", … }}", self.attribute),
                rule: "retention applies to whole types, whose attributes share files; leave the attribute out",
            });
        }
        match self.sampling_fault() {
            None => Ok(()),
            Some((said, rule)) => Err(Error::InvalidSetting {
                setting: "history.rules",
                value: format!("{{ type = \"{}\", attribute = \"{}\", {said} }}", self.kind, self.attribute),
                rule,
            }),
        }
    }

    /// Returns the invalid part of the sampling settings, and the rule that it violates.
    fn sampling_fault(&self) -> Option<(String, &'static str)> {
        let (after, period) = match (self.sample, self.sample_after_ms, self.sample_period_ms) {
            (None, None, None) | (Some(Sample::All), None, None) => return None,
            (Some(Sample::All), ..) => {
                let rule = "it keeps all points at any age; leave sample_after_ms and sample_period_ms out";
                return Some(("sample = \"all\", …".to_owned(), rule));
            }
            (_, Some(after), Some(period)) => (after, period),
            (_, Some(after), None) => {
                let rule = "sampling needs a period, too; add sample_period_ms, such as 3600000 for one hour";
                return Some((format!("sample_after_ms = {after}"), rule));
            }
            (_, None, Some(period)) => {
                let rule = "sampling needs an age, too; add sample_after_ms, such as 604800000 for one week";
                return Some((format!("sample_period_ms = {period}"), rule));
            }
            (Some(_), None, None) => {
                let rule = "sampling needs an age and a period; add sample_after_ms and sample_period_ms";
                return Some(("sample = …".to_owned(), rule));
            }
        };
        if !DAY_MS.is_multiple_of(period) {
            let rule = "a period must divide a day, because a file holds one day; \
                        use 60000, 900000, 3600000, 86400000 or another that divides 86400000";
            return Some((format!("sample_period_ms = {period}"), rule));
        }
        if after < period {
            let rule =
                "points would be sampled before their period is over; use a sample_after_ms of at least the period";
            return Some((format!("sample_after_ms = {after}, sample_period_ms = {period}"), rule));
        }
        let retention = self.retention_ms.filter(|retention| *retention <= after)?;
        let rule =
            "points would be deleted before they are sampled; use a longer retention_ms or a shorter sample_after_ms";
        Some((format!("retention_ms = {retention}, sample_after_ms = {after}"), rule))
    }

    pub(crate) fn fits(&self, tenant: &TenantId, kind: &str) -> bool {
        fits(&self.tenant, tenant.as_str()) && fits(&self.kind, kind)
    }
}

pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    pattern == ANY || Wildcard::from(pattern).fits(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_setting_is_refused_with_its_rule() {
        HistoryConfig::default().validate().unwrap();
        type Change = fn(&mut HistoryConfig);
        let table: [(Change, &str); 6] = [
            (|c| c.recent_max_bytes = 5, "history.recent_max_bytes = 5"),
            (|c| c.flush_interval_ms = 0, "history.flush_interval_ms = 0"),
            (|c| c.files_max = 0, "history.files_max = 0"),
            (|c| c.page_max_points = 0, "history.page_max_points = 0"),
            (|c| c.read_max_files = 0, "history.read_max_files = 0"),
            (
                |c| {
                    c.rules =
                        vec![HistoryRule { attribute: "t".into(), retention_ms: Some(1), ..HistoryRule::default() }]
                },
                "history.rules = { attribute = \"t\"",
            ),
        ];
        for (change, expected) in table {
            let mut config = HistoryConfig::default();
            change(&mut config);
            let refusal = config.validate().unwrap_err().to_string();
            assert!(refusal.contains(expected) && refusal.contains(": "), "{refusal}");
        }
    }

    #[test]
    fn invalid_sampling_is_refused_with_its_rule_and_remedy() {
        const HOUR: u64 = 3_600_000;
        let rule = |sample, after, period| HistoryRule {
            kind: "Room".into(),
            sample,
            sample_after_ms: after,
            sample_period_ms: period,
            ..HistoryRule::default()
        };
        for legal in [
            rule(None, None, None),
            rule(None, Some(HOUR), Some(HOUR)),
            rule(Some(Sample::Average), Some(HOUR), Some(1)),
            HistoryRule { attribute: "t".into(), ..rule(None, Some(DAY_MS), Some(DAY_MS)) },
            rule(Some(Sample::All), None, None),
            HistoryRule { retention_ms: Some(HOUR + 1), ..rule(None, Some(HOUR), Some(HOUR)) },
        ] {
            legal.validate().unwrap();
        }
        for (refused, value, remedy) in [
            (rule(None, Some(5), None), "sample_after_ms = 5", "add sample_period_ms"),
            (rule(None, None, Some(5)), "sample_period_ms = 5", "add sample_after_ms"),
            (rule(Some(Sample::Last), None, None), "sample = …", "add sample_after_ms and sample_period_ms"),
            (rule(Some(Sample::All), Some(5), Some(5)), "sample = \"all\"", "leave sample_after_ms"),
            (rule(None, Some(HOUR), Some(0)), "sample_period_ms = 0", "use 60000"),
            (rule(None, Some(HOUR), Some(7_000)), "sample_period_ms = 7000", "divides 86400000"),
            (rule(None, Some(9 * DAY_MS), Some(2 * DAY_MS)), "sample_period_ms = 172800000", "divides 86400000"),
            (
                rule(None, Some(HOUR - 1), Some(HOUR)),
                "sample_after_ms = 3599999, sample_period_ms = 3600000",
                "at least",
            ),
            (
                HistoryRule { retention_ms: Some(HOUR), ..rule(None, Some(HOUR), Some(HOUR)) },
                "retention_ms = 3600000, sample_after_ms = 3600000",
                "use a longer retention_ms",
            ),
        ] {
            let refusal = refused.validate().unwrap_err().to_string();
            let begins = format!("history.rules = {{ type = \"Room\", attribute = \"*\", {value}");
            assert!(refusal.starts_with(&begins) && refusal.contains(remedy), "{refusal}");
        }
        let unknown = serde_json::from_str::<HistoryRule>(r#"{"sample":"mean"}"#).unwrap_err().to_string();
        assert!(unknown.contains("`mean`") && unknown.contains("`last`, `avg`, `all`"), "{unknown}");
    }
}
