//! The commands that README tells a stranger to paste do what it says.

use std::path::Path;
use std::process::Command;

use crate::process::Process;

/// The blocks of shell commands in README, with the headings' numbers they stand under lost: they build on each other.
fn blocks() -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_five_steps_of_the_readme_run() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let bin = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().unwrap().to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut outputs = Vec::new();
    for block in blocks() {
        let script = block
            .replace("127.0.0.1:8000", &process.applications.to_string())
            .replace("127.0.0.1:8080", &process.devices.to_string());
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .env("PATH", &path)
            .env("MILLSTREAM_SERVER", process.applications_url())
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{block}\nprinted\n{out}\n{err}");
        outputs.push(out.into_owned());
    }
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
