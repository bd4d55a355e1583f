//! Registry and adapter behind two listeners on free ports, over a log in a temporary directory, and a small client.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_connect::{Connect, ConnectConfig};
use millstream_http::{Api, Listener, ListenerLimits, LoopbackApplications, Metrics, Serving};
use millstream_log::{LogConfig, UpTo};
use millstream_net::LoginThrottle;
use millstream_testkit::{TestLog, eventually, runs_on_kafka};
use millstream_types::{BatchLimits, MemoryBudget, SystemClock, TenantId, TopicKind, TopicName, TopicPartition};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::gate::GatedFiles;
pub(crate) use millstream_testkit::TextAnswer as Answer;

/// A running plane. A test ends it by [`World::stop`].
pub(crate) struct World {
    pub(crate) log: TestLog,
    pub(crate) connect: Arc<Connect>,
    pub(crate) metrics: Metrics,
    applications: Serving,
    devices: Serving,
    mqtt: Serving,
}

/// `true` if the log knows whether somebody reads a partition. Apache Kafka tells nobody.
pub(crate) fn log_knows_consumers() -> bool {
    !runs_on_kafka()
}

/// Settings under which hashing a password is fast.
pub(crate) fn quick() -> ConnectConfig {
    let mut config = ConnectConfig { hashing_memory_kib: 64, hashing_passes: 1, ..ConnectConfig::default() };
    // A disk or a processor that stalls under other tests must not refuse a login or a message.
    (config.http.send_timeout_ms, config.mqtt.send_timeout_ms) = (60_000, 60_000);
    (config.http.request_timeout_ms, config.mqtt.connect_timeout_ms) = (60_000, 60_000);
    (config.mqtt.packet_timeout_ms, config.mqtt.write_timeout_ms) = (60_000, 60_000);
    config
}

impl World {
    pub(crate) async fn open(dir: &Path) -> Self {
        Self::open_with(dir, quick()).await
    }

    pub(crate) async fn open_with(dir: &Path, config: ConnectConfig) -> Self {
        Self::open_on(dir, config, LogConfig::default(), GatedFiles::default()).await
    }

    /// With a limit for failed logins.
    pub(crate) async fn open_throttled(dir: &Path, throttle: Arc<LoginThrottle>) -> Self {
        Self::open_all(dir, quick(), LogConfig::default(), GatedFiles::default(), throttle).await
    }

    pub(crate) async fn open_on(dir: &Path, config: ConnectConfig, log: LogConfig, files: GatedFiles) -> Self {
        Self::open_all(dir, config, log, files, Arc::default()).await
    }

    async fn open_all(
        dir: &Path,
        config: ConnectConfig,
        log: LogConfig,
        files: GatedFiles,
        throttle: Arc<LoginThrottle>,
    ) -> Self {
        let metrics = Metrics::default();
        let memory = MemoryBudget::new("memory.budget_bytes", 1 << 30);
        let budget = memory.clone();
        let (path, counted) = (dir.to_owned(), metrics.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let clock = Arc::new(SystemClock::default());
            let log_config = LogConfig { dir: path.join("log"), ..log };
            let log = TestLog::open(log_config, Arc::new(files)).unwrap();
            let ground = ViewRuntime {
                log: log.log(),
                checkpoints: Checkpoints::open(&path.join("views")).unwrap(),
                shards: Shards::start(2).unwrap(),
                wall: clock.clone(),
            };
            let connect = Connect::open(&ground, &config, Arc::new(()), throttle, clock, &counted).unwrap();
            connect.open_downlinks(Arc::new(|| false), &budget).unwrap();
            (log, Arc::new(connect))
        });
        let (log, connect) = opened.await.unwrap();
        let api = |name| Api::builder(name, name, "1");
        let [registry, connections, commands] = connect.application_routes();
        let applications = api("applications").with(registry).with(connections).with(commands).build(&metrics).unwrap();
        let devices = connect.device_routes().into_iter().fold(api("devices"), |api, routes| api.with(routes));
        let devices = devices.build(&metrics).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let limits = ListenerLimits::default;
        let open = Arc::new(LoopbackApplications::default());
        let door = Listener::bind("applications", any.into(), open, limits()).await.unwrap();
        let gate = Listener::bind("devices", any.into(), connect.device_authenticator(), limits()).await.unwrap();
        let mqtt = connect.listen_mqtt(any.into(), &memory, &metrics).unwrap();
        Self {
            log,
            connect,
            applications: door.serve(Arc::new(applications), &metrics),
            devices: gate.serve(Arc::new(devices), &metrics),
            mqtt,
            metrics,
        }
    }

    pub(crate) async fn stop(self) {
        self.end(true).await;
    }

    /// As [`World::stop`], after the log has failed.
    pub(crate) async fn stop_broken(self) {
        self.end(false).await;
    }

    async fn end(self, is_sound: bool) {
        let Self { log, connect, applications, devices, mqtt, .. } = self;
        assert_eq!(mqtt.shut_down(Duration::from_secs(60)).await, 0, "nothing had to be cut off");
        assert_eq!(devices.shut_down(Duration::from_secs(60)).await, 0, "nothing had to be cut off");
        assert_eq!(applications.shut_down(Duration::from_secs(60)).await, 0, "nothing had to be cut off");
        let stopped = tokio::task::spawn_blocking(move || {
            connect.stop();
            drop(connect);
            assert_eq!(log.close().is_ok(), is_sound);
        });
        stopped.await.unwrap();
    }

    /// The address of the devices' HTTP listener.
    pub(crate) fn devices(&self) -> SocketAddr {
        self.devices.address()
    }

    /// The address of the devices' MQTT listener.
    pub(crate) fn mqtt(&self) -> SocketAddr {
        self.mqtt.address()
    }

    /// The address of the listener for applications.
    pub(crate) fn applications(&self) -> SocketAddr {
        self.applications.address()
    }

    /// A request to the registry.
    pub(crate) async fn registry(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let json = ("content-type", "application/json");
        let mut headers = headers.to_vec();
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == json.0) {
            headers.push(json);
        }
        ask(self.applications.address(), line, &headers, body.as_bytes()).await
    }

    /// A request to the registry that has to succeed with `status`.
    pub(crate) async fn do_registry(&self, line: &str, body: &str, status: u16) -> Answer {
        let answer = self.registry(line, &[], body).await;
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        answer
    }

    /// A request of a device.
    pub(crate) async fn device(&self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        exchange(self.devices.address(), line, headers, body).await
    }

    /// A request of a device from one of the addresses of this machine.
    pub(crate) async fn device_from(&self, local: &str, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        exchange_over(connect_from(local, self.devices.address()).await, line, headers, body).await
    }

    /// Creates tenant and device and gives it the password `pw` under its own id.
    pub(crate) async fn register(&self, tenant: &str, device: &str) {
        self.registry(&format!("POST /v1/tenants/{tenant}"), &[], "").await;
        self.do_registry(&format!("POST /v1/devices/{tenant}/{device}"), "", 201).await;
        let credentials = credentials(device, "pw");
        self.do_registry(&format!("PUT /v1/credentials/{tenant}/{device}"), &credentials, 204).await;
    }

    /// All records of a tenant's topic, by partition and offset.
    /// The metrics, with HERE for the name of this machine.
    pub(crate) fn metrics_text(&self) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        self.metrics.text().replace(&format!("host=\"{}\"", host.trim()), "host=\"HERE\"")
    }

    pub(crate) fn records(&self, kind: TopicKind, tenant: &str) -> Vec<Kept> {
        self.records_in(&TopicName::reserved(kind, &TenantId::new(tenant).unwrap()))
    }

    /// All records of a topic, by partition and offset; a deletion has an empty value.
    pub(crate) fn records_in(&self, name: &TopicName) -> Vec<Kept> {
        if runs_on_kafka() {
            // A message at most once is answered when Kafka's producer has it.
            eventually("what was accepted is stored", || self.log.stats().pending_bytes == 0);
        }
        let Some(topic) = self.log.topic(name) else { return Vec::new() };
        let mut kept = Vec::new();
        for number in 0..topic.config.partitions {
            let partition = self.log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
            let offsets = partition.offsets();
            let mut next = offsets.first;
            while next < offsets.tail {
                for batch in partition.read(next, 1 << 20, UpTo::Tail).unwrap() {
                    let batch = batch.inflated(&BatchLimits::default()).unwrap();
                    kept.extend(batch.records().map(|record| Kept::of(&record.unwrap())));
                    next = batch.next_offset();
                }
            }
        }
        kept
    }
}

