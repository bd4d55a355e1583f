//! The listener of devices over MQTT.

use std::sync::Arc;

use millstream_net::{BindError, ConnectionLimits, Endpoints, Listener, LoginTimeout, Metrics, Serving};
use millstream_types::MemoryBudget;
use tokio::sync::watch;

use super::adapter::MqttAdapter;
use super::protocol::Mqtt;
use super::signals::Signals;
use super::websocket::Guests;
use crate::Error;

/// Binds the addresses (port 0 takes any free port) and starts to serve. Devices log in unless their tenant itself says that they
/// need not, so any address may be listened on. Clients that come through the HTTP listener are `guests`.
pub(crate) fn listen(
    endpoints: Endpoints,
    adapter: Arc<MqttAdapter>,
    guests: &Guests,
    memory: &MemoryBudget,
    metrics: &Metrics,
) -> Result<Serving, Error> {
    let bind =
        |BindError { address, source }| Error::Bind { listener: "devices-mqtt", address, source: Arc::new(source) };
    let listener = Listener::bind("devices-mqtt", endpoints).map_err(bind)?;
    let (changed, registry) = watch::channel(0);
    tokio::spawn(Arc::clone(&adapter).watch_registry(changed));
    let signals = Signals { shutdown: listener.shutdown().clone(), registry: registry.clone() };
    let (swept, left) = (Arc::clone(&adapter), guests.clone());
    tokio::spawn(async move {
        swept.sweep(signals).await;
        left.close();
    });
    let limits = ConnectionLimits {
        connections_max: adapter.config.connections_max,
        setting: "connect.mqtt.connections_max",
        // Without TLS a connection takes memory for what it sends and receives only.
        connection_bytes: 0,
        memory: memory.clone(),
        login_timeout: LoginTimeout {
            setting: "connect.mqtt.connect_timeout_ms",
            limit_ms: adapter.config.connect_timeout_ms,
        },
    };
    let (serving, door) = listener.serve(Arc::new(Mqtt { adapter, registry }), limits, metrics);
    guests.open(door);
    Ok(serving)
}
