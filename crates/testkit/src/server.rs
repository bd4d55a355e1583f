//! A server as a test calls it: one of its own, or one that tests share.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use serde_json::Value;

use crate::{Answer, Target, ask};

/// A server as a test calls it: a [`crate::Process`] of its own in the tenant `default`, or a [`crate::TestTenant`] of a
/// shared one.
pub trait Server {
    /// The listener for applications, in the test's tenant.
    fn applications(&self) -> Target;

    /// The address of the listener for devices over HTTP.
    fn devices(&self) -> SocketAddr;

    /// The address of the listener for Kafka's clients.
    fn kafka(&self) -> SocketAddr;

    /// The address of the listener for devices over MQTT.
    fn mqtt(&self) -> SocketAddr;

    /// The address of the listener for Redis clients.
    fn redis(&self) -> SocketAddr;

    /// The test's tenant.
    fn tenant(&self) -> &'static str {
        self.applications().tenant.unwrap_or("default")
    }

    /// The URL of the listener for applications.
    fn applications_url(&self) -> String {
        format!("http://{}", self.applications().address)
    }

    /// Asks the listener for applications.
    fn get(&self, path: &str) -> Answer {
        ask(self.applications(), "GET", path, &[], b"")
    }

    /// The same; the JSON of an answer with 200.
    fn get_json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }
}
