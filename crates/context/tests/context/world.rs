//! A process's worth of context plane: opened on a directory, asked over sockets, closed or opened again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_columns::ParserLimits;
use millstream_context::{Build, Context, ContextConfig, Mapping, Mappings, TenantMappings};
use millstream_http::{Api, Authenticator, Listener, ListenerLimits, LoopbackApplications, Metrics, Serving};
use millstream_log::{AckLevel, Done, Files, LogConfig, SystemFiles, TopicConfig, UpTo};
use millstream_testkit::{TestLog, runs_on_kafka};
use millstream_types::{
    BatchLimits, Header, Offset, Record, SystemClock, TenantId, TopicKind, TopicName, TopicPartition, header,
};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tracing::level_filters::LevelFilter;

pub(crate) use millstream_testkit::TextAnswer as Answer;

/// Bytes of a change topic that are read at a time.
const READ_BYTES: usize = 4 << 20;
/// The time that notifications on their way have to be answered when a world closes.
const DRAIN: Duration = Duration::from_secs(5);

/// The build that the tests' server reports.
pub(crate) const BUILD: Build = Build {
    git_hash: "0123456789abcdef0123456789abcdef01234567",
    built_at_s: "1400000000",
    compiler: "rustc 1.95.0",
    libraries: &[("tokio", "1.2.3"), ("zstd", "unknown")],
};

/// Mappings as a registry would give them.
#[derive(Default)]
pub(crate) struct Registry(Mutex<HashMap<String, Arc<Mapping>>>);

impl Registry {
    pub(crate) fn set(&self, device: &str, ext: Value) {
        let mapping = TenantMappings::default().of_device(ext.as_object().unwrap(), &ParserLimits::default()).unwrap();
        self.0.lock().insert(device.to_owned(), mapping);
    }
}

impl Mappings for Registry {
    fn mapping(&self, _: &TenantId, device: &str) -> Result<Arc<Mapping>, Arc<str>> {
        if device == "broken" {
            return Err("its mapping cannot be used".into());
        }
        Ok(self.0.lock().get(device).cloned().unwrap_or_default())
    }
}

/// `true` if a test cannot fill the disk of the log: on Apache Kafka, the log has no files of its own.
pub(crate) fn log_has_no_disk() -> bool {
    runs_on_kafka()
}

pub(crate) struct World {
    pub(crate) log: TestLog,
    pub(crate) context: Context,
    pub(crate) registry: Arc<Registry>,
    pub(crate) log_level: Arc<Mutex<LevelFilter>>,
    pub(crate) metrics: Metrics,
    shards: Arc<Shards>,
    checkpoints: PathBuf,
}

impl World {
    pub(crate) fn open(dir: &Path) -> Self {
        Self::open_with(dir, Arc::new(Registry::default()), ContextConfig::default())
    }

    pub(crate) fn open_with(dir: &Path, registry: Arc<Registry>, config: ContextConfig) -> Self {
        Self::open_on(dir, Arc::new(SystemFiles), registry, config)
    }

    /// The log lies in `files`.
    pub(crate) fn open_on(dir: &Path, files: Arc<dyn Files>, registry: Arc<Registry>, config: ContextConfig) -> Self {
        let clock = Arc::new(SystemClock::default());
        let log_config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = TestLog::open(log_config, files).unwrap();
        let checkpoints = dir.join("views");
        let shards = Shards::start(2).unwrap();
        let ground = ViewRuntime {
            log: log.log(),
            checkpoints: Checkpoints::open(&checkpoints).unwrap(),
            shards: shards.clone(),
            wall: clock.clone(),
        };
        let metrics = Metrics::default();
        let context = Context::open(&ground, config, registry.clone(), clock, &metrics, Arc::new(|| false)).unwrap();
        let log_level = Arc::new(Mutex::new(LevelFilter::WARN));
        Self { log, context, registry, log_level, metrics, shards, checkpoints }
    }

    /// Stops everything; returns where the checkpoint lies.
    pub(crate) fn close(self) -> PathBuf {
        self.context.stop(DRAIN);
        drop(self.context);
        self.log.close().unwrap();
        self.shards.join();
        self.checkpoints
    }

