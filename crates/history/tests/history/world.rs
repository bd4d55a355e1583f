//! A running history with a log; the tests append changes of entities to it as their owners do.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_history::{Dependencies, History, HistoryConfig, NoTenantRules};
use millstream_http::{Api, ApiBuilder, Listener, ListenerLimits, LoopbackApplications, Metrics, Serving};
use millstream_log::{AckLevel, Done, Files, Log, LogConfig, SystemFiles, TopicConfig, Writers};
use millstream_testkit::{TestLog, eventually, runs_on_kafka};
use millstream_types::{
    Header, ManualClock, Record, TenantId, TopicKind, TopicName, TopicPartition, header, iso_time, partition_of_key,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) use millstream_testkit::TextAnswer as Answer;

/// 2026-01-01T00:00:00Z.
pub(crate) const NEW_YEAR_MS: i64 = 1_767_225_600_000;
pub(crate) const HOUR_MS: i64 = 3_600_000;
pub(crate) const ENTITIES: &str = "/ngsi-ld/v1/temporal/entities";

pub(crate) struct World {
    pub(crate) log: Arc<dyn Log>,
    /// The engine, unless a test has one of its own.
    engine: Option<TestLog>,
    pub(crate) history: History,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) dir: PathBuf,
}

/// A configuration that flushes only when a test asks for it.
pub(crate) fn quiet() -> HistoryConfig {
    HistoryConfig { flush_interval_ms: 86_400_000, ..HistoryConfig::default() }
}

impl World {
    pub(crate) fn open(dir: &Path, config: &HistoryConfig) -> Self {
        Self::open_on(dir, config, Arc::new(SystemFiles))
    }

    pub(crate) fn open_on(dir: &Path, config: &HistoryConfig, files: Arc<dyn Files>) -> Self {
        let engine = open_log(dir);
        let world = Self::open_with(engine.log(), dir, config, files);
        Self { engine: Some(engine), ..world }
    }

    /// Opens history over a log that a test has.
    pub(crate) fn open_with(log: Arc<dyn Log>, dir: &Path, config: &HistoryConfig, files: Arc<dyn Files>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let directory = dir.join("history");
        let dependencies = Dependencies {
            log: log.clone(),
            dir: &directory,
            files,
            tenant_rules: Arc::new(NoTenantRules),
            clock: clock.clone(),
            wall: clock.clone(),
        };
        let history = History::open(&dependencies, config, &Metrics::default()).unwrap();
        Self { log, engine: None, history, clock, dir: directory }
    }

    /// Stops history, which flushes all points.
    pub(crate) fn close(self) {
        self.history.stop();
        drop(self.history);
        if let Some(engine) = self.engine {
            engine.close().unwrap();
        }
    }

    /// Appends a change of an attribute, observed at `observed_ms`; the change is durable on return.
    pub(crate) fn change(
        &self,
        (tenant, kind, id): (&str, &str, &str),
        attribute: &str,
        value: &str,
        observed_ms: i64,
    ) {
        change(&*self.log, (tenant, kind, id), attribute, value, observed_ms);
    }

    /// Calls [`World::change`] for a room of the default tenant.
    pub(crate) fn measure(&self, id: &str, attribute: &str, value: &str, observed_ms: i64) {
        self.change(("default", "Room", id), attribute, value, observed_ms);
    }

