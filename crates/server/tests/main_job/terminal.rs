//! `millstream device`, `command`, `entity` and `topic append` as processes, against a real server.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_testkit::{Server, TestTenant, ask, millstream};
use serde_json::{Value, json};

/// A tenant and the commands that are run against it.
struct Terminal {
    server: TestTenant,
}

impl Terminal {
    fn open() -> Self {
        Self { server: crate::tenant() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = millstream();
        command.args(arguments).args(["--server", &self.server.applications_url(), "--tenant", self.server.tenant()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(arguments).spawn().unwrap();
        // A command that refuses its arguments reads nothing.
        let _unread = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    fn printed(&self, arguments: &[&str]) -> String {
        self.printed_of(arguments, "")
    }

    fn printed_of(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.printed(&[arguments, &["--json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs commands that are refused with that exit code, each with a text that is said.
    fn refused(&self, code: i32, table: &[(&[&str], &str, &[&str])]) {
        for (arguments, input, said) in table {
            let output = self.run(arguments, input);
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
            assert!(said.iter().all(|part| text.contains(part)), "{arguments:?}: {text}");
        }
    }

    /// The device's telemetry request that takes a command; its name, request id and payload.
    fn take_command(&self) -> (String, Option<String>, String) {
        let login = format!("Basic {}", BASE64.encode(format!("lamp@{}:hush", self.server.tenant())));
        let headers = [("Authorization", login.as_str()), ("Content-Type", "application/json")];
        let answer = ask(self.server.devices(), "POST", "/telemetry?hono-ttd=50", &headers, b"{}");
        let header = |name| answer.header(name).map(str::to_owned);
        (header("hono-command").unwrap(), header("hono-cmd-req-id"), answer.text())
    }

    fn answer(&self, request: &str, status: u16, text: &str) {
        let login = format!("Basic {}", BASE64.encode(format!("lamp@{}:hush", self.server.tenant())));
        let headers = [("Authorization", login.as_str()), ("Content-Type", "text/plain")];
        let path = format!("/command/res/{request}?hono-cmd-status={status}");
        assert_eq!(ask(self.server.devices(), "POST", &path, &headers, text.as_bytes()).status, 202);
    }
}

#[test]
fn a_device_is_added_listed_shown_given_another_password_and_removed() {
    let terminal = Terminal::open();
    assert_eq!(terminal.printed(&["device", "list"]), "DEVICE  ENABLED  CONNECTED  VIA  CREATED\n");
    terminal.printed(&["device", "add", "gateway", "--password", "first"]);
    assert_eq!(terminal.printed(&["device", "add", "lamp", "--via", "gateway"]), "device lamp is registered\n");
    let list = terminal.printed(&["device", "list"]);
    let row: Vec<&str> = list.lines().find(|line| line.starts_with("lamp ")).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["lamp", "true", "false", "gateway"], "{list}");
    let login = |password: &str| {
        let login = format!("Basic {}", BASE64.encode(format!("gateway@{}:{password}", terminal.server.tenant())));
        let headers = [("Authorization", login.as_str()), ("Content-Type", "application/json")];
        ask(terminal.server.devices(), "POST", "/telemetry", &headers, b"{}").status
    };
    assert_eq!((login("first"), login("second")), (202, 401));
    let set = terminal.printed_of(&["device", "password", "gateway"], "second\n");
    assert_eq!(set, "device gateway has a new password\n");
    assert_eq!((login("first"), login("second")), (401, 202));
    terminal.printed(&["device", "password", "gateway", "third", "--auth-id", "gw"]);
    let shown = &terminal.json(&["device", "show", "gateway"])[0];
    assert_eq!((&shown["id"], shown["credentials"].as_array().unwrap().len()), (&json!("gateway"), 2));
    assert!(!shown.to_string().contains("pwd-plain"), "{shown}");
    let text = terminal.printed(&["device", "show", "gateway"]);
    assert!(text.starts_with("device gateway\n") && text.contains("\nLOGIN    TYPE"), "{text}");
    terminal.printed(&["device", "remove", "lamp"]);
    let ids: Vec<Value> = terminal.json(&["device", "list"]).iter().map(|device| device["id"].clone()).collect();
    assert_eq!(ids, [json!("gateway")]);
    terminal.refused(
        1,
        &[
            (&["device", "add", "gateway"], "", &["gateway"]),
            (&["device", "show", "none"], "", &["none"]),
            (&["device", "add", "a b"], "", &["a b"]),
            (&["device", "password", "gateway"], "\n", &["the password is empty", "standard input"]),
        ],
    );
    terminal.refused(2, &[(&["device", "add"], "", &["<DEVICE>"])]);
}

#[test]
fn a_list_of_devices_has_all_pages() {
    let terminal = Terminal::open();
    let json = [("Content-Type", "application/json")];
    for n in 0..205 {
        let path = format!("/v1/devices/{}/d-{n}", terminal.server.tenant());
        assert_eq!(ask(terminal.server.applications(), "POST", &path, &json, b"{}").status, 201);
    }
    assert_eq!(terminal.json(&["device", "list"]).len(), 205);
}

#[test]
fn a_command_prints_the_devices_answer_and_fails_where_the_device_refuses_it() {
    let terminal = Terminal::open();
    terminal.printed(&["device", "add", "lamp", "--password", "hush"]);
    let send = |arguments: &[&str]| {
        let all =
            [&["command", terminal.server.tenant(), "lamp"], arguments, &["--ttl", "60", "--timeout", "50"]].concat();
        terminal.command(&all).spawn().unwrap()
    };
    let child = send(&["switch", r#"{"on": true}"#]);
    let (name, request, payload) = terminal.take_command();
    assert_eq!((name.as_str(), payload.as_str()), ("switch", r#"{"on": true}"#));
    terminal.answer(&request.unwrap(), 200, "it is on");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "it is on\n");

    let child = send(&["switch", "off", "--json"]);
    let request = terminal.take_command().1.unwrap();
    terminal.answer(&request, 409, "stuck");
    let output = child.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told, json!({"status": 409, "content_type": "text/plain", "payload": "stuck"}));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("device lamp has refused the command with status 409"), "{said}");

    let sent = terminal.printed(&["command", terminal.server.tenant(), "lamp", "blink", "--one-way", "--ttl", "60"]);
    assert_eq!(sent, "waiting\n");
    assert_eq!(terminal.take_command(), ("blink".to_owned(), None, String::new()));
    terminal.refused(
        1,
        &[
            (&["command", terminal.server.tenant(), "none", "switch"], "", &["none"]),
            (&["command", terminal.server.tenant(), "lamp", "a/+"], "", &["a/+", "a command's name has 1 to"]),
            (&["command", terminal.server.tenant(), "lamp", "switch"], "", &["lamp"]),
        ],
    );
    terminal.refused(
        2,
        &[
            (&["command", terminal.server.tenant(), "lamp"], "", &["<NAME>"]),
            (&["command", terminal.server.tenant(), "lamp", "x", "--ttl", "soon"], "", &["soon"]),
        ],
    );
}

#[test]
fn an_entity_is_set_listed_by_a_filter_shown_and_deleted() {
    let terminal = Terminal::open();
    for (id, temperature) in [("kitchen", "21.5"), ("cellar", "9")] {
        let set = ["entity", "set", id, &format!("temperature={temperature}"), "floor=low", "--type", "Room"];
        assert_eq!(terminal.printed(&set), format!("entity {id} is set\n"));
    }
    terminal.printed(&["entity", "set", "kitchen", "open=true"]);
    assert_eq!(
        terminal.printed(&["entity", "list", "-q", "temperature>20"]),
        "ENTITY   TYPE  ATTRIBUTES\nkitchen  Room  temperature=21.5 floor=low open=true\n"
    );
    assert_eq!(terminal.json(&["entity", "list", "--type", "Room"]).len(), 2);
    let shown = terminal.printed(&["entity", "show", "kitchen"]);
    assert!(shown.starts_with("entity kitchen of type Room\nATTRIBUTE    TYPE     VALUE\n"), "{shown}");
    assert!(shown.contains("\nopen         Boolean  true\n"), "{shown}");
    assert_eq!(terminal.printed(&["entity", "delete", "cellar"]), "entity cellar is deleted\n");
    assert_eq!(terminal.json(&["entity", "list"]).len(), 1);
    terminal.refused(
        1,
        &[
            (&["entity", "show", "attic"], "", &["there is no entity 'attic'"]),
            (&["entity", "list", "-q", "a=="], "", &["q"]),
            (&["entity", "set", "x", "a<b=1"], "", &["a<b"]),
        ],
    );
    terminal.refused(
        2,
        &[
            (&["entity", "set", "x", "21"], "", &["use NAME=VALUE, such as temperature=21.5"]),
            (&["entity", "list", "--limit", "0"], "", &["0 is not in 1..=1000"]),
        ],
    );
}

#[test]
fn lines_are_appended_as_records_values_or_text_as_they_come() {
    let terminal = Terminal::open();
    terminal.printed(&["topic", "create", "t", "--partitions", "1"]);
    let append =
        |arguments: &[&str], input: &str| terminal.printed_of(&[&["topic", "append", "t"], arguments].concat(), input);
    assert_eq!(append(&[], "{\"key\":\"a\",\"value\":1.50}\n\n"), "1 records are appended to t\n");
    append(&["--format", "values", "--key", "k\"1"], "{\"n\": 1}\n[2]");
    append(&["--format", "raw", "--ack", "written"], " 21.5 C\r\nplain\n");
    let many: String = (0..25_000).map(|n| format!("{n}\n")).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("numbers");
    std::fs::write(&file, many).unwrap();
    let said = append(&["--format", "values", "--file", file.to_str().unwrap()], "");
    assert_eq!(said, "25000 records are appended to t\n");
    let raw = terminal.printed(&["topic", "tail", "t", "--from", "earliest", "--limit", "6", "--raw"]);
    assert_eq!(raw, "1.50\n{\"n\": 1}\n[2]\n 21.5 C\nplain\n0\n");
    let keyed = terminal.printed(&["topic", "tail", "t", "--from", "0:1", "--limit", "1"]);
    assert_eq!(serde_json::from_str::<Value>(&keyed).unwrap()["key"], "k\"1");
    let exported = terminal.printed(&["topic", "export", "t"]);
    terminal.printed(&["topic", "create", "copy"]);
    assert_eq!(terminal.printed_of(&["topic", "append", "copy"], &exported), "25005 records are appended to copy\n");

    let mut child = terminal.command(&["topic", "append", "t", "--format", "raw"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"at once\n").unwrap();
    let tail = terminal.printed(&["topic", "tail", "t", "--from", "earliest", "--limit", "25006", "--raw"]);
    assert!(tail.ends_with("\nat once\n"), "while the input goes on");
    drop(input);
    assert!(child.wait().unwrap().success());
    terminal.refused(
        1,
        &[
            (&["topic", "append", "none"], "{\"value\":1}\n", &["topic 'none' does not exist"]),
            (&["topic", "append", "t"], "{\"value\":1}\nnonsense\n", &["0 records are appended", "line"]),
            (&["topic", "append", "t", "--format", "values"], "1\nx y\n", &["line 2", "'x y' is not JSON", "raw"]),
            (&["topic", "append", "t", "--key", "k"], "", &["use --format values or raw"]),
            (&["topic", "append", "t", "--file", "/nonexistent"], "", &["--file /nonexistent cannot be read"]),
        ],
    );
}

#[test]
fn a_topic_is_altered() {
    let terminal = Terminal::open();
    terminal.printed(&["topic", "create", "t"]);
    let altered = terminal.printed(&["topic", "alter", "t", "retention=12h", "retention_bytes=1073741824"]);
    assert!(altered.contains("retention         12h\n") && altered.contains("retention_bytes   1 GiB\n"), "{altered}");
    let altered = terminal.printed(&["topic", "alter", "t", "retention=none"]);
    assert!(altered.contains("retention         none\n"), "{altered}");
    terminal.refused(
        1,
        &[
            (&["topic", "alter", "none", "retention=1h"], "", &["topic 'none' does not exist"]),
            (&["topic", "alter", "t", "retention=soon"], "", &["retention", "soon"]),
            (&["topic", "alter", "t", "colour=red"], "", &["colour"]),
        ],
    );
    terminal.refused(2, &[(&["topic", "alter", "t", "retention"], "", &["use KEY=VALUE, such as retention=7d"])]);
}
