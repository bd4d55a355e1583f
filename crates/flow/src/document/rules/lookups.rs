//! Rules of lookups.

use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};

pub(super) fn lookup_table(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| node.node_type.is_some_and(|kind| kind.name == "lookup")) {
        let path = join(&node.path, "config");
        let config = node.tree.get("config");
        let given = |key: &str| config.and_then(|config| config.get(key));
        let (place, path, message) = match (given("topic"), given("file"), given("column")) {
            (None, None, _) => {
                let message = format!("'{}' has no table; name a topic, or a file and its column", node.name);
                (config.map_or(node.name_place, |config| config.place), path, message)
            }
            (Some(_), Some(file), _) => {
                let message = format!("'{}' has two tables, a topic and a file; keep one of them", node.name);
                (file.place, join(&path, "file"), message)
            }
            (None, Some(file), None) => {
                let message = "the file has no 'column'; name the one that has the key".to_owned();
                (file.place, join(&path, "file"), message)
            }
            (Some(_), None, Some(column)) => {
                let message =
                    "'column' is for files, and a topic's key is that of its records; leave it out".to_owned();
                (column.place, join(&path, "column"), message)
            }
            _ => continue,
        };
        findings.add(place, &path, rule, message);
    }
}
