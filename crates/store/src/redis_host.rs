//! The databases of Redis clients: each is a bucket of the client's tenant, made when it is first used.
//!
//! Database N is the bucket `dbN`. It has one partition, so that commands over several keys and MULTI are exact. For
//! other settings, or for a cache, make the bucket before.

mod cache;
mod durable;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use millstream_net::Revocation;
use millstream_net::{LoginProtocol, LoginSource, LoginThrottle, RefusedLogin};
use millstream_types::{Principal, Role, TenantId};

use self::cache::CacheDatabase;
use self::durable::{DurableDatabase, FULL};
use crate::resp::{self, DatabaseInfo, ErrorReply, Host, LoginError, ServerInfo, User};
use crate::{BucketConfig, BucketKind, CacheBucket, Error, EvictionPolicy, Opened, Store, UnknownPolicy};

/// Databases of a client, as Redis has by default.
const DATABASES: u32 = 16;

/// A user who has logged in.
#[derive(Debug)]
pub struct UserLogin {
    /// The user.
    pub principal: Arc<Principal>,
    /// The signal that ends the login; `None` if it lasts as long as the process.
    pub revocation: Option<Revocation>,
}

/// Checks names and passwords of users.
pub trait Logins: Send + Sync + 'static {
    /// The signal that ends connections without a login; `None` if every client must log in.
    fn open_access(&self) -> Option<Revocation>;

    /// The user `name`, if the password is right, and the signal that ends the login.
    /// A client that gives a password only is called `default`.
    fn log_in<'a>(&'a self, name: &'a str, password: &'a [u8]) -> BoxFuture<'a, Result<UserLogin, RefusedLogin>>;
}

/// The store as the host of Redis clients.
pub struct RedisHost {
    store: Arc<Store>,
    logins: Arc<dyn Logins>,
    throttle: Arc<LoginThrottle>,
    version: &'static str,
    run_id: String,
    started: Instant,
    port: OnceLock<u16>,
}

impl std::fmt::Debug for RedisHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedisHost({:?})", self.store)
    }
}

impl RedisHost {
    /// A host for the clients of a listener.
    pub fn new(
        store: Arc<Store>,
        logins: Arc<dyn Logins>,
        throttle: Arc<LoginThrottle>,
        version: &'static str,
    ) -> Self {
        let run_id = (0..40).map(|_| char::from(b"0123456789abcdef"[fastrand::usize(..16)])).collect();
        Self { store, logins, throttle, version, run_id, started: Instant::now(), port: OnceLock::new() }
    }

    /// Tells the port that clients connect to, once it is known.
    pub fn listens_on(&self, port: u16) {
        // It is told once.
        let _ = self.port.set(port);
    }

    fn tenant(user: &User) -> Result<TenantId, ErrorReply> {
        TenantId::new(&user.tenant).map_err(ErrorReply::general)
    }
}

/// The name of the bucket behind a database.
fn bucket_name(database: u32) -> String {
    format!("db{database}")
}

/// The number of the database that a bucket is.
pub fn database_of(bucket: &str) -> Option<u32> {
    let number = bucket.strip_prefix("db")?.parse().ok()?;
    (number < DATABASES && bucket_name(number) == bucket).then_some(number)
}

/// The settings of a database that is made when it is first used.
fn database_config() -> BucketConfig {
    BucketConfig { partitions: 1, ..BucketConfig::default() }
}

/// An error of the store as an error reply.
fn failure(error: &Error) -> ErrorReply {
    match error {
        Error::View(source) if source.is_full() => {
            ErrorReply(format!("MISCONF nothing is stored now: {source}").into())
        }
        Error::NoMemory { .. } => FULL,
        other => ErrorReply::general(other),
    }
}

/// The user of a connection that has logged in.
fn user_of(login: UserLogin) -> Result<User, LoginError> {
    let UserLogin { principal, revocation } = login;
    if principal.scope.is_limited() {
        let why = "NOPERM this API token is limited to a part of its tenant; use one without limits";
        return Err(LoginError::Failed(ErrorReply(why.into())));
    }
    let role = match principal.roles {
        roles if roles.has(Role::Admin) => resp::UserRole::Admin,
        roles if roles.has(Role::Writer) => resp::UserRole::Write,
        _ => resp::UserRole::Read,
    };
    let (name, tenant) = (principal.name.as_str().into(), principal.tenant.as_str().into());
    Ok(User { name, tenant, role, revocation })
}

