//! Taps, figures and metrics of jobs, over HTTP.

use millstream_testkit::{Events, Process, Server, ask, eventually};
use serde_json::{Value, json};

use crate::jobs::{JSON, append, create_topics, document, submit};
use crate::tokens::make;

/// Submits the job and appends the numbers 0 to 99, of which it writes 75.
fn run(server: &impl Server, id: &str) {
    create_topics(server);
    let mut job = document();
    job["id"] = id.into();
    assert_eq!(submit(server, &job).status, 201);
}

fn node(described: &Value, name: &str) -> Value {
    described["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap().clone()
}

#[test]
fn a_tap_sends_the_records_of_an_edge_and_says_how_the_job_ended() {
    let server = crate::tenant();
    run(&server, "d1");
    let mut tap = Events::get(&server, "/api/jobs/d1/tap?edge=twice,out&rate=1000", &[]);
    let opening = tap.next().unwrap();
    assert_eq!((&*opening.name, &opening.data["job"], &opening.data["rate"]), ("open", &json!("d1"), &json!(1000.0)));
    assert_eq!(opening.data["edge"], json!({"from": "twice", "to": "out"}));
    append(&server, 0..3);
    for n in [1, 2] {
        let event = tap.next().unwrap();
        let record = &event.data;
        assert_eq!((&*event.name, &record["value"]), ("record", &json!({"n": n, "twice": 2 * n})), "{record:#}");
        assert_eq!((&record["key"], &record["topic"]), (&json!(format!("k{n}")), &json!("numbers")), "{record:#}");
        assert!(record["offset"].is_u64() && record["partition"].is_u64() && record["timestamp"].is_string());
        assert!(record["seen"].as_u64() >= Some(n) && record["dropped"] == 0, "{record:#}");
    }
    assert_eq!(ask(server.applications(), "POST", "/api/jobs/d1/stop", &[JSON], b"{}").status, 202);
    let end = tap.next().unwrap();
    assert_eq!((&*end.name, &end.data["reason"], &end.data["sent"]), ("end", &json!("stopped"), &json!(2)));
    assert!(tap.next().is_none());
}

#[test]
fn taps_are_refused_for_unknown_edges_rates_and_jobs() {
    let server = crate::tenant();
    run(&server, "d1");
    let refused = server.get("/api/jobs/d1/tap?edge=in,out");
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(refused.json()["edges"], json!(["in,some", "some,twice", "twice,out"]));
    for (path, status) in [
        ("d1/tap?edge=in,some&rate=0", 400),
        ("d1/tap?edge=in,some&rate=1001", 400),
        ("d1/tap?edge=in,some&rate=NaN", 400),
        ("d1/tap?edge=in", 400),
        ("d1/tap", 400),
        ("none/tap?edge=in,some", 404),
    ] {
        let refused = server.get(&format!("/api/jobs/{path}"));
        assert_eq!(refused.status, status, "{path}: {}", refused.text());
    }
    assert_eq!(ask(server.applications(), "DELETE", "/api/jobs/d1", &[], b"").status, 204);
    let refused = server.get("/api/jobs/d1/tap?edge=in,some");
    assert!(refused.status == 404 && refused.text().contains("killed"), "{}", refused.text());
}

#[test]
fn a_server_that_stops_ends_its_taps() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    run(&process, "d1");
    let mut tap = Events::get(&process, "/api/jobs/d1/tap?edge=in,some", &[]);
    assert_eq!(tap.next().unwrap().name, "open");
    process.stop();
    assert!(tap.next().is_none(), "the job has not ended, so there is no last event");
}

#[test]
fn a_tap_needs_the_role_reader() {
    let server = crate::tenant_with_logins();
    let tenant = server.tenant();
    let new = json!({"name": format!("no-reader-of-{tenant}"), "tenant": tenant, "roles": ["writer"]});
    let token = make(&server, crate::ROOT, &new);
    let bearer = format!("Bearer {token}");
    for path in ["/api/jobs/d1/tap?edge=in,some", "/api/jobs/d1/status", "/api/jobs/d1/graph", "/api/jobs/schema"] {
        let answer = ask(server.applications(), "GET", path, &[("Authorization", &bearer)], b"");
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
        assert_eq!(ask(server.applications(), "GET", path, &[], b"").status, 401, "{path}");
    }
}

