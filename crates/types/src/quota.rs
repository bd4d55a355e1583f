//! Rate limits on the writes and reads of clients and tenants.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{MonotonicClock, TenantId};

/// Idle time that a client or tenant may use up in a burst.
const BURST: Duration = Duration::from_secs(1);
/// Number of remembered accounts; clients beyond it share one account for each tenant.
const ACCOUNTS_MAX: usize = 10_000;
/// The smallest rate: with a lower one a single record would take hours.
const RATE_MIN: u64 = 1024;

/// Bytes a second that may be written and read; 0 sets no limit. Of a client: what its user, or without authentication
/// the name that it gives itself, does over all connections. Of a tenant: what all its clients do together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaConfig {
    /// Bytes per second that one client may append, over Kafka's protocol or HTTP. Default 0: no limit.
    pub client_produce_bytes_per_second: u64,
    /// Bytes per second that one client may fetch over Kafka's protocol. Default 0: no limit.
    pub client_fetch_bytes_per_second: u64,
    /// Bytes per second that all clients of a tenant may append together. Default 0: no limit.
    pub tenant_produce_bytes_per_second: u64,
    /// Bytes per second that all clients of a tenant may fetch together. Default 0: no limit.
    pub tenant_fetch_bytes_per_second: u64,
}

impl QuotaConfig {
    fn limits(&self) -> [(QuotaType, QuotaOwner, RateLimit); 4] {
        let limit = |setting, rate| RateLimit { setting, rate };
        [
            (
                QuotaType::Produce,
                QuotaOwner::Client,
                limit("quota.client_produce_bytes_per_second", self.client_produce_bytes_per_second),
            ),
            (
                QuotaType::Fetch,
                QuotaOwner::Client,
                limit("quota.client_fetch_bytes_per_second", self.client_fetch_bytes_per_second),
            ),
            (
                QuotaType::Produce,
                QuotaOwner::Tenant,
                limit("quota.tenant_produce_bytes_per_second", self.tenant_produce_bytes_per_second),
            ),
            (
                QuotaType::Fetch,
                QuotaOwner::Tenant,
                limit("quota.tenant_fetch_bytes_per_second", self.tenant_fetch_bytes_per_second),
            ),
        ]
    }

    /// Checks each rate against the smallest one.
    ///
    /// # Errors
    /// A sentence with the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), String> {
        let low = self.limits().into_iter().find(|(_, _, limit)| (1..RATE_MIN).contains(&limit.rate));
        low.map_or(Ok(()), |(_, _, RateLimit { setting, rate })| {
            Err(format!("{setting} = {rate}: use at least {RATE_MIN}, or 0 for no limit"))
        })
    }
}

/// The requests whose bytes a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaType {
    /// Bytes of records to be appended.
    Produce,
    /// Bytes of records that are fetched.
    Fetch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum QuotaOwner {
    Client,
    Tenant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RateLimit {
    setting: &'static str,
    rate: u64,
}

/// A limit that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// The setting of the limit.
    pub setting: &'static str,
    /// Bytes per second that the limit allows.
    pub rate: u64,
    /// The time to wait before the next use.
    pub wait: Duration,
}

/// The account of a client or, without a name, of a tenant.
type Account = (QuotaType, TenantId, Option<Arc<str>>);

/// The use of all limits. One instance serves the process, so that a limit holds over all listeners.
///
/// Each account has a time at which its use is paid off at its rate; that time lies at most a second in
/// the past. A caller that waits as told uses, in any span of `t` seconds, at most `rate * (t + 1)` and
/// the one use that exceeded it.
pub struct Quotas {
    config: QuotaConfig,
    clock: Arc<dyn MonotonicClock>,
    paid_at: Mutex<HashMap<Account, Duration>>,
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl Quotas {
    /// The limits of `config`, without any use so far.
    pub fn new(config: QuotaConfig, clock: Arc<dyn MonotonicClock>) -> Arc<Self> {
        Arc::new(Self { config, clock, paid_at: Mutex::default() })
    }

    /// The limits.
    pub fn config(&self) -> &QuotaConfig {
        &self.config
    }

    /// Charges `bytes` to a client and its tenant. Returns the limit to wait for, if one is exceeded.
    pub fn charge(&self, traffic: QuotaType, tenant: &TenantId, client: &str, bytes: u64) -> Option<Excess> {
        self.look(&mut self.paid_at.lock(), traffic, tenant, client, bytes)
    }

    /// Returns the limit to wait for before the next use, if one is exceeded.
    pub fn excess(&self, traffic: QuotaType, tenant: &TenantId, client: &str) -> Option<Excess> {
        self.look(&mut self.paid_at.lock(), traffic, tenant, client, 0)
    }

    /// Like [`Quotas::charge`], but only if no limit is exceeded before.
    ///
    /// # Errors
    /// The limit to wait for; then nothing is charged.
    pub fn admit(&self, traffic: QuotaType, tenant: &TenantId, client: &str, bytes: u64) -> Result<(), Excess> {
        let mut paid_at = self.paid_at.lock();
        self.look(&mut paid_at, traffic, tenant, client, 0).map_or(Ok(()), Err)?;
        self.look(&mut paid_at, traffic, tenant, client, bytes);
        Ok(())
    }

    fn look(
        &self,
        paid_at: &mut HashMap<Account, Duration>,
        traffic: QuotaType,
        tenant: &TenantId,
        client: &str,
        bytes: u64,
    ) -> Option<Excess> {
        let now = self.clock.now();
        let limits = self.config.limits().into_iter().filter(|(of, _, limit)| *of == traffic && limit.rate > 0);
        let excesses = limits.filter_map(|(_, of, limit)| {
            let account = (traffic, tenant.clone(), (of == QuotaOwner::Client).then(|| client.into()));
            let wait = pay(paid_at, account, now, limit.rate, bytes).saturating_sub(now);
            (!wait.is_zero()).then_some(Excess { setting: limit.setting, rate: limit.rate, wait })
        });
        excesses.max_by_key(|excess| excess.wait)
    }
}

/// Charges `bytes` to an account; returns the time at which it is paid off.
fn pay(
    paid_at: &mut HashMap<Account, Duration>,
    mut account: Account,
    now: Duration,
    rate: u64,
    bytes: u64,
) -> Duration {
    let rested = now.saturating_sub(BURST);
    if bytes > 0 && paid_at.len() >= ACCOUNTS_MAX && !paid_at.contains_key(&account) {
        paid_at.retain(|_, at| *at > rested);
        if paid_at.len() >= ACCOUNTS_MAX && account.2.is_some() {
            account.2 = Some("".into());
        }
    }
    let at = paid_at.get(&account).copied().unwrap_or_default().max(rested);
    if bytes == 0 {
        return at;
    }
    let cost = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    let at = at.saturating_add(Duration::from_nanos(u64::try_from(cost).unwrap_or(u64::MAX)));
    paid_at.insert(account, at);
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    const CLIENT: u64 = 10_000;

    fn quotas(tenant: u64) -> (Arc<Quotas>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(0));
        clock.advance(Duration::from_secs(100));
        let config = QuotaConfig {
            client_produce_bytes_per_second: CLIENT,
            tenant_produce_bytes_per_second: tenant,
            ..QuotaConfig::default()
        };
        (Quotas::new(config, clock.clone()), clock)
    }

