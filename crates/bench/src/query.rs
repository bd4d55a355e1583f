//! Suite `query`: live queries, by the tests B1 to B6: how soon a first answer comes, how soon a record is found, and how
//! many queries find exactly their records while 1.8 KiB records stream in; whether queries that come and go disturb those
//! that stay; and how much memory takes a query that waits.
//!
//! The server is a process of its own; this one sends the records through the Kafka listener, by timetable, asks
//! the queries over one WebSocket and hears what they give. One clock stamps records when they are sent and
//! answers when they are heard.

mod churn;
mod delivery;
mod idle;
mod server;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use millstream_load::JsonClient;
use millstream_load::Latencies;
use millstream_load::kafka::{MarkerField, RunningStream, StreamLoad, stamp_us};
use millstream_load::report::{BenchCase, Peer};
use serde_json::{Map, Value, json};

use self::delivery::{DeliveryResult, DeliveryTest, QuerySession};
use self::server::{PARTITIONS, QueryServer, TOPIC};
use super::machine::Machine;
use super::page::ChartPage;
use super::reader::median;
use super::{Length, Report, RunArgs};

const PAGE: ChartPage = ChartPage {
    title: "Live queries, B1 to B6",
    charts: concat!(include_str!("bars.js"), include_str!("query/charts.js")),
};

/// Records of the pool: 16,384 in whole batches.
const POOL_RECORDS: usize = 16_384;

#[derive(Debug, Args)]
pub(super) struct QueryArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Only this test, such as b5
    #[arg(long, value_name = "TEST")]
    only: Option<String>,
    /// Number of queries that b4, b5 and b6 ask
    #[arg(long, default_value_t = 100_000)]
    queries: usize,
    /// Draws the figures as a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Queries that stay in the test of those that come and go.
const STAYING: usize = 50_000;
/// Queries that start and end each second.
const CHURN_PER_S: u64 = 1_000;
const CHURN_PAIRS: usize = 5;

/// Counts and times of the tests.
#[derive(Debug, Clone, Copy)]
struct QueryWorkload {
    questions: usize,
    /// Time between two queries of B2; twice the time from a query to its record.
    pause: Duration,
    /// Time within which all marked records of B3 to B6 are sent.
    planting: Duration,
    queries: usize,
    repeats: usize,
    /// Query counts of the runs of B4.
    one_value: &'static [usize],
}

/// Query counts of the published test, and larger ones.
const ONE_VALUE: [usize; 8] = [300, 500, 600, 700, 735, 800, 2_000, 10_000];

impl QueryWorkload {
    fn of(length: Length, queries: usize) -> Self {
        let ms = Duration::from_millis;
        match length {
            Length::Quick => Self {
                questions: 100,
                pause: ms(50),
                planting: ms(5_000),
                queries,
                repeats: 1,
                one_value: &ONE_VALUE[7..],
            },
            Length::Default => Self {
                questions: 100,
                pause: ms(200),
                planting: ms(10_000),
                queries,
                repeats: 3,
                one_value: &ONE_VALUE[4..],
            },
            Length::Full => Self {
                questions: 100,
                pause: ms(1_000),
                planting: ms(20_000),
                queries,
                repeats: 10,
                one_value: &ONE_VALUE,
            },
        }
    }
}

struct QueryBench {
    plan: QueryWorkload,
    machine: Machine,
    begin: Instant,
}

