//! The commands that README and guides tell a stranger to paste do what they say.

use std::path::Path;
use std::process::Command;

use millstream_testkit::{Process, Server, eventually, has_kafka_listener};

use millstream_testkit::guide::blocks;

/// Returns the output of each block of a document when it is pasted, in order, where `server` runs.
pub(crate) fn pasted(document: &str, server: &impl Server, dir: &Path) -> Vec<String> {
    blocks(document, "sh").iter().map(|block| paste(block, server, dir)).collect()
}

/// Returns the output of a block when it is pasted where `server` runs.
pub(crate) fn paste(block: &str, server: &impl Server, dir: &Path) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().unwrap().to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let script = block
        .replace("127.0.0.1:8000", &server.applications().address.to_string())
        .replace("127.0.0.1:8080", &server.devices().to_string())
        .replace("127.0.0.1:9092", &server.kafka().to_string())
        .replace("127.0.0.1:6379", &server.redis().to_string());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env("PATH", &path)
        .env("MILLSTREAM_SERVER", server.applications_url())
        .current_dir(dir)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{block}\nprinted\n{out}\n{err}");
    out.into_owned()
}

/// Follows a guide on a server and checks what its commands print.
type Guide = fn(&Process, &Path);

/// The guides that need a server with its defaults, and no other client than curl, kcat, redis-cli and the command line.
const GUIDES: [Guide; 11] = [
    readme,
    log,
    devices,
    lora,
    queries,
    entities,
    history,
    subscriptions,
    store,
    crate::jobs::the_guide_to_jobs,
    backup,
];

/// Follows a guide on a server of its own.
pub(crate) fn alone(guide: Guide) {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    guide(&process, dir.path());
    process.stop();
}

#[test]
fn the_guides_run_one_after_the_other_on_one_server() {
    if !has_kafka_listener() {
        return;
    }
    alone(|process, dir| GUIDES.iter().for_each(|guide| guide(process, dir)));
}

fn backup(process: &Process, dir: &Path) {
    let outputs = pasted("docs/backup.md", process, dir);
    let [taken, restored] = outputs.as_slice() else { panic!("docs/backup.md has {} blocks", outputs.len()) };
    assert!(taken.contains(" is complete: ") && taken.ends_with(": all of it reads\n"), "{taken}");
    assert!(restored.contains(" is restored; start the server with"), "{restored}");
}

#[test]
fn the_commands_of_the_guide_to_backups_run() {
    if crate::log_has_no_files() {
        return;
    }
    alone(backup);
}

fn log(process: &Process, dir: &Path) {
    let outputs = pasted("docs/log.md", process, dir);
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
}

#[test]
fn the_commands_of_the_log_guide_run() {
    if !has_kafka_listener() {
        return;
    }
    alone(log);
}

