//! A crate's `rows.md` says which test shows each row of its reference; here it is held to be true.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

/// Checks that each row in `tests/rows.md` of a crate names a test that is there, and that each section has its rows.
///
/// # Panics
/// With the row or the sections that are wrong.
pub fn check_rows(crate_dir: &Path) {
    let tests = Path::new("tests").join(crate_dir.file_name().unwrap());
    let rows = std::fs::read_to_string(crate_dir.join("tests/rows.md")).unwrap();
    let mut sections = BTreeSet::new();
    for line in rows.lines().filter(|line| line.starts_with("| §")) {
        let Some((row, test)) = line.trim_matches(['|', ' ']).split_once(" | `") else { continue };
        let Some((file, name)) = test.split_once("` ").filter(|(file, _)| file.ends_with(".rs")) else { continue };
        let path = crate_dir.join(if file.contains('/') { Path::new("") } else { &tests }).join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(text.contains(&format!("fn {name}(")), "{row}: there is no {name} in {}", path.display());
        let section = row.trim_start_matches('§').split([' ', '.']).next().unwrap();
        sections.insert(section.parse::<u32>().unwrap_or_else(|_| panic!("no section: {row}")));
    }
    let expected = rows.lines().find_map(|line| line.strip_prefix("Sections: ")).unwrap();
    let expected: BTreeSet<u32> = expected.split(' ').map(|section| section.parse().unwrap()).collect();
    assert_eq!(sections, expected, "each section has its rows");
}
