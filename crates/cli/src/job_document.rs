//! Reads job documents for the command line, and renders their faults.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::terminal::cell;

/// The text of a file, or of standard input for `-`.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// A finding as a line: its place, path, message and the nearest name.
pub(crate) fn fault(finding: &Value) -> String {
    let nearest = finding["nearest"].as_str().map(|nearest| format!("; did you mean {nearest}?"));
    let path = finding["path"].as_str().filter(|path| !path.is_empty()).map(|path| format!("{path}: "));
    format!(
        "{}:{} {}{}{}",
        finding["line"],
        finding["column"],
        path.unwrap_or_default(),
        cell(&finding["message"]),
        nearest.unwrap_or_default()
    )
}
