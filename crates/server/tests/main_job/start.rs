//! Tests of the program's start, of its refusals to start, and of its messages.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};

use millstream_testkit::{
    Process, Server, ask, eventually, has_kafka_listener, millstream, own_addresses, read_head, runs_on_kafka, status,
    terminate,
};

fn run(arguments: &[&str]) -> Output {
    millstream().args(arguments).current_dir(std::env::temp_dir()).output().unwrap()
}

fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?} is taken");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_second_process_on_the_same_directory_is_told_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let path = dir.path().to_str().unwrap();
    let engine = crate::engine_arguments(dir.path());
    let serve = ["serve", "--data-dir", path, "--listen-applications", "off", "--listen-devices-http", "off"];
    let said = refusal(&serve.into_iter().chain(engine.iter().map(String::as_str)).collect::<Vec<_>>());
    assert!(said.contains("is in use by another millstream process (pid "), "{said}");
    process.stop();
}

#[test]
fn a_file_in_place_of_the_data_directory_is_named_with_the_remedy() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let said = refusal(&["serve", "--data-dir", path, "--listen-applications", "off", "--listen-devices-http", "off"]);
    assert!(said.contains(path) && said.contains("a file stands where a directory is needed"), "{said}");
}

#[test]
fn the_licences_of_all_dependencies_are_printed() {
    let printed = String::from_utf8(run(&["licenses"]).stdout).unwrap();
    for part in ["tokio 1.", "hyper 1.", "Apache License", "Permission is hereby granted"] {
        assert!(printed.contains(part), "{part} is missing");
    }
}

#[test]
fn a_reader_that_goes_away_ends_a_command_in_order() {
    for arguments in [&["licenses"][..], &["completions", "bash"], &["config", "show", "--explain"], &["version"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = millstream().args(arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.is_empty(), "{arguments:?}: {} {said}", output.status);
    }
}

#[test]
fn the_service_manager_is_told_when_requests_are_taken_and_when_the_server_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let mut program = millstream();
    program.env("NOTIFY_SOCKET", &path);
    let process = Process::start_by(program, dir.path(), &[]);
    let told = || {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    assert_eq!(told().trim(), "READY=1");
    assert_eq!(process.get("/readyz").status, 200);
    process.tell_to_stop();
    // Where Kafka keeps the log, a process is ready to systemd while it stands by.
    let told = (0..2).map(|_| told()).find(|told| told.trim() != "READY=1");
    assert_eq!(told.as_deref().map(str::trim), Some("STOPPING=1"));
    process.stop();
}

#[test]
fn completions_of_each_shell_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{shell}");
        for command in ["serve", "topic", "alter", "append", "device", "password", "command", "entity", "one-way"] {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
    }
}

#[test]
fn manual_pages_tell_the_commands_and_their_options() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    assert!(run(&["man", pages.to_str().unwrap()]).status.success());
    for (page, part) in [
        ("millstream.1", r"millstream\-serve(1)"),
        ("millstream-serve.1", r"\-\-data\-dir"),
        ("millstream-topic-alter.1", ".SH SYNOPSIS"),
    ] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(part), "{page} lacks {part}");
    }

    let file = tempfile::NamedTempFile::new().unwrap();
    let said = refusal(&["man", file.path().to_str().unwrap()]);
    assert!(said.contains("cannot write manual pages into") && said.contains("move it away"), "{said}");
}

#[test]
fn only_the_servers_own_user_can_read_its_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    Process::start(dir.path()).stop();
    let (mut folders, mut files) = (vec![dir.path().to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let metadata = entry.metadata().unwrap();
            assert_eq!(metadata.permissions().mode() & 0o077, 0, "{} is open to others", entry.path().display());
            if metadata.is_dir() { folders.push(entry.path()) } else { files += 1 }
        }
    }
    assert!(files > 5, "{files} files were looked at");
}

