//! Checks that the manifests and the modules of each crate follow the rules of imports, that no function takes a tuple
//! apart in its parameters, that ARCHITECTURE.md speaks of files that are there, and that no document holds the marks
//! of a merge.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "architecture/folders.rs"]
mod folders;
#[path = "architecture/imports.rs"]
mod imports;
#[path = "architecture/parameters.rs"]
mod parameters;
#[path = "architecture/tokens.rs"]
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Our crates that each crate may import directly. A new line here is a design change: say why in ARCHITECTURE.md.
const ALLOWED: [(&str, &[&str]); 24] = [
    ("types", &[]),
    ("log", &["types"]),
    ("kafka-wire", &["types"]),
    ("log-kafka", &["log", "kafka-wire", "types"]),
    ("view", &["log", "types"]),
    ("net", &["types"]),
    ("http", &["net", "types"]),
    ("outgoing", &["types"]),
    ("mqtt", &[]),
    ("amqp", &[]),
    ("columns", &["types"]),
    ("jexl", &[]),
    ("connect", &["log", "view", "net", "http", "outgoing", "mqtt", "amqp", "types"]),
    ("context", &["log", "view", "http", "outgoing", "mqtt", "kafka-wire", "columns", "jexl", "types"]),
    ("history", &["log", "http", "types"]),
    ("query", &["log", "columns", "types"]),
    ("flow", &["log", "view", "columns", "types"]),
    ("store", &["log", "view", "net", "http", "types"]),
    ("kafka", &["log", "net", "kafka-wire", "types"]),
    ("load", &["mqtt", "types"]),
    (TESTKIT, &["log", "log-kafka", "types"]),
    ("bench", &["types", "log", "view", "http", "history", "flow", "store", "load"]),
    ("cli", &["types", "flow"]),
    (
        "server",
        &[
            "types",
            "log",
            "log-kafka",
            "view",
            "net",
            "http",
            "amqp",
            "columns",
            "connect",
            "context",
            "history",
            "query",
            "flow",
            "store",
            "kafka",
            "load",
            "bench",
            "cli",
        ],
    ),
];

const PREFIX: &str = "millstream-";
/// The ground of tests: any crate's tests may import it, no crate's product.
const TESTKIT: &str = "testkit";

/// Crate name → crates of ours that its manifest names, in any section of dependencies; without [`TESTKIT`] for its tests.
fn crate_imports() -> BTreeMap<String, BTreeSet<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifests = std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("Cargo.toml"));
    manifests.filter(|path| path.is_file()).map(|path| read(&path)).collect()
}

fn read(manifest: &Path) -> (String, BTreeSet<String>) {
    let text = std::fs::read_to_string(manifest).unwrap();
    let (mut name, mut imports, mut section) = (String::new(), BTreeSet::new(), "");
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        } else if let Some(own) = line.strip_prefix("name = \"millstream-") {
            name = own.trim_end_matches('"').to_owned();
        } else if let (true, Some(import)) = (section.contains("dependencies"), line.strip_prefix(PREFIX)) {
            let import = import.split(['.', ' ', '=']).next().unwrap();
            if (section, import) != ("[dev-dependencies]", TESTKIT) {
                imports.insert(import.to_owned());
            }
        }
    }
    (name, imports)
}

#[test]
fn crates_import_only_the_crates_that_the_design_allows() {
    let imports = crate_imports();
    let named: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = imports.keys().map(String::as_str).collect();
    assert_eq!(found, named, "every crate stands in ALLOWED, and nothing else does");
    for (name, allowed) in ALLOWED {
        let allowed: BTreeSet<String> = allowed.iter().map(|import| (*import).to_owned()).collect();
        let forbidden: Vec<_> =
            imports[name].iter().filter(|import| *import != name && !allowed.contains(*import)).collect();
        assert!(forbidden.is_empty(), "{name} imports {forbidden:?}; it may import {allowed:?}");
    }
}

/// The embedded engine, which no plane may name: all of them work on the contract.
const ENGINE: &str = "Embedded";
/// The files that choose the engine, or work on the files of one.
const ENGINE_NAMED_IN: [&str; 5] = [
    "server/src/backups.rs",
    "server/src/kept_log.rs",
    "server/src/log_command.rs",
    "server/src/restore_command.rs",
    "server/src/writing.rs",
];

#[test]
fn no_plane_names_an_engine_of_the_log() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let named = |name: &str| imports::importers(&crates.join(name).join("src"), &format!("{name}/src"), ENGINE);
    let without = ["log", "log-kafka", TESTKIT, "bench"];
    let mut found: Vec<String> =
        ALLOWED.iter().filter(|(name, _)| !without.contains(name)).flat_map(|(name, _)| named(name)).collect();
    found.sort();
    assert_eq!(found, ENGINE_NAMED_IN, "take `dyn Log`, `dyn LogFigures` or `dyn KafkaLog` instead");
}

#[test]
fn the_check_sees_imports_at_all() {
    assert!(crate_imports()["view"].contains("log"));
}

#[test]
fn every_path_that_the_architecture_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("crates/"));
    let paths: BTreeSet<&str> = quoted.collect();
    assert!(paths.contains("crates/view/src/owner.rs"), "the life of a measurement names its files: {paths:?}");
    let missing: Vec<&&str> = paths.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}; correct it");
}

#[test]
fn no_document_holds_both_sides_of_a_merge() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let folders = ["", "docs", "docs/verification"];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let documents: Vec<_> = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .collect();
    assert!(documents.len() > 10, "the documents are there: {documents:?}");
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        let is_left = |line: &&str| ["<<<<<<<", "=======", ">>>>>>>"].iter().any(|mark| line.starts_with(mark));
        let left: Vec<_> = text.lines().filter(is_left).collect();
        assert!(left.is_empty(), "{}: {left:?}", document.display());
    }
}
