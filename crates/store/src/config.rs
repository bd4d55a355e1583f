//! The settings of the plane, and those of a bucket.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use millstream_log::AckLevel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::EvictionPolicy;

/// Settings of the store (`store` in the configuration file).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Longest key, in bytes. Default 1,024.
    pub key_max_bytes: usize,
    /// Most buckets of all tenants together. Default 256.
    pub buckets_max: usize,
    /// Most buckets of one tenant. Default 128.
    pub buckets_per_tenant_max: usize,
    /// Most uploads of one tenant that are neither committed nor given up. Default 10,000.
    pub uploads_per_tenant_max: usize,
    /// Threads that read values from the disk; 0 takes twice as many as cores. Default 0.
    pub read_threads: usize,
    /// Most reads that wait for one of these threads; further ones are refused. One tenant
    /// takes no more of these places than it leaves free. Default 32,768.
    pub reads_waiting_max: usize,
    /// Bytes of writes of all buckets together that wait for their owners; further ones are refused. Set aside of
    /// `memory.budget_bytes` at start. Default 32 MiB.
    pub inbox_max_bytes: usize,
    /// Bytes of changes of all buckets together that may be in flight or missing from the checkpoint before writes wait. A
    /// batch of writes takes 8 MiB of it while it is decided. Set aside of `memory.budget_bytes` at start. Default 128 MiB.
    pub dirty_max_bytes: usize,
    /// Clients that speak the Redis protocol.
    pub redis: RedisConfig,
    /// Time between two looks for keys that have expired, to remove them, in milliseconds. They are gone for
    /// readers at once. Default 100.
    pub expiry_interval_ms: u64,
    /// Age from which on an upload that is neither committed nor given up is removed, in
    /// milliseconds. Default 86,400,000: a day.
    pub upload_max_age_ms: u64,
    /// Time for which the parts of a large value that was replaced or deleted wait for those who still read it, in
    /// milliseconds. What is read for longer is cut. Default 3,600,000: an hour.
    pub part_hold_max_ms: u64,
    /// Statistics of the store (`/stats/{category}`).
    pub stats: StatsConfig,
    /// Serves the routes of Elliptics' proxy Rift, such as `/get/{bucket}/{key}`, beside `/kv`. Default false.
    pub rift: bool,
}

/// Settings of the store's statistics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StatsConfig {
    /// Most keys in the list of the hottest keys. Default 50.
    pub top_length: usize,
    /// Bytes of memory for the counters of a bucket's hottest keys, in each of two periods; 0
    /// counts none. Default 64 KiB.
    pub top_events_bytes: usize,
    /// Period of the hottest keys and of the past copies of the histograms, in seconds. Default 60.
    pub period_s: u64,
    /// Time that a provider of this program has for its part, in milliseconds; without it, it
    /// is cut off. Default 1,000.
    pub deadline_ms: u64,
    /// Other programs that have a part in the statistics.
    pub external: Vec<ExternalProvider>,
}

impl Default for StatsConfig {
    fn default() -> Self {
        Self { top_length: 50, top_events_bytes: 64 << 10, period_s: 60, deadline_ms: 1_000, external: Vec::new() }
    }
}

/// Another program that answers JSON for a part of the statistics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalProvider {
    /// Its name in the statistics, and in `/stats/{name}`.
    pub name: String,
    /// Its place: `http://127.0.0.1:PORT/PATH`, or the absolute path of a Unix socket that sends JSON to
    /// each connection and closes it.
    pub url: String,
    /// Time that it has for an answer, in milliseconds; without one, it is cut off. Default 500.
    #[serde(default = "external_deadline_ms")]
    pub deadline_ms: u64,
}

fn external_deadline_ms() -> u64 {
    500
}

/// The place of an external provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExternalPlace {
    Http { address: SocketAddr, path: String },
    Socket(PathBuf),
}

impl ExternalProvider {
    /// Reads the address and path, or the socket, out of `url`.
    ///
    /// # Errors
    /// The rule that it breaks, with the value.
    pub(crate) fn place(&self) -> Result<ExternalPlace, String> {
        let Self { name, url, .. } = self;
        let fault = || {
            format!(
                "store.stats.external '{name}': url \"{url}\" is neither http:// with an address of this machine nor the \
                 absolute path of a Unix socket; use http://127.0.0.1:PORT/PATH or /PATH/OF/SOCKET"
            )
        };
        if url.starts_with('/') {
            return Ok(ExternalPlace::Socket(PathBuf::from(url)));
        }
        let rest = url.strip_prefix("http://").ok_or_else(fault)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let authority = authority.replace("localhost:", "127.0.0.1:");
        let address: SocketAddr = authority.parse().map_err(|_| fault())?;
        let is_path = path.bytes().all(|byte| byte.is_ascii_graphic());
        if !address.ip().is_loopback() || !is_path {
            return Err(fault());
        }
        Ok(ExternalPlace::Http { address, path: format!("/{path}") })
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            key_max_bytes: 1_024,
            buckets_max: 256,
            buckets_per_tenant_max: 128,
            uploads_per_tenant_max: 10_000,
            read_threads: 0,
            reads_waiting_max: 32_768,
            inbox_max_bytes: 32 << 20,
            dirty_max_bytes: 128 << 20,
            redis: RedisConfig::default(),
            expiry_interval_ms: 100,
            upload_max_age_ms: 86_400_000,
            part_hold_max_ms: 3_600_000,
            stats: StatsConfig::default(),
            rift: false,
        }
    }
}