pub(super) fn measure(arguments: &QueryArgs) -> anyhow::Result<Report> {
    let machine = Machine::with_files_in(&std::env::temp_dir());
    let plan = QueryWorkload::of(arguments.run.length(), arguments.queries);
    let suite = QueryBench { plan, machine, begin: Instant::now() };
    let (mut cases, mut notes) = (Vec::new(), Vec::new());
    type Measured = (BenchCase, String);
    type Test = fn(&QueryBench) -> anyhow::Result<Vec<Measured>>;
    let tests: [(&str, Test); 8] = [
        ("b1", |suite| Ok(vec![suite.first_answer()?])),
        ("b2", |suite| Ok(vec![suite.find_one()?])),
        ("b3", QueryBench::one_value_735),
        ("b4", QueryBench::one_value_many),
        ("b5", |suite| Ok(vec![suite.distinct_values()?])),
        ("b6", |suite| Ok(vec![suite.mixed()?])),
        ("churn", QueryBench::come_and_go),
        ("memory", |suite| Ok(vec![suite.wait_for_nothing()?])),
    ];
    for (name, test) in tests {
        if arguments.only.as_ref().is_none_or(|only| only.eq_ignore_ascii_case(name)) {
            eprintln!("{name}");
            for (case, note) in test(&suite).with_context(|| format!("test {name}"))? {
                cases.push(case);
                notes.push(note);
            }
        }
    }
    notes.extend(suite.machine.warning());
    let heading = format!(
        "Over sockets: records of 1.8 KiB with 40 fields through the Kafka listener into a topic in memory with {PARTITIONS} partitions, \
         open loop; the server is a process of its own, generator and clients are another, all on the same cores.\n{}.\n\
         Published figures beside ours: Bullet on Storm, 219.5 reserved cores of a cluster.",
        suite.machine
    );
    let report = Report { heading, cases, notes };
    if let Some(path) = &arguments.html {
        PAGE.write(path, &report)?;
    }
    Ok(report)
}

impl QueryBench {
    fn stream(&self, place: &QueryServer, records_per_s: f64, batch_records: usize) -> anyhow::Result<RunningStream> {
        let load = StreamLoad {
            address: place.kafka,
            topic: TOPIC.to_owned(),
            partitions: PARTITIONS,
            batches: POOL_RECORDS / batch_records,
            batch_records,
            records_per_s,
            begin: self.begin,
        };
        Ok(load.start()?)
    }

    /// B1: no filter, LIMIT 1, one question after the other.
    fn first_answer(&self) -> anyhow::Result<(BenchCase, String)> {
        let place = QueryServer::open()?;
        let stream = self.stream(&place, 10_000.0, 4)?;
        let mut client = JsonClient::connect(place.applications)?;
        let question = json!({ "query": format!("SELECT * FROM \"{TOPIC}\" LIMIT 1") });
        let (mut round_trip, mut inside, mut since_record) =
            (Latencies::default(), Latencies::default(), Latencies::default());
        for number in 0..self.plan.questions + 10 {
            let asked = Instant::now();
            let answer = client.send("POST", "/api/queries", &question)?;
            let now_us = stamp_us(self.begin);
            // The first queries are a warm-up.
            if number < 10 {
                continue;
            }
            round_trip.record(asked.elapsed());
            inside.record(Duration::from_micros(answer["meta"]["elapsed_us"].as_u64().context("no elapsed_us")?));
            let emitted_us = answer["records"][0]["emitted_us"].as_u64().context("no record")?;
            since_record.record(Duration::from_micros(now_us.saturating_sub(emitted_us)));
        }
        let streamed = stream.stop()?;
        let (inside, since_record) = (inside.summary(), since_record.summary());
        let more = json!({ "received_to_finished_ms": inside, "record_sent_to_answer_ms": since_record });
        let met = since_record.p50 <= 0.3 && since_record.p99 <= 2.0;
        let note = format!(
            "B1, from a record's emission to the answer in the client's hands p50 at most 0.3 ms, p99 at most 2 ms: {}: {:.2} and {:.2} ms; \
             from the query's reception to its end {:.2} and {:.2} ms. Published: 1.74 ms mean from reception to the end.",
            verdict(met),
            since_record.p50,
            since_record.p99,
            inside.p50,
            inside.p99,
        );
        let peer = published("mean 1.74 ms", 0.0);
        let mut case =
            self.case("B1 first answer, 10,000 records/s", &place, &streamed, round_trip.summary(), more, peer)?;
        case.errors = streamed.refused;
        Ok((case, note))
    }