impl Host for RedisHost {
    fn default_user(&self) -> Option<User> {
        let (name, tenant, role) = ("default".into(), TenantId::DEFAULT.into(), resp::UserRole::Admin);
        self.logins.open_access().map(|open| User { name, tenant, role, revocation: Some(open) })
    }

    fn login<'a>(
        &'a self,
        name: &'a str,
        password: &'a [u8],
        peer: SocketAddr,
    ) -> BoxFuture<'a, Result<User, LoginError>> {
        async move {
            match self.logins.log_in(name, password).await {
                Ok(login) => user_of(login),
                Err(RefusedLogin::Unchecked(why)) => Err(LoginError::Failed(ErrorReply::general(why))),
                Err(refused) => {
                    let source = LoginSource { address: peer.ip(), protocol: LoginProtocol::Redis };
                    let throttled = |throttled| LoginError::Failed(ErrorReply::general(throttled));
                    self.throttle.check(source).map_err(throttled)?;
                    self.throttle.fail(source);
                    Err(match refused {
                        RefusedLogin::Wrong(why) => LoginError::Failed(ErrorReply(format!("WRONGPASS {why}").into())),
                        _ => LoginError::Wrong,
                    })
                }
            }
        }
        .boxed()
    }

    fn users(&self, user: &User) -> Vec<User> {
        vec![user.clone()]
    }

    fn databases(&self) -> u32 {
        DATABASES
    }

    fn select(&self, user: &User, database: u32) -> Result<Arc<dyn resp::Bucket>, ErrorReply> {
        let (tenant, name) = (Self::tenant(user)?, bucket_name(database));
        match self.store.find(&tenant, &name) {
            Ok(Opened::Cache(bucket)) => Ok(Arc::new(CacheDatabase::new(bucket))),
            Ok(Opened::Durable(bucket)) if bucket.config().partitions > 1 => {
                let partitions = bucket.config().partitions;
                Err(ErrorReply::general(format!(
                    "bucket '{name}' has {partitions} partitions; a database needs a bucket of one"
                )))
            }
            Ok(Opened::Durable(_)) | Err(_) => {
                Ok(Arc::new(DurableDatabase::new(Arc::clone(&self.store), tenant, name)))
            }
        }
    }

    fn now_ms(&self) -> i64 {
        self.store.now_ms()
    }

    fn info(&self, user: &User) -> BoxFuture<'_, ServerInfo> {
        let info = self.server_info(user);
        async move { info }.boxed()
    }

    fn settings(&self, user: &User) -> Vec<(&'static str, String)> {
        let first = Self::tenant(user).ok().and_then(|tenant| self.store.find(&tenant, &bucket_name(0)).ok());
        let memory_bytes = match &first {
            Some(Opened::Cache(bucket)) => Some(bucket.cache().max_bytes()),
            _ => None,
        };
        let config = first.map_or_else(database_config, |opened| BucketConfig::clone(&opened.config()));
        let is_durable = config.kind == BucketKind::Durable;
        let sync = match config.ack {
            crate::Ack::Synced => "always",
            crate::Ack::Written => "everysec",
            crate::Ack::Memory => "no",
        };
        vec![
            ("appendonly", if is_durable { "yes" } else { "no" }.to_owned()),
            ("appendfsync", sync.to_owned()),
            ("save", String::new()),
            ("maxmemory", memory_bytes.or(config.quotas.max_bytes).unwrap_or(0).to_string()),
            ("maxmemory-policy", if is_durable { "noeviction" } else { config.policy.as_str() }.to_owned()),
            ("maxmemory-clients", "0".to_owned()),
            ("databases", DATABASES.to_string()),
            ("port", self.port.get().copied().unwrap_or_default().to_string()),
            ("daemonize", "no".to_owned()),
            ("replicaof", String::new()),
        ]
    }

    /// As in Redis, a change lasts until the next start.
    fn set(&self, user: &User, name: &str, value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value);
        if self.settings(user).iter().any(|(known, current)| *known == name && *current == text) {
            return Ok(());
        }
        let of_bucket = || format!("{name} is a setting of the bucket; change it by 'PUT /buckets/{}'", bucket_name(0));
        if matches!(name, "daemonize" | "databases" | "port" | "replicaof") {
            return Err("can't set immutable config".to_owned());
        }
        let tenant = Self::tenant(user).map_err(|failure| failure.to_string())?;
        let bucket = match self.store.find(&tenant, &bucket_name(0)) {
            Ok(Opened::Durable(bucket)) => bucket,
            Ok(Opened::Cache(bucket)) => return self.set_of_cache(&bucket, name, &text),
            Err(_) => return Err(of_bucket()),
        };
        match name {
            "maxmemory" => {
                let bytes = memory_size(&text).ok_or("argument must be a memory value")?;
                bucket.adjust(|config| config.quotas.max_bytes = (bytes > 0).then_some(bytes));
            }
            "appendfsync" => {
                let ack = match &*text {
                    "always" => crate::Ack::Synced,
                    "everysec" => crate::Ack::Written,
                    "no" => crate::Ack::Memory,
                    _ => return Err("argument must be one of the following: everysec, always, no".to_owned()),
                };
                bucket.adjust(|config| config.ack = ack);
            }
            _ => return Err(of_bucket()),
        }
        Ok(())
    }

    fn shutdown(&self, _: &User) -> Result<(), ErrorReply> {
        Err(ErrorReply::general("other listeners serve from this process; stop it by SIGTERM"))
    }
}

