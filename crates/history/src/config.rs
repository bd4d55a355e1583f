//! Settings of history: its limits, and rules for what is kept and how long.

use std::sync::Arc;

use millstream_http::Wildcard;
use millstream_types::TenantId;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::thinning::SamplingRules;

/// Matches everything.
pub(crate) const ANY: &str = "*";
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Settings of history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryConfig {
    /// Whether changes of entities are kept. Off, the reads see what was kept before. Default true.
    pub enabled: bool,
    /// Bytes of points that may be in memory before they are in files, at least 1 MiB; beyond it the change topics are
    /// read no further. Half of it is written at once. Default 64 MiB.
    pub recent_max_bytes: usize,
    /// How long points may be in memory only, in milliseconds; after a crash they are read from the change topics again.
    /// Default 300,000.
    pub flush_interval_ms: u64,
    /// Files that there may be; points that would need a further one for another day, type or tenant are not kept.
    /// Default 100,000.
    pub files_max: usize,
    /// Size up to which the files of a day are merged, in bytes. Default 128 MiB.
    pub merge_max_bytes: u64,
    /// Memory for the indexes of files that were read, in bytes. Default 32 MiB.
    pub index_cache_bytes: usize,
    /// Points in one answer, or periods if they are aggregated. Default 10,000.
    pub page_max_points: usize,
    /// Largest answer, in bytes. Default 32 MiB.
    pub page_max_bytes: usize,
    /// Files that one read may look at. Default 2,000.
    pub read_max_files: usize,
    /// Reads and deletions that may wait for a thread; further ones are answered 503. Default 256.
    pub requests_max_waiting: usize,
    /// Time that a request may take, in milliseconds. Default 30,000.
    pub timeout_ms: u64,
    /// What is kept and how long: of each setting the first rule that fits and has it. Default none: everything, for ever.
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
            requests_max_waiting: 256,
            timeout_ms: 30_000,
            rules: Vec::new(),
        }
    }
}

impl HistoryConfig {
    /// Checks each setting by itself.
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

/// What is kept of the tenants, types and attributes that fit, and how long. `*` in a pattern stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryRule {
    /// Tenants. Default `*`.
    pub tenant: String,
    /// Types of entities. Default `*`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Attributes. Default `*`.
    pub attribute: String,
    /// Whether their changes are kept. Default: a later rule says it, or they are.
    pub keep: Option<bool>,
    /// How long after they were kept they stay, in milliseconds. Default: a later rule says it, or for ever.
    pub retention_ms: Option<u64>,
    /// Bytes of files for each type of a tenant: the oldest days go first. Default: a later rule says it, or no limit.
    pub retention_bytes: Option<u64>,
    /// How long after they were kept fewer of them stay, in milliseconds, at least a period. Of several rules for the same
    /// the longest counts that has passed. Default: a later rule says it, or all stay.
    pub sample_after_ms: Option<u64>,
    /// Length of the periods of which one point stays, in milliseconds: a whole part of a day.
    pub sample_period_ms: Option<u64>,
    /// What stays of a period: `last`, `avg`, or `all`, which takes out what a later rule would sample. Default `last`.
    pub sample: Option<Sample>,
}