    /// B2: a unique value, planted once its query is live.
    fn find_one(&self) -> anyhow::Result<(BenchCase, String)> {
        let place = QueryServer::open()?;
        let stream = self.stream(&place, 164_000.0, 128)?;
        let mut session = QuerySession::open(place.applications, self.begin)?;
        let mut latencies = Latencies::default();
        for number in 0..self.plan.questions {
            let query = format!("SELECT * FROM \"{TOPIC}\" WHERE id = '{}' LIMIT 1", foreign_id(number));
            session.ask([(number, query)])?;
            session.wait_live(number + 1)?;
            std::thread::sleep(self.plan.pause / 2);
            stream.plant(vec![(MarkerField::Id, foreign_id(number)), (MarkerField::Sequence, format!("{number:08}"))]);
            latencies.record(session.wait_row(number)?);
            std::thread::sleep(self.plan.pause / 2);
        }
        let streamed = stream.stop()?;
        let found = latencies.summary();
        let note = format!(
            "B2, emitted to answer p99 at most 20 ms: {}: p50 {:.2} ms, p99 {:.2} ms, all {} found, at {:.0} records/s. Published: at most \
             646.71 ms, of which 4.53 ms from seeing the record.",
            verdict(found.p99 <= 20.0 && kept_pace(&streamed, 164_000.0)),
            found.p50,
            found.p99,
            self.plan.questions,
            streamed.rate_per_s(),
        );
        let peer = published("646.71 ms at most, 164,000 records/s", 164_000.0);
        Ok((self.case("B2 one record found", &place, &streamed, found, Value::Null, peer)?, note))
    }

    fn one_value_735(&self) -> anyhow::Result<Vec<(BenchCase, String)>> {
        let repeats = self.plan.repeats;
        (1..=repeats).map(|run| self.one_value(&format!("B3 run {run} of {repeats}"), 735, 170_000.0)).collect()
    }

    fn one_value_many(&self) -> anyhow::Result<Vec<(BenchCase, String)>> {
        let mut counts: Vec<usize> = self.plan.one_value.iter().map(|count| self.plan.queries.min(*count)).collect();
        counts.dedup();
        counts.into_iter().map(|count| self.one_value(&format!("B4 {count} queries"), count, 168_000.0)).collect()
    }

    /// B3, B4: all ask for one value; ten records have it.
    fn one_value(&self, name: &str, queries: usize, records_per_s: f64) -> anyhow::Result<(BenchCase, String)> {
        let query = format!("SELECT * FROM \"{TOPIC}\" WHERE id = '{}' LIMIT 10", foreign_id(0));
        let plants = (0..10).map(|_| (vec![(MarkerField::Id, foreign_id(0))], (0..queries).collect())).collect();
        let planting = DeliveryTest {
            queries: vec![query; queries],
            plants,
            records_per_s,
            time: self.plan.planting,
            churn_per_s: 0,
        };
        self.deliver(&format!("{name}, one value, {queries} queries"), &planting, "735 queries, 168,000 records/s")
    }

    /// B5: each asks for a value of its own; records for a thousand of them, and a hundred for none.
    fn distinct_values(&self) -> anyhow::Result<(BenchCase, String)> {
        let count = self.plan.queries;
        self.deliver(&format!("B5 distinct values, {count} queries"), &self.distinct(count), "735 queries of one value")
    }

    fn distinct(&self, count: usize) -> DeliveryTest {
        let ask = |i| format!("SELECT * FROM \"{TOPIC}\" WHERE id = '{}'", foreign_id(i));
        let mut random = fastrand::Rng::with_seed(5);
        let mut plants: Vec<_> = (0..1_000)
            .map(|_| random.usize(..count))
            .map(|i| (vec![(MarkerField::Id, foreign_id(i))], vec![i]))
            .collect();
        plants.extend((0..100).map(|i| (vec![(MarkerField::Id, foreign_id(count + i))], Vec::new())));
        random.shuffle(&mut plants);
        let queries = (0..count).map(ask).collect();
        DeliveryTest { queries, plants, records_per_s: 170_000.0, time: self.plan.planting, churn_per_s: 0 }
    }

    /// B6: 80 % one equality, 10 % two, 5 % range, 3 % OR of three, 1 % NOT, 1 % RLIKE. One of a hundred sums up in windows;
    /// for these no record is planted.
    fn mixed(&self) -> anyhow::Result<(BenchCase, String)> {
        let count = self.plan.queries;
        let mut random = fastrand::Rng::with_seed(6);
        let raw: Vec<usize> = (0..count).filter(|i| !is_summed_up(*i)).collect();
        let plants = (0..1_000).map(|_| raw[random.usize(..raw.len())]).map(|i| (mixed_plant(i), vec![i])).collect();
        let queries = (0..count).map(mixed_query).collect();
        let planting =
            DeliveryTest { queries, plants, records_per_s: 100_000.0, time: self.plan.planting, churn_per_s: 0 };
        self.deliver(&format!("B6 mixed, {count} queries"), &planting, "735 queries of one value")
    }

