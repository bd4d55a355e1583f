//! How fast clients and tenants may write and read.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{MonotonicClock, TenantId};

/// What a client or tenant may use at once after a rest, as time of its rate.
const BURST: Duration = Duration::from_secs(1);
/// Clients and tenants whose use is remembered; those behind them share one account for each tenant.
const ACCOUNTS_MAX: usize = 10_000;
/// The smallest rate: below it a single record would take hours.
const RATE_MIN: u64 = 1024;

/// Bytes a second that may be written and read; 0 sets no limit. Of a client: what its user, or without authentication
/// the name that it gives itself, does over all connections. Of a tenant: what all its clients do together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaConfig {
    /// Bytes a second that one client may append, over Kafka's protocol or HTTP. Default 0: no limit.
    pub client_produce_bytes_per_second: u64,
    /// Bytes a second that one client may fetch over Kafka's protocol. Default 0: no limit.
    pub client_fetch_bytes_per_second: u64,
    /// Bytes a second that all clients of a tenant may append together. Default 0: no limit.
    pub tenant_produce_bytes_per_second: u64,
    /// Bytes a second that all clients of a tenant may fetch together. Default 0: no limit.
    pub tenant_fetch_bytes_per_second: u64,
}

impl QuotaConfig {
    fn limits(&self) -> [(Traffic, Of, Limit); 4] {
        let limit = |setting, rate| Limit { setting, rate };
        [
            (
                Traffic::Produce,
                Of::Client,
                limit("quota.client_produce_bytes_per_second", self.client_produce_bytes_per_second),
            ),
            (
                Traffic::Fetch,
                Of::Client,
                limit("quota.client_fetch_bytes_per_second", self.client_fetch_bytes_per_second),
            ),
            (
                Traffic::Produce,
                Of::Tenant,
                limit("quota.tenant_produce_bytes_per_second", self.tenant_produce_bytes_per_second),
            ),
            (
                Traffic::Fetch,
                Of::Tenant,
                limit("quota.tenant_fetch_bytes_per_second", self.tenant_fetch_bytes_per_second),
            ),
        ]
    }

    /// Checks each rate by itself.
    ///
    /// # Errors
    /// A sentence that names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), String> {
        let low = self.limits().into_iter().find(|(_, _, limit)| (1..RATE_MIN).contains(&limit.rate));
        low.map_or(Ok(()), |(_, _, Limit { setting, rate })| {
            Err(format!("{setting} = {rate}: use at least {RATE_MIN}, or 0 for no limit"))
        })
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// Bytes that come in to be appended.
    Produce,
    /// Bytes of records that go out.
    Fetch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Of {
    Client,
    Tenant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    setting: &'static str,
    rate: u64,
}

/// A limit that has been used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// The setting that says the limit.
    pub setting: &'static str,
    /// Bytes a second that it allows.
    pub rate: u64,
    /// How long nothing more should come.
    pub wait: Duration,
}

/// Which account a use is put to: of a client, or (without a name) of a tenant.
type Account = (Traffic, TenantId, Option<Arc<str>>);

