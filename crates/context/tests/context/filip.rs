//! A client library of FIWARE users that is not ours, filip. `scripts/setup-clients` installs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::World;

/// The interpreter that has the library.
fn python() -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    let target = binary.ancestors().nth(3).unwrap();
    let python = target.join("context/venv/bin/python");
    assert!(python.exists(), "{} is not there: run scripts/setup-clients first", python.display());
    python
}

#[tokio::test(flavor = "multi_thread")]
async fn filip_passes_a_scenario_over_entities_batches_queries_types_and_subscriptions() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/context/filip/scenario.py");
    let url = format!("http://{}", served.address);
    let run = move || Command::new(python()).arg(script).arg(url).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
    assert!(said.contains("answers as expected"), "{said}");
    println!("{said}");
    served.stop().await;
    world.close();
}