    /// 50,000 queries stay: how long their records take, in turns alone and beside 1,000 others a second that come and go.
    fn come_and_go(&self) -> anyhow::Result<Vec<(BenchCase, String)>> {
        let (mut measured, mut alone_ms, mut beside_ms) = (Vec::new(), Vec::new(), Vec::new());
        for pair in 1..=CHURN_PAIRS {
            for (what, churn_per_s, p99_ms) in [("alone", 0, &mut alone_ms), ("beside", CHURN_PER_S, &mut beside_ms)] {
                let planting = DeliveryTest {
                    records_per_s: 100_000.0,
                    churn_per_s,
                    ..self.distinct(STAYING.min(self.plan.queries))
                };
                let name = format!("Queries that stay {what}, pair {pair} of {CHURN_PAIRS}");
                let (case, note) = self.deliver(&name, &planting, "735 queries of one value")?;
                p99_ms.push(case.latency_ms.as_ref().map_or(f64::INFINITY, |latency| latency.p99));
                measured.push((case, note));
            }
        }
        let rises = alone_ms.iter().zip(&beside_ms).map(|(alone, beside)| beside - alone).collect();
        let (rise, alone) = (median(rises), median(alone_ms));
        let note = format!(
            "1,000 queries a second that come and go raise the p99 of {STAYING} others by at most 20 % or 1 ms: {}: the median of \
             {CHURN_PAIRS} pairs is {rise:.2} ms higher, alone it is {alone:.2} ms.",
            verdict(rise <= f64::max(1.0, 0.2 * alone))
        );
        if let Some((_, last)) = measured.last_mut() {
            *last = format!("{last}\n{note}");
        }
        Ok(measured)
    }

    fn deliver(&self, name: &str, planting: &DeliveryTest, published_as: &str) -> anyhow::Result<(BenchCase, String)> {
        let place = QueryServer::open()?;
        let stream = self.stream(&place, planting.records_per_s, 128)?;
        let delivered = planting.run(&place, &stream, self.begin);
        let streamed = stream.stop()?;
        let delivered = delivered?;
        let DeliveryResult { expected, missing, foreign, twice, cpu, .. } = &delivered;
        let kept = kept_pace(&streamed, planting.records_per_s);
        let came =
            delivered.churned.as_ref().is_none_or(|churned| churned.asked_per_s >= 0.99 * planting.churn_per_s as f64);
        let met = *missing + *foreign + *twice == 0 && kept && came && streamed.refused == 0;
        let churned = delivered.churned.as_ref().map_or_else(String::new, |churned| {
            format!(
                " Beside them {:.0} queries a second were asked, {} were killed.",
                churned.asked_per_s, churned.killed
            )
        });
        let note = format!(
            "{name}: {}: {} of {expected} planted rows delivered, {foreign} foreign, {twice} twice, at {:.0} of {:.0} records/s (sent at \
             most {:.1} ms late); CPU of the query threads {:.2}, of the whole server {:.2}, of the generator {:.2} cores; queries live \
             after {:.2} s.{churned}",
            verdict(met),
            expected - missing,
            streamed.rate_per_s(),
            planting.records_per_s,
            streamed.late_max.as_secs_f64() * 1e3,
            cpu.query,
            cpu.server,
            streamed.cpu.as_secs_f64() / streamed.took.as_secs_f64(),
            delivered.live_after.as_secs_f64(),
        );
        let more = delivered.conditions(planting);
        let errors = (missing + foreign + twice) as u64 + streamed.refused;
        let latency = delivered.latencies.summary();
        let peer = published(published_as, 168_000.0);
        let mut case = self.case(name, &place, &streamed, latency, more, peer)?;
        case.errors = errors;
        case.generator_bottleneck = !kept;
        Ok((case, note))
    }

