//! Settings of history: its limits, and rules for what is kept and how long.

use std::sync::Arc;

use millstream_http::Wildcard;
use millstream_types::TenantId;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Matches everything.
const ANY: &str = "*";

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
}

impl Default for HistoryRule {
    fn default() -> Self {
        let any = || ANY.to_owned();
        Self { tenant: any(), kind: any(), attribute: any(), keep: None, retention_ms: None, retention_bytes: None }
    }
}

impl HistoryRule {
    /// Checks that the rule can be followed.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`]: files hold all attributes of a type, so retention cannot be an attribute's.
    pub fn validate(&self) -> Result<(), Error> {
        if self.attribute == ANY || (self.retention_ms.is_none() && self.retention_bytes.is_none()) {
            return Ok(());
        }
        Err(Error::InvalidSetting {
            setting: "history.rules",
            value: format!("{{ attribute = \"{}\", … }}", self.attribute),
            rule: "retention is that of a type, because a file holds all its attributes; leave the attribute out",
        })
    }

    fn fits(&self, tenant: &TenantId, kind: &str) -> bool {
        fits(&self.tenant, tenant.as_str()) && fits(&self.kind, kind)
    }
}

fn fits(pattern: &str, text: &str) -> bool {
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
}
