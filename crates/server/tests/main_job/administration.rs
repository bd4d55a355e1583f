//! The subcommands with which an operator looks after a server: `health`, `tenant`, `group`, `config check`, and `command`,
//! which names its tenant itself.

use std::net::TcpListener;
use std::process::{Command, Output};

use millstream_testkit::{Process, Server, ask, has_kafka_listener, millstream, own_addresses};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn run(url: &str, arguments: &[&str]) -> Output {
    millstream().args(arguments).env("MILLSTREAM_SERVER", url).output().unwrap()
}

fn printed(server: &impl Server, arguments: &[&str]) -> String {
    let output = run(&server.applications_url(), arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(server: &impl Server, arguments: &[&str]) -> String {
    let output = run(&server.applications_url(), arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn health_tells_a_server_that_serves_from_one_that_is_not_there() {
    let server = crate::tenant();
    let told = printed(&server, &["health"]);
    assert!(told.starts_with("ready\n"), "{told}");
    assert_eq!(printed(&server, &["health", "--alive"]), "alive\n");
    let devices = run(&format!("http://{}", server.devices()), &["health"]);
    assert_eq!(devices.status.code(), Some(2), "{devices:?}");
    let [nobody, _] = own_addresses();
    let absent = run(&format!("http://{nobody}"), &["health"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&absent.stderr).contains("cannot connect to"), "{absent:?}");

    // It takes the connection and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = run(&format!("http://{}", silent.local_addr().unwrap()), &["health", "--timeout", "1"]);
    assert_eq!(slow.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&slow.stderr).contains("no answer within 1s"), "{slow:?}");
}

#[test]
fn a_tenant_is_created_changed_shown_listed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let server = crate::tenant();
    let settings = dir.path().join("mill.json");
    std::fs::write(&settings, r#"{"ext": {"site": "north"}, "alias": "grinder"}"#).unwrap();
    let file = settings.to_str().unwrap();
    let created = printed(&server, &["tenant", "create", "mill", "--file", file, "--set", "enabled=false"]);
    assert_eq!(created, "tenant mill is created\n");
    assert!(refused(&server, &["tenant", "create", "mill"]).contains("exist"));

    let updated = printed(&server, &["tenant", "update", "mill", "enabled=true", "alias=null"]);
    assert_eq!(updated, "tenant mill is changed\n");
    let known: Value = serde_json::from_str(&printed(&server, &["tenant", "show", "mill", "--json"])).unwrap();
    assert_eq!(
        (&known["id"], &known["enabled"], &known["ext"]),
        (&json!("mill"), &json!(true), &json!({"site": "north"}))
    );
    assert!(known.get("alias").is_none(), "{known}");
    assert!(printed(&server, &["tenant", "show", "mill"]).starts_with("tenant mill\n"));

    let list = printed(&server, &["tenant", "list"]);
    assert!(list.lines().any(|line| line.split_whitespace().eq(["mill", "true", "none", "0"])), "{list}");
    printed(&server, &["tenant", "delete", "mill"]);
    assert!(refused(&server, &["tenant", "show", "mill"]).contains("mill"));
    assert!(refused(&server, &["tenant", "create", "mill", "--set", "enabled=perhaps"]).contains("expected a boolean"));
}

#[test]
fn a_tenant_that_an_argument_and_an_option_name_must_be_the_same() {
    let server = crate::tenant();
    let mill = &*format!("{}_mill", server.tenant());
    for arguments in
        [&["command", mill, "wheel", "stop", "--tenant", "other"][..], &["tenant", "delete", mill, "--tenant", "other"]]
    {
        let told = refused(&server, arguments);
        let rule = format!("the argument names the tenant {mill} and --tenant names other");
        assert!(told.contains(&rule), "{told}");
    }
    printed(&server, &["tenant", "create", mill, "--tenant", mill]);
}

#[test]
fn groups_are_listed_and_shown_with_what_they_have_read() {
    if !has_kafka_listener() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    for topic in ["numbers", "doubled"] {
        let created =
            ask(process.applications, "PUT", &format!("/api/streams/{topic}"), &[JSON], br#"{"partitions": 1}"#);
        assert_eq!(created.status, 201, "{}", created.text());
    }
    assert_eq!(printed(&process, &["group", "list", "--json"]), "");
    let records: String = (0..3).map(|n| json!({"value": {"n": n}}).to_string() + "\n").collect();
    let lines = ("Content-Type", "application/x-ndjson");
    let appended = ask(process.applications, "POST", "/api/streams/numbers/records", &[lines], records.as_bytes());
    assert_eq!(appended.status, 200, "{}", appended.text());
    let broker = process.kafka.to_string();
    let mut reader = Command::new("kcat");
    reader.args(["-q", "-b", &broker, "-X", "auto.offset.reset=earliest", "-c", "2", "-G", "readers", "numbers"]);
    assert!(reader.output().unwrap().status.success());

    let listed: Value = serde_json::from_str(&printed(&process, &["group", "list", "--json"])).unwrap();
    assert_eq!(listed, json!({"group": "readers", "topics": ["numbers"], "lag": 1}));
    let list = printed(&process, &["group", "list"]);
    assert!(list.lines().any(|line| line.split_whitespace().eq(["readers", "numbers", "1"])), "{list}");
    let shown = printed(&process, &["group", "show", "readers"]);
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["numbers", "0", "2", "1"])), "{shown}");
    assert!(refused(&process, &["group", "show", "nobody"]).contains("'millstream group list'"));
    process.stop();
}

#[test]
fn config_check_tells_all_faults_of_each_file_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = write("good.toml", "data_dir = \"nowhere\"\n[log]\nsync_interval_ms = 20\n");
    let bad = write("bad.toml", "[log]\nsync_intervall_ms = 20\ncache_bytes = \"much\"\n[listen]\nkafka = \"here\"\n");
    let rules =
        write("rules.toml", "[memory]\nbudget_bytes = 1000\n[history]\nfiles_max = 0\n[context]\npartitions = 0\n");
    let torn = write("torn.toml", "[log\n");
    let check = |arguments: &[&str]| {
        let output = millstream().current_dir(dir.path()).args(["config", "check"]).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(check(&[&good]), (Some(0), format!("{good}: no faults\n")));
    assert_eq!(check(&["--config", &good]), (Some(0), format!("{good}: no faults\n")));
    assert_eq!(check(&[]), (Some(0), "configuration: no faults\n".to_owned()));

    let (code, told) = check(&[&good, &bad, &rules, &torn, "--set", "threads.io=many"]);
    assert_eq!(code, Some(1));
    for (file, part) in [
        (&bad, "did you mean 'sync_interval_ms'"),
        (&bad, "log.cache_bytes"),
        (&bad, "listen.kafka"),
        (&bad, "threads.io' in command line"),
        (&rules, "threads.io"),
        (&torn, "TOML"),
    ] {
        assert!(
            told.lines().any(|line| line.starts_with(&format!("{file}: ")) && line.contains(part)),
            "{part} in\n{told}"
        );
    }
    let (code, told) = check(&[&rules]);
    assert_eq!(code, Some(1));
    for part in ["memory.budget_bytes", "context.partitions"] {
        assert!(told.contains(part), "{part} in\n{told}");
    }
    assert!(!dir.path().join("nowhere").exists() && !dir.path().join("data").exists());
}
