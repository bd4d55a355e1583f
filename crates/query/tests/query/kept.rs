//! Queries that are kept: after a crash and after an orderly end they go on as if there had been none.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_log::{AckLevel, AtomicAppend, Done, Log, TopicConfig};
use millstream_query::{
    Cause, Config, Deliver, Delivery, Error, OnSlow, QueryId, QueryRequest, ResultId, RowBatch, Subscription,
};
use millstream_testkit::{eventually, eventually_async};
use millstream_types::{Record, ShortLives, TenantId, TopicName, TopicPartition, WallClock as _};
use serde_json::Value;

use crate::common::fixture::{Ending, Fixture, disk, fixture, fixture_on_disk, memory, rows, two_threads};

const ENDINGS: [Ending; 2] = [Ending::Crash, Ending::Clean];
const SECOND: Duration = Duration::from_secs(1);

fn kept(query: &str) -> QueryRequest {
    QueryRequest { deliver: Deliver::Sse, keep: true, ..QueryRequest::new(query) }
}

/// The keeper looks at the clock often, which the tests move.
fn config() -> Config {
    Config { keep_every_ms: 20, ..two_threads() }
}

fn payload(n: u64) -> String {
    format!("{{\"id\":\"g{}\",\"n\":{n},\"half\":{}.5}}", n % 7, n)
}

impl Fixture {
    /// Sends records `from..to`, over all partitions.
    fn send_all(&self, from: u64, to: u64) {
        (from..to).for_each(|n| self.send(&format!("k{}", n % 13), &[payload(n)]));
    }

    async fn all_seen(&self, ids: &[QueryId], records: u64) {
        for id in ids {
            let meta = || self.engine.get(&self.tenant, *id).unwrap();
            eventually_async("the records have been seen", || meta().records_seen == records).await;
        }
        drop(self.live("SELECT * FROM STREAM() WHERE nobody").await);
    }

    /// Lets the time come at which queries are kept, and waits until they have been as they are.
    async fn keep(&self, ids: &[QueryId]) {
        self.clock.advance(SECOND);
        for id in ids {
            let meta = self.engine.get(&self.tenant, *id).unwrap();
            eventually_async("the query is kept", || {
                let kept = self.kept_of(&id.to_string());
                let places = kept["places"].as_array().cloned().unwrap_or_default();
                let seen: u64 = places.iter().map(|place| place["records"].as_u64().unwrap()).sum();
                seen == meta.records_seen && kept["end"].is_null() == meta.cause.is_none()
            })
            .await;
        }
    }

    fn attach(&self, id: QueryId) -> Subscription {
        self.engine.attach(&self.tenant, id).unwrap()
    }
}

/// Returns the rows that a client gets, by window (0 is none), and the cause of the end.
async fn all_of(mut subscription: Subscription) -> (BTreeMap<u64, Vec<String>>, Option<Cause>) {
    let mut given: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    loop {
        let (number, batch) = match subscription.next().await.unwrap() {
            Delivery::Rows(batch) => (0, batch),
            Delivery::Window(window) => (window.meta.number, window.rows),
            Delivery::End(meta) => return (given, meta.cause),
        };
        given.entry(number).or_default().extend(texts(&batch));
    }
}

fn texts(batch: &RowBatch) -> Vec<String> {
    batch.rows().map(|row| String::from_utf8(row.to_vec()).unwrap()).collect()
}

