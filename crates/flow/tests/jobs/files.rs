//! Jobs that read files.

use std::io::Write as _;
use std::path::Path;

use millstream_flow::{FlowConfig, Functions};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

fn open(dir: &Path) -> Node {
    std::fs::create_dir_all(dir.join("files/default")).unwrap();
    let config = FlowConfig { files_dir: dir.join("files"), ..FlowConfig::default() };
    Node::open_with(dir, config, Functions::default())
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let folder = dir.join("files/default");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), bytes).unwrap();
}

fn job(config: &Value) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "read", "mode": "batch", "restart": {"policy": "never"},
        "sources": {"in": {"type": "file", "config": config, "batch": {"size": 2}}},
        "sinks": {
            "out": {"type": "collect", "inputs": ["in"]},
            "bad": {"type": "collect", "inputs": ["in"]},
        },
        "routes": [
            {"from": "in", "on_error": true, "to": ["bad"], "select": "error.code AS code, error.message AS why, input AS line",
             "stop": true},
            {"from": "in", "to": ["out"]},
        ],
    })
}

/// The good and the bad records of a file.
fn read(dir: &Path, config: &Value) -> (Vec<Value>, Vec<Value>) {
    let node = open(dir);
    let id = node.run(&job(config));
    let ended = node.ended(&id);
    assert_eq!(ended["state"], "completed", "{ended:#}");
    let found = (node.collected(&id, "out"), node.collected(&id, "bad"));
    node.close();
    found
}

#[test]
fn json_lines_are_read_plain_and_compressed_and_bad_lines_take_the_error_route() {
    let dir = tempfile::tempdir().unwrap();
    let text = b"{\"n\": 1}\n\nno json\n{\"n\": 2}\r\n[3]\n{\"n\": 4}";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text).unwrap();
    write(dir.path(), "a.jsonl", text);
    write(dir.path(), "a.jsonl.gz", &gzip.finish().unwrap());
    write(dir.path(), "a.zst", &zstd::stream::encode_all(&text[..], 1).unwrap());
    for config in
        [json!({"path": "a.jsonl"}), json!({"path": "a.jsonl.gz"}), json!({"path": "a.zst", "format": "jsonl"})]
    {
        let (good, bad) = read(dir.path(), &config);
        assert_eq!(good, [json!({"n": 1}), json!({"n": 2}), json!({"n": 4})], "{config}");
        let found: Vec<(&str, &str)> =
            bad.iter().map(|bad| (bad["code"].as_str().unwrap(), bad["line"].as_str().unwrap())).collect();
        assert_eq!(found, [("invalid_json", "no json"), ("invalid_json", "[3]")]);
        let why = bad[1]["why"].as_str().unwrap();
        assert!(why.contains(config["path"].as_str().unwrap()) && why.contains("line 5"), "{why}");
    }
}

#[test]
fn csv_has_texts_unless_columns_have_types_or_are_inferred() {
    let dir = tempfile::tempdir().unwrap();
    let text = "name,temp,ok,code\nBerlin,21.5,true,007\n\"Bad, Homburg\",,false,1\n\"two\nlines\",x,true,2\nshort,1\n";
    write(dir.path(), "a.csv", text.as_bytes());
    let row =
        |name: &str, temp: Value, ok: Value, code: Value| json!({"name": name, "temp": temp, "ok": ok, "code": code});
    let (good, bad) = read(dir.path(), &json!({"path": "a.csv"}));
    let text_rows = [
        row("Berlin", "21.5".into(), "true".into(), "007".into()),
        row("Bad, Homburg", "".into(), "false".into(), "1".into()),
        row("two\nlines", "x".into(), "true".into(), "2".into()),
    ];
    assert_eq!(good, text_rows);
    assert!(bad.len() == 1 && bad[0]["why"].as_str().unwrap().contains("line 6"), "{bad:?}");

    let (good, bad) = read(dir.path(), &json!({"path": "a.csv", "types": {"temp": "number"}}));
    assert_eq!(good[0]["temp"], 21.5);
    assert_eq!((good.len(), &good[1]["temp"], &good[1]["ok"]), (2, &Value::Null, &json!("false")));
    assert!(bad[0]["why"].as_str().unwrap().contains("field 'temp' is 'x'"), "{bad:?}");

    let (good, _) = read(dir.path(), &json!({"path": "a.csv", "infer": true}));
    assert_eq!(good[0], row("Berlin", json!(21.5), json!(true), "007".into()));
    assert_eq!(good[2]["temp"], "x");
}