    fn case(
        &self,
        name: &str,
        place: &QueryServer,
        streamed: &millstream_load::kafka::StreamResult,
        latency: millstream_load::LatencyMs,
        more: Value,
        peer: Peer,
    ) -> anyhow::Result<BenchCase> {
        let mut conditions: Map<String, Value> = self.machine.conditions();
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "generator_and_clients": "one process, on the same cores",
            "topic": format!("in memory, {PARTITIONS} partitions"),
            "record": "1.8 KiB of JSON, 40 fields, the queried one last",
            "pool_records": POOL_RECORDS,
            "late_max_ms": streamed.late_max.as_secs_f64() * 1e3,
            "generator_cores": streamed.cpu.as_secs_f64() / streamed.took.as_secs_f64(),
        });
        for members in [own, more] {
            if let Value::Object(members) = members {
                conditions.extend(members);
            }
        }
        Ok(BenchCase {
            suite: "query".to_owned(),
            case: name.to_owned(),
            conditions,
            rate_per_s: streamed.rate_per_s(),
            per_core_per_s: None,
            latency_ms: Some(latency),
            errors: streamed.refused,
            rss_mib: Some(super::process::rss_peak_mib(place.server.pid())?),
            cpu_s_per_million: Some(place.server.cpu_s()? / streamed.records as f64 * 1e6),
            peer: Some(peer),
            ratio: None,
            generator_bottleneck: false,
        })
    }
}

fn published(what: &str, records_per_s: f64) -> Peer {
    Peer { name: format!("Bullet, published: {what}"), rate_per_s: records_per_s, ..Peer::default() }
}

/// Returns whether 99 % of the rate was reached.
fn kept_pace(streamed: &millstream_load::kafka::StreamResult, records_per_s: f64) -> bool {
    streamed.rate_per_s() >= 0.99 * records_per_s
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

/// Returns an id that is not hexadecimal, so that only marked records have it.
fn foreign_id(i: usize) -> String {
    format!("q{i:09}")
}

/// Returns a ten-digit integer above those of unmarked records.
fn foreign_long(i: usize) -> usize {
    5_000_000_000 + i * 20
}

/// Returns a short-lived query that no record matches.
fn passing_query(i: u64) -> String {
    format!("SELECT * FROM \"{TOPIC}\" WHERE id = 'p{i:09}'")
}

fn is_summed_up(i: usize) -> bool {
    i % 100 == 50
}

fn mixed_query(i: usize) -> String {
    let (filter, every) = (mixed_filter(i), "WINDOWING TUMBLING(1000, TIME)");
    match (is_summed_up(i), i / 100 % 3) {
        (false, _) => format!("SELECT * FROM \"{TOPIC}\" WHERE {filter}"),
        (_, 0) => format!("SELECT COUNT(DISTINCT text_01) AS n FROM \"{TOPIC}\" WHERE {filter} {every}"),
        (_, 1) => format!("SELECT TOP(3, text_01) FROM \"{TOPIC}\" WHERE {filter} {every}"),
        _ => format!("SELECT flag_0, COUNT(*) AS n FROM \"{TOPIC}\" WHERE {filter} GROUP BY flag_0 {every}"),
    }
}

fn mixed_filter(i: usize) -> String {
    let id = foreign_id(i);
    match i % 100 {
        0..80 => format!("id = '{id}'"),
        80..90 => format!("flag_1 = TRUE AND id = '{id}'"),
        90..95 => format!("long_1 BETWEEN {} AND {}", foreign_long(i), foreign_long(i) + 9),
        95..98 => format!("id = '{id}' OR text_03 = '{id}' OR text_20 = '{id}'"),
        98 => format!("id = '{id}' AND NOT flag_1"),
        _ => format!("text_10 RLIKE '.*{id}.*'"),
    }
}

/// Returns the marker that only [`mixed_filter`] of `i` matches.
fn mixed_plant(i: usize) -> Vec<(MarkerField, String)> {
    let id = (MarkerField::Id, foreign_id(i));
    match i % 100 {
        80..90 => vec![id, (MarkerField::Flag, "true ".to_owned())],
        90..95 => vec![(MarkerField::Long, (foreign_long(i) + 5).to_string())],
        98 => vec![id, (MarkerField::Flag, "false".to_owned())],
        99 => vec![(MarkerField::Text, format!("zz{}", foreign_id(i)))],
        _ => vec![id],
    }
}
