//! Limits of notifications.

use serde::{Deserialize, Serialize};

use crate::Error;

/// Limits of subscriptions and of what is delivered for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotificationsConfig {
    /// Subscriptions of one tenant; further ones are answered 429. Default 200,000.
    pub subscriptions_max: usize,
    /// Notifications that may wait for one subscription; the oldest go. Default 10,000.
    pub queue_max: usize,
    /// Bytes that may wait for one subscription; the oldest go. Default 16 MiB.
    pub queue_max_bytes: usize,
    /// Bytes that may wait for all; beyond it a subscription keeps 16 notifications. Default 256 MiB.
    pub total_max_bytes: usize,
    /// Largest message, in bytes; where what waits is stored (`delivery.queue` is `durable`, or `throttled` is `latest`) at
    /// most 1.5 MiB. Default 8 MiB.
    pub message_max_bytes: usize,
    /// Time that a receiver has to answer if its subscription says nothing else, in milliseconds. Default 5,000.
    pub timeout_ms: u64,
    /// Connections to one receiver over HTTP. Default 16.
    pub connections_per_receiver: usize,
    /// Seconds after which an idle connection to an MQTT broker is closed. Default 3,600.
    pub mqtt_idle_s: u64,
    /// Pause before a failed attempt is made again, in milliseconds; it doubles each time. Default 100.
    pub retry_first_ms: u64,
    /// Longest such pause, in milliseconds. Default 30,000.
    pub retry_longest_ms: u64,
    /// How the answer to an update with `options=flowControl` waits for its notifications: `gauge:step:max`. The gauge is the
    /// part that is waited for, 0 none and 1 all; step and max are milliseconds. Default none: it does not wait.
    pub flow_control: String,
    /// Whatever raises an alarm has a line in the log, not only the first and the end of a row of them. Default false.
    pub relog_alarms: bool,
    /// Custom targets act as such; else as the plain ones. Default true.
    pub custom: bool,
    /// Hosts that notifications may go to: names, `*.` and a domain, addresses, networks such as `10.0.0.0/8`. Default empty: all.
    pub allowed_targets: Vec<String>,
    /// File of certificates (PEM) of authorities that receivers over TLS are trusted by, beside the system's. Default empty.
    pub ca_file: String,
    /// Receivers over TLS are trusted whoever they are. Default false.
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
