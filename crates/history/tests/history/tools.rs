//! Reads the files with third-party tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{HOUR_MS, NEW_YEAR_MS, World, quiet};

/// The folder in which scripts/setup-clients installs tools, next to the test binaries.
fn python() -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    let target = binary.ancestors().nth(3).unwrap();
    let python = target.join("history/venv/bin/python");
    assert!(python.is_file(), "{} is not there: run scripts/setup-clients", python.display());
    python
}

#[test]
fn duckdb_and_pandas_read_the_files_as_one_table() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    for hour in 0..30 {
        world.measure("room1", "t", &hour.to_string(), NEW_YEAR_MS + hour * HOUR_MS);
    }
    world.measure("room1", "state", "\"on\"", NEW_YEAR_MS);
    world.change(("acme", "Odd Type/\u{e9}", "x"), "t", "{\"a\":[1,null]}", NEW_YEAR_MS);
    world.flush();
    world.close();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/history/read_files.py");
    let output = Command::new(python()).arg(script).arg(dir.path().join("history")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        "duckdb default Room 2026-01-01 room1 t 24 11.5 2026-01-01 23:00:00+00",
        "duckdb default Room 2026-01-02 room1 t 6 26.5 2026-01-02 05:00:00+00",
        "duckdb default Room 2026-01-01 room1 state 1 None 2026-01-01 00:00:00+00",
        "duckdb odd {\"a\":[1,null]}",
        "pandas Room t 30 435.0 2026-01-02T05:00:00+00:00",
        "pandas Room state 1 0.0 2026-01-01T00:00:00+00:00",
        "pandas columns entity_id service_path attribute attribute_type observed_at modified_at value number metadata \
         source_offset tenant type day",
    ] {
        assert!(said.lines().any(|said| said == line), "'{line}' is not among\n{said}");
    }
}