/// Credentials with one plain password.
pub(crate) fn credentials(auth_id: &str, password: &str) -> String {
    format!(r#"[{{"type":"hashed-password","auth-id":"{auth_id}","secrets":[{{"pwd-plain":"{password}"}}]}}]"#)
}

/// The value of an `Authorization` header.
pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{password}")))
}

/// An entry of `trusted-ca` with the subject `CN=ca`.
pub(crate) const CA: &str = r#"{"subject-dn":"CN=ca","auto-provisioning-enabled":false,"auto-provision-as-gateway":false,"ocsp-revocation-enabled":false,"ocsp-nonce-enabled":false,"public-key":"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8Vr5GXurDac9lbm/g8ufnw0e4RoxF3oCvZJAVgFUE6g8JUsJ5p2wsK4eH8ZGOIvnhXLjfCNxRgeW15oiB3StOg==","not-before":"2026-01-01T00:00:00Z","not-after":"2036-01-01T00:00:00Z"}"#;

/// A record in the form that tests compare.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kept {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    pub(crate) headers: Vec<(String, String)>,
}

impl Kept {
    fn of(record: &millstream_types::RecordView<'_>) -> Self {
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let headers = record.headers();
        Self {
            key: text(record.key),
            value: record.value.unwrap_or_default().to_vec(),
            headers: headers.map(|header| (header.key.to_owned(), text(header.value))).collect(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Sends one request on its own connection; `line` is method and target. The server closes the connection after it.
pub(crate) async fn ask(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let headers = [&[("connection", "close")], headers].concat();
    exchange(address, line, &headers, body).await
}

/// As [`ask`], but over a keep-alive connection, so that the fast head can read the request.
async fn exchange(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    exchange_over(TcpStream::connect(address).await.unwrap(), line, headers, body).await
}

/// Connects from one of the addresses of this machine.
pub(crate) async fn connect_from(local: &str, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{local}:0").parse().unwrap()).unwrap();
    socket.connect(address).await.unwrap()
}

async fn exchange_over(mut socket: TcpStream, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut request = format!("{line} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!("content-length: {}\r\n\r\n", body.len());
    let mut request = request.into_bytes();
    request.extend_from_slice(body);
    socket.write_all(&request).await.unwrap();
    let mut text = Vec::new();
    while !is_whole(&text) && socket.read_buf(&mut text).await.unwrap() > 0 {}
    Answer::parse(std::str::from_utf8(final_answer(&text)).unwrap())
}

/// The answer behind the leave to send the body, which a client with `Expect: 100-continue` gets first.
fn final_answer(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(text)
}

/// True if the answer has all bytes of the body that it announces.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(final_answer(answer));
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    // An answer without body, such as 204, announces none.
    length.map_or_else(|| head.contains(" 204 "), |length| body.len() >= length.parse().unwrap())
}