    /// Stops everything over a log that takes nothing any more.
    pub(crate) fn abandon(self) {
        self.context.stop(DRAIN);
        drop(self.context);
        assert!(self.log.close().is_err(), "what was refused is not stored");
        self.shards.join();
    }

    /// Makes the tenant's telemetry topic, as the device side would.
    pub(crate) fn make_telemetry(&self, tenant: &str) -> TopicName {
        let name = TopicName::reserved(TopicKind::Telemetry, &TenantId::new(tenant).unwrap());
        let config = TopicConfig { level: AckLevel::Written, ..TopicConfig::default() };
        self.log.create_topic(&name, &config).unwrap();
        name
    }

    /// Appends one measurement of `device`, as the device side would.
    pub(crate) fn measure(&self, topic: &TopicName, device: &str, timestamp_ms: i64, payload: &str) {
        let partition = millstream_types::partition_of_key(device.as_bytes(), 4);
        let headers = [Header { key: header::DEVICE_ID, value: Some(device.as_bytes()) }];
        let record =
            Record { timestamp_ms, key: Some(device.as_bytes()), value: Some(payload.as_bytes()), headers: &headers };
        let partition = self.log.partition(&TopicPartition::new(topic.clone(), partition.0)).unwrap();
        partition.append(&[record], AckLevel::Written, Done::ignore()).unwrap();
    }

    /// Makes the tenant's topic of updates, as its first writer would.
    pub(crate) fn make_updates(&self, tenant: &str) -> TopicName {
        let name = TopicName::reserved(TopicKind::ContextUpdate, &TenantId::new(tenant).unwrap());
        self.log.create_topic(&name, &TopicConfig::default()).unwrap();
        name
    }

    /// Appends a record of updates; returns its partition and offset.
    pub(crate) fn update(
        &self,
        topic: &TopicName,
        key: &str,
        headers: &[(&str, &str)],
        value: Option<&str>,
    ) -> (u32, Offset) {
        let number = millstream_types::partition_of_key(key.as_bytes(), 4).0;
        let headers: Vec<Header<'_>> =
            headers.iter().map(|(key, value)| Header { key, value: Some(value.as_bytes()) }).collect();
        let record =
            Record { timestamp_ms: 0, key: Some(key.as_bytes()), value: value.map(str::as_bytes), headers: &headers };
        let partition = self.log.partition(&TopicPartition::new(topic.clone(), number)).unwrap();
        let (sender, appended) = std::sync::mpsc::channel();
        let done = Done::call(move |outcome| sender.send(outcome).unwrap());
        partition.append(&[record], AckLevel::Synced, done).unwrap();
        (number, appended.recv().unwrap().unwrap().first)
    }

    /// All changes told of the tenant's entities, in the order of each partition.
    pub(crate) fn told(&self, tenant: &str) -> Vec<Told> {
        let name = TopicName::reserved(TopicKind::Context, &TenantId::new(tenant).unwrap());
        let Some(topic) = self.log.topic(&name) else { return Vec::new() };
        (0..topic.config.partitions)
            .flat_map(|number| {
                let partition = self.log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
                let (mut told, mut from) = (Vec::new(), partition.offsets().first);
                loop {
                    // As far as one read goes: it does not reach from the disk into memory.
                    let batches = partition.read(from, READ_BYTES, UpTo::Stable).unwrap();
                    let Some(last) = batches.last() else { return told };
                    from = last.next_offset();
                    told.extend(batches.into_iter().flat_map(Told::of_batch));
                }
            })
            .collect()
    }

    /// Serves the routes on a free port, to everybody.
    pub(crate) async fn serve(&self) -> Served {
        self.serve_to(Arc::new(LoopbackApplications::default())).await
    }

    /// Serves the routes on a free port, to those whom `callers` knows.
    pub(crate) async fn serve_to(&self, callers: Arc<dyn Authenticator>) -> Served {
        let metrics = Metrics::default();
        let api = Api::builder("test", "Context", "1")
            .with(self.context.routes(self.log_level.clone(), BUILD))
            .build(&metrics)
            .unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind("test", address, callers, ListenerLimits::default()).await.unwrap();
        let address = listener.address();
        Served { serving: listener.serve(Arc::new(api), &metrics), address }
    }
}

