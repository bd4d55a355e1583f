//! The needs of a session from the program around it: logins, buckets, figures and settings.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use millstream_net::Revocation;

use crate::resp::unit::CommandUnit;

/// An error reply: its text begins with a code of Redis, such as `ERR` or `OOM`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ErrorReply(pub Cow<'static, str>);

impl ErrorReply {
    /// The refusal of a cache that is full, as clients of Redis know it.
    pub const OUT_OF_MEMORY: Self = Self(Cow::Borrowed("OOM command not allowed when used memory > 'maxmemory'."));

    /// A failure that has no code of its own.
    pub fn general(text: impl std::fmt::Display) -> Self {
        Self(format!("ERR {text}").into())
    }
}

/// The rights of a user. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UserRole {
    /// May connect, and read keys.
    Read,
    /// Write keys, publish and subscribe.
    Write,
    /// Change settings and look at other connections of the tenant.
    Admin,
}

/// Somebody who has logged in.
#[derive(Debug, Clone)]
pub struct User {
    /// The name, as ACL WHOAMI answers it.
    pub name: Arc<str>,
    /// The tenant, whose buckets and channels the user sees.
    pub tenant: Arc<str>,
    /// The rights of the user in the tenant.
    pub role: UserRole,
    /// Ends the login, and with it the connection; `None` if it lasts as long as the connection.
    pub revocation: Option<Revocation>,
}

/// The reason why a login failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginError {
    /// Name or password are wrong.
    Wrong,
    /// Something else; the reply is this.
    Failed(ErrorReply),
}

/// A page of keys in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyPage {
    /// The keys of the page, in ascending order.
    pub keys: Vec<Bytes>,
    /// The next page begins behind this key. `None` on the last page.
    pub after: Option<Bytes>,
}

/// Questions about all keys of a bucket, which are answered beside its transactions.
pub trait Keyspace: Send + Sync {
    /// At most about `limit` keys behind `after`, in ascending order; from the first one without it. Keys that have
    /// expired are not among them. A page may be empty and yet not be the last one.
    fn scan(&self, after: Option<Bytes>, limit: usize) -> BoxFuture<'_, Result<KeyPage, ErrorReply>>;

    /// Number of keys; some of them may have expired.
    fn count(&self) -> BoxFuture<'_, Result<u64, ErrorReply>>;

    /// A key by chance; `None` if there are none.
    fn random(&self) -> BoxFuture<'_, Result<Option<Bytes>, ErrorReply>>;

    /// Deletes all keys that there are now.
    fn clear(&self) -> BoxFuture<'_, Result<(), ErrorReply>>;
}

/// A bucket that stands behind a database number.
pub trait Bucket: Keyspace {
    /// Runs a unit: `unit.run(transaction)` on one transaction, again on a new one after
    /// [`crate::Interrupted::NotLoaded`], and gives the unit back once its writes are as safe as the bucket promises.
    /// After [`crate::Interrupted::Refused`] the transaction is dropped and the unit is given back: the session will
    /// submit it again, and it leaves out what was refused.
    ///
    /// Keys and values that the unit puts are slices of the receive buffer of the connection. A bucket that keeps a
    /// small one for long copies it, or it holds the whole buffer.
    fn execute(&self, unit: CommandUnit) -> Execution;

    /// Length of the longest value that the bucket takes, in bytes.
    fn value_max_bytes(&self) -> u64;

    /// Why no command that needs memory may run now: a cache that is full and evicts nothing. It is asked before each
    /// of them, so it must be cheap.
    fn is_full(&self) -> Option<ErrorReply> {
        None
    }

    /// Resolves once everything that was written before is synced to disk; the number is how many copies are synced
    /// here: 1, or 0 for a bucket that is never on disk.
    fn synced(&self) -> BoxFuture<'_, Result<u32, ErrorReply>>;
}

