//! `kill -9` while records, jobs, kept queries, keys and tokens are written side by side: what was acknowledged is there, and
//! each record counts once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_testkit::{Answer, Process, eventually, try_ask};
use serde_json::{Value, json};

use crate::kept_queries::results_of;
use crate::tokens::{call, every_role, make};

/// Number of lives that end by a kill; `MILLSTREAM_MIXED_KILLS` or `MILLSTREAM_KILLS` sets another number.
const KILLS: u64 = 6;
/// Answers of a life before the server is killed.
const ANSWERS: u64 = 150;
const KEYS: u64 = 7;

/// The answers that clients got, over all lives.
#[derive(Default)]
struct Told {
    /// Numbers whose append was acknowledged.
    numbers: BTreeSet<u64>,
    /// By key of the bucket, the values that it may have: the first was acknowledged.
    values: BTreeMap<String, Vec<u64>>,
    /// By name of a token its secret, and whether it is there; `None` where the answer did not come.
    tokens: BTreeMap<String, (String, Option<bool>)>,
}

/// A life of the server, and what its clients share.
struct Life<'a> {
    to: SocketAddr,
    root: &'a str,
    told: &'a Mutex<Told>,
    next: &'a AtomicU64,
    answers: AtomicU64,
    is_over: AtomicBool,
}

impl Life<'_> {
    /// The answer; `None` once the server is gone.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Option<Answer> {
        if self.is_over.load(Ordering::Acquire) {
            return None;
        }
        let bearer = format!("Bearer {}", self.root);
        let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = if body.is_empty() { &headers[..1] } else { &headers };
        let answer = try_ask(self.to, method, path, headers, body.as_bytes())?;
        self.answers.fetch_add(1, Ordering::AcqRel);
        Some(answer)
    }

    fn own_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn append(&self) {
        loop {
            let n = self.own_number();
            let record = json!([{"key": format!("k{}", n % KEYS), "value": {"n": n}}]);
            let Some(answer) = self.ask("POST", "/api/streams/numbers/records", &record) else { return };
            assert_eq!(answer.status, 200, "{}", answer.text());
            self.told.lock().unwrap().numbers.insert(n);
        }
    }

    fn put(&self, client: u64) {
        loop {
            let n = self.own_number();
            let key = format!("{client}/{}", n % KEYS);
            self.told.lock().unwrap().values.entry(key.clone()).or_default().push(n);
            let Some(answer) = self.ask("PUT", &format!("/kv/things/{key}"), &json!(n)) else { return };
            assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
            self.told.lock().unwrap().values.insert(key, vec![n]);
        }
    }

    /// Makes tokens, and revokes every second one.
    fn make_tokens(&self) {
        loop {
            let name = format!("token-{}", self.own_number());
            let Some(made) = self.ask("POST", "/api/tokens", &every_role(&name, "default")) else { return };
            assert_eq!(made.status, 201, "{}", made.text());
            let secret = made.json()["token"].as_str().unwrap().to_owned();
            let tell = |is_there| self.told.lock().unwrap().tokens.insert(name.clone(), (secret.clone(), is_there));
            tell(Some(true));
            if self.own_number().is_multiple_of(2) {
                tell(None);
                let Some(revoked) = self.ask("DELETE", &format!("/api/tokens/{name}"), &Value::Null) else { return };
                assert_eq!(revoked.status, 204, "{}", revoked.text());
                tell(Some(false));
            }
        }
    }

    /// Works until enough is answered, and then kills the server in the middle of more.
    fn end(&self, process: Process) {
        std::thread::scope(|threads| {
            threads.spawn(|| self.append());
            threads.spawn(|| self.append());
            threads.spawn(|| self.put(1));
            threads.spawn(|| self.put(2));
            threads.spawn(|| self.make_tokens());
            eventually("the clients have answers", || self.answers.load(Ordering::Acquire) >= ANSWERS);
            process.kill();
            self.is_over.store(true, Ordering::Release);
        });
    }
}

fn put(process: &Process, root: &str, method: &str, path: &str, body: &Value) {
    let answer = call(process.applications, root, method, path, body);
    assert!(matches!(answer.status, 200 | 201), "{path}: {}", answer.text());
}

/// All records of a topic.
fn records(process: &Process, root: &str, topic: &str) -> Vec<Value> {
    let (mut from, mut all) = ("earliest".to_owned(), Vec::new());
    loop {
        let path = format!("/api/streams/{topic}?from={from}&limit=1000");
        let mut page = call(process.applications, root, "GET", &path, &Value::Null).json();
        let records = page["records"].as_array_mut().unwrap();
        if records.is_empty() {
            return all;
        }
        all.append(records);
        page["next"].as_str().unwrap().clone_into(&mut from);
    }
}

