//! Limits of the context plane.

mod notifications;
mod registrations;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use std::time::Duration;

use axum::http::HeaderValue;
use millstream_http::{Cors, Limits, Origins};
use millstream_types::Compression;

pub use notifications::NotificationsConfig;
pub use registrations::RegistrationsConfig;

use crate::Error;
use crate::flow_control::FlowControl;

const ENTITY_LIMIT_BYTES: usize = 1 << 20;
const MEASURED_ENTITY_LIMIT_BYTES: usize = 64 << 10;

/// Request headers that pages of other origins may send.
const CORS_ALLOWED: &str = "Authorization, Content-Type, Fiware-Service, Fiware-Servicepath, Ngsiv2-AttrsFormat, \
    Fiware-Correlator, X-Forwarded-For, X-Real-IP, X-Auth-Token, If-Match, If-None-Match";
const CORS_EXPOSED: &str = "Fiware-Correlator, Fiware-Total-Count, Location, ETag";

/// Limits of the context plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ContextConfig {
    /// Partitions of the entities' state; fixed when the data directory is made. Default 4.
    pub partitions: u32,
    /// Bytes of entity changes that may be on their way to the log or missing from their checkpoint; further
    /// changes wait. Default 128 MiB.
    pub dirty_max_bytes: usize,
    /// Bytes of changes that may wait for a decision, over all partitions; further ones are
    /// answered 503. Default 32 MiB.
    pub inbox_max_bytes: usize,
    /// Tenants that may have entities. Each has its own change topic. Default 1,000.
    pub tenants_max: usize,
    /// Compression of the changes in `context.<tenant>`: `none`, `gzip`, `snappy`, `lz4`, `zstd`. Applies to all
    /// tenants from the start of the process; stored batches stay as they are. Default `zstd`, which takes the least
    /// space but which some clients lack.
    pub change_compression: String,
    /// Largest body of a request, in bytes. Default 1 MiB.
    pub body_max_bytes: u64,
    /// Largest entity that a request may make, in bytes of its normalized JSON, at most 1 MiB. Default 1 MiB.
    pub entity_max_bytes: usize,
    /// Largest entity that a measurement may make, in bytes of its normalized JSON, at most 64 KiB. Default 64 KiB.
    pub measured_entity_max_bytes: usize,
    /// Largest page of a list, in bytes. Default 32 MiB.
    pub page_max_bytes: usize,
    /// Time that a request may take, in milliseconds. Default 10,000.
    pub timeout_ms: u64,
    /// Lists of more than 64 entities that may wait to be rendered; further ones are answered 503. One
    /// tenant takes no more of these places than it leaves free. Default 512.
    pub lists_max_waiting: usize,
    /// Attributes of a tenant whose values are indexed because they are queried; further ones are not. Default 64.
    pub indexed_attributes_max: usize,
    /// The origin whose pages may call `/v2`, as `scheme://host[:port]`; `__ALL` for any. Default none.
    pub cors_origin: String,
    /// Time that browsers may remember what pages of `context.cors_origin` are allowed, in seconds. Default 86,400.
    pub cors_max_age_s: u32,
    /// Pairs of tenant and service path that `/admin/metrics` counts separately; requests of further ones are in the sum
    /// only. 0 counts nothing. Default 1,000.
    pub metrics_max: usize,
    /// If `true`, `/statistics` counts requests by route and method. Default false.
    pub stat_counters: bool,
    /// If `true`, `/statistics` shows how long requests took. Default false.
    pub stat_timing: bool,
    /// If `true`, `/statistics` counts notifications by their outcome. Default false.
    pub stat_notif_queue: bool,
    /// If `true`, the log names callers that use deprecated features. Default false.
    pub log_deprecate: bool,
    /// Seconds between summaries of requests and alarms in the log, at level INFO; 0 writes none. Default 0.
    pub log_summary_s: u64,
    /// Threads that turn telemetry into entities. Default 1.
    pub telemetry_threads: usize,
    /// Limits of subscriptions and of their deliveries.
    pub notifications: NotificationsConfig,
    /// Limits of registrations, and of requests to context providers.
    pub registrations: RegistrationsConfig,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            partitions: 4,
            dirty_max_bytes: 128 << 20,
            inbox_max_bytes: 32 << 20,
            tenants_max: 1_000,
            change_compression: Compression::Zstd.as_str().to_owned(),
            body_max_bytes: 1 << 20,
            entity_max_bytes: ENTITY_LIMIT_BYTES,
            measured_entity_max_bytes: MEASURED_ENTITY_LIMIT_BYTES,
            page_max_bytes: 32 << 20,
            timeout_ms: 10_000,
            lists_max_waiting: 512,
            indexed_attributes_max: 64,
            cors_origin: String::new(),
            cors_max_age_s: 86_400,
            metrics_max: 1_000,
            stat_counters: false,
            stat_timing: false,
            stat_notif_queue: false,
            log_deprecate: false,
            log_summary_s: 0,
            telemetry_threads: 1,
            notifications: NotificationsConfig::default(),
            registrations: RegistrationsConfig::default(),
        }
    }
}

