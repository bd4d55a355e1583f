//! The rules of all tenants: a tenant's own rules come before the general ones of the configuration.

use std::sync::Arc;

use millstream_types::TenantId;

use crate::config::{HistoryRule, fits};
use crate::file_period::Span;
use crate::sampling_plan::SamplingRules;

/// The longest month.
const MONTH_MS: u64 = 31 * 24 * 60 * 60 * 1_000;

/// Provides the rules of tenants.
pub trait TenantRules: Send + Sync + 'static {
    /// Returns the rules of `tenant`, whose `tenant` pattern is ignored; `None` if there are none.
    fn rules(&self, tenant: &TenantId) -> Option<Arc<Vec<HistoryRule>>>;
}

/// An implementation for servers without tenant rules.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTenantRules;

impl TenantRules for NoTenantRules {
    fn rules(&self, _: &TenantId) -> Option<Arc<Vec<HistoryRule>>> {
        None
    }
}

/// All rules; a tenant's own rules come first.
pub(crate) struct RuleSet {
    pub(crate) general: Vec<HistoryRule>,
    pub(crate) tenant_rules: Arc<dyn TenantRules>,
}

impl RuleSet {
    /// Returns the first value that a matching rule gives.
    fn first<T>(&self, tenant: &TenantId, kind: &str, setting: impl Fn(&HistoryRule) -> Option<T>) -> Option<T> {
        let own = self.tenant_rules.rules(tenant);
        let of_tenant = own.iter().flat_map(|rules| rules.iter()).filter(|rule| fits(&rule.kind, kind));
        let general = self.general.iter().filter(|rule| rule.fits(tenant, kind));
        of_tenant.chain(general).find_map(setting)
    }

    /// Returns the sampling rules of a type.
    pub(crate) fn sampling(&self, tenant: &TenantId, kind: &str) -> SamplingRules {
        let mut rules = SamplingRules::default();
        if let Some(own) = self.tenant_rules.rules(tenant) {
            rules.add(own.iter().filter(|rule| fits(&rule.kind, kind)));
        }
        rules.add(self.general.iter().filter(|rule| rule.fits(tenant, kind)));
        rules
    }

    /// Tells if no rule excludes changes of the tenant.
    pub(crate) fn keep_all(&self, tenant: &TenantId) -> bool {
        let takes_out = |rule: &HistoryRule| rule.keep == Some(false);
        !self.general.iter().any(takes_out)
            && !self.tenant_rules.rules(tenant).is_some_and(|own| own.iter().any(takes_out))
    }

    /// Tells if changes of the attribute are kept.
    pub(crate) fn keeps(&self, tenant: &TenantId, kind: &str, attribute: &str) -> bool {
        self.first(tenant, kind, |rule| rule.keep.filter(|_| fits(&rule.attribute, attribute))).unwrap_or(true)
    }

    pub(crate) fn retention_ms(&self, tenant: &TenantId, kind: &str) -> Option<u64> {
        self.first(tenant, kind, |rule| rule.retention_ms)
    }

    /// The longest period that the files of a type may cover, so that its points are kept at most a tenth longer than
    /// the rules say: a file goes as a whole.
    pub(crate) fn coarsest(&self, tenant: &TenantId, kind: &str) -> Span {
        match self.retention_ms(tenant, kind) {
            Some(ms) if ms < 10 * MONTH_MS => Span::Day,
            Some(ms) if ms < 120 * MONTH_MS => Span::Month,
            _ => Span::Year,
        }
    }

    /// The longest period of a file that a flush writes. All of its points are kept from the same moment on, so only
    /// a limit of bytes, which takes out the oldest files, matters.
    pub(crate) fn coarsest_flush(&self, tenant: &TenantId, kind: &str) -> Span {
        if self.retention_bytes(tenant, kind).is_some() { Span::Month } else { Span::Year }
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
        let rules = RuleSet { general, tenant_rules: Arc::new(own) };
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
}