fn start(dir: &std::path::Path) -> Process {
    // These deaths are not the job's, and revoked tokens are tried in each life.
    let settings =
        ["flow.crashes_max=0", "query.crashes_max=0", "query.keep_every_ms=30", "listen.login_failures_per_minute=0"];
    Process::start_on(dir, &settings.map(|setting| format!("--set={setting}")).each_ref().map(String::as_str))
}

/// Checks keys and tokens; what was not acknowledged is known from now on.
fn check(process: &Process, root: &str, told: &mut Told) {
    for (key, values) in &mut told.values {
        let read = call(process.applications, root, "GET", &format!("/kv/things/{key}"), &Value::Null);
        let found = match read.status {
            200 => Some(read.text().parse().unwrap()),
            // Its first write was not acknowledged.
            404 if values.len() == 1 => None,
            status => panic!("{key}: {status}, and may be {values:?}"),
        };
        assert!(found.is_none_or(|found| values.contains(&found)), "{key} is {found:?}, and may be {values:?}");
        *values = Vec::from_iter(found);
    }
    told.values.retain(|_, values| !values.is_empty());
    for (name, (secret, is_there)) in &mut told.tokens {
        let status = call(process.applications, secret, "GET", "/api/streams", &Value::Null).status;
        let found = status == 200;
        assert!(found || status == 401, "{name}: {status}");
        assert!(is_there.is_none_or(|is_there| is_there == found), "{name}: {status}, and should be {is_there:?}");
        *is_there = Some(found);
    }
}

#[test]
#[ignore = "takes long"]
fn nothing_acknowledged_is_lost_and_nothing_counts_twice_over_kills_under_mixed_load() {
    let kills = std::env::var("MILLSTREAM_MIXED_KILLS").or_else(|_| std::env::var("MILLSTREAM_KILLS"));
    let kills = kills.map_or(KILLS, |kills| kills.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut process = start(dir.path());
    let root = make(&process, "", &every_role("root", "*"));
    for (topic, partitions) in [("numbers", 3), ("doubled", 3), ("answers", 1)] {
        put(
            &process,
            &root,
            "PUT",
            &format!("/api/streams/{topic}"),
            &json!({"partitions": partitions, "level": "synced"}),
        );
    }
    put(&process, &root, "PUT", "/buckets/things", &json!({"partitions": 2}));
    put(&process, &root, "POST", "/api/jobs", &crate::jobs::document());
    let ask = json!({"query": "SELECT n FROM \"numbers\"", "deliver": {"topic": "answers"}, "keep": true});
    let asked = call(process.applications, &root, "POST", "/api/queries", &ask);
    assert_eq!(asked.status, 201, "{}", asked.text());
    let query = asked.json()["id"].as_str().unwrap().to_owned();

    let (told, next) = (Mutex::new(Told::default()), AtomicU64::new(0));
    for _ in 0..kills {
        let (to, answers, is_over) = (process.applications, AtomicU64::new(0), AtomicBool::new(false));
        Life { to, root: &root, told: &told, next: &next, answers, is_over }.end(process);
        process = start(dir.path());
        check(&process, &root, &mut told.lock().unwrap());
    }

    let read = |topic: &str| records(&process, &root, topic);
    let number = |record: &Value| record["value"]["n"].as_u64().unwrap();
    let stored: Vec<u64> = read("numbers").iter().map(number).collect();
    let distinct: BTreeSet<u64> = stored.iter().copied().collect();
    assert_eq!(distinct.len(), stored.len(), "a record is stored twice");
    let lost: Vec<_> = told.lock().unwrap().numbers.difference(&distinct).copied().collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");

    // Jobs repeat records after a kill and leave none out, in order by key.
    let wanted: BTreeSet<u64> = distinct.iter().copied().filter(|n| !n.is_multiple_of(4)).collect();
    let written = || read("doubled").iter().map(number).collect::<Vec<_>>();
    eventually("the job has written all", || written().into_iter().collect::<BTreeSet<_>>() == wanted);

    // The first result opens the query.
    eventually("the query has given all", || results_of(&read("answers"), &query).0.len() > stored.len());
    let (results, came) = results_of(&read("answers"), &query);
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for n in results.values().filter_map(|(_, value)| value["n"].as_u64()) {
        *counts.entry(n).or_default() += 1;
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "not once in the results: {twice:?}");
    assert_eq!(counts.keys().copied().collect::<BTreeSet<_>>(), distinct);
    let told = told.into_inner().unwrap();
    println!(
        "{kills} lives: {} records ({} acknowledged), {} written by the job, {came} results came, {} keys, {} tokens",
        stored.len(),
        told.numbers.len(),
        written().len(),
        told.values.len(),
        told.tokens.len(),
    );
    process.stop();
}
