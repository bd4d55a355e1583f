//! A client library of FIWARE users that is not ours, filip. `scripts/setup-clients` installs it.

use std::path::Path;
use std::process::Command;

use millstream_testkit::installed;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn filip_passes_a_scenario_over_entities_batches_queries_types_and_subscriptions() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/context/filip/scenario.py");
    let url = format!("http://{}", served.address);
    let run = move || Command::new(installed("context/venv/bin/python")).arg(script).arg(url).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
    assert!(said.contains("answers as expected"), "{said}");
    println!("{said}");
    served.stop().await;
    world.close();
}
