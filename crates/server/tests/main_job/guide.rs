//! What the guides tell a stranger to paste.

use std::path::Path;

/// The blocks of a document in that language, in order.
pub(crate) fn blocks(document: &str, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let opening = format!("\n```{language}\n");
    let blocks = text.split(&opening).skip(1);
    blocks.map(|rest| rest.split("\n```").next().unwrap().to_owned() + "\n").collect()
}