fn devices(process: &Process, dir: &Path) {
    let outputs = pasted("docs/connect-http.md", process, dir);
    let [registered, sent, commanded, found, connected, used] = outputs.as_slice() else {
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
    assert_eq!(connected, r#"{"total":0,"result":[]}"#);
    assert_eq!(used, "202 202 202 202 429 ");
}

#[test]
fn the_commands_of_the_guide_to_devices_over_http_run() {
    alone(devices);
}

fn lora(process: &Process, dir: &Path) {
    let outputs = pasted("docs/connect-lora.md", process, dir);
    let [_, registered, header, sent, _, commanded] = outputs.as_slice() else {
        panic!("docs/connect-lora.md has {} blocks", outputs.len())
    };
    assert!(registered.contains(r#"{"id":"70B3D57ED0000A1F"}"#), "{registered}");
    assert_eq!((header.as_str(), sent.as_str()), ("Authorization: Basic bnNAb3JjaGFyZDpodXNo\n", ""));
    assert!(commanded.contains(r#""outcome":"waiting""#), "for the next uplink: {commanded}");
    let tail = "curl -sS --fail-with-body -H 'Fiware-Service: orchard' \
                'http://127.0.0.1:8000/api/streams/telemetry.orchard?from=earliest'";
    let page: serde_json::Value = serde_json::from_str(&paste(tail, process, dir)).unwrap();
    let record = &page["records"][0];
    assert_eq!(
        (record["key"].as_str(), record["headers"]["function_port"].as_str()),
        (Some("70B3D57ED0000A1F"), Some("7"))
    );
}

#[test]
fn the_commands_of_the_guide_to_lorawan_run() {
    alone(lora);
}

fn queries(process: &Process, dir: &Path) {
    let outputs = pasted("docs/query.md", process, dir);
    let [rows, past, refused, schema, sums, percentiles, days, outings, hours, answers, kept, checked] =
        outputs.as_slice()
    else {
        panic!("docs/query.md has {} blocks", outputs.len())
    };
    assert!(rows.ends_with("{\"item\":\"bolt\",\"count\":7}\n{\"item\":\"gear\",\"count\":12}\n"), "{rows}");
    assert!(past.starts_with(r#"{"records":[{"item":"bolt"},{"item":"nut"}]"#), "{past}");
    assert!(past.ends_with("{\"orders\":3}\n"), "{past}");
    assert!(refused.contains("\"suggestion\":\"FROM\"") && refused.contains("\"column\":10"), "{refused}");
    assert!(schema.contains("\"path\":\"size.mm\"") && schema.contains("\"records\":3"), "{schema}");
    let kinds: Vec<&str> = answers.lines().map(|line| line.split([' ', ',']).nth(1).unwrap()).collect();
    assert_eq!(kinds, ["kind=opening", "kind=row", "kind=end"], "{answers}");
    assert!(answers.contains(",correlation-id=mine {\"item\":\"bolt\"}"), "{answers}");
    assert!(sums.ends_with("mm,orders,mean\n30,1,12\n8,2,8\n"), "{sums}");
    let expected = "item,orders,median,p95\nbolt,2,7.0,7.0\ngear,2,12.0,12.0\nnut,2,9.0,10.0\n";
    assert_eq!(percentiles, expected);
    let expected = "day,bike,km\n2026-03-27 23:00,b1,6.5\n2026-03-27 23:00,b2,1.0\n2026-03-28 23:00,b1,0.5\n\
                    2026-03-28 23:00,b2,3.0\n2026-03-29 22:00,b2,1.5\n";
    assert!(days.ends_with(expected), "{days}");
    assert_eq!(outings, "bike,rides,minutes\nb1,1,0\nb2,1,0\nb1,2,20\nb2,1,0\nb2,1,0\n");
    assert_eq!(hours, "until,rides\n21:30,1\n22:00,1\n23:00,1\n23:30,2\n00:00,1\n");
    assert!(kept.contains(r#"{"records":[{"item":"bolt","orders":1}]}"#), "{kept}");
    assert_eq!(checked, "204\n");
}

#[test]
fn the_commands_of_the_guide_to_queries_run() {
    if !has_kafka_listener() {
        return;
    }
    alone(queries);
}

fn entities(process: &Process, dir: &Path) {
    let outputs = pasted("docs/context.md", process, dir);
    let [shown] = outputs.as_slice() else { panic!("docs/context.md has {} blocks", outputs.len()) };
    let entity: serde_json::Value = serde_json::from_str(shown.lines().last().unwrap()).unwrap();
    assert_eq!((&entity["id"], &entity["temperature"]), (&"Room8".into(), &18.into()), "{shown}");
    eventually("the other room", || {
        let room = process.get("/v2/entities/Room7?options=keyValues");
        room.status == 200 && room.json()["temperature"] == 22.5
    });
}

#[test]
fn the_commands_of_the_guide_to_entities_run() {
    if !has_kafka_listener() {
        return;
    }
    alone(entities);
}

fn history(process: &Process, dir: &Path) {
    let outputs = pasted("docs/context-history.md", process, dir);
    let [temporal, quantumleap, comet] = &outputs[..] else { panic!("{outputs:?}") };
    let temporal: serde_json::Value = serde_json::from_str(temporal).unwrap();
    let values: Vec<&serde_json::Value> =
        temporal["temperature"].as_array().unwrap().iter().map(|point| &point["value"]).collect();
    assert_eq!(values, [21.5, 21.7], "{temporal}");
    let columns: serde_json::Value = serde_json::from_str(quantumleap).unwrap();
    assert_eq!(columns["values"], serde_json::json!([21.5, 21.7]), "{columns}");
    // Two answers, one behind the other.
    assert!(comet.contains("\"attrValue\":21.7}]}{\"contextResponses\"") && comet.contains("\"max\":21.7"), "{comet}");
}

#[test]
fn the_commands_of_the_guide_to_history_run() {
    alone(history);
}

fn subscriptions(process: &Process, dir: &Path) {
    let outputs = pasted("docs/context-subscriptions.md", process, dir);
    assert!(outputs[0].starts_with("HTTP/1.1 201 Created") && outputs[0].contains("/v2/subscriptions/"), "{outputs:?}");
}

#[test]
fn the_commands_of_the_guide_to_subscriptions_run() {
    alone(subscriptions);
}

fn store(process: &Process, dir: &Path) {
    let outputs = pasted("docs/store.md", process, dir);
    let [value, deleted, conditions, expiry, appended, many, iterated, terminal, topic, redis] = outputs.as_slice()
    else {
        panic!("docs/store.md has {} blocks", outputs.len())
    };
    assert!(value.contains("x-meta-owner: web") && value.ends_with("\r\n\r\n{\"name\": \"Ann\"}"), "{value}");
    assert!(deleted.ends_with("404\n"), "{deleted}");
    assert_eq!(conditions.matches("\"length\":").count(), 2, "{conditions}");
    assert!(conditions.contains("\"status\":412") && conditions.contains("If-Match does not hold"), "{conditions}");
    assert!(expiry.contains("cache-control: max-age=1800") && expiry.contains("x-expires: "), "{expiry}");
    assert!(appended.ends_with("FIRST second"), "{appended}");
    let statuses: Vec<_> = many.lines().filter_map(|line| line.split("\"status\":").nth(1)?.get(..3)).collect();
    assert_eq!(statuses, ["201", "201", "200", "404"], "{many}");
    assert!(many.contains("{\"prefix\":\"parts/\"}\n") && many.contains("\"value_base64\":\"AAH/\""), "{many}");
    assert!(many.ends_with("{\"next\":null}\n"), "{many}");
    assert!(iterated.contains("\"next\":\"/kv/shop/_iterate?from="), "{iterated}");
    assert!(terminal.contains("\nbuy bolts\n") && terminal.contains("1 keys are stored in notes\n"), "{terminal}");
    assert!(terminal.contains("{\"event\":\"put\",") && terminal.contains("\nshop    durable "), "{terminal}");
    assert!(topic.contains("\"ms-meta-owner\":\"web\"") && topic.contains("\nusers/ann at offset "), "{topic}");
    assert!(redis.contains("\"kind\":\"cache\"") && redis.ends_with("OK\n1\nOK\nhello"), "{redis}");
}

#[test]
fn the_commands_of_the_guide_to_the_store_run() {
    if !has_kafka_listener() {
        return;
    }
    alone(store);
}

fn readme(process: &Process, dir: &Path) {
    let outputs = pasted("README.md", process, dir);
    let [registered, sent, entity, rows, console] = outputs.as_slice() else {
        panic!("README has {} blocks", outputs.len())
    };
    assert!(registered.contains("sensor-1"), "{registered}");
    assert_eq!((sent.as_str(), console.as_str()), ("", ""));
    let entity: serde_json::Value = serde_json::from_str(entity).unwrap();
    assert_eq!((&entity["temp"], &entity["humid"]), (&21.5.into(), &40.into()));
    assert_eq!(rows.trim(), r#"{"temp":22.5}"#);
}

#[test]
fn the_five_steps_of_the_readme_run() {
    alone(readme);
}

#[test]
fn the_tokens_of_the_configuration_guide_let_every_kind_of_client_in() {
    if !has_kafka_listener() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("millstream.toml");
    std::fs::write(&file, blocks("docs/configuration.md", "toml").concat()).unwrap();
    // The guide's identity provider is nowhere; its settings are right all the same.
    let nowhere = ["--set", "oidc.issuer=http://127.0.0.1:9"];
    let process = Process::start_on(dir.path(), &[&["--config", file.to_str().unwrap()][..], &nowhere].concat());
    let [used] =
        &blocks("docs/configuration.md", "sh").into_iter().filter(|block| block.contains("Bearer")).collect::<Vec<_>>()
            [..]
    else {
        panic!("the guide shows how tokens are used")
    };
    let printed = paste(used, &process, dir.path());
    assert!(printed.contains(r#""name":"orders""#) && printed.ends_with("bolt\n"), "{printed}");
    assert_eq!(process.get("/stats").status, 401);
    process.stop();
}
