//! `rows.md` says which test shows each row of the reference; here it is held to be true.

use std::path::Path;

const ROWS: &str = include_str!("../rows.md");

#[test]
fn every_row_names_a_test_that_is_there() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sections = std::collections::BTreeSet::new();
    let mut count = 0;
    for line in ROWS.lines().filter(|line| line.starts_with("| §")) {
        let Some((row, test)) = line.trim_matches(['|', ' ']).split_once(" | `") else { continue };
        let (file, name) = test.split_once("` ").unwrap_or_else(|| panic!("no test: {line}"));
        let dir = if file.contains('/') { "" } else { "tests/context" };
        let path = crate_dir.join(dir).join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(text.contains(&format!("fn {name}(")), "{row}: there is no {name} in {}", path.display());
        let section = row.trim_start_matches('§').split([' ', '.']).next().unwrap();
        sections.insert(section.parse::<u32>().unwrap_or_else(|_| panic!("no section: {row}")));
        count += 1;
    }
    let expected: Vec<u32> = (2..=16).chain(18..=20).collect();
    assert_eq!(sections.into_iter().collect::<Vec<_>>(), expected, "each section has its rows");
    assert!(count > 100, "{count}");
}
