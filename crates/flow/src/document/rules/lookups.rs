//! Rules of lookups.

use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};
use crate::document::tree::Tree;

/// The keys that name a table, each with a noun.
const TABLES: [(&str, &str); 4] =
    [("topic", "a topic"), ("bucket", "a bucket"), ("file", "a file"), ("entities", "entities")];

pub(super) fn lookup_table(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| node.node_type.is_some_and(|kind| kind.name == "lookup")) {
        let path = join(&node.path, "config");
        let Some(config) = node.tree.get("config") else {
            findings.add(node.name_place, &path, rule, no_table(node.name));
            continue;
        };
        let given = |key: &str| config.get(key);
        let tables: Vec<(&str, &str, &Tree)> =
            TABLES.iter().filter_map(|(key, noun)| Some((*key, *noun, given(key)?))).collect();
        let (table, tree) = match tables[..] {
            [] => {
                findings.add(config.place, &path, rule, no_table(node.name));
                continue;
            }
            [(table, _, tree)] => (table, tree),
            [(_, one, _), (key, other, second), ..] => {
                let message = format!("'{}' has two tables, {one} and {other}; keep one of them", node.name);
                findings.add(second.place, &join(&path, key), rule, message);
                continue;
            }
        };
        if table == "file" && given("column").is_none() {
            let message = "the file has no 'column'; name the one that has the key";
            findings.add(tree.place, &join(&path, table), rule, message.to_owned());
        }
        if let Some(column) = given("column").filter(|_| table != "file") {
            let message = match table {
                "topic" => "'column' is for files, and a topic's key is that of its records; leave it out",
                "bucket" => "'column' is for files, and a bucket's values have their keys; leave it out",
                _ => "'column' is for files, and entities have their ids; leave it out",
            };
            findings.add(column.place, &join(&path, "column"), rule, message.to_owned());
        }
        match given("key") {
            None if table != "entities" => {
                let message =
                    format!("'{}' has no 'key'; add the expression that gives the key of a record", node.name);
                findings.add(config.place, &join(&path, "key"), rule, message);
            }
            Some(key) if table == "entities" => {
                let message = "'key' is for tables, and 'entities.id' tells the id of an entity; leave it out";
                findings.add(key.place, &join(&path, "key"), rule, message.to_owned());
            }
            _ => {}
        }
    }
}

fn no_table(node: &str) -> String {
    format!("'{node}' has no table; name a topic, a bucket, a file and its column, or entities")
}
