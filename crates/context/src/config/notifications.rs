//! Settings of notifications.

use millstream_outgoing::{InvalidSetting, Outgoing, OutgoingSettings};
use millstream_types::RemoteCallers;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Limits of subscriptions and of what is delivered for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NotificationsConfig {
    /// Subscriptions of one tenant; further ones are answered 429. Default 200,000.
    pub subscriptions_max: usize,
    /// Notifications that may wait for one subscription; beyond that the oldest are dropped. Default 10,000.
    pub queue_max: usize,
    /// Bytes of notifications that may wait for one subscription; beyond that the oldest are dropped. Default 16 MiB.
    pub queue_max_bytes: usize,
    /// Bytes of notifications that may wait for all subscriptions together, at most a quarter of `memory.budget_bytes`;
    /// beyond that each subscription keeps 16 notifications and no more than its part of these bytes. Default 256 MiB.
    pub total_max_bytes: usize,
    /// Largest message, in bytes; at most 1.5 MiB for stored notifications (`delivery.queue` is `durable`, or
    /// `throttled` is `latest`). Default 8 MiB.
    pub message_max_bytes: usize,
    /// Time that a receiver may take to answer if its subscription names no time, in milliseconds. Default 5,000.
    pub timeout_ms: u64,
    /// HTTP connections to one receiver, and records that are on their way to one Kafka cluster at a time. Default 16.
    pub connections_per_receiver: usize,
    /// Seconds after which an idle connection to an MQTT broker is closed. Default 3,600.
    pub mqtt_idle_s: u64,
    /// Seconds after which idle connections to the brokers of a Kafka cluster are closed. Default 2,592,000, 30 days.
    pub kafka_idle_s: u64,
    /// Pause before a failed delivery is tried again, in milliseconds; it doubles with each attempt. Default 100.
    pub retry_first_ms: u64,
    /// Longest pause before a failed delivery is tried again, in milliseconds. Default 30,000.
    pub retry_longest_ms: u64,
    /// Flow control of updates with `options=flowControl`: `gauge:step:max`. The gauge is the part of the notifications
    /// to wait for, 0 none and 1 all; step and max are milliseconds. Default empty: replies do not wait.
    pub flow_control: String,
    /// If `true`, the log has a line each time an alarm is raised; otherwise only its first occurrence and its
    /// end are logged. Default false.
    pub relog_alarms: bool,
    /// If `true`, custom targets of subscriptions apply their templates; if not, they
    /// receive plain notifications. Default true.
    pub custom: bool,
    /// Hosts that notifications may be sent to: names, `*.` and a domain, addresses, networks such as `10.0.0.0/8`, and the
    /// words `public` and `private`. Default empty: public addresses, and private ones while no caller logs in.
    pub allowed_targets: Vec<String>,
    /// File (PEM) of certificate authorities that are trusted for receivers over TLS, beside the system's.
    /// Default empty: the system's only.
    pub ca_file: String,
    /// If `true`, receivers over TLS are accepted without a check of their certificate; use it
    /// for tests only. Default false.
    pub insecure: bool,
}

impl Default for NotificationsConfig {
    fn default() -> Self {
        Self {
            subscriptions_max: 200_000,
            queue_max: 10_000,
            queue_max_bytes: 16 << 20,
            total_max_bytes: 256 << 20,
            message_max_bytes: 8 << 20,
            timeout_ms: 5_000,
            connections_per_receiver: 16,
            mqtt_idle_s: 3_600,
            kafka_idle_s: 30 * 24 * 3_600,
            retry_first_ms: 100,
            retry_longest_ms: 30_000,
            flow_control: String::new(),
            relog_alarms: false,
            custom: true,
            allowed_targets: Vec::new(),
            ca_file: String::new(),
            insecure: false,
        }
    }
}

impl NotificationsConfig {
    /// The rules for connections to receivers.
    pub(crate) fn outgoing(&self, callers: RemoteCallers) -> Result<Outgoing, Error> {
        let settings = OutgoingSettings {
            allowed_setting: "context.notifications.allowed_targets",
            allowed: &self.allowed_targets,
            ca_setting: "context.notifications.ca_file",
            ca_file: &self.ca_file,
            insecure: self.insecure,
        };
        let outgoing = Outgoing::new(&settings, callers);
        outgoing.map_err(|InvalidSetting { setting, value, rule }| Error::InvalidSetting { setting, value, rule })
    }

    /// Checks each setting by itself.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        let rules = [
            ("context.notifications.queue_max", self.queue_max as u64),
            ("context.notifications.queue_max_bytes", self.queue_max_bytes as u64),
            ("context.notifications.message_max_bytes", self.message_max_bytes as u64),
            ("context.notifications.timeout_ms", self.timeout_ms),
            ("context.notifications.connections_per_receiver", self.connections_per_receiver as u64),
            ("context.notifications.retry_first_ms", self.retry_first_ms),
            ("context.notifications.retry_longest_ms", self.retry_longest_ms),
        ];
        match rules.into_iter().find(|(_, value)| *value == 0) {
            None => Ok(()),
            Some((setting, value)) => {
                Err(Error::InvalidSetting { setting, value: value.to_string(), rule: "use 1 or more" })
            }
        }
    }
}