/// Settings of the listener for the Redis protocol.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// Most connections at a time that have logged in, which tenants share. Default 10,000.
    pub connections_max: usize,
    /// Most bytes of requests of a connection that are not answered yet; it is closed beyond. Default 64 MiB.
    pub request_max_bytes: u64,
    /// Time in which a client must take what it is sent, in milliseconds. Default 60,000.
    pub write_timeout_ms: u64,
    /// Time that a client has until its login, in milliseconds; without logins, until its first request. Default 10,000.
    pub login_timeout_ms: u64,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            request_max_bytes: 64 << 20,
            write_timeout_ms: 60_000,
            login_timeout_ms: 10_000,
        }
    }
}

/// The durability of a write when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// Accepted in memory; a crash of the process may lose it.
    Memory,
    /// Written to the log; it survives `kill -9`, and a loss of power may lose it.
    Written,
    /// Synced to disk; it survives a loss of power.
    #[default]
    Synced,
}

impl Ack {
    /// Parses a level by its name; `all` is the strongest that there is.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "memory" => Some(Self::Memory),
            "written" => Some(Self::Written),
            "synced" | "all" => Some(Self::Synced),
            _ => None,
        }
    }
}

impl From<Ack> for AckLevel {
    fn from(ack: Ack) -> Self {
        match ack {
            Ack::Memory => Self::Memory,
            Ack::Written => Self::Written,
            Ack::Synced => Self::Synced,
        }
    }
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Written => "written",
            Self::Synced => "synced",
        })
    }
}

/// The place of a bucket's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BucketKind {
    /// The log: nothing that was acknowledged is lost.
    #[default]
    Durable,
    /// Memory only: it may evict keys, and is empty after a restart.
    Cache,
}

/// Limits of what a bucket holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Most bytes of keys and values. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Most keys that the bucket holds. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<u64>,
    /// Largest value, in bytes. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_max_bytes: Option<u64>,
    /// Most writes per second. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_per_second: Option<u32>,
}

/// Most partitions of a bucket.
pub const BUCKET_PARTITIONS_MAX: u32 = 64;

/// The settings of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BucketConfig {
    /// `durable` or `cache`; it never changes. Default durable.
    pub kind: BucketKind,
    /// Partitions, 1 to 64; they never change. Transactions over several keys need a bucket of one. Default 4.
    pub partitions: u32,
    /// Ack level of writes that name none. Default synced.
    pub ack: Ack,
    /// Time to live of keys that are written without one, in milliseconds. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Limits of what the bucket holds.
    #[serde(flatten)]
    pub quotas: Quotas,
    /// Bytes of memory for values of a durable bucket that were read or written lately; 0 keeps none. Default 2 MiB.
    pub cache_bytes: u64,
    /// The keys of a cache bucket that make room for new ones. Default `allkeys-lru`.
    pub policy: EvictionPolicy,
    /// Sizes of the pages of the policy `slru`, from the hottest to the coldest, relative to each
    /// other. Default 1, 2, 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_proportions: Option<Vec<u32>>,
    /// Users of Rift's routes; if there are any, these routes serve only them. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rift_access: Vec<RiftUser>,
}

/// A user of Rift's routes in a bucket. Every user may read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RiftUser {
    /// The user's name; `*` is everyone, without a signature.
    pub user: String,
    /// The secret that signs the user's requests; `*` needs none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret: String,
    /// Sum of 1 (no signature needed), 2 (may write) and 4 (may administer, and write). Default 0.
    #[serde(default)]
    pub flags: u8,
}

impl fmt::Debug for RiftUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RiftUser({}, {})", self.user, self.flags)
    }
}

/// Most users of Rift's routes in a bucket.
const RIFT_USERS_MAX: usize = 100;

impl RiftUser {
    /// The name that stands for everyone, without a signature.
    pub const EVERYONE: &'static str = "*";

    /// `true` if the user's requests need no signature.
    pub fn is_unsigned(&self) -> bool {
        self.flags & 1 != 0 || self.user == Self::EVERYONE
    }

    /// `true` if the user may write.
    pub fn may_write(&self) -> bool {
        self.flags & (2 | 4) != 0
    }

