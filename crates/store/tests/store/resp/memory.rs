//! A host whose buckets are maps in memory. Each value must be loaded once before a transaction may read it, so every
//! unit that reads runs several times.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use millstream_store::resp::{
    Bucket, CommandUnit, DatabaseInfo, ErrorReply, Execution, Host, KeyPage, Keyspace, LoginError, ServerInfo, User,
    UserRole,
};
use millstream_store::{Interrupted, KeyEntry, Transaction, Value, WriteRefusal};
use millstream_types::{SystemClock, WallClock};

/// Databases of the host.
const DATABASES: usize = 16;

/// Wall time that a test can move.
#[derive(Default)]
pub(crate) struct Clock {
    system: SystemClock,
    stopped_ms: Option<i64>,
    ahead_ms: AtomicI64,
}

impl Clock {
    fn stopped() -> Self {
        let system = SystemClock::default();
        Self { stopped_ms: Some(system.now_ms()), system, ahead_ms: AtomicI64::new(0) }
    }

    pub(crate) fn advance(&self, ms: i64) {
        self.ahead_ms.fetch_add(ms, Relaxed);
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.stopped_ms.unwrap_or_else(|| self.system.now_ms()) + self.ahead_ms.load(Relaxed)
    }
}

#[derive(Debug, Clone)]
struct Stored {
    value: Value,
    version: u64,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<Bytes, Stored>,
    last_version: u64,
}

/// A bucket in memory.
pub(crate) struct MemoryBucket {
    table: Mutex<Table>,
    clock: Arc<Clock>,
    pub(crate) max_keys: AtomicU64,
    /// Most bytes of the values that one transaction stores.
    pub(crate) transaction_max_bytes: AtomicUsize,
    /// Nothing runs any more.
    pub(crate) is_broken: AtomicBool,
    /// Set by `maxmemory 1`: commands that need memory are refused.
    is_full: AtomicBool,
    /// Units that were run, each time counted.
    pub(crate) runs: AtomicUsize,
    /// Transactions that took effect.
    pub(crate) commits: AtomicUsize,
}

impl MemoryBucket {
    fn new(clock: Arc<Clock>) -> Self {
        Self {
            table: Mutex::default(),
            clock,
            max_keys: AtomicU64::new(u64::MAX),
            transaction_max_bytes: AtomicUsize::new(usize::MAX),
            is_broken: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            runs: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
        }
    }

    fn run(&self, unit: &mut CommandUnit) {
        let mut table = self.table.lock().unwrap();
        let now_ms = self.clock.now_ms();
        let mut loaded = HashSet::new();
        loop {
            self.runs.fetch_add(1, Relaxed);
            let (base, max_keys) = (&*table, self.max_keys.load(Relaxed));
            let max_bytes = self.transaction_max_bytes.load(Relaxed);
            let mut transaction =
                MemoryTransaction { base, changes: BTreeMap::new(), now_ms, loaded, max_keys, max_bytes };
            let outcome = unit.run(&mut transaction);
            let changes = std::mem::take(&mut transaction.changes);
            loaded = transaction.loaded;
            match outcome {
                Ok(()) => {
                    self.commits.fetch_add(1, Relaxed);
                    return table.apply(changes);
                }
                Err(Interrupted::NotLoaded) => {}
                Err(Interrupted::Refused(_)) => return,
            }
        }
    }
}

impl Table {
    fn apply(&mut self, changes: BTreeMap<Bytes, Option<Value>>) {
        for (key, change) in changes {
            self.last_version += 1;
            match change {
                Some(value) => self.entries.insert(key, Stored { value, version: self.last_version }),
                None => self.entries.remove(&key),
            };
        }
    }
}

struct MemoryTransaction<'a> {
    base: &'a Table,
    changes: BTreeMap<Bytes, Option<Value>>,
    now_ms: i64,
    loaded: HashSet<Bytes>,
    max_keys: u64,
    max_bytes: usize,
}

impl MemoryTransaction<'_> {
    fn is_live(&self, value: &Value) -> bool {
        value.expires_ms.is_none_or(|expires_ms| expires_ms > self.now_ms)
    }
}

