//! Reads a tenant's history rules from its `ext` in the registry; the form is that of `history.rules`.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_connect::Registry;
use millstream_history::{HistoryRule, TenantRules};
use millstream_types::TenantId;
use parking_lot::Mutex;
use serde_json::Value;

/// Name of the member in `ext`.
const MEMBER: &str = "history";
/// Limit of cached tenants; a full cache is cleared.
const REMEMBERED_MAX: usize = 10_000;

type Rules = Option<Arc<Vec<HistoryRule>>>;

/// Rules of the registry, parsed once per version.
pub(crate) struct RegistryRules {
    registry: Registry,
    /// The value in `ext`, and the rules parsed from it.
    parsed: Mutex<HashMap<TenantId, (Value, Rules)>>,
}

impl RegistryRules {
    pub(crate) fn new(registry: Registry) -> Self {
        Self { registry, parsed: Mutex::default() }
    }
}

impl TenantRules for RegistryRules {
    fn rules(&self, tenant: &TenantId) -> Rules {
        let given = self.registry.tenant_ext(tenant, MEMBER)?;
        let mut parsed = self.parsed.lock();
        if let Some((_, rules)) = parsed.get(tenant).filter(|(known, _)| *known == given) {
            return rules.clone();
        }
        let rules = parse(tenant, &given);
        if parsed.len() >= REMEMBERED_MAX {
            parsed.clear();
        }
        parsed.insert(tenant.clone(), (given, rules.clone()));
        rules
    }
}

/// Parses the rules; logs a warning and returns none if the value is invalid.
fn parse(tenant: &TenantId, given: &Value) -> Rules {
    let rules = serde_json::from_value::<Vec<HistoryRule>>(given.clone()).map_err(|error| error.to_string());
    let checked = rules.and_then(|rules| match rules.iter().try_for_each(HistoryRule::validate) {
        Ok(()) => Ok(rules),
        Err(error) => Err(error.to_string()),
    });
    match checked {
        Ok(rules) => Some(Arc::new(rules)),
        Err(error) => {
            tracing::warn!(%tenant, error, "the tenant's rules for its history in 'ext.history' are not used");
            None
        }
    }
}
