//! The listener for clients of the store that speak the Redis protocol.

use std::sync::Arc;
use std::time::Duration;

use millstream_http::{ApiTokens, Metrics};
use millstream_net::{ConnectionLimits, Endpoints, Serving};
use millstream_store::resp::{CONNECTION_BYTES, EventClass, KeyEvent, Listener, ListenerConfig};
use millstream_store::{Logins, RedisHost, Store, database_of};
use millstream_types::{LoginThrottle, MemoryBudget, Principal};

use crate::config::Config;

/// Starts to listen at all of the addresses.
pub(crate) fn listen(
    endpoints: Endpoints,
    config: &Config,
    store: &Arc<Store>,
    throttle: &Arc<LoginThrottle>,
    memory: &MemoryBudget,
    metrics: &Metrics,
) -> anyhow::Result<Serving> {
    let settings = &config.store.redis;
    let tokens = &config.applications.tokens;
    let logins: Option<Arc<dyn Logins>> =
        if tokens.is_empty() { None } else { Some(Arc::new(TokenLogins(ApiTokens::new(tokens)?))) };
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
    };
    let listener = Listener::bind(endpoints, host.clone(), of_listener)?;
    host.listens_on(listener.address().port());
    let clients = Arc::downgrade(listener.shared());
    store.on_expiry(move |tenant, bucket, keys| {
        let (Some(clients), Some(database)) = (clients.upgrade(), database_of(bucket)) else { return };
        for key in keys {
            let event = KeyEvent { class: EventClass::Expired, name: "expired", key: key.clone() };
            clients.notify(tenant.as_str(), database, &event);
        }
    });
    Ok(listener.serve(limits, metrics))
}

/// API tokens as names and passwords. A client that gives a password only is called `default`: the token is enough.
struct TokenLogins(ApiTokens);

impl Logins for TokenLogins {
    fn log_in(&self, name: &str, password: &[u8]) -> Option<Arc<Principal>> {
        let password = std::str::from_utf8(password).ok()?;
        let identity = match name {
            "default" => self.0.holder_of(password),
            _ => self.0.holder(name, password),
        };
        identity.map(|identity| identity.principal)
    }
}
