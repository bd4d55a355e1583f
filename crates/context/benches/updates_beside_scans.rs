//! Time of one update, alone and beside a client that lists all of 100,000 entities in a loop.
//!
//! One process: server and both clients share its cores. Updates go one after the other over one connection, each
//! answered once it is synced. The phases alternate, so that what the machine does beside falls on both.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millstream_context::{Build, Context, ContextConfig, Mapping, Mappings};
use millstream_http::{Api, Listener, ListenerLimits, LoopbackApplications, Metrics};
use millstream_log::{AckLevel, Done, Embedded, Log, LogConfig, SystemFiles, TopicConfig};
use millstream_types::{Record, SystemClock, TenantId, TopicKind, TopicName, TopicPartition};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use parking_lot::Mutex;
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use tracing::level_filters::LevelFilter;

const ENTITIES: usize = 100_000;
const ROUNDS: usize = 3;
const PHASE: Duration = Duration::from_secs(4);

struct Defaults;

impl Mappings for Defaults {
    fn mapping(&self, _: &TenantId, _: &str) -> Result<Arc<Mapping>, Arc<str>> {
        Ok(Arc::default())
    }
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock::default());
    let log_config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
    let log = Embedded::open(log_config, Arc::new(SystemFiles), clock.clone(), clock.clone()).unwrap();
    let ground = ViewRuntime {
        log: log.clone(),
        checkpoints: Checkpoints::open(&dir.path().join("views")).unwrap(),
        shards: Shards::start(2).unwrap(),
        wall: clock.clone(),
    };
    let metrics = Metrics::default();
    let context =
        Context::open(&ground, ContextConfig::default(), Arc::new(Defaults), clock, &metrics, Arc::new(|| false))
            .unwrap();
    fill(&*log, &context);

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let api = Api::builder("bench", "Context", "1")
        .with(context.routes(Arc::new(Mutex::new(LevelFilter::OFF)), Build::default()))
        .build(&metrics)
        .unwrap();
    let everybody = Arc::new(LoopbackApplications::default());
    let listener = Listener::bind("bench", "127.0.0.1:0".parse().unwrap(), everybody, ListenerLimits::default());
    let listener = runtime.block_on(listener).unwrap();
    let address = listener.address();
    let serving = runtime.block_on(async { listener.serve(Arc::new(api), &metrics) });

    let (mut alone, mut beside, mut scans) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..ROUNDS {
        alone.extend(updates(address));
        let lists = Arc::new(Lists::default());
        let lister = std::thread::spawn({
            let lists = lists.clone();
            move || list(address, &lists)
        });
        beside.extend(updates(address));
        lists.done.store(true, Ordering::Release);
        lister.join().unwrap();
        scans += lists.pages.load(Ordering::Acquire) as f64 / 100.0;
    }
    report("alone", alone);
    report("beside lists", beside);
    println!("{:.1} whole lists/s of {ENTITIES} entities, 1,000 a page", scans / (ROUNDS as f64 * PHASE.as_secs_f64()));

    runtime.block_on(serving.shut_down(Duration::from_secs(5)));
    context.stop(Duration::ZERO);
    log.close().unwrap();
}

fn fill(log: &dyn Log, context: &Context) {
    let name = TopicName::reserved(TopicKind::Telemetry, &TenantId::default());
    log.create_topic(&name, &TopicConfig { level: AckLevel::Written, ..TopicConfig::default() }).unwrap();
    let started = Instant::now();
    for n in 0..ENTITIES {
        let device = format!("{n:06}");
        let payload = r#"{"temperature":21.5,"humidity":40,"pressure":1013.2,"state":"ok"}"#;
        let record = Record { key: Some(device.as_bytes()), value: Some(payload.as_bytes()), ..Record::default() };
        let partition = log.partition(&TopicPartition::new(name.clone(), (n % 4) as u32)).unwrap();
        partition.append(&[record], AckLevel::Written, Done::ignore()).unwrap();
    }
    while context.stats().entities < ENTITIES as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{ENTITIES} measurements became entities in {seconds:.2} s ({:.0}/s)", ENTITIES as f64 / seconds);
}

/// Latencies of updates, one after the other, in microseconds.
fn updates(address: SocketAddr) -> Vec<u64> {
    let mut client = Client::connect(address);
    let (started, mut latencies) = (Instant::now(), Vec::new());
    while started.elapsed() < PHASE {
        let n = latencies.len();
        let body = format!("{{\"temperature\":{n}}}");
        let id = n * 7_919 % ENTITIES;
        let target = format!("PATCH /v2/entities/urn:ngsi-ld:Device:{id:06}/attrs?options=keyValues");
        let before = Instant::now();
        client.ask(&target, Some(&body));
        latencies.push(before.elapsed().as_micros() as u64);
    }
    latencies
}

#[derive(Default)]
struct Lists {
    done: AtomicBool,
    pages: AtomicUsize,
}

fn list(address: SocketAddr, lists: &Lists) {
    // It stands for another machine: what it does itself should not take the core from server and updater.
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle).unwrap();
    let mut client = Client::connect(address);
    let pages = (0..ENTITIES).step_by(1_000).cycle();
    for offset in pages.take_while(|_| !lists.done.load(Ordering::Acquire)) {
        client.ask(&format!("GET /v2/entities?limit=1000&offset={offset}"), None);
        lists.pages.fetch_add(1, Ordering::AcqRel);
    }
}

fn report(what: &str, mut latencies: Vec<u64>) {
    latencies.sort_unstable();
    let at = |quantile: f64| latencies[((latencies.len() - 1) as f64 * quantile) as usize] as f64 / 1_000.0;
    println!(
        "{what:>12}: {:.0} updates/s, p50 {:.3} ms, p90 {:.3} ms, p99 {:.3} ms, max {:.3} ms",
        latencies.len() as f64 / (ROUNDS as f64 * PHASE.as_secs_f64()),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        Self(BufReader::with_capacity(256 << 10, socket))
    }

    fn ask(&mut self, target: &str, body: Option<&str>) {
        let mut request = format!("{target} HTTP/1.1\r\nhost: bench\r\n");
        if let Some(body) = body {
            request += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        request += "\r\n";
        request += body.unwrap_or_default();
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        self.0.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 2"), "{line}");
        loop {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        let skipped = std::io::copy(&mut self.0.by_ref().take(length), &mut std::io::sink()).unwrap();
        assert_eq!(skipped, length);
    }
}