#[test]
fn a_restart_goes_on_behind_the_records_that_are_finished() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    let lines: String = (0..1000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    write(dir.path(), "a.jsonl", lines.as_bytes());
    node.create("numbers", 1);
    let document = json!({
        "version": 1, "kind": "Job", "name": "read", "id": "r1",
        "sources": {"in": {"type": "file", "config": {"path": "a.jsonl"}, "batch": {"size": 10}}},
        "sinks": {"out": {"type": "stream", "inputs": ["in"], "config": {"topic": "numbers"}}},
    });
    node.run(&document);
    eventually("the file is read", || node.read("numbers").len() == 1000);
    node.close();

    let more = format!("{lines}{{\"n\": 1000}}\n");
    write(dir.path(), "a.jsonl", more.as_bytes());
    let node = open(dir.path());
    eventually("the further record is read", || node.read("numbers").len() > 1000);
    let numbers: Vec<Value> = node.read("numbers").into_iter().map(|(_, value)| value["n"].clone()).collect();
    assert_eq!(numbers, (0..=1000).map(Value::from).collect::<Vec<_>>(), "nothing is read twice");
    node.close();
}

#[test]
fn a_job_whose_file_is_out_of_reach_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    write(dir.path(), "a.csv", b"a,a\n1,2\n");
    std::os::unix::fs::symlink("/etc/hostname", dir.path().join("files/default/link.csv")).unwrap();
    for (config, word) in [
        (json!({"path": "../default/a.csv"}), "flow.files_dir"),
        (json!({"path": "/etc/passwd", "format": "csv"}), "flow.files_dir"),
        (json!({"path": "a.csv", "types": {"a": "float"}}), "number, boolean"),
        (json!({"path": "a.csv", "format": "xml"}), "jsonl"),
        (json!({"path": "a.txt"}), "format"),
    ] {
        let error = node.submit(&job(&config)).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    for (config, word) in [
        (json!({"path": "absent.csv"}), "flow.files_dir"),
        (json!({"path": "link.csv"}), "symbolic link"),
        (json!({"path": "a.csv"}), "a name twice"),
        (json!({"path": "a.jsonl", "infer": true}), "CSV"),
    ] {
        let ended = node.ended(&node.run(&job(&config)));
        let reason = ended["reason"].as_str().unwrap_or_default();
        assert!(ended["state"] == "failed" && reason.contains(word), "{ended:#}");
    }
    node.close();
    let node = Node::open(dir.path());
    let id = node.run(&job(&json!({"path": "b.csv"})));
    eventually("the job waits for files", || {
        node.job(&id)["reason"].as_str().is_some_and(|reason| reason.contains("set flow.files_dir"))
    });
    assert_eq!(node.job(&id)["state"], "starting");
    node.close();
    write(dir.path(), "b.csv", b"a\n1\n");
    let node = open(dir.path());
    assert_eq!(node.ended(&id)["state"], "completed", "it goes on once jobs may use files");
    node.close();
}

fn writing(config: &Value, records: &Value) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "write", "mode": "batch", "restart": {"policy": "never"},
        "sources": {"in": {"type": "list", "config": {"records": records}, "batch": {"size": 2}}},
        "sinks": {"out": {"type": "file", "inputs": ["in"], "config": config}},
    })
}

#[test]
fn what_a_job_writes_another_one_reads() {
    let dir = tempfile::tempdir().unwrap();
    let records = json!([{"n": "1"}, {"n": "two, three"}, {"n": "\"4\"\n"}]);
    for path in ["a.jsonl", "b/c.jsonl.gz", "a.jsonl.zst", "a.csv", "a.csv.gz"] {
        let node = open(dir.path());
        let mut config = json!({"path": path});
        if path.contains("csv") {
            config["columns"] = json!(["n"]);
        }
        let ended = node.ended(&node.run(&writing(&config, &records)));
        assert_eq!(ended["state"], "completed", "{ended:#}");
        node.close();
        let (good, bad) = read(dir.path(), &json!({"path": path}));
        assert_eq!((json!(good), bad.len()), (records.clone(), 0), "{path}");
    }
}

#[test]
fn a_file_is_appended_to_or_emptied_once_for_each_submission() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    for (mode, expected) in
        [("append", "{\"n\":1}\n"), ("append", "{\"n\":1}\n{\"n\":1}\n"), ("truncate", "{\"n\":1}\n")]
    {
        let config = json!({"path": "a.jsonl", "mode": mode});
        let ended = node.ended(&node.run(&writing(&config, &json!([{"n": 1}]))));
        assert_eq!(ended["state"], "completed", "{ended:#}");
        assert_eq!(std::fs::read_to_string(dir.path().join("files/default/a.jsonl")).unwrap(), expected, "{mode}");
    }
    // Restarts of one job: the second record fails the job, the first one stays.
    let mut job = writing(&json!({"path": "b.jsonl", "mode": "truncate"}), &json!([{"n": 1}, {"n": 0}]));
    job["sinks"]["out"]["select"] = "1 / n AS q".into();
    job["sources"]["in"]["batch"]["size"] = 1.into();
    job["restart"] = json!({"max_attempts": 2, "backoff": "1ms..1ms"});
    assert_eq!(node.ended(&node.run(&job))["state"], "failed");
    let found = std::fs::read_to_string(dir.path().join("files/default/b.jsonl")).unwrap();
    assert!(found.lines().all(|line| line == "{\"q\":1}" || line == "{\"q\":1.0}"), "{found}");
    node.close();
}