#[test]
fn a_server_whose_output_is_not_read_still_serves() {
    let dir = tempfile::tempdir().unwrap();
    let [address, _] = own_addresses();
    let mut server = millstream()
        .args(["serve", "--data-dir"])
        .arg(dir.path())
        .args(["--listen-applications", &address.to_string(), "--listen-devices-http", "127.0.0.1:0"])
        .args(["--listen-kafka", "127.0.0.1:0", "--listen-devices-mqtt", "127.0.0.1:0"])
        .args(["--listen-redis", "127.0.0.1:0"])
        .current_dir(dir.path())
        .stdout(File::create("/dev/full").unwrap())
        .spawn()
        .unwrap();
    eventually("it listens or has ended", || {
        server.try_wait().unwrap().is_some() || TcpStream::connect(address).is_ok()
    });
    assert_eq!(server.try_wait().unwrap(), None);
    assert_eq!(ask(address, "GET", "/healthz", &[], b"").status, 200);
    terminate(&mut server);
}

#[test]
fn connections_leave_open_files_for_storage() {
    let dir = tempfile::tempdir().unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_millstream")]);
    let process = Process::start_by(limited, dir.path(), &["--set", "log.flush_interval_ms=20"]);
    let mut kept = BufReader::new(TcpStream::connect(process.applications).unwrap());
    let kafka = has_kafka_listener().then_some(process.kafka);
    let doors = [process.applications, process.devices, process.mqtt].into_iter().chain(kafka);
    let idle: Vec<_> = doors.cycle().take(300).map(|door| TcpStream::connect(door).unwrap()).collect();
    // Each stream needs files of its own.
    for nth in 0..10 {
        let path = format!("/api/streams/s{nth}");
        assert_eq!(ask_on(&mut kept, "PUT", &path, "{}"), 201);
        assert_eq!(ask_on(&mut kept, "POST", &format!("{path}/records"), r#"{"value":1}"#), 200);
    }
    drop(idle);
    eventually("connections are accepted again", || {
        status(process.applications, "GET", "/healthz", &[], b"") == Some(200)
    });
    process.stop();
}

/// The status of the answer to a request on a connection that stays open.
fn ask_on(connection: &mut BufReader<TcpStream>, method: &str, path: &str, body: &str) -> u16 {
    let media = if method == "POST" { "application/x-ndjson" } else { "application/json" };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\n");
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    connection.get_mut().write_all(request.as_bytes()).unwrap();
    let (status, headers) = read_head(connection);
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length")).unwrap();
    std::io::copy(&mut connection.take(length.1.parse().unwrap()), &mut std::io::sink()).unwrap();
    status
}

#[test]
fn an_address_that_is_not_loopback_needs_callers_that_prove_who_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let serve = ["serve", "--data-dir", path, "--listen-devices-http", "off", "--listen-applications", "0.0.0.0:0"];
    let said = refusal(&serve);
    assert!(said.contains("0.0.0.0:0") && said.contains("configure API tokens"), "{said}");
    let off = ["serve", "--data-dir", path, "--listen-devices-http", "off", "--listen-applications", "off"];
    let said = refusal(
        &[&off[..], &["--listen-devices-mqtt", "off", "--listen-redis", "off", "--listen-kafka", "0.0.0.0:0"]].concat(),
    );
    assert!(said.contains("'kafka' refuses to start on 0.0.0.0:0") && said.contains("loopback"), "{said}");
}

#[test]
fn a_setting_that_is_none_is_named_with_its_place_and_the_nearest_one() {
    let said = refusal(&["config", "show", "--set", "log.sync_intervall_ms=3"]);
    assert!(
        said.contains("'log.sync_intervall_ms' in command line") && said.contains("did you mean 'sync_interval_ms'?"),
        "{said}"
    );
    let said = refusal(&["config", "show", "--set", "log.cache_bytes=4000000000"]);
    assert!(
        said.contains("log.cache_bytes = 4000000000") && said.contains("memory.budget_bytes = 2147483648"),
        "{said}"
    );
    let said = refusal(&["config", "show", "--listen-applications", "8000"]);
    assert!(said.contains("HOST:PORT"), "{said}");
}

#[test]
fn settings_come_from_defaults_file_environment_and_flags_in_this_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("settings.toml");
    std::fs::write(&file, "[log]\nsync_interval_ms = 10\nflush_interval_ms = 11\ncache_bytes = 12\n").unwrap();
    let output = millstream()
        .args(["config", "show", "--config", file.to_str().unwrap(), "--set", "log.cache_bytes=32"])
        .env("MILLSTREAM__LOG__FLUSH_INTERVAL_MS", "21")
        .env("MILLSTREAM__LOG__CACHE_BYTES", "22")
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let line = |key: &str| {
        let line = shown.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{key} in {shown}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("log.sync_interval_ms"), format!("log.sync_interval_ms = 10 # {}", file.display()));
    assert_eq!(line("log.flush_interval_ms"), "log.flush_interval_ms = 21 # environment");
    assert_eq!(line("log.cache_bytes"), "log.cache_bytes = 32 # command line");
    assert_eq!(line("log.pending_max_bytes"), "log.pending_max_bytes = 67108864 # default");
}