impl RedisHost {
    /// Changes a setting of a cache that is database 0.
    fn set_of_cache(&self, bucket: &CacheBucket, name: &str, text: &str) -> Result<(), String> {
        let bucket_name = bucket_name(0);
        let adjust = |change: &dyn Fn(&mut BucketConfig)| {
            self.store.adjust_cache(&bucket_name, bucket, change).map_err(|refusal| refusal.to_string())
        };
        match name {
            "maxmemory" => match memory_size(text).ok_or("argument must be a memory value")? {
                0 => Err("a cache bucket has a size, of which 0 is none; name a number of bytes".to_owned()),
                bytes => adjust(&|config| config.quotas.max_bytes = Some(bytes)),
            },
            "maxmemory-policy" => {
                let policy: EvictionPolicy = text.parse().map_err(|unknown: UnknownPolicy| unknown.to_string())?;
                adjust(&|config| config.policy = policy)
            }
            _ => Err(format!("{name} is no setting of a cache bucket")),
        }
    }

    fn server_info(&self, user: &User) -> ServerInfo {
        let mut info = ServerInfo {
            version: self.version.to_owned(),
            run_id: self.run_id.clone(),
            process_id: std::process::id(),
            tcp_port: self.port.get().copied().unwrap_or_default(),
            uptime_seconds: self.started.elapsed().as_secs(),
            is_durable: true,
            memory_policy: "noeviction".to_owned(),
            ..ServerInfo::default()
        };
        if let Some((resident, peak)) = memory_bytes() {
            (info.memory_used_bytes, info.memory_peak_bytes) = (resident, peak);
        }
        let Ok(tenant) = Self::tenant(user) else { return info };
        for ((_, name), opened) in self.store.all(Some(&tenant)) {
            let Some(number) = database_of(&name) else { continue };
            let database = match &opened {
                Opened::Durable(bucket) => {
                    let counts = bucket.counts();
                    let load = |counter: &AtomicU64| counter.load(Relaxed);
                    info.changes += load(&counts.changes);
                    info.hits += load(&counts.read_memory.successes) + load(&counts.read_disk.successes);
                    info.misses += load(&counts.missing);
                    info.expired_keys += load(&counts.expired);
                    let (keys, expires) = (bucket.totals().keys, bucket.expiring_keys());
                    DatabaseInfo { number, keys, expires, average_ttl_ms: None }
                }
                Opened::Cache(bucket) => {
                    for shard in bucket.cache().stats() {
                        info.hits += shard.hits;
                        info.misses += shard.misses;
                        info.evicted_keys += shard.evictions;
                        info.expired_keys += shard.expiries;
                    }
                    if number == 0 {
                        info.is_durable = false;
                        info.memory_max_bytes = bucket.cache().max_bytes();
                        info.memory_policy = bucket.cache().policy().as_str().to_owned();
                    }
                    let keyspace = bucket.cache().keyspace();
                    let average_ttl_ms = Some(keyspace.average_ttl_ms);
                    DatabaseInfo { number, keys: keyspace.keys, expires: keyspace.expiring_keys, average_ttl_ms }
                }
            };
            if database.keys > 0 {
                info.databases.push(database);
            }
        }
        info.databases.sort_by_key(|database| database.number);
        info
    }
}

/// Parses a number of bytes as Redis does: `1gb` is 2^30 and `1g` 10^9 of them.
fn memory_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..].to_ascii_lowercase()[..] {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Bytes that the process holds in memory now, and the most that it has held.
fn memory_bytes() -> Option<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib << 10)
    };
    bytes("VmRSS:").zip(bytes("VmHWM:"))
}
