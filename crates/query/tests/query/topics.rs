//! Results that go into topics, and queries that are asked by records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Cleanup, TopicConfig, UpTo, Writers};
use millstream_query::{Config, Deliver, Deliveries, Error, QueryRequest, Requester, Requests};
use millstream_testkit::eventually_async;
use millstream_types::{Header, QuotaConfig, QuotaType, Quotas, Record, TenantId, TopicName, TopicPartition};
use serde_json::{Value, json};

use crate::common::fixture::{Ending, Fixture, append, disk, fixture, fixture_on_disk, memory, read_all, two_threads};

/// A record of results.
#[derive(Debug, Clone)]
struct Got {
    partition: u32,
    key: String,
    kind: String,
    sequence: u64,
    headers: Value,
    value: Value,
}

struct Topics {
    fixture: Fixture,
    deliveries: Arc<Deliveries>,
    quotas: Arc<Quotas>,
}

impl Topics {
    fn new(config: Config, quota: QuotaConfig) -> Self {
        Self::over(fixture(&memory(), config), quota)
    }

    /// With a stream on disk, for a restart.
    fn on_disk(config: Config, quota: QuotaConfig) -> Self {
        Self::over(fixture_on_disk(&disk(), config), quota)
    }

    fn over(fixture: Fixture, quota: QuotaConfig) -> Self {
        let quotas = Quotas::new(quota, fixture.clock.clone());
        let deliveries = Deliveries::new(fixture.engine.clone(), quotas.clone());
        let topics = Self { fixture, deliveries, quotas };
        topics.create("answers", &TopicConfig { partitions: 3, ..TopicConfig::default() });
        topics
    }

    /// Ends the process and starts the next one.
    fn restart(&mut self, ending: Ending) {
        self.fixture.restart(ending, Duration::from_secs(1));
        self.quotas = Quotas::new(QuotaConfig::default(), self.fixture.clock.clone());
        self.deliveries = Deliveries::new(self.fixture.engine.clone(), self.quotas.clone());
        self.deliveries.resume();
    }

    /// Asks a query that is kept.
    async fn keep(&self, query: &str, topic: &str) -> Result<String, Error> {
        let asker = Requester { tenant: &self.fixture.tenant, client: "test", correlation: Some("c-7") };
        let request =
            QueryRequest { deliver: Deliver::Topic(topic.to_owned()), keep: true, ..QueryRequest::new(query) };
        self.deliveries.begin(asker, request).await.map(|told| told.id.to_string())
    }

    /// Lets the time come at which queries are kept.
    fn pass(&self) {
        self.fixture.clock.advance(Duration::from_secs(1));
    }

    /// Waits until a query has seen so many records.
    async fn seen(&self, id: &str, records: u64) {
        let meta = || self.fixture.engine.get(&self.fixture.tenant, id.parse().unwrap()).unwrap();
        eventually_async("the records have been seen", || meta().records_seen == records).await;
        drop(self.fixture.live("SELECT * FROM STREAM() WHERE nobody").await);
    }

    /// The results of a query, each once, by their numbers; those that came twice are the same.
    fn results_of(&self, topic: &str, id: &str) -> BTreeMap<u64, (String, Value, Value)> {
        let mut once = BTreeMap::new();
        for got in self.results(topic).into_iter().filter(|got| got.key == id) {
            assert_eq!(got.headers["correlation-id"], "c-7");
            let result = (got.kind, got.headers["window"].clone(), got.value);
            let known = once.entry(got.sequence).or_insert_with(|| result.clone());
            assert_eq!(*known, result, "of one number is one result");
        }
        assert!(once.keys().copied().eq(1..=once.len() as u64), "{once:?}");
        once
    }

    async fn results_until(&self, topic: &str, id: &str, count: usize) -> BTreeMap<u64, (String, Value, Value)> {
        eventually_async(&format!("{count} results"), || self.results_of(topic, id).len() >= count).await;
        self.results_of(topic, id)
    }

    fn name(&self, topic: &str) -> TopicName {
        TopicName::parse(topic, &self.fixture.tenant).unwrap()
    }

    fn create(&self, topic: &str, config: &TopicConfig) {
        self.fixture.log.create_topic(&self.name(topic), config).unwrap();
    }