/// Returns the id of a client's next event and the number of its row, or -1 at the end.
async fn next_of(client: &mut Subscription) -> (ResultId, i64) {
    let (id, delivery) = client.next_sent().await.unwrap();
    let n = match delivery {
        Delivery::Rows(batch) => serde_json::from_slice::<Value>(batch.rows().next().unwrap()).unwrap()["n"].as_i64(),
        _ => Some(-1),
    };
    (id.unwrap(), n.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_returning_client_gets_the_results_after_its_last_one() {
    for ending in ENDINGS {
        let mut fixture = fixture_on_disk(&disk(), config());
        let mut client = fixture.submit(kept("SELECT n FROM STREAM()")).await.resumable();
        let id = client.id();
        let mut ids = vec![client.begins_after().unwrap()];
        for n in 0..6 {
            fixture.send_all(n, n + 1);
            let (id, given) = next_of(&mut client).await;
            assert_eq!(given, n as i64);
            ids.push(id);
        }
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        // The connection is not known to be broken: a client that names the rows that it has takes its place.
        let again =
            |fixture: &Fixture, after| fixture.engine.attach_after(&fixture.tenant, id, after).unwrap().unwrap();
        let mut second = again(&fixture, ids[3]);
        assert!(client.next_sent().await.is_none());
        drop(client);
        assert_eq!((second.begins_after(), second.opening().gap), (Some(ids[3]), false));
        for n in 3..6 {
            assert_eq!(next_of(&mut second).await, (ids[n + 1], n as i64));
        }
        fixture.all_seen(&[id], 6).await;
        fixture.keep(&[id]).await;
        fixture.restart(ending, SECOND);
        fixture.all_seen(&[id], 6).await;
        let mut third = again(&fixture, ids[4]);
        for n in 4..6 {
            assert_eq!(next_of(&mut third).await, (ids[n + 1], n as i64), "{ending:?}");
        }
        fixture.send_all(6, 7);
        let (seventh, n) = next_of(&mut third).await;
        assert!(n == 6 && seventh > ids[6], "{seventh} {ids:?}");
        drop(third);
        // Whoever names nothing gets what nobody has been sent.
        let mut other = fixture.attach(id);
        fixture.send_all(7, 8);
        let Some(Delivery::Rows(batch)) = other.next().await else { panic!("rows") };
        assert_eq!(texts(&batch), [r#"{"n":7}"#]);
        let refused = fixture.engine.attach_after(&fixture.tenant, id, seventh);
        assert!(matches!(refused, Err(Error::HasClient { .. })), "its results would be lost to the other");
        drop(other);
        assert!(again(&fixture, seventh).opening().gap, "they were");
        let none = "99-1".parse().unwrap();
        let refused = fixture.engine.attach_after(&fixture.tenant, id, none);
        assert!(matches!(refused, Err(Error::UnknownResult { result, .. }) if result == none));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_not_kept_before_a_crash_come_again_under_new_numbers() {
    let mut fixture = fixture_on_disk(&disk(), Config { keep_every_ms: 1_000_000, ..config() });
    let mut client = fixture.submit(kept("SELECT n FROM STREAM()")).await.resumable();
    let mut last = client.begins_after().unwrap();
    for n in 0..3 {
        fixture.send_all(n, n + 1);
        last = next_of(&mut client).await.0;
    }
    let id = client.id();
    fixture.all_seen(&[id], 3).await;
    for _ in 0..3 {
        drop(client);
        fixture.restart(Ending::Crash, SECOND);
        client = fixture.engine.attach_after(&fixture.tenant, id, last).unwrap().unwrap();
        let mut rows = 0;
        while rows < 3 {
            let (Some(id), Delivery::Rows(batch)) = client.next_sent().await.unwrap() else { panic!("rows") };
            assert!(id > last, "another result never has the number of one that was given");
            (last, rows) = (id, rows + batch.row_count());
        }
        assert!(!client.opening().gap);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sent_results_stay_within_a_bound_and_the_end_stays_for_a_time() {
    let config = Config { kept_sent_max_bytes: 64, kept_end_again_ms: 5_000, ..config() };
    let fixture = fixture(&disk(), config);
    let mut client = fixture.submit(kept("SELECT n FROM STREAM()")).await.resumable();
    let id = client.id();
    let mut ids = vec![client.begins_after().unwrap()];
    for n in 0..20 {
        fixture.send_all(n, n + 1);
        ids.push(next_of(&mut client).await.0);
    }
    let again = |after| fixture.engine.attach_after(&fixture.tenant, id, after).unwrap();
    let mut late = again(ids[2]).unwrap();
    assert!(late.opening().gap, "some have gone");
    let (first, n) = next_of(&mut late).await;
    assert!(n > 2 && first == ids[n as usize + 1], "{n}");
    fixture.engine.kill(&fixture.tenant, id).unwrap();
    let mut lasts = [again(ids[20]).unwrap(), again(ids[20]).unwrap()];
    assert!(lasts[0].next_sent().await.is_none());
    let (end, n) = next_of(&mut lasts[1]).await;
    assert_eq!(n, -1);
    assert_eq!(next_of(&mut again(ids[20]).unwrap()).await, (end, -1), "the connection broke as the end was sent");
    assert!(again(end).is_none(), "it has all, and the query is forgotten");
    assert!(matches!(fixture.engine.get(&fixture.tenant, id), Err(Error::UnknownQuery { .. })));

    // Of one whose client does not come again the end stays for a while.
    let mut client = fixture.submit(kept("SELECT COUNT(*) AS n FROM STREAM()")).await.resumable();
    let id = client.id();
    fixture.engine.kill(&fixture.tenant, id).unwrap();
    assert_eq!(next_of(&mut client).await.1, 0);
    assert_eq!(next_of(&mut client).await.1, -1);
    drop(client);
    fixture.clock.advance(4 * SECOND);
    fixture.keep(&[id]).await;
    assert!(fixture.engine.get(&fixture.tenant, id).is_ok());
    fixture.clock.advance(SECOND);
    eventually_async("it is forgotten", || fixture.engine.get(&fixture.tenant, id).is_err()).await;
}

const SUMS: [&str; 10] = [
    "SELECT COUNT(*) AS c, COUNT(n) AS k, SUM(n) AS s, AVG(n) AS a, MIN(n) AS l, MAX(half) AS m, COUNT(DISTINCT n) AS d \
     FROM STREAM(30000, TIME)",
    "SELECT id, COUNT(*) AS c, SUM(half) AS s, COUNT(DISTINCT n) AS d FROM STREAM(30000, TIME) GROUP BY id ORDER BY id",
    "SELECT DISTINCT id FROM STREAM(30000, TIME) ORDER BY id",
    "SELECT COUNT(DISTINCT id) AS d FROM STREAM(30000, TIME) WHERE n > 50",
    "SELECT TOP(3, id) FROM STREAM(30000, TIME) WHERE id != 'g6' AND (n < 150 OR id = 'g2' OR id = 'g3' OR id = 'g5')",
    "SELECT QUANTILE(n, MANUAL, 0, 0.5, 1) FROM STREAM(30000, TIME) WHERE n < 100",
    "SELECT FREQ(n, MANUAL, 100, 200) FROM STREAM(30000, TIME)",
    "SELECT CUMFREQ(half, REGION, 0, 400, 100) FROM STREAM(30000, TIME)",
    "SELECT id, MAX(n) AS m FROM STREAM(30000, TIME) GROUP BY id HAVING MAX(n) > 394 ORDER BY MAX(n) DESC LIMIT 2",
    "SELECT id, n FROM STREAM(30000, TIME) WHERE n < 350 ORDER BY n % 100 DESC, n LIMIT 5",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_arrive_while_queries_resume_are_counted_once() {
    let mut fixture = fixture_on_disk(&disk(), config());
    let id = fixture.submit(kept("SELECT COUNT(*) AS c FROM STREAM(3000000, TIME)")).await.id();
    for round in 0..30 {
        fixture.restart(Ending::Crash, SECOND);
        // The threads look for what they have missed, while batches grow in which that ends.
        fixture.send_all(round * 100, round * 100 + 100);
        fixture.all_seen(&[id], round * 100 + 100).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_transaction_that_is_open_while_queries_resume_are_counted_once() {
    for ending in ENDINGS {
        let mut fixture = fixture_on_disk(&disk(), config());
        let id = fixture.submit(kept("SELECT COUNT(*) AS c FROM STREAM(3000000, TIME)")).await.id();
        fixture.send_all(0, 90);
        fixture.all_seen(&[id], 90).await;
        let partitions: Vec<_> = (0..4).map(|number| TopicPartition::new(fixture.topic.clone(), number)).collect();
        let record = Record { value: Some(b"{}"), ..Record::default() };
        let mut writer = None;
        fixture.restart_after(ending, SECOND, |log| {
            let open = log.writer("open").unwrap();
            for partition in &partitions {
                let before = log.partition(partition).unwrap().offsets().tail;
                open.append(partition, &[record]).unwrap();
                eventually("it is there", || log.partition(partition).unwrap().offsets().tail > before);
            }
            writer = Some(open);
        });
        fixture.all_seen(&[id], 90).await;
        let last = AtomicAppend { records: vec![(partitions[0].clone(), vec![record])], positions: Vec::new() };
        writer.unwrap().commit(&last, AckLevel::Synced, Done::ignore()).unwrap();
        fixture.send_all(90, 100);
        fixture.all_seen(&[id], 105).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_aggregate_has_the_same_result_with_and_without_restarts() {
    let whole = fixture_on_disk(&disk(), config());
    let mut expected = Vec::new();
    for query in SUMS {
        expected.push(whole.live(query).await);
    }
    whole.send_all(0, 400);
    whole.all_seen(&expected.iter().map(Subscription::id).collect::<Vec<_>>(), 400).await;
    whole.clock.advance(30 * SECOND);
    let mut unbroken = Vec::new();
    for subscription in expected {
        unbroken.push(rows(&subscription.answer().await));
    }
    for ending in ENDINGS {
        let mut fixture = fixture_on_disk(&disk(), config());
        let mut clients = Vec::new();
        for query in SUMS {
            clients.push(fixture.submit(kept(query)).await);
        }
        let ids: Vec<QueryId> = clients.iter().map(Subscription::id).collect();
        fixture.send_all(0, 100);
        fixture.all_seen(&ids, 100).await;
        fixture.keep(&ids).await;
        fixture.send_all(100, 200);
        fixture.all_seen(&ids, 200).await;
        fixture.restart(ending, SECOND);
        // They are there at once, and see what the last record of them does not have.
        assert_eq!(fixture.engine.list(&fixture.tenant).len(), SUMS.len());
        fixture.all_seen(&ids, 200).await;
        fixture.send_all(200, 300);
        fixture.restart(ending, SECOND);
        fixture.send_all(300, 400);
        fixture.all_seen(&ids, 400).await;
        fixture.clock.advance(30 * SECOND);
        for ((query, id), unbroken) in SUMS.iter().zip(&ids).zip(&unbroken) {
            let answer = fixture.attach(*id).answer().await;
            assert_eq!((answer.meta.cause, answer.meta.records_seen), (Some(Cause::Duration), 400), "{query}");
            assert_eq!(answer.meta.positions.iter().map(|part| part.first).max(), Some(0));
            assert!(!unbroken.is_empty() && rows(&answer) == *unbroken, "{query}: {:?}, {unbroken:?}", rows(&answer));
            if *query == SUMS[0] {
                let sum: u64 = (0..400).sum();
                let counted = format!(r#"{{"c":400,"k":400,"s":{sum},"a":199.5,"l":0,"m":399.5,"d":400}}"#);
                assert_eq!(rows(&answer), [counted]);
            }
        }
        // Whose end has been read is gone for good.
        eventually_async("they are gone", || fixture.engine.list(&fixture.tenant).is_empty()).await;
        drop(clients);
        fixture.restart(Ending::Clean, SECOND);
        assert!(fixture.engine.list(&fixture.tenant).is_empty());
    }
}

const WINDOWS: [&str; 7] = [
    "SELECT COUNT(*) AS c, SUM(n) AS s FROM STREAM(30000, TIME) WINDOWING TUMBLING(7, RECORD)",
    "SELECT id, COUNT(*) AS c FROM STREAM(30000, TIME) GROUP BY id ORDER BY id WINDOWING EVERY(7, RECORD, ALL)",
    "SELECT n FROM STREAM(30000, TIME) WHERE n % 3 = 0 WINDOWING TUMBLING(4, RECORD)",
    "SELECT COUNT(*) AS c, COUNT(DISTINCT id) AS d FROM STREAM(30000, TIME) WINDOWING TUMBLING(5000, TIME)",
    "SELECT TOP(2, id) FROM STREAM(30000, TIME) WHERE n < 80 OR id = 'g1' WINDOWING EVERY(5000, TIME, ALL)",
    "SELECT n FROM STREAM(30000, TIME) WHERE id = 'g4' WINDOWING TUMBLING(5000, TIME)",
    "SELECT QUANTILE(n, MANUAL, 0.5) FROM STREAM(30000, TIME) WINDOWING EVERY(5000, TIME, ALL)",
];

/// Sends records of one partition, in four parts; what happens between the second and the third is the caller's.
async fn run_windows(mut fixture: Fixture, ending: Option<Ending>) -> Vec<(BTreeMap<u64, Vec<String>>, Option<Cause>)> {
    let mut clients = Vec::new();
    for query in WINDOWS {
        clients.push(fixture.submit(kept(query)).await);
    }
    let ids: Vec<QueryId> = clients.iter().map(Subscription::id).collect();
    let send = |fixture: &Fixture, from: u64, to: u64| (from..to).for_each(|n| fixture.send("k", &[payload(n)]));
    // The first window by time, and half of the second.
    send(&fixture, 0, 50);
    fixture.all_seen(&ids, 50).await;
    fixture.clock.advance(5 * SECOND);
    let mut given = vec![BTreeMap::new(); WINDOWS.len()];
    for (client, given) in clients.iter_mut().zip(&mut given).skip(3) {
        let Some(Delivery::Window(window)) = client.next().await else { panic!("a window comes first") };
        given.insert(window.meta.number, texts(&window.rows));
    }
    send(&fixture, 50, 80);
    fixture.all_seen(&ids, 80).await;
    fixture.keep(&ids).await;
    send(&fixture, 80, 100);
    fixture.all_seen(&ids, 100).await;
    match ending {
        Some(ending) => fixture.restart(ending, SECOND),
        None => fixture.clock.advance(SECOND),
    }
    fixture.all_seen(&ids, 100).await;
    send(&fixture, 100, 150);
    fixture.all_seen(&ids, 150).await;
    fixture.clock.advance(23 * SECOND);
    if ending.is_some() {
        clients = ids.iter().map(|id| fixture.attach(*id)).collect();
    }
    let mut all = Vec::new();
    for (client, mut given) in clients.into_iter().zip(given) {
        let (rest, cause) = all_of(client).await;
        given.extend(rest);
        all.push((given, cause));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_keep_their_numbers_and_unread_results_are_given_after_a_restart() {
    let unbroken = run_windows(fixture_on_disk(&disk(), config()), None).await;
    for ending in ENDINGS {
        let given = run_windows(fixture_on_disk(&disk(), config()), Some(ending)).await;
        for ((query, given), unbroken) in WINDOWS.iter().zip(given).zip(&unbroken) {
            assert!(unbroken.0.len() > 1);
            assert_eq!(given, *unbroken, "{query} after {ending:?}");
        }
    }
}

fn numbers(batch: &RowBatch) -> Vec<u64> {
    let number = |row: &[u8]| serde_json::from_slice::<serde_json::Value>(row).unwrap()["n"].as_u64().unwrap();
    batch.rows().map(number).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_delivered_at_least_once_in_order_and_their_limit_holds() {
    for ending in ENDINGS {
        let mut fixture = fixture_on_disk(&disk(), config());
        let mut client = fixture.submit(kept("SELECT n FROM STREAM() WHERE n % 2 = 0 LIMIT 60")).await;
        let id = client.id();
        let send = |fixture: &Fixture, from: u64, to: u64| (from..to).for_each(|n| fixture.send("k", &[payload(n)]));
        send(&fixture, 0, 20);
        fixture.all_seen(&[id], 20).await;
        let mut taken = Vec::new();
        while taken.len() < 10 {
            let Some(Delivery::Rows(batch)) = client.next().await else { panic!("rows come first") };
            taken.extend(numbers(&batch));
        }
        send(&fixture, 20, 40);
        fixture.all_seen(&[id], 40).await;
        // Nobody has read the latter ten.
        fixture.keep(&[id]).await;
        send(&fixture, 40, 60);
        fixture.all_seen(&[id], 60).await;
        drop(client);
        fixture.restart(ending, SECOND);
        send(&fixture, 60, 200);
        let answer = fixture.attach(id).answer().await;
        let given: Vec<u64> = answer.batches.iter().flat_map(numbers).collect();
        assert_eq!(taken, (0..10).map(|n| 2 * n).collect::<Vec<_>>());
        assert_eq!(given, (10..60).map(|n| 2 * n).collect::<Vec<_>>());
        assert_eq!((answer.meta.cause, answer.meta.matched), (Some(Cause::Size), 60));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_waits_for_its_client_also_over_a_restart_and_only_one_reads() {
    let mut fixture = fixture_on_disk(&disk(), Config { kept_end_max_ms: 60_000, ..config() });
    let count = kept("SELECT COUNT(*) AS c FROM STREAM(2000, TIME)");
    let client = fixture.submit(count.clone()).await;
    let id = client.id();
    assert!(matches!(fixture.engine.attach(&fixture.tenant, id), Err(Error::HasClient { .. })));
    drop(client);
    fixture.send_all(0, 30);
    fixture.all_seen(&[id], 30).await;
    // Half a minute after its end, which came while nobody ran it.
    fixture.restart(Ending::Crash, 30 * SECOND);
    eventually_async("it has ended", || fixture.engine.get(&fixture.tenant, id).unwrap().cause.is_some()).await;
    fixture.keep(&[id]).await;
    fixture.restart(Ending::Crash, SECOND);
    let told = fixture.engine.list(&fixture.tenant);
    assert_eq!((told.len(), told[0].cause), (1, Some(Cause::Duration)));
    assert_eq!(fixture.engine.live_count(), 0, "it waits for its reader, and is not live");
    let answer = fixture.attach(id).answer().await;
    assert_eq!((rows(&answer), answer.meta.cause), (vec![r#"{"c":30}"#.to_owned()], Some(Cause::Duration)));
    assert!(answer.meta.elapsed_us < 3_000_000, "{}", answer.meta.elapsed_us);
    assert!(matches!(fixture.engine.attach(&fixture.tenant, id), Err(Error::UnknownQuery { .. })));

    // One that nobody comes for is gone in the end; so is one that is ended twice.
    let [old, killed] = [fixture.submit(count.clone()).await, fixture.submit(count).await].map(|client| client.id());
    fixture.engine.kill(&fixture.tenant, killed).unwrap();
    fixture.engine.kill(&fixture.tenant, killed).unwrap();
    assert!(fixture.engine.get(&fixture.tenant, killed).is_err());
    fixture.clock.advance(3 * SECOND);
    eventually_async("it has ended", || fixture.engine.get(&fixture.tenant, old).unwrap().cause.is_some()).await;
    fixture.clock.advance(61 * SECOND);
    eventually_async("it is gone", || fixture.engine.get(&fixture.tenant, old).is_err()).await;
    fixture.restart(Ending::Clean, SECOND);
    assert!(fixture.engine.list(&fixture.tenant).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_whose_records_are_gone_ends_with_the_reason_and_its_partial_result() {
    type Between = fn(&dyn Log, &TopicName);
    let deleted: Between = |log, topic| log.delete_topic(topic).unwrap();
    let created_anew: Between = |log, topic| {
        log.delete_topic(topic).unwrap();
        log.create_topic(topic, &disk()).unwrap();
    };
    let trimmed: Between = |log, topic| {
        for partition in 0..4 {
            let partition = log.partition(&TopicPartition::new(topic.clone(), partition)).unwrap();
            partition.trim(partition.offsets().stable).unwrap();
        }
    };
    for (between, reason) in [(deleted, "has been deleted since"), (created_anew, "created anew"), (trimmed, "trimmed")]
    {
        let mut fixture = fixture_on_disk(&disk(), config());
        let id = fixture.submit(kept("SELECT COUNT(*) AS c FROM STREAM(30000, TIME)")).await.id();
        fixture.send_all(0, 50);
        fixture.all_seen(&[id], 50).await;
        fixture.keep(&[id]).await;
        fixture.send_all(50, 90);
        let topic = fixture.topic.clone();
        fixture.restart_after(Ending::Crash, SECOND, |log| between(log, &topic));
        let answer = fixture.attach(id).answer().await;
        assert_eq!((rows(&answer), answer.meta.cause), (vec![r#"{"c":50}"#.to_owned()], Some(Cause::Error)));
        assert!(answer.meta.errors[0].error.contains(reason), "{:?}", answer.meta.errors);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_ran_while_the_process_went_down_too_often_ends_with_the_reason_and_its_partial_result() {
    for (crashes_max, lives, goes_on) in [(3, 2, true), (3, 3, false), (0, 9, true)] {
        let mut fixture = fixture_on_disk(&disk(), Config { crashes_max, ..config() });
        let id = fixture.submit(kept("SELECT COUNT(*) AS c FROM STREAM(30000, TIME)")).await.id();
        fixture.send_all(0, 50);
        fixture.all_seen(&[id], 50).await;
        fixture.keep(&[id]).await;
        let now_ms = fixture.clock.now_ms();
        fixture.short_lives = ShortLives::new((now_ms..now_ms + lives).collect());
        fixture.restart(Ending::Crash, SECOND);
        let meta = fixture.engine.get(&fixture.tenant, id).unwrap();
        assert_eq!(meta.cause.is_none(), goes_on, "{lives} lives, {crashes_max}");
        // A query that is asked now is not to blame.
        let new = fixture.submit(kept("SELECT COUNT(*) AS c FROM STREAM(30000, TIME)")).await.id();
        assert_eq!(fixture.engine.get(&fixture.tenant, new).unwrap().cause, None);
        if !goes_on {
            let answer = fixture.attach(id).answer().await;
            assert_eq!((rows(&answer), answer.meta.cause), (vec![r#"{"c":50}"#.to_owned()], Some(Cause::Error)));
            let error = &answer.meta.errors[0].error;
            assert!(error.contains("went down 3 times in a row") && error.contains("query.crashes_max = 3"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_cannot_be_kept_is_refused_or_ends() {
    let volatile = fixture(&memory(), config());
    let refused = volatile.engine.submit(&volatile.tenant, kept("SELECT * FROM STREAM()")).await;
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("'keep'") && refused.contains("level memory") && refused.contains("synced"), "{refused}");
    assert!(volatile.engine.list(&volatile.tenant).is_empty());

    let limited = Config { kept_per_tenant_max: 2, kept_state_max_bytes: 4096, ..config() };
    let mut fixture = fixture_on_disk(&TopicConfig { partitions: 4, ..disk() }, limited);
    let many =
        fixture.submit(QueryRequest { on_slow: OnSlow::Kill, ..kept("SELECT n, half FROM STREAM()") }).await.id();
    let plain = fixture.live("SELECT COUNT(*) AS c FROM STREAM()").await;
    let few = fixture.submit(kept("SELECT COUNT(*) AS c FROM STREAM()")).await.id();
    let refused = fixture.engine.submit(&fixture.tenant, kept("SELECT * FROM STREAM()")).await;
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("query.kept_per_tenant_max = 2"), "{refused}");
    fixture.send_all(0, 400);
    fixture.all_seen(&[many, few], 400).await;
    fixture.clock.advance(SECOND);
    eventually_async("the large one has ended", || fixture.engine.get(&fixture.tenant, many).unwrap().cause.is_some())
        .await;
    let answer = fixture.attach(many).answer().await;
    assert_eq!(answer.meta.cause, Some(Cause::Limit));
    assert!(answer.meta.errors[0].error.contains("query.kept_state_max_bytes = 4096"), "{:?}", answer.meta.errors);
    assert_eq!(fixture.engine.get(&fixture.tenant, plain.id()).unwrap().cause, None);
    drop(plain);
    fixture.restart(Ending::Clean, SECOND);
    assert_eq!(fixture.engine.list(&fixture.tenant).iter().map(|meta| meta.id).collect::<Vec<_>>(), [few]);
    fixture.engine.kill(&fixture.tenant, few).unwrap();
    assert_eq!(rows(&fixture.attach(few).answer().await), [r#"{"c":400}"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_query_records_its_submitter_over_restarts_and_others_do_not() {
    let mut fixture = fixture_on_disk(&disk(), config());
    let by = |name: &str, request: QueryRequest| QueryRequest { submitted_by: Some(name.to_owned()), ..request };
    let theirs = fixture.submit(by("gone", kept("SELECT COUNT(*) AS c FROM STREAM()"))).await.id();
    let _others = fixture.submit(by("stays", kept("SELECT COUNT(*) AS c FROM STREAM()"))).await;
    let _live = fixture.submit(by("gone", QueryRequest::new("SELECT * FROM STREAM()"))).await;
    let listed = |fixture: &Fixture, tenant: Option<&str>| {
        let tenant = tenant.map(|tenant| TenantId::new(tenant).unwrap());
        let kept = fixture.engine.kept_by(tenant.as_ref(), "gone");
        kept.into_iter().map(|(tenant, meta)| (tenant.to_string(), meta.id, meta.submitted_by)).collect::<Vec<_>>()
    };
    for ending in ENDINGS {
        let expected = [("acme".to_owned(), theirs, Some("gone".to_owned()))];
        assert_eq!(listed(&fixture, None), expected, "{ending:?}");
        assert_eq!(listed(&fixture, Some("acme")), expected);
        assert_eq!(listed(&fixture, Some("other")), []);
        fixture.restart(ending, SECOND);
    }
    fixture.engine.kill(&fixture.tenant, theirs).unwrap();
    assert_eq!(listed(&fixture, None), [], "one that has ended is not told");
}
