//! Statistics by category, put together on demand from providers.
//!
//! Parts of the program register a [`Provider`], which is often one function. Each runs on a thread of its own with a
//! deadline, so that a slow one costs its own part only. External ones are other programs.
//!
//! ```
//! use millstream_store::{Categories, Statistics};
//!
//! # fn main() -> Result<(), millstream_store::RegisterError> {
//! let statistics = Statistics::default();
//! statistics.register_fn("uploads", Categories::STATS, |sink| {
//!     sink.set("waiting", 3);
//!     sink.set("largest_bytes", 1_048_576);
//! })?;
//! assert!(statistics.remove("uploads"));
//! # Ok(())
//! # }
//! ```

mod answer;
mod backends;
mod categories;
mod commands;
mod external;
mod histograms;
mod metrics;
mod process;
mod routes;
mod top;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use millstream_log::LogFigures;
use millstream_types::{TenantId, WallClock, iso_time};
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

pub use self::answer::{Scope, answer};
pub use self::categories::Categories;
use self::histograms::Histograms;
pub use self::metrics::show_metrics;
pub use self::routes::routes;
use crate::{StatsConfig, Store};

/// Most providers that may be registered.
const PROVIDERS_MAX: usize = 256;
/// Time of a provider that sets none.
const DEADLINE: Duration = Duration::from_secs(1);

/// A part of the statistics.
pub trait Provider: Send + Sync + 'static {
    /// Its name: that of its member in the tree, and of `/stats/{name}`.
    fn name(&self) -> &str;

    /// The categories that include it.
    fn categories(&self) -> Categories;

    /// The time that [`Provider::collect`] may take. Default 1 second.
    fn deadline(&self) -> Duration {
        DEADLINE
    }

    /// Fills its part. It runs on a thread of its own, never twice at once, and may block until the deadline; after
    /// that its part is given up and says so.
    fn collect(&self, sink: &mut FigureSink);
}

/// Takes the figures of one provider.
#[derive(Debug)]
pub struct FigureSink {
    asked: Categories,
    tenant: Option<TenantId>,
    members: Map<String, Value>,
}

impl FigureSink {
    fn new(asked: Categories, scope: &Scope) -> Self {
        Self { asked, tenant: scope.tenant.clone(), members: Map::new() }
    }

    /// `true` if one of these categories is asked for.
    pub fn asks(&self, categories: Categories) -> bool {
        self.asked.meets(categories)
    }

    /// `true` if the caller may see figures of `tenant`.
    pub fn sees(&self, tenant: &TenantId) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// `true` if the caller may see figures of all tenants.
    pub fn sees_every_tenant(&self) -> bool {
        self.tenant.is_none()
    }

    /// The tenant that the caller may see; `None` for all.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// Sets a member of the provider's part.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.members.insert(name.to_owned(), value.into());
    }
}

/// A provider that cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another provider is registered under this name.
    #[error("a provider of statistics '{0}' is registered; remove it first, or choose another name")]
    Registered(String),
    /// The name is one of the members that every answer has.
    #[error("'{0}' is a member or category of all statistics; choose another name for the provider")]
    Reserved(String),
    /// There are as many providers as there may be.
    #[error("there are {0} providers of statistics, as many as there may be; remove one first")]
    TooMany(usize),
}

struct Registered {
    provider: Box<dyn Provider>,
    /// Held by the thread that collects.
    running: Arc<tokio::sync::Mutex<()>>,
}

/// The registered providers of statistics, and the answers made of their figures.
pub struct Statistics {
    providers: RwLock<BTreeMap<String, Arc<Registered>>>,
    wall: Arc<dyn WallClock>,
    periods: Option<Periods>,
}

impl std::fmt::Debug for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.providers.read().keys()).finish()
    }
}

impl Default for Statistics {
    fn default() -> Self {
        Self::with_clock(Arc::new(millstream_types::SystemClock::default()))
    }
}

impl Statistics {
    /// Makes statistics to which no provider is registered yet.
    pub fn with_clock(wall: Arc<dyn WallClock>) -> Self {
        Self { providers: RwLock::default(), wall, periods: None }
    }