/// The outcome of a unit. An error means that nobody knows the unit's outcome, or that it did not
/// run, as its text says.
#[allow(clippy::large_enum_variant, reason = "it is matched at once; a box would be an allocation for each unit")]
pub enum Execution {
    /// The unit has run, and its outcome is known.
    Done(Result<CommandUnit, ErrorReply>),
    /// The unit still runs; the future resolves to its outcome.
    Pending(BoxFuture<'static, Result<CommandUnit, ErrorReply>>),
}

impl std::fmt::Debug for Execution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Done(_)) { "Done" } else { "Pending" })
    }
}

/// The program around the sessions.
pub trait Host: Send + Sync + 'static {
    /// The user of a connection that has not logged in; `None` if a login is required.
    fn default_user(&self) -> Option<User>;

    /// Checks a user's password; `peer` is the address of the client.
    fn login<'a>(
        &'a self,
        name: &'a str,
        password: &'a [u8],
        peer: SocketAddr,
    ) -> BoxFuture<'a, Result<User, LoginError>>;

    /// The users that `user` may know of: those of the tenant.
    fn users(&self, user: &User) -> Vec<User>;

    /// Number of databases: SELECT takes smaller numbers.
    fn databases(&self) -> u32;

    /// The bucket of a database.
    ///
    /// # Errors
    /// The error reply, if there is no such bucket or the user may not use it.
    fn select(&self, user: &User, database: u32) -> Result<Arc<dyn Bucket>, ErrorReply>;

    /// Wall time, milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> i64;

    /// The figures that INFO shows to `user`.
    fn info(&self, user: &User) -> BoxFuture<'_, ServerInfo>;

    /// Settings that CONFIG GET shows beside those of the protocol itself, such as `appendonly` and `maxmemory`.
    fn settings(&self, user: &User) -> Vec<(&'static str, String)>;

    /// Changes one of [`Host::settings`], as CONFIG SET asks for.
    ///
    /// # Errors
    /// Why it cannot be changed, without a code.
    fn set(&self, user: &User, name: &str, value: &[u8]) -> Result<(), String>;

    /// Begins to stop the program.
    ///
    /// # Errors
    /// The error reply, if it may not be stopped this way.
    fn shutdown(&self, user: &User) -> Result<(), ErrorReply>;
}

/// Figures for INFO that the sessions do not know themselves.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerInfo {
    /// The program's version, as INFO shows it.
    pub version: String,
    /// A random number of 40 hexadecimal digits for this run.
    pub run_id: String,
    /// Process id of the program.
    pub process_id: u32,
    /// TCP port of the listener for Redis clients.
    pub tcp_port: u16,
    /// Seconds since the program was started.
    pub uptime_seconds: u64,
    /// Bytes that the program holds in memory.
    pub memory_used_bytes: u64,
    /// Largest number of bytes that it has held.
    pub memory_peak_bytes: u64,
    /// Bytes that the caches may hold; 0 without a limit.
    pub memory_max_bytes: u64,
    /// The eviction policy of the caches, as `maxmemory-policy` names it.
    pub memory_policy: String,
    /// `true` if writes are kept on disk.
    pub is_durable: bool,
    /// Changes of keys that the log has taken since the start.
    pub changes: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that found no key.
    pub misses: u64,
    /// Number of keys that have expired.
    pub expired_keys: u64,
    /// Keys that caches have evicted.
    pub evicted_keys: u64,
    /// Processor time in user mode, in seconds.
    pub cpu_user_seconds: f64,
    /// Processor time in the kernel, in seconds.
    pub cpu_system_seconds: f64,
    /// The databases of the tenant that hold keys.
    pub databases: Vec<DatabaseInfo>,
}

/// The key counts of one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatabaseInfo {
    /// The number by which SELECT knows the database.
    pub number: u32,
    /// Number of keys in the database.
    pub keys: u64,
    /// Number of keys with an expiry.
    pub expires: u64,
    /// The mean of the time that these have left, in milliseconds; `None` if the bucket does not know it.
    pub average_ttl_ms: Option<u64>,
}
