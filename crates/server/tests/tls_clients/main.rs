//! TLS with clients that are not ours: curl, mosquitto, paho, MQTT.js, kcat, Kafka's Java clients, redis-cli and Chromium.
//! `scripts/setup-clients` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod certificate_logins;
mod chromium;
mod clients;
mod command;
mod herd;
mod http;
mod java;
mod kafka;
mod mqtt;
mod redis;
mod refusals;
mod replaced;
mod running_client;
mod token_logins;
mod world;
