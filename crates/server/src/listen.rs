//! The listeners: at which addresses each is reached, with and without TLS.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use millstream_net::LoginProtocol;
use millstream_net::{Endpoints, Metrics, ServerTls, TlsConfig};
use millstream_types::SystemClock;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The addresses of the listeners.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Listen {
    /// Console, registry, entities, queries, metrics: HOST:PORT or `off`. Default 127.0.0.1:8000.
    #[schemars(with = "String")]
    pub(crate) applications: Door,
    /// Devices over HTTP: HOST:PORT or `off`. Default 127.0.0.1:8080.
    #[schemars(with = "String")]
    pub(crate) devices_http: Door,
    /// Devices over MQTT: HOST:PORT or `off`. Default 127.0.0.1:1883.
    #[schemars(with = "String")]
    pub(crate) devices_mqtt: Door,
    /// Clients of the log that speak Kafka's protocol: HOST:PORT or `off`. Default 127.0.0.1:9092.
    #[schemars(with = "String")]
    pub(crate) kafka: Door,
    /// Clients of the store that speak the Redis protocol: HOST:PORT or `off`. Default 127.0.0.1:6379.
    #[schemars(with = "String")]
    pub(crate) redis: Door,
    /// Applications over AMQP 1.0: HOST:PORT or `off`. Default off; the usual port is 5672.
    #[schemars(with = "String")]
    pub(crate) amqp: Door,
    /// Console, registry, entities, queries, metrics with TLS: HOST:PORT or `off`. Default off.
    #[schemars(with = "String")]
    pub(crate) applications_tls: Door,
    /// Devices over HTTP with TLS: HOST:PORT or `off`. Default off; the usual port is 8443.
    #[schemars(with = "String")]
    pub(crate) devices_http_tls: Door,
    /// Devices over MQTT with TLS: HOST:PORT or `off`. Default off; the usual port is 8883.
    #[schemars(with = "String")]
    pub(crate) devices_mqtt_tls: Door,
    /// Clients of the log that speak Kafka's protocol with TLS: HOST:PORT or `off`. Default off.
    #[schemars(with = "String")]
    pub(crate) kafka_tls: Door,
    /// Clients of the store that speak the Redis protocol with TLS: HOST:PORT or `off`. Default off.
    #[schemars(with = "String")]
    pub(crate) redis_tls: Door,
    /// Applications over AMQP 1.0 with TLS: HOST:PORT or `off`. Default off; the usual port is 5671.
    #[schemars(with = "String")]
    pub(crate) amqp_tls: Door,
    /// Logins a minute that may fail from one client address (IPv6: from a /64 network), over all listeners together;
    /// further ones are refused unchecked. Wrong passwords of devices have it for each auth-id there, and ten times as
    /// many for all. API tokens that are right and logins that were right before always pass. 0 sets no limit. Default 100.
    pub(crate) login_failures_per_minute: u32,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            applications: Door::loopback(8000),
            devices_http: Door::loopback(8080),
            devices_mqtt: Door::loopback(1883),
            kafka: Door::loopback(9092),
            redis: Door::loopback(6379),
            amqp: Door::Off,
            applications_tls: Door::Off,
            devices_http_tls: Door::Off,
            devices_mqtt_tls: Door::Off,
            kafka_tls: Door::Off,
            redis_tls: Door::Off,
            amqp_tls: Door::Off,
            login_failures_per_minute: 100,
        }
    }
}

/// An address to listen on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// The listener is switched off.
    Off,
    /// Listens here; port 0 takes a free one.
    At(SocketAddr),
}

impl Door {
    fn loopback(port: u16) -> Self {
        Self::At(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(address) => Some(address),
        }
    }
}

impl std::str::FromStr for Door {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let address = text.replace("localhost:", "127.0.0.1:");
        address
            .parse()
            .map(Self::At)
            .map_err(|_| format!("'{text}' is no address: use HOST:PORT, such as 127.0.0.1:8000, or off"))
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl Serialize for Door {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Door {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The endpoints of each listener.
pub(crate) struct ListenerEndpoints {
    pub(crate) applications: Endpoints,
    pub(crate) devices_http: Endpoints,
    pub(crate) devices_mqtt: Endpoints,
    pub(crate) kafka: Endpoints,
    pub(crate) redis: Endpoints,
    pub(crate) amqp: Endpoints,
    /// The certificates, if a listener has an address with TLS.
    pub(crate) tls: Option<ServerTls>,
}

impl ListenerEndpoints {
    /// Reads the files of TLS if they are needed, and warns of addresses on networks without TLS.
    pub(crate) fn of(
        listen: &Listen,
        config: &TlsConfig,
        clock: &Arc<SystemClock>,
        metrics: &Metrics,
    ) -> anyhow::Result<Self> {
        let all_tls = [
            listen.applications_tls,
            listen.devices_http_tls,
            listen.devices_mqtt_tls,
            listen.kafka_tls,
            listen.redis_tls,
            listen.amqp_tls,
        ];
        let tls = all_tls.iter().any(|door| *door != Door::Off);
        let load = || ServerTls::load(config.clone(), clock.clone(), metrics).context("TLS cannot be offered");
        let tls = tls.then(load).transpose()?;
        let endpoints = |setting: &str, plain: Door, secured: Door| {
            warn_of_plain_text(setting, plain);
            let endpoints = plain.address().map_or_else(Endpoints::default, Endpoints::from);
            match secured.address().zip(tls.clone()) {
                Some((address, tls)) => endpoints.with_tls(address, tls),
                None => endpoints,
            }
        };
        Ok(Self {
            applications: endpoints("listen.applications", listen.applications, listen.applications_tls),
            devices_http: endpoints("listen.devices_http", listen.devices_http, listen.devices_http_tls)
                .logging_in_by_certificate(),
            devices_mqtt: endpoints("listen.devices_mqtt", listen.devices_mqtt, listen.devices_mqtt_tls)
                .logging_in_by_certificate(),
            kafka: endpoints("listen.kafka", listen.kafka, listen.kafka_tls),
            redis: endpoints("listen.redis", listen.redis, listen.redis_tls),
            amqp: endpoints("listen.amqp", listen.amqp, listen.amqp_tls),
            tls,
        })
    }

    /// The protocols by which clients log in to the listeners that are open.
    pub(crate) fn login_protocols(&self) -> Vec<LoginProtocol> {
        let serving = |protocol: &LoginProtocol| match protocol {
            LoginProtocol::Http => !self.applications.is_empty() || !self.devices_http.is_empty(),
            LoginProtocol::Mqtt => !self.devices_mqtt.is_empty(),
            LoginProtocol::Kafka => !self.kafka.is_empty(),
            LoginProtocol::Redis => !self.redis.is_empty(),
            LoginProtocol::Amqp => !self.amqp.is_empty(),
        };
        LoginProtocol::ALL.into_iter().filter(serving).collect()
    }
}

/// Warns of an address that other machines reach without TLS.
fn warn_of_plain_text(setting: &str, door: Door) {
    if let Some(address) = door.address().filter(|address| !address.ip().to_canonical().is_loopback()) {
        tracing::warn!(
            "{setting} = {address} is not encrypted: passwords, tokens and data can be read and changed on the network; use \
             {setting}_tls there, and {setting} on 127.0.0.1 or off"
        );
    }
}