/// What stays of the points of a period. Points that say that an attribute was deleted always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// Checks that the rule can be followed.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`]: files hold all attributes of a type, so retention cannot be an attribute's; sampling needs
    /// an age and a period that divides a day, because files hold days.
    pub fn validate(&self) -> Result<(), Error> {
        if self.attribute != ANY && (self.retention_ms.is_some() || self.retention_bytes.is_some()) {
            return Err(Error::InvalidSetting {
                setting: "history.rules",
                value: format!("{{ attribute = \"{}\", … }}", self.attribute),
                rule: "retention is that of a type, because a file holds all its attributes; leave the attribute out",
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

    /// What of the sampling cannot be, and why.
    fn sampling_fault(&self) -> Option<(String, &'static str)> {
        let (after, period) = match (self.sample, self.sample_after_ms, self.sample_period_ms) {
            (None, None, None) | (Some(Sample::All), None, None) => return None,
            (Some(Sample::All), ..) => {
                let rule = "all points stay, at any age; leave sample_after_ms and sample_period_ms out";
                return Some(("sample = \"all\", …".to_owned(), rule));
            }
            (_, Some(after), Some(period)) => (after, period),
            (_, Some(after), None) => {
                let rule = "of what one point stays is not said; add sample_period_ms, as 3600000 for an hour";
                return Some((format!("sample_after_ms = {after}"), rule));
            }
            (_, None, Some(period)) => {
                let rule = "from which age on is not said; add sample_after_ms, as 604800000 for a week";
                return Some((format!("sample_period_ms = {period}"), rule));
            }
            (Some(_), None, None) => {
                let rule = "from which age on, and of what, is not said; add sample_after_ms and sample_period_ms";
                return Some(("sample = …".to_owned(), rule));
            }
        };
        if !DAY_MS.is_multiple_of(period) {
            let rule = "a period is a whole part of a day, because a file holds a day; \
                        use 60000, 900000, 3600000, 86400000 or another that divides 86400000";
            return Some((format!("sample_period_ms = {period}"), rule));
        }
        if after < period {
            let rule =
                "points would be sampled before their period is over; use a sample_after_ms of at least the period";
            return Some((format!("sample_after_ms = {after}, sample_period_ms = {period}"), rule));
        }
        let retention = self.retention_ms.filter(|retention| *retention <= after)?;
        let rule = "points would go before they are sampled; use a longer retention_ms or a shorter sample_after_ms";
        Some((format!("retention_ms = {retention}, sample_after_ms = {after}"), rule))
    }

    fn fits(&self, tenant: &TenantId, kind: &str) -> bool {
        fits(&self.tenant, tenant.as_str()) && fits(&self.kind, kind)
    }
}

pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    pattern == ANY || Wildcard::from(pattern).fits(text)
}

/// Rules that tenants have for themselves.
pub trait TenantRules: Send + Sync + 'static {
    /// The rules of `tenant`, in which the tenant's name is not looked at; `None` if it has none.
    fn rules(&self, tenant: &TenantId) -> Option<Arc<Vec<HistoryRule>>>;
}

/// No tenant has rules of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTenantRules;

impl TenantRules for NoTenantRules {
    fn rules(&self, _: &TenantId) -> Option<Arc<Vec<HistoryRule>>> {
        None
    }
}

/// All rules: a tenant's own come first.
pub(crate) struct Rules {
    pub(crate) general: Vec<HistoryRule>,
    pub(crate) own: Arc<dyn TenantRules>,
}

impl Rules {
    /// What the first rule that fits says.
    fn first<T>(&self, tenant: &TenantId, kind: &str, said: impl Fn(&HistoryRule) -> Option<T>) -> Option<T> {
        let own = self.own.rules(tenant);
        let of_tenant = own.iter().flat_map(|rules| rules.iter()).filter(|rule| fits(&rule.kind, kind));
        let general = self.general.iter().filter(|rule| rule.fits(tenant, kind));
        of_tenant.chain(general).find_map(said)
    }

    /// What they say of the sampling of a type.
    pub(crate) fn sampling(&self, tenant: &TenantId, kind: &str) -> SamplingRules {
        let mut rules = SamplingRules::default();
        if let Some(own) = self.own.rules(tenant) {
            rules.add(own.iter().filter(|rule| fits(&rule.kind, kind)));
        }
        rules.add(self.general.iter().filter(|rule| rule.fits(tenant, kind)));
        rules
    }

    /// Whether no rule takes anything of a tenant out.
    pub(crate) fn keep_all(&self, tenant: &TenantId) -> bool {
        let takes_out = |rule: &HistoryRule| rule.keep == Some(false);
        !self.general.iter().any(takes_out) && !self.own.rules(tenant).is_some_and(|own| own.iter().any(takes_out))
    }

    /// Whether changes of the attribute are kept.
    pub(crate) fn keeps(&self, tenant: &TenantId, kind: &str, attribute: &str) -> bool {
        self.first(tenant, kind, |rule| rule.keep.filter(|_| fits(&rule.attribute, attribute))).unwrap_or(true)
    }

    pub(crate) fn retention_ms(&self, tenant: &TenantId, kind: &str) -> Option<u64> {
        self.first(tenant, kind, |rule| rule.retention_ms)
    }

    pub(crate) fn retention_bytes(&self, tenant: &TenantId, kind: &str) -> Option<u64> {
        self.first(tenant, kind, |rule| rule.retention_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Own(Vec<HistoryRule>);

    impl TenantRules for Own {
        fn rules(&self, tenant: &TenantId) -> Option<Arc<Vec<HistoryRule>>> {
            (tenant.as_str() == "acme").then(|| Arc::new(self.0.clone()))
        }
    }

    #[test]
    fn the_first_rule_that_fits_and_says_it_counts_and_a_tenants_own_come_first() {
        let rule = |tenant: &str, kind: &str, attribute: &str, keep| HistoryRule {
            tenant: tenant.into(),
            kind: kind.into(),
            attribute: attribute.into(),
            keep,
            ..HistoryRule::default()
        };
        let general = vec![
            rule("*", "Room", "debug*", Some(false)),
            HistoryRule { retention_ms: Some(5), ..rule("b*", "*", "*", None) },
            HistoryRule { retention_bytes: Some(7), ..rule("*", "*", "*", None) },
        ];
        let own = Own(vec![rule("ignored", "Car", "*", Some(false)), rule("*", "Room", "debug1", Some(true))]);
        let rules = Rules { general, own: Arc::new(own) };
        let tenant = |name: &str| TenantId::new(name).unwrap();
        for (name, kind, attribute, kept) in [
            ("acme", "Room", "t", true),
            ("acme", "Room", "debug1", true),
            ("acme", "Room", "debug2", false),
            ("acme", "Car", "speed", false),
            ("beta", "Car", "speed", true),
            ("beta", "Room", "debug1", false),
        ] {
            assert_eq!(rules.keeps(&tenant(name), kind, attribute), kept, "{name} {kind} {attribute}");
        }
        assert_eq!(rules.retention_ms(&tenant("beta"), "Room"), Some(5));
        assert_eq!(rules.retention_ms(&tenant("acme"), "Room"), None);
        assert_eq!(rules.retention_bytes(&tenant("acme"), "Room"), Some(7));
    }

    #[test]
    fn a_setting_that_cannot_be_is_named_with_its_rule() {
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
    fn sampling_that_cannot_be_is_named_with_its_rule_and_remedy() {
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
