//! History cases: the cost of storing changes, and the latency of reads over many points of one attribute.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use millstream_history::{Dependencies, History, HistoryConfig, NoTenantRules};
use millstream_http::{Api, Listener, ListenerLimits, LoopbackApplications, Metrics};
use millstream_load::Latencies;
use millstream_load::report::BenchCase;
use millstream_log::{AckLevel, Embedded, Log, LogConfig, SystemFiles, TopicConfig, Writers, reply};
use millstream_types::{
    Header, Record, SystemClock, TenantId, TopicKind, TopicName, TopicPartition, header, iso_time, partition_of_key,
};
use serde_json::{Map, Value, json};

use crate::machine::Machine;
use crate::{Length, process};

const START_MS: i64 = 1_767_225_600_000;
const APPEND_RECORDS: usize = 1_000;
const ID: &str = "urn:ngsi-ld:Station:1";
/// A point each second: 11.6 days for a million.
const STEP_MS: i64 = 1_000;
const LAST_AIM_MS: f64 = 20.0;

/// Runs the cases and checks their aims.
pub(super) fn measure(machine: &Machine, dir: &Path, length: Length) -> anyhow::Result<(Vec<BenchCase>, Vec<String>)> {
    let (points, reads) = match length {
        Length::Quick => (1_000_000, 500),
        Length::Default => (1_000_000, 2_000),
        Length::Full => (1_000_000, 20_000),
    };
    measure_points(machine, dir, points, reads)
}

fn measure_points(
    machine: &Machine,
    dir: &Path,
    points: usize,
    reads: usize,
) -> anyhow::Result<(Vec<BenchCase>, Vec<String>)> {
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
    let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone())?;
    append(&*log, points)?;
    let bench = HistoryBench { machine, points };
    let mut cases = Vec::new();

    let dependencies = Dependencies {
        log: log.clone(),
        dir: &dir.join("history"),
        files: Arc::new(SystemFiles),
        tenant_rules: Arc::new(NoTenantRules),
        clock: clock.clone(),
        wall: clock,
    };
    let (began, cpu_before) = (Instant::now(), process::cpu_s(std::process::id())?);
    let history = History::open(&dependencies, &HistoryConfig::default(), &Metrics::default())?;
    while history.stats().points < points as u64 {
        ensure!(history.failures().is_empty(), "{}", history.failures().join("\n"));
        std::thread::sleep(Duration::from_millis(5));
    }
    // Stopping writes the remaining changes.
    history.stop();
    let cpu_s = process::cpu_s(std::process::id())? - cpu_before;
    cases.push(bench.kept(began.elapsed(), cpu_s, &history)?);

    let history = History::open(&dependencies, &HistoryConfig::default(), &Metrics::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let recent = points / 10;
    let from_files = async {
        let serving = serve(&history).await?;
        let mut client = HistoryClient::connect(serving.1).await?;
        cases.push(bench.read(&mut client, "lastN = 100, all in files", "lastN=100", reads).await?);
        let hourly = "options=aggregatedValues&aggrMethods=avg&aggrPeriodDuration=PT1H";
        let averages = bench.read(&mut client, "hourly average of all, in files", hourly, (reads / 50).max(3)).await?;
        cases.push(averages);
        anyhow::Ok((serving, client))
    };
    let (serving, mut client) = runtime.block_on(from_files)?;
    // Later points are in memory only, the usual case of reads.
    append_from(&*log, points, recent)?;
    let from_memory = async {
        cases.push(bench.read(&mut client, "lastN = 100, the last in memory", "lastN=100", reads).await?);
        drop(client);
        serving.0.shut_down(Duration::from_secs(5)).await;
        anyhow::Ok(())
    };
    runtime.block_on(from_memory)?;
    history.stop();
    log.close().context("the log was not closed cleanly")?;
    let aims = cases.iter().filter(|case| case.case.contains("lastN")).filter_map(|case| {
        let p99 = case.latency_ms?.p99;
        let verdict = if p99 < LAST_AIM_MS { "met" } else { "missed" };
        Some(format!("Aim, {}: p99 below {LAST_AIM_MS:.0} ms: {verdict} ({p99:.2} ms).", case.case))
    });
    let aims = aims.collect();
    Ok((cases, aims))
}

fn append(log: &dyn Log, points: usize) -> anyhow::Result<()> {
    let config = TopicConfig { writers: Writers::OwnersOnly, ..TopicConfig::default() };
    log.create_topic(&topic(), &config)?;
    append_from(log, 0, points)
}

fn topic() -> TopicName {
    TopicName::reserved(TopicKind::Context, &TenantId::default())
}

/// Appends changes of one attribute of one entity, as its owner does.
fn append_from(log: &dyn Log, first: usize, points: usize) -> anyhow::Result<()> {
    let partition = partition_of_key(ID.as_bytes(), 4);
    let partition = log.partition(&TopicPartition::new(topic(), partition.0))?;
    let headers = [
        Header { key: header::ALTERATION_TYPE, value: Some(b"entityChange") },
        Header { key: header::CHANGED_ATTRIBUTES, value: Some(b"temperature") },
        Header { key: header::SERVICE_PATH, value: Some(b"/") },
    ];
    for from in (first..first + points).step_by(APPEND_RECORDS) {
        let values: Vec<(i64, String)> = (from..(from + APPEND_RECORDS).min(first + points)).map(value).collect();
        let record = |(ms, value): &(i64, String)| -> Vec<u8> { entity(*ms, value).into_bytes() };
        let bodies: Vec<Vec<u8>> = values.iter().map(record).collect();
        let records: Vec<Record<'_>> = values
            .iter()
            .zip(&bodies)
            .map(|((ms, _), body)| Record {
                timestamp_ms: *ms,
                key: Some(ID.as_bytes()),
                value: Some(body),
                headers: &headers,
            })
            .collect();
        let (done, answer) = reply();
        partition.append(&records, AckLevel::Written, done)?;
        answer.wait()?;
    }
    Ok(())
}

