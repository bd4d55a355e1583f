//! A store with a listener on a free port, and a client that speaks bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_http::{
    Api, ApiToken, ApiTokens, Authenticator, Listener, ListenerLimits, LoopbackApplications, Metrics, RoleName, Serving,
};
use millstream_log::{LogConfig, SystemFiles};
use millstream_net::LoginThrottle;
use millstream_store::{
    BucketConfig, RiftAccess, Statistics, Store, StoreConfig, rift_routes, routes, show_metrics, stats_routes,
};
use millstream_testkit::TestLog;
use millstream_types::{MemoryBudget, SystemClock, TenantId};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The token of a reader and writer of the default tenant.
pub(crate) const TOKEN: &str = "0123456789abcdef";

pub(crate) const LOGIN_FAILURES_PER_MINUTE: u32 = 20;

pub(crate) struct World {
    _dir: tempfile::TempDir,
    log: TestLog,
    shards: Arc<Shards>,
    pub(crate) store: Arc<Store>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) metrics: Metrics,
    serving: Serving,
    address: SocketAddr,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Runs `test` in a world without credentials, or with one token.
pub(crate) fn run(has_tokens: bool, config: StoreConfig, test: impl AsyncFnOnce(&World)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::open(has_tokens, config).await;
        test(&world).await;
        world.close().await;
    });
}

impl World {
    async fn open(has_tokens: bool, config: StoreConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::default());
        let log_config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
        let log = TestLog::open(log_config, Arc::new(SystemFiles)).unwrap();
        let shards = Shards::start(1).unwrap();
        let ground = ViewRuntime {
            log: log.log(),
            checkpoints: Checkpoints::open(&dir.path().join("views")).unwrap(),
            shards: shards.clone(),
            wall: clock.clone(),
        };
        let budget = MemoryBudget::new("memory.budget_bytes", 1 << 30);
        let store = Store::open(ground, config, clock.clone(), &budget).unwrap();
        let throttle = Arc::new(LoginThrottle::new(LOGIN_FAILURES_PER_MINUTE, clock.clone()));
        let statistics = Statistics::of_store(&store, &log.figures(), clock).unwrap();
        let metrics = Metrics::default();
        show_metrics(&store, &metrics);
        let api = Api::builder("test", "Store", "1").with(routes(&store)).with(stats_routes(&statistics));
        let api = api.with(rift_routes(&store, &statistics)).build(&metrics).unwrap();
        let listener: Arc<dyn Authenticator> = match has_tokens {
            false => Arc::new(LoopbackApplications::default()),
            true => Arc::new(ApiTokens::new(&[token()]).unwrap()),
        };
        let callers = Arc::new(RiftAccess::over(listener, Arc::clone(&store)).throttled_by(throttle));
        let listener = Listener::bind("test", "127.0.0.1:0".parse().unwrap(), callers, ListenerLimits::default());
        let listener = listener.await.unwrap();
        let address = listener.address();
        let serving = listener.serve(Arc::new(api), &metrics);
        Self { _dir: dir, log, shards, store, statistics, metrics, serving, address }
    }

    async fn close(self) {
        let Self { _dir, log, shards, store, statistics, serving, .. } = self;
        serving.shut_down(Duration::from_secs(20)).await;
        let closing = move || {
            store.stop();
            drop((store, statistics));
            log.close().unwrap();
            shards.join();
        };
        tokio::task::spawn_blocking(closing).await.unwrap();
    }

    pub(crate) async fn bucket(&self, tenant: &str, name: &str, config: BucketConfig) {
        self.store.put_bucket(&TenantId::new(tenant).unwrap(), name, config).await.unwrap();
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!("{line} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "host") {
            head.push_str("host: localhost\r\n");
        }
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(&[format!("{head}\r\n").as_bytes(), body].concat()).await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: answer[end + 4..].to_vec() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[], b"").await
    }

    /// Asks for `path` until its JSON is as expected.
    pub(crate) async fn until(
        &self,
        path: &str,
        is_expected: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let told = self.get(path).await.json();
            if is_expected(&told) {
                return told;
            }
            assert!(Instant::now() < end, "{path} stays at {told}");
        }
    }
}

fn token() -> ApiToken {
    ApiToken {
        name: "app".to_owned(),
        token: TOKEN.to_owned(),
        tenant: "default".to_owned(),
        roles: vec![RoleName::Reader, RoleName::Writer],
    }
}