    /// Statistics of the store and the process, with the external providers of the configuration.
    ///
    /// # Errors
    /// The fault in the setting `store.stats.external`, with its value.
    pub fn of_store(
        store: &Arc<Store>,
        log: &Arc<dyn LogFigures>,
        wall: Arc<dyn WallClock>,
    ) -> Result<Arc<Self>, String> {
        let config = &store.config().stats;
        let periods = Periods::start(store, config);
        let histograms = Arc::clone(&periods.histograms);
        let statistics = Arc::new(Self { periods: Some(periods), ..Self::with_clock(wall) });
        let deadline = Duration::from_millis(config.deadline_ms.max(1));
        for provider in built_in(store, log, config, histograms) {
            statistics.insert(Box::new(Timed { provider, deadline })).map_err(|taken| taken.to_string())?;
        }
        for settings in &config.external {
            let provider = external::External::new(settings)?;
            statistics.register(provider).map_err(|taken| format!("store.stats.external: {taken}"))?;
        }
        Ok(statistics)
    }

    /// Ends the period of hottest keys and histograms, if it is over. Call it about once a second.
    pub fn tick(&self) {
        if let Some(periods) = &self.periods {
            periods.tick();
        }
    }

    /// Registers a provider under its own name.
    ///
    /// # Errors
    /// [`RegisterError`] if the name cannot be used, or there are too many providers.
    pub fn register(&self, provider: impl Provider) -> Result<(), RegisterError> {
        if answer::RESERVED.contains(&provider.name()) || Categories::named(provider.name()).is_some() {
            return Err(RegisterError::Reserved(provider.name().to_owned()));
        }
        self.insert(Box::new(provider))
    }

    /// Adds a provider that is one function.
    ///
    /// # Errors
    /// [`RegisterError`] if the name cannot be used, or there are too many providers.
    pub fn register_fn(
        &self,
        name: &str,
        categories: Categories,
        collect: impl Fn(&mut FigureSink) + Send + Sync + 'static,
    ) -> Result<(), RegisterError> {
        self.register(ByFunction { name: name.to_owned(), categories, collect })
    }

    fn insert(&self, provider: Box<dyn Provider>) -> Result<(), RegisterError> {
        let name = provider.name().to_owned();
        let mut providers = self.providers.write();
        if providers.contains_key(&name) {
            return Err(RegisterError::Registered(name));
        }
        if providers.len() >= PROVIDERS_MAX {
            return Err(RegisterError::TooMany(PROVIDERS_MAX));
        }
        providers.insert(name, Arc::new(Registered { provider, running: Arc::default() }));
        Ok(())
    }

    /// Removes the provider of that name. Returns `false` if there is none.
    pub fn remove(&self, name: &str) -> bool {
        self.providers.write().remove(name).is_some()
    }

    /// The names of all providers.
    pub fn names(&self) -> Vec<String> {
        self.providers.read().keys().cloned().collect()
    }

    /// The statistics of these categories.
    pub async fn render(&self, categories: Categories, scope: &Scope) -> Value {
        let asked = |registered: &Registered| registered.provider.categories().meets(categories);
        self.rendered(categories, scope, asked).await
    }

    /// The statistics of the provider of that name; `None` if there is none.
    pub async fn render_provider(&self, name: &str, scope: &Scope) -> Option<Value> {
        let categories = self.providers.read().get(name)?.provider.categories();
        Some(self.rendered(categories, scope, |registered| registered.provider.name() == name).await)
    }

    async fn rendered(&self, categories: Categories, scope: &Scope, asked: impl Fn(&Registered) -> bool) -> Value {
        let wanted: Vec<Arc<Registered>> =
            self.providers.read().values().filter(|registered| asked(registered)).cloned().collect();
        let now_ms = self.wall.now_ms();
        let mut tree = Map::new();
        tree.insert("timestamp".to_owned(), json!({"tv_sec": now_ms / 1_000, "tv_usec": now_ms % 1_000 * 1_000}));
        tree.insert("string_timestamp".to_owned(), iso_time(now_ms).into());
        tree.insert("monitor_status".to_owned(), "enabled".into());
        let parts =
            join_all(wanted.into_iter().map(|registered| collected(registered, FigureSink::new(categories, scope))));
        tree.extend(parts.await);
        Value::Object(tree)
    }
}

