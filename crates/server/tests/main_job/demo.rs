//! `millstream demo` as a stranger runs it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use millstream_testkit::{eventually, millstream};
use serde_json::Value;

/// A demo on free ports; its temporary files are below `temporary`.
fn demo(temporary: &Path) -> Command {
    let mut command = millstream();
    command.arg("demo").env("TMPDIR", temporary);
    for listener in ["applications", "devices-http", "devices-mqtt", "kafka"] {
        command.arg(format!("--listen-{listener}=127.0.0.1:0"));
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Killed when dropped, so that a failed test leaves no process behind.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Running {
    fn start(command: &mut Command) -> (Self, impl Iterator<Item = String> + use<>) {
        let mut child = command.spawn().unwrap();
        let out: ChildStdout = child.stdout.take().unwrap();
        (Self(child), BufReader::new(out).lines().map_while(Result::ok))
    }

    /// Ctrl-C.
    fn interrupt(&self) {
        let told = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().unwrap();
        assert!(told.success());
    }
}

fn entries(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn the_demo_answers_the_query_that_it_prints_and_leaves_nothing_behind_after_ctrl_c() {
    let temporary = tempfile::tempdir().unwrap();
    let (mut demo, mut said) = Running::start(&mut demo(temporary.path()));
    let data = said.find_map(|line| line.strip_prefix("  data     ").map(str::to_owned)).unwrap();
    assert!(Path::new(&data).starts_with(temporary.path()) && Path::new(&data).join("log").is_dir(), "{data}");
    let command = said.find(|line| line.trim_start().starts_with("millstream query --server ")).unwrap();

    let bin = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("exec {}", command.trim())]).stdout(Stdio::piped());
    shell.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let (query, mut rows) = Running::start(&mut shell);
    let row: Value = serde_json::from_str(&rows.next().expect("a window of two seconds has rows")).unwrap();
    assert!(["EWR", "JFK", "LGA"].contains(&row["$key"].as_str().unwrap()), "{row}");
    assert!(row["warmest"].is_number() && row["humidity"].is_number(), "{row}");
    drop(query);

    demo.interrupt();
    eventually("the demo ends", || demo.0.try_wait().unwrap().is_some());
    let ended = demo.0.wait().unwrap();
    let mut told = String::new();
    demo.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(ended.success(), "{ended}: {told}");
    assert_eq!(entries(temporary.path()), [""; 0], "{told}");
}

#[test]
fn the_demo_refuses_a_directory_that_is_not_fresh_and_says_what_to_do() {
    let (temporary, used) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(used.path().join("kept"), "mine").unwrap();
    let refused = demo(temporary.path()).arg("--data-dir").arg(used.path()).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{told}");
    let rule = format!("the demo wants a fresh directory and {} is not empty", used.path().display());
    assert!(told.contains(&rule) && told.contains("name another with --data-dir, or leave it out"), "{told}");
    assert_eq!(entries(used.path()), ["kept"]);
    assert_eq!(entries(temporary.path()), [""; 0]);
}