    async fn begin(&self, query: &str, topic: &str) -> Result<String, Error> {
        let asker = Requester { tenant: &self.fixture.tenant, client: "test", correlation: None };
        let request = QueryRequest { deliver: Deliver::Topic(topic.to_owned()), ..QueryRequest::new(query) };
        self.deliveries.begin(asker, request).await.map(|told| told.id.to_string())
    }

    fn send(&self, payloads: &[Value]) {
        self.fixture.send("k", &payloads.iter().map(Value::to_string).collect::<Vec<_>>());
    }

    fn append(&self, topic: &str, key: &str, value: &str, headers: &[Header<'_>]) {
        let partition = self.fixture.log.partition(&TopicPartition::new(self.name(topic), 0)).unwrap();
        let record = Record { key: Some(key.as_bytes()), value: Some(value.as_bytes()), headers, ..Record::default() };
        append(&*partition, &[record], AckLevel::Memory);
    }

    /// All results that are in a topic, by partition and offset.
    fn results(&self, topic: &str) -> Vec<Got> {
        let name = self.name(topic);
        let mut results = Vec::new();
        for number in 0..self.fixture.log.topic(&name).unwrap().config.partitions {
            let partition = self.fixture.log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
            let batches = read_all(&*partition, UpTo::Tail);
            for view in batches.iter().flat_map(|batch| batch.records()) {
                let view = view.unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let headers: Value =
                    view.headers().map(|h| (h.key.to_owned(), Value::from(text(h.value.unwrap())))).collect();
                results.push(Got {
                    partition: number,
                    key: text(view.key.unwrap()),
                    kind: headers["kind"].as_str().unwrap().to_owned(),
                    sequence: headers["sequence"].as_str().unwrap().parse().unwrap(),
                    value: serde_json::from_slice(view.value.unwrap()).unwrap(),
                    headers,
                });
            }
        }
        results
    }

    /// The results of a topic once there is one of `kind`.
    async fn results_with(&self, topic: &str, kind: &str) -> Vec<Got> {
        eventually_async(&format!("a record '{kind}' in '{topic}'"), || {
            self.results(topic).iter().any(|got| got.kind == kind)
        })
        .await;
        self.results(topic)
    }
}

fn kinds(results: &[Got]) -> Vec<&str> {
    results.iter().map(|got| &*got.kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_records_in_one_partition_under_the_querys_id() {
    let topics = Topics::new(two_threads(), QuotaConfig::default());
    let id = topics.begin("SELECT n, t FROM STREAM() WHERE n >= 0 LIMIT 3", "answers").await.unwrap();
    topics.send(&[json!({"n": 1, "t": "a"}), json!({"n": -1}), json!({"n": 2}), json!({"n": 3}), json!({"n": 4})]);
    let results = topics.results_with("answers", "end").await;
    assert_eq!(kinds(&results), ["opening", "row", "row", "row", "end"]);
    assert!(results.iter().all(|got| got.key == id && got.headers["query-id"] == id), "{results:?}");
    assert!(results.iter().all(|got| got.partition == results[0].partition), "{results:?}");
    assert_eq!(results.iter().map(|got| got.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!((&results[0].value["id"], &results[0].value["columns"]), (&json!(id), &json!(["n", "t"])));
    let rows: Vec<&Value> = results[1..4].iter().map(|got| &got.value).collect();
    assert_eq!(rows, [&json!({"n": 1, "t": "a"}), &json!({"n": 2, "t": null}), &json!({"n": 3, "t": null})]);
    assert_eq!((&results[4].value["cause"], &results[4].value["matched"]), (&json!("size"), &json!(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_window_is_its_rows_and_a_record_that_closes_it() {
    let topics = Topics::new(two_threads(), QuotaConfig::default());
    let query = "SELECT g, COUNT(*) AS c FROM STREAM() GROUP BY g ORDER BY g WINDOWING TUMBLING(2, RECORD)";
    let id = topics.begin(query, "answers").await.unwrap();
    topics.send(&[json!({"g": 1}), json!({"g": 2}), json!({"g": 3}), json!({"g": 3})]);
    eventually_async("both windows", || topics.results("answers").len() == 6).await;
    topics.fixture.engine.kill(&topics.fixture.tenant, id.parse().unwrap()).unwrap();
    let results = topics.results_with("answers", "end").await;
    assert_eq!(kinds(&results), ["opening", "row", "row", "window", "row", "window", "end"]);
    let windows: Vec<&Value> = results[1..6].iter().map(|got| &got.headers["window"]).collect();
    assert_eq!(windows, ["1", "1", "1", "2", "2"]);
    assert_eq!(results[4].value, json!({"g": 3, "c": 2}));
    assert_eq!((&results[5].value["number"], &results[5].value["records"]), (&json!(2), &json!(2)));
    assert_eq!(results[6].value["cause"], "killed");
}

#[tokio::test]
async fn a_topic_that_cannot_take_results_is_refused_and_nothing_lives_on() {
    let topics = Topics::new(two_threads(), QuotaConfig::default());
    topics.create("compacted", &TopicConfig { cleanup: Cleanup::Compact, ..TopicConfig::default() });
    topics.create("owned", &TopicConfig { writers: Writers::OwnersOnly, ..TopicConfig::default() });
    topics.create("queries.acme", &TopicConfig::default());
    for (topic, rule) in [
        ("none", "create it first"),
        ("compacted", "compacted"),
        ("owned", "no records from outside"),
        ("queries.acme", "are asked there"),
        ("telemetry.acme", "a topic of your own"),
        ("telemetry.other", "a topic of your own"),
        ("_context", "a topic of your own"),
        ("a b", "not a topic name"),
    ] {
        let refused = topics.begin("SELECT * FROM STREAM()", topic).await.unwrap_err().to_string();
        assert!(refused.contains(rule), "{topic}: {refused}");
    }
    let looped = topics.begin("SELECT * FROM \"answers\"", "answers").await.unwrap_err().to_string();
    assert!(looped.contains("the one that the query reads"), "{looped}");
    assert!(matches!(topics.begin("SELCT", "answers").await, Err(Error::Refused { .. })));
    assert_eq!(topics.fixture.engine.live_count(), 0);
    assert!(topics.results("answers").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_whose_results_do_not_fit_ends_with_the_reason_and_others_go_on() {
    let topics = Topics::new(two_threads(), QuotaConfig::default());
    topics.create("small", &TopicConfig { record_max_bytes: 2000, ..TopicConfig::default() });
    let columns: Vec<String> = (0..3).map(|n| format!("t AS t{n}")).collect();
    let query = format!("SELECT {} FROM STREAM()", columns.join(", "));
    topics.begin(&query, "small").await.unwrap();
    topics.begin("SELECT n FROM STREAM() LIMIT 2", "answers").await.unwrap();
    topics.create("gone", &TopicConfig::default());
    topics.begin("SELECT * FROM STREAM()", "gone").await.unwrap();
    eventually_async("it has begun", || kinds(&topics.results("gone")) == ["opening"]).await;
    topics.fixture.log.delete_topic(&topics.name("gone")).unwrap();
    topics.send(&[json!({"n": 1, "t": "x".repeat(1000)}), json!({"n": 2, "t": ""})]);
    let results = topics.results_with("small", "end").await;
    assert_eq!(kinds(&results), ["opening", "end"], "{results:?}");
    let end = &results[1].value;
    assert_eq!(end["cause"], "error");
    assert!(end["errors"][0]["error"].as_str().unwrap().contains("record_max_bytes"), "{end}");
    assert_eq!(kinds(&topics.results_with("answers", "end").await), ["opening", "row", "row", "end"]);
    eventually_async("none lives", || topics.fixture.engine.live_count() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_results_up_and_ends_only_the_query_that_has_too_many() {
    let quota = QuotaConfig { client_produce_bytes_per_second: 20_000, ..QuotaConfig::default() };
    let topics = Topics::new(Config { queue_max_bytes: 64 << 10, ..two_threads() }, quota);
    topics.fixture.clock.advance(Duration::from_secs(2));
    topics.quotas.charge(QuotaType::Produce, &topics.fixture.tenant, "test", 1_000_000);
    topics.begin("SELECT * FROM STREAM() WHERE big IS NOT NULL", "answers").await.unwrap();
    topics.create("others", &TopicConfig::default());
    let calm = Requester { tenant: &topics.fixture.tenant, client: "calm", correlation: None };
    let request = QueryRequest {
        deliver: Deliver::Topic("others".to_owned()),
        ..QueryRequest::new("SELECT n FROM STREAM() WHERE n = 99 LIMIT 1")
    };
    topics.deliveries.begin(calm, request).await.unwrap();
    // Time stands still: what is used up stays used up.
    eventually_async("it has ended", || {
        topics.send(&[json!({"big": "x".repeat(10_000)})]);
        topics.fixture.engine.live_count() == 1
    })
    .await;
    topics.send(&[json!({"n": 99})]);
    assert_eq!(kinds(&topics.results_with("others", "end").await), ["opening", "row", "end"]);
    assert!(topics.results("answers").is_empty());
    eventually_async("all that it had is there", || {
        topics.fixture.clock.advance(Duration::from_secs(1));
        kinds(&topics.results("answers")).contains(&"end")
    })
    .await;
    let results = topics.results_with("answers", "end").await;
    let end = results.last().unwrap();
    assert_eq!((&*end.kind, &end.value["cause"]), ("end", &json!("limit")), "{end:?}");
    assert!(results.len() > 2, "what was waiting has been delivered");
}

/// The configuration in which the server creates a topic of requests.
fn guarded() -> TopicConfig {
    TopicConfig { writers: Writers::OwnersOnly, ..TopicConfig::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_asks_and_another_one_ends_the_query() {
    let topics = Topics::new(two_threads(), QuotaConfig::default());
    topics.create("queries.acme", &guarded());
    topics.append("queries.acme", "old", &request("SELECT * FROM STREAM() LIMIT 1", "answers"), &[]);
    let foreign = TenantId::new("other").unwrap();
    topics
        .fixture
        .log
        .create_topic(&TopicName::user("queries.stranger", &foreign).unwrap(), &TopicConfig::default())
        .unwrap();
    let requests = tokio::spawn(Requests::new(topics.deliveries.clone()).run());

    topics.append("queries.acme", "mine", &request("SELECT n FROM STREAM()", "answers"), &[]);
    let opened = topics.results_with("answers", "opening").await;
    assert_eq!(opened.len(), 1, "what was asked before the start is not asked again: {opened:?}");
    assert_eq!(opened[0].headers["correlation-id"], "mine");
    topics.send(&[json!({"n": 7})]);
    topics.results_with("answers", "row").await;
    topics.append("queries.acme", "", &json!({"kill": opened[0].key}).to_string(), &[]);
    let results = topics.results_with("answers", "end").await;
    assert_eq!(kinds(&results), ["opening", "row", "end"]);
    assert!(results.iter().all(|got| got.headers["correlation-id"] == "mine"), "{results:?}");
    assert_eq!((&results[1].value, &results[2].value["cause"]), (&json!({"n": 7}), &json!("killed")));
    requests.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_asked_in_a_topic_that_everybody_may_write() {
    let config = Config { requests_topic: "open".to_owned(), ..two_threads() };
    let topics = Topics::new(config, QuotaConfig::default());
    topics.create("open.acme", &TopicConfig::default());
    let requests = tokio::spawn(Requests::new(topics.deliveries.clone()).run());
    topics.append("open.acme", "stranger", &request("SELECT n FROM STREAM()", "answers"), &[]);
    // Guarded from now on, so that this topic is read from its beginning.
    topics.fixture.log.delete_topic(&topics.name("open.acme")).unwrap();
    topics.create("open.acme", &guarded());
    topics.append("open.acme", "admin", &request("SELECT n FROM STREAM()", "answers"), &[]);
    let opened = topics.results_with("answers", "opening").await;
    assert_eq!(opened.len(), 1, "{opened:?}");
    assert_eq!(opened[0].headers["correlation-id"], "admin");
    requests.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_come_back_as_records_and_requests_without_an_answer_do_no_harm() {
    let topics = Topics::new(two_threads(), QuotaConfig::default());
    let requests = tokio::spawn(Requests::new(topics.deliveries.clone()).run());
    // Created while it runs: read from its beginning.
    topics.create("queries.acme", &guarded());
    for nothing in ["", "no JSON", "[]", r#"{"query": "SELECT * FROM STREAM()"}"#] {
        topics.append("queries.acme", "x", nothing, &[]);
    }
    topics.append("queries.acme", "y", &request("SELECT * FROM STREAM()", "missing"), &[]);
    let id = Header { key: "correlation-id", value: Some(b"c-1") };
    topics.append("queries.acme", "z", &request("SELECT * FORM STREAM()", "answers"), &[id]);
    let wrong = json!({"query": "SELECT *", "deliver": {"topic": "answers"}, "limits": 1}).to_string();
    topics.append("queries.acme", "w", &wrong, &[]);
    eventually_async("both refusals", || topics.results("answers").len() == 2).await;
    let results = topics.results("answers");
    let of = |id: &str| results.iter().find(|got| got.headers["correlation-id"] == id).unwrap();
    let refused = of("c-1");
    assert_eq!((&*refused.kind, &*refused.key, &refused.value["code"]), ("problem", "c-1", &json!("invalid")));
    assert_eq!(refused.value["errors"][0]["suggestion"], "FROM");
    assert!(refused.headers["query-id"].is_null());
    assert!(of("w").value["detail"].as_str().unwrap().contains("limits"), "{:?}", of("w"));
    assert_eq!(topics.fixture.engine.live_count(), 0);
    requests.abort();
}

fn kept_often() -> Config {
    Config { keep_every_ms: 20, ..two_threads() }
}

fn numbers(range: std::ops::Range<u64>) -> Vec<Value> {
    range.map(|n| json!({"n": n, "g": n % 3})).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_kept_query_come_at_least_once_under_one_number_each_across_restarts() {
    for ending in [Ending::Crash, Ending::Clean] {
        let quota = QuotaConfig { client_produce_bytes_per_second: 20_000, ..QuotaConfig::default() };
        let mut topics = Topics::on_disk(kept_often(), quota);
        let id = topics.keep("SELECT n FROM STREAM() WHERE n % 2 = 0 LIMIT 100", "answers").await.unwrap();
        topics.send(&numbers(0..40));
        topics.seen(&id, 40).await;
        assert!(kinds(&topics.results("answers")).iter().all(|kind| *kind == "opening"), "nothing before it is kept");
        topics.pass();
        topics.results_until("answers", &id, 21).await;
        // Kept, but held up on its way into the topic.
        topics.quotas.charge(QuotaType::Produce, &topics.fixture.tenant, "test", 1_000_000);
        topics.send(&numbers(40..80));
        topics.seen(&id, 80).await;
        topics.pass();
        eventually_async("they are kept", || topics.fixture.kept_of(&id)["counts"]["matched"] == 40).await;
        // Matched, but not kept.
        topics.send(&numbers(80..120));
        topics.seen(&id, 120).await;
        assert_eq!(topics.results_of("answers", &id).len(), 21);
        topics.restart(ending);
        topics.send(&numbers(120..300));
        eventually_async("it has ended", || {
            topics.pass();
            topics.fixture.engine.list(&topics.fixture.tenant).is_empty()
        })
        .await;
        let results = topics.results_of("answers", &id);
        let kinds: Vec<&str> = results.values().map(|(kind, ..)| &**kind).collect();
        assert_eq!((kinds.len(), kinds[0], kinds[101]), (102, "opening", "end"), "{ending:?}");
        let rows: Vec<u64> = results.values().filter_map(|(_, _, value)| value["n"].as_u64()).collect();
        assert_eq!(rows, (0..100).map(|n| 2 * n).collect::<Vec<_>>(), "{ending:?}");
        let end = &results[&102].2;
        assert_eq!((&end["cause"], &end["matched"], &end["dropped"]), (&json!("size"), &json!(100), &json!(0)));
        eventually_async("that it has gone is written down", || topics.fixture.kept_of(&id).is_null()).await;
        // Nobody hands it out again.
        let count = topics.results("answers").len();
        topics.restart(ending);
        assert!(topics.fixture.engine.list(&topics.fixture.tenant).is_empty());
        assert_eq!(topics.results("answers").len(), count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_kept_queries_go_on_in_their_topic_with_their_numbers() {
    let asked = [
        "SELECT COUNT(*) AS c, SUM(n) AS s FROM STREAM() WINDOWING TUMBLING(7, RECORD)",
        "SELECT g, COUNT(*) AS c FROM STREAM() GROUP BY g ORDER BY g WINDOWING EVERY(10, RECORD, ALL)",
        "SELECT n FROM STREAM() WHERE g = 1 WINDOWING TUMBLING(5, RECORD)",
    ];
    let mut runs = Vec::new();
    for restarts in [&[][..], &[Ending::Crash, Ending::Clean, Ending::Crash]] {
        let mut topics = Topics::on_disk(kept_often(), QuotaConfig::default());
        let mut ids = Vec::new();
        for query in asked {
            ids.push(topics.keep(query, "answers").await.unwrap());
        }
        for part in 0..4 {
            topics.send(&numbers(30 * part..30 * part + 30));
            for id in &ids {
                topics.seen(id, 30 * part + 30).await;
            }
            if part % 2 == 0 {
                topics.pass();
            }
            if let Some(ending) = restarts.get(part as usize) {
                topics.restart(*ending);
                let refused = topics.fixture.engine.attach(&topics.fixture.tenant, ids[0].parse().unwrap());
                assert!(matches!(refused, Err(Error::HasClient { .. })), "a topic reads it");
            }
        }
        for id in &ids {
            topics.fixture.engine.kill(&topics.fixture.tenant, id.parse().unwrap()).unwrap();
        }
        eventually_async("they have ended", || {
            topics.pass();
            topics.fixture.engine.list(&topics.fixture.tenant).is_empty()
        })
        .await;
        let mut results = Vec::new();
        for id in &ids {
            let once = topics.results_of("answers", id);
            assert_eq!(once.last_key_value().unwrap().1.0, "end");
            let told = |(kind, window, value): &(String, Value, Value)| match &**kind {
                "row" => (kind.clone(), window.clone(), value.clone()),
                "window" => (kind.clone(), value["number"].clone(), value["records"].clone()),
                _ => (kind.clone(), value["cause"].clone(), value["matched"].clone()),
            };
            results.push(once.values().map(told).collect::<Vec<_>>());
        }
        runs.push(results);
    }
    assert!(runs[0].iter().all(|results| results.len() > 15));
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_query_ends_with_its_topic_and_one_that_would_lose_results_is_refused() {
    let mut topics = Topics::on_disk(kept_often(), QuotaConfig::default());
    topics.create("volatile", &memory());
    topics.create("doomed", &TopicConfig::default());
    let refused = topics.keep("SELECT * FROM STREAM()", "volatile").await.unwrap_err().to_string();
    assert!(refused.contains("level memory") && refused.contains("level written or synced"), "{refused}");
    let request = QueryRequest {
        deliver: Deliver::Topic("answers".to_owned()),
        keep: true,
        ..QueryRequest::new("SELECT * FROM STREAM()")
    };
    let refused = topics.fixture.engine.submit(&topics.fixture.tenant, request).await;
    assert!(matches!(refused, Err(Error::NobodyDelivers)), "nobody would");
    assert!(topics.fixture.engine.list(&topics.fixture.tenant).is_empty());

    // One topic goes while the server runs, the other one while it is down; a third query goes on.
    topics.create("going", &TopicConfig::default());
    let going = topics.keep("SELECT n FROM STREAM()", "going").await.unwrap();
    topics.keep("SELECT n FROM STREAM()", "doomed").await.unwrap();
    let lasting = topics.keep("SELECT n FROM STREAM()", "answers").await.unwrap();
    topics.results_with("going", "opening").await;
    topics.results_with("answers", "opening").await;
    topics.fixture.log.delete_topic(&topics.name("going")).unwrap();
    topics.send(&numbers(0..3));
    eventually_async("it has ended", || {
        topics.pass();
        topics.fixture.engine.get(&topics.fixture.tenant, going.parse().unwrap()).is_err()
    })
    .await;
    topics.results_until("answers", &lasting, 4).await;
    topics.fixture.log.delete_topic(&topics.name("doomed")).unwrap();
    topics.restart(Ending::Crash);
    topics.send(&numbers(3..5));
    topics.seen(&lasting, 5).await;
    topics.pass();
    let results = topics.results_until("answers", &lasting, 6).await;
    assert_eq!(results[&6].2, json!({"n": 4}));
    eventually_async("the one without a topic is gone", || {
        topics.fixture.engine.list(&topics.fixture.tenant).len() == 1
    })
    .await;
}

fn request(query: &str, topic: &str) -> String {
    json!({"query": query, "deliver": {"topic": topic}}).to_string()
}
