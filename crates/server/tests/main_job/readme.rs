//! The commands that README and guides tell a stranger to paste do what they say.

use std::path::Path;
use std::process::Command;

use crate::guide::blocks;
use crate::process::Process;

/// What each block of a document prints when it is pasted, in order, where `process` runs.
fn pasted(document: &str, process: &Process, dir: &Path) -> Vec<String> {
    blocks(document, "sh").iter().map(|block| paste(block, process, dir)).collect()
}

/// What a block prints when it is pasted where `process` runs.
fn paste(block: &str, process: &Process, dir: &Path) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().unwrap().to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let script = block
        .replace("127.0.0.1:8000", &process.applications.to_string())
        .replace("127.0.0.1:8080", &process.devices.to_string())
        .replace("127.0.0.1:9092", &process.kafka.to_string());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env("PATH", &path)
        .env("MILLSTREAM_SERVER", process.applications_url())
        .current_dir(dir)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{block}\nprinted\n{out}\n{err}");
    out.into_owned()
}

#[test]
fn the_commands_of_the_log_guide_run() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let outputs = pasted("docs/log.md", &process, dir.path());
    let [created, over_http, appended, values, page, filtered, events, terminal, kcat] = outputs.as_slice() else {
        panic!("docs/log.md has {} blocks", outputs.len())
    };
    assert!(created.contains("retention_bytes   1 GiB") && created.contains("TOPIC"), "{created}");
    assert!(over_http.contains("\"retention\":\"12h\"") && over_http.contains("\"retention\":null"), "{over_http}");
    assert!(appended.starts_with("{\"count\":3,\"ack\":\"synced\""), "{appended}");
    assert!(values.starts_with("{\"count\":1,\"ack\":\"written\""), "{values}");
    assert!(page.contains("{\"item\": \"bolt\", \"count\": 7}") && page.contains("\"next\":"), "{page}");
    assert!(filtered.contains("\"key\":\"o-1\"") && filtered.contains("\"next\":"), "{filtered}");
    assert!(events.contains("event: record\n") && events.contains("event: end\n"), "{events}");
    assert!(terminal.lines().take(2).all(|line| line.starts_with("{\"partition\":")), "{terminal}");
    assert!(terminal.contains("{\"count\":"), "{terminal}");
    assert!(kcat.contains("o-1 bolt, offset 0 of partition ") && kcat.contains("parts [0] offset "), "{kcat}");
    process.stop();
}

#[test]
fn the_commands_of_the_guide_to_devices_over_http_run() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let outputs = pasted("docs/connect-http.md", &process, dir.path());
    let [registered, sent, commanded, found, used] = outputs.as_slice() else {
        panic!("docs/connect-http.md has {} blocks", outputs.len())
    };
    assert!(registered.contains(r#"{"id":"lamp-1"}"#), "{registered}");
    assert_eq!(sent, "202\n202\n202\n400\n");
    assert_eq!(commanded.replace('\r', ""), "hono-command: switch\non\nit is on");
    let pages: Vec<serde_json::Value> =
        serde_json::Deserializer::from_str(found).into_iter().collect::<Result<_, _>>().unwrap();
    let ids = |page: &serde_json::Value| -> Vec<String> {
        page["result"].as_array().unwrap().iter().map(|device| device["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(pages.iter().map(ids).collect::<Vec<_>>(), [vec!["lamp-1", "gateway-1"], vec!["gateway-1"]]);
    assert_eq!(used, "202 202 202 202 429 ");
    process.stop();
}

#[test]
fn the_commands_of_the_guide_to_queries_run() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let outputs = pasted("docs/query.md", &process, dir.path());
    let [rows, past, refused, schema, sums, answers, kept, checked] = outputs.as_slice() else {
        panic!("docs/query.md has {} blocks", outputs.len())
    };
    assert!(rows.ends_with("{\"item\":\"bolt\",\"count\":7}\n{\"item\":\"gear\",\"count\":12}\n"), "{rows}");
    assert!(past.starts_with(r#"{"records":[{"item":"bolt"},{"item":"nut"}]"#), "{past}");
    assert!(refused.contains("\"suggestion\":\"FROM\"") && refused.contains("\"column\":10"), "{refused}");
    assert!(schema.contains("\"path\":\"size.mm\"") && schema.contains("\"records\":3"), "{schema}");
    let kinds: Vec<&str> = answers.lines().map(|line| line.split([' ', ',']).nth(1).unwrap()).collect();
    assert_eq!(kinds, ["kind=opening", "kind=row", "kind=end"], "{answers}");
    assert!(answers.contains(",correlation-id=mine {\"item\":\"bolt\"}"), "{answers}");
    assert!(sums.ends_with("mm,orders,mean\n30,1,12\n8,2,8\n"), "{sums}");
    assert!(kept.contains(r#"{"records":[{"item":"bolt","orders":1}]}"#), "{kept}");
    assert_eq!(checked, "204\n");
    process.stop();
}

#[test]
fn the_five_steps_of_the_readme_run() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let steps = blocks("README.md", "sh").into_iter().take_while(|block| !block.contains("Bearer"));
    let outputs: Vec<String> = steps.map(|block| paste(&block, &process, dir.path())).collect();
    let [registered, sent, entity, rows, console] = outputs.as_slice() else {
        panic!("README has {} blocks", outputs.len())
    };
    assert!(registered.contains("sensor-1"), "{registered}");
    assert_eq!((sent.as_str(), console.as_str()), ("", ""));
    let entity: serde_json::Value = serde_json::from_str(entity).unwrap();
    assert_eq!((&entity["temp"], &entity["humid"]), (&21.5.into(), &40.into()));
    assert_eq!(rows.trim(), r#"{"temp":22.5}"#);
    process.stop();
}

#[test]
fn the_tokens_of_the_readme_let_every_kind_of_client_in() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("millstream.toml");
    std::fs::write(&file, blocks("README.md", "toml").concat()).unwrap();
    let process = Process::start_on(dir.path(), [0, 0], &["--config", file.to_str().unwrap()]);
    let [used] =
        &blocks("README.md", "sh").into_iter().filter(|block| block.contains("Bearer")).collect::<Vec<_>>()[..]
    else {
        panic!("README shows how tokens are used")
    };
    let printed = paste(used, &process, dir.path());
    assert!(printed.contains(r#""name":"orders""#) && printed.ends_with("bolt\n"), "{printed}");
    assert_eq!(process.get("/stats").status, 401);
    process.stop();
}