#[test]
fn tokens_are_masked_where_settings_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("settings.toml");
    let token = "[[applications.tokens]]\nname = \"ops\"\ntoken = \"0123456789abcdef\"\nroles = [\"admin\"]\n";
    std::fs::write(&file, token).unwrap();
    let output = run(&["config", "show", "--config", file.to_str().unwrap()]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("ops") && shown.contains("***") && !shown.contains("0123456789abcdef"), "{shown}");
}

#[test]
fn rules_of_history_are_shown_and_one_that_cannot_be_followed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("settings.toml");
    let config = file.to_str().unwrap();
    let rule = |period_ms: u32| {
        let rule = "[[history.rules]]\ntype = \"Room\"\nsample = \"avg\"\nsample_after_ms = 604800000\n";
        std::fs::write(&file, format!("{rule}sample_period_ms = {period_ms}\n")).unwrap();
    };
    rule(60_000);
    let shown = String::from_utf8(run(&["config", "show", "--config", config]).stdout).unwrap();
    let line = shown.lines().find(|line| line.starts_with("history.rules = ")).unwrap();
    for said in ["sample = \"avg\"", "sample_after_ms = 604800000", "sample_period_ms = 60000"] {
        assert!(line.contains(said), "{line}");
    }
    rule(7_000);
    let data = dir.path().join("data");
    let doors =
        ["applications", "devices-http", "devices-mqtt", "kafka"].map(|door| format!("--listen-{door}=127.0.0.1:0"));
    let serve = ["serve", "--config", config, "--data-dir", data.to_str().unwrap()];
    let said = refusal(&serve.into_iter().chain(doors.iter().map(String::as_str)).collect::<Vec<_>>());
    assert!(said.contains("sample_period_ms = 7000") && said.contains("a period must divide a day"), "{said}");
}