/// A record of a change topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) id: String,
    pub(crate) timestamp_ms: i64,
    pub(crate) entity: Value,
    pub(crate) alteration: String,
    pub(crate) changed: String,
    /// Attributes with the observation time of the value before.
    pub(crate) kept_times: String,
}

impl Told {
    fn of_batch(batch: millstream_types::RecordBatch) -> Vec<Self> {
        let batch = batch.inflated(&BatchLimits::default()).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let read = |record: millstream_types::RecordView<'_>| Self {
            id: text(record.key.unwrap()),
            timestamp_ms: record.timestamp_ms,
            entity: serde_json::from_slice(record.value.unwrap()).unwrap(),
            alteration: text(record.header(millstream_context::ALTERATION_TYPE).unwrap()),
            changed: text(record.header(millstream_context::CHANGED_ATTRIBUTES).unwrap()),
            kept_times: record.header(header::KEPT_OBSERVATION_TIMES).map(text).unwrap_or_default(),
        };
        batch.records().map(|record| read(record.unwrap())).collect()
    }
}

/// Waits until a query is served by the index of an attribute's values.
pub(crate) async fn wait_for_index(served: &Served, query: &str, attribute: &str) {
    let target = format!("/v2/entities?options=explain&{query}");
    let patience = Instant::now();
    loop {
        let plan = served.get(&target).await.json();
        if plan["index"] == format!("value of {attribute}") && plan["building"].as_array().unwrap().is_empty() {
            return;
        }
        assert!(patience.elapsed() < Duration::from_secs(60), "no index of {attribute}: {plan}");
        tokio::task::yield_now().await;
    }
}

/// Waits until the clock shows another millisecond: what is created then is younger.
pub(crate) fn next_millisecond() {
    let now_ms = || std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let before = now_ms();
    while now_ms() == before {
        std::thread::yield_now();
    }
}

/// A header without a value is left out.
fn request(head: &str, body: Option<&str>) -> String {
    let (first, headers) = head.split_once('\n').unwrap_or((head, ""));
    let mut request = format!("{first} HTTP/1.1\r\nhost: localhost\r\n");
    for line in headers.lines().map(str::trim).filter(|line| !line.is_empty() && !line.ends_with(':')) {
        request += &format!("{line}\r\n");
    }
    if let Some(body) = body {
        if !headers.to_ascii_lowercase().contains("content-type") {
            request += "content-type: application/json\r\n";
        }
        request += &format!("content-length: {}\r\n", body.len());
    }
    request += "\r\n";
    request += body.unwrap_or_default();
    request
}

pub(crate) struct Served {
    serving: Serving,
    pub(crate) address: SocketAddr,
}

impl Served {
    /// One request on a connection of its own; `head` is method, target and further headers, one a line.
    pub(crate) async fn ask(&self, head: &str, body: Option<&str>) -> Answer {
        let request = request(&format!("{head}\nconnection: close"), body);
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        socket.read_to_end(&mut text).await.unwrap();
        Answer::parse(&String::from_utf8(text).unwrap())
    }

    /// The same on a connection that the server is to keep.
    pub(crate) async fn ask_kept(&self, head: &str, body: Option<&str>) -> Answer {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(request(head, body).as_bytes()).await.unwrap();
        let mut text = Vec::new();
        loop {
            let read = socket.read_buf(&mut text).await.unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&text));
            let text = std::str::from_utf8(&text).unwrap();
            // A client that asks whether to send the body is told so first.
            let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(text);
            let Some((_, body)) = text.split_once("\r\n\r\n") else { continue };
            let answer = Answer::parse(text);
            if body.len() == answer.header("content-length").map_or(0, |length| length.parse().unwrap()) {
                return answer;
            }
        }
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.ask(&format!("GET {target}"), None).await
    }

    pub(crate) async fn stop(self) {
        assert_eq!(self.serving.shut_down(Duration::from_secs(60)).await, 0, "nothing had to be cut off");
    }
}
