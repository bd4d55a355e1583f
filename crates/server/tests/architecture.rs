//! Who may import whom, read from the manifests; that ARCHITECTURE.md speaks of files that are there; and that no document
//! holds what a merge has left.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What each crate may import of ours, directly. A new line here is a design change: say why in ARCHITECTURE.md.
const ALLOWED: [(&str, &[&str]); 12] = [
    ("types", &[]),
    ("log", &["types"]),
    ("view", &["log", "types"]),
    ("http", &["types"]),
    ("columns", &["types"]),
    ("connect", &["log", "view", "http", "types"]),
    ("context", &["log", "view", "http", "columns", "types"]),
    ("history", &["log", "http", "types"]),
    ("query", &["log", "columns", "types"]),
    ("kafka", &["log", "types"]),
    ("load", &["types"]),
    ("server", &["types", "log", "view", "http", "columns", "connect", "context", "history", "query", "kafka", "load"]),
];

const PREFIX: &str = "millstream-";

/// Crate name → crates of ours that its manifest names, in any section of dependencies.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifests = std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("Cargo.toml"));
    manifests.filter(|path| path.is_file()).map(|path| read(&path)).collect()
}

fn read(manifest: &Path) -> (String, BTreeSet<String>) {
    let text = std::fs::read_to_string(manifest).unwrap();
    let (mut name, mut imports, mut in_dependencies) = (String::new(), BTreeSet::new(), false);
    for line in text.lines() {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        } else if let Some(own) = line.strip_prefix("name = \"millstream-") {
            name = own.trim_end_matches('"').to_owned();
        } else if let (true, Some(import)) = (in_dependencies, line.strip_prefix(PREFIX)) {
            imports.insert(import.split(['.', ' ', '=']).next().unwrap().to_owned());
        }
    }
    (name, imports)
}

#[test]
fn crates_import_only_what_the_design_allows() {
    let imports = imports();
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

#[test]
fn the_check_sees_imports_at_all() {
    assert!(imports()["view"].contains("log"));
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