/// The periods of what is told by periods.
struct Periods {
    store: Weak<Store>,
    histograms: Arc<Histograms>,
    length: Duration,
    began: Mutex<Instant>,
}

impl Periods {
    fn start(store: &Arc<Store>, config: &StatsConfig) -> Self {
        Self {
            store: Arc::downgrade(store),
            histograms: Arc::default(),
            length: Duration::from_secs(config.period_s.max(1)),
            began: Mutex::new(Instant::now()),
        }
    }

    fn tick(&self) {
        let mut began = self.began.lock();
        if began.elapsed() < self.length {
            return;
        }
        *began = Instant::now();
        if let Some(store) = self.store.upgrade() {
            self.histograms.keep(&store);
            store.buckets(None).iter().for_each(|(_, bucket)| bucket.counts().top_keys.next_period());
        }
    }
}

/// The part of a provider, or the reason why there is none.
async fn collected(registered: Arc<Registered>, mut sink: FigureSink) -> (String, Value) {
    let (name, deadline) = (registered.provider.name().to_owned(), registered.provider.deadline());
    let working = async {
        let running = Arc::clone(&registered.running).lock_owned().await;
        let (sender, receiver) = oneshot::channel();
        let work = move || {
            registered.provider.collect(&mut sink);
            drop(running);
            // Nobody waits any more after the deadline.
            let _ = sender.send(sink.members);
        };
        // A thread of its own: it may hang for ever, which must hold up neither a shared pool nor the end of the program.
        let started = std::thread::Builder::new().name("stats".to_owned()).spawn(work);
        match started {
            Ok(_) => receiver.await.map(Value::Object).unwrap_or_else(|_| json!({"error": "the provider failed"})),
            Err(error) => json!({"error": format!("no thread for the provider: {error}")}),
        }
    };
    let part = tokio::time::timeout(deadline, working).await.unwrap_or_else(|_| {
        let deadline_ms = deadline.as_millis() as u64;
        json!({"error": format!("cut off after {deadline_ms} ms"), "deadline_ms": deadline_ms})
    });
    (name, part)
}

/// A provider that is one function.
struct ByFunction<F> {
    name: String,
    categories: Categories,
    collect: F,
}

impl<F: Fn(&mut FigureSink) + Send + Sync + 'static> Provider for ByFunction<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn categories(&self) -> Categories {
        self.categories
    }

    fn collect(&self, sink: &mut FigureSink) {
        (self.collect)(sink);
    }
}

/// A provider of the store with the deadline of the configuration.
struct Timed {
    provider: Box<dyn Provider>,
    deadline: Duration,
}

