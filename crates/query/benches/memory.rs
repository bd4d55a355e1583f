//! Memory, not time: what an idle live query takes, as resident memory of the process over many of them.
//!
//! Each asks for a value of its own, as the published tests do. First what is compiled of them, then the index over
//! that, at last the engine: two threads read two partitions. What a client and its connection take comes on top;
//! `millstream bench query` measures all of it together.

use std::ops::Range;
use std::sync::Arc;

use millstream_log::{AckLevel, Embedded, Log, LogConfig, Storage, SystemFiles, TopicConfig};
use millstream_query::{
    Compiled, Config, Deliver, Engine, Matcher, ParserLimits, QueryRequest, QueryRuntime, Subscription, parse,
};
use millstream_types::{MemoryBudget, ShortLives, SystemClock, TenantId, TopicKind, TopicName};

const QUERIES: usize = 100_000;

fn main() {
    let compile = |number| Arc::new(Compiled::new(&parse(&text(number), &ParserLimits::default()).expect("a query")));
    let before = resident_bytes();
    let compiled: Vec<Arc<Compiled>> = (0..QUERIES).map(compile).collect();
    report("compiled", before);
    let before = resident_bytes();
    let mut matcher = Matcher::default();
    for query in &compiled {
        matcher.insert(query.clone(), ());
    }
    report("in the index of a stream", before);
    // What has been measured stays, so that its memory does not serve for what comes next.
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(engine());
    drop(matcher);
}

async fn engine() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: dir.path().to_owned(), ..LogConfig::default() };
    let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone()).expect("a log");
    let tenant = TenantId::default();
    let topic = TopicConfig {
        partitions: 2,
        storage: Storage::Memory { max_bytes: 1 << 20 },
        level: AckLevel::Memory,
        ..TopicConfig::default()
    };
    log.create_topic(&TopicName::reserved(TopicKind::Telemetry, &tenant), &topic).expect("a topic");
    let memory = MemoryBudget::new("memory.budget_bytes", 1 << 30);
    let config = Config { threads: 2, live_max: QUERIES + 1, live_per_tenant_max: QUERIES + 1, ..Config::default() };
    let short_lives = ShortLives::default();
    let runtime = QueryRuntime { log: log.clone(), memory, monotonic: clock.clone(), wall: clock, short_lives };
    let engine = Engine::start(runtime, config).expect("an engine");

    let warm = ask(&engine, &tenant, 0..1).await;
    let before = resident_bytes();
    let live = ask(&engine, &tenant, 1..QUERIES + 1).await;
    report("live, without a client", before);
    drop((warm, live));
    engine.stop();
    log.close().expect("the log closes");
}

async fn ask(engine: &Engine, tenant: &TenantId, numbers: Range<usize>) -> Vec<Subscription> {
    let mut live = Vec::with_capacity(numbers.len());
    for number in numbers {
        let request = QueryRequest { deliver: Deliver::Sse, ..QueryRequest::new(text(number)) };
        live.push(engine.submit(tenant, request).await.expect("the query is live"));
    }
    live
}

fn text(number: usize) -> String {
    format!("SELECT * FROM STREAM() WHERE id = 'q{number:09}'")
}

fn report(what: &str, before: u64) {
    println!("{what}: {} bytes of resident memory each", resident_bytes().saturating_sub(before) / QUERIES as u64);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells of a process's memory");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory is told");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number of KiB") * 1024
}
