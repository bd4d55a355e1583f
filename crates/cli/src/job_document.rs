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

/// A finding as a line: its place, path and message, and the nearest name if the message does not have it. The place of a fault in
/// a bundle is one in the bundle's text.
pub(crate) fn fault(finding: &Value) -> String {
    let bundle = finding["bundle"].as_str().map(|bundle| format!(" bundle {bundle}:"));
    let is_told = finding["message"].as_str().is_some_and(|message| message.contains("did you mean"));
    let nearest = finding["nearest"].as_str().filter(|_| !is_told);
    let nearest = nearest.map(|nearest| format!("; did you mean '{nearest}'?"));
    let path = finding["path"].as_str().filter(|path| !path.is_empty()).map(|path| format!("{path}: "));
    format!(
        "{}{}:{} {}{}{}",
        bundle.unwrap_or_default(),
        finding["line"],
        finding["column"],
        path.unwrap_or_default(),
        cell(&finding["message"]),
        nearest.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fault_names_the_bundle_that_it_is_in_and_the_nearest_name_once() {
        let fault_of = |more: Value| {
            let mut finding = json!({"line": 3, "column": 5, "path": "use.a", "message": "no"});
            finding.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            fault(&finding)
        };
        assert_eq!(fault_of(json!({})), "3:5 use.a: no");
        assert_eq!(fault_of(json!({"path": "", "nearest": "b"})), "3:5 no; did you mean 'b'?");
        let told = json!({"message": "no 'c'; did you mean 'b'?", "nearest": "b"});
        assert_eq!(fault_of(told), "3:5 use.a: no 'c'; did you mean 'b'?");
        assert_eq!(fault_of(json!({"bundle": "clean"})), " bundle clean:3:5 use.a: no");
    }
}