    /// Appends an alteration record of a room with the attribute `t`; `changed` lists the changed attributes.
    pub(crate) fn alter(&self, id: &str, alteration: &str, changed: &str, timestamp_ms: i64) {
        let value = format!(r#"{{"id":"{id}","type":"Room","t":{{"type":"Number","value":7,"metadata":{{}}}}}}"#);
        append(&*self.log, ("default", id), (alteration, changed), &value, timestamp_ms);
    }

    /// Advances the clock by the flush interval and waits until all points are in files.
    pub(crate) fn flush(&self) {
        // Pending changes are read first, because the interval passes only once.
        eventually("what was changed is read", || self.history.stats().lag_records == 0);
        self.clock.advance(Duration::from_millis(86_400_000));
        eventually("everything is in files", || self.history.stats().recent_points == 0);
    }

    pub(crate) async fn serve(&self) -> Served {
        let metrics = Metrics::default();
        let builder = Api::builder("test", "History", "1").checking_statuses(true);
        let api = self.history.routes().into_iter().fold(builder, ApiBuilder::with).build(&metrics).unwrap();
        let everybody = Arc::new(LoopbackApplications::default());
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind("test", address, everybody, ListenerLimits::default()).await.unwrap();
        let address = listener.address();
        Served { serving: listener.serve(Arc::new(api), &metrics), address }
    }

    /// Returns the files, relative to the directory.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        files_below(&self.dir)
    }
}

pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

pub(crate) fn open_log(dir: &Path) -> TestLog {
    let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
    TestLog::open(config, Arc::new(SystemFiles)).unwrap()
}

/// `true` if a file is nowhere but on the disk: on Apache Kafka a damaged one is fetched again, and copies are read from files.
pub(crate) fn files_have_no_copies() -> bool {
    !runs_on_kafka()
}

/// Appends a change as an owner does.
pub(crate) fn change(
    log: &dyn Log,
    (tenant, kind, id): (&str, &str, &str),
    attribute: &str,
    value: &str,
    observed_ms: i64,
) {
    let observed = iso_time(observed_ms);
    let value = format!(
        r#"{{"id":"{id}","type":"{kind}","{attribute}":{{"type":"Number","value":{value},"metadata":{{"TimeInstant":{{"type":"DateTime","value":"{observed}"}}}}}},"other":{{"type":"Text","value":"unchanged","metadata":{{}}}}}}"#
    );
    append(log, (tenant, id), ("entityChange", attribute), &value, observed_ms + 5);
}

fn append(
    log: &dyn Log,
    (tenant, id): (&str, &str),
    (alteration, changed): (&str, &str),
    value: &str,
    timestamp_ms: i64,
) {
    let name = TopicName::reserved(TopicKind::Context, &TenantId::new(tenant).unwrap());
    let config = TopicConfig { writers: Writers::OwnersOnly, ..TopicConfig::default() };
    log.create_topic(&name, &config).unwrap();
    let headers = [
        Header { key: header::ALTERATION_TYPE, value: Some(alteration.as_bytes()) },
        Header { key: header::CHANGED_ATTRIBUTES, value: Some(changed.as_bytes()) },
        Header { key: header::SERVICE_PATH, value: Some(b"/") },
    ];
    let (key, value) = (Some(id.as_bytes()), Some(value.as_bytes()));
    let record = Record { timestamp_ms, key, value, headers: &headers };
    let partition = partition_of_key(id.as_bytes(), 4);
    let partition = log.partition(&TopicPartition::new(name, partition.0)).unwrap();
    let (answer, answered) = std::sync::mpsc::channel();
    let done = Done::call(move |appended| answer.send(appended).unwrap());
    partition.append(&[record], AckLevel::Synced, done).unwrap();
    answered.recv().unwrap().unwrap();
}

pub(crate) struct Served {
    serving: Serving,
    address: SocketAddr,
}

impl Served {
    /// Sends one request on a new connection; `head` is method, target and further headers, one per line.
    pub(crate) async fn ask(&self, head: &str) -> Answer {
        let (first, headers) = head.split_once('\n').unwrap_or((head, ""));
        let mut request = format!("{first} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        for line in headers.lines() {
            request += &format!("{}\r\n", line.trim());
        }
        request += "\r\n";
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        socket.read_to_end(&mut text).await.unwrap();
        Answer::parse(&String::from_utf8(text).unwrap())
    }

    pub(crate) async fn get(&self, query: &str) -> Answer {
        self.ask(&format!("GET {ENTITIES}{query}")).await
    }

    pub(crate) async fn stop(self) {
        assert_eq!(self.serving.shut_down(Duration::from_secs(60)).await, 0, "nothing had to be cut off");
    }
}