#[test]
fn status_graph_and_metrics_have_the_same_figures_and_a_job_that_ended_leaves_the_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    run(&process, "d1");
    append(&process, 0..100);
    // The ends of appends count in each partition until something behind them is read.
    let ends_max = 4 * crate::end_offsets();
    eventually("all records are finished", || {
        let status = process.get_json("/api/jobs/d1/status");
        status["records_out"] == 75 && status["lag"].as_u64().is_some_and(|lag| lag <= ends_max)
    });
    let (status, graph) = (process.get_json("/api/jobs/d1/status"), process.get_json("/api/jobs/d1/graph"));
    assert!(status.get("document").is_none() && status["at"].is_string() && graph["at"].is_string(), "{status:#}");
    let lag = status["lag"].as_u64().unwrap();
    for described in [&status, &graph, &process.get_json("/api/jobs/d1")] {
        assert_eq!(described["state"], "running");
        let [read, some] = ["in", "some"].map(|name| node(described, name));
        let figures = ["records_in", "lag", "offset"].map(|figure| read[figure].as_u64().unwrap());
        assert!((100..=100 + ends_max).contains(&figures[2]) && figures[..2] == [100, lag], "{read:#}");
        assert_eq!([&some["records_in"], &some["records_out"], &some["errors"]], [100, 75, 0], "{some:#}");
        assert!(some["latency_ms"]["p99"].is_f64() && some["rate_in_1m"].is_f64(), "{some:#}");
    }
    let edges = graph["edges"].as_array().unwrap();
    let routed: Vec<_> = edges.iter().map(|edge| edge["records"].as_u64().unwrap()).collect();
    assert_eq!(routed, [100, 75, 75], "{graph:#}");
    assert_eq!(edges[0]["exchange"], "fused");

    let metrics = process.get("/metrics").text();
    let of_node = |metric: &str, node: &str| format!("{metric}{{job=\"doubling\",node=\"{node}\",tenant=\"default\"}}");
    for line in [
        of_node("millstream_job_records_in_total", "some") + " 100",
        of_node("millstream_job_records_out_total", "some") + " 75",
        of_node("millstream_job_unrouted_total", "some") + " 0",
        format!("{} {}", of_node("millstream_job_source_offset", "in"), node(&status, "in")["offset"]),
        format!("{} {lag}", of_node("millstream_job_source_lag", "in")),
        "millstream_jobs_running 1".to_owned(),
        "millstream_jobs{state=\"running\"} 1".to_owned(),
        "millstream_jobs{state=\"starting\"} 0".to_owned(),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    for start in [
        "millstream_job_batches_in_total{job=\"doubling\"",
        "millstream_job_batches_out_total{job=\"doubling\"",
        "millstream_job_batch_seconds{job=\"doubling\",node=\"twice\",percentile=\"99\"",
    ] {
        assert!(metrics.contains(start), "{start} in\n{metrics}");
    }
    let unrouted = metrics.lines().filter(|line| line.starts_with("millstream_job_unrouted_total{"));
    assert_eq!(unrouted.count(), 3, "a sink has no routes: {metrics}");
    assert_eq!(ask(process.applications, "DELETE", "/api/jobs/d1", &[], b"").status, 204);
    let metrics = process.get("/metrics").text();
    assert!(!metrics.contains("job=\"doubling\""), "{metrics}");
    assert!(metrics.contains("millstream_jobs{state=\"killed\"} 1"), "{metrics}");
    process.stop();
}

#[test]
fn errors_count_by_code_in_the_metrics() {
    let server = crate::tenant();
    create_topics(&server);
    let mut job = document();
    job["transforms"]["twice"]["select"] = "n, 10 / (n - 1) AS twice".into();
    job["sinks"]["bad"] = json!({"type": "blackhole", "inputs": ["twice"]});
    job["routes"] = json!([{"from": "twice", "on_error": true, "to": ["bad"], "stop": true}]);
    assert_eq!(submit(&server, &job).status, 201);
    append(&server, 0..3);
    let line = format!(
        "millstream_job_errors_total{{code=\"division_by_zero\",job=\"doubling\",node=\"twice\",tenant=\"{}\"}} 1",
        server.tenant()
    );
    eventually("the error is counted", || server.get("/metrics").text().lines().any(|found| found == line));
}

#[test]
fn the_schema_names_the_types_of_nodes() {
    let server = crate::tenant();
    let schema = server.get_json("/api/jobs/schema");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let sources = &schema["$defs"]["source"]["properties"]["type"]["enum"];
    assert!(sources.as_array().is_some_and(|types| types.contains(&json!("stream"))), "{schema:#}");
}