impl Transaction for MemoryTransaction<'_> {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn entry(&mut self, key: &[u8]) -> Option<KeyEntry> {
        let (value, version) = match self.changes.get(key) {
            Some(changed) => (changed.as_ref()?, None),
            None => self.base.entries.get(key).map(|stored| (&stored.value, Some(stored.version)))?,
        };
        let entry = KeyEntry { version, length: value.bytes.len() as u64, expires_ms: value.expires_ms };
        self.is_live(value).then_some(entry)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Interrupted> {
        if let Some(changed) = self.changes.get(key) {
            return Ok(changed.clone().filter(|value| self.is_live(value)));
        }
        let Some((key, stored)) = self.base.entries.get_key_value(key) else { return Ok(None) };
        if !self.is_live(&stored.value) {
            return Ok(None);
        }
        if self.loaded.insert(key.clone()) {
            return Err(Interrupted::NotLoaded);
        }
        Ok(Some(stored.value.clone()))
    }

    fn put(&mut self, key: &[u8], value: Value) -> Result<(), Interrupted> {
        if key.is_empty() {
            return Err(WriteRefusal::Key { length: 0, max_bytes: 1_024 }.into());
        }
        let held = (self.base.entries.len() + self.changes.len()) as u64;
        if self.entry(key).is_none() && held >= self.max_keys {
            return Err(WriteRefusal::TooManyKeys { held, max_keys: self.max_keys }.into());
        }
        let written = self.changes.values().flatten().map(|written| written.bytes.len()).sum::<usize>();
        let (bytes, max_bytes) = (written + value.bytes.len(), self.max_bytes);
        if bytes > max_bytes {
            return Err(WriteRefusal::TransactionTooLarge { bytes, max_bytes }.into());
        }
        let value = self.is_live(&value).then_some(value);
        self.changes.insert(Bytes::copy_from_slice(key), value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let was_there = self.entry(key).is_some();
        self.changes.insert(Bytes::copy_from_slice(key), None);
        was_there
    }
}

impl MemoryBucket {
    fn live(&self) -> Vec<(Bytes, Value)> {
        let now_ms = self.clock.now_ms();
        let table = self.table.lock().unwrap();
        let entries = table.entries.iter().map(|(key, stored)| (key.clone(), stored.value.clone()));
        entries.filter(|(_, value)| value.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms)).collect()
    }
}

impl Keyspace for MemoryBucket {
    fn scan(&self, after: Option<Bytes>, limit: usize) -> BoxFuture<'_, Result<KeyPage, ErrorReply>> {
        let now_ms = self.clock.now_ms();
        let table = self.table.lock().unwrap();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut range = table.entries.range((from, Bound::Unbounded));
        let page: Vec<_> = range.by_ref().take(limit).collect();
        let last = page.last().map(|(key, _)| (*key).clone()).filter(|_| range.next().is_some());
        let live = |stored: &Stored| stored.value.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms);
        let keys = page.into_iter().filter(|(_, stored)| live(stored)).map(|(key, _)| key.clone()).collect();
        std::future::ready(Ok(KeyPage { keys, after: last })).boxed()
    }

    fn count(&self) -> BoxFuture<'_, Result<u64, ErrorReply>> {
        std::future::ready(Ok(self.live().len() as u64)).boxed()
    }

    fn random(&self) -> BoxFuture<'_, Result<Option<Bytes>, ErrorReply>> {
        let live = self.live();
        let chosen = fastrand::usize(..live.len().max(1));
        std::future::ready(Ok(live.get(chosen).map(|(key, _)| key.clone()))).boxed()
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), ErrorReply>> {
        self.table.lock().unwrap().entries.clear();
        std::future::ready(Ok(())).boxed()
    }
}

impl Bucket for MemoryBucket {
    fn execute(&self, mut unit: CommandUnit) -> Execution {
        if self.is_broken.load(Relaxed) {
            return Execution::Done(Err(ErrorReply::general("the log is closed")));
        }
        self.run(&mut unit);
        // Both ways are taken, so that sessions are tested with both.
        match self.runs.load(Relaxed) % 2 {
            0 => Execution::Done(Ok(unit)),
            _ => Execution::Pending(async move { Ok(unit) }.boxed()),
        }
    }

    fn value_max_bytes(&self) -> u64 {
        512 << 20
    }

    fn is_full(&self) -> Option<ErrorReply> {
        self.is_full.load(Relaxed).then_some(ErrorReply::OUT_OF_MEMORY)
    }

