//! The plane over real sockets, on a real log with four partitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
#[path = "../../../http/tests/pipeline/answer.rs"]
mod answer;
mod command_http;
mod command_mqtt;
mod command_world;
mod declared_topics;
mod gate;
mod hostile_http;
mod http_rows;
mod large_packets;
mod limits;
#[path = "../../../kafka/tests/listener/log_lines.rs"]
mod log_lines;
mod login_throttle;
mod logins;
mod mapping;
mod mapping_devices;
mod messages;
mod mqtt;
mod mqtt_client;
mod mqtt_rows;
mod orphans;
mod private;
mod private_sessions;
mod provisioning;
mod refusals;
mod registry_api;
mod registry_connected;
mod registry_credentials;
mod registry_model;
mod registry_pages;
mod registry_search;
#[path = "../../../context/tests/context/rows.rs"]
mod rows;
mod signer;
mod strangers;
mod subscription_limits;
mod token_logins;
mod user_properties;
mod websockets;
mod world;
