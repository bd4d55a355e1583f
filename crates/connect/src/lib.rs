//! Devices speak HTTP and MQTT, LoRaWAN network servers speak for theirs; we hear records.
//!
//! [`Connect`] is the registry of tenants, devices and credentials with its management API, and the adapters by which
//! devices send telemetry and events. What it takes becomes a record of `telemetry.<tenant>` or `event.<tenant>`, under
//! the names that users of Eclipse Hono know. What applications write to `command.<tenant>` it hands to devices.
//!
//! ```no_run
//! use std::sync::Arc;
//! use millstream_connect::{Connect, ConnectConfig};
//! use millstream_http::{Api, Metrics};
//!
//! # fn open(ground: millstream_view::ViewRuntime, clock: Arc<millstream_types::SystemClock>) -> Result<(), Box<dyn std::error::Error>> {
//! let metrics = Metrics::default();
//! let connect = Connect::open(&ground, &ConnectConfig::default(), Arc::new(()), Arc::default(), clock, &metrics)?;
//! let [registry, connections, commands] = connect.application_routes();
//! let applications = Api::builder("applications", "Millstream", "1").with(registry).with(connections).with(commands).build(&metrics)?;
//! let devices = Api::builder("devices", "Devices", "1");
//! let devices = connect.device_routes().into_iter().fold(devices, |api, routes| api.with(routes)).build(&metrics)?;
//! // Each on its listener; that of devices with `connect.device_authenticator()`. Then, at the end:
//! connect.stop();
//! # Ok(()) }
//! ```
//!
//! Not here: what a message means (`context`, `query`), where records are kept (`log`).

mod adapter;
mod amqp;
mod commands;
mod config;
mod connect;
mod connection_table;
mod connections;
mod content_type;
mod cors;
mod credential_cache;
mod error;
mod framed_io;
mod http;
mod ingest;
mod jwt;
mod last_seen;
mod login;
mod lora;
mod management;
mod metrics;
mod mqtt;
mod outgoing;
mod password;
mod period;
mod presence;
mod provisioning;
mod rate_limit;
mod recent_appends;
mod refusal;
mod registry;
mod sender;
mod stream;
mod streams;
mod tenant_counter;
mod timestamp;
mod topic_filter;
mod uplink;
mod usage;

pub use amqp::AmqpConfig;
pub use commands::CommandsConfig;
pub use config::ConnectConfig;
pub use connect::{Connect, ConnectStats};
pub use error::Error;
pub use http::HttpAdapterConfig;
pub use lora::LoraConfig;
pub use mqtt::{BrokerConfig, MqttConfig};
pub use registry::{AuthId, Defaults, Device, DeviceId, ExtRules, ID_MAX_CHARS, IdError, Registry, Tenant};