    /// `true` if the user may administer.
    pub fn may_administer(&self) -> bool {
        self.flags & 4 != 0
    }

    fn check(&self) -> Result<(), String> {
        let Self { user, secret, flags } = self;
        match () {
            () if user.is_empty() || user.contains(':') => {
                Err(format!("rift_access: user \"{user}\" is empty or has a colon; give it another name"))
            }
            () if *flags > 7 => Err(format!("rift_access: flags of \"{user}\" is {flags}; it is a sum of 1, 2 and 4")),
            () if secret.is_empty() && !self.is_unsigned() => {
                Err(format!("rift_access: secret of \"{user}\" is missing; give one, or set flag 1 (no signature)"))
            }
            () => Ok(()),
        }
    }
}

impl Default for BucketConfig {
    fn default() -> Self {
        Self {
            kind: BucketKind::Durable,
            partitions: 4,
            ack: Ack::Synced,
            ttl_ms: None,
            quotas: Quotas::default(),
            cache_bytes: 2 << 20,
            policy: EvictionPolicy::default(),
            pages_proportions: None,
            rift_access: Vec::new(),
        }
    }
}

impl BucketConfig {
    /// Checks that the settings fit the bucket's kind and their limits.
    ///
    /// # Errors
    /// The rule that is broken, with the value.
    pub fn check(&self) -> Result<(), String> {
        let zero = |name: &str| Err(format!("{name} is 0; leave it out to set no limit"));
        let quotas = &self.quotas;
        match () {
            () if !(1..=BUCKET_PARTITIONS_MAX).contains(&self.partitions) => {
                Err(format!("partitions is {}; a bucket has 1 to {BUCKET_PARTITIONS_MAX}", self.partitions))
            }
            () if self.ttl_ms == Some(0) => zero("ttl_ms"),
            () if quotas.max_bytes == Some(0) => zero("max_bytes"),
            () if quotas.max_keys == Some(0) => zero("max_keys"),
            () if quotas.value_max_bytes == Some(0) => zero("value_max_bytes"),
            () if quotas.writes_per_second == Some(0) => zero("writes_per_second"),
            () if self.kind == BucketKind::Cache
                && (quotas.max_keys.is_some() || quotas.writes_per_second.is_some()) =>
            {
                Err("max_keys and writes_per_second are limits of a durable bucket; max_bytes is that of a cache"
                    .to_owned())
            }
            () if self.rift_access.len() > RIFT_USERS_MAX => {
                Err(format!("rift_access has {} users; a bucket has at most {RIFT_USERS_MAX}", self.rift_access.len()))
            }
            () => self.rift_access.iter().try_for_each(RiftUser::check),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_external_provider_is_on_this_machine() {
        let place =
            |url: &str| ExternalProvider { name: "disks".to_owned(), url: url.to_owned(), deadline_ms: 1 }.place();
        let http = |address: &str, path: &str| {
            Ok(ExternalPlace::Http { address: address.parse().unwrap(), path: path.to_owned() })
        };
        assert_eq!(place("http://127.0.0.1:9/stats?a=1"), http("127.0.0.1:9", "/stats?a=1"));
        assert_eq!(place("http://localhost:9"), http("127.0.0.1:9", "/"));
        assert_eq!(place("http://[::1]:9/"), http("[::1]:9", "/"));
        assert_eq!(place("/run/disks.sock"), Ok(ExternalPlace::Socket(PathBuf::from("/run/disks.sock"))));
        for url in [
            "",
            "disks.sock",
            "https://127.0.0.1:9/",
            "http://10.0.0.1:9/",
            "http://127.0.0.1/",
            "http://127.0.0.1:9/a b",
        ] {
            let told = place(url).unwrap_err();
            assert!(told.contains(&format!("'disks': url \"{url}\"")) && told.contains("use http://"), "{told}");
        }
    }

    #[test]
    fn users_of_rifts_routes_are_checked() {
        let user =
            |user: &str, secret: &str, flags| RiftUser { user: user.to_owned(), secret: secret.to_owned(), flags };
        let checked = |user| BucketConfig { rift_access: vec![user], ..BucketConfig::default() }.check();
        for legal in [user("ann", "s", 0), user("ann", "", 1), user("*", "", 2), user("ann", "s", 7)] {
            assert_eq!(checked(legal), Ok(()));
        }
        for (illegal, rule) in [
            (user("", "s", 0), "is empty or has a colon"),
            (user("a:b", "s", 0), "is empty or has a colon"),
            (user("ann", "s", 8), "flags of \"ann\" is 8"),
            (user("ann", "", 2), "secret of \"ann\" is missing"),
        ] {
            let told = checked(illegal).unwrap_err();
            assert!(told.contains(rule), "{told}");
        }
        assert!(!format!("{:?}", user("ann", "hush", 2)).contains("hush"));
    }
}