/// Time and value of the point with this number: a daily curve with noise.
fn value(number: usize) -> (i64, String) {
    let ms = START_MS + number as i64 * STEP_MS;
    let day = number as f64 * STEP_MS as f64 / 86_400_000.0 * std::f64::consts::TAU;
    let noise = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
    (ms, format!("{:.2}", 15.0 - 8.0 * day.cos() + noise as f64 / 1_000.0))
}

/// Renders the entity that telemetry of a weather station creates.
fn entity(ms: i64, value: &str) -> String {
    let observed = iso_time(ms);
    format!(
        r#"{{"id":"{ID}","type":"WeatherObserved","temperature":{{"type":"Number","value":{value},"metadata":{{"TimeInstant":{{"type":"DateTime","value":"{observed}"}}}}}},"humidity":{{"type":"Number","value":0.5,"metadata":{{"TimeInstant":{{"type":"DateTime","value":"{observed}"}}}}}}}}"#
    )
}

async fn serve(history: &History) -> anyhow::Result<(millstream_http::Serving, std::net::SocketAddr)> {
    let metrics = Metrics::default();
    let [temporal, ..] = history.routes();
    let api = Api::builder("bench", "History", "1").with(temporal).build(&metrics)?;
    let everybody = Arc::new(LoopbackApplications::default());
    let listener = Listener::bind("bench", "127.0.0.1:0".parse()?, everybody, ListenerLimits::default()).await?;
    let address = listener.address();
    Ok((listener.serve(Arc::new(api), &metrics), address))
}

struct HistoryClient(SendRequest<Empty<Bytes>>);

impl HistoryClient {
    async fn connect(address: std::net::SocketAddr) -> anyhow::Result<Self> {
        let socket = tokio::net::TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    async fn get(&mut self, query: &str) -> anyhow::Result<usize> {
        let path = format!("/ngsi-ld/v1/temporal/entities/{ID}?attrs=temperature&{query}");
        let request = hyper::Request::get(path).header("host", "localhost").body(Empty::new())?;
        self.0.ready().await?;
        let answer = self.0.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if status != hyper::StatusCode::OK {
            bail!("{status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body.len())
    }
}

struct HistoryBench<'b> {
    machine: &'b Machine,
    points: usize,
}

impl HistoryBench<'_> {
    /// Builds the case of storing all points.
    fn kept(&self, took: Duration, cpu_s: f64, history: &History) -> anyhow::Result<BenchCase> {
        let stats = history.stats();
        let conditions = json!({
            "kind": "library kernel", "points": self.points, "took_s": took.as_secs_f64(), "files": stats.files,
            "file_bytes": stats.file_bytes, "file_bytes_per_point": stats.file_bytes as f64 / self.points as f64,
            "attributes_of_the_entity": 2, "attributes_changed": 1,
        });
        let rate_per_s = self.points as f64 / took.as_secs_f64();
        self.case("changes from the log into files", conditions, rate_per_s, cpu_s, self.points)
    }

    /// Runs reads one after the other.
    async fn read(
        &self,
        client: &mut HistoryClient,
        name: &str,
        query: &str,
        reads: usize,
    ) -> anyhow::Result<BenchCase> {
        let mut latencies = Latencies::default();
        let mut bytes = 0;
        let (began, cpu_before) = (Instant::now(), process::cpu_s(std::process::id())?);
        for _ in 0..reads {
            let began = Instant::now();
            bytes = client.get(query).await?;
            latencies.record(began.elapsed());
        }
        let (took, cpu_s) = (began.elapsed(), process::cpu_s(std::process::id())? - cpu_before);
        let conditions = json!({
            "kind": "HTTP over loopback, one kept connection, one request after the other; the client is in the process",
            "points": self.points, "query": query, "answer_bytes": bytes, "reads": reads,
        });
        let mut case = self.case(name, conditions, reads as f64 / took.as_secs_f64(), cpu_s, reads)?;
        case.latency_ms = Some(latencies.summary());
        Ok(case)
    }

    fn case(&self, name: &str, own: Value, rate_per_s: f64, cpu_s: f64, count: usize) -> anyhow::Result<BenchCase> {
        let mut conditions: Map<String, Value> = self.machine.conditions();
        conditions.extend(own.as_object().cloned().unwrap_or_default());
        Ok(BenchCase {
            suite: "context".to_owned(),
            case: format!("history of {} points: {name}", self.points),
            conditions,
            rate_per_s,
            per_core_per_s: (cpu_s > 0.0).then(|| count as f64 / cpu_s),
            latency_ms: None,
            errors: 0,
            rss_mib: Some(process::rss_mib(std::process::id())?),
            cpu_s_per_million: (cpu_s > 0.0).then(|| cpu_s / count as f64 * 1e6),
            peer: None,
            ratio: None,
            generator_bottleneck: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_run_has_every_case() {
        let dir = tempfile::tempdir().unwrap();
        let (cases, aims) = measure_points(&Machine::with_files_in(dir.path()), dir.path(), 5_000, 3).unwrap();
        let names: Vec<&str> = cases.iter().filter_map(|case| case.case.split(": ").nth(1)).collect();
        assert_eq!(
            names,
            [
                "changes from the log into files",
                "lastN = 100, all in files",
                "hourly average of all, in files",
                "lastN = 100, the last in memory",
            ]
        );
        assert!(cases.iter().all(|case| case.rate_per_s > 0.0 && case.errors == 0));
        assert_eq!(aims.len(), 2);
    }
}