impl ContextConfig {
    /// The limits of one request. A route without a body skips the body, because some clients send an empty one.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            body_max_bytes: self.body_max_bytes,
            body_max_setting: "context.body_max_bytes",
            timeout: Duration::from_millis(self.timeout_ms),
        }
    }

    pub(crate) fn change_codec(&self) -> Result<Compression, Error> {
        Compression::from_name(&self.change_compression).ok_or_else(|| {
            let (setting, value) = ("context.change_compression", self.change_compression.clone());
            Error::InvalidSetting { setting, value, rule: "use none, gzip, snappy, lz4 or zstd" }
        })
    }

    /// The CORS rules for `/v2`; `None` if no other origin is allowed.
    pub(crate) fn cors(&self) -> Result<Option<Cors>, Error> {
        let origins = match self.cors_origin.as_str() {
            "" => return Ok(None),
            "__ALL" => Origins::Any,
            origin => match HeaderValue::from_str(origin) {
                Ok(origin) => Origins::Of(vec![origin]),
                Err(_) => {
                    let (setting, value) = ("context.cors_origin", origin.to_owned());
                    return Err(Error::InvalidSetting { setting, value, rule: "use __ALL or scheme://host:port" });
                }
            },
        };
        Ok(Some(Cors {
            origins,
            allowed_headers: HeaderValue::from_static(CORS_ALLOWED),
            exposed_headers: HeaderValue::from_static(CORS_EXPOSED),
            max_age_s: self.cors_max_age_s,
        }))
    }

    /// Checks each setting by itself.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        let rules = [
            ("context.partitions", self.partitions as usize, 1..=10_000, "use 1 to 10000"),
            ("context.entity_max_bytes", self.entity_max_bytes, 1_024..=ENTITY_LIMIT_BYTES, "use 1024 to 1048576"),
            (
                "context.measured_entity_max_bytes",
                self.measured_entity_max_bytes,
                1_024..=MEASURED_ENTITY_LIMIT_BYTES,
                "use 1024 to 65536",
            ),
            ("context.tenants_max", self.tenants_max, 1..=100_000, "use 1 to 100000"),
            ("context.metrics_max", self.metrics_max, 0..=100_000, "use 0 to 100000"),
            ("context.telemetry_threads", self.telemetry_threads, 1..=64, "use 1 to 64"),
        ];
        self.cors()?;
        self.change_codec()?;
        FlowControl::read(&self.notifications.flow_control, self.timeout_ms)?;
        match rules.into_iter().find(|(_, value, legal, _)| !legal.contains(value)) {
            None => self.notifications.validate().and_then(|()| self.registrations.validate()),
            Some((setting, value, _, rule)) => Err(Error::InvalidSetting { setting, value: value.to_string(), rule }),
        }
    }
}