/// What clients and tenants have used of their limits. One for the process, so that a limit holds over all listeners.
///
/// Each account has a time at which all that it used is paid off at its rate; that time may lie up to a second back.
/// Who waits as told uses over any span of `t` seconds at most `rate * (t + 1)` and the one use that went beyond it.
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
    /// Limits of which nothing is used yet.
    pub fn new(config: QuotaConfig, clock: Arc<dyn MonotonicClock>) -> Arc<Self> {
        Arc::new(Self { config, clock, paid_at: Mutex::default() })
    }

    /// Puts a use of `bytes` to the accounts of a client and its tenant. What has to be waited for, if anything.
    pub fn charge(&self, traffic: Traffic, tenant: &TenantId, client: &str, bytes: u64) -> Option<Excess> {
        self.look(&mut self.paid_at.lock(), traffic, tenant, client, bytes)
    }

    /// What has to be waited for, if anything, before there may be a further use.
    pub fn excess(&self, traffic: Traffic, tenant: &TenantId, client: &str) -> Option<Excess> {
        self.look(&mut self.paid_at.lock(), traffic, tenant, client, 0)
    }

    /// As [`Quotas::charge`] if nothing has to be waited for before.
    ///
    /// # Errors
    /// What has to be waited for; then nothing was put to any account.
    pub fn admit(&self, traffic: Traffic, tenant: &TenantId, client: &str, bytes: u64) -> Result<(), Excess> {
        let mut paid_at = self.paid_at.lock();
        self.look(&mut paid_at, traffic, tenant, client, 0).map_or(Ok(()), Err)?;
        self.look(&mut paid_at, traffic, tenant, client, bytes);
        Ok(())
    }

    fn look(
        &self,
        paid_at: &mut HashMap<Account, Duration>,
        traffic: Traffic,
        tenant: &TenantId,
        client: &str,
        bytes: u64,
    ) -> Option<Excess> {
        let now = self.clock.now();
        let limits = self.config.limits().into_iter().filter(|(of, _, limit)| *of == traffic && limit.rate > 0);
        let excesses = limits.filter_map(|(_, of, limit)| {
            let account = (traffic, tenant.clone(), (of == Of::Client).then(|| client.into()));
            let wait = pay(paid_at, account, now, limit.rate, bytes).saturating_sub(now);
            (!wait.is_zero()).then_some(Excess { setting: limit.setting, rate: limit.rate, wait })
        });
        excesses.max_by_key(|excess| excess.wait)
    }
}

/// Puts `bytes` to an account; when it is paid off.
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
    fn a_client_that_waits_as_it_is_told_uses_its_rate_exactly_and_others_their_own() {
        let (quotas, clock) = quotas(0);
        let tenant = TenantId::default();
        let start = clock.now();
        let mut sent = 0;
        while sent < 50 * CLIENT {
            sent += 3_333;
            let excess = quotas.charge(Traffic::Produce, &tenant, "a", 3_333);
            clock.advance(excess.map_or(Duration::ZERO, |excess| excess.wait));
        }
        let used = (clock.now() - start).as_secs_f64() * CLIENT as f64;
        // All but what a second of rest had saved up.
        assert!((used + CLIENT as f64 - sent as f64).abs() < 1.0, "{used} of {sent}");
        assert_eq!(quotas.charge(Traffic::Produce, &tenant, "b", CLIENT), None);
        assert_eq!(quotas.charge(Traffic::Fetch, &tenant, "a", 1 << 40), None, "no limit is set");
        let excess = quotas.charge(Traffic::Produce, &tenant, "b", CLIENT).unwrap();
        let expected = ("quota.client_produce_bytes_per_second", CLIENT, Duration::from_secs(1));
        assert_eq!((excess.setting, excess.rate, excess.wait), expected);
        assert_eq!(quotas.excess(Traffic::Produce, &tenant, "b"), Some(excess), "looking uses nothing");
        assert_eq!(quotas.admit(Traffic::Produce, &tenant, "b", 1), Err(excess));
        clock.advance(excess.wait);
        assert_eq!(quotas.admit(Traffic::Produce, &tenant, "b", CLIENT), Ok(()));
        assert!(quotas.admit(Traffic::Produce, &tenant, "b", 1).is_err());
    }

    #[test]
    fn a_tenants_limit_holds_for_all_its_clients_together() {
        let (quotas, _) = quotas(15_000);
        let (one, other) = (TenantId::default(), TenantId::new("acme").unwrap());
        assert_eq!(quotas.charge(Traffic::Produce, &one, "a", CLIENT), None);
        let excess = quotas.charge(Traffic::Produce, &one, "b", CLIENT).unwrap();
        assert_eq!(excess.setting, "quota.tenant_produce_bytes_per_second");
        assert_eq!(quotas.charge(Traffic::Produce, &other, "a", CLIENT), None);
    }

    #[test]
    fn what_is_remembered_stays_bounded_and_no_client_escapes_by_a_new_name() {
        let (quotas, _) = quotas(0);
        let tenant = TenantId::default();
        for number in 0..ACCOUNTS_MAX {
            quotas.charge(Traffic::Produce, &tenant, &format!("c-{number}"), CLIENT);
        }
        assert_eq!(quotas.charge(Traffic::Produce, &tenant, "new", CLIENT), None);
        assert!(quotas.charge(Traffic::Produce, &tenant, "newer", CLIENT).is_some());
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
