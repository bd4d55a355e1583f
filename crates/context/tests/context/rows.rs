//! The reference's rows have their tests.

use std::path::Path;

#[test]
fn every_row_names_a_test_that_is_there() {
    millstream_testkit::check_rows(Path::new(env!("CARGO_MANIFEST_DIR")));
}