impl Provider for Timed {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn categories(&self) -> Categories {
        self.provider.categories()
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn collect(&self, sink: &mut FigureSink) {
        self.provider.collect(sink);
    }
}

fn built_in(
    store: &Arc<Store>,
    log: &Arc<dyn LogFigures>,
    config: &StatsConfig,
    histograms: Arc<Histograms>,
) -> Vec<Box<dyn Provider>> {
    fn part(
        name: &str,
        categories: Categories,
        collect: impl Fn(&mut FigureSink) + Send + Sync + 'static,
    ) -> Box<dyn Provider> {
        Box::new(ByFunction { name: name.to_owned(), categories, collect })
    }
    let of = |collect: fn(&Store, &mut FigureSink)| {
        let store = Arc::downgrade(store);
        move |sink: &mut FigureSink| {
            if let Some(store) = store.upgrade() {
                collect(&store, sink);
            }
        }
    };
    let (length, period_s) = (config.top_length, config.period_s);
    let top = Arc::downgrade(store);
    let backends = (Arc::downgrade(store), Arc::downgrade(log));
    let io = Arc::downgrade(log);
    let of_histograms = Arc::downgrade(store);
    vec![
        part("commands", Categories::COMMANDS, of(commands::commands)),
        part("stats", Categories::STATS, of(commands::named)),
        part("io", Categories::IO, {
            let of_store = of(commands::io);
            move |sink: &mut FigureSink| {
                of_store(sink);
                if let Some(log) = io.upgrade() {
                    backends::log_figures(&*log, sink);
                }
            }
        }),
        part("io_histograms", Categories::IO_HISTOGRAMS, move |sink| {
            if let Some(store) = of_histograms.upgrade() {
                histograms.collect(&store, sink);
            }
        }),
        part("backends", Categories::BACKEND.and(Categories::CACHE), move |sink| {
            if let (Some(store), Some(log)) = (backends.0.upgrade(), backends.1.upgrade()) {
                backends::backends(&store, &*log, sink);
            }
        }),
        part("procfs", Categories::PROCFS, process::procfs),
        part("top", Categories::TOP, move |sink| {
            if let Some(store) = top.upgrade() {
                top::top(&store, length, period_s, sink);
            }
        }),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const ALL: Scope = Scope::EVERY_TENANT;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn providers_come_and_go_by_name() {
        let statistics = Statistics::default();
        statistics.register_fn("one", Categories::STATS, |sink| sink.set("n", 1)).unwrap();
        statistics.register_fn("two", Categories::IO, |sink| sink.set("n", 2)).unwrap();
        let taken = statistics.register_fn("one", Categories::ALL, |_| {}).unwrap_err();
        assert_eq!(taken, RegisterError::Registered("one".to_owned()));
        for reserved in ["timestamp", "top", "all", "backend"] {
            let refused = statistics.register_fn(reserved, Categories::ALL, |_| {}).unwrap_err();
            assert_eq!(refused, RegisterError::Reserved(reserved.to_owned()));
        }
        let tree = run(statistics.render(Categories::ALL, &ALL));
        assert_eq!((&tree["one"]["n"], &tree["two"]["n"]), (&json!(1), &json!(2)));
        assert_eq!(tree["monitor_status"], "enabled");
        assert!(tree["timestamp"]["tv_sec"].is_i64() && tree["string_timestamp"].is_string(), "{tree}");
        let tree = run(statistics.render(Categories::IO, &ALL));
        assert_eq!((tree["one"].is_null(), &tree["two"]["n"]), (true, &json!(2)));
        assert_eq!(run(statistics.render_provider("one", &ALL)).unwrap()["one"]["n"], 1);
        assert!(statistics.remove("one") && !statistics.remove("one"));
        assert!(run(statistics.render_provider("one", &ALL)).is_none());
        assert_eq!(statistics.names(), ["two"]);
    }

    struct Stuck(Mutex<mpsc::Receiver<()>>);

    impl Provider for Stuck {
        fn name(&self) -> &str {
            "stuck"
        }

        fn categories(&self) -> Categories {
            Categories::STATS
        }

        fn deadline(&self) -> Duration {
            Duration::from_millis(20)
        }

        fn collect(&self, sink: &mut FigureSink) {
            // Ends once the test has dropped the other end.
            let _ = self.0.lock().recv();
            sink.set("is_free", true);
        }
    }

    #[test]
    fn a_stuck_provider_is_cut_off_and_told_as_such() {
        let (sender, receiver) = mpsc::channel();
        let statistics = Statistics::default();
        statistics.register(Stuck(Mutex::new(receiver))).unwrap();
        statistics.register_fn("quick", Categories::STATS, |sink| sink.set("n", 1)).unwrap();
        statistics.register_fn("broken", Categories::STATS, |_| panic!("on purpose")).unwrap();
        for _ in 0..3 {
            let tree = run(statistics.render(Categories::STATS, &ALL));
            assert_eq!(tree["stuck"], json!({"error": "cut off after 20 ms", "deadline_ms": 20}));
            assert_eq!(tree["quick"]["n"], 1);
            assert_eq!(tree["broken"]["error"], "the provider failed");
        }
        drop(sender);
        let end = Instant::now() + Duration::from_secs(60);
        while run(statistics.render(Categories::STATS, &ALL))["stuck"]["is_free"] != true {
            assert!(Instant::now() < end, "it is asked again once it is free");
        }
    }

    #[test]
    fn there_is_a_limit_of_providers() {
        let statistics = Statistics::default();
        for number in 0..PROVIDERS_MAX {
            statistics.register_fn(&number.to_string(), Categories::STATS, |_| {}).unwrap();
        }
        let refused = statistics.register_fn("more", Categories::STATS, |_| {}).unwrap_err();
        assert_eq!(refused, RegisterError::TooMany(PROVIDERS_MAX));
    }
}