#[test]
fn with_tokens_configured_a_caller_must_show_one_with_the_role() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("settings.toml");
    let token = "[[applications.tokens]]\nname = \"dashboard\"\ntoken = \"0123456789abcdef\"\nroles = [\"reader\"]\n";
    std::fs::write(&file, token).unwrap();
    let process = Process::start_on(dir.path(), &["--config", file.to_str().unwrap()]);
    let bearer = ("Authorization", "Bearer 0123456789abcdef");
    let json = ("Content-Type", "application/json");
    assert_eq!(ask(process.applications, "GET", "/v2/entities", &[bearer], b"").status, 200);
    // NGSI has names of its own for them, the registry has problem details.
    for (method, path, headers, status, error, says) in [
        ("GET", "/v2/entities", &[json][..], 401, "Unauthorized", "send the secret of an API token"),
        ("POST", "/v2/entities", &[json, bearer], 403, "Forbidden", "callers with role 'writer'"),
        ("GET", "/v1/tenants/default", &[], 401, "", "send the secret of an API token"),
        ("POST", "/v1/tenants", &[json, bearer], 403, "", "callers with role 'admin'"),
        ("PUT", "/v1/devices/default/d", &[json, bearer], 403, "", "callers with role 'admin'"),
        ("DELETE", "/v1/tenants/default", &[bearer], 403, "", "callers with role 'admin'"),
    ] {
        let body: &[u8] = if matches!(method, "POST" | "PUT") { b"{}" } else { b"" };
        let refused = ask(process.applications, method, path, headers, body);
        assert_eq!(refused.status, status, "{method} {path}: {}", refused.text());
        assert_eq!(refused.header("www-authenticate").is_some(), status == 401, "{method} {path}");
        let body = refused.json();
        let (name, text) = match error {
            "" => ("", body["error"].as_str().unwrap()),
            _ => (body["error"].as_str().unwrap(), body["description"].as_str().unwrap()),
        };
        assert_eq!(name, error, "{method} {path}: {body}");
        assert!(text.contains(says), "{method} {path}: {text}");
    }
    assert_eq!(process.get("/healthz").status, 200);
    // Topics that hold the state of all tenants are not for who acts in one of them.
    let told = ask(process.applications, "GET", "/stats", &[bearer], b"").json();
    let topics = told["log"]["topics"].as_array().unwrap();
    assert!(topics.iter().all(|topic| topic["tenant"] == "default" && topic["kind"] != "internal"), "{told}");
    // Counters name topics and groups of all tenants: they are an operator's.
    assert_eq!(process.get("/metrics").status, 401);
    assert_eq!(ask(process.applications, "GET", "/metrics", &[bearer], b"").status, 403);
    process.stop();
}

#[test]
fn the_limits_that_a_refused_head_names_can_be_set() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_on(dir.path(), &["--set", "http.uri_max_bytes=20"]);
    assert_eq!(process.get("/healthz").status, 200);
    let refused = process.get("/healthz?and-so-much-more");
    assert_eq!(refused.status, 414);
    assert!(refused.text().contains("http.uri_max_bytes = 20"), "{}", refused.text());
    process.stop();
}

#[test]
fn a_running_server_tells_how_it_is() {
    let server = crate::tenant();
    assert_eq!(server.get("/healthz").text(), "alive\n");
    let (ready, engine) = (server.get("/readyz").text(), server.get_json("/stats")["log"]["engine"].clone());
    if runs_on_kafka() {
        assert!(ready.starts_with("ready\nlog: Apache Kafka, "), "{ready}");
        assert_eq!(engine["name"], "kafka");
    } else {
        assert_eq!((&*ready, engine["name"].as_str()), ("ready\n", Some("embedded")));
        assert!(engine["dir"].as_str().is_some_and(|dir| dir.ends_with("/log")), "{engine}");
    }
    let lost = ask(server.applications(), "GET", "/nonexist", &[("Accept", "text/html,*/*;q=0.8")], b"");
    assert_eq!((lost.status, lost.header("content-type")), (404, Some("text/html; charset=utf-8")));
    assert!(lost.text().contains("<title>Millstream"), "the console says that there is no such page");
    for page in [lost, server.get("/")] {
        let policy = page.header("content-security-policy").unwrap();
        for rule in ["default-src 'none'", "script-src 'self';", "connect-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(rule), "{rule} in {policy}");
        }
    }
    let lost = ask(server.applications(), "GET", "/nonexist", &[("Accept", "application/json")], b"");
    assert_eq!((lost.status, lost.header("content-type")), (404, Some("application/problem+json")));
    let metrics = server.get("/metrics");
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(metrics.text().contains("millstream_connections"), "{}", metrics.text());
    let stats = server.get_json("/stats");
    assert_eq!(stats["version"], env!("CARGO_PKG_VERSION"));
    assert!(stats["rss_bytes"].as_u64().unwrap() > 0);
    let memory: Vec<&String> = stats["memory"].as_object().unwrap().keys().collect();
    assert_eq!(memory, ["reserved_bytes", "budget_bytes"], "as in the metrics");
    let bound = [
        ("applications", server.applications().address),
        ("devices-http", server.devices()),
        ("devices-mqtt", server.mqtt()),
        ("kafka", server.kafka()),
        ("redis", server.redis()),
    ];
    for (listener, address) in bound {
        let is_there = listener != "kafka" || has_kafka_listener();
        let expected = is_there.then(|| serde_json::json!({"port": address.port(), "tls_port": null}));
        assert_eq!(stats["listeners"][listener], serde_json::json!(expected), "{listener}");
    }
    let topics = stats["log"]["topics"].as_array().unwrap();
    assert!(topics.iter().any(|topic| topic["kind"] == "internal"), "who acts in all tenants is told of them");
    let tree = server.get_json("/stats?categories=-1");
    for member in ["commands", "io", "io_histograms", "procfs", "stats", "top", "backends"] {
        assert!(tree[member].is_object() && tree[member]["error"].is_null(), "{member} in {tree}");
    }
    assert!(server.get_json("/stats?categories=procfs,top")["commands"].is_null());
    assert_eq!(server.get("/stats?categories=256").status, 400);
    assert_eq!(server.get("/get/photos/a").status, 404, "Rift's routes are off by default");
    let openapi = server.get_json("/openapi.json");
    for path in ["/v2/entities", "/v1/tenants/{tenant}", "/api/queries", "/stats", "/stats/{category}", "/top"] {
        assert!(!openapi["paths"][path].is_null(), "{path} is not documented");
    }
    let orion = server.get_json("/version")["orion"].clone();
    let hash = orion["git_hash"].as_str().unwrap();
    assert!(hash == "unknown" || (hash.len() >= 40 && hash.bytes().all(|c| c.is_ascii_hexdigit())), "{orion}");
    assert!(orion["compile_time"].as_str().unwrap().ends_with(".000Z"), "whole seconds: {orion}");
    assert!(orion["libversions"]["rustc"].as_str().unwrap().starts_with("rustc 1."), "{orion}");
    for (library, version) in orion["libversions"].as_object().unwrap() {
        assert!(version.as_str().unwrap().contains('.'), "{library} is locked: {orion}");
    }
    assert_eq!(run(&["version"]).stdout, format!("millstream {}\n", env!("CARGO_PKG_VERSION")).into_bytes());
}

