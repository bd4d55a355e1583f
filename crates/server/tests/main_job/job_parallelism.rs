//! Running jobs that get another parallelism: over HTTP, from the command line, and over kills of the server.

use std::time::Duration;

use millstream_testkit::{Answer, Process, Server, ask, eventually, try_ask};
use serde_json::{Value, json};

use crate::job_replacing::{counted, counts, expected, running, total};
use crate::jobs::{JSON, append, command, create_topics, kills, printed, submit};

/// Records that are appended at once.
const STEP: u64 = 200;

fn rescale(server: &impl Server, id: &str, body: &Value) -> Answer {
    let path = format!("/api/jobs/{id}/parallelism?timeout=20s");
    ask(server.applications(), "PATCH", &path, &[JSON], body.to_string().as_bytes())
}

fn instances(server: &impl Server, id: &str) -> Vec<u64> {
    let status = server.get_json(&format!("/api/jobs/{id}/status"));
    status["nodes"].as_array().unwrap().iter().map(|node| node["instances"].as_u64().unwrap()).collect()
}

#[test]
fn the_parallelism_of_a_running_job_is_changed_and_refusals_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::tenant();
    create_topics(&server);
    append(&server, 0..100);
    let submitted = submit(&server, &counts(1)).json();
    let id = submitted["id"].as_str().unwrap();
    eventually("all are counted", || counted(&server) == expected(100));
    let changed = rescale(&server, id, &json!({"counts": 4, "in": {"min": 2, "max": 2}}));
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(changed.json()["parallelism"], json!({"counts": 4, "in": {"min": 2, "max": 2}}));
    assert_eq!(instances(&server, id), [2, 4, 1]);
    append(&server, 100..200);
    eventually("it goes on", || counted(&server) == expected(200));
    let job = server.get_json(&format!("/api/jobs/{id}"));
    assert_eq!(
        (&job["hash"], &job["document"]["transforms"]["counts"]["parallelism"]),
        (&submitted["hash"], &json!(2))
    );

    let run = |arguments: &[&str]| command(&server, dir.path(), arguments);
    let told = printed(&run(&["parallelism", "counts", "counts=2", "in=null"]));
    assert_eq!(told, "job counts goes on with counts=2\n");
    assert_eq!(instances(&server, id), [1, 2, 1]);
    assert_eq!(printed(&run(&["parallelism", "counts", "3"])), "job counts goes on with counts=3\n");
    assert!(printed(&run(&["show", "counts"])).contains("{\"counts\":3}"));
    assert_eq!(
        printed(&run(&["parallelism", "counts", "null"])),
        "job counts goes on with the parallelism of its document\n"
    );
    append(&server, 200..300);
    eventually("it goes on", || counted(&server) == expected(300));

    let refused = |body: Value| {
        let answer = rescale(&server, id, &body);
        (answer.status, answer.json())
    };
    let (status, problem) = refused(json!({"count": 2}));
    assert_eq!(
        (status, &problem["nearest"], &problem["nodes"]),
        (422, &json!("counts"), &json!(["in", "counts", "out"]))
    );
    let (status, problem) = refused(json!({"counts": 0}));
    assert_eq!(
        (status, &problem["findings"][0]["path"]),
        (422, &json!("transforms.counts.parallelism")),
        "{problem:#}"
    );
    assert_eq!(refused(json!("two")).0, 400);
    assert_eq!(rescale(&server, "none", &json!(2)).status, 404);
    let refusal = run(&["parallelism", "counts", "counts=1025"]);
    let refusal = String::from_utf8_lossy(&refusal.stderr).into_owned();
    assert!(refusal.contains("transforms.counts.parallelism"), "{refusal}");
    printed(&run(&["stop", "counts", "--mode", "checkpoint"]));
    eventually("it is stopped", || running(&server).is_empty());
    let (status, problem) = refused(json!({"counts": 2}));
    assert_eq!((status, &problem["code"]), (409, &json!("job_not_rescaled")), "{problem:#}");
}

#[test]
fn nothing_is_counted_twice_however_often_the_server_is_killed_in_a_change_of_parallelism() {
    let dir = tempfile::tempdir().unwrap();
    // These deaths are not the job's.
    let start = || Process::start_on(dir.path(), &["--set=flow.crashes_max=0"]);
    let mut process = start();
    create_topics(&process);
    let submitted = submit(&process, &counts(0)).json();
    let id = submitted["id"].as_str().unwrap();
    let mut count = 0;
    for round in 0..kills() {
        append(&process, count..count + STEP);
        count += STEP;
        let parallelism = 1 + (round + 1) % 4;
        let (applications, path) = (process.applications, format!("/api/jobs/{id}/parallelism"));
        let changing = std::thread::spawn(move || {
            let body = json!({"counts": parallelism}).to_string();
            // The server goes away meanwhile.
            try_ask(applications, "PATCH", &path, &[JSON], body.as_bytes()).map(|answer| answer.status)
        });
        // Moments spread over the time that a change takes, from before it begins to after its end.
        std::thread::sleep(Duration::from_millis(round * 23 % 150));
        process.kill();
        let answer = changing.join().unwrap();
        process = start();
        eventually("it runs", || running(&process).first().is_some_and(|job| job["state"] == "running"));
        if answer == Some(200) {
            assert_eq!(instances(&process, id)[1], parallelism, "an answer that was given holds");
        }
    }
    eventually("all are counted", || total(&counted(&process)) >= count);
    assert_eq!(counted(&process), expected(count));
    process.stop();
}