    fn synced(&self) -> BoxFuture<'_, Result<u32, ErrorReply>> {
        std::future::ready(Ok(1)).boxed()
    }
}

/// A host in memory.
pub(crate) struct MemoryHost {
    pub(crate) clock: Arc<Clock>,
    pub(crate) buckets: Vec<Arc<MemoryBucket>>,
    pub(crate) needs_login: bool,
    settings: Mutex<BTreeMap<&'static str, String>>,
}

impl MemoryHost {
    pub(crate) fn new(needs_login: bool) -> Self {
        Self::with_clock(needs_login, Clock::default())
    }

    /// A host whose time stands still unless a test moves it.
    pub(crate) fn stopped(needs_login: bool) -> Self {
        Self::with_clock(needs_login, Clock::stopped())
    }

    fn with_clock(needs_login: bool, clock: Clock) -> Self {
        let clock = Arc::new(clock);
        let buckets = (0..DATABASES).map(|_| Arc::new(MemoryBucket::new(Arc::clone(&clock)))).collect();
        let settings = [("appendonly", "no"), ("save", ""), ("maxmemory", "0"), ("maxmemory-policy", "noeviction")];
        let settings = Mutex::new(settings.map(|(name, value)| (name, value.to_owned())).into());
        Self { clock, buckets, needs_login, settings }
    }
}

fn user(name: &str, tenant: &str, role: UserRole) -> User {
    User { name: name.into(), tenant: tenant.into(), role, revocation: None }
}

impl Host for MemoryHost {
    fn default_user(&self) -> Option<User> {
        (!self.needs_login).then(|| user("default", "public", UserRole::Admin))
    }

    fn login<'a>(
        &'a self,
        name: &'a str,
        password: &'a [u8],
        _: SocketAddr,
    ) -> BoxFuture<'a, Result<User, LoginError>> {
        let known = self.users(&user("", "", UserRole::Read)).into_iter().find(|user| &*user.name == name);
        let found = known.filter(|_| password == b"secret").ok_or(LoginError::Wrong);
        std::future::ready(found).boxed()
    }

    fn users(&self, _: &User) -> Vec<User> {
        let mut users = vec![
            user("reader", "public", UserRole::Read),
            user("writer", "public", UserRole::Write),
            user("other", "elsewhere", UserRole::Admin),
        ];
        users.push(self.default_user().unwrap_or_else(|| user("default", "public", UserRole::Admin)));
        users
    }

    fn databases(&self) -> u32 {
        DATABASES as u32
    }

    fn select(&self, _: &User, database: u32) -> Result<Arc<dyn Bucket>, ErrorReply> {
        match self.buckets.get(database as usize) {
            Some(bucket) => Ok(Arc::clone(bucket) as Arc<dyn Bucket>),
            None => Err(ErrorReply::general("DB index is out of range")),
        }
    }

    fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    fn info(&self, _: &User) -> BoxFuture<'_, ServerInfo> {
        let numbered = self.buckets.iter().enumerate();
        let databases = numbered.map(|(number, bucket)| {
            let live = bucket.live();
            let expires = live.iter().filter(|(_, value)| value.expires_ms.is_some()).count() as u64;
            DatabaseInfo { number: number as u32, keys: live.len() as u64, expires, average_ttl_ms: None }
        });
        let info = ServerInfo { version: "test".to_owned(), databases: databases.collect(), ..ServerInfo::default() };
        std::future::ready(info).boxed()
    }

    fn settings(&self, _: &User) -> Vec<(&'static str, String)> {
        self.settings.lock().unwrap().iter().map(|(name, value)| (*name, value.clone())).collect()
    }

    fn set(&self, _: &User, name: &str, value: &[u8]) -> Result<(), String> {
        if name == "appendonly" && value != b"no" {
            return Err("it is the bucket's".to_owned());
        }
        if name == "maxmemory" {
            self.buckets.iter().for_each(|bucket| bucket.is_full.store(value == b"1", Relaxed));
        }
        let mut settings = self.settings.lock().unwrap();
        let setting = settings.get_mut(name).ok_or("unknown setting")?;
        *setting = String::from_utf8_lossy(value).into_owned();
        Ok(())
    }

    fn shutdown(&self, _: &User) -> Result<(), ErrorReply> {
        Err(ErrorReply::general("not in a test"))
    }
}
