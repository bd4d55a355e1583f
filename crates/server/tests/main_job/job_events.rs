//! The events of jobs, over HTTP and from the command line.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use millstream_testkit::{Server, ask, eventually, millstream, open};
use serde_json::{Value, json};

use crate::jobs::{command, create_topics, document, printed, submit};

fn page(server: &impl Server, query: &str) -> Value {
    server.get_json(&format!("/api/jobs/events?{query}"))
}

/// Name and job of each event.
fn told(page: &Value) -> Vec<(String, String)> {
    let records = page["records"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    records.map(|record| (text(&record["value"]["event"]), text(&record["value"]["job"]))).collect()
}

#[test]
fn a_tenant_reads_the_events_of_its_own_jobs_as_pages_and_as_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let (server, other) = (crate::tenant(), crate::tenant());
    create_topics(&server);
    create_topics(&other);
    let events = [("Accept", "text/event-stream")];
    let (status, _, mut live) = open(server.applications(), "GET", "/api/jobs/events?job=e1", &events, b"");
    assert_eq!(status, 200);
    let mut job = document();
    for (server, id) in [(&server, "e1"), (&other, "e2")] {
        job["id"] = id.into();
        assert_eq!(submit(server, &job).status, 201);
        eventually("it has started", || told(&page(server, "")).len() == 2);
    }
    let run = |arguments: &[&str]| printed(&command(&server, dir.path(), arguments));
    run(&["stop", "e1"]);
    let names = ["submitted", "started", "stopping", "stopped"];
    let expected: Vec<_> = names.map(|name| (name.to_owned(), "e1".to_owned())).into();
    eventually("it is stopped", || told(&page(&server, "from=earliest")) == expected);

    // Numbers go up, and a page goes on behind one.
    let first = page(&server, "limit=1");
    let (number, next) = (first["records"][0]["offset"].as_u64().unwrap(), first["next"].as_str().unwrap());
    assert_eq!(told(&first), expected[..1]);
    assert!(first["records"][0]["timestamp"].is_string() && first["records"][0]["value"]["name"] == "doubling");
    assert_eq!(told(&page(&server, &format!("from={next}"))), expected[1..]);
    assert_eq!(told(&page(&server, &format!("from={}", number + 1))), expected[1..]);
    assert!(told(&page(&server, "job=e2")).is_empty(), "another tenant's");
    assert_eq!(told(&page(&other, "")).len(), 2);
    for query in ["from=soon", "limit=0", "limit=1001", "key=e1"] {
        assert_eq!(ask(server.applications(), "GET", &format!("/api/jobs/events?{query}"), &[], b"").status, 400);
    }

    // The stream that was opened before has them, too.
    let mut seen = Vec::new();
    while seen.len() < names.len() {
        let mut line = String::new();
        live.read_line(&mut line).unwrap();
        if let Some(data) = line.strip_prefix("data: ") {
            let record: Value = serde_json::from_str(data).unwrap();
            seen.extend(record["value"]["event"].as_str().map(str::to_owned));
        }
    }
    assert_eq!(seen, names);

    let lines = run(&["events"]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let printed_names: Vec<_> = lines.lines().map(|line| words(line)[2].clone()).collect();
    assert_eq!(printed_names, names, "{lines}");
    assert!(lines.lines().all(|line| words(line)[3..5] == ["doubling", "e1"]), "{lines}");
    assert_eq!(run(&["events", "e1", "--from", &(number + 1).to_string(), "--json"]).lines().count(), 3);
    let mut following = millstream();
    following.args(["job", "events", "--follow", "--server", &server.applications_url(), "--tenant", server.tenant()]);
    let mut following = following.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.by_ref().take(4).count(), 4);
    job["id"] = json!("e3");
    assert_eq!(submit(&server, &job).status, 201);
    assert_eq!(words(&lines.next().unwrap())[2..5], ["submitted", "doubling", "e3"]);
    following.kill().unwrap();
    following.wait().unwrap();
}