    #[test]
    fn a_client_that_waits_as_requested_uses_its_rate_exactly_and_others_use_their_own() {
        let (quotas, clock) = quotas(0);
        let tenant = TenantId::default();
        let start = clock.now();
        let mut sent = 0;
        while sent < 50 * CLIENT {
            sent += 3_333;
            let excess = quotas.charge(QuotaType::Produce, &tenant, "a", 3_333);
            clock.advance(excess.map_or(Duration::ZERO, |excess| excess.wait));
        }
        let used = (clock.now() - start).as_secs_f64() * CLIENT as f64;
        // A second of rest had saved up the difference.
        assert!((used + CLIENT as f64 - sent as f64).abs() < 1.0, "{used} of {sent}");
        assert_eq!(quotas.charge(QuotaType::Produce, &tenant, "b", CLIENT), None);
        assert_eq!(quotas.charge(QuotaType::Fetch, &tenant, "a", 1 << 40), None, "no limit is set");
        let excess = quotas.charge(QuotaType::Produce, &tenant, "b", CLIENT).unwrap();
        let expected = ("quota.client_produce_bytes_per_second", CLIENT, Duration::from_secs(1));
        assert_eq!((excess.setting, excess.rate, excess.wait), expected);
        assert_eq!(quotas.excess(QuotaType::Produce, &tenant, "b"), Some(excess), "looking uses nothing");
        assert_eq!(quotas.admit(QuotaType::Produce, &tenant, "b", 1), Err(excess));
        clock.advance(excess.wait);
        assert_eq!(quotas.admit(QuotaType::Produce, &tenant, "b", CLIENT), Ok(()));
        assert!(quotas.admit(QuotaType::Produce, &tenant, "b", 1).is_err());
    }

    #[test]
    fn a_tenants_limit_holds_for_all_its_clients_together() {
        let (quotas, _) = quotas(15_000);
        let (one, other) = (TenantId::default(), TenantId::new("acme").unwrap());
        assert_eq!(quotas.charge(QuotaType::Produce, &one, "a", CLIENT), None);
        let excess = quotas.charge(QuotaType::Produce, &one, "b", CLIENT).unwrap();
        assert_eq!(excess.setting, "quota.tenant_produce_bytes_per_second");
        assert_eq!(quotas.charge(QuotaType::Produce, &other, "a", CLIENT), None);
    }

    #[test]
    fn accounts_are_bounded_and_no_client_escapes_its_quota_by_a_new_name() {
        let (quotas, _) = quotas(0);
        let tenant = TenantId::default();
        for number in 0..ACCOUNTS_MAX {
            quotas.charge(QuotaType::Produce, &tenant, &format!("c-{number}"), CLIENT);
        }
        assert_eq!(quotas.charge(QuotaType::Produce, &tenant, "new", CLIENT), None);
        assert!(quotas.charge(QuotaType::Produce, &tenant, "newer", CLIENT).is_some());
        assert!(quotas.paid_at.lock().len() <= ACCOUNTS_MAX + 1);
    }

    #[test]
    fn a_rate_that_would_stop_everything_is_refused_with_its_name() {
        let config = QuotaConfig { tenant_fetch_bytes_per_second: 5, ..QuotaConfig::default() };
        let refusal = config.validate().unwrap_err();
        assert!(refusal.contains("quota.tenant_fetch_bytes_per_second = 5") && refusal.contains("1024"), "{refusal}");
        assert_eq!(QuotaConfig::default().validate(), Ok(()));
    }
}