#[test]
fn a_sink_whose_file_cannot_be_written_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    std::fs::create_dir(dir.path().join("files/default/folder.jsonl")).unwrap();
    for config in [json!({"path": "a.csv"}), json!({"path": "a.jsonl", "columns": ["n"]})] {
        let error = node.submit(&writing(&config, &json!([{"n": 1}]))).unwrap_err().to_string();
        assert!(error.contains("columns"), "{error}");
    }
    let ended = node.ended(&node.run(&writing(&json!({"path": "folder.jsonl"}), &json!([{"n": 1}]))));
    assert!(ended["reason"].as_str().unwrap_or_default().contains("regular file"), "{ended:#}");
    node.close();
}

#[test]
fn a_second_writer_of_a_file_waits_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    node.create("numbers", 1);
    let document = |name: &str| {
        json!({
            "version": 1, "kind": "Job", "name": name,
            "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}}},
            "sinks": {"out": {"type": "file", "inputs": ["in"], "config": {"path": "a.jsonl"}}},
        })
    };
    let (first, second) = (node.run(&document("first")), node.run(&document("second")));
    let reasons = || [&first, &second].map(|id| node.job(id)["reason"].as_str().unwrap_or_default().to_owned());
    eventually("one of them waits", || reasons().iter().filter(|reason| reason.contains("another sink")).count() == 1);
    let waiting = reasons().iter().position(|reason| reason.contains("another sink")).unwrap();
    let running = if waiting == 0 { &second } else { &first };
    node.kill(running).unwrap();
    node.ended(running);
    eventually("the other one runs", || reasons()[waiting].is_empty());
    node.close();
}

#[test]
fn a_file_sink_heeds_the_floor_of_its_disk_and_the_quota_of_its_tenant() {
    for (free_min_bytes, per_tenant_max_bytes, words) in [
        (u64::MAX, 0, ["the disk of", "flow.files_free_min_bytes"]),
        (0, 100, ["would have", "flow.files_per_tenant_max_bytes"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let config = FlowConfig {
            files_dir: dir.path().join("files"),
            files_free_min_bytes: free_min_bytes,
            files_per_tenant_max_bytes: per_tenant_max_bytes,
            ..FlowConfig::default()
        };
        std::fs::create_dir_all(dir.path().join("files/default")).unwrap();
        write(dir.path(), "there.txt", &[b'x'; 90]);
        let node = Node::open_with(dir.path(), config, Functions::default());
        let mut job = writing(&json!({"path": "a.jsonl"}), &json!([{"n": 1}, {"n": 2}]));
        job["restart"] = json!({"policy": "never"});
        let ended = node.ended(&node.run(&job));
        let reason = ended["reason"].as_str().unwrap_or_default();
        assert!(ended["state"] == "failed" && words.iter().all(|word| reason.contains(word)), "{ended:#}");
        assert!(reason.contains(dir.path().to_str().unwrap()), "it names the disk: {reason}");
        assert_eq!(std::fs::metadata(dir.path().join("files/default/a.jsonl")).unwrap().len(), 0, "nothing is written");
        node.close();
    }
}

/// F15.
#[test]
fn a_bounded_file_is_transferred_in_bulk_each_row_once_with_three_instances() {
    let rows = "id,name,temp\n1,ann,20\n2,ben,21\n3,eve,22\n4,ida,23\n5,jon,24\n6,kim,25\n";
    for (delivery, exchange, size) in [
        ("at_least_once", "fused", 1),
        ("at_least_once", "queue", 2),
        ("exactly_once", "queue", 1),
        ("exactly_once", "fused", 7),
    ] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "rows.csv", rows.as_bytes());
        let node = open(dir.path());
        let id = node.run(&json!({
            "version": 1, "kind": "Job", "name": "transfer", "mode": "batch", "delivery": delivery, "exchange": exchange,
            "sources": {"in": {
                "type": "file", "config": {"path": "rows.csv", "types": {"id": "number", "temp": "number"}}, "batch": {"size": size},
            }},
            "transforms": {"warmer": {
                "type": "map", "inputs": ["in"], "select": "id, UPPER(name) AS name, temp + 1 AS temp", "parallelism": 3,
            }},
            "sinks": {"out": {
                "type": "file", "inputs": ["warmer"], "config": {"path": "made.csv", "columns": ["id", "name", "temp"]},
            }},
        }));
        let ended = node.ended(&id);
        assert_eq!(ended["state"], "completed", "{delivery}, {exchange}: {ended:#}");
        let made = std::fs::read_to_string(dir.path().join("files/default/made.csv")).unwrap();
        let (head, rest) = made.split_once('\n').unwrap();
        let mut found: Vec<&str> = rest.lines().collect();
        found.sort_unstable();
        let expected = ["1,ANN,21", "2,BEN,22", "3,EVE,23", "4,IDA,24", "5,JON,25", "6,KIM,26"];
        assert_eq!((head, &found[..]), ("id,name,temp", &expected[..]), "{delivery}, {exchange}, batches of {size}");
        node.close();
    }
}
