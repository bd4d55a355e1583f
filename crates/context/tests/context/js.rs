//! FIWARE's library for IoT agents, and NGSI.js. `scripts/setup-clients` installs both.

use std::path::Path;
use std::process::Command;

use millstream_testkit::installed;

use crate::world::World;

/// Runs a script of the folder beside this file against a server of its own.
async fn run(script: &'static str, argument: &'static str) {
    let (dir, scripts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let modules = installed("context/js/node_modules");
    // Scripts find their modules beside them.
    std::os::unix::fs::symlink(modules, scripts.path().join("node_modules")).unwrap();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/context/js")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, scripts.path().join(path.file_name().unwrap())).unwrap();
    }
    let world = World::open(dir.path());
    let served = world.serve().await;
    let url = format!("http://{}", served.address);
    let script = scripts.path().join(script);
    let run = move || Command::new("node").args(["--no-deprecation"]).arg(script).args([&*url, argument]).output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("all is as it should be"), "{said}\n{wrong}");
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_iot_agent_for_json_provisions_measures_commands_and_reads_its_devices() {
    run("iot_agent.mjs", "json").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_iot_agent_for_ultralight_provisions_measures_commands_and_reads_its_devices() {
    run("iot_agent.mjs", "ultralight").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ngsi_js_makes_reads_lists_and_deletes_registrations() {
    run("ngsijs.mjs", "").await;
}
