//! The commands that the guides tell a reader to paste.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

/// The blocks of a document in that language, in order. Its path begins at the root of the tree.
pub fn blocks(document: &str, language: &str) -> Vec<String> {
    let all = every_block(document).into_iter();
    all.filter(|(named, _)| named == language).map(|(_, block)| block).collect()
}

/// Every block of a document that names its language, and that language, in order.
pub fn every_block(document: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(path).unwrap();
    // Between the fences, in turn, what is a block and what is not.
    let fenced = text.split("\n```").skip(1).step_by(2);
    let named = fenced.filter_map(|block| block.split_once('\n'));
    named.map(|(language, block)| (language.to_owned(), block.to_owned() + "\n")).collect()
}