#[test]
fn a_log_that_goes_to_a_file_has_no_colours() {
    let dir = tempfile::tempdir().unwrap();
    let doors =
        ["applications", "devices-http", "devices-mqtt", "kafka"].map(|door| format!("--listen-{door}=127.0.0.1:0"));
    let log = dir.path().join("log");
    let mut server = millstream()
        .args(["serve", "--data-dir"])
        .arg(dir.path().join("data"))
        .args(doors)
        .stdout(std::process::Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut said).unwrap();
    terminate(&mut server);
    let written = std::fs::read_to_string(log).unwrap();
    assert!(written.contains("INFO") && !written.contains('\u{1b}'), "{written}");
}

#[test]
fn the_rates_of_the_last_minutes_are_kept_for_who_comes_later() {
    let server = crate::tenant();
    assert!(server.get_json("/stats")["history"].is_null(), "who does not ask for them gets no rates of the past");
    let json = [("Content-Type", "application/json")];
    assert_eq!(ask(server.applications(), "PUT", "/api/streams/orders", &json, b"{}").status, 201);
    let records = br#"[{"value": 1}]"#;
    assert_eq!(ask(server.applications(), "POST", "/api/streams/orders/records", &json, records).status, 200);
    let history = || server.get_json("/stats?history_s=300")["history"].as_array().unwrap().clone();
    let appended = |sample: &serde_json::Value| sample["append_rate_per_s"].as_f64().unwrap() > 0.0;
    eventually("two seconds with a rate", || history().iter().filter(|sample| appended(sample)).count() > 1);
    let seconds: Vec<u64> = history().iter().map(|sample| sample["uptime_s"].as_u64().unwrap()).collect();
    assert!(seconds.windows(2).all(|pair| pair[0] < pair[1]), "one sample a second: {seconds:?}");
    let recent = server.get_json("/stats?history_s=1");
    assert!(recent["history"].as_array().unwrap().len() <= 1, "{recent}");
    assert_eq!(server.get("/stats?history_s=soon").status, 400);
}
