//! The listener for clients of the store that speak the Redis protocol.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use millstream_http::Metrics;
use millstream_net::LoginThrottle;
use millstream_net::{ConnectionLimits, Endpoints, LoginTimeout, Serving};
use millstream_store::resp::{self, CONNECTION_BYTES, EventClass, KeyEvent, Listener, ListenerConfig};
use millstream_store::{KeyLoss, KeyLossListener, Logins, RedisHost, Store, database_of};
use millstream_types::{MemoryBudget, TenantId};

use crate::config::Config;
use crate::tokens::Tokens;

/// Starts to listen at all of the addresses.
pub(crate) fn listen(
    endpoints: Endpoints,
    config: &Config,
    tokens: &Arc<Tokens>,
    store: &Arc<Store>,
    throttle: &Arc<LoginThrottle>,
    memory: &MemoryBudget,
    metrics: &Metrics,
) -> anyhow::Result<Serving> {
    let settings = &config.store.redis;
    let logins: Arc<dyn Logins> = tokens.clone();
    let host = Arc::new(RedisHost::new(Arc::clone(store), logins, Arc::clone(throttle), env!("CARGO_PKG_VERSION")));
    let of_listener = ListenerConfig {
        request_max_bytes: settings.request_max_bytes,
        write_timeout: Duration::from_millis(settings.write_timeout_ms),
    };
    let limits = ConnectionLimits {
        setting: "store.redis.connections_max",
        connections_max: settings.connections_max,
        memory: memory.clone(),
        connection_bytes: CONNECTION_BYTES,
        login_timeout: LoginTimeout { setting: "store.redis.login_timeout_ms", limit_ms: settings.login_timeout_ms },
    };
    let listener = Listener::bind(endpoints, host.clone(), of_listener, memory)?;
    host.listens_on(listener.address().port());
    let clients = Arc::downgrade(listener.shared());
    store.on_key_loss(KeyEvents(clients));
    Ok(listener.serve(limits, metrics))
}

/// Keyspace events of keys that buckets remove by themselves.
struct KeyEvents(Weak<resp::Shared>);

impl KeyEvents {
    fn event(loss: KeyLoss) -> (EventClass, &'static str) {
        match loss {
            KeyLoss::Expired => (EventClass::Expired, "expired"),
            KeyLoss::Evicted => (EventClass::Evicted, "evicted"),
        }
    }
}

impl KeyLossListener for KeyEvents {
    fn wants(&self, tenant: &TenantId, loss: KeyLoss) -> bool {
        self.0.upgrade().is_some_and(|clients| clients.publishes(tenant.as_str(), Self::event(loss).0))
    }

    fn lost(&self, tenant: &TenantId, bucket: &str, loss: KeyLoss, keys: &[Bytes]) {
        let (Some(clients), Some(database)) = (self.0.upgrade(), database_of(bucket)) else { return };
        let (class, name) = Self::event(loss);
        for key in keys {
            clients.notify(tenant.as_str(), database, &KeyEvent { class, name, key: key.clone() });
        }
    }
}
