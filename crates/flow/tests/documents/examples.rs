//! The examples are documents that this version accepts.

use std::path::Path;

use millstream_flow::{Document, Role, Scheduler};

use crate::catalogue::context;
use crate::reading::rendered;

#[test]
fn the_job_of_the_benchmark_is_accepted() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs/linear-bench.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let document = Document::read(&text, &context()).unwrap_or_else(|findings| panic!("{}", rendered(&findings)));
    assert_eq!(document.scheduler, Scheduler::Greedy);
    let sizes: Vec<u32> = document.nodes.iter().map(|node| node.batch.size).collect();
    assert_eq!(sizes, [20; 6]);
}

#[test]
fn each_example_is_accepted_and_has_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs");
    for row in 1..=10 {
        let text = std::fs::read_to_string(folder.join(format!("f{row}.yaml"))).unwrap();
        let document =
            Document::read(&text, &context()).unwrap_or_else(|findings| panic!("f{row}: {}", rendered(&findings)));
        assert!(document.name.starts_with(&format!("f{row}-")));
        assert!(document.tests.iter().all(|test| !test.expect.is_empty()) && !document.tests.is_empty(), "f{row}");
        assert!(document.nodes.iter().any(|node| node.role == Role::Source && node.kind == "list"));
    }
}
