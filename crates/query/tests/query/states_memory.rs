//! Compares the counted size of the states of queries with the memory that the process takes for them.

use millstream_query::{Deliver, QueryRequest, Subscription};

use crate::common::fixture::{Fixture, fixture_on_disk, memory, two_threads};

const GROUPS: u64 = 100_000;
const AT_ONCE: u64 = 5_000;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

async fn grow(fixture: &Fixture, query: &Subscription, key: impl Fn(u64) -> u64) {
    for from in (0..GROUPS).step_by(AT_ONCE as usize) {
        let payloads: Vec<String> =
            (from..from + AT_ONCE).map(|n| format!("{{\"k\":\"group {}\",\"n\":{n}}}", key(n))).collect();
        fixture.send("key", &payloads);
        fixture.seen(query, from + AT_ONCE).await;
    }
}

#[tokio::test]
async fn states_are_counted_with_the_memory_that_they_take() {
    let fixture = fixture_on_disk(&memory(), two_threads());
    for (figures, windows) in [
        ("COUNT(*) AS c, AVG(n) AS mean", ""),
        ("MAX(n) AS high, QUANTILE(n, 0.5) AS median", ""),
        ("COUNT(DISTINCT n) AS d", ""),
        ("COUNT(*) AS c, AVG(n) AS mean", " WINDOWING SESSION(1000000, TIME) ON n"),
    ] {
        let request = |deliver| QueryRequest {
            deliver,
            ..QueryRequest::new(format!("SELECT k, {figures} FROM STREAM() GROUP BY k{windows}"))
        };
        // What the log and the threads take they have taken by then.
        let warm = fixture.submit(request(Deliver::Sse)).await;
        grow(&fixture, &warm, |_| 0).await;
        drop(warm);
        let (before, counted_before) = (resident_bytes(), fixture.engine.states_bytes());
        let query = fixture.submit(request(Deliver::Sse)).await;
        grow(&fixture, &query, |n| n).await;
        let (taken, counted) = (resident_bytes() - before, fixture.engine.states_bytes() - counted_before);
        println!("{figures}{windows}: {taken} bytes taken, {counted} counted, {} a group", taken / GROUPS);
        let share = counted as f64 / taken as f64;
        assert!((0.8..=1.3).contains(&share), "{figures}{windows}: {taken} bytes are taken, {counted} are counted");
        // Its memory must not serve for what comes next.
        std::mem::forget(query);
    }
}
