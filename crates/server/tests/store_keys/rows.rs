//! Every test that `rows.md` names is there.

use std::path::Path;

#[test]
fn every_test_that_the_table_of_rows_names_is_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store_keys");
    let table = std::fs::read_to_string(folder.join("rows.md")).unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|') && line.contains(".rs` ")).collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in rows {
        let test = row.trim_end_matches('|').rsplit('|').next().unwrap().trim();
        let (file, name) = test.trim_start_matches('`').split_once("` ").unwrap_or_else(|| panic!("no test: {row}"));
        let text = std::fs::read_to_string(folder.join(file)).unwrap_or_else(|_| panic!("no such file: {row}"));
        assert!(text.contains(&format!("#[test]\nfn {name}() {{")), "no such test: {row}");
    }
}
